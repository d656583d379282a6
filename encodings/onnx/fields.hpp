// ONNX's numbers: fields of its messages (onnx.proto3), dtypes. docs/formats/onnx.md describes the files.
#pragma once

#include <cstdint>

#include "stele/dtype.hpp"

namespace stele::inline v0::detail::onnx {

namespace model_field {
inline constexpr std::uint32_t ir_version = 1, producer_name = 2, domain = 4, model_version = 5, doc_string = 6,
                               graph = 7, opset_import = 8, metadata_props = 14, training_info = 20, functions = 25;
}
namespace training_field {
inline constexpr std::uint32_t initialization = 1, algorithm = 2;
}
namespace graph_field {
inline constexpr std::uint32_t node = 1, name = 2, initializer = 5, doc_string = 10, input = 11, output = 12,
                               value_info = 13, sparse_initializer = 15, metadata_props = 16;
}
namespace node_field {
inline constexpr std::uint32_t input = 1, output = 2, name = 3, op_type = 4, attribute = 5, domain = 7, overload = 8;
}
namespace attribute_field {
inline constexpr std::uint32_t name = 1, f = 2, i = 3, s = 4, t = 5, g = 6, floats = 7, ints = 8, strings = 9,
                               tensors = 10, graphs = 11, tp = 14, type_protos = 15, type = 20, ref_attr_name = 21,
                               sparse_tensor = 22, sparse_tensors = 23;
}
namespace function_field {
inline constexpr std::uint32_t name = 1, input = 4, output = 5, attribute = 6, node = 7, opset_import = 9, domain = 10,
                               attribute_proto = 11, overload = 13;
}
namespace tensor_field {
inline constexpr std::uint32_t dims = 1, data_type = 2, segment = 3, float_data = 4, int32_data = 5, string_data = 6,
                               int64_data = 7, name = 8, raw_data = 9, double_data = 10, uint64_data = 11,
                               doc_string = 12, external_data = 13, data_location = 14, metadata_props = 16;
}
namespace sparse_field {
inline constexpr std::uint32_t values = 1, indices = 2;
}

/// TensorProto.DataLocation.EXTERNAL.
inline constexpr std::uint64_t external_location = 1;

/// Maximum size of a protobuf message in bytes.
inline constexpr std::uint64_t max_message = 0x7fffffff;

/// Returns the TensorProto.DataType of a dtype; 0 if there is none.
std::uint32_t code_of(DType dtype) noexcept;
/// Returns the dtype of a TensorProto.DataType; DType::none if stele does not have it.
DType dtype_of(std::uint64_t code) noexcept;

}  // namespace stele::inline v0::detail::onnx
