// Records the dtypes of a file's tensors with its properties. Properties about dtypes are valid only while the tensors
// have these dtypes.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::gguf {

/// The key in Properties::types whose value is dtypes_of() the tensors that the properties describe. The key is empty,
/// so it differs from the key of every pair.
inline constexpr std::string_view dtypes_key;
/// Returns the number of tensors of each dtype, as text.
inline std::string dtypes_of(const Snapshot& snapshot) {
  std::map<std::string_view, std::size_t> counts;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) ++counts[name(snapshot.leaf(i).dtype())];
  std::string text;
  for (const auto& [dtype, count] : counts) {
    text += (text.empty() ? "" : " ") + std::string(dtype) + ":" + std::to_string(count);
  }
  return text;
}

}  // namespace stele::inline v0::detail::gguf
