// Checks that archives and SameDiff files apply to a checkpoint before they write it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "encodings/gzip/gzip.hpp"
#include "graph/checkpoint.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Checks a state array of the optimizer for the parameter `name`. Errors: not_representable (a shape that differs from
/// the parameter's, a dtype that the files do not support).
Status check_state(std::string_view name, const LeafView& parameter, const LeafView& state);

/// Checks that names are unique and UTF-8, and that metadata is UTF-8 without the format's reserved keys `own`. Errors:
/// not_representable, duplicate.
Status check_names(const Snapshot& snapshot, std::span<const std::string_view> own);

/// Computes the CRC-32 of a leaf.
class CrcSink final : public PieceSink {
 public:
  Status piece(std::span<const std::byte> bytes) override {
    crc = gzip::crc32(crc, bytes.data(), bytes.size());
    return {};
  }
  std::uint32_t crc = 0;
};

}  // namespace stele::inline v0::detail
