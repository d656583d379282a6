// Repositories of the Hugging Face hub.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "remote/http/client.hpp"
#include "stele/bundle.hpp"

namespace stele::inline v0::remote {

/// One revision of a repository. Thread-safe. The first answer contains the revision's commit; later requests ask for
/// that commit. Reads files of that commit from the local cache, if it has them.
class Repository : public std::enable_shared_from_this<Repository> {
 public:
  struct Name {
    std::string kind{};  // "", "datasets/" or "spaces/"
    std::string repo{};  // "owner/name", or the "name" of a model that is older than owners
    std::string revision = "main";
    std::string path{};  // path of a file or folder in the repository; may be empty

    /// Parses "hf://[datasets/|spaces/][owner/]name[@revision][/path]". A revision may contain %2F for '/'.
    static Result<Name> parse(const std::string& url);
    /// Returns the repository without an owner that the same URL may mean, hf://name/path; nullopt if there is none.
    std::optional<Name> without_owner() const;
  };
  /// Returns true if the error may mean that there is no such repository, instead of no such file or revision in it.
  static bool may_not_exist(const Error& error) noexcept;
  static Result<std::shared_ptr<const Repository>> open(std::shared_ptr<const Client> client, const Name& name);

  Result<SourcePtr> file(const std::string& path) const;
  /// Returns the sorted paths of all files, or, offline, of the files in the local cache. Asks once.
  Result<std::vector<std::string>> files() const;
  std::shared_ptr<const Bundle> bundle(std::string folder) const;
  std::string shown(std::string_view path) const;

 private:
  Repository() = default;
  /// Returns the revision for requests: the commit, once it is known.
  std::string revision() const;
  Result<Url> url(const std::string& before, const std::string& after) const;
  Result<std::vector<std::string>> list() const;
  /// Opens a file of the local cache. Returns nullptr if the cache does not have it.
  Result<SourcePtr> cached(const std::string& commit, const std::string& path) const;
  /// Returns the commit of the revision in the local cache; empty if there is none.
  std::string cached_commit() const;
  std::string snapshot(const std::string& commit) const;
  /// Returns true if the local cache may be read after this error of the hub, and then notes it for the user.
  bool reads_cache_after(const Error& error) const;
  Result<std::vector<std::string>> list_cached(const std::string& commit) const;

  std::shared_ptr<const Client> client_;
  std::shared_ptr<const Account> account_;
  Name name_;
  std::string endpoint_;
  std::string cache_;  // folder of this repository; empty: none
  bool offline_ = false;
  mutable std::mutex mutex_;
  mutable std::string commit_{};
  mutable std::optional<std::vector<std::string>> files_{};
};

}  // namespace stele::inline v0::remote
