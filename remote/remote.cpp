#include "stele/remote.hpp"

#include <memory>
#include <mutex>

#include "io/urls.hpp"
#include "remote/http/file.hpp"
#include "remote/hub/hub.hpp"
#include "remote/s3/store.hpp"

namespace stele::inline v0::remote {
namespace {

using ClientPtr = std::shared_ptr<const Client>;

std::string_view scheme_of(std::string_view url) { return url.substr(0, url.find("://")); }

/// The bucket and the key of s3://bucket/key.
Result<std::pair<std::shared_ptr<const Bucket>, std::string>> place_of(const ClientPtr& client,
                                                                       const std::string& url) {
  const std::string_view rest = std::string_view(url).substr(url.find("://") + 3);
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  STELE_TRY_ASSIGN(auto bucket, Bucket::open(client, std::string(rest.substr(0, slash))));
  return std::pair(std::move(bucket), std::string(rest.substr(std::min(slash + 1, rest.size()))));
}

Error unknown_scheme(const std::string& url) {
  return Error(Errc::unsupported, "the scheme is not known")
      .file(url.substr(0, url.find_first_of("?#")))
      .expected("https, s3 or hf");
}

/// Opens a repository of the hub, or a file or folder of it. Lists a whole repository, so that its errors are found.
Result<SourcePtr> open_in_repository(const ClientPtr& client, const Repository::Name& name) {
  STELE_TRY_ASSIGN(const auto repository, Repository::open(client, name));
  if (name.path.empty()) {
    STELE_TRY(repository->files());
    return bundle_source(repository->bundle({}), repository->shown({}));
  }
  auto file = repository->file(name.path);
  if (file || file.error().code() != Errc::not_found) return file;
  const auto folder = repository->bundle(name.path + "/");
  STELE_TRY_ASSIGN(const auto names, folder->names());
  if (names.empty()) return file;
  return bundle_source(folder, repository->shown(name.path));
}

Result<SourcePtr> open_with(const ClientPtr& client, const std::string& url) {
  const std::string_view scheme = scheme_of(url);
  if (scheme == "s3") {
    STELE_TRY_ASSIGN(const auto place, place_of(client, url));
    const auto& [bucket, key] = place;
    if (key.empty() || key.ends_with('/')) {
      STELE_TRY_ASSIGN(const auto some, bucket->list(key, 1));
      if (some.empty()) return Error(Errc::not_found, "the store has no such folder").file(bucket->shown(key));
      return bundle_source(bucket->bundle(key), bucket->shown(key));
    }
    auto file = bucket->read(key);
    if (file || file.error().code() != Errc::not_found) return file;
    STELE_TRY_ASSIGN(const auto below, bucket->list(key + "/", 1));
    if (below.empty()) return file;
    return bundle_source(bucket->bundle(key + "/"), bucket->shown(key));
  }
  if (scheme == "hf") {
    STELE_TRY_ASSIGN(const Repository::Name name, Repository::Name::parse(url));
    auto opened = open_in_repository(client, name);
    const auto other = name.without_owner();
    if (opened || !other || !Repository::may_not_exist(opened.error())) return opened;
    auto without_owner = open_in_repository(client, *other);
    return without_owner ? std::move(without_owner) : std::move(opened);
  }
  if (scheme != "http" && scheme != "https") return unknown_scheme(url);
  Place place;
  place.client = client;
  STELE_TRY_ASSIGN(place.url, Url::parse(url));
  place.name = place.url.shown();
  Url folder = place.url;
  folder.path.erase(folder.path.rfind('/') + 1);
  folder.query.clear();
  if (place.url.path.ends_with('/')) return bundle_source(http_bundle(client, folder), place.name);
  place.bundle = [client, folder] { return http_bundle(client, folder); };
  return open_file(std::move(place));
}

Result<std::unique_ptr<Sink>> create_with(const ClientPtr& client, const std::string& url,
                                          const FileSinkOptions& options) {
  const std::string_view scheme = scheme_of(url);
  if (scheme == "s3") {
    STELE_TRY_ASSIGN(const auto place, place_of(client, url));
    return place.first->create(place.second, options);
  }
  if (scheme != "http" && scheme != "https" && scheme != "hf") return unknown_scheme(url);
  return Error(Errc::unsupported, "nothing can be saved at such a URL")
      .file(url.substr(0, url.find_first_of("?#")))
      .expected("s3://bucket/key");
}

/// The sink of a folder: its files become visible one by one.
Result<std::unique_ptr<Sink>> create_folder(const ClientPtr& client, const std::string& url,
                                            const FileSinkOptions& options) {
  if (scheme_of(url) != "s3") return create_with(client, url, options);
  STELE_TRY_ASSIGN(const auto place, place_of(client, url));
  const auto& [bucket, key] = place;
  const std::string prefix = key.empty() || key.ends_with('/') ? key : key + "/";
  if (!options.allow_nonatomic) {
    STELE_TRY_ASSIGN(const auto there, bucket->list(prefix, 1));
    if (!there.empty()) {
      return Error(Errc::exists, "the folder has files, and a store cannot replace them in one step")
          .file(bucket->shown(prefix))
          .hint("save to another folder, or set FileSinkOptions::allow_nonatomic");
    }
  }
  return bundle_sink(bucket->bundle(prefix, options), bucket->shown(prefix));
}

/// Returns s3://bucket/key for an address of AWS: [bucket.]s3[.dualstack][.region].amazonaws.com, or an older one with
/// s3-region. Empty for other addresses.
std::string aws_identity(const Url& url, const std::string& path) {
  const std::size_t domain = url.host.rfind(".amazonaws.com");
  if (domain == url.host.npos) return {};
  for (std::size_t begin = domain; begin != 0;) {  // labels from the last one on, as a bucket's name may have dots
    const std::size_t end = begin;
    const std::size_t dot = url.host.rfind('.', end - 1);
    begin = dot != url.host.npos ? dot : 0;
    const std::string_view label = std::string_view(url.host).substr(dot != url.host.npos ? dot + 1 : 0);
    if (!label.starts_with("s3.") && !label.starts_with("s3-")) continue;
    return "s3:/" + (begin == 0 ? path : "/" + url.host.substr(0, begin) + path);
  }
  return {};
}

/// Returns one string for all addresses of a file over http: with or without the scheme's port, TLS, a query (which may
/// be a signature) and percent-encoding. `endpoint`: the store's address, which may have buckets in host names.
std::string identity_of(const Url& url, const std::string& endpoint) {
  std::string path = percent_decoded(url.path);
  if (std::string aws = aws_identity(url, path); !aws.empty()) return aws;
  std::string host = url.host;
  if (const auto store = Url::parse(endpoint); store && host.ends_with("." + store->host)) {
    path.insert(0, "/" + host.substr(0, host.size() - store->host.size() - 1));
    host = store->host;
  }
  if (url.is_this_machine()) host = "localhost";
  const bool usual = url.port.empty() || url.port == (url.scheme == "https" ? "443" : "80");
  return "//" + host + (usual ? "" : ":" + url.port) + path;
}

Result<std::string> identity_of(const ClientPtr& client, const std::string& url) {
  const std::string_view scheme = scheme_of(url);
  if (scheme == "s3") {
    STELE_TRY_ASSIGN(const auto place, place_of(client, url));
    STELE_TRY_ASSIGN(const Url address, place.first->url(place.second));
    return identity_of(address, {});
  }
  if (scheme != "http" && scheme != "https") return url;
  STELE_TRY_ASSIGN(const Url address, Url::parse(url));
  STELE_TRY_ASSIGN(const S3Settings settings, S3Settings::find(client->options()));
  return identity_of(address, settings.endpoint);
}

/// The URLs that are given as paths. One client serves the process, so that connections are kept.
class Defaults final : public v0::detail::Urls {
 public:
  Result<SourcePtr> open(const std::string& url) const override {
    return v0::detail::guarded([&] { return open_with(client(), url); });
  }
  Result<std::unique_ptr<Sink>> create(const std::string& url, const FileSinkOptions& options,
                                       bool folder) const override {
    return v0::detail::guarded(
        [&] { return folder ? create_folder(client(), url, options) : create_with(client(), url, options); });
  }
  Result<std::shared_ptr<v0::detail::Store>> store(const std::string& url) const override {
    return v0::detail::guarded([&]() -> Result<std::shared_ptr<v0::detail::Store>> {
      if (scheme_of(url) != "s3") {
        return Error(Errc::unsupported, "checkpoints cannot be saved at such a URL")
            .file(url.substr(0, url.find_first_of("?#")))
            .expected("s3://bucket/key");
      }
      STELE_TRY_ASSIGN(auto place, place_of(client(), url));
      const std::string& key = place.second;
      return store_of(std::move(place.first), key.empty() || key.ends_with('/') ? key : key + "/");
    });
  }
  std::string identity(const std::string& url) const override {
    auto found = v0::detail::guarded([&] { return identity_of(client(), url); });
    std::string text = found ? *std::move(found) : url;
    while (text.ends_with('/')) text.pop_back();
    return text;
  }
  void set(Options options) {
    const std::lock_guard lock(mutex_);
    options_ = std::move(options);
    client_ = nullptr;
  }

 private:
  ClientPtr client() const {
    const std::lock_guard lock(mutex_);
    // The first client initializes libcurl and OpenSSL: not before a URL is opened.
    if (client_ == nullptr) client_ = std::make_shared<const Client>(options_);
    return client_;
  }
  mutable std::mutex mutex_;
  Options options_{};
  mutable ClientPtr client_;
};

Defaults& defaults() {
  static Defaults& all = *new Defaults;  // never destroyed: other threads may use it when the process ends
  return all;
}

}  // namespace

Result<SourcePtr> open(const std::string& url, const Options& options) {
  return v0::detail::guarded([&] { return open_with(std::make_shared<const Client>(options), url); });
}

Result<std::unique_ptr<Sink>> create(const std::string& url, const Options& options, const FileSinkOptions& file) {
  return v0::detail::guarded([&] { return create_with(std::make_shared<const Client>(options), url, file); });
}

void set_defaults(Options options) { defaults().set(std::move(options)); }

bool detail::enable() noexcept {
  return v0::detail::guarded([]() -> Status {
           v0::detail::set_urls(&defaults());
           return {};
         })
      .has_value();
}

}  // namespace stele::inline v0::remote
