// Finds the constants of an OpenVINO IR in its two files.
#include "ir.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/extension.hpp"
#include "base/in_file.hpp"
#include "io/text.hpp"
#include "stele/bundle.hpp"
#include "xml.hpp"

namespace stele::inline v0::detail::openvino {
namespace {

/// An element type: its name in files since version 10, and the older one.
struct Type {
  std::string_view name, old_name;
  DType dtype;
};
// src/core/src/type/element_type.cpp of OpenVINO 2026.4.
constexpr Type types[] = {
    {"f64", "FP64", DType::f64},
    {"f32", "FP32", DType::f32},
    {"f16", "FP16", DType::f16},
    {"bf16", "BF16", DType::bf16},
    {"f8e4m3", "F8E4M3", DType::f8_e4m3fn},
    {"f8e5m2", "F8E5M2", DType::f8_e5m2},
    {"f8e8m0", "F8E8M0", DType::f8_e8m0},
    {"f4e2m1", "F4E2M1", DType::f4_e2m1},
    {"i64", "I64", DType::i64},
    {"i32", "I32", DType::i32},
    {"i16", "I16", DType::i16},
    {"i8", "I8", DType::i8},
    {"i4", "I4", DType::i4},
    {"u64", "U64", DType::u64},
    {"u32", "U32", DType::u32},
    {"u16", "U16", DType::u16},
    {"u8", "U8", DType::u8},
    {"u4", "U4", DType::u4},
    {"boolean", "BOOL", DType::boolean},
};

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  return parsed.ec == std::errc() && parsed.ptr == end ? std::optional(number) : std::nullopt;
}

/// Parses "3, 4"; "" is a scalar. Returns false for other text.
bool shape_of(std::string_view text, std::vector<Extent>& shape) {
  const auto trimmed = [](std::string_view part) {
    const std::size_t begin = std::min(part.find_first_not_of(' '), part.size());
    return part.substr(begin, part.find_last_not_of(' ') + 1 - begin);
  };
  if (trimmed(text).empty()) return true;
  for (;;) {
    const std::size_t comma = text.find(',');
    const auto extent = number_of(trimmed(text.substr(0, comma)));
    if (!extent) return false;
    shape.push_back(static_cast<Extent>(*extent));
    if (comma == text.npos) return true;
    text.remove_prefix(comma + 1);
  }
}

/// Maximum rank: longer lists of extents are not shapes.
constexpr std::size_t max_rank = 0xffff;

class IrReader {
 public:
  IrReader(Ir& to, IndexBudget& memory) : to_(to), in_(to.text), memory_(memory) {}

  Status run() {
    for (;;) {
      STELE_TRY_ASSIGN(const xml::Event event, in_.next());
      if (event == xml::Event::finish) break;
      STELE_TRY(event == xml::Event::begin ? begin() : end());
    }
    // They are in the order of a hash table.
    std::ranges::sort(to_.dequantized, {}, [](const Dequantized& d) { return std::tuple(d.codes, d.scale, d.zero); });
    return {};
  }

 private:
  struct Layer {
    std::string id, name, type;
    std::string path;
    std::size_t depth = 0;
    std::uint32_t graph = 0;
    bool has_data = false;
  };
  /// A layer that computes numbers from constants without changing them, until its inputs are known.
  enum class Kind : std::uint8_t { constant, convert, subtract, multiply };
  struct Operation {
    Kind kind{};
    std::uint32_t constant = no_index;         // index of a constant
    std::uint64_t inputs[2] = {no_id, no_id};  // keys of the layers
  };
  static constexpr std::uint64_t no_id = UINT64_MAX;

  Error bad(std::string_view message) const {
    Error error = Error(Errc::malformed, message).offset(in_.offset());
    return layers_.empty() ? error : std::move(error).path(layers_.back().path);
  }
  Status spend(std::uint64_t bytes) {
    if (memory_.take(bytes)) return {};
    return index_error("the model's constants need more memory than the file's size allows").offset(in_.offset());
  }
  Result<std::string> required(std::string_view attribute) const {
    STELE_TRY_ASSIGN(auto text, in_.attribute(attribute));
    if (text) return *std::move(text);
    return bad("an element lacks an attribute").expected(std::string(attribute));
  }

  Status begin() {
    const auto& open = in_.open();
    const std::size_t depth = in_.depth();
    if (depth == 1) return root();
    if (in_.name() == "layer" && open[depth - 2] == "layers" && is_graph(depth - 2)) return layer();
    if (in_.name() == "edge" && open[depth - 2] == "edges" && is_graph(depth - 2)) return edge();
    if (layers_.empty() || depth != layers_.back().depth + 1) return {};
    Layer& current = layers_.back();
    if (in_.name() == "data" && current.type == "Const" && !std::exchange(current.has_data, true)) return constant();
    return {};
  }
  /// Returns true if the element at this depth, counted from 0, is a part of the model or of a body of the open layer.
  bool is_graph(std::size_t depth) const { return layers_.empty() ? depth == 1 : depth == layers_.back().depth + 1; }

  Status end() {
    if (layers_.empty() || in_.depth() != layers_.back().depth) {
      // The end of a model or body: its identifiers are separate from those of other bodies.
      return in_.name() == "edges" && is_graph(in_.depth() - 1) ? end_graph() : Status();
    }
    if (layers_.back().type == "Const" && !layers_.back().has_data) return bad("a constant has no element <data>");
    layers_.pop_back();
    return {};
  }

  Status root() {
    if (in_.name() != "net") {
      return bad("the document is not an OpenVINO IR").expected("<net>").found("<" + std::string(in_.name()) + ">");
    }
    constexpr std::uint64_t first_version = 10;
    STELE_TRY_ASSIGN(const std::string version, required("version"));
    const auto number = number_of(version);
    if (!number) return bad("the IR's version is not a number").found(version);
    if (*number >= first_version) return {};
    return Error(Errc::unsupported, "the IR has a version that OpenVINO has not read since 2022")
        .expected("10 or later")
        .found(version);
  }

  Status layer() {
    Layer next;
    next.depth = in_.depth();
    STELE_TRY_ASSIGN(next.id, required("id"));
    STELE_TRY_ASSIGN(next.name, required("name"));
    STELE_TRY_ASSIGN(next.type, required("type"));
    if (!layers_.empty()) {
      next.path = layers_.back().path + "." + std::string(in_.open()[in_.depth() - 3]);
      if (!next.name.empty()) next.path += '.';
    }
    next.path += next.name;
    STELE_TRY(spend(3 * next.path.size() + 64));
    if (next.type == "Convert") STELE_TRY(add_operation(graph(), next.id, {Kind::convert}));
    if (next.type == "Subtract") STELE_TRY(add_operation(graph(), next.id, {Kind::subtract}));
    if (next.type == "Multiply") STELE_TRY(add_operation(graph(), next.id, {Kind::multiply}));
    layers_.push_back(std::move(next));
    return {};
  }

  Status constant() {
    const Layer& layer = layers_.back();
    Constant made;
    made.name = layer.path;
    // Layers without a name, or with the name of an earlier constant, get their id.
    while (made.name.empty() || names_.contains(made.name)) {
      made.name += "#" + layer.id;
      if (layer.id.empty()) return bad("a layer has neither an id nor a name of its own");
      STELE_TRY(spend(3 * made.name.size()));
    }
    STELE_TRY_ASSIGN(const std::string type, required("element_type"));
    STELE_TRY_ASSIGN(const std::string shape, required("shape"));
    STELE_TRY_ASSIGN(const std::string offset, required("offset"));
    STELE_TRY_ASSIGN(const std::string size, required("size"));
    STELE_TRY(spend(3 * sizeof made + 4 * made.name.size() + 3 * sizeof(Extent) * (1 + shape.size() / 2) + 128));
    const auto begin = number_of(offset), length = number_of(size);
    if (!begin || !length) return bad("a constant's place is not two numbers").found(offset + ", " + size);
    made.size = *length;
    made.offset = made.size != 0 ? *begin : 0;
    const xml::Attribute* const place = in_.find("offset");
    made.text = place->offset;
    made.text_size = place->raw.size();
    const auto* const found = std::find_if(std::begin(types), std::end(types),
                                           [&](const Type& t) { return t.name == type || t.old_name == type; });
    if (!shape_of(shape, made.shape) || made.shape.size() > max_rank) {
      made.unreadable = "a constant of the shape " + shape.substr(0, max_shown);
    } else if (found == std::end(types)) {
      made.unreadable = "elements of the type " + type.substr(0, max_shown);
    } else {
      made.dtype = found->dtype;
      const auto count = element_count(made.shape);
      const auto bytes = count ? byte_length(made.dtype, *count) : std::nullopt;
      if (!bytes || *bytes > made.size) {
        return bad("a constant has fewer bytes than elements")
            .expected(bytes ? "at least " + std::to_string(*bytes) : "a shape of less than 2^64 bytes")
            .found(size);
      }
      made.bytes = *bytes;
    }
    if (!made.unreadable.empty()) made.bytes = made.size;
    STELE_TRY(add_operation(graphs_[layers_.size() - 1], layer.id,
                            {Kind::constant, static_cast<std::uint32_t>(to_.constants.size())}));
    names_.insert(made.name);
    to_.constants.push_back(std::move(made));
    return {};
  }

  // ---- weights that the graph decompresses: Const -> Convert [-> Subtract zero point] -> Multiply by a scale

  using Graph = std::unordered_map<std::uint64_t, Operation>;

  Status add_operation(Graph& graph, const std::string& id, const Operation& operation) {
    const auto number = number_of(id);
    if (!number || *number == no_id) return {};
    STELE_TRY(spend(sizeof operation + 96));
    graph.insert_or_assign(*number, operation);
    return {};
  }
  /// Returns the operations of the model or body whose layers are being read.
  Graph& graph() { return graphs_[layers_.size()]; }

  Status edge() {
    std::uint64_t numbers[3]{};
    static constexpr std::string_view attributes[] = {"from-layer", "to-layer", "to-port"};
    for (std::size_t i = 0; i < 3; ++i) {
      STELE_TRY_ASSIGN(const std::string text, required(attributes[i]));
      const auto number = number_of(text);
      if (!number) return bad("an edge is not between numbers").found(text);
      numbers[i] = *number;
    }
    const auto to = graph().find(numbers[1]);
    if (to != graph().end() && numbers[2] < 2) to->second.inputs[numbers[2]] = numbers[0];
    return {};
  }

  const Operation* find(std::uint64_t id) {
    const auto found = graph().find(id);
    return found != graph().end() ? &found->second : nullptr;
  }
  /// Returns the constant that an input is, perhaps converted; no_index: none.
  std::uint32_t constant_at(std::uint64_t id, bool must_convert = false) {
    const Operation* operation = find(id);
    if (operation != nullptr && operation->kind == Kind::convert) {
      operation = find(operation->inputs[0]);
    } else if (must_convert) {
      return no_index;
    }
    return operation != nullptr && operation->kind == Kind::constant ? operation->constant : no_index;
  }

  bool is_integer(std::uint32_t constant) const {
    const DTypeClass kind = dtype_class(to_.constants[constant].dtype);
    return kind == DTypeClass::signed_int || kind == DTypeClass::unsigned_int;
  }
  /// Returns the constants of a product, if `weight` is [the difference of] converted integers.
  std::optional<Dequantized> product(std::uint64_t weight, std::uint64_t scale) {
    Dequantized made{.scale = constant_at(scale)};
    const Operation* const first = find(weight);
    const bool difference = first != nullptr && first->kind == Kind::subtract;
    made.codes = constant_at(difference ? first->inputs[0] : weight, true);
    if (difference) made.zero = constant_at(first->inputs[1]);
    const bool known = made.codes != no_index && made.scale != no_index && (!difference || made.zero != no_index);
    return known && is_integer(made.codes) ? std::optional(made) : std::nullopt;
  }

  Status end_graph() {
    for (const auto& [id, operation] : graph()) {
      if (operation.kind != Kind::multiply) continue;
      auto made = product(operation.inputs[0], operation.inputs[1]);
      if (!made) made = product(operation.inputs[1], operation.inputs[0]);
      if (!made) continue;
      STELE_TRY(spend(3 * sizeof *made));
      to_.dequantized.push_back(*made);
    }
    graph().clear();
    return {};
  }

  /// Maximum length of the file's strings in a message.
  static constexpr std::size_t max_shown = 64;

  Ir& to_;
  xml::Reader in_;
  IndexBudget& memory_;
  std::vector<Layer> layers_;  // the open ones
  std::unordered_set<std::string> names_;
  std::map<std::size_t, Graph> graphs_;  // by the number of open layers
};

/// Opens a file in the folder of another file.
Result<SourcePtr> beside(const Source& source, std::string_view extension, const char* why) {
  const auto bundle = source.bundle();
  const std::string name = with_ending(file_name(source.name()), extension);
  if (bundle == nullptr) {
    return Error(Errc::unsupported, why).file(source.name()).hint("open the model by a path, or from a bundle");
  }
  auto opened = bundle->open(name);
  if (!opened && opened.error().code() == Errc::not_found) {
    return Error(Errc::not_found, why).file(name).hint("the two files of a model must be in one folder");
  }
  return opened;
}

Result<std::string> text_of(const Source& source, IndexBudget& memory) {
  memory.admit(source.size(), index_rate::entry);
  if (!memory.take(source.size())) return index_error("the model's graph does not fit into memory");
  return read_text(source, source.size());
}

}  // namespace

bool is_ir(std::string_view head) noexcept {
  if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
  for (;;) {
    const std::size_t begin = head.find_first_not_of(" \t\r\n");
    if (begin == head.npos) return false;
    head.remove_prefix(begin);
    const bool comment = head.starts_with("<!--");
    if (!comment && !head.starts_with("<?")) break;
    const std::size_t end = head.find(comment ? "-->" : "?>");
    if (end == head.npos) return false;
    head.remove_prefix(end + (comment ? 3 : 2));
  }
  constexpr std::string_view root = "<net";
  if (!head.starts_with(root) || head.size() == root.size()) return false;
  const std::string_view tag = head.substr(0, head.find('>'));
  return std::string_view(" \t\r\n").find(head[root.size()]) != head.npos && tag.find("version") != tag.npos;
}

std::string with_ending(std::string_view name, std::string_view extension) {
  const std::size_t dot = name.rfind('.');
  return std::string(name.substr(0, dot)) += extension;
}

Result<Ir> read_ir(const SourcePtr& source, IndexBudget& memory) {
  std::byte head[1024];
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(source->size(), sizeof head));
  STELE_TRY(source->read_at(0, {head, size}));
  Ir ir;
  if (has_extension(source->name(), ".bin") && !is_ir({reinterpret_cast<const char*>(head), size})) {
    ir.bin = source;
    STELE_TRY_ASSIGN(ir.xml, beside(*source, ".xml", "the model's graph is in another file"));
  } else {
    ir.xml = source;
  }
  STELE_TRY_ASSIGN(ir.text, in_file(text_of(*ir.xml, memory), ir.xml->name()));
  if (auto read = IrReader(ir, memory).run(); !read) return std::move(read).error().file(ir.xml->name());
  for (const Constant& constant : ir.constants) {
    if (constant.size == 0) continue;
    if (ir.bin == nullptr) {
      STELE_TRY_ASSIGN(ir.bin, beside(*ir.xml, ".bin", "the model's constants are in another file"));
    }
    const std::uint64_t available = ir.bin->size();
    if (constant.offset <= available && constant.size <= available - constant.offset) continue;
    return Error(Errc::malformed, "a constant is outside the file of constants")
        .path(constant.name)
        .file(ir.bin->name())
        .offset(constant.offset)
        .expected(std::to_string(constant.size) + " bytes")
        .found("a file of " + std::to_string(available) + " bytes");
  }
  return ir;
}

}  // namespace stele::inline v0::detail::openvino
