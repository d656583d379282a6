// The parts of an ONNX model that stele reads: its tensors and metadata. docs/formats/onnx.md describes the files.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "leaves/tensor_entry.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::onnx {

/// A range of bytes of the file.
struct Range {
  std::uint64_t begin = 0, end = 0;
};

/// A message that contains tensors.
struct Message {
  std::uint32_t field = 0;         // number of the field in the enclosing message
  Range range;                     // from the tag on
  std::uint64_t begin = 0;         // offset of its content
  std::uint32_t outer = no_index;  // the enclosing message; no_index: the model
};

/// Parts of a model without operations that a save of its tensors leaves out.
inline constexpr std::string_view texts_part = "descriptions and properties of the model, its graph or its tensors";

/// The location of a tensor in the file.
struct Place {
  enum class Form : std::uint8_t {
    initializer,  // an initializer of the graph
    tensor,       // another TensorProto
    numbers,      // an attribute that contains the numbers itself: value_floats of a Constant
  };
  std::uint32_t tensor = 0;  // index of the tensor in the order of the file
  Form form = Form::initializer;
  std::uint32_t field = 0;           // number of the field in the message
  Range range{};                     // from the tag on
  std::uint32_t message = no_index;  // the message that contains it
  bool external = false;             // the elements are in another file
  bool unreadable = false;           // it is not a tensor that stele can read
  std::vector<Range> kept{};         // all fields except dims, data_type and the elements' fields
};

struct Model {
  Range graph;  // the graph's field, from the tag on
  bool has_operations = false;
  bool has_texts = false;  // descriptions and properties of the model, its graph or tensors, other than `metadata`
  std::map<std::string, std::string> metadata;
  std::uint64_t capacity = 0;         // maximum number of tensor bytes that its files can contain
  std::shared_ptr<const void> files;  // owns the data that the tensors' providers point to
  // Set only on request:
  std::deque<Message> messages;
  std::deque<Place> places;
  struct Property {
    std::string key;
    Range field;
  };
  std::vector<Property> properties;  // entries of metadata_props
  /// The graph's nodes DequantizeLinear.
  struct Dequantize {
    std::string codes, scale, zero;  // names of the tensors; `zero` may be empty
    std::int64_t axis = 1;
    bool blocks = false;  // a scale for blocks of the axis
  };
  std::vector<Dequantize> dequantize;  // Wanted::tensors only
  /// The operator that reads a tensor as codes of its own packing, or their scales, by the tensor's name. The same.
  std::map<std::string, std::string> packed;
};

enum class Wanted : std::uint8_t {
  tensors,
  places,  // also the places of tensors and properties, for a save into the model
  graph,   // also the graph's initializers, and the tensors in nodes of the graph and its functions, named by
           // name_of_attribute()
};

/// Receives the tensors in the file's order, with their full names.
using TakeTensor = std::function<Status(const TensorEntry& tensor)>;

/// Reads a model. `memory` bounds the memory for opening the file. Errors: malformed, duplicate (keys of metadata),
/// truncated, unsupported (a source without a bundle), limit, those of `take` and of reading.
Result<Model> read_model(SourcePtr source, IndexBudget& memory, Wanted wanted, const TakeTensor& take);

/// Returns the name of the attribute's tensor that begins at this offset. No initializer has such a name.
std::string name_of_attribute(std::uint64_t offset);

}  // namespace stele::inline v0::detail::onnx
