// Darknet's networks: the text of a `.cfg` file lists layers, whose weights follow each other in a `.weights` file as
// 32-bit floats (docs/formats/darknet.md).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "stele/result.hpp"
#include "stele/shape.hpp"

namespace stele::inline v0::detail::darknet {

/// Maximum size of a `.cfg` file (1 MiB): the text is read into memory. Usual files have 10 KiB.
inline constexpr std::uint64_t max_cfg_bytes = std::uint64_t{1} << 20;

/// The programs that write files. Some layers differ.
enum class Program : std::uint8_t {
  darknet,  // pjreddie/darknet
  alexey,   // AlexeyAB/darknet, which also reads the files of the former if they lack those layers
};

/// A tensor of a layer.
struct Weights {
  std::string_view name;  // "0.convolutional.weights"
  std::span<const Extent> shape{};
  std::string_view reason{};  // not empty: the reason why the elements are not a tensor of this shape
};

/// The end of a network.
struct Ended {
  std::string layer;   // "5.crnn": the first layer whose weights were not listed; empty: all were
  std::string reason;  // the reason why they were not; empty: `more` returned false
};

/// Lists the tensors of a network in the order of a file: calls `add` for each tensor, and before each layer that has
/// tensors `more`, which returns false at the end of the file. `transposed`: matrices of connected layers are stored by
/// columns, as in files of old versions. Errors: malformed (`cfg` is not a network), those of `add`.
Result<Ended> list_weights(std::string_view cfg, Program program, bool transposed, const std::function<bool()>& more,
                           const std::function<Status(const Weights&)>& add);

}  // namespace stele::inline v0::detail::darknet
