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
#include "snapshot/tensor_index.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::onnx {

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
  std::uint32_t tensor = 0;  // its number in the file's order
  Form form = Form::initializer;
  std::uint32_t field = 0;           // its number in the message
  Range range{};                     // from the tag on
  std::uint32_t message = no_index;  // that contains it
  bool external = false;             // the elements are in another file
  bool unreadable = false;           // it is no tensor
  std::vector<Range> kept{};         // the fields besides dims, data_type and those of the elements
};

struct Model {
  Range graph;  // the field, from the tag on
  bool has_operations = false;
  std::map<std::string, std::string> metadata;
  std::uint64_t capacity = 0;         // bytes of tensors that its files can hold
  std::shared_ptr<const void> files;  // what the tensors' providers point to
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
  tensors,
  places,  // and the places of tensors and properties, for a save into the model
  graph,   // the graph's initializers, and the tensors of its and its functions' nodes by the name name_of_attribute()
};

/// Receives the tensors in the file's order, with their whole names.
using TakeTensor = std::function<Status(const TensorEntry& tensor)>;

/// Reads a model. `memory`: what opening the file may take. Errors: malformed, duplicate (keys of metadata), truncated,
/// unsupported (a source without a bundle), limit, those of `take` and of reading.
Result<Model> read_model(SourcePtr source, IndexBudget& memory, Wanted wanted, const TakeTensor& take);

/// Returns the name of an attribute's tensor, which begins at this offset. No initializer has it.
std::string name_of_attribute(std::uint64_t offset);

}  // namespace stele::inline v0::detail::onnx
