#include "io/os/posix/posix.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <string_view>
#include <utility>

namespace stele::inline v0::detail::os {

namespace {

// Maximum number of links in a path: the kernel's limit.
constexpr int max_links = 40;
}  // namespace

int open_by_parts(int folder, std::string_view path, int flags, int through) {
  File above;
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  for (std::size_t slash = path.find('/'); slash != path.npos; slash = path.find('/')) {
    const std::string part(path.substr(0, slash));
    const int next =
        retry([&] { return ::openat(folder, part.c_str(), through | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
    if (next < 0) return next;
    above = File(next, {});
    folder = next;
    path.remove_prefix(slash + 1);
  }
  return retry([&] { return ::openat(folder, std::string(path).c_str(), flags | O_NOFOLLOW); });
}

namespace {

/// Opens the target of a link of the Hugging Face hub's cache, which leads out of the folder of a revision:
/// models--OWNER--NAME/snapshots/REVISION/FILE -> ../../blobs/HASH (huggingface_hub 1.x, "Understand caching"). Such a
/// link can name nothing but a file of that one folder.
int open_blob(int folder, std::string_view path, int flags) {
  std::array<char, 512> text{};
  const ssize_t size = ::readlinkat(folder, std::string(path).c_str(), text.data(), text.size());
  if (size < 0) return -1;
  std::string_view target(text.data(), static_cast<std::size_t>(size));
  constexpr std::string_view up = "../", blobs = "blobs/";
  for (auto ups = 2 + std::count(path.begin(), path.end(), '/'); ups != 0; --ups) {
    if (!target.starts_with(up)) return -1;
    target.remove_prefix(up.size());
  }
  if (!target.starts_with(blobs)) return -1;
  const std::string_view name = target.substr(blobs.size());
  if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos) return -1;
  return retry(
      [&] { return ::openat(folder, std::string("../../").append(target).c_str(), flags | O_NOFOLLOW | O_CLOEXEC); });
}

}  // namespace

int open_path(const Path& path, int flags) {
  if (path.from == nullptr) return retry([&] { return ::openat(AT_FDCWD, path.text.c_str(), flags); });
  const int opened = system::open_beneath(start_of(path), path.text, flags);
  const int error = errno;
  if (opened >= 0 || (error != EXDEV && error != ELOOP) || (flags & (O_ACCMODE | O_CREAT)) != O_RDONLY) return opened;
  const int blob = open_blob(start_of(path), path.text, flags);
  if (blob < 0) errno = error;
  return blob;
}

Error cannot_open(const char* what, const Path& path) {
  const bool leads_out = path.from != nullptr && (errno == EXDEV || errno == ELOOP);
  if (!leads_out) return failed(what, path.name);
  return Error(Errc::io, std::string(what) + ": a link that leads out of the folder is not followed").file(path.name);
}

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

Result<bool> exists(const Path& path) {
  STELE_TRY(check_path(path));
  struct stat status = {};
  if (retry([&] { return ::fstatat(start_of(path), path.text.c_str(), &status, AT_SYMLINK_NOFOLLOW); }) == 0)
    return true;
  if (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG || errno == EACCES || errno == ELOOP) return false;
  return failed("cannot look up", path.name);
}

Result<Info> status_beneath(const Path& path) {
  STELE_TRY(check_path(path));
  const int fd = open_path(path, system::lookup_flags() | O_CLOEXEC);
  if (fd >= 0) return status(File(fd, path.name));
  if (errno == ENOENT || errno == ENOTDIR) return Info{};
  if (errno == EXDEV || errno == ELOOP) return Info{Kind::other};
  return failed("cannot look up", path.name);
}

Result<bool> leads_to(const Path& path, const File& file) {
  STELE_TRY_ASSIGN(const Info own, status(file));
  const auto found = status(path);
  if (found) return found->id == own.id;
  if (found.error().code() == Errc::not_found) return false;  // the path leads through a file
  return found.error();
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
      if (errno == EINVAL || errno == ENOENT) return current;  // not a link, or it does not exist yet
      return failed("cannot follow", path.name);
    }
    const std::string_view next(target.data(), static_cast<std::size_t>(length));
    if (next.size() == target.size()) return failed("cannot follow", path.name, ENAMETOOLONG);
    // A relative link starts from the folder that contains the link.
    if (!next.starts_with('/')) {
      current.erase(current.rfind('/') + 1);  // npos + 1 is 0: the path has no folder
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

Result<Folder> open_folder(const Path& path) {
  STELE_TRY(check_path(path));
  std::string name = path.name;
  const auto open = [&](int how) { return open_path(path, how | O_DIRECTORY | O_CLOEXEC); };
  const int fd = open(O_RDONLY);
  if (fd >= 0) return Folder{File(fd, std::move(name)), true};
  // Write and search permissions suffice to replace a file in it.
  const int place = errno == EACCES ? open(system::lookup_flags()) : -1;
  if (place < 0) return cannot_open("cannot open the folder", path);
  return Folder{File(place, std::move(name)), false};
}

std::size_t longest_name(const Folder& folder) noexcept {
  const long limit = folder.readable ? ::fpathconf(folder.file.handle(), _PC_NAME_MAX) : -1;
  return limit > 0 ? static_cast<std::size_t>(limit) : NAME_MAX;
}

}  // namespace stele::inline v0::detail::os
