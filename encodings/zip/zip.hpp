// Zip files: a directory for untrusted input, entries as Sources, a writer that aligns stored entries.
//
// 1. local file header, 30 B: u32 0x04034b50, u16 version needed (20; 45 with zip64), u16 flags, u16 method (0 stored,
//    8 DEFLATE), u16 time, u16 date, u32 CRC-32, u32 compressed size, u32 size, u16 length of the name, of the extra
// 2. name, extra fields, data; if flag bit 3 is set, a descriptor of 12 to 24 B after the data
// 3. central directory, an entry 46 B: u32 0x02014b50, u16 version made by, … fields as in 1 …, u16 length of the
//    comment, u16 disk, u16 internal and u32 external attributes, u32 offset of the local header; name, extra, comment
// 4. zip64 end, 56 B, and its locator, 20 B: only if a count or an offset does not fit
// 5. end of central directory, 22 B: u32 0x06054b50, disks, counts, size and offset of the directory, comment
// Extra field 1: the u64 sizes and offset for those that are 0xffffffff above. All little-endian. Source: APPNOTE.TXT
// 6.3.10 of PKWARE.
//
// Own code: of Debian's libraries, minizip cannot read its own zip64 entries, and libzip and libarchive can neither
// align an entry nor return its position (docs/dependencies.md). zlib deflates and inflates; libdeflate computes the
// CRC-32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/meter.hpp"
#include "encodings/gzip/gzip.hpp"
#include "io/gather.hpp"
#include "stele/bytes.hpp"
#include "stele/report.hpp"
#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::zip {

inline constexpr std::uint16_t stored = 0;
inline constexpr std::uint16_t deflated = 8;

using gzip::crc32;
using gzip::crc32_joined;

/// Returns true if Writer accepts an entry of this name.
bool valid_name(std::string_view name) noexcept;

/// The name in the first local header that does not belong to a folder.
struct FirstName {
  std::string_view name;  // the part of it that `head` contains
  bool complete = false;
};
/// Returns nullopt if `head` does not begin a zip file with at least one entry, or contains no letter of a name.
std::optional<FirstName> first_name(std::span<const std::byte> head) noexcept;

/// One file of the archive, from the central directory. The bytes from `header` to `end` can be copied unchanged.
struct Entry {
  std::string_view name;         // points into the Directory
  std::uint64_t header = 0;      // offset of the local header
  std::uint64_t end = 0;         // offset of the next entry, or of the directory
  std::uint64_t compressed = 0;  // bytes in the file
  std::uint64_t size = 0;        // bytes of content
  std::uint32_t crc = 0;
  std::uint32_t modified = 0x00210000;  // time and date: 1980-01-01
  std::uint16_t method = stored;
  std::uint16_t flags = 0;
  std::uint16_t version = 20;  // version needed to extract
};

/// Returns true if an entry's bytes cannot be read without a key, or are a patch for another file.
bool is_encrypted(const Entry& entry) noexcept;

/// The central directory of a zip file. Immutable and thread-safe.
///
/// Refuses the following; the error is malformed unless another one is given:
/// - no end record in the last 64 KiB of the file, or two. Bytes after the record are allowed and not read
/// - a directory that is not directly before the end record; several disks; counts and sizes that differ
/// - a zip64 end record or extra field that is not needed and has different numbers
/// - two entries with the same name (duplicate)
/// - names that are empty, not UTF-8, or contain a NUL. Other names are keys, and may look like any path. A name with a
/// trailing slash is a folder, which must have no bytes, and is omitted
/// - entries that overlap, or reach into the directory
/// - a size that DEFLATE cannot reach from so few bytes (limit; 1032:1); stored entries whose two sizes differ
/// Bytes before the first entry, between entries and after their data are allowed and not read. An encrypted entry has
/// a name and sizes; reading its bytes is refused (unsupported).
class Directory {
 public:
  /// Opens a file. `memory` bounds the directory's memory (limit). Errors: io, and those listed for the class.
  static Result<std::shared_ptr<const Directory>> open(SourcePtr source, std::uint64_t memory);
  /// Returns the entries in the order of their offsets.
  std::span<const Entry> entries() const noexcept { return entries_; }
  /// Returns the entry with that name, or nullptr.
  const Entry* find(std::string_view name) const noexcept;
  const SourcePtr& source() const noexcept { return source_; }
  /// Returns the offset of an entry's data, from its local header, whose name, method, CRC and sizes must equal those
  /// in the directory (or be 0 if there is a descriptor). `head`: bytes of the file from entry.header on that the
  /// caller already has; the function reads the missing ones.
  Result<std::uint64_t> data(const Entry& entry, std::span<const std::byte> head = {}) const;
  /// Returns all bytes of an entry, inflated, after checking the CRC-32. Errors: limit (more than `limit` bytes),
  /// checksum, malformed, unsupported (another method), io.
  Result<Bytes> read(const Entry& entry, std::uint64_t limit) const;
  /// Opens an entry as a Source. A stored entry is a part of the file, with the file's view(). A deflated entry is
  /// inflated as it is read: a read in order from the beginning takes one pass, which checks the CRC-32 at its end;
  /// other reads start from the nearest earlier one of about 256 states that reading keeps (about 40 KiB each).
  Result<SourcePtr> open(const Entry& entry) const;
  /// Verifies the CRC-32 of every entry for which `skip` does not return true. The report lists the parts without a
  /// checksum, and the entries that cannot be read. Errors: checksum, malformed, io, cancelled.
  Result<Report> check(Meter& meter, const std::function<bool(const Entry&)>& skip = nullptr) const;

 private:
  Directory() = default;

  SourcePtr source_;
  Bytes records_;  // the central directory; names point into it
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> by_name_;
};

/// Opens the directory of a file that may have another format: null if it does not begin like a zip file. `source` must
/// outlive the result. Errors: those of Directory::open.
Result<std::shared_ptr<const Directory>> directory_of(const Source& source);

/// Adds a report row for the parts of a zip file that no checksum covers.
void add_unchecked_records(Report& report);

/// Reads the first bytes of entries. In the file's order, it reads adjacent small entries together.
class HeadReader {
 public:
  /// `size`: number of bytes of an entry's data that a caller usually needs.
  HeadReader(std::shared_ptr<const Directory> directory, std::uint64_t size);
  /// Returns bytes of the file from the entry's local header on: the header and up to `size` bytes of data. Valid until
  /// the next call. Errors: io.
  Result<std::span<const std::byte>> head(const Entry& entry);

 private:
  std::shared_ptr<const Directory> directory_;
  std::uint64_t size_;
  Bytes window_;
  std::uint64_t begin_ = 0;  // offset of the window
};

/// Writes a zip file forward. The sizes and CRC-32 of a stored entry precede its bytes, because Java refuses a stored
/// entry with a descriptor. Dates are 1980-01-01, so that equal content gives equal bytes.
class Writer {
 public:
  explicit Writer(Gather& out) : out_(out) {}
  /// Begins an entry. The caller appends its `compressed` bytes to the Gather directly after this call. Byte `aligned`
  /// of the data is at a multiple of `alignment` in the file (an extra field with id 0xd935 pads; 0: no alignment). The
  /// caller must not use a name twice. Errors: those of the sink, not_representable (a name that Directory refuses, or
  /// of more than 65535 bytes; an alignment of more than 32 KiB).
  Status begin(std::string_view name, std::uint16_t method, std::uint64_t compressed, std::uint64_t size,
               std::uint32_t crc, std::uint64_t aligned = 0, std::uint64_t alignment = 0);
  /// Writes a whole entry from memory; deflates it if `method` requests this and the entry gets smaller.
  Status add(std::string_view name, std::span<const std::byte> bytes, std::uint16_t method = stored);
  /// Sets the CRC-32 of the last entry, after all its bytes have been appended. Requires a Gather that can patch.
  Status set_crc(std::uint32_t crc);
  /// Adds to the directory an entry whose bytes, from its local header to Entry::end, were copied to `header`.
  void adopt(const Entry& entry, std::uint64_t header);
  /// Writes the central directory and the end records.
  Status finish();

 private:
  struct Written {
    std::size_t name, length;  // name: index in names_
    Entry entry;               // without its name
  };
  void keep(std::string_view name, const Entry& entry);

  Gather& out_;
  std::string names_;
  std::deque<Written> entries_;  // grows without reallocation
};

/// Computes the size of a file of stored entries before a Writer writes it.
class Plan {
 public:
  /// Adds an entry; the arguments are those of Writer::begin.
  void add(std::string_view name, std::uint64_t size, std::uint64_t aligned = 0, std::uint64_t alignment = 0);
  /// Returns the size of the file.
  std::uint64_t size() const;

 private:
  std::uint64_t at_ = 0, directory_ = 0, count_ = 0;
};

}  // namespace stele::inline v0::detail::zip
