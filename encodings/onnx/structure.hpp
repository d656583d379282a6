// The parts of an exported model around its initializers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stele::inline v0::detail::onnx {

struct Structure {
  std::uint64_t ir_version = 0, opset = 0;
  std::vector<std::byte> nodes, values;  // fields of GraphProto, before and after the initializers
};

}  // namespace stele::inline v0::detail::onnx
