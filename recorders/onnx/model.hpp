// The parts of an ONNX model that stele reads: its initializers and metadata. Field numbers: stele/recorders/onnx.hpp.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stele/format.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace onnx {

namespace model_field {
inline constexpr std::uint32_t ir_version = 1, producer_name = 2, graph = 7, opset_import = 8, metadata_props = 14;
}
namespace graph_field {
inline constexpr std::uint32_t name = 2, initializer = 5, sparse_initializer = 15;
}
namespace tensor_field {
inline constexpr std::uint32_t dims = 1, data_type = 2, segment = 3, float_data = 4, int32_data = 5, string_data = 6,
                               int64_data = 7, name = 8, raw_data = 9, double_data = 10, uint64_data = 11,
                               external_data = 13, data_location = 14;
}

/// Protocol buffers bound a message.
inline constexpr std::uint64_t max_message = 0x7fffffff;

/// Returns TensorProto.DataType of a dtype; 0: there is none.
std::uint32_t code_of(DType dtype) noexcept;

/// Bytes of the file.
struct Range {
  std::uint64_t begin = 0, end = 0;
};

struct Initializer {
  std::string_view name;
  std::uint32_t leaf = 0;
  Range field{};              // from the tag on
  bool external = false;      // the elements are in another file
  std::vector<Range> kept{};  // the fields besides dims, data_type, name and those of the elements
};

struct Model {
  Snapshot snapshot;                     // flat; the leaves are the initializers in the file's order
  Range graph;                           // the field, from the tag on
  std::uint64_t graph_begin = 0;         // of the message in it
  std::deque<Initializer> initializers;  // only if asked for
  struct Property {
    std::string key;
    Range field;
  };
  std::vector<Property> properties;  // of metadata_props
};

/// Reads a model. `places`: with initializers and properties, for a save into it.
Result<Model> read_model(SourcePtr source, const LoadOptions& options, bool places);

}  // namespace onnx
}  // namespace detail
}  // namespace v0
}  // namespace stele
