// Shortens strings of a file, which may have any length, for messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stele::inline v0::detail {

/// Returns `text` with an ellipsis instead of its middle if it has more than `max` bytes. Does not split a UTF-8
/// character.
inline std::string shortened(std::string_view text, std::size_t max) {
  constexpr std::string_view ellipsis = "\xe2\x80\xa6";
  if (text.size() <= max) return std::string(text);
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U; };
  std::size_t head = (max - ellipsis.size()) / 2;
  std::size_t tail = text.size() - head;
  while (head != 0 && continues(head)) --head;
  while (tail != text.size() && continues(tail)) ++tail;
  return std::string(text.substr(0, head)) + std::string(ellipsis) + std::string(text.substr(tail));
}

}  // namespace stele::inline v0::detail
