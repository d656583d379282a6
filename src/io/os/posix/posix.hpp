// Helpers for the sources of Linux, macOS and other systems with POSIX's calls. Include this header first: it sets the
// size of off_t. WebAssembly's system interface (__wasi__) has no locks, owners, permissions, processes, signals and
// shared libraries.
#pragma once

#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64  // files beyond 2 GiB on 32-bit systems
#endif

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#ifndef __wasi__
#include <sys/file.h>
#endif

#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "io/os/os.hpp"

namespace stele::inline v0::detail::os {

/// Returns the error of a call that failed with errno.
inline Error failed(const char* what, const std::string& name, int code = errno) {
  const Errc errc = code == ENOENT || code == ENOTDIR ? Errc::not_found
                    : code == ENOMEM                  ? Errc::out_of_memory
                                                      : Errc::io;
  return Error(errc, std::string(what) + ": " + std::generic_category().message(code)).file(name);
}

/// Repeats a call while signals interrupt it. Used for every call to a file system: on a network or in user space (NFS,
/// FUSE), any of these calls may be interrupted, even if its manual does not mention it.
template <class Call>
auto retry(Call&& call) -> decltype(call()) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

/// How lock() locks.
enum class Locking : std::uint8_t {
  shared_now,     // fails with EWOULDBLOCK if the exclusive lock is taken
  exclusive_now,  // fails with EWOULDBLOCK if a lock is taken
  exclusive,      // waits
};

/// Locks an open file or folder until it is closed. Fails with ENOTSUP on a system without locks. Retries.
inline int lock(int file, Locking how) {
#ifdef __wasi__
  static_cast<void>(file);
  static_cast<void>(how);
  errno = ENOTSUP;
  return -1;
#else
  const int operation = how == Locking::shared_now      ? LOCK_SH | LOCK_NB
                        : how == Locking::exclusive_now ? LOCK_EX | LOCK_NB
                                                        : LOCK_EX;
  return retry([&] { return ::flock(file, operation); });
#endif
}

/// Refuses a path with a zero byte: the system would cut the path there and use a different file.
inline Status check_path(const Path& path) {
  if (path.text.find('\0') == std::string::npos) return {};
  return Error(Errc::invalid_argument, "the path contains a zero byte").file(path.name);
}

/// Returns the descriptor of the folder from which the path is looked up.
inline int start_of(const Path& path) noexcept { return path.from != nullptr ? path.from->file.handle() : AT_FDCWD; }

inline Kind kind_of(mode_t mode) noexcept {
  return S_ISREG(mode) ? Kind::regular : S_ISDIR(mode) ? Kind::folder : Kind::other;
}

inline Info info_of(const struct stat& status) noexcept {
  return {kind_of(status.st_mode),
          static_cast<std::uint64_t>(status.st_size),
          {status.st_dev, status.st_ino},
          static_cast<std::uint64_t>(status.st_nlink)};
}

/// Opens `path`; if it starts from an open folder, only if the target is inside that folder.
int open_path(const Path& path, int flags);
/// Returns the error of an open_path() that failed with errno.
Error cannot_open(const char* what, const Path& path);
/// Opens each part of a path below a folder, without following links. `through`: flags for the folders in it.
int open_by_parts(int folder, std::string_view path, int flags, int through);

/// Linux and macOS define these functions differently (linux/system.cpp, macos/system.cpp). Unless its comment says
/// otherwise, a function makes one call, which fails with errno like the system's own.
namespace system {

/// Flags that open a file or folder only to look it up: its permissions do not matter.
int lookup_flags() noexcept;
/// Opens a path below a folder. A link that leads out of the folder fails with EXDEV or ELOOP. Retries.
int open_beneath(int folder, const std::string& path, int flags);
/// Opens a file again for reads past the page cache; -1 if that is not possible. Retries.
int open_uncached(int file) noexcept;
/// Returns true if at least half of the range's pages are in the page cache, or if that is not known.
bool is_cached(int file, std::uint64_t offset, std::size_t size) noexcept;
/// Starts to write out a part of a file; errors are left to sync().
void start_writing(int file, std::uint64_t from, std::uint64_t size) noexcept;
/// Appends a part of another file. Fails with EXDEV, EINVAL, ENOSYS, EOPNOTSUPP or EPERM if the system cannot.
ssize_t copy(int from, std::uint64_t offset, int file, std::size_t size) noexcept;
/// Preallocates bytes without a change of the file's size.
int allocate(int file, std::uint64_t total) noexcept;
int sync(int file) noexcept;
/// Syncs the folder's names, or if it cannot be read, the file system of `entry`.
int sync_folder(const Folder& folder, int entry) noexcept;
int rename_new(int folder, const char* from, const char* to) noexcept;
int exchange(int folder, const char* a, const char* b) noexcept;
/// Gives `file` the access lists of the existing `leaf`. Returns false if the file has an attribute that could not be
/// kept. Retries.
bool keep_access_lists(const Folder& folder, const std::string& leaf, int file, bool is_folder);
/// Returns nullopt, with errno, if the number is unknown.
std::optional<std::uint64_t> free_bytes(int folder) noexcept;
void advise_huge_pages(void* memory, std::size_t size) noexcept;

}  // namespace system

}  // namespace stele::inline v0::detail::os
