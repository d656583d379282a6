// The operators of ONNX that onnxruntime runs, and the dtypes on which it runs them: data/onnxruntime.txt.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "stele/dtype.hpp"

namespace stele::inline v0::detail::ir {

/// The dtypes of a node's inputs and outputs, in order; none: not given, or not known.
struct Operands {
  std::vector<DType> inputs, outputs;
  bool operator==(const Operands&) const = default;
};

struct Runnable {
  Operands operands;
  bool exact = true;  // false if a dtype cannot represent each number of the dtype that it replaces
};

/// Returns the dtypes on which onnxruntime runs an operator: the given ones, or those that cost the least. Returns
/// nullopt if there are none. Dtypes that are not known stay.
std::optional<Runnable> runnable(std::string_view op, std::int64_t opset, const Operands& given);

}  // namespace stele::inline v0::detail::ir
