// Gzip files as Sources, inflated by what inflates zip entries.
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
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace zip {

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

}  // namespace zip
}  // namespace detail
}  // namespace v0
}  // namespace stele
