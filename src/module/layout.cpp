#include "stele/layout.hpp"

#include <algorithm>
#include <set>

#include "base/dtypes.hpp"
#include "json/json.hpp"
#include "passes/untie.hpp"
#include "snapshot/data.hpp"
#include "snapshot/module_leaf.hpp"
#include "snapshot/paths.hpp"
#include "stele/schema.hpp"

namespace stele::inline v0 {

// ---- Schema ---------------------------------------------------------------------------------------------------------

Schema::Field Schema::field(std::size_t i) const noexcept {
  const detail::FieldInfo& field = info_->fields[i];
  return {field.name, Schema(*field.type), field.flags.defaulted};
}

std::optional<std::size_t> Schema::rank() const noexcept {
  if (info_->tensor == nullptr || info_->tensor->rank < 0) return std::nullopt;
  return static_cast<std::size_t>(info_->tensor->rank);
}

std::optional<Shape> Schema::shape() const {
  if (info_->tensor == nullptr || info_->tensor->fresh_shape == nullptr) return std::nullopt;
  std::optional<Shape> shape(std::in_place);
  info_->tensor->fresh_shape(*shape);
  return shape;
}

bool Schema::open() const noexcept {
  switch (kind()) {
    case TypeKind::list:
    case TypeKind::map:
    case TypeKind::variant:
    case TypeKind::optional:
    case TypeKind::pointer:
    case TypeKind::shared:
      return true;
    case TypeKind::none:
    case TypeKind::tensor:
    case TypeKind::value:
    case TypeKind::module:
    case TypeKind::tuple:
    case TypeKind::array:
      return false;
  }
  return true;
}

// ---- Layout ---------------------------------------------------------------------------------------------------------

namespace {

std::string_view kind_name(TypeKind kind) {
  static constexpr std::string_view names[] = {"none",  "tensor", "value",   "module",   "tuple",   "list",
                                               "array", "map",    "variant", "optional", "pointer", "shared"};
  return names[static_cast<std::size_t>(kind)];
}

std::string below(const std::string& path, std::string_view segment) {
  std::string text = path;
  if (!text.empty()) text += '.';
  append_segment(text, segment);
  return text;
}

/// Adds the tensors of a type. Every type that is not open() is finite, because recursive types are open.
Status add_type(Schema type, const std::string& path, Layout& layout) {
  if (type.open()) {
    return Error(Errc::needs_layout, "the file stores no tensor names, and the type does not determine them")
        .path(path)
        .found("a type with a variable part: " + std::string(kind_name(type.kind())))
        .hint("set LoadOptions::layout, or load into an existing module");
  }
  switch (type.kind()) {
    case TypeKind::tensor:
      layout.tensors.push_back({path, type.dtype(), type.shape()});
      break;
    case TypeKind::module:
    case TypeKind::tuple:
      for (std::size_t i = 0; i < type.field_count(); ++i) {
        const Schema::Field field = type.field(i);
        if (type.info().fields[i].flags.constant) continue;  // constants have no tensors
        STELE_TRY(add_type(field.type, below(path, field.name), layout));
      }
      break;
    case TypeKind::array:
      for (std::size_t i = 0; i < type.length(); ++i) {
        STELE_TRY(add_type(type.element(), below(path, std::to_string(i)), layout));
      }
      break;
    default:
      break;
  }
  return {};
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

}  // namespace

Result<Layout> layout_of(Schema schema) {
  Layout layout;
  STELE_TRY(add_type(schema, "", layout));
  return layout;
}

Result<Layout> layout_of(const Snapshot& snapshot) {
  return detail::guarded([&]() -> Result<Layout> {
    Layout layout;
    STELE_TRY(detail::each_tensor_name(snapshot, [&](const std::string& path, const Node& node) -> Status {
      const LeafView leaf = snapshot.leaf(node.index);
      Layout::Tensor& tensor = layout.tensors.emplace_back();
      tensor.path = path;
      tensor.dtype = leaf.dtype();
      // An unset tensor has no shape.
      const Provider& provider = leaf.provider();
      if (const detail::TensorOps* ops = detail::module_tensor_ops(provider);
          ops == nullptr || ops->unset == nullptr || !ops->unset(provider.at)) {
        tensor.shape.emplace(leaf.shape());
      }
      return {};
    }));
    return layout;
  });
}

Result<std::string> to_text(const Layout& layout) {
  std::string text;
  for (const Layout::Tensor& tensor : layout.tensors) {
    const std::string& path = tensor.path;
    if (path.empty() || path[0] == '#' || std::any_of(path.begin(), path.end(), is_control)) {
      return Error(Errc::not_representable, "a layout file cannot store this path").path(path);
    }
    text += path;
    if (tensor.dtype != DType::none && tensor.shape) {
      text += '\t';
      text += name(tensor.dtype);
      text += '\t' + to_string(tensor.shape->span());
    }
    text += '\n';
  }
  return text;
}

Result<Layout> parse_layout(std::string_view text) {
  Layout layout;
  std::set<std::string_view> seen;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line[0] == '#') continue;
    const auto bad = [&](Errc code, const char* what) {
      return Error(code, what).offset(begin).found(std::string(line.substr(0, 200)));
    };
    const std::size_t tab = line.find('\t');
    Layout::Tensor& tensor = layout.tensors.emplace_back();
    const std::string_view path = line.substr(0, tab);
    if (path.empty() || std::any_of(path.begin(), path.end(), is_control))
      return bad(Errc::malformed, "the line does not begin with a path");
    if (!seen.insert(path).second) return bad(Errc::duplicate, "the path is listed twice");
    tensor.path = path;
    if (tab == std::string_view::npos) continue;
    const std::size_t second = line.find('\t', tab + 1);
    if (second == std::string_view::npos)
      return bad(Errc::malformed, "the line is not a path, a dtype and a shape, separated by tabs");
    tensor.dtype = detail::dtype_named(line.substr(tab + 1, second - tab - 1));
    if (tensor.dtype == DType::none) return bad(Errc::unsupported, "the dtype is unknown");
    detail::json::Reader in(line.substr(second + 1));
    std::vector<Extent> extents;
    Extent extent = 0;
    if (in.begin_array()) {
      while (in.next_element() && in.read_u64(extent)) extents.push_back(extent);
    }
    if (!in.finish()) return bad(Errc::malformed, "the shape is not a list of numbers such as [2, 3]");
    tensor.shape.emplace(std::span<const Extent>(extents));
  }
  return layout;
}

}  // namespace stele::inline v0
