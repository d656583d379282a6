// Source: where bytes come from. Files (mapped or read), memory (borrowed or owned), spooled streams.
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

namespace stele {
inline namespace v0 {

class Bundle;  // stele/bundle.hpp
namespace detail::os {
class File;
}  // namespace detail::os

/// Random access to a fixed number of bytes. All members are safe from several threads.
class STELE_EXPORT Source {
 public:
  virtual ~Source();
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  /// Number of bytes, fixed when the source was opened.
  virtual std::uint64_t size() const noexcept = 0;
  /// Fills `out` with the bytes from `offset` on. Errors: truncated (the range ends beyond the source, or the file has
  /// shrunk since), io.
  virtual Status read_at(std::uint64_t offset, std::span<std::byte> out) const = 0;
  /// The whole content where it lies in memory (then reads need no copy), else an empty span.
  virtual std::span<const std::byte> view() const noexcept { return {}; }
  /// True when writing to the memory of view() changes nobody else's bytes: a private mapping or owned bytes.
  virtual bool view_is_private() const noexcept { return false; }
  /// Where files that belong to it lie; nullptr where there is no such place.
  virtual std::shared_ptr<const Bundle> bundle() const { return nullptr; }
  /// A folder: it has no bytes of its own, only the files of bundle().
  virtual bool is_folder() const noexcept { return false; }
  /// The same bytes as memory: a mapping, or nullptr where that cannot be had without reading them all.
  virtual std::shared_ptr<const Source> mapped() const { return nullptr; }
  /// The system's file with these bytes at these offsets, or nullptr.
  virtual const detail::os::File* file() const noexcept { return nullptr; }
  /// What to call it in messages: the file's path, "memory", …
  const std::string& name() const noexcept { return name_; }

 protected:
  explicit Source(std::string name) : name_(std::move(name)) {}

 private:
  std::string name_;
};

using SourcePtr = std::shared_ptr<const Source>;

/// A regular file read with pread: survives a file that shrinks or changes (reads then fail, nothing crashes).
/// Errors: not_found, io (also for a directory, and for a FIFO or device, which can be spooled), invalid_argument (an
/// empty path, or one with a zero byte).
STELE_EXPORT Result<SourcePtr> open_file(const std::string& path);

/// A regular file as a private (copy-on-write) mapping: parameters may point into it. The file must not shrink while
/// mapped (reading a lost page ends the process with SIGBUS). Errors: as open_file.
STELE_EXPORT Result<SourcePtr> map_file(const std::string& path);

/// A folder: a source without bytes, whose bundle() opens the files in it, mapped or read. The folder stays open: what
/// takes the place of its path later is another one, whose files are never mixed in. Errors: as open_file (io where it
/// is no folder).
STELE_EXPORT Result<SourcePtr> open_folder(const std::string& path, bool mapped = false);

/// The caller's memory; it must outlive the source and everything opened from it. Throws std::bad_alloc.
STELE_EXPORT SourcePtr borrow_bytes(std::span<const std::byte> bytes, std::string name = "memory");
template <class V>
requires std::is_same_v<V, std::vector<std::byte>> || std::is_same_v<V, const std::vector<std::byte>> SourcePtr
borrow_bytes(V&& bytes, std::string name = "memory")
= delete;

/// Memory that the source owns from now on. Throws std::bad_alloc.
STELE_EXPORT SourcePtr own_bytes(Bytes bytes, std::string name = "memory");
STELE_EXPORT SourcePtr own_bytes(std::vector<std::byte> bytes, std::string name = "memory");

/// Reads a stream to its end into memory, at most `limit` bytes. Errors: io, limit, out_of_memory.
STELE_EXPORT Result<SourcePtr> spool(std::istream& stream, std::uint64_t limit, std::string name = "stream");

}  // namespace v0
}  // namespace stele
