// Reads and writes packed items: items with fewer bits than an element, or booleans.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "snapshot/leaf_gather.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::nnef {

struct Packed {
  SourcePtr source;
  std::uint64_t data;
  unsigned bits;
  unsigned width;  // bytes of an element
  bool sign;
  bool boolean;
};
/// Returns the provider of a leaf of packed items; `to` keeps the state that the provider needs.
Provider packed_provider(SnapshotBuilder& to, Packed packed);

/// Packs a leaf's elements into items.
class PackingSink final : public PieceSink {
 public:
  PackingSink(const LeafView& leaf, unsigned bits, LeafGather& out);
  /// Errors: malformed (a bool that is neither 0 nor 1), out_of_range.
  Status piece(std::span<const std::byte> bytes) override;
  Status finish();

 private:
  Status check(std::uint64_t value) const;
  Status put(std::byte byte);

  unsigned bits_;
  unsigned width_;
  bool sign_ = false;
  bool boolean_ = false;
  LeafGather& out_;
  unsigned byte_ = 0;
  unsigned filled_ = 0;  // number of bits in the unfinished byte
  std::uint64_t index_ = 0;
  std::array<std::byte, 4096> staging_;
  std::size_t used_ = 0;
};

}  // namespace stele::inline v0::detail::nnef
