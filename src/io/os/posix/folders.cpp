#include "io/os/posix/posix.hpp"

#include <dirent.h>

#include <limits>
#include <memory>
#include <optional>

namespace stele::inline v0::detail::os {

namespace {

struct CloseStream {
  void operator()(DIR* open) const noexcept { ::closedir(open); }
};
using Stream = std::unique_ptr<DIR, CloseStream>;

/// Returns true if `leaf` is a name of this file or folder; nullopt, with errno, if that is unknown.
std::optional<bool> names(const Folder& folder, const std::string& leaf, const struct stat& file) noexcept {
  struct stat named = {};
  if (retry([&] { return ::fstatat(folder.file.handle(), leaf.c_str(), &named, AT_SYMLINK_NOFOLLOW); }) == 0) {
    return named.st_dev == file.st_dev && named.st_ino == file.st_ino;
  }
  return errno == ENOENT ? std::optional(false) : std::nullopt;
}

/// Empties and removes a folder. Returns true if all of it is gone.
bool empty_and_remove(int at, const char* leaf, dev_t device, int depth) {
  const int fd = retry([&] { return ::openat(at, leaf, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
  if (fd < 0) return errno == ENOENT;
  const Folder folder{File(fd, {}), true};
  struct stat status = {};
  if (retry([&] { return ::fstat(fd, &status); }) != 0 || status.st_dev != device) return false;
  // Lists all names first, because removing entries during the listing may skip some.
  const auto found = entries(folder, std::numeric_limits<std::size_t>::max());
  if (!found) return false;
  for (const Entry& entry : *found) {
    if (entry.kind == Kind::folder && !entry.link) {
      if (depth == 0 || !empty_and_remove(fd, entry.name.c_str(), device, depth - 1)) return false;
    } else if (retry([&] { return ::unlinkat(fd, entry.name.c_str(), 0); }) != 0 && errno != ENOENT) {
      return false;
    }
  }
  return retry([&] { return ::unlinkat(at, leaf, AT_REMOVEDIR); }) == 0 || errno == ENOENT;
}

}  // namespace

std::size_t list(const Folder& folder, const std::function<void(std::string_view)>& visit) {
  if (!folder.readable) return 0;
  // Opens the folder again: fdopendir takes ownership of the descriptor, and a duplicate would share the reading
  // position.
  const int fd = retry([&] { return ::openat(folder.file.handle(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) return 0;
  const Stream stream(::fdopendir(fd));
  if (stream == nullptr) {
    ::close(fd);
    return 0;
  }
  std::size_t count = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    visit(entry->d_name);
    ++count;
  }
  return count;
}

void remove_abandoned(const Folder& folder, const std::string& leaf, Kind kind) noexcept {
  const int fd = retry(
      [&] { return ::openat(folder.file.handle(), leaf.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); });
  if (fd < 0) return;
  struct stat status = {};
  if (retry([&] { return ::fstat(fd, &status); }) == 0 && kind_of(status.st_mode) == kind &&
      lock(fd, Locking::shared_now) == 0) {
    // Removes the file under the lock. A process between creating and locking it waits, and then finds that the file is
    // gone.
    if (kind == Kind::regular) {
      remove(folder, leaf);
    } else if (names(folder, leaf, status) == true) {
      // Its creator may have renamed it to its final name meanwhile, and then released the lock.
      remove_tree(folder, leaf, max_depth + 1);
    }
  }
  ::close(fd);
}

Result<std::uint64_t> free_bytes(const Folder& folder) {
  if (const auto bytes = system::free_bytes(folder.file.handle())) return *bytes;
  return failed("cannot determine the free space", folder.file.name());
}

Result<bool> make_folder(const Path& path) {
  STELE_TRY(check_path(path));
  if (retry([&] { return ::mkdirat(start_of(path), path.text.c_str(), 0777); }) == 0) return true;
  if (errno == EEXIST) return false;
  return failed("cannot create the folder", path.name);
}

Result<Folder> create_folder(const Folder& folder, const std::string& leaf, bool secret, const std::string& name) {
  const int at = folder.file.handle();
  std::string file_name = name;
  if (retry([&] { return ::mkdirat(at, leaf.c_str(), secret ? mode_t{0700} : mode_t{0777}); }) != 0) {
    if (errno == EEXIST) return Folder();
    return failed("cannot create a temporary folder next to it", name);
  }
  const int fd = retry([&] { return ::openat(at, leaf.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
  if (fd < 0) {
    if (errno == ENOENT) return Folder();  // another process treated it as abandoned
    const int code = errno;
    static_cast<void>(retry([&] { return ::unlinkat(at, leaf.c_str(), AT_REMOVEDIR); }));
    return failed("cannot open the folder", name, code);
  }
  Folder made{File(fd, std::move(file_name)), true};
  // Waits for the lock, as create() does.
  static_cast<void>(lock(fd, Locking::exclusive));
  struct stat status = {};
  const bool known = retry([&] { return ::fstat(fd, &status); }) == 0;
  const std::optional<bool> named = known ? names(folder, leaf, status) : std::nullopt;
  if (!named) {
    const int code = errno;
    static_cast<void>(retry([&] { return ::unlinkat(at, leaf.c_str(), AT_REMOVEDIR); }));
    return failed("cannot look up", name, code);
  }
  return *named ? std::move(made) : Folder();
}

Result<Folder> open_below(const Folder& folder, const std::string& leaf) {
  std::string name = folder.file.name() + '/' + leaf;
  const int fd = retry(
      [&] { return ::openat(folder.file.handle(), leaf.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
  if (fd < 0) return failed("cannot open the folder", name);
  return Folder{File(fd, std::move(name)), true};
}

Result<std::vector<Entry>> entries(const Folder& folder, std::size_t max_names) {
  const int fd = retry([&] { return ::openat(folder.file.handle(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) return failed("cannot list the folder", folder.file.name());
  const Stream stream(::fdopendir(fd));
  if (stream == nullptr) {
    const int code = errno;
    ::close(fd);
    return failed("cannot list the folder", folder.file.name(), code);
  }
  std::vector<Entry> found;
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    const std::string_view name(entry->d_name);
    if (name == "." || name == "..") continue;
    if (found.size() == max_names) return Error(Errc::limit, "the folder has too many names").file(folder.file.name());
    found.push_back({std::string(name), entry->d_type == DT_REG ? Kind::regular : Kind::folder, false});
    if (entry->d_type == DT_REG || entry->d_type == DT_DIR) continue;
    struct stat status = {};
    const auto look = [&](int flags) {
      return retry([&] { return ::fstatat(fd, entry->d_name, &status, flags); }) == 0;
    };
    if (!look(AT_SYMLINK_NOFOLLOW)) {
      if (errno != ENOENT) return failed("cannot list the folder", folder.file.name());
      found.pop_back();  // removed meanwhile
      continue;
    }
    found.back().link = S_ISLNK(status.st_mode);
    found.back().kind = !found.back().link || look(0) ? kind_of(status.st_mode) : Kind::missing;
  }
  if (errno != 0) return failed("cannot list the folder", folder.file.name());
  return found;
}

void remove_tree(const Folder& folder, const std::string& leaf, int depth) noexcept {
  struct stat status = {};
  if (retry([&] { return ::fstat(folder.file.handle(), &status); }) != 0) return;
  static_cast<void>(guarded([&]() -> Status {
    empty_and_remove(folder.file.handle(), leaf.c_str(), status.st_dev, depth);
    return {};
  }));
}

}  // namespace stele::inline v0::detail::os
