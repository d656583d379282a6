// The keys of the slices of partitioned variables.
#include "slices.hpp"

#include <algorithm>
#include <bit>

namespace stele::inline v0::detail::tensorflow {
namespace {

/// Appends a non-negative number: a byte count in unary in the leading bits, then a sign bit and the number. UINT64_MAX
/// encodes -1.
void put_signed(std::string& key, std::uint64_t number) {
  if (number == UINT64_MAX) {
    key += '\x7f';
    return;
  }
  const auto bits = static_cast<std::size_t>(std::bit_width(number));
  const std::size_t size = bits / 7 + 1;
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < std::min<std::size_t>(size, 8); ++i) {
    bytes[size - 1 - i] = static_cast<char>(number >> 8 * i);
  }
  for (std::size_t i = 0; i < size; ++i) bytes[i / 8] = static_cast<char>(bytes[i / 8] | 0x80 >> i % 8);
  key += bytes;
}

/// Appends an unsigned number: the number of its bytes, then the bytes.
void put_unsigned(std::string& key, std::uint64_t number) {
  const int size = (static_cast<int>(std::bit_width(number)) + 7) / 8;
  key += static_cast<char>(size);
  for (int i = size; i-- > 0;) key += static_cast<char>(number >> 8 * i);
}

}  // namespace

std::string slice_key(std::string_view name, const Box& slice) {
  std::string key(1, '\0');
  for (const char c : name) {
    key += c;
    if (c == '\0') key += '\xff';
    if (c == '\xff') key += '\0';
  }
  key += std::string_view("\0\1", 2);
  put_unsigned(key, slice.start.size());
  for (std::size_t d = 0; d < slice.start.size(); ++d) {
    put_signed(key, slice.start[d]);
    put_signed(key, slice.length[d]);
  }
  return key;
}

std::string name_of_slice(std::string_view key) {
  key.remove_prefix(std::min<std::size_t>(key.size(), 1));
  return std::string(key.substr(0, key.find('\0')));
}

}  // namespace stele::inline v0::detail::tensorflow
