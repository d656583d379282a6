// Replaces a folder in one step.
#include <utility>

#include "base/in_file.hpp"
#include "io/files.hpp"

namespace stele::inline v0 {
namespace {

namespace os = detail::os;
using detail::Names;

/// Syncs the names in all folders below; their files must already be synced.
Status sync_all(const os::Folder& folder) {
  STELE_TRY_ASSIGN(const auto entries, os::entries(folder, static_cast<std::size_t>(-1)));
  for (const os::Entry& entry : entries) {
    if (entry.kind != os::Kind::folder || entry.link) continue;
    STELE_TRY_ASSIGN(const os::Folder below, os::open_below(folder, entry.name));
    STELE_TRY(sync_all(below));
  }
  return os::sync(folder.file);
}

// Maximum number of checks of the target; each check after the first means that another save has replaced it meanwhile.
constexpr int max_attempts = 100;

/// The path to save to, and the checks of the existing contents.
struct Destination {
  std::string path;  // as the user gave it
  os::Folder folder;
  std::string leaf;
  FolderCheck may_replace;

  struct Old {
    enum class Kind : std::uint8_t { missing, empty, full } kind = Kind::missing;
    std::shared_ptr<const os::Folder> folder{};  // set if the folder is not empty
  };

  /// Returns the existing contents. Errors: those for contents that must not be replaced.
  Result<Old> look(bool overwrite) const {
    for (int i = 1;; ++i) {
      STELE_TRY_ASSIGN(const os::Info info, os::status({&folder, leaf, path}));
      if (info.kind == os::Kind::missing) return Old();
      if (!overwrite) return detail::target_exists(path);
      if (info.kind != os::Kind::folder) {
        return Error(Errc::invalid_argument, "the path names a file, not a folder").file(path);
      }
      auto opened = os::open_below(folder, leaf);
      if (!opened) return std::move(opened).error().file(path);
      const auto current = std::make_shared<const os::Folder>(std::move(*opened));
      auto old = agree(current);
      // If another save has replaced the folder, its files disappear during the check.
      STELE_TRY_ASSIGN(const bool same, os::leads_to({&folder, leaf, path}, current->file));
      if (same || i == max_attempts) return old;
    }
  }

  /// Checks a folder that is, or was, at `path`.
  Result<Old> agree(const std::shared_ptr<const os::Folder>& old) const {
    STELE_TRY_ASSIGN(const bool same, os::same_system(folder.file, old->file));
    if (!same) return detail::not_in_one_step(path);  // a mount point
    STELE_TRY_ASSIGN(const detail::Listing all, detail::list_all(*old));
    if (!all.other.empty()) {
      return Error(Errc::exists, "the target folder contains entries other than files and folders")
          .file(path)
          .found(all.other);
    }
    if (all.empty) return Old{Old::Kind::empty};
    if (may_replace == nullptr) return Error(Errc::exists, "the target folder is not empty").file(path);
    STELE_TRY(detail::in_file(may_replace(*detail::folder_reader({old, "", path}, false)), path));
    return Old{Old::Kind::full, old};
  }
};

constexpr char folder_kind = 0;

class FolderSink final : public Sink {
 public:
  FolderSink(Destination target, std::shared_ptr<const os::Folder> old, FileSinkOptions options, std::string leaf,
             os::Folder made)
      : Sink(target.path),
        target_(std::move(target)),
        old_(std::move(old)),
        options_(options),
        leaf_(std::move(leaf)),
        made_(std::make_shared<const os::Folder>(std::move(made))) {}
  ~FolderSink() override { discard(); }
  const void* kind() const noexcept override { return &folder_kind; }

  using Sink::write;
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    return detail::refuse_bytes(pieces, name());
  }
  bool is_folder() const noexcept override { return true; }
  std::shared_ptr<Bundle> bundle() const override {
    return detail::folder_bundle({made_, "", name(), old_}, {options_.durability}, false, Names::later);
  }

  std::string temporary() const {
    const std::string& path = name();
    const std::size_t slash =
        path.find_last_not_of('/') == path.npos ? path.npos : path.rfind('/', path.find_last_not_of('/'));
    return (slash == path.npos ? std::string() : path.substr(0, slash + 1)) + leaf_;
  }
  Status keep_permissions() { return os::keep_permissions(target_.folder, target_.leaf, made_->file); }

  Status commit() override {
    return detail::guarded(name(), [&]() -> Status {
      if (committed_) return {};
      if (leaf_.empty()) return Error(Errc::io, "an earlier commit failed").file(name());
      Status status = replace();
      discard();  // after an exchange, removes the old folder
      committed_ = status.has_value();
      return status;
    });
  }

 private:
  Status replace() {
    const bool full = options_.durability == Durability::full;
    STELE_TRY(keep_permissions());  // again, because they may have changed
    if (full) STELE_TRY(sync_all(*made_));
    STELE_TRY(put());
    return full ? os::sync_folder(target_.folder, made_->file) : Status();
  }

  /// Renames the new folder to its final name.
  Status put() {
    for (int i = 1;; ++i) {
      STELE_TRY_ASSIGN(const Destination::Old old, target_.look(options_.overwrite));
      if (old.kind == Destination::Old::Kind::full) return exchange(*old.folder);
      const auto place = old.kind == Destination::Old::Kind::missing ? os::rename_new : os::rename;
      auto placed = place(target_.folder, leaf_, target_.leaf, name());
      if (placed) leaf_.clear();
      // Another save finished first: check and replace its folder.
      const bool beaten = !placed && placed.error().code() == Errc::exists && options_.overwrite;
      if (!beaten || i == max_attempts) return placed;
    }
  }

  /// Exchanges the new folder with the checked one. If another save has created a folder at the target since, exchanges
  /// it with that folder if it may be replaced, too.
  Status exchange(const os::Folder& looked_at) {
    STELE_TRY(os::exchange(target_.folder, leaf_, target_.leaf, name()));
    auto agreed = detail::guarded([&]() -> Status {
      STELE_TRY_ASSIGN(const bool same, os::leads_to({&target_.folder, leaf_, name()}, looked_at.file));
      if (same) return {};
      STELE_TRY_ASSIGN(os::Folder other, os::open_below(target_.folder, leaf_));
      STELE_TRY(target_.agree(std::make_shared<const os::Folder>(std::move(other))));
      return {};
    });
    if (agreed) return agreed;
    // Exchanges them back. Removes a folder only if it is certainly the new one.
    const auto back = os::exchange(target_.folder, leaf_, target_.leaf, name());
    const auto same = detail::guarded([&] { return os::leads_to({&target_.folder, leaf_, name()}, made_->file); });
    if (!back || !same || !*same) leaf_.clear();
    return agreed;
  }

  /// Removes the folder with the temporary name: the new folder, or the old one after an exchange.
  void discard() noexcept {
    if (!leaf_.empty()) os::remove_tree(target_.folder, leaf_, os::max_depth);
    leaf_.clear();
  }

  Destination target_;
  std::shared_ptr<const os::Folder> old_;
  FileSinkOptions options_;
  bool committed_ = false;
  std::string leaf_;  // name of the temporary; empty if there is none
  // Holds the lock; files being written in it hold the lock too.
  std::shared_ptr<const os::Folder> made_;
};

Result<std::unique_ptr<Sink>> make_sink(Destination target, std::shared_ptr<const os::Folder> old,
                                        FileSinkOptions options, bool exists) {
  const std::string prefix = detail::temporary_prefix(target.leaf, os::longest_name(target.folder));
  for (int i = 0; i < detail::max_tries; ++i) {
    std::string leaf = detail::temporary_name(prefix);
    STELE_TRY_ASSIGN(os::Folder made, os::create_folder(target.folder, leaf, exists, target.path));
    if (!made.file.is_open()) continue;
    auto sink =
        std::make_unique<FolderSink>(std::move(target), std::move(old), options, std::move(leaf), std::move(made));
    // Done before any file is created, so that files in it inherit the group and the access lists of the old folder.
    STELE_TRY(sink->keep_permissions());
    return std::unique_ptr<Sink>(std::move(sink));
  }
  return Error(Errc::io, "this process has too many temporary folders next to it").file(target.path);
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

Result<std::unique_ptr<Sink>> open_folder_sink(const std::string& given, FileSinkOptions options,
                                               FolderCheck may_replace) {
  if (given.empty()) return Error(Errc::invalid_argument, "the path is empty");
  const std::string path = os::with_slashes(given);
  const std::string plain = without_slashes(path);
  STELE_TRY_ASSIGN(const os::Info found, os::status({nullptr, plain, path}));
  const bool exists = found.kind == os::Kind::folder;
  if (found.kind != os::Kind::missing && !options.overwrite) return detail::target_exists(path);
  if (exists && options.allow_nonatomic) {
    STELE_TRY_ASSIGN(os::Folder folder, os::open_folder(path));
    auto root = std::make_shared<const os::Folder>(std::move(folder));
    return bundle_sink(detail::folder_bundle({std::move(root), "", path}, options, false), path);
  }

  // Links are kept; their target is replaced.
  STELE_TRY_ASSIGN(std::string resolved, os::resolve_links({nullptr, plain, path}));
  resolved = without_slashes(std::move(resolved));
  if (exists) {
    STELE_TRY(os::check_writable(path));
    STELE_TRY_ASSIGN(const os::Info named, os::status({nullptr, resolved, path}));
    if (named.kind != os::Kind::folder) return Error(Errc::io, "the link leads to a folder without a name").file(path);
  }
  auto [folder_path, leaf] = detail::split_path(resolved);
  Destination target{path, {}, std::move(leaf), std::move(may_replace)};
  if (target.leaf.empty() || target.leaf == "." || target.leaf == "..") {
    return Error(Errc::invalid_argument, "the path does not contain the folder's name").file(path);
  }
  STELE_TRY_ASSIGN(target.folder, os::open_folder({nullptr, folder_path, path}));
  STELE_TRY_ASSIGN(Destination::Old old, target.look(options.overwrite));
  detail::remove_leftovers(target.folder, folder_path,
                           detail::temporary_prefix(target.leaf, os::longest_name(target.folder)), os::Kind::folder);
  return make_sink(std::move(target), std::move(old.folder), options, exists);
}

}  // namespace

std::string detail::temporary_path(const Sink& sink) {
  return sink.kind() == &folder_kind ? static_cast<const FolderSink&>(sink).temporary() : std::string();
}

Result<std::unique_ptr<Sink>> folder_sink(const std::string& path, FileSinkOptions options, FolderCheck may_replace) {
  return detail::guarded(path, [&] { return open_folder_sink(path, options, std::move(may_replace)); });
}

}  // namespace stele::inline v0
