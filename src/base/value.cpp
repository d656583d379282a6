#include "stele/value.hpp"

#include <cmath>
#include <utility>

#include "stele/detail/reflect.hpp"

namespace stele::inline v0 {

// Defined here, so that programs do not compile the members of a recursive variant.
Value::Value() noexcept = default;
void Value::set(bool b) noexcept { data_ = b; }
void Value::set(std::int64_t i) noexcept { data_ = i; }
void Value::set(std::uint64_t u) noexcept {
  if (u > static_cast<std::uint64_t>(INT64_MAX)) {
    data_ = u;
  } else {
    data_ = static_cast<std::int64_t>(u);
  }
}
void Value::set(double f) noexcept { data_ = f; }
Value::Value(std::string s) noexcept : data_(std::move(s)) {}
Value::Value(std::string_view s) : data_(std::string(s)) {}
Value::Value(const char* s) : data_(std::string(s)) {}
Value::Value(Bytes b) noexcept : data_(std::move(b)) {}
Value::Value(List l) noexcept : data_(std::move(l)) {}
Value::Value(Map m) noexcept : data_(std::move(m)) {}
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() = default;
bool operator==(const Value& a, const Value& b) { return a.data_ == b.data_; }

const Value* Value::find(std::string_view key) const noexcept {
  if (const Map* map = as_map()) {
    for (const auto& [name, value] : *map) {
      if (name == key) return &value;
    }
  }
  return nullptr;
}

ValueEntry Value::at(std::string_view key) const& { return ValueEntry(*this).at(key); }
ValueEntry Value::at(std::size_t index) const& { return ValueEntry(*this).at(index); }
ValueEntry Value::at(std::string_view key) && { return ValueEntry(std::move(*this)).at(key); }
ValueEntry Value::at(std::size_t index) && { return ValueEntry(std::move(*this)).at(index); }

ValueEntry::ValueEntry(Value&& value) : owner_(std::make_shared<const Value>(std::move(value))) {
  value_ = owner_.get();
}

ValueEntry ValueEntry::at(std::string_view key) const {
  ValueEntry entry = *this;
  if (!path_.empty()) entry.path_ += '.';
  entry.path_ += key;
  entry.value_ = value_ != nullptr ? value_->find(key) : nullptr;
  return entry;
}

ValueEntry ValueEntry::at(std::size_t index) const {
  ValueEntry entry = *this;
  if (!path_.empty()) entry.path_ += '.';
  entry.path_ += std::to_string(index);
  const Value::List* const list = value_ != nullptr ? value_->as_list() : nullptr;
  entry.value_ = list != nullptr && index < list->size() ? &(*list)[index] : nullptr;
  return entry;
}

Error ValueEntry::refusal(std::string_view expected, bool integer) const {
  if (value_ == nullptr) return Error(Errc::not_found, "the value has no such entry").path(path_);
  constexpr std::size_t max_shown = 60;
  const auto json = to_json(*value_);
  std::string found(name(value_->kind()));
  if (json && json->size() <= max_shown) found += " " + *json;
  const bool is_integer = value_->as_i64() != nullptr || value_->as_u64() != nullptr;
  return Error(integer && is_integer ? Errc::out_of_range : Errc::value_mismatch, "the value has another type or range")
      .path(path_)
      .expected(expected)
      .found(found);
}

namespace detail {

void assign_value(const Value& from, Value& to) { to = from; }

bool from_value(const Value& in, std::int64_t low, std::int64_t high, std::int64_t& out) {
  const std::int64_t* i = in.as_i64();
  if (i == nullptr || *i < low || *i > high) return false;
  out = *i;
  return true;
}

bool from_value(const Value& in, std::uint64_t high, std::uint64_t& out) {
  if (const std::uint64_t* u = in.as_u64()) {
    out = *u;
  } else if (const std::int64_t* i = in.as_i64(); i != nullptr && *i >= 0) {
    out = static_cast<std::uint64_t>(*i);
  } else {
    return false;
  }
  return out <= high;
}

bool from_value(const Value& in, bool& out) {
  if (in.as_bool() == nullptr) return false;
  out = *in.as_bool();
  return true;
}

bool from_value(const Value& in, double highest, double& out) {
  constexpr std::int64_t exact = std::int64_t{1} << 53;
  if (const double* f = in.as_f64()) {
    out = *f;
  } else if (const std::int64_t* i = in.as_i64(); i != nullptr && *i >= -exact && *i <= exact) {
    out = static_cast<double>(*i);  // also accepts an integer, as in hand-written files
  } else {
    return false;
  }
  return !std::isfinite(out) || std::fabs(out) <= highest;
}

bool from_value(const Value& in, std::string& out) {
  if (in.as_string() == nullptr) return false;
  out = *in.as_string();
  return true;
}

bool from_value(const Value& in, std::span<const EnumName> names, std::uint64_t& bits) {
  const std::string* text = in.as_string();
  for (const EnumName& name : names) {
    if (text != nullptr && name.text == *text) return bits = name.bits, true;
  }
  return false;
}

bool is_text(const Value& in) { return in.as_string() != nullptr; }

}  // namespace detail
}  // namespace stele::inline v0
