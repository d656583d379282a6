#include "remote/hub/hub.hpp"

#include <algorithm>
#include <fstream>

#include "base/hex.hpp"
#include "base/of_machine.hpp"
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

std::string first_set(std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    if (std::string text = variable(name); !text.empty()) return text;
  }
  return {};
}

/// Returns true for the values that huggingface_hub takes as true (constants.py), in upper or lower case.
bool is_true(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return text == "1" || text == "ON" || text == "YES" || text == "TRUE";
}

constexpr std::string_view gated = "GatedRepo", no_repository = "RepoNotFound", no_revision = "RevisionNotFound",
                           no_file = "EntryNotFound";  // X-Error-Code: huggingface_hub, hf_raise_for_status()
constexpr std::string_view lacks_repository = "the hub has no such repository, or it is private",
                           not_in_cache = "the local cache does not have it, and the hub is not asked";  // messages

class HubAccount final : public Account {
 public:
  HubAccount(std::string token, std::string page, std::string revision)
      : token_(std::move(token)), page_(std::move(page)), revision_(std::move(revision)) {}
  Status sign(Request& request) const override {
    if (!token_.empty()) request.headers.emplace_back("authorization", "Bearer " + token_);
    return {};
  }
  Error error(const Request& request, const Answer& answer) const override {
    const std::string code = answer.header("x-error-code");
    const long status = answer.status;
    const auto make = [&](Errc errc, std::string_view what, const std::string& hint) {
      return Error(errc, what).file(request.url.shown()).found(found_in(request, answer)).hint(hint);
    };
    const std::string log_in = "set HF_TOKEN, or run hf auth login";
    if (code == gated) {
      return make(Errc::io, "the repository is gated",
                  "accept its terms at " + page_ + (token_.empty() ? ", and " + log_in : " with the token's account"));
    }
    if (code == no_revision) {
      return make(Errc::not_found, "the repository has no such revision", "check the revision " + revision_);
    }
    if (code == no_file) return make(Errc::not_found, "the repository has no such file", "its files: " + page_);
    // To users that have not logged in, the hub answers 401 for a repository that does not exist, too.
    if (code == no_repository || (status == 401 && token_.empty())) {
      return make(status == 404 ? Errc::not_found : Errc::io, lacks_repository,
                  "check the name; for a private repository, " +
                      (token_.empty() ? log_in : std::string("use a token that may read it")));
    }
    if (status == 404) return make(Errc::not_found, "the hub has no such repository or file", "check the name");
    if (status == 401) return make(Errc::io, "the hub does not accept the token", "check HF_TOKEN, or the file of it");
    if (status == 403) {
      return make(Errc::io, "the hub refuses access", token_.empty() ? log_in : "check the rights of the token");
    }
    if (status == 429) {
      return make(Errc::io, "the hub has received too many requests",
                  "try again later" + (token_.empty() ? ", or " + log_in : std::string()));
    }
    return error_of(request, answer);
  }

 private:
  std::string token_, page_, revision_;
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
  const auto invalid = [&] {
    return Error(Errc::invalid_argument, "the URL names no repository of the hub")
        .file(url)
        .expected("hf://[datasets/|spaces/][owner/]name[@revision][/path]");
  };
  const std::size_t scheme = url.find("://");
  if (scheme == url.npos) return invalid();
  std::string_view rest = std::string_view(url).substr(scheme + 3);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  for (const std::string_view kind : {"datasets/", "spaces/", "models/"}) {
    if (!rest.starts_with(kind)) continue;
    rest.remove_prefix(kind.size());
    if (kind != "models/") name.kind = kind;
    break;
  }
  // Models that are older than owners have a name alone: hf://gpt2, hf://gpt2@main/config.json.
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const bool owned = slash != rest.size() && rest.substr(0, slash).find('@') == rest.npos;
  const std::size_t end = owned ? std::min(rest.find('/', slash + 1), rest.size()) : slash;
  std::string_view repo = rest.substr(0, end);
  if (const std::size_t at = repo.find('@'); at != repo.npos) {
    name.revision = percent_decoded(repo.substr(at + 1));
    repo = repo.substr(0, at);
  }
  name.repo = repo;
  const bool plain = name.repo.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") == name.repo.npos;
  const bool whole = !repo.empty() && !repo.starts_with('/') && !repo.ends_with('/');
  if (!plain || !whole || name.revision.empty() || name.repo.find("..") != name.repo.npos) return invalid();
  if (end < rest.size()) name.path = rest.substr(end + 1);
  if (!name.path.empty()) STELE_TRY(v0::detail::check_name(name.path));
  return name;
}

std::optional<Repository::Name> Repository::Name::without_owner() const {
  const std::size_t slash = repo.find('/');
  if (slash == repo.npos || revision != "main" || !kind.empty()) return std::nullopt;
  Name other = *this;
  other.path = repo.substr(slash + 1) + (path.empty() ? "" : "/" + path);
  other.repo.resize(slash);
  return other;
}

bool Repository::may_not_exist(const Error& error) noexcept {
  return error.message() == lacks_repository || error.message() == not_in_cache;
}

Result<std::shared_ptr<const Repository>> Repository::open(std::shared_ptr<const Client> client, const Name& name) {
  const Options& options = client->options();
  std::shared_ptr<Repository> made(new Repository());
  made->name_ = name;
  std::string token = options.token;
  if (token.empty()) token = first_set({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"});
  if (token.empty()) {
    const std::string file = variable("HF_TOKEN_PATH");
    token = first_line(!file.empty() ? file : home() + "/token");
  }
  made->endpoint_ = !options.hub_endpoint.empty() ? options.hub_endpoint : variable("HF_ENDPOINT");
  if (made->endpoint_.empty()) made->endpoint_ = "https://huggingface.co";
  while (made->endpoint_.ends_with('/')) made->endpoint_.pop_back();
  made->account_ =
      std::make_shared<HubAccount>(std::move(token), made->endpoint_ + "/" + name.kind + name.repo, name.revision);
  std::string cache = options.hub_cache;
  if (cache.empty()) cache = first_set({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
  if (cache.empty() && !home().empty()) cache = home() + "/hub";
  if (!cache.empty()) {
    std::string folder = name.kind.empty() ? "models" : name.kind.substr(0, name.kind.size() - 1);
    std::string repo = name.repo;
    if (const std::size_t slash = repo.find('/'); slash != repo.npos) repo.replace(slash, 1, "--");
    made->cache_ = cache + "/" + folder + "--" + repo;
  }
  made->offline_ = options.offline ? *options.offline : is_true(first_set({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}));
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

namespace {

/// Number of times that the hub is asked for something that the local cache has, too.
constexpr unsigned tries_before_cache = 2;

constexpr const char* ask_hub = "unset HF_HUB_OFFLINE, or download it while the hub can be reached";

}  // namespace

bool Repository::reads_cache_after(const Error& error) const {
  // As in huggingface_hub: the hub is down, or no longer permits what was permitted when the file was downloaded.
  if (!v0::detail::is_of_machine(error) || error.code() == Errc::cancelled) return false;
  const auto& note = client_->options().note;
  if (note) {
    note(std::string(error.message()) + "; " + shown({}) +
         " is read from the local cache, and may have changed since then");
  }
  return true;
}

Result<SourcePtr> Repository::file(const std::string& path) const {
  const std::string asked = revision();
  if (is_commit(asked)) {
    STELE_TRY_ASSIGN(SourcePtr local, cached(asked, path));
    if (local != nullptr) return local;
  }
  if (offline_) {
    return Error(Errc::not_found, not_in_cache)
        .file(shown(path))
        .found(cache_.empty() ? "no cache" : cache_)
        .hint(ask_hub);
  }
  const std::string old_commit = is_commit(asked) ? std::string() : cached_commit();
  STELE_TRY_ASSIGN(SourcePtr old, cached(old_commit, path));
  Place place;
  place.tries = old != nullptr ? tries_before_cache : 0;
  place.client = client_;
  place.account = account_;
  place.name = shown(path);
  place.bundle = [self = shared_from_this(), folder = path.substr(0, path.rfind('/') + 1)] {
    return self->bundle(folder);
  };
  STELE_TRY_ASSIGN(place.url, url("/" + name_.kind,
                                  "/resolve/" + percent_encoded(asked, false) + "/" + percent_encoded(path, true)));
  Answer first;
  auto opened = open_file(std::move(place), &first);
  const bool from_cache = !opened && old != nullptr && reads_cache_after(opened.error());
  if (!opened && !from_cache) return opened;
  const SourcePtr source = from_cache ? std::move(old) : *std::move(opened);
  const std::string commit = from_cache ? old_commit : first.header("x-repo-commit");
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

Result<std::vector<std::string>> Repository::list_cached(const std::string& commit) const {
  return v0::folder_bundle(snapshot(commit))->names();
}

Result<std::vector<std::string>> Repository::list() const {
  std::vector<std::string> found;
  if (offline_) {
    const std::string commit = revision();
    if (cache_.empty() || !is_commit(commit)) {
      return Error(Errc::not_found, not_in_cache).file(shown({})).hint(ask_hub);
    }
    return list_cached(commit);
  }
  const std::string old_commit = is_commit(revision()) ? revision() : cached_commit();
  const auto old = cache_.empty() || old_commit.empty() ? Result<std::vector<std::string>>(std::vector<std::string>())
                                                        : list_cached(old_commit);
  const bool has_old = old && !old->empty();
  const std::string kind = name_.kind.empty() ? "models/" : name_.kind;
  STELE_TRY_ASSIGN(Url at, url("/api/" + kind, "/tree/" + percent_encoded(revision(), false)));
  at.query = "recursive=true";
  const Url first = at;
  for (Pages pages;;) {
    Client::Call call;
    call.request.url = at;
    call.account = account_.get();
    call.max_answer = max_listing;
    if (has_old) call.tries = tries_before_cache;
    const auto answered = client_->run(std::move(call));
    if (!answered && has_old && reads_cache_after(answered.error())) {
      const std::lock_guard lock(mutex_);
      if (commit_.empty()) commit_ = old_commit;
      return *old;
    }
    if (!answered) return answered.error();
    const Answer& answer = *answered;
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
