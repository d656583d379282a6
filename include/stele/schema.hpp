// Schema and Layout: what is known of a record's names without a file that says them. Formats that hold tensors by
// position need one of the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stele/dtype.hpp"
#include "stele/layout.hpp"
#include "stele/record.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"

namespace stele {
inline namespace v0 {

/// What a module's type says of its records before there is an object: names, dtypes, ranks. A view of a constant
/// table; recursive types lead back to themselves, so a walk that follows element() must stop at what is open().
class STELE_EXPORT Schema {
 public:
  struct Field;
  explicit constexpr Schema(const detail::TypeInfo& info) noexcept : info_(&info) {}

  TypeKind kind() const noexcept { return info_->kind; }
  /// module: the class's name and version.
  std::string_view name() const noexcept { return info_->name; }
  std::uint32_t version() const noexcept { return info_->version; }
  /// module, tuple: the recorded fields, in order; variant: the alternatives.
  std::size_t field_count() const noexcept { return info_->fields.size(); }
  /// `i` is less than field_count(); not checked, as with operator[].
  Field field(std::size_t i) const noexcept;
  /// module: the fields that are not recorded.
  std::span<const UnrecordedField> unrecorded() const noexcept { return info_->unrecorded; }
  /// list, array, map, optional, pointer, shared: what they hold. Only for these kinds; not checked.
  Schema element() const noexcept { return Schema(*info_->element); }
  /// array: the number of elements; 0 for other kinds.
  std::size_t length() const noexcept {
    return kind() == TypeKind::array ? info_->container->size(nullptr) : std::size_t{0};
  }
  /// tensor: its element type; its rank and its shape where the type fixes them. DType::none or absent for other kinds.
  DType dtype() const noexcept { return info_->tensor != nullptr ? info_->tensor->dtype : DType::none; }
  std::optional<std::size_t> rank() const noexcept;
  std::optional<Shape> shape() const;
  /// Whether only an object or a file can say what is there: lists, maps, variants, optionals, pointers.
  bool open() const noexcept;

  const detail::TypeInfo& info() const noexcept { return *info_; }

  /// The same type.
  friend bool operator==(Schema, Schema) = default;

 private:
  const detail::TypeInfo* info_;
};

struct Schema::Field {
  std::string_view name;
  Schema type;
  bool keeps_default;  // may be missing (stele::keep_default)
};

/// The Schema of module type M.
template <class M>
Schema schema_of() {
  return Schema(*detail::module_info<M>());
}

/// The tensors that every object of this type has. Values are passed over. Errors: needs_layout (part of it is open()).
STELE_EXPORT Result<Layout> layout_of(Schema schema);

/// The tensors of a live module or a Record as it is now. Errors: cycle.
template <class M>
Result<Layout> layout_of(const M& module) {
  STELE_TRY_ASSIGN(const Snapshot snapshot, snapshot_of(module));
  return layout_of(snapshot);
}

}  // namespace v0
}  // namespace stele
