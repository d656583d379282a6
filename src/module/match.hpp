// The plan of a load: match() walks the module and the Snapshot together and checks all structure.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "module/migrate.hpp"
#include "module/path_store.hpp"
#include "snapshot/tree.hpp"
#include "stele/record.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail {

/// A tensor to be written.
struct TensorOp {
  std::uint32_t leaf;
  const TensorOps* ops;
  void* object;
  std::uint32_t path;        // index in LoadPlan::paths
  void* original = nullptr;  // the module's tensor, if `object` is new memory for it
};

struct ValueOp {
  const ValueOps* ops;
  void* object;
  const Value* value;  // owned by the snapshot, or by LoadPlan::put_together
  std::uint32_t path;
};

/// A tensor of one element that the file stores as a value, or with a different rank (was_one).
struct OneElement {
  Snapshot snapshot;   // has one leaf
  std::uint32_t node;  // the leaf's node in the file
};

/// A tensor or value that the file has under an additional name of a shared object of the module. It must equal the one
/// loaded under the first name.
struct TiedOp {
  const TensorOps* ops;  // null: a value
  const Value* value;    // null: a tensor
  std::uint32_t number;  // number of the leaf
  std::uint32_t path;    // index in LoadPlan::paths
  std::uint32_t shared;  // path of the object's first name
  std::size_t below;     // offset in `path` of the part below the object
};

struct LoadPlan {
  Snapshot snapshot;  // has the leaves of the file, followed by the leaves of `ones`
  std::vector<TensorOp> tensors;
  std::vector<ValueOp> values;
  std::vector<TiedOp> ties;
  std::deque<Value> put_together;  // values built from entries of the file
  std::vector<OneElement> ones;
  std::vector<Outdated> outdated;  // unless empty, the plan must not be executed
  PathStore paths;

  /// Returns the path of the tensor or value that is loaded under the object's first name.
  std::string first(const TiedOp& op) const { return paths.text(op.shared) + paths.text(op.path).substr(op.below); }
};

enum class MatchMode : std::uint8_t {
  check,   // changes nothing
  make,    // builds the structure while checking it
  remake,  // builds after an equal check, which has added the rows to the report
};

/// Returns the file's Snapshot with the leaves of `ones` appended.
Snapshot with_leaves(const Snapshot& file, const std::vector<OneElement>& ones);

/// Walks `object` and `tree` together. Adds all faults to the report; the first one is the error.
Status match(const Tree& tree, const TypeInfo& type, void* object, LoadMode mode, MatchMode match_mode,
             const LoadOptions& options, Report& report, LoadPlan& plan);

}  // namespace stele::inline v0::detail
