// Definitions that the reader and the writer of Burnpack share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/skipped.hpp"
#include "stele/param.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"
#include "stele/value.hpp"
#include "types.hpp"

namespace stele::inline v0::detail::burn {

inline constexpr std::uint32_t burnpack_magic = 0x4255524e;  // "NRUB"
inline constexpr std::uint16_t burnpack_version = 1;
inline constexpr std::size_t burnpack_header = 10;  // size of: magic, version, length of the description
inline constexpr std::uint64_t burnpack_alignment = 256;

/// Key of a tensor for an id that does not fit a u64. Burn ignores unknown keys.
inline constexpr std::string_view burnpack_uuid = "param_uuid";

constexpr std::uint64_t burnpack_aligned(std::uint64_t at) noexcept {
  return (at + burnpack_alignment - 1) / burnpack_alignment * burnpack_alignment;
}

/// Returns true if a value is stored as a scalar.
inline bool is_burnpack_scalar(const Value& value) noexcept {
  return value.as_bool() != nullptr || value.as_i64() != nullptr || value.as_u64() != nullptr ||
         value.as_f64() != nullptr;
}

/// Returns the scheme of a quantized dtype; nullptr if the dtype has none.
inline const Value* burnpack_scheme(const Value& dtype) noexcept {
  const Value* scheme = dtype.find("QFloat");
  return scheme != nullptr && scheme->as_map() != nullptr ? scheme : nullptr;
}

/// The contents of the description, unchanged.
struct PackIndex {
  struct Entry {
    std::string_view name;
    std::uint64_t begin = 0, end = 0;  // offsets from the beginning of the data
    std::size_t extents = 0;           // index of the first of `rank` extents
    std::size_t rank = 0;
    Spelled dtype{};
    std::optional<ParamId> id{};
  };
  struct Scalar {
    std::string_view name;
    Value value{};
  };
  std::deque<Entry> entries;  // a deque grows without holding twice its size
  std::deque<Scalar> scalars;
  std::vector<Extent> extents;
  std::map<std::string, std::string> metadata;
  Skipped skipped;  // keys
};

/// Reads a description, which must outlive the index. Subtracts the memory of the index and of a Snapshot of it from
/// `memory`. Errors: those of cbor::Reader, duplicate (two entries of one name), unsupported (dtypes, scalars).
Result<PackIndex> read_description(std::span<const std::byte> description, std::uint64_t& memory);

}  // namespace stele::inline v0::detail::burn
