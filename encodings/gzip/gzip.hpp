// Gzip files as Sources and Sinks (zlib); the CRC-32 of zip and gzip (libdeflate).
//
// 1. member: u8 0x1f 0x8b, u8 8 (DEFLATE), u8 flags, u32 time, u8 extra flags, u8 system; as the flags declare: an
//    extra field, a name, a comment, a CRC-16 of the header
// 2. DEFLATE data; u32 CRC-32 and u32 length, modulo 2^32, of the inflated data
// 3. other members directly after it; the inflated data of all are joined
// All little-endian. Source: RFC 1952.
//
// With STELE_ZLIB=0, for programs that link neither library, deflated data are refused.
#pragma once

#ifndef STELE_ZLIB
#define STELE_ZLIB 1
#endif

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "stele/report.hpp"
#include "stele/result.hpp"
#include "stele/sink.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::gzip {

// Strategies of zlib.
inline constexpr int default_strategy = 0, huffman_only = 2;

class InflatedSource;

/// A gzip file that is inflated as it is read. A read starts from the nearest earlier one of about 256 states that
/// reading keeps (about 40 KiB each).
class Gzip {
 public:
  /// `max_size`: maximum number of inflated bytes. If the file has more, all functions return limit.
  explicit Gzip(const SourcePtr& source, std::uint64_t max_size = UINT64_MAX);
  /// Reads the next bytes. Returns fewer only at the end, after checking the CRC-32 and the length of every member.
  /// Errors: truncated, checksum, malformed (also bytes after the last member), io. The caller must not call it again
  /// after an error.
  Result<std::size_t> next(std::span<std::byte> out);
  /// Returns the inflated data. Its view() is empty. Its size() is an upper bound (max_deflate_ratio), and exact after
  /// next() or a read beyond the end (truncated) has reached the end.
  SourcePtr source() const;

 private:
  std::shared_ptr<InflatedSource> inflated_;
};

/// Compresses the written bytes for the sink `below`, which must outlive it and which it does not commit. Equal bytes
/// give equal files, whatever the size of the pieces: the header has no time and no name, and declares an unknown
/// system. Errors: those of `below`.
class GzipSink final : public Sink {
 public:
  /// `level`: 0 (stored) to 9. `strategy`: zlib's; 0 is the default. Throws std::bad_alloc.
  GzipSink(Sink& below, int level, int strategy = 0);
  ~GzipSink() override;
  Status write(std::span<const std::span<const std::byte>> pieces) override;
  using Sink::write;
  /// Writes the rest of the data and the trailer. No write may follow.
  Status finish();

 private:
  struct State;
  Status deflate_all(bool finish);

  Sink& below_;
  std::unique_ptr<State> state_;
};

/// Returns the error of a program without zlib for data that are or would be deflated.
Error left_out(std::string_view file);

/// Returns true if `head` is the beginning of a gzip file with DEFLATE data.
bool is_gzip(std::span<const std::byte> head) noexcept;
/// Returns true if the source begins like a gzip file with DEFLATE data; false for a folder. Errors: io.
Result<bool> is_gzip(const Source& source);

/// Adds a report row for the bytes that the CRC-32 does not cover (RFC 1952: it covers only the inflated data).
void add_unchecked_header(Report& report);

/// Inflates the beginning of a gzip file into `out` and returns the inflated bytes. Returns an empty span for other
/// files, or if memory runs out.
std::span<const std::byte> inflated_head(std::span<const std::byte> head, std::span<std::byte> out) noexcept;

/// Inflates the zlib data or the gzip member at the beginning of `in`, which is then the rest. Returns the number of
/// bytes. Errors: malformed (damaged data, or more bytes than `out`). Throws std::bad_alloc.
Result<std::size_t> inflate_next(std::span<const std::byte>& in, std::span<std::byte> out);

/// Continues a CRC-32 (the one of zip and gzip): returns the CRC of `crc`'s bytes followed by the given bytes.
std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size) noexcept;
/// Returns the CRC-32 of the bytes of `a` followed by the `length_of_b` bytes of `b`.
std::uint32_t crc32_joined(std::uint32_t a, std::uint32_t b, std::uint64_t length_of_b) noexcept;

}  // namespace stele::inline v0::detail::gzip
