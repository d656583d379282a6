#include "ir/onnx/graph.hpp"

#include <bit>
#include <utility>

#include "base/limits.hpp"
#include "encodings/onnx/fields.hpp"
#include "encodings/onnx/model.hpp"
#include "encodings/protobuf/fields.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::ir {
namespace {

using namespace onnx;
using namespace model;
using protobuf::each;
using protobuf::Fields;

namespace attribute_type {
constexpr std::uint64_t type_float = 1, type_int = 2, type_string = 3, type_floats = 6, type_ints = 7, type_strings = 8;
}

class GraphReader {
 public:
  GraphReader(SourcePtr source, const LoadOptions& options, Graph& model)
      : source_(std::move(source)), in_(source_), memory_(options.limits, source_->size()), model_(model) {}

  Status run() {
    return each(Fields(in_, source_->size()), [&](Fields& in) -> Status {
      if (in.field() == model_field::graph) return read_graph(in);
      if (in.field() != model_field::opset_import && in.field() != model_field::functions) return {};
      admit(in);
      return in.field() == model_field::functions ? read_function(in) : read_opset(in, model_.opsets);
    });
  }

 private:
  /// Raises the budget for a field of the model or of its graph. Nested fields do not raise it again.
  void admit(const Fields& in) { memory_.admit(in.end() - in.tag(), index_rate::index); }
  Status spend(std::uint64_t bytes) {
    if (memory_.take(bytes)) return {};
    return index_error("the model's graph needs more memory than the file's size allows");
  }

  Status add_text(Fields& in, std::vector<std::string>& out) {
    STELE_TRY(spend(3 * sizeof(std::string) + in.size()));
    return in.text(out.emplace_back());
  }

  static Error not_a_message(const Fields& in) {
    return Error(Errc::malformed, "a field of the graph is not a message").offset(in.tag());
  }

  Status read_opset(Fields& in, std::map<std::string, std::int64_t>& opsets) {
    if (!in.has_length()) return not_a_message(in);
    STELE_TRY(spend(256));
    std::string domain;
    std::int64_t version = 0;
    STELE_TRY(each(in.message(), [&](Fields& field) -> Status {
      if (field.field() == 1) return field.text(domain);
      if (field.field() == 2) version = static_cast<std::int64_t>(field.number());
      return {};
    }));
    if (domain == "ai.onnx") domain.clear();
    opsets[domain] = version;
    return {};
  }

  Status read_graph(Fields& in) {
    if (!in.has_length()) return not_a_message(in);
    return each(in.message(), [&](Fields& field) -> Status {
      if (field.field() != graph_field::initializer) admit(field);
      switch (field.field()) {
        case graph_field::node:
          return read_node(field, model_.nodes);
        case graph_field::input:
          return read_value(field, model_.inputs);
        case graph_field::output:
          return read_value(field, model_.outputs);
        case graph_field::value_info:
          return read_value(field, model_.values);
        default:
          return {};
      }
    });
  }

  Status read_node(Fields& in, std::vector<Node>& nodes) {
    if (!in.has_length()) return not_a_message(in);
    STELE_TRY(spend(2 * sizeof(Node)));
    Node node;
    STELE_TRY(each(in.message(), [&](Fields& field) -> Status {
      switch (field.field()) {
        case node_field::input:
          return add_text(field, node.inputs);
        case node_field::output:
          return add_text(field, node.outputs);
        case node_field::name:
          return field.text(node.name);
        case node_field::op_type:
          return field.text(node.op);
        case node_field::attribute:
          return read_attribute(field, node.attributes);
        case node_field::domain:
          return field.text(node.domain);
        case node_field::overload:
          return field.text(node.overload);
        default:
          return {};
      }
    }));
    if (node.domain == "ai.onnx") node.domain.clear();
    STELE_TRY(spend(node.name.size() + node.op.size() + node.domain.size()));
    nodes.push_back(std::move(node));
    return {};
  }

  Status read_attribute(Fields& in, std::vector<Attribute>& attributes) {
    if (!in.has_length()) return not_a_message(in);
    STELE_TRY(spend(2 * sizeof(Attribute)));
    Attribute attribute;
    std::vector<std::int64_t> ints;
    std::vector<float> floats;
    std::vector<std::string> strings;
    std::uint64_t type = 0;
    bool other = false;
    STELE_TRY(each(in.message(), [&](Fields& field) -> Status {
      switch (field.field()) {
        case attribute_field::name:
          return field.text(attribute.name);
        case attribute_field::ref_attr_name:
          return field.text(attribute.reference);
        case attribute_field::i:
          attribute.value = static_cast<std::int64_t>(field.number());
          return {};
        case attribute_field::f: {
          std::vector<float> one;
          STELE_TRY(field.floats(one));
          if (!one.empty()) attribute.value = one.back();
          return {};
        }
        case attribute_field::s: {
          std::string text;
          STELE_TRY(spend(field.size()));
          STELE_TRY(field.text(text));
          attribute.value = std::move(text);
          return {};
        }
        case attribute_field::t:
          attribute.value = TensorValue{name_of_attribute(field.begin())};
          return {};
        case attribute_field::ints:
          return read_ints(field, ints);
        case attribute_field::floats: {
          STELE_TRY(spend(2 * field.size()));
          return field.floats(floats);
        }
        case attribute_field::strings:
          return add_text(field, strings);
        case attribute_field::g:
        case attribute_field::tensors:
        case attribute_field::graphs:
        case attribute_field::tp:
        case attribute_field::type_protos:
        case attribute_field::sparse_tensor:
        case attribute_field::sparse_tensors:
          other = true;
          return {};
        case attribute_field::type:
          type = field.number();
          return {};
        default:
          return {};
      }
    }));
    // For an empty list, and for a 0 or "" that the writer omitted, only the type is stored.
    using namespace attribute_type;
    if (!floats.empty() || type == type_floats) attribute.value = std::move(floats);
    if (!ints.empty() || type == type_ints) attribute.value = std::move(ints);
    if (!strings.empty() || type == type_strings) attribute.value = std::move(strings);
    const bool absent = std::holds_alternative<std::monostate>(attribute.value);
    if (absent && type == type_float) attribute.value = 0.0F;
    if (absent && type == type_int) attribute.value = std::int64_t{0};
    if (absent && type == type_string) attribute.value = std::string();
    if (other) attribute.value = std::monostate();
    attributes.push_back(std::move(attribute));
    return {};
  }

  Status read_ints(Fields& in, std::vector<std::int64_t>& out) {
    STELE_TRY(spend(3 * sizeof(std::int64_t) * (in.is_number() ? 1 : in.size())));
    return in.integers(out);
  }

  Status read_value(Fields& in, std::vector<ValueInfo>& values) {
    if (!in.has_length()) return not_a_message(in);
    STELE_TRY(spend(2 * sizeof(ValueInfo) + in.size()));
    ValueInfo value;
    STELE_TRY(each(in.message(), [&](Fields& field) -> Status {
      if (field.field() == 1) return field.text(value.name);
      if (field.field() != 2 || !field.has_length()) return {};
      return each(field.message(), [&](Fields& type) -> Status {
        if (type.field() != 1 || !type.has_length()) return {};  // not a tensor, but a sequence, a map or an optional
        return each(type.message(), [&](Fields& tensor) -> Status {
          if (tensor.field() == 1) value.dtype = dtype_of(tensor.number());
          if (tensor.field() != 2 || !tensor.has_length()) return {};
          value.has_shape = true;
          return each(tensor.message(), [&](Fields& dim) -> Status {
            if (dim.field() != 1 || !dim.has_length()) return {};
            STELE_TRY(spend(3 * sizeof(std::int64_t)));
            value.shape.push_back(-1);
            return each(dim.message(), [&](Fields& extent) -> Status {
              if (extent.field() == 1 && extent.is_number()) {
                value.shape.back() = static_cast<std::int64_t>(extent.number());
                if (value.shape.back() < 0) value.shape.back() = -1;
              }
              return {};
            });
          });
        });
      });
    }));
    values.push_back(std::move(value));
    return {};
  }

  Status read_function(Fields& in) {
    if (!in.has_length()) return not_a_message(in);
    STELE_TRY(spend(2 * sizeof(Function)));
    Function function;
    STELE_TRY(each(in.message(), [&](Fields& field) -> Status {
      switch (field.field()) {
        case function_field::name:
          return field.text(function.name);
        case function_field::domain:
          return field.text(function.domain);
        case function_field::overload:
          return field.text(function.overload);
        case function_field::input:
          return add_text(field, function.inputs);
        case function_field::output:
          return add_text(field, function.outputs);
        case function_field::attribute:
          return add_text(field, function.attributes);
        case function_field::attribute_proto:
          return read_attribute(field, function.defaults);
        case function_field::node:
          return read_node(field, function.nodes);
        case function_field::opset_import:
          return read_opset(field, function.opsets);
        default:
          return {};
      }
    }));
    if (function.domain == "ai.onnx") function.domain.clear();
    model_.functions.push_back(std::move(function));
    return {};
  }

  SourcePtr source_;
  Cursor in_;
  IndexBudget memory_;
  Graph& model_;
};

}  // namespace

Result<Graph> read_onnx(SourcePtr source, const LoadOptions& options) {
  Graph model;
  const std::string name = source->name();
  IndexBudget memory(options.limits, source->size());
  SnapshotBuilder builder;
  builder.set_flat();
  STELE_TRY_ASSIGN(Model tensors, read_model(source, memory, Wanted::graph, [&](const TensorEntry& tensor) {
                     return add_entry(builder, tensor, memory);
                   }));
  if (auto done = finish_names(builder, std::move(tensors.metadata), memory); !done) {
    return std::move(done).error().file(name);
  }
  builder.set_capacity(tensors.capacity);
  builder.keep(std::move(tensors.files));
  model.tensors = builder.finish();
  model.onnx = true;
  const Status done = GraphReader(std::move(source), options, model).run();
  if (done) return model;
  Error error = done.error();
  return error.file().empty() ? std::move(error).file(name) : std::move(error);
}

}  // namespace stele::inline v0::detail::ir
