// Writes MessagePack tokens.
#include <algorithm>
#include <bit>

#include "encodings/msgpack/msgpack.hpp"

namespace stele::inline v0::detail::msgpack {
namespace {

/// Returns the base-2 logarithm of the number's size in bytes: 1, 2, 4 or 8.
unsigned log_of(std::uint64_t n) { return n <= UINT8_MAX ? 0 : n <= UINT16_MAX ? 1 : n <= UINT32_MAX ? 2 : 3; }

}  // namespace

Status Writer::value(const Value& value) {
  switch (value.kind()) {
    case ValueKind::null:
      return nil();
    case ValueKind::boolean:
      return byte(*value.as_bool() ? 0xc3 : 0xc2);
    case ValueKind::i64:
      return integer(*value.as_i64());
    case ValueKind::u64:
      return number(0xcf, 3, *value.as_u64());
    case ValueKind::f64:
      return number(0xcb, 3, std::bit_cast<std::uint64_t>(*value.as_f64()));
    case ValueKind::string:
      return text(*value.as_string());
    case ValueKind::bytes:
      STELE_TRY(sized(value.as_bytes()->size(), 0, 0, 0xc4, 0));
      return put(*value.as_bytes());
    case ValueKind::list:
      STELE_TRY(begin_list(value.as_list()->size()));
      for (const Value& element : *value.as_list()) STELE_TRY(this->value(element));
      return {};
    case ValueKind::map:
      STELE_TRY(begin_map(value.as_map()->size()));
      for (const auto& [name, element] : *value.as_map()) {
        STELE_TRY(text(name));
        STELE_TRY(this->value(element));
      }
      return {};
  }
  return {};
}

Status Writer::begin_bytes(std::uint64_t size) {
  STELE_TRY(sized(size, 0, 0, 0xc4, 0));
  size_ += size;
  return {};
}

Status Writer::begin_extension(std::int8_t type, std::uint64_t size) {
  if (std::has_single_bit(size) && size <= 16) {
    STELE_TRY(byte(0xd4 + static_cast<unsigned>(std::countr_zero(size))));
  } else {
    STELE_TRY(sized(size, 0, 0, 0xc7, 0));
  }
  return byte(static_cast<std::uint8_t>(type));
}

Status Writer::text(std::string_view text) {
  if (text.size() > max_string_bytes) {
    return Error(Errc::not_representable, "the string exceeds 64 KiB").found(std::to_string(text.size()) + " bytes");
  }
  STELE_TRY(sized(text.size(), 0xa0, 32, 0xd9, 0));
  return put(std::as_bytes(std::span(text)));
}

Status Writer::put(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  return out_ != nullptr ? out_->write(bytes) : Status();
}

Status Writer::byte(unsigned b) {
  const std::byte bytes[] = {static_cast<std::byte>(b)};
  return put(bytes);
}

/// Writes a mark and a number of 1, 2, 4 or 8 bytes.
Status Writer::number(unsigned mark, unsigned log, std::uint64_t n) {
  std::byte bytes[9] = {static_cast<std::byte>(mark)};
  const std::size_t size = std::size_t{1} << log;
  for (std::size_t i = size; i != 0; n >>= 8) bytes[i--] = static_cast<std::byte>(n);
  return put(std::span(bytes).first(size + 1));
}

Status Writer::integer(std::int64_t n) {
  if (n >= 0) {
    const auto u = static_cast<std::uint64_t>(n);
    if (u < 0x80) return byte(static_cast<unsigned>(u));
    const unsigned log = log_of(u);
    return number(0xcc + log, log, u);
  }
  if (n >= -32) return byte(static_cast<unsigned>(n) & 0xff);
  const unsigned log = n >= INT8_MIN ? 0 : n >= INT16_MIN ? 1 : n >= INT32_MIN ? 2 : 3;
  return number(0xd0 + log, log, static_cast<std::uint64_t>(n));
}

/// Writes a length: in the mark `small` if it is less than `few`; else after one of the marks that begin at `large`,
/// the first of which has a length of 1 << `min_log` bytes.
Status Writer::sized(std::uint64_t n, unsigned small, unsigned few, unsigned large, unsigned min_log) {
  if (n < few) return byte(small + static_cast<unsigned>(n));
  const unsigned log = std::max(log_of(n), min_log);
  if (log > 2) {
    return Error(Errc::not_representable, "the length exceeds the limit of MessagePack")
        .expected("less than 4 GiB")
        .found(std::to_string(n) + " bytes or values");
  }
  return number(large + log - min_log, log, n);
}

}  // namespace stele::inline v0::detail::msgpack
