// The parts of an ONNX model that stele reads: its tensors and metadata. Field numbers: stele/recorders/onnx.hpp.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "snapshot/data.hpp"
#include "stele/format.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::onnx {

namespace model_field {
inline constexpr std::uint32_t ir_version = 1, producer_name = 2, graph = 7, opset_import = 8, metadata_props = 14,
                               training_info = 20, functions = 25;
}
namespace training_field {
inline constexpr std::uint32_t initialization = 1, algorithm = 2;
}
namespace graph_field {
inline constexpr std::uint32_t node = 1, name = 2, initializer = 5, input = 11, output = 12, value_info = 13,
                               sparse_initializer = 15;
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
                               external_data = 13, data_location = 14;
}
namespace sparse_field {
inline constexpr std::uint32_t values = 1, indices = 2;
}

/// TensorProto.DataLocation.EXTERNAL.
inline constexpr std::uint64_t external_location = 1;

/// Protocol buffers bound a message.
inline constexpr std::uint64_t max_message = 0x7fffffff;

/// Returns TensorProto.DataType of a dtype; 0: there is none.
std::uint32_t code_of(DType dtype) noexcept;

/// Bytes of the file.
struct Range {
  std::uint64_t begin = 0, end = 0;
};

/// A message that contains tensors.
struct Message {
  std::uint32_t field = 0;         // its number in the message around it
  Range range;                     // from the tag on
  std::uint64_t begin = 0;         // of its content
  std::uint32_t outer = no_index;  // the message around it; no_index: the model
};

/// The place of a tensor in the file.
struct Place {
  enum class Form : std::uint8_t {
    initializer,  // of the graph
    tensor,       // another TensorProto
    numbers,      // an attribute that holds the numbers itself: value_floats of a Constant
  };
  std::string_view name{};
  std::uint32_t leaf = 0;
  Form form = Form::initializer;
  std::uint32_t field = 0;           // its number in the message
  Range range{};                     // from the tag on
  std::uint32_t message = no_index;  // that contains it
  bool external = false;             // the elements are in another file
  bool unreadable = false;           // the leaf is no tensor
  std::vector<Range> kept{};         // the fields besides dims, data_type and those of the elements
};

struct Model {
  Snapshot snapshot;  // flat; the leaves are the tensors in the file's order
  Range graph;        // the field, from the tag on
  // Only if asked for:
  std::deque<Message> messages;
  std::deque<Place> places;
  struct Property {
    std::string key;
    Range field;
  };
  std::vector<Property> properties;  // of metadata_props
};

enum class Wanted : std::uint8_t {
  tensors,  // the snapshot
  places,   // and the places of tensors and properties, for a save into the model
  graph,  // the graph's initializers, and the tensors of its and its functions' nodes as leaves of leaf_of_attribute()
};

/// Returns true for the part that a model has besides the snapshot's tensors.
inline bool keeps_graph(std::string_view part) { return part == graph_part; }

/// Reads a model.
Result<Model> read_model(SourcePtr source, const LoadOptions& options, Wanted wanted);

/// Returns the name of the leaf for an attribute's tensor, which begins at this offset. No initializer has it.
std::string leaf_of_attribute(std::uint64_t offset);
/// Returns the dtype of a TensorProto.DataType; none: stele has no such dtype.
DType dtype_of(std::uint64_t code) noexcept;

}  // namespace stele::inline v0::detail::onnx
