#include "io/os/windows/windows.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

namespace stele::inline v0::detail::os {

namespace {

// Maximum size of one read or write; a DWORD counts its bytes.
constexpr std::size_t max_transfer = std::size_t{1} << 30;
// Pieces smaller than this are gathered: there is no writev for files that are read through the cache.
constexpr std::size_t gather_bytes = std::size_t{64} << 10;
// Minimum size to preallocate: for smaller files, allocating while writing costs less than the call.
constexpr std::uint64_t min_reserved = std::uint64_t{1} << 20;

OVERLAPPED at(std::uint64_t offset) noexcept {
  OVERLAPPED position = {};
  position.Offset = static_cast<DWORD>(offset);
  position.OffsetHigh = static_cast<DWORD>(offset >> 32);
  return position;
}

/// Returns the unit of the offsets of views.
std::uint64_t granularity() noexcept {
  SYSTEM_INFO info = {};
  ::GetSystemInfo(&info);
  return info.dwAllocationGranularity;
}

void* view(const File& section, DWORD access, std::uint64_t offset, std::size_t size) noexcept {
  return ::MapViewOfFile(section.handle(), access, static_cast<DWORD>(offset >> 32), static_cast<DWORD>(offset), size);
}

bool is_disk(const File& file) noexcept { return ::GetFileType(file.handle()) == FILE_TYPE_DISK; }

/// Writes all bytes at the file's position.
Status append(const File& file, std::span<const std::byte> bytes, Progress& progress) {
  while (!bytes.empty()) {
    const auto size = static_cast<DWORD>(std::min(bytes.size(), max_transfer));
    DWORD wrote = 0;
    if (::WriteFile(file.handle(), bytes.data(), size, &wrote, nullptr) == 0)
      return failed("cannot write", file.name());
    if (wrote == 0) return failed("cannot write", file.name(), ERROR_WRITE_FAULT);  // prevents an endless loop
    progress.written += wrote;
    bytes = bytes.subspan(wrote);
  }
  return {};
}

}  // namespace

void File::close() noexcept {
  if (is_open()) ::CloseHandle(std::exchange(handle_, closed));
}

Mapping::~Mapping() {
  for (const Copy& copy : copies_) ::UnmapViewOfFile(copy.data);
  if (data_ != nullptr) ::UnmapViewOfFile(data_);
}

std::byte* Mapping::writable(std::size_t offset, std::size_t size) noexcept {
  const std::uint64_t begin = begin_ + offset, end = begin + size;
  for (const Copy& copy : copies_) {
    if (copy.begin <= begin && end <= copy.end) return copy.data + (begin - copy.begin);
  }
  std::byte* found = nullptr;
  const auto added = guarded([&]() -> Status {
    copies_.reserve(copies_.size() + 1);
    const std::uint64_t unit = granularity(), from = begin / unit * unit;
    const std::uint64_t to = std::min(begin_ + size_, (end + unit - 1) / unit * unit);
    // Windows reserves memory for all pages of this view, since each may be written to.
    void* const memory = view(section_, FILE_MAP_COPY, from, static_cast<std::size_t>(to - from));
    if (memory == nullptr) return {};
    copies_.push_back({from, to, static_cast<std::byte*>(memory)});
    found = copies_.back().data + (begin - from);
    return {};
  });
  return added ? found : nullptr;
}

// ---- reading

Result<File> open_for_reading(const Path& path) {
  STELE_TRY(check_path(path));
  std::string name = path.name;
  DWORD code = 0;
  const HANDLE found = open_path(path, {}, code);
  if (found == nullptr) return cannot_open("cannot open", path, code);
  return File(found, std::move(name));
}

Result<File> duplicate(void* handle, std::string name) {
  HANDLE copy = nullptr;
  const HANDLE own = ::GetCurrentProcess();
  if (::DuplicateHandle(own, handle, own, &copy, 0, FALSE, DUPLICATE_SAME_ACCESS) != 0) {
    return File(copy, std::move(name));
  }
  const DWORD code = ::GetLastError();
  if (code != ERROR_INVALID_HANDLE) return failed("cannot duplicate the handle", name, code);
  return Error(Errc::invalid_argument, "the handle is not an open file").file(std::move(name));
}

Result<std::size_t> read_at(const File& file, std::uint64_t offset, std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    OVERLAPPED position = at(offset + done);
    const auto size = static_cast<DWORD>(std::min(out.size() - done, max_transfer));
    DWORD got = 0;
    if (::ReadFile(file.handle(), out.data() + done, size, &got, &position) == 0) {
      if (::GetLastError() == ERROR_HANDLE_EOF) break;
      return failed("cannot read", file.name());
    }
    if (got == 0) break;
    done += got;
  }
  return done;
}

File open_uncached(const File&) noexcept { return {}; }

std::size_t read_uncached(const File&, std::uint64_t, std::span<std::byte>) noexcept { return 0; }

bool is_cached(const File&, std::uint64_t, std::size_t) noexcept { return true; }

Result<Mapping> map(const File& file, std::uint64_t offset, std::size_t size) {
  const auto lead = static_cast<std::size_t>(offset % granularity());
  if (size > std::numeric_limits<std::size_t>::max() - lead) {
    return failed("cannot map", file.name(), ERROR_NOT_ENOUGH_MEMORY);
  }
  // Such a section has read-only views and views that copy on write.
  File section(::CreateFileMappingW(file.handle(), nullptr, PAGE_WRITECOPY, 0, 0, nullptr), file.name());
  if (!section.is_open()) return failed("cannot map", file.name());
  void* const memory = view(section, FILE_MAP_READ, offset - lead, lead + size);
  if (memory == nullptr) return failed("cannot map", file.name());
  Mapping mapping(static_cast<std::byte*>(memory), lead, size);
  mapping.section_ = std::move(section);
  mapping.begin_ = offset;
  return mapping;
}

// ---- writing

Result<File> open_for_writing(const Path& path) {
  STELE_TRY(check_path(path));
  std::string name = path.name;
  DWORD code = 0;
  const HANDLE found = open_path(path, {.access = FILE_GENERIC_WRITE}, code);
  if (found == nullptr) return failed("cannot open", path.name, code);
  return File(found, std::move(name));
}

Status write(const File& file, std::span<const std::span<const std::byte>> pieces, Progress& progress) {
  std::array<std::byte, gather_bytes> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  std::size_t used = 0;
  const auto flush = [&] { return append(file, {buffer.data(), std::exchange(used, 0)}, progress); };
  for (const auto& piece : pieces) {
    if (pieces.size() == 1 || piece.size() >= gather_bytes / 2) {
      STELE_TRY(flush());
      STELE_TRY(append(file, piece, progress));
      continue;
    }
    if (piece.size() > gather_bytes - used) STELE_TRY(flush());
    if (!piece.empty()) std::memcpy(buffer.data() + used, piece.data(), piece.size());
    used += piece.size();
  }
  return flush();
}

Result<std::uint64_t> copy(const File&, std::uint64_t, const File&, std::uint64_t, Progress&) {
  return std::uint64_t{0};  // the system copies whole files only
}

Status write_at(const File& file, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    OVERLAPPED position = at(offset);
    const auto size = static_cast<DWORD>(std::min(bytes.size(), max_transfer));
    DWORD wrote = 0;
    if (::WriteFile(file.handle(), bytes.data(), size, &wrote, &position) == 0)
      return failed("cannot write", file.name());
    if (wrote == 0) return failed("cannot write", file.name(), ERROR_WRITE_FAULT);
    bytes = bytes.subspan(wrote);
    offset += wrote;
  }
  // The call has moved the position to which write() appends.
  if (::SetFilePointerEx(file.handle(), {}, nullptr, FILE_END) == 0) return failed("cannot write", file.name());
  return {};
}

Status reserve(const File& file, std::uint64_t total) {
  if (total < min_reserved || total > static_cast<std::uint64_t>(std::numeric_limits<LONGLONG>::max())) return {};
  // The file's size does not change, so that it always equals the number of bytes written.
  FILE_ALLOCATION_INFO wanted = {};
  wanted.AllocationSize.QuadPart = static_cast<LONGLONG>(total);
  if (::SetFileInformationByHandle(file.handle(), FileAllocationInfo, &wanted, sizeof wanted) != 0) return {};
  const DWORD code = ::GetLastError();
  if (code == ERROR_DISK_FULL || code == ERROR_HANDLE_DISK_FULL || code == ERROR_FILE_TOO_LARGE) {
    return failed("cannot write", file.name(), code);
  }
  return {};
}

Status release_above(const File& file, std::uint64_t size) {
  FILE_ALLOCATION_INFO wanted = {};
  wanted.AllocationSize.QuadPart = static_cast<LONGLONG>(size);
  // File systems that did not preallocate refuse this, too. All release the rest when the file is closed.
  static_cast<void>(::SetFileInformationByHandle(file.handle(), FileAllocationInfo, &wanted, sizeof wanted));
  return {};
}

DWORD flush_folder(const File& folder) noexcept {
  DWORD code = ERROR_NOT_ENOUGH_MEMORY;
  const auto done = guarded([&]() -> Status {
    // Flushing needs write access, which the handle of a folder lacks.
    const File again(open_entry(folder, {}, {.access = FILE_GENERIC_WRITE, .options = only_folder}, code), {});
    if (again.is_open()) code = ::FlushFileBuffers(again.handle()) != 0 ? ERROR_SUCCESS : ::GetLastError();
    return {};
  });
  return done ? code : static_cast<DWORD>(ERROR_NOT_ENOUGH_MEMORY);
}

Status sync(const File& file) {
  if (!is_disk(file)) return {};
  Attributes found;
  if (!attributes_of(file.handle(), found)) return failed("cannot sync", file.name());
  DWORD code = ERROR_SUCCESS;
  if (found.info.kind == Kind::folder) {
    code = flush_folder(file);
    if (lacks_call(code)) return {};
  } else if (::FlushFileBuffers(file.handle()) == 0) {
    code = ::GetLastError();
  }
  return code == ERROR_SUCCESS ? Status() : failed("cannot sync", file.name(), code);
}

Status flush(const File&) { return {}; }  // closing a file reports no errors

// ---- processes, memory

std::uint64_t process_id() noexcept { return ::GetCurrentProcessId(); }

bool process_lives(std::uint64_t id) noexcept {
  if (id == 0 || id > std::numeric_limits<DWORD>::max()) return false;
  const File process(::OpenProcess(SYNCHRONIZE, FALSE, static_cast<DWORD>(id)), {});
  if (!process.is_open()) return ::GetLastError() == ERROR_ACCESS_DENIED;
  return ::WaitForSingleObject(process.handle(), 0) == WAIT_TIMEOUT;
}

void advise_huge_pages(void*, std::size_t) noexcept {}  // large pages need a privilege

}  // namespace stele::inline v0::detail::os
