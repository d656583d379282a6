// The containers of SameDiff models: the header of .sdnb files, and the names of shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stele::inline v0::detail::samediff {

inline constexpr std::string_view sdnb_magic = "SDNB";
inline constexpr std::size_t sdnb_header = 32;
/// Minimum size in bytes of arrays that are stored after the FlatBuffer of an .sdnb file (SameDiffSerializer:
/// APPEND_THRESHOLD).
inline constexpr std::uint64_t append_threshold = std::uint64_t{1} << 20;

/// Metadata keys that belong to the file format, not to the user.
inline constexpr std::string_view own_metadata[] = {"nd4j.format.version", "nd4j.format.type", "shard.index",
                                                    "shard.count", "shard.type"};

/// Parses a text that is a number. Returns false for other strings.
bool parse_digits(std::string_view text, std::uint32_t& number);

/// A file name of the form <base>.shard<index>-of-<count>[.sdnb].
struct ShardName {
  std::string base;
  std::uint32_t index = 0, count = 0;
};
std::optional<ShardName> parse_shard_name(std::string_view file);
std::string shard_name(std::string_view base, std::size_t index, std::size_t count);
}  // namespace stele::inline v0::detail::samediff
