// The calls that differ between systems, with what POSIX alone has: for systems that this folder has no other code for.
#include "io/os/posix/posix.hpp"

#if __has_include(<sys/statvfs.h>)
#include <sys/statvfs.h>
#endif

namespace stele::inline v0::detail::os::system {

int lookup_flags() noexcept { return O_RDONLY | O_NONBLOCK; }

int open_beneath(int folder, const std::string& path, int flags) {
  return open_by_parts(folder, path, flags, O_RDONLY | O_DIRECTORY);
}

int open_uncached(int) noexcept { return -1; }

bool is_cached(int, std::uint64_t, std::size_t) noexcept { return true; }

void start_writing(int, std::uint64_t, std::uint64_t) noexcept {}

ssize_t copy(int, std::uint64_t, int, std::size_t) noexcept {
  errno = ENOSYS;
  return -1;
}

int allocate(int, std::uint64_t) noexcept {
  errno = EOPNOTSUPP;  // posix_fallocate() changes the size of the file
  return -1;
}

int sync(int file) noexcept { return ::fsync(file); }

#ifdef __wasi__
int sync_folder(const Folder&, int) noexcept { return 0; }  // a host syncs files alone: wasmtime's error is EBADF
#else
int sync_folder(const Folder& folder, int) noexcept {
  if (folder.readable) return sync(folder.file.handle());
  errno = EACCES;
  return -1;
}
#endif

// A file is renamed in one step; a folder that another process makes between the two calls is replaced if it is empty.
int rename_new(int folder, const char* from, const char* to) noexcept {
  if (::linkat(folder, from, folder, to, 0) == 0) return ::unlinkat(folder, from, 0);
  if (errno == EEXIST) return -1;
  struct ::stat found = {};
  if (::fstatat(folder, to, &found, AT_SYMLINK_NOFOLLOW) == 0) {
    errno = EEXIST;
    return -1;
  }
  return errno == ENOENT ? ::renameat(folder, from, folder, to) : -1;
}

int exchange(int, const char*, const char*) noexcept {
  errno = ENOSYS;
  return -1;
}

bool keep_access_lists(const Folder&, const std::string&, int, bool) { return true; }

std::optional<std::uint64_t> free_bytes(int folder) noexcept {
#if __has_include(<sys/statvfs.h>)
  struct ::statvfs status = {};
  if (::fstatvfs(folder, &status) == 0) return std::uint64_t{status.f_bavail} * status.f_frsize;
#else
  static_cast<void>(folder);
  errno = ENOSYS;
#endif
  return std::nullopt;
}

void advise_huge_pages(void*, std::size_t) noexcept {}

}  // namespace stele::inline v0::detail::os::system
