// Finds the tensors and the metadata of an ONNX model.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <unordered_map>
#include <utility>

#include "base/threads.hpp"
#include "encodings/protobuf/fields.hpp"
#include "fields.hpp"
#include "io/files.hpp"
#include "leaves/source_range.hpp"
#include "model.hpp"
#include "stele/bundle.hpp"
#include "stele/detail/little_endian.hpp"
#include "varints.hpp"

namespace stele::inline v0::detail::onnx {
namespace {

using protobuf::each;
using protobuf::Fields;

/// Returns the field of TensorProto that stores elements of this dtype outside raw_data.
std::uint32_t typed_field(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
    case DType::c64:
      return tensor_field::float_data;
    case DType::f64:
    case DType::c128:
      return tensor_field::double_data;
    case DType::i64:
      return tensor_field::int64_data;
    case DType::u32:
    case DType::u64:
      return tensor_field::uint64_data;
    default:
      return tensor_field::int32_data;
  }
}

constexpr LeafOps in_memory{
    .view = [](const void* at, std::uint64_t) -> const std::byte* { return static_cast<const std::byte*>(at); }};

/// Owns the data that the providers point to.
struct Files {
  SourcePtr model;
  Mutex mutex;                                        // guards the positions at which reads of varints ended
  std::unordered_map<std::string, SourcePtr> others;  // other files, by location
  std::deque<Varints> varints;
  std::deque<std::vector<std::byte>> numbers;
};

/// Maximum nesting of messages: the default recursion limit of protocol buffers.
constexpr std::size_t max_nesting = 100;
/// TensorProto.DataType.STRING.
constexpr std::uint64_t string_code = 8;

/// Operators of onnxruntime that read packed weights: the places of the codes and of their scales among the inputs.
struct PackedWeights {
  std::string_view op;
  std::size_t codes, scale;
};
constexpr PackedWeights all_packed_weights[] = {
    {"MatMulNBits", 1, 2}, {"MatMulBnb4", 1, 2}, {"MatMulFpQ4", 1, 1}, {"GatherBlockQuantized", 0, 2}, {"QMoE", 2, 3}};
const PackedWeights* packed_weights(std::string_view op) {
  const auto* const found = std::find_if(std::begin(all_packed_weights), std::end(all_packed_weights),
                                         [&](const PackedWeights& p) { return p.op == op; });
  return found != std::end(all_packed_weights) ? found : nullptr;
}

/// Longer names of inputs are not read.
constexpr std::uint64_t max_name = 1U << 16U;

class ModelReader {
 public:
  ModelReader(SourcePtr source, IndexBudget& memory, Wanted wanted, const TakeTensor& take)
      : files_(std::make_shared<Files>()),
        in_(source),
        memory_(memory),
        take_(take),
        places_(wanted == Wanted::places),
        nodes_(wanted == Wanted::tensors),
        graph_only_(wanted == Wanted::graph) {
    files_->model = std::move(source);
  }

  Result<Model> run() {
    const Source& source = *files_->model;
    Fields fields(in_, source.size());
    bool graph = false;
    for (;;) {
      STELE_TRY_ASSIGN(const bool more, fields.next());
      if (!more) break;
      if (fields.field() == model_field::graph && fields.has_length()) {
        if (graph) return bad(Errc::malformed, "the model has two graphs", fields.tag());
        graph = true;
        model_.graph = {fields.tag(), fields.end()};
        STELE_TRY(read_graph(fields));
      } else if (fields.field() == model_field::metadata_props && fields.has_length()) {
        STELE_TRY(read_property(fields));
      } else if (fields.field() == model_field::domain || fields.field() == model_field::doc_string ||
                 fields.field() == model_field::model_version) {
        model_.has_texts |= fields.number() != 0 || (fields.has_length() && fields.size() != 0);
      } else if (fields.field() == model_field::functions && fields.has_length()) {
        STELE_TRY(read_function(fields));
      } else if (fields.field() == model_field::training_info && fields.has_length() && !graph_only_) {
        STELE_TRY(read_training(fields));
      }
      STELE_TRY(add_found());
    }
    if (!graph) return bad(Errc::malformed, "the model has no graph", source.size());
    // Any number of initializers may refer to one range of a file. A one-byte varint may encode an element of eight
    // bytes.
    std::uint64_t held = add_scaled(0, source.size(), sizeof(std::uint64_t));
    for (const auto& [location, file] : files_->others) held = checked_add(held, file->size()).value_or(UINT64_MAX);
    model_.capacity = std::max<std::uint64_t>(held, 1);
    model_.files = std::move(files_);
    return std::move(model_);
  }

 private:
  /// The parts of a TensorProto that have been read.
  struct Parsed {
    std::string name;
    std::vector<Extent> shape;
    std::uint64_t code = 0;
    std::string unreadable{};  // the reason why stele cannot read it; else empty
    bool external = false;
    std::uint32_t field = 0;  // the field that contains the elements; 0: none
    Range elements{};
    std::string location, offset, length;
  };

  static Error bad(Errc code, std::string_view message, std::uint64_t at, const std::string& name = {}) {
    return Error(code, message).path(name).offset(at);
  }

  Status spend(std::uint64_t bytes) {
    return memory_.take(bytes) ? Status()
                               : index_error("the model's index needs more memory than the file's size allows");
  }

  /// A tensor whose name is incomplete: names of tensors in nodes and subgraphs begin with the names of the enclosing
  /// ones, which may come later in the file.
  struct Found {
    std::string name;
    bool is_value = false;  // the value of the current node's attribute itself, not part of a subgraph in it
    DType dtype = DType::none;
    std::vector<Extent> shape{};
    std::uint64_t bytes = 0;
    Provider provider{};
    std::string unreadable{};  // the reason why stele cannot read it; else empty
    Place place{};
  };

  /// Reads the length-delimited and varint fields of a message inside the model.
  template <class Take>
  Status each_in(Fields& in, Take take) {
    if (open_.size() == max_nesting) {
      return bad(Errc::limit, "the messages of the model nest too deep", in.tag())
          .expected("at most " + std::to_string(max_nesting) + " levels");
    }
    open_.push_back({{in.field(), {in.tag(), in.end()}, in.begin()}});
    STELE_TRY(each(in.message(), take));
    open_.pop_back();
    return {};
  }

  /// Prepends `text` to the names of the tensors found from index `first` on.
  Status put_before(std::size_t first, const std::string& text) {
    for (std::size_t i = first; i < found_.size(); ++i) {
      std::string& name = found_[i].name;
      STELE_TRY(spend(3 * (text.size() + 1)));
      if (!name.empty()) name.insert(0, 1, '.');
      name.insert(0, text);
    }
    return {};
  }

  /// Passes on the tensors; their names are complete.
  Status add_found() {
    for (Found& found : found_) {
      STELE_TRY(take_({found.name, found.dtype, found.shape, found.bytes, found.provider, found.unreadable}));
      found.place.tensor = tensors_++;
      if (places_) model_.places.push_back(std::move(found.place));
    }
    found_.clear();
    return {};
  }

  Status read_graph(Fields& in) {
    const bool main = open_.empty();
    const bool outer = std::exchange(main_, main);
    STELE_TRY(each_in(in, [&](Fields& graph) -> Status {
      if (!graph.has_length()) return {};
      if (graph.field() == graph_field::doc_string || graph.field() == graph_field::metadata_props) {
        model_.has_texts |= graph.size() != 0;
      }
      if (graph.field() == graph_field::node) STELE_TRY(read_node(graph));
      const bool sparse = graph.field() == graph_field::sparse_initializer;
      if (sparse || graph.field() == graph_field::initializer) {
        STELE_TRY(sparse ? read_sparse(graph)
                         : read_tensor(graph, main ? Place::Form::initializer : Place::Form::tensor));
        if (found_.back().name.empty()) return bad(Errc::malformed, "an initializer has no name", graph.tag());
      }
      return main ? add_found() : Status();
    }));
    main_ = outer;
    return {};
  }

  Status read_node(Fields& in) {
    const std::size_t first = found_.size();
    const bool main = main_ && nodes_;
    std::array<std::string, 4> inputs;
    std::size_t input_count = 0;
    settings_ = {};
    model_.has_operations = true;
    std::string output, name, op, domain;
    bool has_output = false;
    STELE_TRY(each_in(in, [&](Fields& node) -> Status {
      switch (node.field()) {
        case node_field::input:
          if (!main || input_count == inputs.size()) return {};
          ++input_count;
          return node.size() <= max_name ? read_text(node, inputs[input_count - 1]) : Status();
        case node_field::output:
          return std::exchange(has_output, true) ? Status() : read_text(node, output);
        case node_field::name:
          return read_text(node, name);
        case node_field::op_type:
          return read_text(node, op);
        case node_field::domain:
          return read_text(node, domain);
        case node_field::attribute:
          return node.has_length() ? read_attribute(node) : Status();
        default:
          return {};
      }
    }));
    if (main && op == "DequantizeLinear" && input_count >= 2) {
      Model::Dequantize node{std::move(inputs[0]), std::move(inputs[1]), std::move(inputs[2])};
      memory_.admit(in.end() - in.tag(), index_rate::index);
      STELE_TRY(spend(3 * sizeof node + node.codes.size() + node.scale.size() + node.zero.size()));
      node.axis = settings_.axis;
      node.blocks = settings_.block_size != 0;
      model_.dequantize.push_back(std::move(node));
    } else if (const PackedWeights* const packed = main && domain == "com.microsoft" ? packed_weights(op) : nullptr) {
      memory_.admit(in.end() - in.tag(), index_rate::index);
      for (const std::size_t input : {packed->codes, packed->scale}) {
        if (input >= input_count || inputs[input].empty()) continue;
        STELE_TRY(spend(3 * sizeof(std::pair<std::string, std::string>) + inputs[input].size() + op.size()));
        model_.packed.emplace(inputs[input], op);
      }
    }
    if (graph_only_ || found_.size() == first) return {};
    memory_.admit(output.size() + name.size() + op.size(), index_rate::index);
    const auto begin = found_.begin() + static_cast<std::ptrdiff_t>(first);
    const bool constant = op == "Constant" && (domain.empty() || domain == "ai.onnx");
    // Numeric attributes of other operators are settings, not tensors.
    const auto is_setting = [&](const Found& f) {
      return !constant && f.is_value && f.place.form == Place::Form::numbers;
    };
    found_.erase(std::remove_if(begin, found_.end(), is_setting), found_.end());
    for (std::size_t i = first; i < found_.size(); ++i) {
      if (constant && found_[i].is_value) found_[i].name.clear();
      found_[i].is_value = false;
    }
    return put_before(first, !output.empty() ? output : !name.empty() ? name : op);
  }

  Status read_attribute(Fields& in) {
    const std::size_t first = found_.size();
    std::string name;
    Numbers numbers;
    std::int64_t integer = 0;
    std::size_t tensors = 0, graphs = 0;
    STELE_TRY(each_in(in, [&](Fields& attribute) -> Status {
      const std::size_t before = found_.size();
      switch (attribute.field()) {
        case attribute_field::name:
          return read_text(attribute, name);
        case attribute_field::t:
          if (!attribute.has_length()) return {};
          STELE_TRY(read_tensor(attribute, Place::Form::tensor));
          found_.back().name = graph_only_ ? name_of_attribute(attribute.begin()) : std::string();
          found_.back().is_value = true;
          return {};
        case attribute_field::tensors:
          if (graph_only_ || !attribute.has_length()) return {};
          STELE_TRY(read_tensor(attribute, Place::Form::tensor));
          found_.back().name = std::to_string(tensors++);
          return {};
        case attribute_field::sparse_tensor:
        case attribute_field::sparse_tensors:
          if (graph_only_ || !attribute.has_length()) return {};
          STELE_TRY(read_sparse(attribute));
          found_.back().is_value = attribute.field() == attribute_field::sparse_tensor;
          found_.back().name = found_.back().is_value ? std::string() : std::to_string(tensors++);
          return {};
        case attribute_field::g:
        case attribute_field::graphs:
          if (graph_only_ || !attribute.has_length()) return {};
          STELE_TRY(read_graph(attribute));
          return attribute.field() == attribute_field::g ? Status() : put_before(before, std::to_string(graphs++));
        case attribute_field::i:
          if (nodes_ && attribute.is_number()) integer = static_cast<std::int64_t>(attribute.number());
          [[fallthrough]];
        case attribute_field::f:
        case attribute_field::floats:
        case attribute_field::ints:
          return graph_only_ || !(name.empty() || name.starts_with("value_")) ? Status()
                                                                              : read_numbers(attribute, numbers);
        default:
          return {};
      }
    }));
    if (graph_only_) return {};
    if (name == "axis") settings_.axis = integer;
    if (name == "block_size") settings_.block_size = integer;
    if (name == "value_string" || name == "value_strings") {
      STELE_TRY(add_unread(in, Place::Form::numbers, "strings", {}));
      found_.back().is_value = true;
    }
    STELE_TRY(add_numbers(in, name, numbers));
    return put_before(first, name);
  }

  /// The numbers in an attribute.
  struct Numbers {
    std::vector<float> floats;
    std::vector<std::int64_t> ints;
  };

  Status read_numbers(Fields& in, Numbers& numbers) {
    const std::uint64_t bytes = in.end() - in.tag();
    memory_.admit(bytes, index_rate::index);
    STELE_TRY(spend(4 * sizeof(std::int64_t) * bytes));
    const bool floats = in.field() == attribute_field::f || in.field() == attribute_field::floats;
    return floats ? in.floats(numbers.floats) : in.integers(numbers.ints);
  }

  /// Makes a tensor from an attribute `value_float`, `value_floats`, `value_int` or `value_ints`.
  Status add_numbers(const Fields& in, const std::string& name, Numbers& numbers) {
    const bool floats = name == "value_float" || name == "value_floats";
    const bool scalar = name == "value_float" || name == "value_int";
    if (!floats && !scalar && name != "value_ints") return {};
    if (scalar) numbers.floats.resize(1), numbers.ints.resize(1);  // a writer may omit a 0
    auto& bytes = files_->numbers.emplace_back();
    const auto put = [&]<class Bits>(const auto& list, Bits) {
      bytes.resize(sizeof(Bits) * list.size());
      for (std::size_t i = 0; i < list.size(); ++i) {
        store_le(bytes.data() + i * sizeof(Bits), std::bit_cast<Bits>(list[i]));
      }
    };
    floats ? put(numbers.floats, std::uint32_t()) : put(numbers.ints, std::uint64_t());
    Found found;
    found.is_value = true;
    found.dtype = floats ? DType::f32 : DType::i64;
    if (!scalar) found.shape = {floats ? numbers.floats.size() : numbers.ints.size()};
    found.bytes = bytes.size();
    found.provider = {&in_memory, bytes.data(), 0};
    found.place.form = Place::Form::numbers;
    return add(std::move(found), in);
  }

  Status read_function(Fields& in) {
    std::string name, domain, overload;
    STELE_TRY(each_in(in, [&](Fields& function) -> Status {
      switch (function.field()) {
        case function_field::name:
          return read_text(function, name);
        case function_field::domain:
          return read_text(function, domain);
        case function_field::overload:
          return read_text(function, overload);
        case function_field::node:
          return function.has_length() ? read_node(function) : Status();
        case function_field::attribute_proto:
          return function.has_length() && !graph_only_ ? read_attribute(function) : Status();
        default:
          return {};
      }
    }));
    if (graph_only_) return {};
    if (!domain.empty()) name = domain + '.' + name;
    if (!overload.empty()) name += '.' + overload;
    return put_before(0, name);
  }

  Status read_training(Fields& in) {
    STELE_TRY(each_in(in, [&](Fields& training) -> Status {
      const bool initial = training.field() == training_field::initialization;
      if ((!initial && training.field() != training_field::algorithm) || !training.has_length()) return {};
      const std::size_t first = found_.size();
      STELE_TRY(read_graph(training));
      return put_before(first, initial ? "initialization" : "algorithm");
    }));
    return put_before(0, "training_info." + std::to_string(trainings_++));
  }

  /// Reads a TensorProto.
  Status read_tensor(Fields& in, Place::Form form) {
    Parsed tensor;
    Found found;
    found.place.form = form;
    STELE_TRY(parse(in.message(), tensor, found.place.kept));
    found.dtype = dtype_of(tensor.code);
    if (tensor.code == string_code) tensor.unreadable = "strings";
    if (found.dtype == DType::none && tensor.unreadable.empty()) {
      tensor.unreadable = "elements of TensorProto.DataType " + std::to_string(tensor.code);
    }
    if (!tensor.unreadable.empty()) {
      STELE_TRY(add_unread(in, form, std::move(tensor.unreadable), std::move(tensor.name)));
      found_.back().place.external = tensor.external;
      if (tensor.external) found_.back().provider = {};
      return {};
    }
    const auto elements = element_count(tensor.shape);
    const auto bytes = elements ? byte_length(found.dtype, *elements) : std::nullopt;
    if (!bytes) return bad(Errc::malformed, "the initializer's shape exceeds 2^64 bytes", in.tag(), tensor.name);
    found.bytes = *bytes;
    memory_.admit(in.end() - in.tag() - (tensor.elements.end - tensor.elements.begin),
                  form == Place::Form::initializer ? index_rate::record : index_rate::index);
    STELE_TRY_ASSIGN(found.provider, provider_of(tensor, found.dtype, *bytes, in.tag()));
    found.place.external = tensor.external;
    found.name = std::move(tensor.name);
    found.shape = std::move(tensor.shape);
    return add(std::move(found), in);
  }

  /// Reads a SparseTensorProto. Its name is the name of its values.
  Status read_sparse(Fields& in) {
    std::string name;
    bool external = false;
    STELE_TRY(each_in(in, [&](Fields& sparse) -> Status {
      const bool values = sparse.field() == sparse_field::values;
      if ((!values && sparse.field() != sparse_field::indices) || !sparse.has_length()) return {};
      return each(sparse.message(), [&](Fields& tensor) -> Status {
        if (tensor.field() == tensor_field::data_location) external |= tensor.number() == external_location;
        return values && tensor.field() == tensor_field::name ? read_text(tensor, name) : Status();
      });
    }));
    STELE_TRY(add_unread(in, Place::Form::tensor, "a sparse tensor", std::move(name)));
    found_.back().place.external = external;
    return {};
  }

  /// Adds a field that is not a tensor of a known kind, with its bytes.
  Status add_unread(const Fields& in, Place::Form form, std::string reason, std::string name) {
    memory_.admit(std::min<std::uint64_t>(in.end() - in.tag(), unreadable_memory), index_rate::token);
    Found found;
    found.name = std::move(name);
    found.bytes = in.size();
    found.provider = {&source_ops, files_->model.get(), in.begin()};
    found.unreadable = std::move(reason);
    found.place.form = form;
    found.place.unreadable = true;
    return add(std::move(found), in);
  }

  /// Adds the tensor of a field.
  Status add(Found found, const Fields& in) {
    Place& place = found.place;
    STELE_TRY(spend((place.form == Place::Form::initializer ? 0 : sizeof(Found)) +
                    (places_ ? 3 * (sizeof(Place) + sizeof(Range) * place.kept.size()) : 0)));
    if (places_) {
      place.field = in.field();
      place.range = {in.tag(), in.end()};
      for (Open& open : open_) {
        if (open.number == no_index) {
          STELE_TRY(spend(sizeof(Message)));
          open.number = static_cast<std::uint32_t>(model_.messages.size());
          open.message.outer = place.message;
          model_.messages.push_back(open.message);
        }
        place.message = open.number;
      }
    }
    found_.push_back(std::move(found));
    return {};
  }

  Status parse(Fields in, Parsed& tensor, std::vector<Range>& kept) {
    for (;;) {
      STELE_TRY_ASSIGN(const bool more, in.next());
      if (!more) return {};
      switch (in.field()) {
        case tensor_field::dims:
          STELE_TRY(read_dims(in, tensor));
          break;
        case tensor_field::data_type:
          tensor.code = in.number();
          break;
        case tensor_field::name:
          STELE_TRY(read_text(in, tensor.name));
          if (places_) kept.push_back({in.tag(), in.end()});
          break;
        case tensor_field::string_data:  // data_type also declares it
          break;
        case tensor_field::segment:
          tensor.unreadable = "a segment of a tensor";
          break;
        case tensor_field::float_data:
        case tensor_field::int32_data:
        case tensor_field::int64_data:
        case tensor_field::raw_data:
        case tensor_field::double_data:
        case tensor_field::uint64_data:
          if (!in.has_length()) {
            tensor.unreadable = "elements that are not packed";
            break;
          }
          if (tensor.field != 0) {
            return bad(Errc::malformed, "an initializer has its elements twice", in.tag(), tensor.name);
          }
          tensor.field = in.field();
          tensor.elements = {in.begin(), in.end()};
          break;
        case tensor_field::external_data:
          if (!in.has_length()) return bad(Errc::malformed, "an entry of external_data is not a message", in.tag());
          STELE_TRY(read_location(in.message(), tensor));
          break;
        case tensor_field::data_location:
          tensor.external = in.number() == external_location;
          break;
        case tensor_field::doc_string:
        case tensor_field::metadata_props:
          model_.has_texts |= in.has_length() && in.size() != 0;
          [[fallthrough]];
        default:
          if (places_) kept.push_back({in.tag(), in.end()});
      }
    }
  }

  Status read_dims(Fields& in, Parsed& tensor) {
    const auto add = [&](std::uint64_t extent) -> Status {
      if (extent >> 63 != 0) return bad(Errc::malformed, "an extent is negative", in.tag(), tensor.name);
      if (tensor.shape.size() == 0xffff)
        return bad(Errc::limit, "a tensor has more than 65535 axes", in.tag(), tensor.name);
      tensor.shape.push_back(extent);
      return {};
    };
    if (in.is_number()) return add(in.number());
    if (!in.has_length()) return bad(Errc::malformed, "the extents are not encoded as varints", in.tag(), tensor.name);
    for (Fields packed = in.message();;) {
      STELE_TRY_ASSIGN(const auto extent, packed.element());
      if (!extent) return {};
      STELE_TRY(add(*extent));
    }
  }

  Status read_location(Fields in, Parsed& tensor) {
    std::string key, value;
    for (;;) {
      STELE_TRY_ASSIGN(const bool more, in.next());
      if (!more) break;
      if (in.field() == 1) STELE_TRY(in.text(key));
      if (in.field() == 2) STELE_TRY(in.text(value));
    }
    if (key == "location") {
      std::size_t begin = 0;
      while (value.compare(begin, 2, "./") == 0) begin += 2;
      tensor.location = value.substr(begin);
    }
    if (key == "offset") tensor.offset = value;
    if (key == "length") tensor.length = value;
    return {};
  }

  /// Reads a string of any length.
  Status read_text(Fields& in, std::string& out) {
    if (in.size() <= Cursor::max_taken_bytes || !in.has_length()) return in.text(out);
    STELE_TRY(spend(in.size()));
    out.resize(static_cast<std::size_t>(in.size()));
    return files_->model->read_at(in.begin(), std::as_writable_bytes(std::span(out)));
  }

  Status read_property(Fields& in) {
    const Range field{in.tag(), in.end()};
    std::string key, value;
    for (Fields pair = in.message();;) {
      STELE_TRY_ASSIGN(const bool more, pair.next());
      if (!more) break;
      if (pair.field() == 1) STELE_TRY(read_text(pair, key));
      if (pair.field() == 2) STELE_TRY(read_text(pair, value));
    }
    memory_.admit(field.end - field.begin, index_rate::index);
    STELE_TRY(spend(2 * (sizeof(std::pair<std::string, std::string>) + 64) + key.size()));
    if (places_) model_.properties.push_back({key, field});
    if (!model_.metadata.emplace(std::move(key), std::move(value)).second) {
      return bad(Errc::duplicate, "a key of metadata_props occurs twice", field.begin);
    }
    return {};
  }

  /// Returns the provider of the elements, which take `bytes` bytes.
  Result<Provider> provider_of(Parsed& tensor, DType dtype, std::uint64_t bytes, std::uint64_t at) {
    if (tensor.external) {
      if (tensor.field != 0) return bad(Errc::malformed, "an initializer has its elements twice", at, tensor.name);
      return external(tensor, bytes, at);
    }
    const std::uint64_t stored_bytes = tensor.elements.end - tensor.elements.begin;
    const auto wrong_size = [&] {
      return bad(Errc::malformed, "the length of the initializer does not match its dtype and shape", at, tensor.name)
          .expected(std::to_string(bytes) + " bytes")
          .found(std::to_string(stored_bytes));
    };
    if (tensor.field == 0 || tensor.field == tensor_field::raw_data || tensor.field == tensor_field::float_data ||
        tensor.field == tensor_field::double_data) {
      const bool raw = tensor.field == 0 || tensor.field == tensor_field::raw_data;
      if (!raw && tensor.field != typed_field(dtype)) return other_field(tensor, dtype, at);
      if (stored_bytes != bytes) return wrong_size();
      return Provider{&source_ops, files_->model.get(), tensor.elements.begin};
    }
    if (tensor.field != typed_field(dtype)) return other_field(tensor, dtype, at);
    // A varint has one to ten bytes.
    const std::uint64_t count = Varints::count_of(dtype, element_count(tensor.shape).value_or(0));
    if (stored_bytes < count || stored_bytes / 10 > count) return wrong_size();
    STELE_TRY(spend(2 * sizeof(Varints)));
    return files_->varints.emplace_back(files_->model, files_->mutex, tensor.elements, dtype, count).provider();
  }

  static Error other_field(const Parsed& tensor, DType dtype, std::uint64_t at) {
    return bad(Errc::malformed, "the elements are in a field of another dtype", at, tensor.name)
        .expected("raw_data or field " + std::to_string(typed_field(dtype)))
        .found("field " + std::to_string(tensor.field));
  }

  Status find_bundle(const Parsed& tensor, std::uint64_t at) {
    if (bundle_ != nullptr) return {};
    bundle_ = files_->model->bundle();
    if (bundle_ == nullptr) {
      return bad(Errc::unsupported, "the source of the model cannot open other files", at, tensor.name)
          .hint("open a path, or a source with a bundle");
    }
    STELE_TRY_ASSIGN(auto beneath, bundle_->beneath());
    if (beneath != nullptr) bundle_ = std::move(beneath);
    return {};
  }

  Result<Provider> external(Parsed& tensor, std::uint64_t bytes, std::uint64_t at) {
    const auto known = files_->others.find(tensor.location);
    const Source* file = known != files_->others.end() ? known->second.get() : nullptr;
    if (file == nullptr) {
      STELE_TRY(find_bundle(tensor, at));
      auto opened = open_of_set(bundle_, tensor.location, files_->others.size());
      if (!opened && opened.error().code() == Errc::invalid_argument) {
        return bad(Errc::malformed, "the location of the elements is not a file in the model's folder", at, tensor.name)
            .found(tensor.location);
      }
      if (!opened) return std::move(opened).error().path(tensor.name);
      STELE_TRY(spend(2 * (tensor.location.size() + 256)));
      file = files_->others.emplace(tensor.location, *std::move(opened)).first->second.get();
    }
    const auto number = [](const std::string& text, std::uint64_t& out) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
      return text.empty() || (error == std::errc() && end == text.data() + text.size());
    };
    std::uint64_t offset = 0, length = bytes;
    if (!number(tensor.offset, offset) || !number(tensor.length, length)) {
      return bad(Errc::malformed, "the offset or length of the elements is not a number", at, tensor.name)
          .found(tensor.offset + ", " + tensor.length);
    }
    if (length != bytes && length != 0) {  // 0: no length is stored
      return bad(Errc::malformed, "the length of the initializer does not match its dtype and shape", at, tensor.name)
          .expected(std::to_string(bytes) + " bytes")
          .found(std::to_string(length));
    }
    if (offset > file->size() || bytes > file->size() - offset) {
      return Error(Errc::truncated, "the file ends before the initializer does")
          .path(tensor.name)
          .file(file->name())
          .expected(std::to_string(bytes) + " bytes at " + std::to_string(offset))
          .found(std::to_string(file->size()));
    }
    return Provider{&source_ops, file, offset};
  }

  std::shared_ptr<Files> files_;
  std::shared_ptr<const Bundle> bundle_;
  Cursor in_;
  IndexBudget& memory_;
  const TakeTensor& take_;
  bool places_, nodes_, graph_only_;
  bool main_ = false;  // true in the main graph, false in subgraphs
  struct Settings {
    std::int64_t axis = 1, block_size = 0;
  };
  Settings settings_;  // settings of the current node
  Model model_;
  /// An enclosing message of the current field, and its number in the model if it contains a tensor.
  struct Open {
    Message message;
    std::uint32_t number = no_index;
  };
  std::vector<Open> open_;
  std::deque<Found> found_;      // tensors whose names are incomplete
  std::uint64_t trainings_ = 0;  // number of training_info messages so far
  std::uint32_t tensors_ = 0;    // number of tensors passed on so far
};

}  // namespace

std::string name_of_attribute(std::uint64_t offset) {
  std::string name(1, '\0');  // NUL does not occur in ONNX's names
  return name + std::to_string(offset);
}

Result<Model> read_model(SourcePtr source, IndexBudget& memory, Wanted wanted, const TakeTensor& take) {
  const std::string name = source->name();
  auto model = ModelReader(std::move(source), memory, wanted, take).run();
  if (!model && model.error().file().empty()) return std::move(model).error().file(name);
  return model;
}

}  // namespace stele::inline v0::detail::onnx
