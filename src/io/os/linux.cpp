#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64  // files beyond 2 GiB on 32-bit systems
#endif

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>

#include "io/os/os.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace os {

namespace {

// Maximum number of pieces in one writev on Linux.
constexpr std::size_t max_pieces = 1024;
// Maximum number of links in a path, equal to the kernel's.
constexpr int max_links = 40;
// Maximum number of lookups of a path within a folder: the system returns EAGAIN while other processes rename parts of
// the path.
constexpr int max_resolutions = 100;
// Bytes between two requests to write out. Small enough to keep the disk busy from the start, large enough to be cheap.
constexpr std::uint64_t write_behind_step = std::uint64_t{8} << 20;
// Minimum size to preallocate: for smaller files, allocation while writing costs less than another call.
constexpr std::uint64_t least_reserved = std::uint64_t{1} << 20;
// Maximum size of an access list that is kept: far above the limits of file systems (ext4: one block).
constexpr std::size_t max_access_list = std::size_t{64} << 10;

/// Returns the error of a call that failed with errno.
Error failed(const char* what, const std::string& name, int code = errno) {
  const Errc errc = code == ENOENT || code == ENOTDIR ? Errc::not_found
                    : code == ENOMEM                  ? Errc::out_of_memory
                                                      : Errc::io;
  return Error(errc, std::string(what) + ": " + std::generic_category().message(code)).file(name);
}

/// Repeats a call while signals interrupt it. Used for every call to a file system: on a network or in another process
/// (NFS, FUSE), each may be interrupted, even if its manual does not mention it.
template <class Call>
auto retry(Call&& call) -> decltype(call()) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

/// Refuses a path with a zero byte: the system would cut the path there and use another file.
Status check_path(const Path& path) {
  if (path.text.find('\0') == std::string::npos) return {};
  return Error(Errc::invalid_argument, "a path with a zero byte in it").file(path.name);
}

/// Returns the descriptor of the folder that the path is looked up from.
int start_of(const Path& path) noexcept { return path.from != nullptr ? path.from->file.handle() : AT_FDCWD; }

Kind kind_of(mode_t mode) noexcept {
  return S_ISREG(mode) ? Kind::regular : S_ISDIR(mode) ? Kind::folder : Kind::other;
}

Info info_of(const struct stat& status) noexcept {
  return {kind_of(status.st_mode), static_cast<std::uint64_t>(status.st_size), {status.st_dev, status.st_ino}};
}

/// Replaces openat2() on systems without it: opens each part of the path separately, and follows no link.
int open_by_parts(int folder, std::string_view path, int flags) {
  File above;
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  for (std::size_t slash = path.find('/'); slash != path.npos; slash = path.find('/')) {
    const std::string part(path.substr(0, slash));
    const int next =
        retry([&] { return ::openat(folder, part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
    if (next < 0) return next;
    above = File(next, {});
    folder = next;
    path.remove_prefix(slash + 1);
  }
  return retry([&] { return ::openat(folder, std::string(path).c_str(), flags | O_NOFOLLOW); });
}

/// Opens `path`; from an open folder, only if the target is in that folder.
int open_path(const Path& path, int flags) {
  if (path.from == nullptr) return retry([&] { return ::openat(AT_FDCWD, path.text.c_str(), flags); });
  struct open_how how = {};
  how.flags = static_cast<unsigned>((flags & O_PATH) != 0 ? flags : flags | O_LARGEFILE);
  how.resolve = RESOLVE_BENEATH;
  long fd = -1;
  for (int i = 0; i < max_resolutions; ++i) {
    fd = retry([&] { return ::syscall(SYS_openat2, start_of(path), path.text.c_str(), &how, sizeof how); });
    if (fd >= 0 || errno != EAGAIN) break;
  }
  // EPERM: a sandbox that does not know the call.
  if (fd < 0 && (errno == ENOSYS || errno == EPERM)) return open_by_parts(start_of(path), path.text, flags);
  return static_cast<int>(fd);
}

Error cannot_open(const char* what, const Path& path) {
  const bool leads_out = path.from != nullptr && (errno == EXDEV || errno == ELOOP);
  if (!leads_out) return failed(what, path.name);
  return Error(Errc::io, std::string(what) + ": a link that leads out of the folder is not followed").file(path.name);
}

void write_out(const File& file, Progress& progress) noexcept {
  // Only whole steps: a page that the next write continues would go to the disk twice.
  const std::uint64_t end = progress.written / write_behind_step * write_behind_step;
  if (end <= progress.started) return;
  // A hint: fsync reports an error in the data.
  static_cast<void>(::sync_file_range(file.handle(), static_cast<off_t>(progress.started),
                                      static_cast<off_t>(end - progress.started), SYNC_FILE_RANGE_WRITE));
  progress.started = end;
}

constexpr const char* access_list = "system.posix_acl_access";
constexpr const char* default_list = "system.posix_acl_default";  // of a folder, for its new files

/// Keeps an access list, which chmod cannot set. Returns false if there is one that could not be kept.
bool keep_list(const char* attribute, const Folder& folder, const std::string& leaf, const File& file) {
  // There is no getxattrat; /proc leads from the folder to the file without its path.
  const std::string path = "/proc/self/fd/" + std::to_string(folder.file.handle()) + "/" + leaf;
  const ssize_t size = retry([&] { return ::getxattr(path.c_str(), attribute, nullptr, 0); });
  if (size <= 0) {
    if (size < 0 && errno != ENODATA && errno != EOPNOTSUPP && errno != ENOENT) return false;
    // There is no list, or the file system has none. Also removes a list that the new file may have inherited from its
    // folder.
    static_cast<void>(retry([&] { return ::fremovexattr(file.handle(), attribute); }));
    return true;
  }
  if (static_cast<std::size_t>(size) > max_access_list) return false;
  std::string list(static_cast<std::size_t>(size), '\0');
  const ssize_t got = retry([&] { return ::getxattr(path.c_str(), attribute, list.data(), list.size()); });
  return got >= 0 && retry([&] {
                       return ::fsetxattr(file.handle(), attribute, list.data(), static_cast<std::size_t>(got), 0);
                     }) == 0;
}

struct CloseStream {
  void operator()(DIR* open) const noexcept { ::closedir(open); }
};
using Stream = std::unique_ptr<DIR, CloseStream>;

/// Returns true if this error may mean that the file system, or the system, lacks this kind of rename.
bool lacks_flags(int code) noexcept { return code == EINVAL || code == ENOSYS || code == EOPNOTSUPP; }

/// Returns true if `leaf` is the name of this file or folder, or nothing, with errno, if that is unknown.
std::optional<bool> names(const Folder& folder, const std::string& leaf, const struct stat& file) noexcept {
  struct stat named = {};
  if (retry([&] { return ::fstatat(folder.file.handle(), leaf.c_str(), &named, AT_SYMLINK_NOFOLLOW); }) == 0) {
    return named.st_dev == file.st_dev && named.st_ino == file.st_ino;
  }
  return errno == ENOENT ? std::optional(false) : std::nullopt;
}

}  // namespace

void File::close() noexcept {
  // Not retried when interrupted: Linux has closed the file in that case too.
  if (is_open()) ::close(std::exchange(handle_, closed));
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

// ---- paths

Result<Info> status(const Path& path) {
  STELE_TRY(check_path(path));
  struct stat status = {};
  if (retry([&] { return ::fstatat(start_of(path), path.text.c_str(), &status, 0); }) == 0) return info_of(status);
  if (errno == ENOENT) return Info{};
  return failed("cannot look up", path.name);
}

Result<Info> status(const File& file) {
  struct stat status = {};
  if (retry([&] { return ::fstat(file.handle(), &status); }) != 0) return failed("cannot look up", file.name());
  return info_of(status);
}

Result<bool> leads_to(const Path& path, const File& file) {
  STELE_TRY_ASSIGN(const Info own, status(file));
  const auto there = status(path);
  if (there) return there->id == own.id;
  if (there.error().code() == Errc::not_found) return false;  // below a file
  return there.error();
}

bool same_file(const File& a, const File& b) noexcept {
  struct stat x {
  }, y{};
  return ::fstat(a.handle(), &x) == 0 && ::fstat(b.handle(), &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

Result<bool> same_system(const File& a, const File& b) {
  struct stat x {
  }, y{};
  for (const auto& [file, status] : {std::pair(&a, &x), std::pair(&b, &y)}) {
    if (retry([&, of = file, to = status] { return ::fstat(of->handle(), to); }) != 0) {
      return failed("cannot look up", file->name());
    }
  }
  return x.st_dev == y.st_dev;
}

Result<std::string> resolve_links(const Path& path) {
  STELE_TRY(check_path(path));
  std::string current = path.text;
  std::array<char, PATH_MAX> target;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  for (int hop = 0; hop < max_links; ++hop) {
    const ssize_t length =
        retry([&] { return ::readlinkat(start_of(path), current.c_str(), target.data(), target.size()); });
    if (length < 0) {
      if (errno == EINVAL || errno == ENOENT) return current;  // no link, or nothing there yet
      return failed("cannot follow", path.name);
    }
    const std::string_view next(target.data(), static_cast<std::size_t>(length));
    if (next.size() == target.size()) return failed("cannot follow", path.name, ENAMETOOLONG);
    // A relative link starts from the folder that contains the link.
    if (!next.starts_with('/')) {
      current.erase(current.rfind('/') + 1);  // npos + 1: there is no folder in the path
      current += next;
    } else {
      current = next;
    }
  }
  return failed("cannot follow", path.name, ELOOP);
}

Status check_writable(const Path& path) {
  STELE_TRY(check_path(path));
  if (retry([&] { return ::faccessat(start_of(path), path.text.c_str(), W_OK, AT_EACCESS); }) != 0) {
    return failed("cannot write", path.name);
  }
  return {};
}

// ---- reading

Result<File> open_for_reading(const Path& path) {
  STELE_TRY(check_path(path));
  std::string name = path.name;  // copied first: once the file is open, nothing may throw
  const int flags = O_RDONLY | O_NOCTTY | O_CLOEXEC;
  // Without O_NONBLOCK, a FIFO would wait for a writer. For a regular file it has one effect: a file under a lease
  // (Samba) is refused, so that case is retried without the flag, which waits.
  int fd = open_path(path, flags | O_NONBLOCK);
  if (fd < 0 && errno == EWOULDBLOCK) fd = open_path(path, flags);
  if (fd < 0) return cannot_open("cannot open", path);
  return File(fd, std::move(name));
}

Result<std::size_t> read_at(const File& file, std::uint64_t offset, std::span<std::byte> out) {
  if (offset > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()) - out.size()) return std::size_t{0};
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = retry([&] {
      return ::pread(file.handle(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    });
    if (got < 0) return failed("cannot read", file.name());
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

Result<Mapping> map_private(const File& file, std::size_t size) {
  // MAP_NORESERVE: a model may be larger than memory, and hardly any of its pages are ever written to.
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.handle(), 0);
  if (memory == MAP_FAILED) return failed("cannot map", file.name());
  return Mapping(static_cast<std::byte*>(memory), size);
}

// ---- writing

Result<File> open_for_writing(const Path& path) {
  STELE_TRY(check_path(path));
  std::string name = path.name;
  const int fd = retry([&] { return ::openat(start_of(path), path.text.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC); });
  if (fd < 0) return failed("cannot open", path.name);
  return File(fd, std::move(name));
}

Status write(const File& file, std::span<const std::span<const std::byte>> pieces, Progress& progress) {
  const std::size_t most = progress.write_behind ? write_behind_step : std::numeric_limits<std::size_t>::max();
  std::array<iovec, max_pieces> gather;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  std::size_t index = 0;                 // the first piece that is not completely written
  std::size_t skip = 0;                  // bytes of it that are written
  for (;;) {
    std::size_t count = 0;
    std::size_t bytes = 0;
    std::size_t from = skip;
    for (std::size_t i = index; i < pieces.size() && count < max_pieces && bytes < most; ++i, from = 0) {
      const std::size_t size = std::min(pieces[i].size() - from, most - bytes);
      if (size == 0) continue;
      gather[count++] = {const_cast<std::byte*>(pieces[i].data()) + from, size};
      bytes += size;
    }
    if (count == 0) return {};
    const ssize_t wrote = retry([&] { return ::writev(file.handle(), gather.data(), static_cast<int>(count)); });
    if (wrote < 0) return failed("cannot write", file.name());
    if (wrote == 0) return failed("cannot write", file.name(), EIO);  // otherwise this loop would not end
    progress.written += static_cast<std::size_t>(wrote);
    if (progress.write_behind) write_out(file, progress);
    for (auto left = static_cast<std::size_t>(wrote); index < pieces.size(); ++index, skip = 0) {
      const std::size_t rest = pieces[index].size() - skip;
      if (left < rest) {
        skip += left;
        break;
      }
      left -= rest;
    }
  }
}

Result<std::uint64_t> copy(const File& from, std::uint64_t offset, const File& file, std::uint64_t size,
                           Progress& progress) {
  constexpr std::uint64_t most = std::uint64_t{1} << 30;
  std::uint64_t done = 0;
  while (done < size) {
    auto at = static_cast<loff_t>(offset + done);
    const auto n = static_cast<std::size_t>(std::min(size - done, most));
    const ssize_t moved = retry([&] { return ::copy_file_range(from.handle(), &at, file.handle(), nullptr, n, 0); });
    if (moved == 0) break;
    if (moved < 0) {
      // Two file systems, or one without this call: the caller copies through memory.
      if (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == EPERM) break;
      return failed("cannot write", file.name());
    }
    done += static_cast<std::uint64_t>(moved);
    progress.written += static_cast<std::uint64_t>(moved);
    if (progress.write_behind) write_out(file, progress);
  }
  return done;
}

Status write_at(const File& file, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote =
        retry([&] { return ::pwrite(file.handle(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (wrote < 0) return failed("cannot write", file.name());
    if (wrote == 0) return failed("cannot write", file.name(), EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    offset += static_cast<std::uint64_t>(wrote);
  }
  return {};
}

Status reserve(const File& file, std::uint64_t total) {
  if (total < least_reserved || total > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) return {};
  // The size stays, so that the file's size always equals the bytes written.
  if (retry([&] { return ::fallocate(file.handle(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(total)); }) == 0)
    return {};
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) return failed("cannot write", file.name());
  return {};
}

Status release_above(const File& file, std::uint64_t size) {
  if (retry([&] { return ::ftruncate(file.handle(), static_cast<off_t>(size)); }) == 0) return {};
  return failed("cannot write", file.name());
}

Status sync(const File& file) {
  if (retry([&] { return ::fsync(file.handle()); }) == 0 || errno == EINVAL) return {};
  return failed("cannot sync", file.name());
}

Status flush(const File& file) {
  // Closing any descriptor of the file flushes it.
  const int copy = ::fcntl(file.handle(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return failed("cannot flush", file.name());
  if (::close(copy) != 0 && errno != EINTR) return failed("cannot write", file.name());
  return {};
}

// ---- replacing a file

Result<Folder> open_folder(const Path& path) {
  STELE_TRY(check_path(path));
  std::string name = path.name;
  const auto open = [&](int how) { return open_path(path, how | O_DIRECTORY | O_CLOEXEC); };
  const int fd = open(O_RDONLY);
  if (fd >= 0) return Folder{File(fd, std::move(name)), true};
  // Write and search rights are enough to replace a file in it.
  const int place = errno == EACCES ? open(O_PATH) : -1;
  if (place < 0) return cannot_open("cannot open the folder", path);
  return Folder{File(place, std::move(name)), false};
}

std::size_t longest_name(const Folder& folder) noexcept {
  const long limit = folder.readable ? ::fpathconf(folder.file.handle(), _PC_NAME_MAX) : -1;
  return limit > 0 ? static_cast<std::size_t>(limit) : NAME_MAX;
}

Result<File> create(const Folder& folder, const std::string& leaf, bool secret, const std::string& name) {
  std::string file_name = name;
  const int fd = retry([&] {
    return ::openat(folder.file.handle(), leaf.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                    secret ? mode_t{0600} : mode_t{0666});
  });
  if (fd < 0 && errno == EEXIST) return File();
  if (fd < 0) return failed("cannot create a temporary file beside it", name);
  File file(fd, std::move(file_name));
  // On a file system without locks, remove_abandoned() gets none either and removes nothing.
  static_cast<void>(retry([&] { return ::flock(fd, LOCK_EX); }));
  // Between creation and locking, another process may have treated it as abandoned.
  struct stat status = {};
  if (retry([&] { return ::fstat(fd, &status); }) != 0) {
    const int code = errno;
    remove(folder, leaf);
    return failed("cannot look up", name, code);
  }
  return status.st_nlink == 0 ? File() : std::move(file);
}

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
  if (!owner_kept || !group_kept) mode &= 0777U;  // running as another user or group than before
  bool list_kept = keep_list(access_list, folder, leaf, file);
  if (S_ISDIR(now.st_mode)) list_kept = keep_list(default_list, folder, leaf, file) && list_kept;
  // The group's rights were for another group, or are the bound of a lost list: replaces them by those of all users.
  if (!group_kept || !list_kept) mode = (mode & ~mode_t{070}) | ((mode & 07U) << 3U);
  if (retry([&] { return ::fchmod(file.handle(), mode); }) != 0 && errno != EPERM && errno != EOPNOTSUPP) {
    return failed("cannot set the permissions", file.name());
  }
  return {};
}

Status rename(const Folder& folder, const std::string& from, const std::string& to, const std::string& name) {
  const int fd = folder.file.handle();
  if (retry([&] { return ::renameat(fd, from.c_str(), fd, to.c_str()); }) == 0) return {};
  if (errno == ENOTEMPTY || errno == EEXIST) return there_already(name);
  return failed("cannot replace", name);
}

Status rename_new(const Folder& folder, const std::string& from, const std::string& to, const std::string& name) {
  const int fd = folder.file.handle();
  if (retry([&] { return ::renameat2(fd, from.c_str(), fd, to.c_str(), RENAME_NOREPLACE); }) == 0) return {};
  if (errno == EEXIST) return there_already(name);
  if (!lacks_flags(errno)) return failed("cannot give it its name", name);
  // A file gets a second name only if the name is free.
  if (retry([&] { return ::linkat(fd, from.c_str(), fd, to.c_str(), 0); }) == 0) {
    remove(folder, from);
    return {};
  }
  if (errno == EEXIST) return there_already(name);
  const int code = errno;
  struct stat status = {};
  // A folder has one name. It replaces only an empty folder, so that nothing is lost.
  if (retry([&] { return ::fstatat(fd, from.c_str(), &status, AT_SYMLINK_NOFOLLOW); }) == 0 &&
      S_ISDIR(status.st_mode)) {
    return rename(folder, from, to, name);
  }
  return failed("cannot give it its name", name, code);
}

Status sync_folder(const Folder& folder, const File& entry) {
  // A folder that cannot be opened for reading cannot be synced, so the whole file system is.
  const int done = retry([&] { return folder.readable ? ::fsync(folder.file.handle()) : ::syncfs(entry.handle()); });
  if (done == 0 || errno == EINVAL) return {};
  return failed("the file is in place, but cannot sync its folder", entry.name());
}

void remove(const Folder& folder, const std::string& path) noexcept {
  static_cast<void>(retry([&] { return ::unlinkat(folder.file.handle(), path.c_str(), 0); }));
}

std::size_t list(const Folder& folder, const std::function<void(std::string_view)>& visit) {
  if (!folder.readable) return 0;
  // Opened again: fdopendir takes ownership of the descriptor, and a copy would share the reading position.
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
      retry([&] { return ::flock(fd, LOCK_SH | LOCK_NB); }) == 0) {
    // Removed under the lock: a maker between creation and locking waits, and then finds that it is gone.
    if (kind == Kind::regular) {
      remove(folder, leaf);
    } else if (names(folder, leaf, status) == true) {
      // By now its maker may have renamed it to its final name, and then released the lock.
      remove_tree(folder, leaf, max_depth + 1);
    }
  }
  ::close(fd);
}

// ---- folders

Result<bool> make_folder(const Path& path) {
  STELE_TRY(check_path(path));
  if (retry([&] { return ::mkdirat(start_of(path), path.text.c_str(), 0777); }) == 0) return true;
  if (errno == EEXIST) return false;
  return failed("cannot make the folder", path.name);
}

Result<Folder> create_folder(const Folder& folder, const std::string& leaf, bool secret, const std::string& name) {
  const int at = folder.file.handle();
  std::string file_name = name;
  if (retry([&] { return ::mkdirat(at, leaf.c_str(), secret ? mode_t{0700} : mode_t{0777}); }) != 0) {
    if (errno == EEXIST) return Folder();
    return failed("cannot make a temporary folder beside it", name);
  }
  const int fd = retry([&] { return ::openat(at, leaf.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
  if (fd < 0) {
    if (errno == ENOENT) return Folder();  // treated as abandoned
    const int code = errno;
    static_cast<void>(retry([&] { return ::unlinkat(at, leaf.c_str(), AT_REMOVEDIR); }));
    return failed("cannot open the folder", name, code);
  }
  Folder made{File(fd, std::move(file_name)), true};
  // Waits like create().
  static_cast<void>(retry([&] { return ::flock(fd, LOCK_EX); }));
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

Result<std::vector<Entry>> entries(const Folder& folder, std::size_t most) {
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
    if (found.size() == most) return Error(Errc::limit, "too many names in a folder").file(folder.file.name());
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

Status exchange(const Folder& folder, const std::string& a, const std::string& b, const std::string& name) {
  const int fd = folder.file.handle();
  if (retry([&] { return ::renameat2(fd, a.c_str(), fd, b.c_str(), RENAME_EXCHANGE); }) == 0) return {};
  // Also impossible for a mount point, or a folder of an image's lower layer (overlayfs).
  if (lacks_flags(errno) || errno == EBUSY || errno == EXDEV) return not_in_one_step(name);
  return failed("cannot replace", name);
}

namespace {

/// Empties and removes a folder. Returns true if nothing of it is left.
bool empty_and_remove(int at, const char* leaf, dev_t device, int depth) {
  const int fd = retry([&] { return ::openat(at, leaf, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
  if (fd < 0) return errno == ENOENT;
  const Folder folder{File(fd, {}), true};
  struct stat status = {};
  if (retry([&] { return ::fstat(fd, &status); }) != 0 || status.st_dev != device) return false;
  // Lists all names first: removing entries during the listing may skip some.
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

void remove_tree(const Folder& folder, const std::string& leaf, int depth) noexcept {
  struct stat status = {};
  if (retry([&] { return ::fstat(folder.file.handle(), &status); }) != 0) return;
  static_cast<void>(guarded([&]() -> Status {
    empty_and_remove(folder.file.handle(), leaf.c_str(), status.st_dev, depth);
    return {};
  }));
}

// ---- processes, memory

std::uint64_t process_id() noexcept { return static_cast<std::uint64_t>(::getpid()); }

bool process_lives(std::uint64_t id) noexcept {
  if (id == 0 || id > static_cast<std::uint64_t>(std::numeric_limits<pid_t>::max())) return false;
  return ::kill(static_cast<pid_t>(id), 0) == 0 || errno != ESRCH;
}

void advise_huge_pages(void* memory, std::size_t size) noexcept {
  const std::size_t whole = size / huge_page * huge_page;
  if (whole != 0) static_cast<void>(::madvise(memory, whole, MADV_HUGEPAGE));
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace stele
