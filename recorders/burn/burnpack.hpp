// What reader and writer of Burnpack share.
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

#include "stele/param.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"
#include "stele/value.hpp"
#include "types.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace burn {

inline constexpr std::uint32_t burnpack_magic = 0x4255524e;  // "NRUB"
inline constexpr std::uint16_t burnpack_version = 1;
inline constexpr std::size_t burnpack_header = 10;  // magic, version, size of the description
inline constexpr std::uint64_t burnpack_alignment = 256;

/// Of a tensor, beside Burn's own keys: an id that is no u64. Burn passes over keys that it does not know.
inline constexpr std::string_view burnpack_uuid = "param_uuid";

constexpr std::uint64_t burnpack_aligned(std::uint64_t at) noexcept {
  return (at + burnpack_alignment - 1) / burnpack_alignment * burnpack_alignment;
}

/// Whether a value stands among the scalars.
inline bool is_burnpack_scalar(const Value& value) noexcept {
  return value.as_bool() != nullptr || value.as_i64() != nullptr || value.as_u64() != nullptr ||
         value.as_f64() != nullptr;
}

/// How a quantized tensor is quantized; nullptr where a dtype does not say that.
inline const Value* burnpack_scheme(const Value& dtype) noexcept {
  const Value* scheme = dtype.find("QFloat");
  return scheme != nullptr && scheme->as_map() != nullptr ? scheme : nullptr;
}

/// What the description says, as it says it.
struct PackIndex {
  struct Entry {
    std::string_view name;
    std::uint64_t begin = 0, end = 0;  // from the beginning of the data on
    std::size_t extents = 0;           // the first of `rank`
    std::size_t rank = 0;
    Spelled dtype{};
    std::optional<ParamId> id{};
  };
  struct Scalar {
    std::string_view name;
    Value value{};
  };
  std::deque<Entry> entries;  // grows without holding twice its size
  std::deque<Scalar> scalars;
  std::vector<Extent> extents;
  std::map<std::string, std::string> metadata;
  std::vector<std::uint32_t> by_name;  // the numbers of entries, and then of scalars

  std::string_view name(std::size_t i) const {
    return i < entries.size() ? entries[i].name : scalars[i - entries.size()].name;
  }
};

/// Reads a description, which must outlive the index. What that and a Snapshot of it take is subtracted from `memory`.
/// Errors: those of CborReader, duplicate (two of one name), unsupported (dtypes, scalars).
Result<PackIndex> read_description(std::span<const std::byte> description, std::uint64_t& memory);

}  // namespace burn
}  // namespace detail
}  // namespace v0
}  // namespace stele
