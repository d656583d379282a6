// A box of a tensor as a tensor of its own, read without reading the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "passes/boxes.hpp"
#include "stele/shape.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// A leaf that is a box of another leaf. If the box is contiguous there and the leaf is stored in a Source, so is the
/// box. Else it is read run by run; runs of a few KiB are read together with what is between them.
class STELE_EXPORT RegionLeaf {
 public:
  /// `base` has `shape` and elements of `element` bytes; `box` lies inside.
  RegionLeaf(const Provider& base, std::span<const Extent> shape, std::size_t element, const Box& box);
  /// The region must outlive the provider, and not move.
  Provider provider() const noexcept;
  /// The region's bytes in the base: `runs()` runs of `run_bytes()`, each after the one before.
  std::uint64_t runs() const noexcept { return runs_; }
  std::uint64_t run_bytes() const noexcept { return run_; }
  std::uint64_t place(std::uint64_t run) const noexcept;

 private:
  Status read(std::uint64_t offset, std::span<std::byte> out, ReadContext& context) const;

  Provider base_;
  std::uint64_t base_bytes_;
  std::uint64_t run_ = 0;               // bytes that are contiguous in both
  std::uint64_t first_ = 0;             // place of the box's first byte
  std::vector<std::uint64_t> strides_;  // of the base, in bytes, along the axes that count runs
  std::vector<Extent> lengths_;         // of the box, along those axes
  std::uint64_t runs_ = 1;
};

/// Returns the part of `a` that is in `b`, relative to the start of `b`; false if there is none. `within` receives it
/// relative to `a`.
STELE_EXPORT bool intersect(const Box& a, const Box& b, Box& in_b, Box& within);

}  // namespace stele::inline v0::detail
