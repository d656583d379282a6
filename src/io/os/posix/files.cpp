#include "io/os/posix/posix.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#if STELE_MMAP
#include <sys/mman.h>
#endif
#ifndef __wasi__
#include <signal.h>
#endif

namespace stele::inline v0::detail::os {

namespace {

// Maximum number of pieces in one writev on Linux and macOS.
constexpr std::size_t max_pieces = 1024;
// Bytes between two requests to write out. Small enough to keep the disk busy from the start, large enough to cost
// little.
constexpr std::uint64_t write_behind_step = std::uint64_t{8} << 20;
// Minimum size to preallocate: for smaller files, allocating while writing costs less than the call.
constexpr std::uint64_t min_reserved = std::uint64_t{1} << 20;

void write_out(const File& file, Progress& progress) noexcept {
  // Requests only whole steps: a page that the next write continues would be written to disk twice.
  const std::uint64_t end = progress.written / write_behind_step * write_behind_step;
  if (end <= progress.started) return;
  system::start_writing(file.handle(), progress.started, end - progress.started);
  progress.started = end;
}

}  // namespace

void File::close() noexcept {
  // close() is not retried if interrupted: Linux and macOS have closed the file in that case too.
  if (is_open()) ::close(std::exchange(handle_, closed));
}

#if STELE_MMAP
Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
}
#else
Mapping::~Mapping() = default;
#endif

// ---- reading

Result<File> open_for_reading(const Path& path) {
  STELE_TRY(check_path(path));
  std::string name = path.name;  // copied before opening, because no exception may be thrown while the file is open
  const int flags = O_RDONLY | O_NOCTTY | O_CLOEXEC;
  // Without O_NONBLOCK, opening a FIFO would wait for a writer. For regular files the flag has one effect: a file under
  // a lease (Samba) is refused, so that case is retried without the flag, which waits.
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

File open_uncached(const File& file) noexcept { return {system::open_uncached(file.handle()), {}}; }

std::size_t read_uncached(const File& file, std::uint64_t offset, std::span<std::byte> out) noexcept {
  const ssize_t got = retry([&] { return ::pread(file.handle(), out.data(), out.size(), static_cast<off_t>(offset)); });
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

bool is_cached(const File& file, std::uint64_t offset, std::size_t size) noexcept {
  return system::is_cached(file.handle(), offset, size);
}

#if STELE_MMAP
Result<Mapping> map_private(const File& file, std::size_t size) {
  // MAP_NORESERVE: a model may be larger than memory, and few of its pages are ever written to.
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.handle(), 0);
  if (memory == MAP_FAILED) return failed("cannot map", file.name());
  return Mapping(static_cast<std::byte*>(memory), size);
}
#else
Result<Mapping> map_private(const File&, std::size_t) { return Error(Errc::unsupported); }
#endif

// ---- writing

Result<File> open_for_writing(const Path& path) {
  STELE_TRY(check_path(path));
  std::string name = path.name;
  const int fd = retry([&] { return ::openat(start_of(path), path.text.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC); });
  if (fd < 0) return failed("cannot open", path.name);
  return File(fd, std::move(name));
}

Status write(const File& file, std::span<const std::span<const std::byte>> pieces, Progress& progress) {
  const std::size_t max_bytes = progress.write_behind ? write_behind_step : std::numeric_limits<std::size_t>::max();
  std::array<iovec, max_pieces> gather;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  std::size_t index = 0;                 // the first piece that is not completely written
  std::size_t skip = 0;                  // bytes of it that are already written
  for (;;) {
    std::size_t count = 0;
    std::size_t bytes = 0;
    std::size_t from = skip;
    for (std::size_t i = index; i < pieces.size() && count < max_pieces && bytes < max_bytes; ++i, from = 0) {
      const std::size_t size = std::min(pieces[i].size() - from, max_bytes - bytes);
      if (size == 0) continue;
      gather[count++] = {const_cast<std::byte*>(pieces[i].data()) + from, size};
      bytes += size;
    }
    if (count == 0) return {};
    const ssize_t wrote = retry([&] { return ::writev(file.handle(), gather.data(), static_cast<int>(count)); });
    if (wrote < 0) return failed("cannot write", file.name());
    if (wrote == 0) return failed("cannot write", file.name(), EIO);  // prevents an endless loop
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
  constexpr std::uint64_t max_copy = std::uint64_t{1} << 30;
  std::uint64_t done = 0;
  while (done < size) {
    const auto n = static_cast<std::size_t>(std::min(size - done, max_copy));
    const ssize_t moved = retry([&] { return system::copy(from.handle(), offset + done, file.handle(), n); });
    if (moved == 0) break;
    if (moved < 0) {
      // The files are on two file systems, or the file system lacks this call: the caller copies through memory.
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
  if (total < min_reserved || total > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) return {};
  // On a file system with too little free space, preallocating may fill it before it fails.
  const auto available = system::free_bytes(file.handle());
  if (available && total > *available) return failed("cannot write", file.name(), ENOSPC);
  // The file's size does not change, so that it always equals the number of bytes written.
  if (retry([&] { return system::allocate(file.handle(), total); }) == 0) return {};
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) return failed("cannot write", file.name());
  return {};
}

Status release_above(const File& file, std::uint64_t size) {
  if (retry([&] { return ::ftruncate(file.handle(), static_cast<off_t>(size)); }) == 0) return {};
  return failed("cannot write", file.name());
}

Status sync(const File& file) {
  if (retry([&] { return system::sync(file.handle()); }) == 0 || errno == EINVAL) return {};
  return failed("cannot sync", file.name());
}

#ifdef __wasi__
Status flush(const File&) { return {}; }  // a descriptor has no duplicates

std::uint64_t process_id() noexcept { return 1; }

bool process_lives(std::uint64_t) noexcept { return true; }  // others may use the same folders
#else
Status flush(const File& file) {
  // Closing any descriptor of the file flushes it.
  const int copy = ::fcntl(file.handle(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return failed("cannot flush", file.name());
  if (::close(copy) != 0 && errno != EINTR) return failed("cannot write", file.name());
  return {};
}

// ---- processes

std::uint64_t process_id() noexcept { return static_cast<std::uint64_t>(::getpid()); }

bool process_lives(std::uint64_t id) noexcept {
  if (id == 0 || id > static_cast<std::uint64_t>(std::numeric_limits<pid_t>::max())) return false;
  return ::kill(static_cast<pid_t>(id), 0) == 0 || errno != ESRCH;
}
#endif

// ---- memory

void advise_huge_pages(void* memory, std::size_t size) noexcept {
  const std::size_t whole = size / huge_page * huge_page;
  if (whole != 0) system::advise_huge_pages(memory, whole);
}

}  // namespace stele::inline v0::detail::os
