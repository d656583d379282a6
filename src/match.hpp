// What a load will write: module and Snapshot walked together, all structure checked.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "migrate.hpp"
#include "stele/record.hpp"
#include "tree.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// A tensor to be written.
struct TensorOp {
  std::uint32_t leaf;
  const TensorOps* ops;
  void* object;
  std::uint32_t path, path_size;  // in LoadPlan::paths
};

struct ValueOp {
  const ValueOps* ops;
  void* object;
  const Value* value;  // of the snapshot, or of LoadPlan::put_together
  std::uint32_t path, path_size;
};

/// A tensor of one element that the file has as a value, or at another rank (was_one).
struct OneElement {
  Snapshot snapshot;   // of one leaf
  std::uint32_t node;  // in the file
};

/// A tensor or value that the file has under a further name of a shared object of the module: it must be what is loaded
/// under the first.
struct TiedOp {
  const TensorOps* ops;  // null: a value
  const Value* value;    // null: a tensor
  std::uint32_t number;  // of the leaf
  std::uint32_t path, path_size;
  std::uint32_t first, first_size;  // path of what is loaded
};

struct LoadPlan {
  Snapshot snapshot;  // whose leaves the tensors are of: the file's, and behind them the `ones`
  std::vector<TensorOp> tensors;
  std::vector<ValueOp> values;
  std::vector<TiedOp> ties;
  std::deque<Value> put_together;  // of entries of the file
  std::vector<OneElement> ones;
  std::vector<Outdated> outdated;  // where there are any, the plan is not to be carried out
  std::string paths;               // one after the other

  template <class Op>
  std::string_view path(const Op& op) const {
    return std::string_view(paths).substr(op.path, op.path_size);
  }
  std::string_view first(const TiedOp& op) const { return std::string_view(paths).substr(op.first, op.first_size); }
};

/// The patterns of an option; a list of thousands of plain paths takes no longer than one.
class Patterns {
 public:
  explicit Patterns(const std::vector<std::string>& patterns);
  bool match(std::string_view path) const;

 private:
  std::unordered_set<std::string_view> plain_;
  std::vector<std::string_view> patterns_;
};

enum class Walking : std::uint8_t {
  check,   // nothing is changed
  make,    // structure is made as it is checked
  remake,  // after a check of the same, which has added the rows to the report
};

/// Walks `object` and what `tree` shows. All faults go into the report, the first is the error.
Status match(const Tree& tree, const TypeInfo& type, void* object, LoadMode mode, Walking walking,
             const LoadOptions& options, Report& report, LoadPlan& plan);

}  // namespace detail
}  // namespace v0
}  // namespace stele
