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

namespace stele::inline v0::detail {

/// A tensor to be written.
struct TensorOp {
  std::uint32_t leaf;
  const TensorOps* ops;
  void* object;
  std::uint32_t path;  // in LoadPlan::paths
};

struct ValueOp {
  const ValueOps* ops;
  void* object;
  const Value* value;  // of the snapshot, or of LoadPlan::put_together
  std::uint32_t path;
};

/// A tensor of one element that the file has as a value, or at another rank (was_one).
struct OneElement {
  Snapshot snapshot;   // of one leaf
  std::uint32_t node;  // in the file
};

/// A tensor or value that the file has under a further name of a shared object of the module: it must equal the one
/// loaded under the first name.
struct TiedOp {
  const TensorOps* ops;  // null: a value
  const Value* value;    // null: a tensor
  std::uint32_t number;  // of the leaf
  std::uint32_t path;    // in LoadPlan::paths
  std::uint32_t shared;  // path of the object's first name
  std::size_t below;     // offset in `path` of the part below the object
};

struct LoadPlan {
  Snapshot snapshot;  // has the tensors' leaves: the file's, and after them the `ones`
  std::vector<TensorOp> tensors;
  std::vector<ValueOp> values;
  std::vector<TiedOp> ties;
  std::deque<Value> put_together;  // of entries of the file
  std::vector<OneElement> ones;
  std::vector<Outdated> outdated;  // if there are any, the plan must not be carried out
  PathStore paths;

  /// Returns the path of the tensor or value that is loaded instead.
  std::string first(const TiedOp& op) const { return paths.text(op.shared) + paths.text(op.path).substr(op.below); }
};

enum class MatchMode : std::uint8_t {
  check,   // nothing is changed
  make,    // structure is made as it is checked
  remake,  // after a check of the same, which has added the rows to the report
};

/// Returns the file's Snapshot with the leaves of `ones` after its own.
Snapshot with_leaves(const Snapshot& file, const std::vector<OneElement>& ones);

/// Walks `object` and `tree` together. All faults go into the report; the first is the error.
Status match(const Tree& tree, const TypeInfo& type, void* object, LoadMode mode, MatchMode match_mode,
             const LoadOptions& options, Report& report, LoadPlan& plan);

}  // namespace stele::inline v0::detail
