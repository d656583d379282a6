#include "io/os/posix/posix.hpp"

#include <cstdio>
#include <string>

namespace stele::inline v0::detail::os {

namespace {

/// Returns true if this error may mean that the file system or the system does not support this kind of rename.
bool lacks_flags(int code) noexcept {
  return code == EINVAL || code == ENOSYS || code == EOPNOTSUPP || code == ENOTSUP;  // two numbers on macOS
}

}  // namespace

Result<File> open_locked(const Path& path) {
  STELE_TRY(check_path(path));
  std::string name = path.name;
  const auto open = [&](int how) { return open_path(path, how | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); };
  int fd = open(O_RDWR);  // NFS cannot lock a file that is open only for reading
  if (fd < 0 && (errno == EACCES || errno == EPERM || errno == EROFS || errno == EISDIR)) fd = open(O_RDONLY);
  if (fd < 0) return cannot_open("cannot open", path);
  File file(fd, std::move(name));
  if (lock(fd, Locking::exclusive_now) == 0) return file;
  if (errno == EWOULDBLOCK) return File();
  if (errno == ENOLCK || errno == EBADF || errno == EOPNOTSUPP || lacks_flags(errno)) return file;
  return failed("cannot lock", path.name);
}

Result<File> create(const Folder& folder, const std::string& leaf, bool secret, const std::string& name) {
  std::string file_name = name;
  const int fd = retry([&] {
    return ::openat(folder.file.handle(), leaf.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                    secret ? mode_t{0600} : mode_t{0666});
  });
  if (fd < 0 && errno == EEXIST) return File();
  if (fd < 0) return failed("cannot create a temporary file next to it", name);
  File file(fd, std::move(file_name));
  // On a file system without locks, remove_abandoned() cannot lock either and removes nothing.
  static_cast<void>(lock(fd, Locking::exclusive));
  // Between creation and locking, another process may have removed it as abandoned.
  struct stat status = {};
  if (retry([&] { return ::fstat(fd, &status); }) != 0) {
    const int code = errno;
    remove(folder, leaf);
    return failed("cannot look up", name, code);
  }
  return status.st_nlink == 0 ? File() : std::move(file);
}

#ifdef __wasi__
Status keep_permissions(const Folder&, const std::string&, const File&) { return {}; }
#else
Status keep_permissions(const Folder& folder, const std::string& leaf, const File& file) {
  struct stat old = {};
  if (retry([&] { return ::fstatat(folder.file.handle(), leaf.c_str(), &old, AT_SYMLINK_NOFOLLOW); }) != 0) {
    if (errno == ENOENT) return {};
    return failed("cannot look up", file.name());
  }
  struct stat now = {};
  if (retry([&] { return ::fstat(file.handle(), &now); }) != 0) return failed("cannot look up", file.name());
  if (kind_of(old.st_mode) == Kind::other || kind_of(old.st_mode) != kind_of(now.st_mode)) return {};

  mode_t mode = old.st_mode & 07777U;
  const auto give = [&](uid_t owner, gid_t group) {
    return retry([&] { return ::fchown(file.handle(), owner, group); }) == 0;
  };
  const bool group_kept = now.st_gid == old.st_gid || give(static_cast<uid_t>(-1), old.st_gid);
  const bool owner_kept = now.st_uid == old.st_uid || give(old.st_uid, static_cast<gid_t>(-1));
  if (!owner_kept || !group_kept) mode &= 0777U;  // this process runs as a different user or group than before
  const bool list_kept = system::keep_access_lists(folder, leaf, file.handle(), S_ISDIR(now.st_mode));
  // The group permissions were for another group, or are the mask of a lost access list: replaces them by the
  // permissions of all users.
  if (!group_kept || !list_kept) mode = static_cast<mode_t>((mode & ~070U) | ((mode & 07U) << 3U));
  if (retry([&] { return ::fchmod(file.handle(), mode); }) != 0 && errno != EPERM && errno != EOPNOTSUPP) {
    return failed("cannot set the permissions", file.name());
  }
  return {};
}
#endif

Status rename(const Folder& folder, const std::string& from, const std::string& to, const std::string& name) {
  const int fd = folder.file.handle();
  if (retry([&] { return ::renameat(fd, from.c_str(), fd, to.c_str()); }) == 0) return {};
  if (errno == ENOTEMPTY || errno == EEXIST) return target_exists(name);
  return failed("cannot replace", name);
}

Status rename_new(const Folder& folder, const std::string& from, const std::string& to, const std::string& name) {
  const int fd = folder.file.handle();
  if (retry([&] { return system::rename_new(fd, from.c_str(), to.c_str()); }) == 0) return {};
  if (errno == EEXIST) return target_exists(name);
  if (!lacks_flags(errno)) return failed("cannot rename the temporary file", name);
  // linkat() gives a file a second name only if the name is free.
  if (retry([&] { return ::linkat(fd, from.c_str(), fd, to.c_str(), 0); }) == 0) {
    remove(folder, from);
    return {};
  }
  if (errno == EEXIST) return target_exists(name);
  const int code = errno;
  struct stat status = {};
  // A folder has only one name. The rename replaces only an empty folder, so that no data is lost.
  if (retry([&] { return ::fstatat(fd, from.c_str(), &status, AT_SYMLINK_NOFOLLOW); }) == 0 &&
      S_ISDIR(status.st_mode)) {
    return rename(folder, from, to, name);
  }
  return failed("cannot rename the temporary file", name, code);
}

Status sync_folder(const Folder& folder, const File& entry) {
  const int done = retry([&] { return system::sync_folder(folder, entry.handle()); });
  if (done == 0 || errno == EINVAL) return {};
  return failed("the file is saved, but its folder cannot be synced", entry.name());
}

void remove(const Folder& folder, const std::string& path) noexcept {
  static_cast<void>(retry([&] { return ::unlinkat(folder.file.handle(), path.c_str(), 0); }));
}

Status exchange(const Folder& folder, const std::string& a, const std::string& b, const std::string& name) {
  const int fd = folder.file.handle();
  if (retry([&] { return system::exchange(fd, a.c_str(), b.c_str()); }) == 0) return {};
  // Also impossible for a mount point, and for a folder of an image's lower layer (overlayfs).
  if (lacks_flags(errno) || errno == EBUSY || errno == EXDEV) return not_in_one_step(name);
  return failed("cannot replace", name);
}

}  // namespace stele::inline v0::detail::os
