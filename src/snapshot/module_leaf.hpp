// Leaves that are tensors of a module in memory.
#pragma once

#include <optional>

#include "stele/detail/type_info.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Operations of leaves of modules in memory: `at` is the tensor, `number` its TensorOps.
extern const LeafOps module_leaf_ops;

/// Operations of leaves that are elements of a module's tensor, or a copy of them: `at` is the first byte. Such a leaf
/// never has a position in a file.
extern STELE_EXPORT const LeafOps element_leaf_ops;

inline Provider module_provider(const void* object, const TensorOps& ops) {
  return {&module_leaf_ops, object, static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&ops))};
}

/// Returns the TensorOps of a leaf of a module in memory, or nullptr for other leaves.
inline const TensorOps* module_tensor_ops(const Provider& provider) {
  if (provider.ops != &module_leaf_ops) return nullptr;
  return reinterpret_cast<const TensorOps*>(static_cast<std::uintptr_t>(provider.number));
}

/// The position of a box in a larger tensor.
struct LeafPlace {
  Shape global, start;
};
/// Returns the position of a module's tensor that is a box of a larger one (Sharded), or nullopt for other leaves.
inline std::optional<LeafPlace> place_of(const LeafView& leaf) {
  const TensorOps* ops = module_tensor_ops(leaf.provider());
  if (ops == nullptr || ops->place == nullptr) return std::nullopt;
  LeafPlace place;
  return ops->place(leaf.provider().at, place.global, place.start) ? std::optional(std::move(place)) : std::nullopt;
}

}  // namespace stele::inline v0::detail
