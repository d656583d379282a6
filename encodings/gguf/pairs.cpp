// Reads and writes the key-value pairs of GGUF files.
#include "pairs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/name_order.hpp"
#include "json/json.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::gguf {
namespace {

/// Maximum key length in bytes, from the specification.
constexpr std::uint64_t max_key_bytes = 65535;

Error too_large() { return index_error("the key-value pairs need more memory than the file's size allows"); }

std::optional<Type> type_of_code(std::uint32_t code) {
  return code < type_count ? std::optional(static_cast<Type>(code)) : std::nullopt;
}

/// Decodes the elements of arrays and single values from memory.
struct Decoder {
  /// Returns a value of a type with a fixed size. Errors: malformed (a bool other than 0 and 1).
  static Result<Value> number(Type type, const std::byte* at) {
    switch (type) {
      case Type::u8:
        return Value(std::int64_t{load_le<std::uint8_t>(at)});
      case Type::i8:
        return Value(std::int64_t{static_cast<std::int8_t>(load_le<std::uint8_t>(at))});
      case Type::u16:
        return Value(std::int64_t{load_le<std::uint16_t>(at)});
      case Type::i16:
        return Value(std::int64_t{static_cast<std::int16_t>(load_le<std::uint16_t>(at))});
      case Type::u32:
        return Value(std::int64_t{load_le<std::uint32_t>(at)});
      case Type::i32:
        return Value(std::int64_t{static_cast<std::int32_t>(load_le<std::uint32_t>(at))});
      case Type::i64:
        return Value(static_cast<std::int64_t>(load_le<std::uint64_t>(at)));
      case Type::u64: {
        const auto n = load_le<std::uint64_t>(at);
        constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        return n <= largest ? Value(static_cast<std::int64_t>(n)) : Value(n);
      }
      case Type::f32:
        return Value(static_cast<double>(std::bit_cast<float>(load_le<std::uint32_t>(at))));
      case Type::f64:
        return Value(std::bit_cast<double>(load_le<std::uint64_t>(at)));
      case Type::boolean:
        if (std::to_integer<unsigned>(*at) > 1) {
          return Error(Errc::malformed, "a bool of the key-value pairs is neither 0 nor 1")
              .expected("0 or 1")
              .found(std::to_string(std::to_integer<unsigned>(*at)));
        }
        return Value(*at != std::byte{0});
      case Type::string:
      case Type::array:
        break;
    }
    return Value();
  }
};

class Reader {
 public:
  Reader(Cursor& in, Properties& out, IndexBudget& memory) : in_(in), out_(out), memory_(memory) {}

  Status run(std::uint64_t count) {
    Value::Map map;
    for (std::uint64_t i = 0; i < count; ++i) {
      STELE_TRY(pair(map));
    }
    const auto order = order_by_name(static_cast<std::uint32_t>(map.size()),
                                     [&](std::uint32_t i) -> std::string_view { return map[i].first; });
    const auto same = std::adjacent_find(
        order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return map[a].first == map[b].first; });
    if (same != order.end()) {
      return Error(Errc::duplicate, "two key-value pairs have the same key").path(map[*same].first);
    }
    out_.values = Value(std::move(map));
    return {};
  }

 private:
  Status spend(std::uint64_t bytes) { return memory_.take(bytes) ? Status() : Status(too_large()); }

  Status pair(Value::Map& map) {
    const std::uint64_t start = in_.position();
    STELE_TRY_ASSIGN(std::string key, read_string(in_, memory_, "a key"));
    if (const char* const why = bad_key(key)) {
      return Error(Errc::malformed, "a key of the key-value pairs is invalid")
          .expected("1 to 65535 bytes of UTF-8 without a zero byte")
          .found(why)
          .offset(start);
    }
    auto read = [&]() -> Result<std::pair<PairType, Value>> {
      STELE_TRY_ASSIGN(const std::uint32_t code, in_.little<std::uint32_t>());
      const auto type = type_of_code(code);
      if (!type) return unknown_type(code);
      const std::size_t length = sizeof(std::uint64_t);  // read_string() admits the bytes after the length
      memory_.admit(length + sizeof code + (*type == Type::string ? length : size_of(*type)), index_rate::index);
      if (*type != Type::array) {
        STELE_TRY_ASSIGN(Value value, single(*type));
        return std::pair(PairType{*type}, std::move(value));
      }
      STELE_TRY_ASSIGN(const std::uint32_t element, in_.little<std::uint32_t>());
      const auto of = type_of_code(element);
      if (!of) return unknown_type(element);
      if (*of == Type::array) return Error(Errc::unsupported, "the key-value pairs contain an array of arrays");
      STELE_TRY_ASSIGN(Value value, array(*of));
      return std::pair(PairType{Type::array, *of}, std::move(value));
    }();
    if (!read) return std::move(read).error().path(key).offset(start);
    // The map may grow: it temporarily needs three times its content.
    STELE_TRY(spend(3 * sizeof(Value::Map::value_type)));
    auto& [type, value] = *read;
    if (const auto usual = usual_type(value); !usual || !(*usual == type)) {
      STELE_TRY(spend(128 + key.size()));
      out_.types.emplace(key, spelled(type));
    }
    map.emplace_back(std::move(key), std::move(value));
    return {};
  }

  static Error unknown_type(std::uint32_t code) {
    return Error(Errc::unsupported, "a key-value pair has an unknown type")
        .expected("0 to 12")
        .found(std::to_string(code));
  }

  Result<Value> single(Type type) {
    if (type == Type::string) {
      STELE_TRY_ASSIGN(std::string text, read_string(in_, memory_, "a string"));
      return Value(std::move(text));
    }
    STELE_TRY_ASSIGN(const std::byte* at, in_.take(size_of(type)));
    return Decoder::number(type, at);
  }

  Result<Value> array(Type type) {
    STELE_TRY_ASSIGN(const std::uint64_t count, in_.little<std::uint64_t>());
    const std::size_t size = type == Type::string ? sizeof(std::uint64_t) : size_of(type);
    if (count > in_.left() / size) {
      return Error(Errc::truncated, "the file ends inside an array")
          .expected(std::to_string(count) + " elements")
          .found(std::to_string(in_.left()) + " bytes");
    }
    memory_.admit(sizeof(std::uint32_t) + sizeof count + count * size, index_rate::index);
    if (type == Type::u8) {
      STELE_TRY(spend(count));
      Value::Bytes bytes(static_cast<std::size_t>(count));
      for (std::size_t done = 0; done < bytes.size();) {
        const std::size_t n = std::min(bytes.size() - done, Cursor::max_taken_bytes);
        STELE_TRY_ASSIGN(const std::byte* at, in_.take(n));
        std::memcpy(bytes.data() + done, at, n);
        done += n;
      }
      return Value(std::move(bytes));
    }
    STELE_TRY(spend(count * sizeof(Value)));
    Value::List list;
    list.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      STELE_TRY_ASSIGN(Value value, single(type));
      list.push_back(std::move(value));
    }
    return Value(std::move(list));
  }

  Cursor& in_;
  Properties& out_;
  IndexBudget& memory_;
};

bool exact_in_f32(double x) {
  if (!std::isfinite(x)) return true;
  return std::abs(x) <= static_cast<double>(std::numeric_limits<float>::max()) &&
         static_cast<double>(static_cast<float>(x)) == x;
}

/// The range of the integers, and the kinds of numbers, in a value or a list.
struct Kinds {
  bool booleans = false, strings = false, floats = false, wide_floats = false, integers = false, other = false;
  std::int64_t low = 0, high = 0;
  bool above = false;  // an integer above the range of i64

  void see(const Value& value) {
    if (value.as_bool() != nullptr) {
      booleans = true;
    } else if (value.as_string() != nullptr) {
      strings = true;
    } else if (const double* f = value.as_f64()) {
      floats = true;
      wide_floats = wide_floats || !exact_in_f32(*f);
    } else if (const std::int64_t* i = value.as_i64()) {
      integers = true;
      low = std::min(low, *i);
      high = std::max(high, *i);
    } else if (value.as_u64() != nullptr) {
      integers = above = true;
    } else {
      other = true;
    }
  }
  /// Returns true if the type can store every number.
  bool fit(Type type) const {
    const auto within = [&](auto limits) {
      using T = decltype(limits);
      if (above) return sizeof(T) == 8 && !std::numeric_limits<T>::is_signed;
      if (!std::numeric_limits<T>::is_signed && low < 0) return false;
      return low >= static_cast<std::int64_t>(std::numeric_limits<T>::min()) &&
             static_cast<std::uint64_t>(high) <= static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    };
    const bool ints_only = integers && !booleans && !strings && !floats && !other;
    switch (type) {
      case Type::u8:
        return ints_only && within(std::uint8_t{});
      case Type::i8:
        return ints_only && within(std::int8_t{});
      case Type::u16:
        return ints_only && within(std::uint16_t{});
      case Type::i16:
        return ints_only && within(std::int16_t{});
      case Type::u32:
        return ints_only && within(std::uint32_t{});
      case Type::i32:
        return ints_only && within(std::int32_t{});
      case Type::u64:
        return ints_only && within(std::uint64_t{});
      case Type::i64:
        return ints_only && within(std::int64_t{});
      case Type::f32:
        return floats && !wide_floats && !booleans && !strings && !integers && !other;
      case Type::f64:
        return floats && !booleans && !strings && !integers && !other;
      case Type::boolean:
        return booleans && !strings && !floats && !integers && !other;
      case Type::string:
        return strings && !booleans && !floats && !integers && !other;
      case Type::array:
        break;
    }
    return false;
  }
};

Kinds kinds_of(const Value& value) {
  Kinds kinds;
  if (const Value::List* const list = value.as_list()) {
    for (const Value& element : *list) kinds.see(element);
  } else {
    kinds.see(value);
  }
  return kinds;
}

std::optional<PairType> parse_type(std::string_view text) {
  const bool array = text.size() > 2 && text.front() == '[' && text.back() == ']';
  if (array) text = text.substr(1, text.size() - 2);
  for (std::uint32_t i = 0; i < type_count; ++i) {
    const auto type = static_cast<Type>(i);
    if (type == Type::array || type_name(type) != text) continue;
    return array ? PairType{Type::array, type} : PairType{type};
  }
  return std::nullopt;
}

bool fits(const Value& value, PairType type) {
  if (value.as_bytes() != nullptr) return type == PairType{Type::array, Type::u8};
  const bool list = value.as_list() != nullptr;
  if (list != (type.type == Type::array)) return false;
  if (list && value.as_list()->empty()) return true;
  return kinds_of(value).fit(list ? type.element : type.type);
}

void write_single(std::string& out, const Value& value, Type type) {
  const std::int64_t i = value.as_i64() != nullptr ? *value.as_i64() : 0;
  const double f = value.as_f64() != nullptr ? *value.as_f64() : 0;
  switch (type) {
    case Type::u8:
    case Type::i8:
      return write_number(out, static_cast<std::uint8_t>(i));
    case Type::boolean:
      return write_number(out, static_cast<std::uint8_t>(value.as_bool() != nullptr && *value.as_bool()));
    case Type::u16:
    case Type::i16:
      return write_number(out, static_cast<std::uint16_t>(i));
    case Type::u32:
    case Type::i32:
      return write_number(out, static_cast<std::uint32_t>(i));
    case Type::u64:
    case Type::i64:
      return write_number(out, value.as_u64() != nullptr ? *value.as_u64() : static_cast<std::uint64_t>(i));
    case Type::f32:
      return write_number(out, std::bit_cast<std::uint32_t>(static_cast<float>(f)));
    case Type::f64:
      return write_number(out, std::bit_cast<std::uint64_t>(f));
    case Type::string:
      return write_string(out, *value.as_string());
    case Type::array:
      return;
  }
}

}  // namespace

std::string spelled(PairType type) {
  if (type.type != Type::array) return std::string(type_name(type.type));
  return "[" + std::string(type_name(type.element)) + "]";
}

std::optional<PairType> usual_type(const Value& value) {
  if (value.as_bytes() != nullptr) return PairType{Type::array, Type::u8};
  const bool list = value.as_list() != nullptr;
  const Kinds kinds = kinds_of(value);
  if (list && value.as_list()->empty()) return PairType{Type::array, Type::i32};
  constexpr Type singles[] = {Type::boolean, Type::string, Type::u32, Type::i32,
                              Type::u64,     Type::i64,    Type::f32, Type::f64};
  constexpr Type elements[] = {Type::boolean, Type::string, Type::i32, Type::u32,
                               Type::i64,     Type::u64,    Type::f32, Type::f64};
  for (const Type type : list ? elements : singles) {
    if (kinds.fit(type)) return list ? PairType{Type::array, type} : PairType{type};
  }
  return std::nullopt;
}

const char* bad_key(std::string_view text) noexcept {
  if (text.empty()) return "no characters";
  return text.size() <= max_key_bytes ? bad_name(text) : "more than 65535 bytes";
}

const char* bad_name(std::string_view text) noexcept {
  if (text.find('\0') != text.npos) return "a zero byte";
  return json::valid_utf8(text) ? nullptr : "bytes that are not UTF-8";
}

Result<std::string> read_string(Cursor& in, IndexBudget& memory, const char* what) {
  STELE_TRY_ASSIGN(const std::uint64_t size, in.little<std::uint64_t>());
  if (size > in.left()) {
    return Error(Errc::truncated, std::string("the file ends inside ") + what)
        .expected(std::to_string(size) + " bytes")
        .found(std::to_string(in.left()))
        .offset(in.position());
  }
  memory.admit(size, index_rate::index);
  if (!memory.take(size)) return too_large();
  std::string text;
  if (size <= Cursor::max_taken_bytes) {
    STELE_TRY(in.text(size, text));
    return text;
  }
  text.resize(static_cast<std::size_t>(size));
  STELE_TRY(in.source()->read_at(in.position(), std::as_writable_bytes(std::span(text))));
  STELE_TRY(in.skip(size));
  return text;
}

Status read_pairs(Cursor& in, std::uint64_t count, Properties& out, IndexBudget& memory) {
  return Reader(in, out, memory).run(count);
}

void write_string(std::string& out, std::string_view text) {
  write_number(out, std::uint64_t{text.size()});
  out.append(text);
}

void write_pair(std::string& out, std::string_view key, const Value& value, std::string_view wanted) {
  PairType type = *usual_type(value);
  if (const auto had = parse_type(wanted); had && fits(value, *had)) type = *had;
  write_string(out, key);
  write_number(out, static_cast<std::uint32_t>(type.type));
  if (type.type != Type::array) return write_single(out, value, type.type);
  write_number(out, static_cast<std::uint32_t>(type.element));
  if (const Value::Bytes* const bytes = value.as_bytes()) {
    write_number(out, std::uint64_t{bytes->size()});
    out.append(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    return;
  }
  write_number(out, std::uint64_t{value.as_list()->size()});
  for (const Value& element : *value.as_list()) write_single(out, element, type.element);
}

}  // namespace stele::inline v0::detail::gguf
