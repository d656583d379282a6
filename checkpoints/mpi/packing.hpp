// The encoding of messages: numbers as LEB128, strings with their length before them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stele/config.hpp"

namespace stele::inline v0::mpi::detail {

inline void add_number(std::string& to, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7U) to.push_back(static_cast<char>((number & 0x7fU) | 0x80U));
  to.push_back(static_cast<char>(number));
}
inline void add_text(std::string& to, std::string_view text) {
  add_number(to, text.size());
  to.append(text);
}

/// Reads what add_number() and add_text() wrote. Past the end, numbers are 0 and strings are empty.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) noexcept : left_(bytes) {}
  std::uint64_t number() noexcept {
    std::uint64_t result = 0;
    for (unsigned shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      result |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
      if (byte < 0x80) break;
    }
    return result;
  }
  std::string_view text() noexcept {
    const auto size = static_cast<std::size_t>(number());
    const std::string_view result = left_.substr(0, size);
    left_.remove_prefix(result.size());
    return result;
  }
  bool empty() const noexcept { return left_.empty(); }
  std::string_view left() const noexcept { return left_; }

 private:
  std::string_view left_;
};

}  // namespace stele::inline v0::mpi::detail
