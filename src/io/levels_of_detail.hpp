// Recognizes Paddle's levels of detail, whose first bytes are the version of another format's header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail {

/// Returns true if the dense tensor of a record of Paddle is described at `at`: a version, and a message of a few bytes
/// that begins with its dtype. Returns `if_beyond` if the head ends before.
inline bool has_paddle_tensor(std::span<const std::byte> head, std::size_t at, bool if_beyond) {
  if (at > head.size() || head.size() - at < 9) return if_beyond;
  const auto size = load_le<std::uint32_t>(head.data() + at + 4);
  return load_le<std::uint32_t>(head.data() + at) == 0 && size >= 2 && size < 256 && head[at + 8] == std::byte{0x08};
}

/// Returns true if a file of `size` bytes that begins with `head` begins with a record of Paddle whose tensor has
/// levels of detail (docs/formats/paddle.md).
inline bool has_levels_of_detail(std::span<const std::byte> head, std::uint64_t size) {
  constexpr std::uint64_t max_levels = 64;
  constexpr std::size_t number = 8, first = 12;  // the version, and the number of levels
  if (head.size() < first || load_le<std::uint32_t>(head.data()) != 0) return false;
  const auto levels = load_le<std::uint64_t>(head.data() + 4);
  if (levels == 0 || levels > max_levels) return false;
  std::size_t at = first;
  std::uint64_t last = 0;
  // Zeros up to the head's end are as likely the elements of another format.
  const auto is_left = [&] { return head.size() - at >= number; };
  for (std::uint64_t level = 0; level < levels; ++level) {
    if (!is_left()) return last != 0;
    const auto bytes = load_le<std::uint64_t>(head.data() + at);
    at += number;
    if (bytes < 2 * number || bytes % number != 0 || bytes > size) return false;
    last = 0;
    for (std::uint64_t i = 0; i < bytes; i += number, at += number) {
      if (!is_left()) return last != 0;
      const auto offset = load_le<std::uint64_t>(head.data() + at);
      if (offset < last || offset > size || (i == 0 && offset != 0)) return false;
      last = offset;
    }
  }
  return has_paddle_tensor(head, at, last != 0);
}

}  // namespace stele::inline v0::detail
