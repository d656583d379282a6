// Schema, and Layout from it: the names of a record derived from a module's type, without a file. Formats that store
// tensors by position need a Schema or a Layout.
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

/// The records of a module type, known before an object exists: names, dtypes, ranks. A view of a constant table;
/// recursive types refer back to themselves, so a walk that follows element() must stop at a type that is open().
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
  /// Returns a field. `i` is less than field_count(); not checked, as with operator[].
  Field field(std::size_t i) const noexcept;
  /// module: the fields that are not recorded.
  std::span<const UnrecordedField> unrecorded() const noexcept { return info_->unrecorded; }
  /// list, array, map, optional, pointer, shared: the type of their elements. Only for these kinds; not checked.
  Schema element() const noexcept { return Schema(*info_->element); }
  /// array: the number of elements; 0 for other kinds.
  std::size_t length() const noexcept {
    return kind() == TypeKind::array ? info_->container->size(nullptr) : std::size_t{0};
  }
  /// tensor: the element type, and rank and shape if the type fixes them. DType::none or absent for other kinds.
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

/// Returns the tensors that every object of this type has. Values are skipped. Errors: needs_layout (part of the type
/// is open()).
STELE_EXPORT Result<Layout> layout_of(Schema schema);

/// Returns the present tensors of a module or a Record. Errors: cycle.
template <class M>
Result<Layout> layout_of(const M& module) {
  STELE_TRY_ASSIGN(const Snapshot snapshot, snapshot_of(module));
  return layout_of(snapshot);
}

}  // namespace stele::inline v0
