// Gzip files as Sources and as Sinks, by zlib; and the CRC-32 of zip and gzip, by libdeflate.
//
// 1. member: u8 0x1f 0x8b, u8 8 (DEFLATE), u8 flags, u32 time, u8 extra flags, u8 system; what the flags say of an
// extra
//    field, a name, a comment, a CRC-16 of the header
// 2. DEFLATE data; u32 CRC-32 and u32 length, modulo 2^32, of what they become
// 3. other members right behind it; what all become is joined
// All little-endian. Source: RFC 1952.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "stele/result.hpp"
#include "stele/sink.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace gzip {

class InflatedSource;

/// DEFLATE makes at most this many bytes of one (258 of 2 bits).
inline constexpr std::uint64_t max_ratio = 1032;

/// A gzip file that is inflated as it is read, from the last of some 256 states that are kept in passing (some 40 KiB
/// each).
class Gzip {
 public:
  /// `most`: bytes that it may become. Errors of all below, where it is more: limit.
  explicit Gzip(const SourcePtr& source, std::uint64_t most = UINT64_MAX);
  /// The next bytes; fewer only at the end, where the CRC-32 and the length of every member have been checked. Errors:
  /// truncated, checksum, malformed (also bytes behind the last member), io; not called again behind an error.
  Result<std::size_t> next(std::span<std::byte> out);
  /// All that it becomes. Its view() is empty; its size() is a bound (max_ratio), and right once anything has come to
  /// the end: next(), or a read beyond it (truncated).
  SourcePtr source() const;

 private:
  std::shared_ptr<InflatedSource> inflated_;
};

/// Compresses what is written on its way to the sink below, which must outlive it and is not committed by it. Equal
/// bytes make equal files, however they are cut into pieces: the header has no time and no name, and says that the
/// system is unknown. Errors: those of the sink below.
class GzipSink final : public Sink {
 public:
  /// `level`: 1 to 9; `strategy`: zlib's, 0 is the usual one. Throws std::bad_alloc.
  GzipSink(Sink& below, int level, int strategy = 0);
  ~GzipSink() override;
  Status write(std::span<const std::span<const std::byte>> pieces) override;
  using Sink::write;
  /// The rest of the data, and the trailer; nothing is written behind it.
  Status finish();

 private:
  struct State;
  Status deflate_all(int flush);

  Sink& below_;
  std::unique_ptr<State> state_;
};

/// Returns true if bytes that begin with `head` are a gzip file with DEFLATE data.
bool is_gzip(std::span<const std::byte> head) noexcept;

/// Returns the bytes that the beginning of a gzip file inflates to, as many as `room` takes; none for other files, and
/// where there is no memory for it.
std::span<const std::byte> inflated_head(std::span<const std::byte> head, std::span<std::byte> room) noexcept;

/// CRC-32 (that of zip and gzip) of more bytes behind those of `crc`.
std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size) noexcept;
/// The CRC-32 of the bytes of `a` and then of the `length_of_b` bytes of `b`.
std::uint32_t crc32_joined(std::uint32_t a, std::uint32_t b, std::uint64_t length_of_b) noexcept;

}  // namespace gzip
}  // namespace detail
}  // namespace v0
}  // namespace stele
