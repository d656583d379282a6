// Zip files: a directory that trusts nothing, entries as Sources, a writer that aligns what is stored.
//
// 1. local file header, 30 B: u32 0x04034b50, u16 version needed (20; 45 with zip64), u16 flags, u16 method (0 stored,
//    8 DEFLATE), u16 time, u16 date, u32 CRC-32, u32 compressed size, u32 size, u16 length of the name, of the extra
// 2. name, extra fields, data; behind data whose flag bit 3 is set a descriptor of 12 to 24 B
// 3. central directory, an entry 46 B: u32 0x02014b50, u16 version made by, … the same fields …, u16 length of the
//    comment, u16 disk, u16 internal and u32 external attributes, u32 offset of the local header; name, extra, comment
// 4. zip64 end, 56 B, and its locator, 20 B: only where a count or an offset does not fit
// 5. end of central directory, 22 B: u32 0x06054b50, disks, counts, size and offset of the directory, comment
// Extra field 1: u64 sizes and offset that are 0xffffffff above. All little-endian. Source: APPNOTE.TXT 6.3.10 of
// PKWARE.
//
// Own code: of Debian's libraries minizip cannot read its own zip64 entries, libzip and libarchive can neither align
// an entry nor say where it lies (docs/dependencies.md). Deflating and inflating is zlib's, the CRC-32 libdeflate's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/meter.hpp"
#include "encodings/gzip/gzip.hpp"
#include "io/gather.hpp"
#include "stele/bytes.hpp"
#include "stele/report.hpp"
#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace zip {

inline constexpr std::uint16_t stored = 0;
inline constexpr std::uint16_t deflated = 8;

using gzip::crc32;
using gzip::crc32_joined;

/// One file of the archive, as the central directory has it. From `header` to `end` it can be copied as it is.
struct Entry {
  std::string_view name;         // inside the Directory
  std::uint64_t header = 0;      // offset of the local header
  std::uint64_t end = 0;         // where the next one, or the directory, begins
  std::uint64_t compressed = 0;  // bytes in the file
  std::uint64_t size = 0;        // bytes that they stand for
  std::uint32_t crc = 0;
  std::uint32_t modified = 0x00210000;  // time and date: 1980-01-01
  std::uint16_t method = stored;
  std::uint16_t flags = 0;
  std::uint16_t version = 20;  // needed to extract
};

/// The central directory of a zip file. Immutable; all members are safe from several threads.
///
/// Refused (malformed, unless said): not one end record exactly at the end of the file, but none or two; a directory
/// that does not lie right before it; several disks; counts and sizes that do not agree; zip64's end record or extra
/// field where it is not needed, with other numbers; encrypted entries (unsupported); two entries of one name
/// (duplicate); names that are empty, not UTF-8, absolute, with a backslash, a NUL, a colon behind the first
/// letter, or a part that is empty, `.` or `..` (a trailing slash is a folder: without bytes, checked and left out);
/// entries that overlap, or reach into the directory; a size that DEFLATE cannot reach from so few bytes (limit;
/// 1032:1); stored entries whose two sizes differ. Bytes before the first entry, between entries and behind their data
/// are allowed, and never looked at.
class Directory {
 public:
  /// `memory` bounds what the directory takes (limit). Errors: io, and the above.
  static Result<std::shared_ptr<const Directory>> open(SourcePtr source, std::uint64_t memory);
  /// In the order of their offsets.
  std::span<const Entry> entries() const noexcept { return entries_; }
  /// nullptr where there is none of that name.
  const Entry* find(std::string_view name) const noexcept;
  const SourcePtr& source() const noexcept { return source_; }
  /// Offset of an entry's data, from the local header, whose name, method, CRC and sizes must be those of the directory
  /// (with a descriptor: or 0). `head`: bytes of the file from entry.header on, as many as are known; what is missing
  /// is read.
  Result<std::uint64_t> data(const Entry& entry, std::span<const std::byte> head = {}) const;
  /// All bytes of an entry, inflated, its CRC-32 checked. Errors: limit (more than `limit` bytes), checksum, malformed,
  /// unsupported (another method), io.
  Result<Bytes> read(const Entry& entry, std::uint64_t limit) const;
  /// An entry as a Source; what is stored is a part of the file, with the file's view(); what is deflated is inflated
  /// as it is read: in order from the beginning it is one pass, which checks the CRC-32 at its end; anywhere else from
  /// the last of some 256 kept states on (some 40 KiB each, made in passing).
  Result<SourcePtr> open(const Entry& entry) const;
  /// Compares all bytes of every entry that `skip` does not take with its CRC-32. The report of a verification names
  /// what has none. Errors: checksum, malformed, io, cancelled.
  Result<Report> check(Meter& meter, const std::function<bool(const Entry&)>& skip = nullptr) const;

 private:
  Directory() = default;

  SourcePtr source_;
  Bytes records_;  // the central directory; names point into it
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> by_name_;
};

/// Writes a zip file forward: what is stored has its sizes and CRC-32 before its bytes (a stored entry with a
/// descriptor is refused by Java). Dates are 1980-01-01, so that equal content is equal bytes.
class Writer {
 public:
  explicit Writer(Gather& out) : out_(out) {}
  /// Begins an entry whose `compressed` bytes the caller appends to the Gather right behind this call. Byte `aligned`
  /// of its data lies at a multiple of `alignment` of the file (an extra field of id 0xd935 pads; 0: no alignment).
  /// Errors: those of the sink, not_representable (a name that Directory refuses, or of more than 65535 bytes; an
  /// alignment of more than 32 KiB). That no name comes twice is the caller's duty.
  Status begin(std::string_view name, std::uint16_t method, std::uint64_t compressed, std::uint64_t size,
               std::uint32_t crc, std::uint64_t aligned = 0, std::uint64_t alignment = 0);
  /// A whole entry from memory; deflated where `method` says so and it gets smaller.
  Status add(std::string_view name, std::span<const std::byte> bytes, std::uint16_t method = stored);
  /// The CRC-32 of the entry begun last, whose bytes have all been appended; only where the Gather can patch.
  Status set_crc(std::uint32_t crc);
  /// An entry that is in the file already, at `header`: all from its local header to Entry::end was copied there.
  void adopt(const Entry& entry, std::uint64_t header);
  /// The central directory and the end.
  Status finish();

 private:
  struct Written {
    std::string name;
    Entry entry;  // but its name
  };
  Gather& out_;
  std::vector<Written> entries_;
};

}  // namespace zip
}  // namespace detail
}  // namespace v0
}  // namespace stele
