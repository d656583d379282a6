// Writes a Snapshot as tokens.
#include <utility>
#include <vector>

#include "record_writer.hpp"
#include "snapshot/data.hpp"

namespace stele::inline v0::detail::burn {
namespace {

class NamedWriter final : public RecordWriter {
 public:
  NamedWriter(const Snapshot& snapshot, BurnEra era, TokenWriter& out) : RecordWriter(snapshot, era), out_(out) {}

  Status run(Header header) {
    const auto& own = snapshot_.metadata();
    for (const auto& [key, text] : own) {
      if (key.size() > max_text || text.size() > max_text) return too_long(key.substr(0, 40));
    }
    STELE_TRY(out_.begin_map(own.empty() ? 3 : 4));
    STELE_TRY(out_.key("metadata"));
    STELE_TRY(out_.begin_map(std::size(header_names)));
    for (std::size_t i = 0; i < std::size(header_names); ++i) {
      STELE_TRY(out_.key(header_names[i]));
      STELE_TRY(out_.value(Value(std::move(*member(header, i)))));
    }
    STELE_TRY(out_.end());
    STELE_TRY(out_.key("item"));
    STELE_TRY(write(snapshot_.data()->type, tree_.root(), 0));
    if (!own.empty()) {
      STELE_TRY(out_.key(own_key));
      STELE_TRY(out_.begin_map(own.size()));
      for (const auto& [key, text] : own) {
        STELE_TRY(out_.key(key));
        STELE_TRY(out_.value(Value(text)));
      }
      STELE_TRY(out_.end());
    }
    STELE_TRY(out_.key("_b"));
    STELE_TRY(out_.unit());
    STELE_TRY(out_.end());
    return out_.finish();
  }

 private:
  struct Child {
    std::string name;  // empty for an element
    Place place;
  };
  /// Maximum depth of a parameter. A parameter adds up to 8 levels.
  static constexpr unsigned max_parameter_depth = max_depth - 10;

  Error too_deep() const {
    return Error(Errc::not_representable, "the record is nested too deeply")
        .path(path_)
        .expected("at most " + std::to_string(max_parameter_depth) + " levels");
  }
  Error too_long(std::string_view path) const {
    return Error(Errc::not_representable, "the string exceeds 64 KiB")
        .path(path)
        .expected("at most " + std::to_string(max_text) + " bytes");
  }
  /// Checks that stele can read the value back.
  Status check(const Value& value, unsigned depth) const {
    if (depth > max_parameter_depth) return too_deep();
    if (value.as_bytes() != nullptr) {  // a reader takes bytes for a tensor
      return Error(Errc::not_representable, "Burn's records cannot store bytes as a value").path(path_);
    }
    if (const auto* text = value.as_string(); text != nullptr && text->size() > max_text) return too_long(path_);
    if (const auto* list = value.as_list()) {
      for (const Value& element : *list) STELE_TRY(check(element, depth + 1));
    }
    if (const auto* map = value.as_map()) {
      for (const auto& [key, element] : *map) {
        if (key.size() > max_text) return too_long(path_);
        STELE_TRY(check(element, depth + 1));
      }
    }
    return {};
  }

  /// Writes an entry. `type` is null if unknown.
  Status write(const TypeInfo* type, const Place& place, unsigned depth) {
    if (depth > max_parameter_depth) return too_deep();
    if (type != nullptr && depth != 0 && is_constant_class(*type)) return out_.nil();
    bool optional = type == nullptr;
    while (type != nullptr && is_holder(*type)) {
      optional = true;
      type = type->element;
    }
    if (tree_.absent(place)) {
      // Bincode stores nothing for numbers of a module; Burn records null for them, too. A tensor of a dtype that Burn
      // does not have was removed, and the report lists it.
      if (optional || (place.exists && type->kind == TypeKind::tensor) ||
          (place.exists && type->kind == TypeKind::value && !fields_.in_record())) {
        return out_.nil();
      }
      // Flat names cannot express empty containers.
      if (type->kind == TypeKind::module) return module(*type, place, depth);
      if (type->kind == TypeKind::list || type->kind == TypeKind::map) {
        STELE_TRY(type->kind == TypeKind::list ? out_.begin_list(0) : out_.begin_map(0));
        return out_.end();
      }
      return Error(Errc::missing, "the field of the module is missing").path(path_);
    }
    const bool named = place.node != no_index && place.node != 0;  // the root of flat names is not a node of the record
    if (named && tree_.node(place.node).kind == NodeKind::tensor) return tensor(tree_.node(place.node));
    if (named && tree_.node(place.node).kind == NodeKind::value) {
      const Value& value = snapshot_.value(tree_.node(place.node));
      STELE_TRY(check(value, depth));
      auto written = out_.value(value);
      return written ? std::move(written) : Status(std::move(written).error().path(path_));
    }
    if (type != nullptr && type->kind == TypeKind::module) return module(*type, place, depth);
    return children(type, place, depth);
  }

  Status children(const TypeInfo* type, const Place& place, unsigned depth) {
    std::vector<Child> all;
    tree_.each(place, [&](std::string_view key, const Place& child) { all.push_back({std::string(key), child}); });
    const bool list = is_list(type, place, all.size());
    if (list) {
      std::uint32_t hint = 0;
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = {{}, tree_.element(place, i, hint)};
    }
    STELE_TRY(list ? out_.begin_list(all.size()) : out_.begin_map(all.size()));
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!list) STELE_TRY(out_.key(all[i].name));
      const TypeInfo* inner = nullptr;
      if (type != nullptr) {
        inner = type->element;
        if (type->kind == TypeKind::tuple) inner = type->fields[i].type;
        if (type->kind == TypeKind::variant) inner = alternative(*type, all[i].name);
      }
      STELE_TRY(child(inner, list ? std::to_string(i) : all[i].name, all[i].place, depth));
    }
    return out_.end();
  }
  static const TypeInfo* alternative(const TypeInfo& type, std::string_view name) {
    for (const FieldInfo& field : type.fields) {
      if (field.name == name) return field.type;
    }
    return nullptr;
  }
  bool is_list(const TypeInfo* type, const Place& place, std::size_t count) const {
    if (type != nullptr) {
      return type->kind == TypeKind::list || type->kind == TypeKind::array || type->kind == TypeKind::tuple;
    }
    if (place.node != no_index && !(tree_.flat() && place.node == 0)) {
      const NodeKind kind = tree_.node(place.node).kind;
      return kind == NodeKind::list || kind == NodeKind::array || kind == NodeKind::tuple;
    }
    // Only names are known: guesses as nest() does, where names 0, 1, … make a list.
    std::size_t n = 0;
    std::size_t gap = 0;
    return count != 0 && tree_.count(place, n, gap) && n == count;
  }

  Status child(const TypeInfo* type, std::string_view name, const Place& place, unsigned depth) {
    if (name.size() > max_text) return too_long(path_);
    return at(name, [&] { return write(type, place, depth + 1); });
  }

  Status module(const TypeInfo& type, const Place& place, unsigned depth) {
    STELE_TRY_ASSIGN(const std::vector<Field>* fields, fields_.of(type));
    STELE_TRY(out_.begin_map(fields->size()));
    STELE_TRY(each_field(
        type, place,
        [&](const Field& field) -> Status {
          STELE_TRY(out_.key(field.name));
          return constant(field);
        },
        [&](const TypeInfo& inner, std::string_view name, const Place& at) -> Status {
          STELE_TRY(out_.key(name));
          return child(&inner, name, at, depth);
        }));
    return out_.end();
  }
  Status constant(const Field& field) {
    const bool list = field.is_list(era_);
    if (list) STELE_TRY(out_.begin_list(static_cast<std::size_t>(field.length)));
    for (std::uint64_t i = 0; i < (list ? field.length : 1); ++i) {
      if (field.variant) {
        STELE_TRY(out_.begin_map(1));
        STELE_TRY(out_.key(field.alternative));
      }
      STELE_TRY(field.module ? fields_of_constant(field) : out_.nil());
      if (field.variant) STELE_TRY(out_.end());
    }
    return list ? out_.end() : Status();
  }
  Status fields_of_constant(const Field& field) {
    STELE_TRY(out_.begin_map(field.inside.size()));
    for (const Field& inner : field.inside) {
      STELE_TRY(out_.key(inner.name));
      STELE_TRY(constant(inner));
    }
    return out_.end();
  }

  Status tensor(const Node& node) {
    STELE_TRY_ASSIGN(const Described tensor, describe(node));
    if (tensor.id) {
      STELE_TRY(out_.begin_map(2));
      STELE_TRY(out_.key("id"));
      STELE_TRY(out_.value(Value(*tensor.id)));
      STELE_TRY(out_.key("param"));
    }
    STELE_TRY(out_.begin_map(3));
    STELE_TRY(out_.key("bytes"));
    STELE_TRY(out_.bytes(tensor.leaf));
    STELE_TRY(out_.key("shape"));
    STELE_TRY(out_.begin_list(tensor.shape.size()));
    for (const Extent e : tensor.shape) STELE_TRY(out_.value(Value(std::uint64_t{e})));
    STELE_TRY(out_.end());
    STELE_TRY(out_.key("dtype"));
    STELE_TRY(out_.value(tensor.dtype));
    STELE_TRY(out_.end());
    return tensor.id ? out_.end() : Status();
  }

  TokenWriter& out_;
};

}  // namespace

Status write_named(const Snapshot& snapshot, Header header, BurnEra era, TokenWriter& out) {
  return NamedWriter(snapshot, era, out).run(std::move(header));
}

}  // namespace stele::inline v0::detail::burn
