// Leaves that are tensors of a module in memory.
#pragma once

#include "stele/detail/type_info.hpp"
#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// Leaves of modules in memory: `at` is the tensor, `number` its TensorOps.
extern const LeafOps module_leaf_ops;

inline Provider module_provider(const void* object, const TensorOps& ops) {
  return {&module_leaf_ops, object, static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&ops))};
}

/// Returns the TensorOps of a leaf of a module in memory, or nullptr for other leaves.
inline const TensorOps* module_tensor_ops(const Provider& provider) {
  if (provider.ops != &module_leaf_ops) return nullptr;
  return reinterpret_cast<const TensorOps*>(static_cast<std::uintptr_t>(provider.number));
}

}  // namespace detail
}  // namespace v0
}  // namespace stele
