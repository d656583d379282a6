// The fields of a class in Rust: the recorded fields and the constants between them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/detail/type_info.hpp"
#include "stele/recorders/burn.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail::burn {

struct Field {
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  std::string_view name{};
  std::size_t recorded = none;  // index among the recorded fields; none if the field is a constant
  bool array = false;           // an array of `length` constants
  std::uint64_t length = 1;
  bool module = false;                     // a module without parameters; `inside` has its constants
  std::optional<std::uint32_t> variant{};  // number of an enum module's variant; `alternative` is its name
  std::string_view alternative{};
  std::vector<Field> inside{};

  /// Returns true if a record contains each element of the array: since 0.21, an array of numbers is one constant.
  bool is_list(BurnEra era) const noexcept { return array && (module || variant || era < BurnEra::v0_21); }
};

/// Appends a constant in bincode: zeros, and the numbers of variants.
void append_constant(const Field& constant, BurnEra era, std::vector<std::byte>& out);

/// Returns true if the class is a Record in Rust (burn_record).
bool is_record_class(const TypeInfo& type) noexcept;

/// Makes and caches the fields of each class on request.
class Fields {
 public:
  /// Returns the fields in Rust's order. Errors: invalid_argument (a burn_layout that cannot be read, or that leaves
  /// out a recorded field).
  Result<const std::vector<Field>*> of(const TypeInfo& type);
  /// Calls `constant(field)` or `recorded(field, type of the field)` for each field in Rust's order. Errors: those of
  /// of() and of the functions.
  template <class Constant, class Recorded>
  Status each(const TypeInfo& type, Constant constant, Recorded recorded) {
    STELE_TRY_ASSIGN(const std::vector<Field>* fields, of(type));
    const bool in_record = std::exchange(in_record_, is_record_class(type));
    for (const Field& field : *fields) {
      const bool is_constant = field.recorded == Field::none;
      STELE_TRY(is_constant ? constant(field) : recorded(field, *type.fields[field.recorded].type));
    }
    in_record_ = in_record;
    return {};
  }
  /// Returns true within each() if the innermost class is a Record in Rust.
  bool in_record() const noexcept { return in_record_; }

 private:
  std::map<const TypeInfo*, std::vector<Field>> known_;
  bool in_record_ = false;
};

/// Returns true if the type's Rust counterpart is an Option of the element, or the element itself.
inline bool is_holder(const TypeInfo& type) noexcept {
  return type.kind == TypeKind::optional || type.kind == TypeKind::pointer || type.kind == TypeKind::shared;
}
/// Returns true if the class represents a module without parameters (`Relu`, `Dropout`), which Rust records as a
/// constant.
bool is_constant_class(const TypeInfo& type) noexcept;

}  // namespace stele::inline v0::detail::burn
