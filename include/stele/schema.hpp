// Schema: the names of a record, derived from a module's type without a file; a Layout can be derived from it. Formats
// that store tensors by position need a Schema or a Layout.
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

namespace stele::inline v0 {

/// The records of a module type, known before an object exists: names, dtypes, ranks. A view of a constant table.
/// Recursive types refer back to themselves, so a walk that follows element() must stop at a type that is open().
class STELE_EXPORT Schema {
 public:
  struct Field;
  explicit constexpr Schema(const detail::TypeInfo& info) noexcept : info_(&info) {}

  TypeKind kind() const noexcept { return info_->kind; }
  /// For a module: returns the class's name and version.
  std::string_view name() const noexcept { return info_->name; }
  std::uint32_t version() const noexcept { return info_->version; }
  /// For a module or tuple: counts the recorded fields, in order; for a variant: the alternatives.
  std::size_t field_count() const noexcept { return info_->fields.size(); }
  /// Returns a field. `i` must be less than field_count() (not checked, as for operator[]).
  Field field(std::size_t i) const noexcept;
  /// For a module: returns the fields that are not recorded.
  std::span<const UnrecordedField> unrecorded() const noexcept { return info_->unrecorded; }
  /// For a list, array, map, optional, pointer or shared: returns the type of its elements. Requires such a kind (not
  /// checked).
  Schema element() const noexcept { return Schema(*info_->element); }
  /// For an array: returns the number of elements; 0 for other kinds.
  std::size_t length() const noexcept {
    return kind() == TypeKind::array ? info_->container->size(nullptr) : std::size_t{0};
  }
  /// For a tensor: returns the element type, and rank and shape if the type fixes them. DType::none or nullopt for
  /// other kinds.
  DType dtype() const noexcept { return info_->tensor != nullptr ? info_->tensor->dtype : DType::none; }
  std::optional<std::size_t> rank() const noexcept;
  std::optional<Shape> shape() const;
  /// Returns true if only an object or a file determines the content: lists, maps, variants, optionals, pointers.
  bool open() const noexcept;

  const detail::TypeInfo& info() const noexcept { return *info_; }

  /// Returns true for equal types.
  friend bool operator==(Schema, Schema) = default;

 private:
  const detail::TypeInfo* info_;
};

struct Schema::Field {
  std::string_view name;
  Schema type;
  bool keeps_default;  // may be missing from the file (stele::attr::keep_default)
};

/// Returns the Schema of module type M.
template <class M>
Schema schema_of() {
  return Schema(*detail::module_info<M>());
}

/// Returns the tensors that every object of this type has. Skips values. Errors: needs_layout (part of the type is
/// open()).
STELE_EXPORT Result<Layout> layout_of(Schema schema);

/// Returns the tensors that a module or a Record currently has. Errors: cycle.
template <class M>
Result<Layout> layout_of(const M& module) {
  STELE_TRY_ASSIGN(const Snapshot snapshot, snapshot_of(module));
  return layout_of(snapshot);
}

}  // namespace stele::inline v0
