// Writes values as Python's objects into a pickle.
#include "values.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "json/json.hpp"
#include "objects.hpp"
#include "tree.hpp"

namespace stele::inline v0::detail::pytorch {
namespace {

constexpr std::size_t max_big_bytes = 255;   // maximum of LONG1, the longest integer that PyTorch's safe loader reads
constexpr std::size_t max_big_digits = 615;  // a sign and 614 digits: longer integers do not fit

/// Returns true for an integer as Python writes it: no leading zeros, no plus, no -0.
bool is_decimal(std::string_view text) {
  if (text.starts_with('-'))
    text.remove_prefix(1);
  else if (text == "0")
    return true;
  return !text.empty() && text[0] != '0' &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Returns an integer in two's complement, little-endian and as short as possible; nullopt if it is too long.
std::optional<std::string> long_of(std::string_view decimal) {
  if (!is_decimal(decimal) || decimal.size() > max_big_digits) return std::nullopt;
  const bool negative = decimal[0] == '-';
  std::vector<unsigned> bytes;
  for (const char c : decimal.substr(negative ? 1 : 0)) {
    auto carry = static_cast<unsigned>(c - '0');
    for (unsigned& b : bytes) {
      carry += b * 10;
      b = carry & 255U;
      carry >>= 8;
    }
    if (carry != 0) bytes.push_back(carry);
  }
  if (negative) {
    unsigned carry = 1;
    for (unsigned& b : bytes) {
      carry += ~b & 255U;
      b = carry & 255U;
      carry >>= 8;
    }
  }
  // The top bit is the sign.
  if (!bytes.empty() && ((bytes.back() & 128U) != 0) != negative) bytes.push_back(negative ? 255 : 0);
  while (bytes.size() > 1 && bytes.back() == (negative ? 255U : 0U) && ((bytes.end()[-2] & 128U) != 0) == negative) {
    bytes.pop_back();
  }
  if (bytes.size() > max_big_bytes) return std::nullopt;
  std::string made;
  for (const unsigned b : bytes) made += static_cast<char>(b);
  return made;
}

/// Writes an integer of any size that long_of() accepts.
void write_decimal(pickle::Writer& out, std::string& text, std::string_view decimal) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(decimal.data(), decimal.data() + decimal.size(), number);
  if (error == std::errc() && end == decimal.data() + decimal.size()) return out.integer(number);
  const std::string bytes = long_of(decimal).value_or(std::string());
  text += '\x8a';  // LONG1
  text += static_cast<char>(bytes.size());
  text += bytes;
}

/// Returns the digits of {"__class__": "int", "args": [digits]}, or nullptr.
const std::string* big_of(const Value& value) {
  const Value* const name = value.find(class_key);
  if (name == nullptr || name->as_string() == nullptr) return nullptr;
  if (*name->as_string() != "int" && *name->as_string() != "builtins.int") return nullptr;
  const Value* const args = value.find("args");
  const bool one = args != nullptr && args->as_list() != nullptr && args->as_list()->size() == 1;
  const std::string* const digits = one ? args->as_list()->front().as_string() : nullptr;
  return digits != nullptr && long_of(*digits) ? digits : nullptr;
}

}  // namespace

std::string obstacle(const Value& value) {
  if (const std::string* s = value.as_string()) return json::valid_utf8(*s) ? "" : "a string that is not UTF-8";
  if (const Value::List* list = value.as_list()) {
    for (const Value& v : *list) {
      if (std::string why = obstacle(v); !why.empty()) return why;
    }
  }
  const Value::Map* const map = value.as_map();
  if (map == nullptr || big_of(value) != nullptr) return {};
  if (const Value* name = value.find(class_key)) {
    return "an object of Python" + (name->as_string() != nullptr ? ": " + *name->as_string() : std::string());
  }
  for (const auto& [key, v] : *map) {
    if (!json::valid_utf8(key)) return "a key that is not UTF-8";
    if (std::string why = obstacle(v); !why.empty()) return why;
  }
  return {};
}

void write_key(pickle::Writer& out, std::string& text, std::string_view key, bool integers) {
  if (integers && long_of(key)) return write_decimal(out, text, key);
  out.string(key);
}

void write_value(pickle::Writer& out, std::string& text, const Value& value, const ContainerKinds* kinds,
                 std::string path) {
  const auto kind = [&]() -> ContainerKind {
    if (kinds == nullptr) return {'d'};
    const auto found = kinds->find(path);
    return found != kinds->end() ? found->second : ContainerKind{'d'};
  };
  const auto below = [&](std::string_view key) {
    return kinds == nullptr ? std::string() : path.empty() ? std::string(key) : path + '.' + std::string(key);
  };
  switch (value.kind()) {
    case ValueKind::null:
      return out.none();
    case ValueKind::boolean:
      return out.boolean(*value.as_bool());
    case ValueKind::i64:
      return out.integer(*value.as_i64());
    case ValueKind::u64:
      return out.unsigned_integer(*value.as_u64());
    case ValueKind::f64:
      return out.real(*value.as_f64());
    case ValueKind::string:
      return out.string(*value.as_string());
    case ValueKind::bytes: {
      const Value::Bytes& bytes = *value.as_bytes();
      return out.bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    case ValueKind::list: {
      const Value::List& list = *value.as_list();
      const char form = kind().kind;
      const bool tuple = form == 'v' || form == 't';
      if (tuple && list.empty()) return out.empty_tuple();
      if (!tuple) out.empty_list();
      if (list.empty()) return;
      out.mark();
      for (std::size_t i = 0; i < list.size(); ++i) write_value(out, text, list[i], kinds, below(std::to_string(i)));
      return tuple ? out.tuple() : out.appends();
    }
    case ValueKind::map: {
      if (const std::string* digits = big_of(value)) return write_decimal(out, text, *digits);
      const ContainerKind form = kind();
      if (form.kind == 'o') {
        out.global("collections", "OrderedDict");
        out.empty_tuple();
        out.reduce();
      } else {
        out.empty_dict();
      }
      if (value.as_map()->empty()) return;
      out.mark();
      for (const auto& [key, v] : *value.as_map()) {
        write_key(out, text, key, form.integers);
        write_value(out, text, v, kinds, below(key));
      }
      return out.set_items();
    }
  }
}

}  // namespace stele::inline v0::detail::pytorch
