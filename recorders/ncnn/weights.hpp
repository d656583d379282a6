// The places of arrays in a .bin file (ncnn, src/modelbin.cpp). A tagged array begins with a u32:
//
//  1. 0x01306B47: f16, padded to 4 bytes.
//  2. 0x000D4B38: i8, padded to 4 bytes.
//  3. 0x0002C056 or 0: f32.
//  4. Any other number: a codebook of 256 f32, then one byte for each element, padded to 4 bytes.
//
// A raw array has f32. A packed array has bytes, padded to 4; ncnn of mid-2026 wrote the tag of i8 before them.
#pragma once

#include <cstdint>
#include <string_view>

#include "layers.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::ncnn {

/// Returns true if the first bytes of a .bin file are the tag of f16, i8 or f32.
bool has_tag(std::string_view head) noexcept;

struct Weight {
  DType dtype = DType::none;
  std::uint64_t bytes = 0;  // size of the elements after the codebook is applied
  Provider provider{};
  std::uint64_t end = 0;  // offset of the next array
};

/// Reads the tag of the array at `offset`. `source` must outlive the provider. Errors: truncated, io.
Result<Weight> find_weight(const Source& source, std::uint64_t offset, const Blob& blob);

}  // namespace stele::inline v0::detail::ncnn
