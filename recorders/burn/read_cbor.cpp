// Reads CBOR (RFC 8949) item by item.
#include "cbor.hpp"

#include <algorithm>
#include <bit>
#include <vector>

#include "json/json.hpp"

namespace stele::inline v0::detail::cbor {
namespace {

constexpr const char* kind_names[] = {
    "nothing", "an unsigned integer", "a negative integer", "bytes", "a string", "a list", "a map", "a bool", "null",
    "a float"};

}  // namespace

bool Reader::fail(Errc code, const char* message) { return !error_ && fail(Error(code, message)); }

bool Reader::fail(Error error) {
  if (!error_) error_ = std::move(error).offset(base_ + token_);
  return false;
}

Kind Reader::peek() const noexcept {
  if (error_ || remaining() == 0) return Kind::none;
  const auto first = std::to_integer<unsigned>(bytes_[at_]);
  if (first < 0xc0) return static_cast<Kind>(1 + (first >> 5));
  if (first == 0xf4 || first == 0xf5) return Kind::boolean;
  if (first == 0xf6) return Kind::null;
  return first >= 0xf9 && first <= 0xfb ? Kind::real : Kind::none;
}

bool Reader::head(Head& out) {
  if (error_) return false;
  token_ = at_;
  if (remaining() == 0) return fail(Errc::truncated, "the CBOR data ends before the value");
  out.kind = peek();
  const auto first = std::to_integer<unsigned>(bytes_[at_]);
  const unsigned info = first & 31;
  if (first >> 5 == 6) return fail(Errc::unsupported, "the reader does not support tags");
  if (info == 31) return fail(Errc::unsupported, "the reader does not support indefinite lengths");
  if (info > 27) return fail(Errc::malformed, "the first byte has a reserved length");
  if (out.kind == Kind::none) return fail(Errc::unsupported, "the reader does not support this simple value");
  ++at_;
  out.number = info;
  if (info >= 24) {
    const std::size_t width = std::size_t{1} << (info - 24);
    if (width > remaining()) return fail(Errc::truncated, "the CBOR data ends inside a number");
    out.number = 0;
    for (const std::byte b : bytes_.subspan(at_, width)) out.number = out.number << 8 | std::to_integer<unsigned>(b);
    at_ += width;
  }
  if (out.kind == Kind::real && info < 27) out.number = widened_float(out.number, 1U << (info - 24));
  if (out.kind == Kind::boolean) out.number = first & 1;
  const bool counts = out.kind >= Kind::bytes && out.kind <= Kind::map;
  if (counts && out.number > remaining() / (out.kind == Kind::map ? 2 : 1)) {
    return fail(Errc::truncated, "the length exceeds the remaining bytes");
  }
  return true;
}

bool Reader::one(Kind kind, const char* expected, std::uint64_t& number) {
  Head h;
  if (!head(h)) return false;
  if (h.kind != kind) {
    return fail(Error(Errc::malformed, "the value has an unexpected type")
                    .expected(expected)
                    .found(kind_names[static_cast<std::size_t>(h.kind)]));
  }
  number = h.number;
  return true;
}

bool Reader::string(std::uint64_t size, bool text, std::string_view& out) {
  out = {reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<std::size_t>(size)};
  at_ += out.size();
  return !text || json::valid_utf8(out) || fail(Errc::malformed, "the string is not UTF-8");
}

bool Reader::read_text(std::string_view& out) {
  std::uint64_t size = 0;
  return one(Kind::text, "a string", size) && string(size, true, out);
}

bool Reader::read_i64(std::int64_t& out) {
  const bool negative = peek() == Kind::negative;
  std::uint64_t n = 0;
  if (!one(negative ? Kind::negative : Kind::natural, "an integer", n)) return false;
  if (n > static_cast<std::uint64_t>(INT64_MAX))
    return fail(Errc::out_of_range, "the integer exceeds 64 bits with sign");
  out = static_cast<std::int64_t>(negative ? ~n : n);
  return true;
}

bool Reader::read_f64(double& out) {
  std::uint64_t bits = 0;
  if (!one(Kind::real, "a float", bits)) return false;
  out = std::bit_cast<double>(bits);
  return true;
}

bool Reader::read_bool(bool& out) {
  std::uint64_t n = 0;
  if (!one(Kind::boolean, "a bool", n)) return false;
  out = n != 0;
  return true;
}

bool Reader::read_null() {
  std::uint64_t n = 0;
  return one(Kind::null, "null", n);
}

bool Reader::skip(unsigned depth) {
  Head h;
  if (!head(h)) return false;
  std::string_view ignored;
  if (h.kind == Kind::bytes || h.kind == Kind::text) return string(h.number, h.kind == Kind::text, ignored);
  if (h.kind != Kind::list && h.kind != Kind::map) return true;
  if (depth == 0) return fail(Errc::limit, "lists and maps are nested more than 60 levels deep");
  for (std::uint64_t n = h.kind == Kind::map ? 2 * h.number : h.number; n != 0; --n) {
    if (!skip(depth - 1)) return false;
  }
  return true;
}

bool Reader::read(Value& out, std::uint64_t& memory, unsigned depth) {
  const auto spend = [&](std::uint64_t bytes) {
    if (bytes > memory) return fail(Errc::limit, "the values take too much memory for a file of this size");
    memory -= bytes;
    return true;
  };
  if (peek() == Kind::negative) {
    std::int64_t n = 0;
    return read_i64(n) && (out = Value(n), true);
  }
  Head h;
  if (!head(h)) return false;
  std::string_view text;
  switch (h.kind) {
    case Kind::natural:
      out = Value(h.number);
      return true;
    case Kind::boolean:
      out = Value(h.number != 0);
      return true;
    case Kind::real:
      out = Value(std::bit_cast<double>(h.number));
      return true;
    case Kind::text:
      if (!string(h.number, true, text) || !spend(h.number)) return false;
      out = Value(text);
      return true;
    case Kind::bytes: {
      if (!string(h.number, false, text) || !spend(h.number)) return false;
      const auto bytes = std::as_bytes(std::span(text));
      out = Value(Value::Bytes(bytes.begin(), bytes.end()));
      return true;
    }
    case Kind::list: {
      if (depth == 0) return fail(Errc::limit, "lists and maps are nested more than 60 levels deep");
      if (!spend(h.number * sizeof(Value))) return false;
      Value::List list(static_cast<std::size_t>(h.number));
      for (Value& element : list) {
        if (!read(element, memory, depth - 1)) return false;
      }
      out = Value(std::move(list));
      return true;
    }
    case Kind::map: {
      if (depth == 0) return fail(Errc::limit, "lists and maps are nested more than 60 levels deep");
      if (!spend(h.number * (sizeof(Value::Map::value_type) + sizeof(std::string_view)))) return false;
      Value::Map map(static_cast<std::size_t>(h.number));
      std::vector<std::string_view> keys;
      keys.reserve(map.size());
      for (auto& [key, element] : map) {
        if (!read_text(text) || !spend(text.size())) return false;
        key = std::string(text);
        keys.push_back(text);
        if (!read(element, memory, depth - 1)) return false;
      }
      std::sort(keys.begin(), keys.end());
      if (std::adjacent_find(keys.begin(), keys.end()) != keys.end())
        return fail(Errc::duplicate, "a key of the map occurs twice");
      out = Value(std::move(map));
      return true;
    }
    default:
      out = Value();
      return true;
  }
}

bool Reader::finish() {
  token_ = at_;
  return ok() && (remaining() == 0 || fail(Errc::malformed, "bytes follow the CBOR value"));
}

}  // namespace stele::inline v0::detail::cbor
