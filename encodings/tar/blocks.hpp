// Positions of a header's fields and the rules for names, shared by reader and writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace stele::inline v0::detail::tar {

inline constexpr std::size_t block_size = 512;
inline constexpr std::size_t piece_size = std::size_t{64} << 10;  // read at once

struct Field {
  std::size_t at, size;
};
inline constexpr Field name_field{0, 100};
inline constexpr Field mode_field{100, 8};
inline constexpr Field uid_field{108, 8};
inline constexpr Field gid_field{116, 8};
inline constexpr Field size_field{124, 12};
inline constexpr Field time_field{136, 12};
inline constexpr Field sum_field{148, 8};
inline constexpr Field type_field{156, 1};
inline constexpr Field magic_field{257, 8};  // magic and version
inline constexpr Field major_field{329, 8};
inline constexpr Field minor_field{337, 8};
inline constexpr Field prefix_field{345, 155};

inline std::string_view text(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline constexpr std::string_view posix_magic("ustar\00000", 8);

/// Returns the number of bytes that pad `size` to whole blocks.
constexpr std::uint64_t padding(std::uint64_t size) noexcept { return (block_size - size % block_size) % block_size; }

/// Returns the reason why a file's name is invalid, or nullptr if it is valid.
const char* bad_name(std::string_view name) noexcept;

}  // namespace stele::inline v0::detail::tar
