// State dicts: maps of tensors that are loaded and saved as whole modules. Their keys are whole paths, not segments.
#pragma once

#include <utility>

#include "snapshot/items.hpp"
#include "stele/detail/type_info.hpp"

namespace stele::inline v0::detail {

/// Returns true for the type of a whole module if it is a map of tensors.
inline bool is_state_dict(const TypeInfo& module) {
  return module.kind == TypeKind::map && module.element->kind == TypeKind::tensor;
}

/// Returns the snapshot, for a state dict with whole paths as names. Errors: limit, duplicate.
inline Result<Snapshot> named_for(const TypeInfo& module, const Snapshot& snapshot) {
  if (!is_state_dict(module) || snapshot.flat()) return snapshot;
  STELE_TRY_ASSIGN(Items items, Items::of(snapshot));
  for (Item& item : items.list) {
    // Names directly below the root are whole, so dots in them are not escaped.
    const Node& node = item.from->nodes[item.node];
    if (!item.target && node.parent == 0 && node.name != nullptr) item.path.assign(node.name, node.name_size);
  }
  return items.build();
}

}  // namespace stele::inline v0::detail
