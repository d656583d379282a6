// Leaves that are tensors of a live module.
#pragma once

#include "stele/detail/type_info.hpp"
#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// Leaves of live modules: `at` is the tensor, `number` its TensorOps.
extern const LeafOps module_leaf_ops;

inline Provider module_provider(const void* object, const TensorOps& ops) {
  return {&module_leaf_ops, object, static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&ops))};
}

/// Of a leaf of a live module; nullptr for others.
inline const TensorOps* module_tensor_ops(const Provider& provider) {
  if (provider.ops != &module_leaf_ops) return nullptr;
  return reinterpret_cast<const TensorOps*>(static_cast<std::uintptr_t>(provider.number));
}

}  // namespace detail
}  // namespace v0
}  // namespace stele
