// Value: one runtime tree for every part of a record that is not a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "stele/config.hpp"
#include "stele/node.hpp"
#include "stele/result.hpp"

namespace stele::inline v0 {

/// A null, bool, i64, u64, f64, string, bytes, list or ordered map. Numbers keep their kind. A u64 is used only for
/// numbers above the range of i64, so that equal numbers are equal Values. Maps keep the order of insertion.
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
  explicit Value(bool b) noexcept;
  explicit Value(std::int64_t i) noexcept;
  explicit Value(std::uint64_t u) noexcept;
  explicit Value(double f) noexcept;
  explicit Value(std::string s) noexcept;
  explicit Value(std::string_view s);
  explicit Value(const char* s);
  explicit Value(Bytes b) noexcept;
  explicit Value(List l) noexcept;
  explicit Value(Map m) noexcept;

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

  friend STELE_EXPORT bool operator==(const Value&, const Value&);

 private:
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Bytes, List, Map> data_;
};

/// Formats a Value as JSON on one line, without loss. A value that JSON does not have is an object with one key:
/// {"$bytes":base64}, {"$str":base64} for a string that is not UTF-8, {"$f64":"nan"|"inf"|"-inf"}; a key of a map that
/// begins with $ gets another $ before it. Errors: limit (more than 64 levels), duplicate (a map with equal keys).
STELE_EXPORT Result<std::string> to_json(const Value& value);

/// Parses a JSON document of any program: keys that begin with $ mean themselves. Numbers with a fraction or an
/// exponent are f64, others i64 or u64. Errors: malformed, duplicate (a key that occurs twice in an object), limit
/// (more than 64 levels), out_of_range (an integer of more than 64 bits).
STELE_EXPORT Result<Value> parse_json(std::string_view text);

/// Returns the kind's name: "null", "bool", "i64", …
constexpr std::string_view name(Value::Kind kind) noexcept {
  constexpr std::string_view names[] = {"null", "bool", "i64", "u64", "f64", "string", "bytes", "list", "map"};
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace stele::inline v0
