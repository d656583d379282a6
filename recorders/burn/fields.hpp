// The fields of a class as Rust has them: the recorded ones and the constants between them.
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
  std::size_t recorded = none;  // its number among the recorded fields; none: a constant
  bool array = false;           // of `length` constants
  std::uint64_t length = 1;
  bool module = false;                     // without parameters; `inside` are its constants
  std::optional<std::uint32_t> variant{};  // of an enum module, whose name is `alternative`
  std::string_view alternative{};
  std::vector<Field> inside{};
};

/// What bincode has for a constant: zeros, and the numbers of variants.
void append_constant(const Field& constant, BurnEra era, std::vector<std::byte>& out);

/// Of each class that is asked for, made once.
class Fields {
 public:
  /// In Rust's order. Errors: invalid_argument (a burn_layout that cannot be read, or that leaves out a recorded
  /// field).
  Result<const std::vector<Field>*> of(const TypeInfo& type);

 private:
  std::map<const TypeInfo*, std::vector<Field>> known_;
};

/// Rust has Option of it, or the thing itself.
inline bool is_holder(const TypeInfo& type) noexcept {
  return type.kind == TypeKind::optional || type.kind == TypeKind::pointer || type.kind == TypeKind::shared;
}
/// The class stands for a module without parameters (`Relu`, `Dropout`), which Rust records as a constant.
bool is_constant_class(const TypeInfo& type) noexcept;
/// The class is a Record in Rust (burn_record).
bool is_record_class(const TypeInfo& type) noexcept;

}  // namespace burn
}  // namespace detail
}  // namespace v0
}  // namespace stele
