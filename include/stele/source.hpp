// Source: random access to the bytes of a load. Files (mapped or read), memory (borrowed or owned), spooled streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "stele/bytes.hpp"
#include "stele/result.hpp"

namespace stele::inline v0 {

class Bundle;  // stele/bundle.hpp
namespace detail::os {
class File;
}  // namespace detail::os

/// A range of the bytes of a Source or file.
struct ByteRange {
  /// A size: all bytes from the offset on.
  static constexpr std::uint64_t to_end = ~std::uint64_t{0};
  std::uint64_t offset = 0, size = 0;
};

/// Random access to a fixed number of bytes. All members are thread-safe.
class STELE_EXPORT Source {
 public:
  virtual ~Source();
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  /// Returns the number of bytes, which is fixed when the source is opened.
  virtual std::uint64_t size() const noexcept = 0;
  /// Fills `out` with the bytes that start at `offset`. Errors: truncated (the range exceeds the source, or the file
  /// has shrunk since it was opened), io.
  virtual Status read_at(std::uint64_t offset, std::span<std::byte> out) const = 0;
  /// Returns true if will_read() has an effect: loads and saves then announce what they will read.
  virtual bool plans() const noexcept { return false; }
  /// Announces ranges that will be read soon, sorted by offset; a source with slow requests reads them ahead, several
  /// at a time. An empty list withdraws the ranges that have not been read. Only a hint.
  virtual void will_read(std::span<const ByteRange> ranges) const { static_cast<void>(ranges); }
  /// Returns the whole content if it is in memory (reads then need no copy), else an empty span.
  virtual std::span<const std::byte> view() const noexcept { return {}; }
  /// Returns the memory of a range of view(), writable: writes change the bytes of this source and nothing else, as in
  /// owned bytes. Returns nullptr if the source has no such memory. The memory of a mapped file, which is read-only,
  /// becomes a private copy where it is written to; on Windows it is a second mapping, and view() does not change.
  virtual std::byte* writable_view([[maybe_unused]] ByteRange range) const noexcept { return nullptr; }
  /// Returns the bundle with the files that belong to this file; nullptr if there is none.
  virtual std::shared_ptr<const Bundle> bundle() const { return nullptr; }
  /// Returns true for a folder, which has no bytes, only the files of bundle().
  virtual bool is_folder() const noexcept { return false; }
  /// Returns a source with these bytes in memory (a mapping), or nullptr if that would read all of them.
  virtual std::shared_ptr<const Source> mapped() const { return nullptr; }
  /// Returns the operating system's file with these bytes at the same offsets, or nullptr.
  virtual const detail::os::File* file() const noexcept { return nullptr; }
  /// Returns the name for messages: the file's path, "memory", …
  const std::string& name() const noexcept { return name_; }
  /// Identifies a class of the library that is looked for without RTTI; nullptr for all others.
  virtual const void* kind() const noexcept { return nullptr; }

 protected:
  explicit Source(std::string name) : name_(std::move(name)) {}

 private:
  std::string name_;
};

using SourcePtr = std::shared_ptr<const Source>;

/// Opens a regular file that is read with pread. If the file shrinks or changes, reads fail, without a crash. Errors:
/// not_found, io (also for a directory, and for a FIFO or device, which can be spooled), invalid_argument (an empty
/// path, or one with a zero byte).
STELE_EXPORT Result<SourcePtr> open_file(const std::string& path);

/// Opens a regular file as a read-only mapping; parameters may point into it. The file must not shrink while it is
/// mapped: reading a lost page ends the process with SIGBUS. If the system cannot map the file (an address space that
/// is too small, a file system without mappings), it is read as by open_file. Errors: those of open_file.
STELE_EXPORT Result<SourcePtr> map_file(const std::string& path);

#ifdef _WIN32
using NativeFile = void*;  // a HANDLE
#else
using NativeFile = int;  // a file descriptor
#endif

/// Opens a part of a regular file that the caller has opened for reading: an asset of an Android package, or a model in
/// another file. The source keeps a duplicate of `file`, so the caller may close it. Reading does not move the position
/// of `file`, except on Windows. The source has no bundle: files next to this file are not found. `mapped`: as by
/// map_file, at any offset. Errors: invalid_argument (not an open file), io (not a regular file), truncated (the part
/// is not in the file).
STELE_EXPORT Result<SourcePtr> open_descriptor(NativeFile file, ByteRange part = {0, ByteRange::to_end},
                                               bool mapped = false, std::string name = "descriptor");

/// Opens a folder: a source without bytes, whose bundle() opens the folder's files, mapped or read. The folder remains
/// open: files of a folder that later replaces it at its path are never mixed in. Errors: those of open_file (io if the
/// path is not a folder).
STELE_EXPORT Result<SourcePtr> open_folder(const std::string& path, bool mapped = false);

/// Borrows the caller's memory, which must outlive the source and all objects opened from it. Throws std::bad_alloc.
STELE_EXPORT SourcePtr borrow_bytes(std::span<const std::byte> bytes, std::string name = "memory");
template <class V>
requires std::is_same_v<V, std::vector<std::byte>> || std::is_same_v<V, const std::vector<std::byte>> SourcePtr
borrow_bytes(V&& bytes, std::string name = "memory")
= delete;

/// Takes ownership of memory. Throws std::bad_alloc.
STELE_EXPORT SourcePtr own_bytes(Bytes bytes, std::string name = "memory");
STELE_EXPORT SourcePtr own_bytes(std::vector<std::byte> bytes, std::string name = "memory");

struct ReadAheadOptions {
  unsigned requests = 16;                          // at a time
  std::uint64_t memory = std::uint64_t{64} << 20;  // bytes that were read ahead and not used yet
  std::uint64_t gap = 0;                           // announced ranges this close are read together; 0: measured
  std::uint64_t request = 0;                       // bytes of one read; 0: measured, 1 to 16 MiB
  double latency = 0;                              // seconds before the first byte, if known; then measured
};

/// Returns a source that plans the reads of another source whose read_at() has a high latency, as over a network.
/// Announced ranges are joined if reading the gap is faster than another request, split so that a request's latency is
/// a tenth of its time, and read ahead by several threads; sequential reads are read ahead, too. Small reads fetch 64
/// KiB, which are kept. `head`: the first bytes, if they have been read. Errors of a read ahead are returned to the
/// reader of the range. Throws std::bad_alloc.
STELE_EXPORT SourcePtr read_ahead(SourcePtr source, ReadAheadOptions options = {}, Bytes head = {});

/// Reads a stream to its end into memory, at most `limit` bytes. Errors: io, limit, out_of_memory.
STELE_EXPORT Result<SourcePtr> spool(std::istream& stream, std::uint64_t limit, std::string name = "stream");

}  // namespace stele::inline v0
