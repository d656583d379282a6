#include "cbor.hpp"

#include <algorithm>
#include <bit>
#include <vector>

#include "json/json.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace burn {
namespace {

constexpr const char* names[] = {
    "nothing", "a natural number", "a negative number", "bytes", "a text", "a list", "a map", "a bool",
    "null",    "a float"};

}  // namespace

bool CborReader::fail(Errc code, const char* expected) {
  if (error_) return false;
  return fail(Error(code, "the description in CBOR").expected(expected));
}

bool CborReader::fail(Error error) {
  if (!error_) error_ = std::move(error).offset(base_ + token_);
  return false;
}

CborKind CborReader::peek() const noexcept {
  if (error_ || remaining() == 0) return CborKind::none;
  const auto first = std::to_integer<unsigned>(bytes_[at_]);
  if (first < 0xc0) return static_cast<CborKind>(1 + (first >> 5));
  if (first == 0xf4 || first == 0xf5) return CborKind::boolean;
  if (first == 0xf6) return CborKind::null;
  return first >= 0xf9 && first <= 0xfb ? CborKind::real : CborKind::none;
}

bool CborReader::head(Head& out) {
  if (error_) return false;
  token_ = at_;
  if (remaining() == 0) return fail(Errc::truncated, "one more value");
  out.kind = peek();
  const auto first = std::to_integer<unsigned>(bytes_[at_]);
  const unsigned info = first & 31;
  if (first >> 5 == 6) return fail(Errc::unsupported, "a value without a tag");
  if (info == 31) return fail(Errc::unsupported, "a length in front");
  if (info > 27) return fail(Errc::malformed, "a length of up to 8 bytes");
  if (out.kind == CborKind::none) return fail(Errc::unsupported, "a number, a bool or null");
  ++at_;
  out.number = info;
  if (info >= 24) {
    const std::size_t width = std::size_t{1} << (info - 24);
    if (width > remaining()) return fail(Errc::truncated, "the bytes of a number");
    out.number = 0;
    for (const std::byte b : bytes_.subspan(at_, width)) out.number = out.number << 8 | std::to_integer<unsigned>(b);
    at_ += width;
  }
  if (out.kind == CborKind::real && info < 27) out.number = widened_float(out.number, 1U << (info - 24));
  if (out.kind == CborKind::boolean) out.number = first & 1;
  const bool counts = out.kind >= CborKind::bytes && out.kind <= CborKind::map;
  if (counts && out.number > remaining() / (out.kind == CborKind::map ? 2 : 1)) {
    return fail(Errc::truncated, "as many bytes or values as the length says");
  }
  return true;
}

bool CborReader::one(CborKind kind, const char* expected, std::uint64_t& number) {
  Head h;
  if (!head(h)) return false;
  if (h.kind != kind) {
    return fail(Error(Errc::malformed, "the description in CBOR")
                    .expected(expected)
                    .found(names[static_cast<std::size_t>(h.kind)]));
  }
  number = h.number;
  return true;
}

bool CborReader::string(std::uint64_t size, bool text, std::string_view& out) {
  out = {reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<std::size_t>(size)};
  at_ += out.size();
  return !text || json::valid_utf8(out) || fail(Errc::malformed, "UTF-8");
}

bool CborReader::read_text(std::string_view& out) {
  std::uint64_t size = 0;
  return one(CborKind::text, "a text", size) && string(size, true, out);
}

bool CborReader::read_i64(std::int64_t& out) {
  const bool negative = peek() == CborKind::negative;
  std::uint64_t n = 0;
  if (!one(negative ? CborKind::negative : CborKind::natural, "an integer", n)) return false;
  if (n > static_cast<std::uint64_t>(INT64_MAX)) return fail(Errc::out_of_range, "an integer of 64 bits");
  out = static_cast<std::int64_t>(negative ? ~n : n);
  return true;
}

bool CborReader::read_f64(double& out) {
  std::uint64_t bits = 0;
  if (!one(CborKind::real, "a float", bits)) return false;
  out = std::bit_cast<double>(bits);
  return true;
}

bool CborReader::read_bool(bool& out) {
  std::uint64_t n = 0;
  if (!one(CborKind::boolean, "a bool", n)) return false;
  out = n != 0;
  return true;
}

bool CborReader::read_null() {
  std::uint64_t n = 0;
  return one(CborKind::null, "null", n);
}

bool CborReader::skip(unsigned depth) {
  Head h;
  if (!head(h)) return false;
  std::string_view ignored;
  if (h.kind == CborKind::bytes || h.kind == CborKind::text) return string(h.number, h.kind == CborKind::text, ignored);
  if (h.kind != CborKind::list && h.kind != CborKind::map) return true;
  if (depth == 0) return fail(Errc::limit, "at most 60 levels of lists and maps");
  for (std::uint64_t n = h.kind == CborKind::map ? 2 * h.number : h.number; n != 0; --n) {
    if (!skip(depth - 1)) return false;
  }
  return true;
}

bool CborReader::read(Value& out, std::uint64_t& memory, unsigned depth) {
  const auto spend = [&](std::uint64_t bytes) {
    if (bytes > memory) return fail(Errc::limit, "fewer values for a file of this size");
    memory -= bytes;
    return true;
  };
  if (peek() == CborKind::negative) {
    std::int64_t n = 0;
    return read_i64(n) && (out = Value(n), true);
  }
  Head h;
  if (!head(h)) return false;
  std::string_view text;
  switch (h.kind) {
    case CborKind::natural:
      out = Value(h.number);
      return true;
    case CborKind::boolean:
      out = Value(h.number != 0);
      return true;
    case CborKind::real:
      out = Value(std::bit_cast<double>(h.number));
      return true;
    case CborKind::text:
      if (!string(h.number, true, text) || !spend(h.number)) return false;
      out = Value(text);
      return true;
    case CborKind::bytes: {
      if (!string(h.number, false, text) || !spend(h.number)) return false;
      const auto bytes = std::as_bytes(std::span(text));
      out = Value(Value::Bytes(bytes.begin(), bytes.end()));
      return true;
    }
    case CborKind::list: {
      if (depth == 0) return fail(Errc::limit, "at most 60 levels of lists and maps");
      if (!spend(h.number * sizeof(Value))) return false;
      Value::List list(static_cast<std::size_t>(h.number));
      for (Value& element : list) {
        if (!read(element, memory, depth - 1)) return false;
      }
      out = Value(std::move(list));
      return true;
    }
    case CborKind::map: {
      if (depth == 0) return fail(Errc::limit, "at most 60 levels of lists and maps");
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
      if (std::adjacent_find(keys.begin(), keys.end()) != keys.end()) return fail(Errc::duplicate, "each key once");
      out = Value(std::move(map));
      return true;
    }
    default:
      out = Value();
      return true;
  }
}

bool CborReader::finish() {
  token_ = at_;
  return ok() && (remaining() == 0 || fail(Errc::malformed, "nothing behind the map"));
}

}  // namespace burn
}  // namespace detail
}  // namespace v0
}  // namespace stele
