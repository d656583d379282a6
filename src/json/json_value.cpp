// Reads and writes Values as JSON.
#include "json/json.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/hex.hpp"
#include "json/characters.hpp"

namespace stele::inline v0 {
namespace detail::json {

namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
constexpr std::size_t kSmallMap = 16;  // up to this size, comparing all pairs is faster than sorting
constexpr std::string_view kStringKey = "$str:";
constexpr std::uint64_t kPlainNan = 0x7ff8000000000000u;

// Returns the first entry whose key an earlier entry also has. Sorts instead of hashing, so that no input takes
// quadratic time.
std::size_t find_duplicate(const Value::Map& map) {
  if (map.size() <= kSmallMap) {
    for (std::size_t i = 1; i < map.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (map[i].first == map[j].first) return i;
      }
    }
    return kNone;
  }
  std::vector<std::size_t> order(map.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const int compared = map[a].first.compare(map[b].first);
    return compared != 0 ? compared < 0 : a < b;
  });
  std::size_t found = kNone;
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (map[order[i]].first == map[order[i - 1]].first) found = std::min(found, order[i]);
  }
  return found;
}

Error too_deep() { return Error(Errc::limit, "a value nests too deeply for JSON").expected("at most 64 levels"); }

template <class Content>
Status write_special(Writer& writer, std::string_view key, const Content& content) {
  if (writer.depth() >= kMaxDepth) return too_deep();
  writer.begin_object();
  writer.key(key);
  if constexpr (std::is_same_v<Content, std::string_view>) {
    writer.string(content);
  } else {
    writer.base64(std::as_bytes(std::span(content)));
  }
  writer.end_object();
  return {};
}

Status write_f64(Writer& writer, double number) {
  if (std::isfinite(number)) return writer.f64(number), Status();
  const auto bits = std::bit_cast<std::uint64_t>(number);
  const std::string digits = "0x" + hex(bits);
  const std::string_view text = std::isinf(number)  ? (number < 0 ? "-inf" : "inf")
                                : bits == kPlainNan ? "nan"
                                                    : std::string_view(digits);
  return write_special(writer, "$f64", text);
}

Status write_map(Writer& writer, const Value::Map& map) {
  if (const std::size_t twice = find_duplicate(map); twice != kNone) {
    return Error(Errc::duplicate, "a key occurs twice in a map").found(map[twice].first);
  }
  if (writer.depth() >= kMaxDepth) return too_deep();
  writer.begin_object();
  for (const auto& [key, value] : map) {
    writer.key(coded_key(key));
    STELE_TRY(write_value(writer, value));
  }
  writer.end_object();
  return {};
}

// Recursion stops at the reader's maximum depth.
class ValueReader {
 public:
  ValueReader(Reader& reader, std::size_t memory, bool plain) : reader_(reader), left_(memory), plain_(plain) {}

  bool read(Value& out) {
    switch (reader_.peek()) {
      case Kind::null:
        return out = Value(), reader_.read_null();
      case Kind::number:
        return reader_.read_number(out);
      case Kind::boolean: {
        bool b = false;
        return reader_.read_bool(b) && (out = Value(b), true);
      }
      case Kind::string: {
        std::string_view text;
        return reader_.read_string(text, scratch_) && take(text.size()) && (out = Value(text), true);
      }
      case Kind::array: {
        Value::List list;
        for (reader_.begin_array(); reader_.next_element();) {
          if (!grow(list) || !read(list.emplace_back())) return false;
        }
        return reader_.ok() && (out = Value(std::move(list)), true);
      }
      case Kind::object:
        return read_map(out);
      case Kind::none:
        break;
    }
    return malformed("a value");
  }

 private:
  static constexpr std::size_t kBlock = 32;  // maximum overhead of an allocation: its header and rounding up

  bool malformed(const char* expected) { return reader_.fail(Errc::malformed, expected); }

  bool take(std::size_t bytes) {
    if (left_ < kBlock || left_ - kBlock < bytes) {
      return reader_.fail(Errc::limit, "a smaller value", "a value takes more memory than allowed");
    }
    left_ -= bytes + kBlock;
    return true;
  }

  // Doubles a full vector; old and new memory are both counted while both exist.
  template <class Vector>
  bool grow(Vector& v) {
    if (v.size() < v.capacity()) return true;
    const std::size_t old = v.capacity() * sizeof(v[0]), more = old == 0 ? 2 * sizeof(v[0]) : 2 * old;
    if (!take(more)) return false;
    v.reserve(more / sizeof(v[0]));
    if (old != 0) left_ += old + kBlock;
    return true;
  }

  bool read_map(Value& out) {
    const Reader start = reader_;
    Value::Map map;
    std::string_view key;
    for (reader_.begin_object(); reader_.next_key(key, scratch_);) {
      const bool coded = !plain_ && key.starts_with(kStringKey);
      if (!plain_ && key.starts_with('$') && !coded && !key.starts_with("$$")) {
        return map.empty() ? read_special(key, out)
                           : reader_.fail(Errc::malformed, "}", "an object with a $ key has another key");
      }
      if (!plain_ && key.starts_with('$')) key.remove_prefix(coded ? kStringKey.size() : 1);
      if (!grow(map) || !take(key.size())) return false;
      auto& [name, value] = map.emplace_back(key, Value());
      if ((coded && !decode_into(name, key)) || !read(value)) return false;
    }
    if (!reader_.ok()) return false;
    if (map.size() > kSmallMap) {
      if (!take(map.size() * sizeof(std::size_t))) return false;
      left_ += map.size() * sizeof(std::size_t) + kBlock;
    }
    if (std::size_t twice = find_duplicate(map); twice != kNone) {
      // Reads up to the second key again, for its offset.
      reader_ = start;
      for (reader_.begin_object(); reader_.next_key(key, scratch_) && twice != 0; --twice) reader_.skip_value();
      return reader_.fail(Errc::duplicate, "", "a key occurs twice in a map");
    }
    out = Value(std::move(map));
    return true;
  }

  template <class Container>
  bool decode_into(Container& out, std::string_view text) {
    Container bytes(base64_decoded_size(text), typename Container::value_type{});
    if (!base64_decode(text, std::as_writable_bytes(std::span(bytes)).data())) return malformed("base64");
    out = std::move(bytes);
    return true;
  }

  bool read_special(std::string_view key, Value& out) {
    enum { bytes, str, f64, other } what = key == "$bytes" ? bytes : key == "$str" ? str : key == "$f64" ? f64 : other;
    if (what == other) return reader_.fail(Errc::unsupported, "$bytes, $str or $f64");
    std::string_view text;
    if (!reader_.read_string(text, scratch_)) return false;
    if (what == bytes) {
      Value::Bytes content;
      if (!take(base64_decoded_size(text)) || !decode_into(content, text)) return false;
      out = Value(std::move(content));
    } else if (what == str) {
      std::string content;
      if (!take(base64_decoded_size(text)) || !decode_into(content, text)) return false;
      out = Value(std::move(content));
    } else if (!read_f64(text, out)) {
      return malformed("nan, inf, -inf or 0x and the 16 hex digits of a NaN");
    }
    if (reader_.next_key(text, scratch_))
      return reader_.fail(Errc::malformed, "}", "an object with a $ key has another key");
    return reader_.ok();
  }

  static bool read_f64(std::string_view text, Value& out) {
    const double inf = std::numeric_limits<double>::infinity();
    std::uint64_t bits = kPlainNan;
    if (text == "inf" || text == "-inf") return out = Value(text == "inf" ? inf : -inf), true;
    if (text != "nan") {
      const auto digits = text.starts_with("0x") ? from_hex(text.substr(2)) : std::nullopt;
      if (!digits) return false;
      bits = *digits;
    }
    const auto number = std::bit_cast<double>(bits);
    return out = Value(number), std::isnan(number);
  }

  Reader& reader_;
  std::size_t left_;
  bool plain_;
  std::string scratch_;
};

}  // namespace

std::string coded_key(std::string_view key) {
  if (valid_utf8(key)) return (key.starts_with('$') ? "$" : "") + std::string(key);
  std::string text(kStringKey);
  text.resize(kStringKey.size() + base64_size(key.size()));
  base64_encode(std::as_bytes(std::span(key)), text.data() + kStringKey.size());
  return text;
}

Status write_value(Writer& writer, const Value& value) {
  switch (value.kind()) {
    case Value::Kind::null:
      writer.null();
      break;
    case Value::Kind::boolean:
      writer.boolean(*value.as_bool());
      break;
    case Value::Kind::i64:
      writer.i64(*value.as_i64());
      break;
    case Value::Kind::u64:
      writer.u64(*value.as_u64());
      break;
    case Value::Kind::f64:
      return write_f64(writer, *value.as_f64());
    case Value::Kind::string:
      if (!valid_utf8(*value.as_string())) return write_special(writer, "$str", *value.as_string());
      writer.string(*value.as_string());
      break;
    case Value::Kind::bytes:
      return write_special(writer, "$bytes", *value.as_bytes());
    case Value::Kind::map:
      return write_map(writer, *value.as_map());
    case Value::Kind::list:
      if (writer.depth() >= kMaxDepth) return too_deep();
      writer.begin_array();
      for (const Value& element : *value.as_list()) STELE_TRY(write_value(writer, element));
      writer.end_array();
  }
  return {};
}

Status read_value(Reader& reader, Value& out, std::size_t memory, bool plain) {
  Value value;
  if (!ValueReader(reader, memory, plain).read(value)) return reader.error();
  out = std::move(value);
  return {};
}

}  // namespace detail::json

Result<std::string> to_json(const Value& value) {
  std::string text;
  detail::json::Writer writer(text);
  STELE_TRY(detail::json::write_value(writer, value));
  return text;
}

Result<Value> parse_json(std::string_view text) {
  detail::json::Reader reader(text);
  Value value;
  STELE_TRY(detail::json::read_value(reader, value, detail::json::unbounded, true));
  if (!reader.finish()) return reader.error();
  return value;
}

}  // namespace stele::inline v0
