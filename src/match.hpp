// What a load will write: module and Snapshot walked together, all structure checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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
  std::uint32_t node;
  std::uint32_t path, path_size;
};

struct LoadPlan {
  std::vector<TensorOp> tensors;
  std::vector<ValueOp> values;
  std::string paths;  // one after the other

  template <class Op>
  std::string_view path(const Op& op) const {
    return std::string_view(paths).substr(op.path, op.path_size);
  }
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
