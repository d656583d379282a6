// The weights of ncnn's layers, in the order in which the load_model() function of each layer reads them (ncnn,
// src/layer/*.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "param.hpp"
#include "stele/shape.hpp"

namespace stele::inline v0::detail::ncnn {

inline constexpr std::size_t max_rank = 5;

/// How an array is stored (weights.hpp).
enum class Stored : std::uint8_t {
  raw,     // f32
  tagged,  // a tag declares the kind of elements
  packed,  // bytes that contain integers of 4, 6 or 8 bits
};

/// One array of a layer.
struct Blob {
  std::string_view name;  // static: "weight", "bias"
  Stored stored = Stored::raw;
  std::size_t rank = 0;
  Extent extents[max_rank] = {};

  std::span<const Extent> shape() const noexcept { return {extents, rank}; }
};

/// The reason why the weights of a layer are unknown.
enum class Unknown : std::uint8_t {
  no,
  type,        // ncnn has no layer of this type
  attributes,  // attributes are missing, out of range, or of another kind
};

/// Finds the arrays of a layer in the file's order.
Unknown blobs_of(const Layer& layer, std::vector<Blob>& blobs);

}  // namespace stele::inline v0::detail::ncnn
