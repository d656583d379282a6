#include "stele/value.hpp"

#include <cmath>

#include "stele/detail/reflect.hpp"

namespace stele {
inline namespace v0 {
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
    out = static_cast<double>(*i);  // an integer, as people write by hand
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
}  // namespace v0
}  // namespace stele
