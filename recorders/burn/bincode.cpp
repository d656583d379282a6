// Reads and writes numbers, strings and scalars of bincode 2.
#include "bincode.hpp"

#include <bit>
#include <span>

#include "stele/detail/little_endian.hpp"
#include "stele/precision/element.hpp"

namespace stele::inline v0::detail::bincode {
namespace {

std::int64_t from_zigzag(std::uint64_t n) {
  return static_cast<std::int64_t>(n >> 1) ^ -static_cast<std::int64_t>(n & 1);
}
std::uint64_t to_zigzag(std::int64_t n) {
  return static_cast<std::uint64_t>(n) << 1 ^ static_cast<std::uint64_t>(n >> 63);
}

bool is_byte(DType dtype) { return dtype == DType::boolean || dtype == DType::u8 || dtype == DType::i8; }

Result<Value> read_byte(Cursor& in, DType dtype) {
  const std::uint64_t at = in.position();
  STELE_TRY_ASSIGN(const auto byte, in.little<std::uint8_t>());
  if (dtype == DType::u8) return Value(std::uint64_t{byte});
  if (dtype == DType::i8) return Value(std::int64_t{static_cast<std::int8_t>(byte)});
  if (byte <= 1) return Value(byte == 1);
  return Error(Errc::malformed, "the bool is neither 0 nor 1").offset(at).found("byte " + std::to_string(byte));
}

Result<Value> read_float(Cursor& in, DType dtype) {
  if (dtype == DType::f64) {
    STELE_TRY_ASSIGN(const auto bits, in.little<std::uint64_t>());
    return Value(std::bit_cast<double>(bits));
  }
  if (dtype == DType::f32) {
    STELE_TRY_ASSIGN(const auto bits, in.little<std::uint32_t>());
    return Value(double{std::bit_cast<float>(bits)});
  }
  const std::uint64_t at = in.position();
  STELE_TRY_ASSIGN(const std::uint64_t n, read_number(in));
  if (n > UINT16_MAX) {
    return Error(Errc::malformed, "the float of 16 bits has more than 16 bits").offset(at).found(std::to_string(n));
  }
  const auto bits = static_cast<std::uint16_t>(n);
  const float f = dtype == DType::f16 ? static_cast<float>(std::bit_cast<float16>(bits))
                                      : static_cast<float>(std::bit_cast<bfloat16>(bits));
  return Value(double{f});
}

void append_float(std::vector<std::byte>& out, DType dtype, double number) {
  std::byte bytes[8];
  const auto f = static_cast<float>(number);
  switch (dtype) {
    case DType::f64:
      store_le(bytes, std::bit_cast<std::uint64_t>(number));
      break;
    case DType::f32:
      store_le(bytes, std::bit_cast<std::uint32_t>(f));
      break;
    default:
      return append_number(out, dtype == DType::f16 ? std::bit_cast<std::uint16_t>(float16(f))
                                                    : std::bit_cast<std::uint16_t>(bfloat16(f)));
  }
  out.insert(out.end(), bytes, bytes + element_size(dtype));
}

}  // namespace

Result<std::uint64_t> read_number(Cursor& in) {
  const std::uint64_t at = in.position();
  STELE_TRY_ASSIGN(const auto first, in.little<std::uint8_t>());
  if (first < 0xfb) return first;
  if (first > 0xfd) {
    return Error(Errc::malformed, "the number has more than 64 bits").offset(at).found("byte " + std::to_string(first));
  }
  const std::size_t size = std::size_t{2} << (first - 0xfb);
  STELE_TRY_ASSIGN(const std::byte* bytes, in.take(size));
  std::uint64_t n = 0;
  for (std::size_t i = size; i-- != 0;) n = n << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  return n;
}

Result<std::uint64_t> read_count(Cursor& in) {
  const std::uint64_t at = in.position();
  STELE_TRY_ASSIGN(const std::uint64_t n, read_number(in));
  if (n <= in.left()) return n;
  return Error(Errc::malformed, "the list has more elements than the file has bytes")
      .offset(at)
      .found(std::to_string(n));
}

Status read_text(Cursor& in, std::string& out) {
  STELE_TRY_ASSIGN(const std::uint64_t size, read_number(in));
  return in.text(size, out);
}

Result<Value> read_scalar(Cursor& in, DType dtype) {
  if (is_byte(dtype)) return read_byte(in, dtype);
  if (is_plain_float(dtype)) return read_float(in, dtype);
  const DTypeClass kind = dtype_class(dtype);
  if (kind != DTypeClass::unsigned_int && kind != DTypeClass::signed_int) {
    return Error(Errc::unsupported, "bincode has no scalar of this dtype")
        .found(std::string(name(dtype)))
        .offset(in.position());
  }
  STELE_TRY_ASSIGN(const std::uint64_t n, read_number(in));
  return kind == DTypeClass::unsigned_int ? Value(n) : Value(from_zigzag(n));
}

void append_number(std::vector<std::byte>& out, std::uint64_t n) {
  const unsigned size = n < 0xfb ? 1 : n <= UINT16_MAX ? 2 : n <= UINT32_MAX ? 4 : 8;
  if (n >= 0xfb) out.push_back(static_cast<std::byte>(size == 2 ? 0xfb : size == 4 ? 0xfc : 0xfd));
  for (unsigned i = 0; i < size; ++i) out.push_back(static_cast<std::byte>(n >> (8 * i)));
}

void append_text(std::vector<std::byte>& out, std::string_view text) {
  append_number(out, text.size());
  const auto bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

bool append_scalar(std::vector<std::byte>& out, DType dtype, const Value& value) {
  const DTypeClass kind = dtype_class(dtype);
  const bool* b = value.as_bool();
  const std::int64_t* i = value.as_i64();
  const std::uint64_t* u = value.as_u64();
  const double* f = value.as_f64();
  const auto integer = [&](std::uint64_t n, std::uint64_t encoded) {
    is_byte(dtype) ? out.push_back(static_cast<std::byte>(n)) : append_number(out, encoded);
    return true;
  };
  if (dtype == DType::boolean && b != nullptr) return integer(*b ? 1 : 0, 0);
  if (kind == DTypeClass::unsigned_int && ((i != nullptr && *i >= 0) || u != nullptr)) {
    const std::uint64_t n = i != nullptr ? static_cast<std::uint64_t>(*i) : *u;
    return integer(n, n);
  }
  if (kind == DTypeClass::signed_int && i != nullptr) return integer(static_cast<std::uint64_t>(*i), to_zigzag(*i));
  if (!is_plain_float(dtype) || (f == nullptr && i == nullptr)) return false;
  append_float(out, dtype, f != nullptr ? *f : static_cast<double>(*i));
  return true;
}

}  // namespace stele::inline v0::detail::bincode
