// A box of a tensor as a separate tensor, read without reading the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "leaves/boxes.hpp"
#include "stele/shape.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// A leaf that is a box of another leaf. If the box is contiguous in a leaf that is stored in a Source, the region is
/// also a range of that Source. Otherwise it is read run by run; short runs (a few KiB) are read together with the
/// bytes between them.
class STELE_EXPORT RegionLeaf {
 public:
  /// `base` has `shape` and elements of `element` bytes; `box` must be inside it.
  RegionLeaf(const Provider& base, std::span<const Extent> shape, std::size_t element, const Box& box);
  /// The region must outlive the provider, and must not be moved.
  Provider provider() const noexcept;
  /// The positions of the region's bytes in the base: `runs()` runs of `run_bytes()` each, in increasing order.
  std::uint64_t runs() const noexcept { return runs_; }
  std::uint64_t run_bytes() const noexcept { return run_; }
  std::uint64_t place(std::uint64_t run) const noexcept;

 private:
  Status read(std::uint64_t offset, std::span<std::byte> out, ReadContext& context) const;

  Provider base_;
  std::uint64_t base_bytes_;
  std::uint64_t run_ = 0;               // bytes that are contiguous in both
  std::uint64_t first_ = 0;             // offset of the box's first byte
  std::vector<std::uint64_t> strides_;  // strides of the base, in bytes, along the axes that count runs
  std::vector<Extent> lengths_;         // lengths of the box along these axes
  std::uint64_t runs_ = 1;
};

/// Computes the intersection of `a` and `b`: `in_b` receives it relative to the start of `b`, `within` relative to the
/// start of `a`. Returns false if it is empty.
STELE_EXPORT bool intersect(const Box& a, const Box& b, Box& in_b, Box& within);

}  // namespace stele::inline v0::detail
