#include "io/os/posix/posix.hpp"

#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>

#ifndef RENAME_EXCHANGE  // musl has neither the function nor its flags
#include <linux/fs.h>
#define STELE_NO_RENAMEAT2
#endif

namespace stele::inline v0::detail::os::system {

namespace {

// Maximum size of an access list that is kept: far above the limits of file systems (ext4: one block).
constexpr std::size_t max_access_list = std::size_t{64} << 10;

constexpr const char* access_list = "system.posix_acl_access";
constexpr const char* default_list = "system.posix_acl_default";  // attribute of a folder, for new files in it

#ifdef STELE_NO_RENAMEAT2
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
#else
using ::renameat2;
#endif

/// Renames by renameat2. Fails with ENOSYS if a sandbox does not allow the call: it answers EPERM, as the system does
/// for a folder that may not be changed, but also for folders that are not open.
int rename_by(unsigned flags, int folder, const char* from, const char* to) noexcept {
  if (renameat2(folder, from, folder, to, flags) == 0) return 0;
  if (errno == EPERM) {
    const bool refused = renameat2(-1, from, -1, to, flags) != 0 && errno == EPERM;
    errno = refused ? ENOSYS : EPERM;
  }
  return -1;
}

/// Copies an access list, which chmod cannot set. Returns false if there is a list that could not be kept.
bool keep_list(const char* attribute, const Folder& folder, const std::string& leaf, int file) {
  // getxattrat is not available; /proc leads from the folder to the file without the folder's path.
  const std::string path = "/proc/self/fd/" + std::to_string(folder.file.handle()) + "/" + leaf;
  const ssize_t size = retry([&] { return ::getxattr(path.c_str(), attribute, nullptr, 0); });
  if (size <= 0) {
    if (size < 0 && errno != ENODATA && errno != EOPNOTSUPP && errno != ENOENT) return false;
    // There is no list, or the file system does not support lists. Also removes a list that the new file may have
    // inherited from its folder.
    static_cast<void>(retry([&] { return ::fremovexattr(file, attribute); }));
    return true;
  }
  if (static_cast<std::size_t>(size) > max_access_list) return false;
  std::string list(static_cast<std::size_t>(size), '\0');
  const ssize_t got = retry([&] { return ::getxattr(path.c_str(), attribute, list.data(), list.size()); });
  return got >= 0 &&
         retry([&] { return ::fsetxattr(file, attribute, list.data(), static_cast<std::size_t>(got), 0); }) == 0;
}

// Maximum number of lookups of a path within a folder: the system returns EAGAIN while other processes rename parts of
// the path.
constexpr int max_resolutions = 100;

}  // namespace

int lookup_flags() noexcept { return O_PATH; }

int open_beneath(int folder, const std::string& path, int flags) {
  struct open_how how = {};
  how.flags = static_cast<unsigned>((flags & O_PATH) != 0 ? flags : flags | O_LARGEFILE);
  how.resolve = RESOLVE_BENEATH;
  long fd = -1;
  for (int i = 0; i < max_resolutions; ++i) {
    fd = retry([&] { return ::syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how); });
    if (fd >= 0 || errno != EAGAIN) break;
  }
  // Kernels before 5.6, or EPERM: a sandbox that does not allow the call.
  if (fd < 0 && (errno == ENOSYS || errno == EPERM)) return open_by_parts(folder, path, flags, O_PATH);
  return static_cast<int>(fd);
}

int open_uncached(int file) noexcept {
  char path[32];
  static_cast<void>(std::snprintf(path, sizeof path, "/proc/self/fd/%d", file));
  return retry([&] { return ::open(path, O_RDONLY | O_DIRECT | O_NOCTTY | O_CLOEXEC); });
}

bool is_cached(int file, std::uint64_t offset, std::size_t size) noexcept {
  // mincore() reports pages of a mapping, which are never touched here. It reports all pages as cached if this user may
  // not write to the file.
  const std::uint64_t page = page_size();
  constexpr std::size_t most = 1024;  // pages of one call
  const std::uint64_t begin = offset / page * page;
  const auto length = static_cast<std::size_t>(offset + size - begin);
  void* const memory = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, file, static_cast<off_t>(begin));
  if (memory == MAP_FAILED) return true;
  std::size_t cached = 0, pages = 0;
  bool known = true;
  unsigned char in_cache[most];
  for (std::size_t done = 0; done < length && known; done += most * page) {
    const std::size_t now = std::min<std::size_t>(length - done, most * page);
    const std::size_t count = (now + page - 1) / page;
    known = ::mincore(static_cast<std::byte*>(memory) + done, now, in_cache) == 0;
    pages += count;
    for (std::size_t i = 0; i < count && known; ++i) cached += in_cache[i] & 1U;
  }
  ::munmap(memory, length);
  return !known || 2 * cached >= pages;
}

void start_writing(int file, std::uint64_t from, std::uint64_t size) noexcept {
  static_cast<void>(::sync_file_range(file, static_cast<off_t>(from), static_cast<off_t>(size), SYNC_FILE_RANGE_WRITE));
}

ssize_t copy(int from, std::uint64_t offset, int file, std::size_t size) noexcept {
  auto at = static_cast<loff_t>(offset);
  return ::copy_file_range(from, &at, file, nullptr, size, 0);
}

int allocate(int file, std::uint64_t total) noexcept {
  return ::fallocate(file, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(total));
}

int sync(int file) noexcept { return ::fsync(file); }

int sync_folder(const Folder& folder, int entry) noexcept {
  // A folder that cannot be opened for reading cannot be synced, so the whole file system is synced.
  return folder.readable ? ::fsync(folder.file.handle()) : ::syncfs(entry);
}

int rename_new(int folder, const char* from, const char* to) noexcept {
  return rename_by(RENAME_NOREPLACE, folder, from, to);
}

int exchange(int folder, const char* a, const char* b) noexcept { return rename_by(RENAME_EXCHANGE, folder, a, b); }

bool keep_access_lists(const Folder& folder, const std::string& leaf, int file, bool is_folder) {
  const bool kept = keep_list(access_list, folder, leaf, file);
  return (!is_folder || keep_list(default_list, folder, leaf, file)) && kept;
}

std::optional<std::uint64_t> free_bytes(int folder) noexcept {
  struct ::statvfs status = {};
  if (retry([&] { return ::fstatvfs(folder, &status); }) != 0) return std::nullopt;
  if (status.f_blocks == 0) {  // a file system that does not count them
    errno = EOPNOTSUPP;
    return std::nullopt;
  }
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

void advise_huge_pages(void* memory, std::size_t size) noexcept {
  static_cast<void>(::madvise(memory, size, MADV_HUGEPAGE));
}

}  // namespace stele::inline v0::detail::os::system
