// Names, keys and Values of a file's objects that are not tensors.
#include "objects.hpp"

#include <algorithm>
#include <utility>

#include "base/hex.hpp"
#include "json/json.hpp"
#include "tensors.hpp"

namespace stele::inline v0::detail::pytorch {
namespace {

using pickle::Kind;
using pickle::no_ref;
using pickle::Ref;

/// Returns the digits of a long integer (two's complement, little-endian): in base 10 up to 256 bytes; in base 16 if it
/// is longer, because base 10 takes quadratic time.
std::string digits(std::string_view bytes) {
  std::vector<std::uint8_t> number(bytes.begin(), bytes.end());
  const bool negative = !number.empty() && (number.back() & 0x80U) != 0;
  if (negative) {
    unsigned carry = 1;
    for (std::uint8_t& b : number) {
      const unsigned sum = static_cast<std::uint8_t>(~b) + carry;
      b = static_cast<std::uint8_t>(sum);
      carry = sum >> 8;
    }
  }
  std::string text;
  if (number.size() > 256) {
    for (const std::uint8_t b : number) text += {hex_digits[b & 15U], hex_digits[b >> 4U]};
    while (text.size() > 1 && text.back() == '0') text.pop_back();
    text += "x0";
  } else {
    // Computes in base 2^32 and emits nine digits at a time.
    std::vector<std::uint32_t> limbs((number.size() + 3) / 4);
    for (std::size_t i = 0; i < number.size(); ++i) limbs[i / 4] |= std::uint32_t{number[i]} << 8 * (i % 4);
    while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
    while (!limbs.empty()) {
      std::uint64_t rest = 0;
      for (std::size_t i = limbs.size(); i-- > 0;) {
        const std::uint64_t n = rest << 32 | limbs[i];
        limbs[i] = static_cast<std::uint32_t>(n / 1'000'000'000);
        rest = n % 1'000'000'000;
      }
      while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
      for (int i = 0; i < 9 && (rest != 0 || !limbs.empty()); ++i, rest /= 10)
        text += static_cast<char>('0' + rest % 10);
    }
    if (text.empty()) text = "0";
  }
  if (negative) text += '-';
  std::reverse(text.begin(), text.end());
  return text;
}

/// Stands in a Value for an object that contains the Value.
constexpr std::string_view around_class = "an object that contains this one";

/// Maximum length of a tuple key in text form: many dicts may share the tuple.
constexpr std::size_t max_tuple_bytes = 1000;

/// Appends a key in Python's notation: (1, 'a'). Returns false for objects, and for keys that are too long.
bool append_shown(const pickle::Objects& objects, Ref key, std::string& text) {
  switch (objects.kind(key)) {
    case Kind::string:
      if (objects.text(key).size() > max_tuple_bytes) return false;
      text.append("'").append(objects.text(key)) += '\'';
      break;
    case Kind::tuple: {
      const auto items = objects.items(key);
      text += '(';
      if (text.size() > max_tuple_bytes) return false;  // also bounds the depth
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (i != 0) text += ", ";
        if (!append_shown(objects, items[i], text)) return false;
      }
      text += items.size() == 1 ? ",)" : ")";
      break;
    }
    case Kind::none:
    case Kind::boolean:
    case Kind::integer:
    case Kind::real: {
      bool exact = true;
      text += key_text(objects, key, exact);
      break;
    }
    default:
      return false;
  }
  return text.size() <= max_tuple_bytes;
}

class Values {
 public:
  Values(File& file, IndexBudget& memory) : objects_(file.objects), tensors_(file, memory), memory_(memory) {}

  Result<Value> make(Ref r, unsigned depth) {
    if (depth > json::kMaxDepth / 2) return Error(Errc::limit, "objects are nested too deeply");
    // A growing vector temporarily needs three times its content.
    if (!memory_.take(3 * sizeof(Value))) return index_error("the file's objects need too much memory");
    r = tensors_.unwrapped(r);
    if (r == no_ref) return Value();
    if (auto plain = objects_.plain(r)) return *std::move(plain);
    // The levels are few. OmegaConf's settings contain the configuration that they are in.
    if (std::find(open_.begin(), open_.end(), r) != open_.end()) return object(std::string(around_class), Value());
    open_.push_back(r);
    auto value = made(r, depth);
    open_.pop_back();
    return value;
  }

 private:
  /// Converts an object that is not plain.
  Result<Value> made(Ref r, unsigned depth) {
    switch (objects_.kind(r)) {
      case Kind::big:
        return big(r);
      case Kind::string:
        STELE_TRY(take_text(r));
        return Value(objects_.text(r));
      case Kind::bytes: {
        STELE_TRY(take_text(r));
        const std::string_view text = objects_.text(r);
        const auto* at = reinterpret_cast<const std::byte*>(text.data());
        return Value(Value::Bytes(at, at + text.size()));
      }
      case Kind::list:
      case Kind::tuple:
        return list(objects_.items(r), depth);
      case Kind::set: {
        STELE_TRY_ASSIGN(Value items, list(objects_.items(r), depth + 1));
        return object("set", std::move(items));
      }
      case Kind::dict:
        return dict(objects_.items(r), depth);
      case Kind::global:
        return object(global_name(objects_, r), Value());
      case Kind::persistent: {
        STELE_TRY_ASSIGN(Value id, make(objects_.args(r), depth + 1));
        return object("persistent", std::move(id));
      }
      default:
        break;
    }
    return call(r, depth);
  }

  Status take_text(Ref r) {
    return memory_.take(objects_.text(r).size()) ? Status() : index_error("the file's strings need too much memory");
  }
  Result<Value> big(Ref r) {
    STELE_TRY(take_text(r));
    STELE_TRY(take_text(r));
    return object("int", Value(Value::List{Value(digits(objects_.text(r)))}));
  }
  static Value object(std::string name, Value args) {
    Value::Map map{{std::string(class_key), Value(std::move(name))}};
    if (!args.is_null()) map.emplace_back("args", std::move(args));
    return Value(std::move(map));
  }

  Result<Value> list(std::span<const Ref> items, unsigned depth) {
    Value::List all;
    for (const Ref item : items) {
      STELE_TRY_ASSIGN(Value value, make(item, depth + 1));
      all.push_back(std::move(value));
    }
    return Value(std::move(all));
  }

  Result<Value> dict(std::span<const Ref> items, unsigned depth) {
    Value::Map all;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      bool exact = true;
      std::string key = key_text(objects_, items[i], exact);
      if (!memory_.take(64 + key.size())) return index_error("the file's objects need too much memory");
      STELE_TRY_ASSIGN(Value value, make(items[i + 1], depth + 1));
      all.emplace_back(std::move(key), std::move(value));
    }
    // Different keys may have the same text: 1 and "1". The later ones become objects, which are never written.
    std::vector<std::size_t> order(all.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return all[a].first < all[b].first; });
    for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
      for (end = begin + 1; end < order.size() && all[order[end]].first == all[order[begin]].first; ++end) {
        if (!memory_.take(512 + all[order[end]].first.size())) {
          return index_error("the file's objects need too much memory");
        }
      }
      for (std::size_t i = begin + 1; i < end; ++i) {
        auto& [key, value] = all[order[i]];
        value = object("an entry whose key another one has", Value(Value::List{std::move(value)}));
        key += later_name(i - begin);
      }
    }
    return Value(std::move(all));
  }

  /// Converts an object: a NumPy scalar to a number, any other object to its name, arguments and attributes.
  Result<Value> call(Ref r, unsigned depth) {
    if (auto number = tensors_.numpy_scalar(r)) return *std::move(number);
    const Ref callable = objects_.callable(r);
    STELE_TRY_ASSIGN(Value args, make(objects_.args(r), depth + 1));
    if (const Value::List* list = args.as_list(); list != nullptr && list->empty()) args = Value();
    Value::Map map;
    if (objects_.is(callable, Kind::global)) {
      map.emplace_back(class_key, Value(global_name(objects_, callable)));
    } else {
      STELE_TRY_ASSIGN(Value function, make(callable, depth + 1));
      map.emplace_back(class_key, std::move(function));
    }
    if (!args.is_null()) map.emplace_back("args", std::move(args));
    if (objects_.state(r) != no_ref) {
      STELE_TRY_ASSIGN(Value state, make(objects_.state(r), depth + 1));
      map.emplace_back("state", std::move(state));
    }
    if (!objects_.items(r).empty()) {
      STELE_TRY_ASSIGN(Value items, list(objects_.items(r), depth + 1));
      map.emplace_back("items", std::move(items));
    }
    if (!objects_.entries(r).empty()) {
      STELE_TRY_ASSIGN(Value entries, dict(objects_.entries(r), depth + 1));
      map.emplace_back("entries", std::move(entries));
    }
    return Value(std::move(map));
  }

  const pickle::Objects& objects_;
  Tensors tensors_;
  IndexBudget& memory_;
  std::vector<Ref> open_;  // the objects around the present one
};

}  // namespace

Result<Value> to_value(File& file, Ref object, IndexBudget& memory) { return Values(file, memory).make(object, 0); }

std::string global_name(const pickle::Objects& objects, Ref global) {
  const std::string_view module = objects.module(global);
  std::string name;
  if (module != "builtins") name.append(module) += '.';
  return name += objects.name(global);
}

std::string key_text(const pickle::Objects& objects, Ref key, bool& exact) {
  switch (objects.kind(key)) {
    case Kind::string:
      return std::string(objects.text(key));
    case Kind::integer:
      return std::to_string(objects.integer(key));
    default:
      break;
  }
  exact = false;
  switch (objects.kind(key)) {
    case Kind::boolean:
      return objects.boolean(key) ? "True" : "False";
    case Kind::none:
      return "None";
    case Kind::big:
      return digits(objects.text(key));
    case Kind::global:
      return global_name(objects, key);
    case Kind::real: {
      std::string text;
      json::Writer(text).f64(objects.real(key) - objects.real(key) == 0 ? objects.real(key) : 0);
      return text;
    }
    case Kind::tuple:
      if (std::string text; append_shown(objects, key, text)) return text;
      [[fallthrough]];
    default:
      return "object " + std::to_string(key);
  }
}

Result<Ref> find_part(const pickle::Objects& objects, std::string_view path, std::vector<Ref>* way) {
  Ref r = objects.root();
  const std::string_view whole = path;
  for (bool found = true; !path.empty() && found;) {
    found = false;
    const auto try_key = [&](std::string_view key, Ref value) {
      if (!path.starts_with(key) || key.empty() || (path.size() > key.size() && path[key.size()] != '.')) return;
      r = value;
      path.remove_prefix(std::min(path.size(), key.size() + 1));
      found = true;
    };
    const Ref in = r;
    if (way != nullptr) way->push_back(in);
    const auto items = objects.is(in, Kind::object) ? objects.entries(in) : objects.items(in);
    if (objects.is(in, Kind::dict) || objects.is(in, Kind::object)) {
      for (std::size_t i = 0; i + 1 < items.size() && !found; i += 2) {
        bool exact = true;
        try_key(key_text(objects, items[i], exact), items[i + 1]);
      }
    } else if (objects.is(in, Kind::list) || objects.is(in, Kind::tuple)) {
      for (std::size_t i = 0; i < items.size() && !found; ++i) try_key(std::to_string(i), items[i]);
    }
  }
  if (path.empty()) return r;
  return Error(Errc::not_found, "the file has no such part").path(std::string(whole));
}

}  // namespace stele::inline v0::detail::pytorch
