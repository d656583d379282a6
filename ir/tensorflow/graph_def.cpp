#include "ir/tensorflow/graph_def.hpp"

#include <algorithm>
#include <bit>
#include <unordered_set>

#include "encodings/onnx/fields.hpp"
#include "encodings/protobuf/fields.hpp"
#include "encodings/tensor_bundle/bundle.hpp"
#include "ir/rules/expression.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::ir::tensorflow {

namespace {

using protobuf::each;
using protobuf::Fields;

namespace saved_model_field {
constexpr std::uint32_t schema_version = 1, meta_graphs = 2;
}
namespace meta_graph_field {
constexpr std::uint32_t info = 1, graph_def = 2, saver_def = 3, signature_def = 5;
}
constexpr std::uint32_t tags_field = 4;     // in meta_graph_field::info
constexpr std::uint32_t restore_field = 3;  // in meta_graph_field::saver_def
namespace signature_field {
constexpr std::uint32_t inputs = 1, outputs = 2;
}
namespace graph_field {
constexpr std::uint32_t node = 1, library = 2;
}
constexpr std::uint32_t function_field = 1;  // in graph_field::library
namespace function_def_field {
constexpr std::uint32_t signature = 1, node = 3, ret = 4;
}
namespace op_def_field {
constexpr std::uint32_t name = 1, input_arg = 2, output_arg = 3;
}
namespace node_field {
constexpr std::uint32_t name = 1, op = 2, input = 3, attribute = 5;
}
namespace value_field {
constexpr std::uint32_t list = 1, s = 2, i = 3, f = 4, b = 5, type = 6, shape = 7, tensor = 8, func = 10;
}
namespace map_field {
constexpr std::uint32_t key = 1, value = 2;
}

class GraphDefReader {
 public:
  GraphDefReader(const SourcePtr& source, IndexBudget& memory, GraphDef& to)
      : in_(source), size_(source->size()), memory_(memory), to_(to) {}

  Status run() {
    // A SavedModel begins with a number in field 1. In a GraphDef, field 1 is never a number.
    Fields fields(in_, size_);
    STELE_TRY_ASSIGN(const bool any, fields.next());
    if (!any) return Error(Errc::malformed, "the file is empty").offset(0);
    to_.saved_model = fields.field() == saved_model_field::schema_version && fields.is_number();
    in_ = Cursor(in_.source());
    STELE_TRY(to_.saved_model ? read_saved_model() : read_graph(Fields(in_, size_)));
    return index();
  }

 private:
  static Error not_a_message(const Fields& in) {
    return Error(Errc::malformed, "a field of the graph is not a message").offset(in.tag());
  }
  static Status expect_message(const Fields& in) { return in.has_length() ? Status() : Status(not_a_message(in)); }

  Status spend(std::uint64_t bytes) {
    if (memory_.take(bytes)) return {};
    return index_error("the model's graph needs more memory than the file's size allows");
  }

  /// Raises the budget for a field that becomes part of the structure. A longer field is a tensor.
  void admit(const Fields& in) {
    if (in.size() <= Cursor::max_taken_bytes) memory_.admit(in.end() - in.tag(), index_rate::index);
  }

  Result<std::string> text(Fields& in) {
    STELE_TRY(spend(sizeof(std::string) + in.size()));
    std::string out;
    STELE_TRY(in.text(out));
    return out;
  }
  Status add_text(Fields& in, std::vector<std::string>& out) {
    STELE_TRY(spend(2 * sizeof(std::string)));
    STELE_TRY_ASSIGN(std::string one, text(in));
    out.push_back(std::move(one));
    return {};
  }

  /// Reads an entry of a map. The key must precede the value, because the value is read in place.
  template <class Take>
  Status entry(Fields& in, Take take) {
    STELE_TRY(expect_message(in));
    std::string key;
    bool has_key = false;
    return each(in.message(), [&](Fields& field) -> Status {
      if (field.field() == map_field::key) {
        STELE_TRY_ASSIGN(key, text(field));
        has_key = true;
      } else if (field.field() == map_field::value) {
        if (!has_key) return Error(Errc::malformed, "the value of a map's entry precedes its key").offset(field.tag());
        return take(key, field);
      }
      return {};
    });
  }

  Status read_saved_model() {
    std::uint64_t begin = 0;
    bool tagged = false;
    // Finds the graph to read: the first graph with the tag, or the first graph if none has it.
    STELE_TRY(each(Fields(in_, size_), [&](Fields& field) -> Status {
      if (field.field() != saved_model_field::meta_graphs || tagged) return {};
      STELE_TRY(expect_message(field));
      const std::uint64_t at = field.tag();
      bool serve = false;
      STELE_TRY(each(field.message(), [&](Fields& part) -> Status {
        if (part.field() != meta_graph_field::info) return {};
        STELE_TRY(expect_message(part));
        return each(part.message(), [&](Fields& info) -> Status {
          if (info.field() != tags_field) return {};
          STELE_TRY_ASSIGN(const std::string tag, text(info));
          serve = serve || tag == "serve";
          return {};
        });
      }));
      if (serve || begin == 0) begin = at;
      tagged = serve;
      return {};
    }));
    if (begin == 0) return Error(Errc::malformed, "the SavedModel has no graph").offset(size_);
    in_ = Cursor(in_.source());
    return each(Fields(in_, size_), [&](Fields& field) -> Status {
      if (field.tag() != begin) return {};
      return each(field.message(), [&](Fields& part) -> Status { return read_meta_graph(part); });
    });
  }

  Status read_meta_graph(Fields& part) {
    switch (part.field()) {
      case meta_graph_field::graph_def:
        STELE_TRY(expect_message(part));
        return read_graph(part.message());
      case meta_graph_field::saver_def:
        STELE_TRY(expect_message(part));
        return each(part.message(), [&](Fields& field) -> Status {
          if (field.field() != restore_field) return {};
          STELE_TRY_ASSIGN(to_.restore, text(field));
          return {};
        });
      case meta_graph_field::signature_def:
        return entry(part, [&](const std::string& key, Fields& value) -> Status {
          STELE_TRY(expect_message(value));
          STELE_TRY(spend(256));
          return read_signature(value.message(), to_.signatures[key]);
        });
      default:
        return {};
    }
  }

  Status read_signature(Fields in, Signature& to) {
    return each(in, [&](Fields& field) -> Status {
      if (field.field() != signature_field::inputs && field.field() != signature_field::outputs) return {};
      auto& names = field.field() == signature_field::inputs ? to.inputs : to.outputs;
      return entry(field, [&](const std::string& key, Fields& value) -> Status {
        STELE_TRY(expect_message(value));
        STELE_TRY(spend(256));
        return each(value.message(), [&](Fields& info) -> Status {
          if (info.field() != 1) return {};  // the name; other kinds of tensors have no name
          STELE_TRY_ASSIGN(names[key], text(info));
          return {};
        });
      });
    });
  }

  Status read_graph(Fields in) {
    return each(in, [&](Fields& field) -> Status {
      if (field.field() == graph_field::node) return read_node(field, to_.main.nodes);
      if (field.field() != graph_field::library) return {};
      STELE_TRY(expect_message(field));
      return each(field.message(), [&](Fields& function) -> Status {
        return function.field() == function_field ? read_function(function) : Status();
      });
    });
  }

  /// Maps names to nodes after all nodes are read, because a message that occurs twice in a file is read twice.
  Status index() {
    STELE_TRY(index(to_.main));
    std::unordered_set<std::string_view> names;
    STELE_TRY(spend(64 * to_.functions.size()));
    for (Body& function : to_.functions) {
      if (!names.insert(function.name).second) {
        return Error(Errc::duplicate, "two functions have the same name").path(function.name);
      }
      STELE_TRY(index(function));
    }
    return {};
  }

  Status index(Body& body) {
    STELE_TRY(spend(64 * (body.nodes.size() + body.inputs.size())));
    for (std::uint32_t i = 0; i < body.inputs.size(); ++i) body.arguments.try_emplace(body.inputs[i], i);
    for (std::uint32_t i = 0; i < body.nodes.size(); ++i) {
      if (!body.places.try_emplace(body.nodes[i].name, i).second) {
        return Error(Errc::duplicate, "two nodes have the same name").path(body.nodes[i].name);
      }
    }
    return {};
  }

  Status read_function(Fields& in) {
    STELE_TRY(expect_message(in));
    STELE_TRY(spend(2 * sizeof(Body)));
    Body& body = to_.functions.emplace_back();
    return each(in.message(), [&](Fields& field) -> Status {
      if (field.field() != function_def_field::node) admit(field);
      switch (field.field()) {
        case function_def_field::signature:
          STELE_TRY(expect_message(field));
          return each(field.message(), [&](Fields& part) -> Status { return read_signature_of(part, body); });
        case function_def_field::node:
          return read_node(field, body.nodes);
        case function_def_field::ret:
          return entry(field, [&](const std::string& key, Fields& value) -> Status {
            STELE_TRY(spend(128));
            STELE_TRY_ASSIGN(body.returns[key], text(value));
            return {};
          });
        default:
          return {};
      }
    });
  }

  Status read_signature_of(Fields& part, Body& body) {
    if (part.field() == op_def_field::name) {
      STELE_TRY_ASSIGN(body.name, text(part));
      return {};
    }
    if (part.field() != op_def_field::input_arg && part.field() != op_def_field::output_arg) return {};
    STELE_TRY(expect_message(part));
    auto& names = part.field() == op_def_field::input_arg ? body.inputs : body.outputs;
    STELE_TRY(spend(2 * sizeof(std::string)));
    names.emplace_back();
    return each(part.message(), [&](Fields& arg) -> Status {
      if (arg.field() != op_def_field::name) return {};
      STELE_TRY_ASSIGN(names.back(), text(arg));
      return {};
    });
  }

  Status read_node(Fields& in, std::vector<NodeDef>& nodes) {
    STELE_TRY(expect_message(in));
    STELE_TRY(spend(2 * sizeof(NodeDef)));
    NodeDef node;
    STELE_TRY(each(in.message(), [&](Fields& field) -> Status {
      admit(field);
      switch (field.field()) {
        case node_field::name: {
          STELE_TRY_ASSIGN(node.name, text(field));
          return {};
        }
        case node_field::op: {
          STELE_TRY_ASSIGN(node.op, text(field));
          return {};
        }
        case node_field::input:
          return add_text(field, node.inputs);
        case node_field::attribute:
          return entry(field, [&](const std::string& key, Fields& value) -> Status {
            if (key.starts_with('_')) return {};  // hints for compilers
            STELE_TRY(expect_message(value));
            STELE_TRY(spend(2 * sizeof(node.attributes[0]) + key.size()));
            AttributeValue& to = node.attributes.emplace_back(key, AttributeValue()).second;
            return each(value.message(), [&](Fields& f) -> Status { return read_value(f, to); });
          });
        default:
          return {};
      }
    }));
    nodes.push_back(std::move(node));
    return {};
  }

  Status read_value(Fields& in, AttributeValue& to) {
    switch (in.field()) {
      case value_field::s: {
        STELE_TRY_ASSIGN(to, text(in));
        return {};
      }
      case value_field::i:
      case value_field::b:
        to = static_cast<std::int64_t>(in.number());
        return {};
      case value_field::f: {
        std::vector<float> one;
        STELE_TRY(in.floats(one));
        if (!one.empty()) to = one.back();
        return {};
      }
      case value_field::type:
        to = TypeCode{in.number()};
        return {};
      case value_field::shape:
        STELE_TRY(expect_message(in));
        return read_shape(in.message(), to);
      case value_field::tensor:
        to = ByteRange{in.begin(), in.end()};
        return {};
      case value_field::func:
        STELE_TRY(expect_message(in));
        return each(in.message(), [&](Fields& part) -> Status {
          if (part.field() != 1) return {};
          STELE_TRY_ASSIGN(std::string name, text(part));
          to = FunctionName{std::move(name)};
          return {};
        });
      case value_field::list:
        STELE_TRY(expect_message(in));
        return read_list(in.message(), to);
      default:
        return {};
    }
  }

  Status read_shape(Fields in, AttributeValue& to) {
    std::vector<std::int64_t> extents;
    bool rank = true;
    STELE_TRY(each(in, [&](Fields& field) -> Status {
      if (field.field() == 3) rank = field.number() == 0;  // unknown_rank
      if (field.field() != 2) return {};
      STELE_TRY(expect_message(field));
      STELE_TRY(spend(3 * sizeof(std::int64_t)));
      extents.push_back(0);
      return each(field.message(), [&](Fields& dim) -> Status {
        if (dim.field() != 1) return {};
        const auto extent = static_cast<std::int64_t>(dim.number());
        extents.back() = extent < 0 ? unknown_extent : extent;
        return {};
      });
    }));
    if (rank) to = std::move(extents);
    return {};
  }

  Status read_list(Fields in, AttributeValue& to) {
    std::vector<std::int64_t> ints;
    std::vector<float> floats;
    std::vector<std::string> strings;
    bool other = false;
    STELE_TRY(each(in, [&](Fields& field) -> Status {
      switch (field.field()) {
        case value_field::s:
          return add_text(field, strings);
        case value_field::i:
        case value_field::b:
          return read_ints(field, ints);
        case value_field::f: {
          STELE_TRY(spend(2 * field.size()));
          return field.floats(floats);
        }
        default:
          other = true;
          return {};
      }
    }));
    if (other) return {};
    if (!floats.empty()) {
      to = std::move(floats);
    } else if (!strings.empty()) {
      to = std::move(strings);
    } else {
      to = std::move(ints);
    }
    return {};
  }

  Status read_ints(Fields& in, std::vector<std::int64_t>& out) {
    STELE_TRY(spend(3 * sizeof(std::int64_t) * (in.is_number() ? 1 : in.size())));
    return in.integers(out);
  }

  Cursor in_;
  std::uint64_t size_;
  IndexBudget& memory_;
  GraphDef& to_;
};

}  // namespace

const AttributeValue* NodeDef::find(std::string_view attribute) const noexcept {
  const auto found =
      std::find_if(attributes.begin(), attributes.end(), [&](const auto& a) { return a.first == attribute; });
  return found != attributes.end() ? &found->second : nullptr;
}

std::int64_t onnx_code(TypeCode type) noexcept {
  constexpr std::int64_t onnx_string = 8;
  constexpr std::uint64_t first_reference = 100;  // DT_FLOAT_REF and so on
  const std::uint64_t code = type.code > first_reference ? type.code - first_reference : type.code;
  if (code == detail::tensorflow::string_code) return onnx_string;
  const auto* const known = detail::tensorflow::type_of(code);
  return known != nullptr ? std::int64_t{onnx::code_of(known->dtype)} : 0;
}

Result<GraphDef> read_graph_def(const SourcePtr& source, IndexBudget& memory) {
  GraphDef graph;
  STELE_TRY(GraphDefReader(source, memory, graph).run());
  return graph;
}

}  // namespace stele::inline v0::detail::ir::tensorflow
