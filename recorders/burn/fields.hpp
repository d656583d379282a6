// The fields of a class as in Rust: the recorded fields and the constants between them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stele/detail/type_info.hpp"
#include "stele/recorders/burn.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace burn {

struct Field {
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  std::string_view name{};
  std::size_t recorded = none;  // index among the recorded fields; none: a constant
  bool array = false;           // an array of `length` constants
  std::uint64_t length = 1;
  bool module = false;                     // has no parameters; `inside` are its constants
  std::optional<std::uint32_t> variant{};  // for an enum module, whose variant is named `alternative`
  std::string_view alternative{};
  std::vector<Field> inside{};
};

/// Appends a constant in bincode: zeros, and the numbers of variants.
void append_constant(const Field& constant, BurnEra era, std::vector<std::byte>& out);

/// Makes and caches the fields of each class on request.
class Fields {
 public:
  /// Returns the fields in Rust's order. Errors: invalid_argument (a burn_layout that cannot be read, or that leaves
  /// out a recorded field).
  Result<const std::vector<Field>*> of(const TypeInfo& type);

 private:
  std::map<const TypeInfo*, std::vector<Field>> known_;
};

/// Returns true if Rust has an Option of the element, or the element itself.
inline bool is_holder(const TypeInfo& type) noexcept {
  return type.kind == TypeKind::optional || type.kind == TypeKind::pointer || type.kind == TypeKind::shared;
}
/// Returns true if the class represents a module without parameters (`Relu`, `Dropout`), which Rust records as a
/// constant.
bool is_constant_class(const TypeInfo& type) noexcept;
/// Returns true if the class is a Record in Rust (burn_record).
bool is_record_class(const TypeInfo& type) noexcept;

}  // namespace burn
}  // namespace detail
}  // namespace v0
}  // namespace stele
