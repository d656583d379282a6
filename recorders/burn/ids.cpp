// The text form of a ParamId.
#include "ids.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/hash.hpp"

namespace stele::inline v0::detail::burn {
namespace {

constexpr std::string_view digits = "0123456789abcdefghijklmnopqrstuv";

/// Decodes base32hex of up to 8 bytes; the bits after the last whole byte must be 0.
std::optional<std::uint64_t> from_base32(std::string_view text) {
  std::uint64_t id = 0;
  unsigned held = 0;
  unsigned bits = 0;
  unsigned shift = 0;
  for (const char c : text) {
    const std::size_t digit = digits.find(c);
    if (digit == digits.npos) return std::nullopt;
    held = held << 5 | static_cast<unsigned>(digit);
    bits += 5;
    if (bits < 8) continue;
    bits -= 8;
    id |= std::uint64_t{held >> bits & 0xffU} << shift;
    held &= (1U << bits) - 1;
    shift += 8;
  }
  if (held != 0) return std::nullopt;
  return id;
}

std::optional<ParamId> parse_uuid(std::string_view text) {
  std::array<std::uint64_t, 2> half{};
  std::size_t n = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == 8 || i == 13 || i == 18 || i == 23) {
      if (text[i] != '-') return std::nullopt;
      continue;
    }
    const std::size_t digit = digits.substr(0, 16).find(text[i]);
    if (digit == digits.npos) return std::nullopt;
    half[n / 16] = half[n / 16] << 4 | digit;
    ++n;
  }
  return ParamId::from_uuid(half[0], half[1]);
}

}  // namespace

std::optional<ParamId> parse_id(std::string_view text) {
  if (text.size() == 36) return parse_uuid(text);
  if (text.size() != 13 && text.size() != 10) return std::nullopt;
  const auto id = from_base32(text);
  return id ? std::optional(ParamId::from_u64(*id)) : std::nullopt;
}

std::string id_text(const ParamId& id) {
  std::string text;
  if (id.form == ParamId::Form::uuid) {
    for (unsigned i = 0; i < 32; ++i) {
      if (i == 8 || i == 12 || i == 16 || i == 20) text += '-';
      text += digits[(i < 16 ? id.high : id.low) >> (60 - 4 * (i % 16)) & 15];
    }
    return text;
  }
  unsigned held = 0;
  unsigned bits = 0;
  for (unsigned i = 0; i < 8; ++i) {
    held = held << 8 | static_cast<unsigned>(id.low >> (8 * i) & 0xff);
    for (bits += 8; bits >= 5; bits -= 5) text += digits[held >> (bits - 5) & 31];
    held &= (1U << bits) - 1;
  }
  text += digits[held << (5 - bits) & 31];
  return text;
}

ParamId made_id(std::string_view path) { return ParamId::from_u64(hash64(path.data(), path.size())); }

}  // namespace stele::inline v0::detail::burn
