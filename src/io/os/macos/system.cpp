#include "io/os/posix/posix.hpp"

#include <sys/acl.h>
#include <sys/mount.h>
#include <sys/param.h>
#include <sys/stdio.h>

#include <cstdio>
#include <memory>
#include <type_traits>

namespace stele::inline v0::detail::os::system {

int lookup_flags() noexcept { return O_EVTONLY | O_NONBLOCK; }

int open_beneath(int folder, const std::string& path, int flags) {
  return open_by_parts(folder, path, flags, O_SEARCH);
}

void start_writing(int, std::uint64_t, std::uint64_t) noexcept {}

ssize_t copy(int, std::uint64_t, int, std::size_t) noexcept {
  errno = ENOSYS;  // the system copies whole files only
  return -1;
}

int allocate(int file, std::uint64_t total) noexcept {
  ::fstore_t wanted = {};
  wanted.fst_flags = F_ALLOCATEALL;
  wanted.fst_posmode = F_PEOFPOSMODE;
  wanted.fst_length = static_cast<off_t>(total);
  return ::fcntl(file, F_PREALLOCATE, &wanted);
}

int sync(int file) noexcept {
  // fsync() leaves the data in the disk's cache (fsync(2) of macOS). Network file systems have only fsync().
  if (::fcntl(file, F_FULLFSYNC) == 0) return 0;
  return errno == ENOTSUP || errno == EOPNOTSUPP || errno == ENOTTY || errno == EINVAL ? ::fsync(file) : -1;
}

int sync_folder(const Folder& folder, int) noexcept {
  if (folder.readable) return sync(folder.file.handle());
  errno = EACCES;
  return -1;
}

int rename_new(int folder, const char* from, const char* to) noexcept {
  return ::renameatx_np(folder, from, folder, to, RENAME_EXCL);
}

int exchange(int folder, const char* a, const char* b) noexcept {
  return ::renameatx_np(folder, a, folder, b, RENAME_SWAP);
}

bool keep_access_lists(const Folder& folder, const std::string& leaf, int file, bool) {
  struct Free {
    void operator()(acl_t list) const noexcept { ::acl_free(list); }
  };
  using List = std::unique_ptr<std::remove_pointer_t<acl_t>, Free>;
  const int old =
      retry([&] { return ::openat(folder.file.handle(), leaf.c_str(), lookup_flags() | O_NOFOLLOW | O_CLOEXEC); });
  if (old < 0) return errno == ENOENT;
  const File closing(old, {});
  List list(::acl_get_fd_np(old, ACL_TYPE_EXTENDED));
  if (list == nullptr) {
    if (errno == ENOTSUP || errno == EOPNOTSUPP) return true;
    if (errno != ENOENT) return false;
    // Removes a list that the new file may have inherited from its folder.
    const List none(::acl_init(1));
    if (none != nullptr) static_cast<void>(::acl_set_fd_np(file, none.get(), ACL_TYPE_EXTENDED));
    return true;
  }
  return ::acl_set_fd_np(file, list.get(), ACL_TYPE_EXTENDED) == 0;
}

std::optional<std::uint64_t> free_bytes(int folder) noexcept {
  struct ::statfs status = {};
  if (retry([&] { return ::fstatfs(folder, &status); }) != 0) return std::nullopt;
  return std::uint64_t{status.f_bavail} * status.f_bsize;
}

int open_uncached(int) noexcept { return -1; }

bool is_cached(int, std::uint64_t, std::size_t) noexcept { return true; }

void advise_huge_pages(void*, std::size_t) noexcept {}

}  // namespace stele::inline v0::detail::os::system
