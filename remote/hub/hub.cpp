#include "remote/hub/hub.hpp"

#include <algorithm>
#include <fstream>

#include "base/hex.hpp"
#include "io/files.hpp"
#include "remote/http/environment.hpp"
#include "remote/http/file.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::remote {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line.size() <= 4096 ? line : std::string();
}

/// Returns the hub's own folder: HF_HOME, or XDG_CACHE_HOME/huggingface, or ~/.cache/huggingface.
std::string home() {
  if (std::string set = variable("HF_HOME"); !set.empty()) return set;
  if (const std::string set = variable("XDG_CACHE_HOME"); !set.empty()) return set + "/huggingface";
  const std::string set = variable("HOME");
  return set.empty() ? set : set + "/.cache/huggingface";
}

bool is_true(const std::string& text) {
  return text == "1" || text == "ON" || text == "on" || text == "YES" || text == "yes" || text == "TRUE" ||
         text == "true";
}

class Token final : public Account {
 public:
  explicit Token(std::string token) : token_(std::move(token)) {}
  Status sign(Request& request) const override {
    request.headers.emplace_back("authorization", "Bearer " + token_);
    return {};
  }

 private:
  std::string token_;
};

bool is_commit(const std::string& text) {
  return text.size() == 40 && text.find_first_not_of(v0::detail::hex_digits) == text.npos;
}

class HubFolder final : public Bundle {
 public:
  HubFolder(std::shared_ptr<const Repository> repository, std::string prefix)
      : repository_(std::move(repository)), prefix_(std::move(prefix)) {}
  Result<SourcePtr> open(std::string_view name) const override {
    STELE_TRY(v0::detail::check_name(name));
    return repository_->file(prefix_ + std::string(name));
  }
  Result<std::unique_ptr<Sink>> create(std::string_view) override {
    return Error(Errc::unsupported, "nothing can be saved to the hub").file(repository_->shown(prefix_));
  }
  Result<bool> contains(std::string_view name) const override {
    STELE_TRY(v0::detail::check_name(name));
    STELE_TRY_ASSIGN(const auto all, repository_->files());
    const std::string path = prefix_ + std::string(name);
    const auto at = std::lower_bound(all.begin(), all.end(), path);
    if (at != all.end() && *at == path) return true;
    const auto below = std::lower_bound(all.begin(), all.end(), path + "/");
    return below != all.end() && below->starts_with(path + "/");
  }
  Result<std::vector<std::string>> names() const override {
    STELE_TRY_ASSIGN(std::vector<std::string> all, repository_->files());
    std::erase_if(all, [&](const std::string& name) { return !name.starts_with(prefix_); });
    for (std::string& name : all) name.erase(0, prefix_.size());
    return all;
  }
  void remove(std::string_view) noexcept override {}

 private:
  std::shared_ptr<const Repository> repository_;
  std::string prefix_;
};

/// Returns the URL of the next page: Link: <URL>; rel="next".
std::string next_page(const Answer& answer) {
  const std::string link = answer.header("link");
  const std::size_t rel = link.find("rel=\"next\"");
  const std::size_t begin = rel != link.npos ? link.rfind('<', rel) : link.npos;
  const std::size_t end = begin != link.npos ? link.find('>', begin) : link.npos;
  return end != link.npos ? link.substr(begin + 1, end - begin - 1) : std::string();
}

}  // namespace

Result<Repository::Name> Repository::Name::parse(const std::string& url) {
  Name name;
  std::string_view rest = std::string_view(url).substr(std::min(url.size(), url.find("://") + 3));
  const auto invalid = [&] {
    return Error(Errc::invalid_argument, "the URL names no repository of the hub")
        .file(url)
        .expected("hf://[datasets/|spaces/]owner/name[@revision][/path]");
  };
  for (const std::string_view kind : {"datasets/", "spaces/", "models/"}) {
    if (!rest.starts_with(kind)) continue;
    rest.remove_prefix(kind.size());
    if (kind != "models/") name.kind = kind;
    break;
  }
  const std::size_t slash = rest.find('/');
  if (slash == rest.npos || slash == 0) return invalid();
  const std::size_t end = std::min(rest.find('/', slash + 1), rest.size());
  std::string_view repo = rest.substr(0, end);
  if (const std::size_t at = repo.find('@'); at != repo.npos) {
    name.revision = percent_decoded(repo.substr(at + 1));
    repo = repo.substr(0, at);
  }
  name.repo = repo;
  const bool plain = name.repo.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") == name.repo.npos;
  if (!plain || repo.size() <= slash + 1 || name.revision.empty() || name.repo.find("..") != name.repo.npos)
    return invalid();
  if (end < rest.size()) name.path = rest.substr(end + 1);
  while (name.path.ends_with('/')) name.path.pop_back();
  if (!name.path.empty()) STELE_TRY(v0::detail::check_name(name.path));
  return name;
}

Result<std::shared_ptr<const Repository>> Repository::open(std::shared_ptr<const Client> client, const Name& name) {
  const Options& options = client->options();
  std::shared_ptr<Repository> made(new Repository());
  made->name_ = name;
  std::string token = options.token;
  if (token.empty()) token = variable("HF_TOKEN");
  if (token.empty()) {
    const std::string file = variable("HF_TOKEN_PATH");
    token = first_line(!file.empty() ? file : home() + "/token");
  }
  if (!token.empty()) made->account_ = std::make_shared<Token>(std::move(token));
  made->endpoint_ = !options.hub_endpoint.empty() ? options.hub_endpoint : variable("HF_ENDPOINT");
  if (made->endpoint_.empty()) made->endpoint_ = "https://huggingface.co";
  while (made->endpoint_.ends_with('/')) made->endpoint_.pop_back();
  std::string cache = options.hub_cache;
  if (cache.empty()) cache = variable("HF_HUB_CACHE");
  if (cache.empty() && !home().empty()) cache = home() + "/hub";
  if (!cache.empty()) {
    std::string folder = name.kind.empty() ? "models" : name.kind.substr(0, name.kind.size() - 1);
    std::string repo = name.repo;
    repo.replace(repo.find('/'), 1, "--");
    made->cache_ = cache + "/" + folder + "--" + repo;
  }
  made->offline_ = options.offline ? *options.offline : is_true(variable("HF_HUB_OFFLINE"));
  if (is_commit(name.revision)) made->commit_ = name.revision;
  if (made->offline_ && made->commit_.empty()) made->commit_ = made->cached_commit();
  made->client_ = std::move(client);
  return std::shared_ptr<const Repository>(std::move(made));
}

std::string Repository::shown(std::string_view path) const {
  std::string text = "hf://" + name_.kind + name_.repo +
                     (name_.revision == "main" ? "" : "@" + percent_encoded(name_.revision, false));
  return path.empty() ? text : text + "/" + std::string(path);
}

std::string Repository::revision() const {
  const std::lock_guard lock(mutex_);
  return commit_.empty() ? name_.revision : commit_;
}

Result<Url> Repository::url(const std::string& before, const std::string& after) const {
  return Url::parse(endpoint_ + before + name_.repo + after);
}

// ---- the local cache: models--owner--name/{refs/REVISION, snapshots/COMMIT/PATH} (huggingface_hub, "Understand
// caching")

std::string Repository::snapshot(const std::string& commit) const { return cache_ + "/snapshots/" + commit; }

std::string Repository::cached_commit() const {
  if (cache_.empty() || !v0::detail::check_name(name_.revision)) return {};
  const std::string commit = first_line(cache_ + "/refs/" + name_.revision);
  return is_commit(commit) ? commit : std::string();
}

Result<SourcePtr> Repository::cached(const std::string& commit, const std::string& path) const {
  if (cache_.empty() || commit.empty()) return SourcePtr();
  auto found = v0::folder_bundle(snapshot(commit))->open(path);
  if (!found && found.error().code() == Errc::not_found) return SourcePtr();
  return found;
}

// ---- the hub

Result<SourcePtr> Repository::file(const std::string& path) const {
  const std::string asked = revision();
  if (is_commit(asked)) {
    STELE_TRY_ASSIGN(SourcePtr local, cached(asked, path));
    if (local != nullptr) return local;
  }
  if (offline_) {
    return Error(Errc::not_found, "the local cache does not have the file, and the hub is not asked")
        .file(shown(path))
        .found(cache_.empty() ? "no cache" : cache_)
        .hint("unset HF_HUB_OFFLINE");
  }
  Place place;
  place.client = client_;
  place.account = account_;
  place.name = shown(path);
  place.bundle = [self = shared_from_this(), folder = path.substr(0, path.rfind('/') + 1)] {
    return self->bundle(folder);
  };
  STELE_TRY_ASSIGN(place.url, url("/" + name_.kind,
                                  "/resolve/" + percent_encoded(asked, false) + "/" + percent_encoded(path, true)));
  Answer first;
  STELE_TRY_ASSIGN(SourcePtr source, open_file(std::move(place), &first));
  const std::string commit = first.header("x-repo-commit");
  if (is_commit(asked) || !is_commit(commit)) return source;
  {
    std::unique_lock lock(mutex_);
    if (commit_.empty()) commit_ = commit;
    if (commit_ != commit) {  // another thread has asked first, and the branch has moved since then
      lock.unlock();
      return file(path);
    }
  }
  STELE_TRY_ASSIGN(SourcePtr local, cached(commit, path));
  return local != nullptr ? local : source;
}

Result<std::vector<std::string>> Repository::files() const {
  {
    const std::lock_guard lock(mutex_);
    if (files_) return *files_;
  }
  STELE_TRY_ASSIGN(std::vector<std::string> found, list());
  const std::lock_guard lock(mutex_);
  files_ = found;
  return found;
}

Result<std::vector<std::string>> Repository::list() const {
  std::vector<std::string> found;
  if (offline_) {
    const std::string commit = revision();
    if (cache_.empty() || !is_commit(commit)) {
      return Error(Errc::not_found, "the local cache does not have the repository, and the hub is not asked")
          .file(shown({}))
          .hint("unset HF_HUB_OFFLINE");
    }
    return v0::folder_bundle(snapshot(commit))->names();
  }
  const std::string kind = name_.kind.empty() ? "models/" : name_.kind;
  STELE_TRY_ASSIGN(Url at, url("/api/" + kind, "/tree/" + percent_encoded(revision(), false)));
  at.query = "recursive=true";
  const Url first = at;
  for (Pages pages;;) {
    Client::Call call;
    call.request.url = at;
    call.account = account_.get();
    call.max_answer = max_listing;
    STELE_TRY_ASSIGN(const Answer answer, client_->run(std::move(call)));
    STELE_TRY_ASSIGN(const Value page, parse_json(answer.text));
    const auto* const list = page.as_list();
    if (list == nullptr) return Error(Errc::malformed, "the hub's list of files is not a list").file(shown({}));
    for (const Value& entry : *list) {
      const Value* const type = entry.find("type");
      const Value* const path = entry.find("path");
      if (type == nullptr || path == nullptr || path->as_string() == nullptr || type->as_string() == nullptr) continue;
      if (*type->as_string() == "file" && v0::detail::check_name(*path->as_string()))
        found.push_back(*path->as_string());
    }
    const std::string next = next_page(answer);
    STELE_TRY(pages.next(next, found.size(), answer.text.size(), shown({})));
    if (next.empty()) break;
    STELE_TRY_ASSIGN(at, at.resolve(next));
    if (!at.same_host(first)) {
      return Error(Errc::io, "the hub's list of files continues on another host").file(shown({})).found(at.shown());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::shared_ptr<const Bundle> Repository::bundle(std::string folder) const {
  return std::make_shared<HubFolder>(shared_from_this(), std::move(folder));
}

}  // namespace stele::inline v0::remote
