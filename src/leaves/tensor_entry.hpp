// A tensor of a file as its encoding describes it, before it is in a Snapshot.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Memory of a tensor in a Snapshot: its node, its leaf, and its places in the order of names.
inline constexpr std::uint64_t leaf_memory = 92;
/// Memory of an entry that is not a tensor, in addition to leaf_memory and the text of its reason.
inline constexpr std::uint64_t unreadable_memory = 256;

/// A tensor of a file as its encoding describes it, or an entry that is not a tensor.
struct TensorEntry {
  std::string_view name;  // the full name
  DType dtype = DType::none;
  std::span<const Extent> shape;
  std::uint64_t bytes = 0;
  Provider provider{};
  std::string_view unreadable{};  // the reason why the entry is not a tensor; else empty
};

}  // namespace stele::inline v0::detail
