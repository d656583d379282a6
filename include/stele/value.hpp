// Value: a runtime tree for all parts of a record that are not tensors.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "stele/config.hpp"
#include "stele/detail/value_table.hpp"
#include "stele/node.hpp"
#include "stele/result.hpp"

namespace stele::inline v0 {

class ValueEntry;

namespace detail {
template <class T>
concept ValueInteger =
    std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char> && !std::is_same_v<T, wchar_t> &&
    !std::is_same_v<T, char8_t> && !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t>;
template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
}  // namespace detail

/// A null, bool, i64, u64, f64, string, bytes, list or ordered map. Numbers keep their kind. A u64 is used only for
/// numbers above the range of i64, so that equal numbers are equal Values. Maps keep the insertion order.
class STELE_EXPORT Value {
 public:
  using Bytes = std::vector<std::byte>;
  using List = std::vector<Value>;
  using Map = std::vector<std::pair<std::string, Value>>;
  using Kind = ValueKind;

  Value() noexcept;
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;
  ~Value();
  // Implicit, so that {{"epoch", 3}, {"name", "adam"}} is a Map.
  template <class T>
  requires std::is_same_v<T, bool>  // excludes pointers
  Value(T b)
  noexcept { set(b); }
  template <detail::ValueInteger T>
  Value(T i) noexcept {
    if constexpr (std::is_signed_v<T>) {
      set(static_cast<std::int64_t>(i));
    } else {
      set(static_cast<std::uint64_t>(i));
    }
  }
  template <std::floating_point T>
  Value(T f) noexcept {
    set(static_cast<double>(f));
  }
  Value(std::string s) noexcept;
  Value(std::string_view s);
  Value(const char* s);
  Value(Bytes b) noexcept;
  Value(List l) noexcept;
  Value(Map m) noexcept;
  template <class T>
  requires(!std::is_same_v<T, Value> && std::is_convertible_v<T, Value>) Value(const std::vector<T>& list)
      : Value(List(list.begin(), list.end())) {}

  Kind kind() const noexcept { return static_cast<Kind>(data_.index()); }
  bool is_null() const noexcept { return kind() == Kind::null; }
  /// Returns the content if it has that kind, else nullptr.
  const bool* as_bool() const noexcept { return std::get_if<bool>(&data_); }
  const std::int64_t* as_i64() const noexcept { return std::get_if<std::int64_t>(&data_); }
  const std::uint64_t* as_u64() const noexcept { return std::get_if<std::uint64_t>(&data_); }
  const double* as_f64() const noexcept { return std::get_if<double>(&data_); }
  const std::string* as_string() const noexcept { return std::get_if<std::string>(&data_); }
  const Bytes* as_bytes() const noexcept { return std::get_if<Bytes>(&data_); }
  const List* as_list() const noexcept { return std::get_if<List>(&data_); }
  const Map* as_map() const noexcept { return std::get_if<Map>(&data_); }
  List* as_list() noexcept { return std::get_if<List>(&data_); }
  Map* as_map() noexcept { return std::get_if<Map>(&data_); }
  /// Returns the first entry of a map with that key; nullptr if there is none or this Value is not a map.
  const Value* find(std::string_view key) const noexcept;
  /// Returns an entry of a map, or an element of a list, for conversion: `value.at("adam").at("beta1").to<double>()`.
  /// If it does not exist, to() returns an error. The entry of a temporary Value owns it.
  ValueEntry at(std::string_view key) const&;
  ValueEntry at(std::size_t index) const&;
  ValueEntry at(std::string_view key) &&;
  ValueEntry at(std::size_t index) &&;
  /// Converts this value; see ValueEntry::to().
  template <class T>
  Result<T> to() const;

  friend STELE_EXPORT bool operator==(const Value&, const Value&);

 private:
  void set(bool b) noexcept;
  void set(std::int64_t i) noexcept;
  void set(std::uint64_t u) noexcept;
  void set(double f) noexcept;
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Bytes, List, Map> data_;
};

/// An entry of a Value, or the absence of one, with its path.
class STELE_EXPORT ValueEntry {
 public:
  ValueEntry at(std::string_view key) const;
  ValueEntry at(std::size_t index) const;
  /// Returns the Value; nullptr if the entry does not exist.
  const Value* get() const noexcept { return value_; }
  /// Converts to a bool, a number, a string, an enum, a type with value_traits, a Value, or a std::vector of these.
  /// Integers become floats if they are at most 2^53; floats never become integers. Errors, with the entry's path:
  /// not_found, value_mismatch, out_of_range (an integer).
  template <class T>
  Result<T> to() const {
    return detail::guarded([&]() -> Result<T> {
      if (value_ == nullptr) return refusal({}, false);
      if constexpr (std::is_same_v<T, Value::Bytes>) {
        if (value_->as_bytes() == nullptr) return refusal("bytes", false);
        return *value_->as_bytes();
      } else if constexpr (detail::is_vector<T>) {
        if (value_->as_list() == nullptr) return refusal("a list", false);
        T list;
        for (std::size_t i = 0; i < value_->as_list()->size(); ++i) {
          auto item = at(i).template to<typename T::value_type>();
          if (!item) return std::move(item).error();
          list.push_back(*std::move(item));
        }
        return list;
      } else {
        T out{};
        const std::string_view expected = detail::ValueTable<T>::from(&out, *value_);
        if (!expected.empty()) return refusal(expected, detail::ValueInteger<T>);
        return out;
      }
    });
  }

 private:
  friend class Value;
  explicit ValueEntry(const Value& value) noexcept : value_(&value) {}
  explicit ValueEntry(Value&& value);
  Error refusal(std::string_view expected, bool integer) const;

  const Value* value_;
  std::shared_ptr<const Value> owner_;
  std::string path_;
};

template <class T>
Result<T> Value::to() const {
  return ValueEntry(*this).to<T>();
}

/// Formats a Value as JSON on one line, without loss. A value without a JSON equivalent is an object with one key:
/// {"$bytes":base64}, {"$str":base64} for a string that is not UTF-8, {"$f64":"nan"|"inf"|"-inf"}; a map key that
/// begins with $ gets another $ before it. Errors: limit (more than 64 levels), duplicate (a map with equal keys).
STELE_EXPORT Result<std::string> to_json(const Value& value);

/// Parses a JSON document of any program: keys that begin with $ have no special meaning. Numbers with a fraction or an
/// exponent are f64, others i64 or u64. Errors: malformed, duplicate (a key that occurs twice in an object), limit
/// (more than 64 levels), out_of_range (an integer of more than 64 bits).
STELE_EXPORT Result<Value> parse_json(std::string_view text);

/// Returns the kind's name: "null", "bool", "i64", …
constexpr std::string_view name(Value::Kind kind) noexcept {
  constexpr std::string_view names[] = {"null", "bool", "i64", "u64", "f64", "string", "bytes", "list", "map"};
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace stele::inline v0
