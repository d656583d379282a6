// Writes CBOR (RFC 8949).
#include <bit>
#include <cmath>

#include "cbor.hpp"

namespace stele::inline v0::detail::cbor {
namespace {

struct Width {
  unsigned bytes, exponent, mantissa;
  constexpr int bias() const noexcept { return (1 << (exponent - 1)) - 1; }
};
constexpr Width half{2, 5, 10};
constexpr Width single{4, 8, 23};
constexpr std::uint64_t mantissa_of_f64 = (std::uint64_t{1} << 52) - 1;

constexpr Width width_of(unsigned bytes) noexcept { return bytes == 2 ? half : single; }

}  // namespace

std::uint64_t widened_float(std::uint64_t from, unsigned bytes) {
  const Width w = width_of(bytes);
  const std::uint64_t sign = (from >> (8 * w.bytes - 1) & 1) << 63;
  const std::uint64_t max_exponent = (std::uint64_t{1} << w.exponent) - 1;
  const std::uint64_t exponent = from >> w.mantissa & max_exponent;
  const std::uint64_t mantissa = from & ((std::uint64_t{1} << w.mantissa) - 1);
  if (exponent == 0) {
    const double small = std::ldexp(static_cast<double>(mantissa), 1 - w.bias() - static_cast<int>(w.mantissa));
    return sign | std::bit_cast<std::uint64_t>(small);
  }
  const std::uint64_t wide = exponent == max_exponent ? 2047 : exponent + 1023 - static_cast<std::uint64_t>(w.bias());
  return sign | wide << 52 | mantissa << (52 - w.mantissa);
}

std::optional<std::uint64_t> narrowed_float(std::uint64_t from, unsigned bytes) {
  const Width w = width_of(bytes);
  const std::uint64_t sign = (from >> 63) << (8 * w.bytes - 1);
  const int exponent = static_cast<int>(from >> 52 & 2047) - 1023;
  std::uint64_t mantissa = from & mantissa_of_f64;
  unsigned drop = 52 - w.mantissa;
  std::uint64_t to = 0;  // the exponent, shifted to its place
  if ((from << 1) == 0) return sign;
  if (exponent == 1024) {
    if (mantissa != 0 && mantissa >> 51 == 0) return std::nullopt;
    to = ((std::uint64_t{1} << w.exponent) - 1) << w.mantissa;
  } else if (exponent > w.bias()) {
    return std::nullopt;
  } else if (exponent > -w.bias()) {
    to = static_cast<std::uint64_t>(exponent + w.bias()) << w.mantissa;
  } else {
    const int below = 1 - w.bias() - exponent;
    if (below > static_cast<int>(w.mantissa)) return std::nullopt;
    mantissa |= mantissa_of_f64 + 1;
    drop += static_cast<unsigned>(below);
  }
  if ((mantissa & ((std::uint64_t{1} << drop) - 1)) != 0) return std::nullopt;
  return sign | to | mantissa >> drop;
}

void Writer::number(unsigned head, std::uint64_t n, unsigned bytes) {
  out_ += static_cast<char>(head);
  for (unsigned i = bytes; i-- != 0;) out_ += static_cast<char>(n >> (8 * i) & 0xff);
}

void Writer::head(unsigned major, std::uint64_t n) {
  const unsigned first = major << 5;
  if (n < 24) return number(first + static_cast<unsigned>(n), 0, 0);
  const unsigned power = n <= 0xff ? 0 : n <= 0xffff ? 1 : n <= 0xffffffff ? 2 : 3;
  number(first + 24 + power, n, 1U << power);
}

void Writer::text(std::string_view text) {
  head(3, text.size());
  out_ += text;
}

void Writer::i64(std::int64_t n) {
  n < 0 ? head(1, ~static_cast<std::uint64_t>(n)) : u64(static_cast<std::uint64_t>(n));
}

void Writer::f64(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  if (const auto b = narrowed_float(bits, 2)) return number(0xf9, *b, 2);
  if (const auto b = narrowed_float(bits, 4)) return number(0xfa, *b, 4);
  number(0xfb, bits, 8);
}

void Writer::value(const Value& value) {
  if (const auto* b = value.as_bool()) return boolean(*b);
  if (const auto* i = value.as_i64()) return i64(*i);
  if (const auto* u = value.as_u64()) return u64(*u);
  if (const auto* f = value.as_f64()) return f64(*f);
  if (const auto* s = value.as_string()) return text(*s);
  if (const auto* b = value.as_bytes()) {
    head(2, b->size());
    out_.append(reinterpret_cast<const char*>(b->data()), b->size());
  } else if (const auto* list = value.as_list()) {
    begin_list(list->size());
    for (const Value& element : *list) this->value(element);
  } else if (const auto* map = value.as_map()) {
    begin_map(map->size());
    for (const auto& [key, element] : *map) {
      text(key);
      this->value(element);
    }
  } else {
    null();
  }
}

}  // namespace stele::inline v0::detail::cbor
