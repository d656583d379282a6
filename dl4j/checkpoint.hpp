// The checks of archives and SameDiff files on a checkpoint before they write it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "encodings/gzip/gzip.hpp"
#include "graph/checkpoint.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Checks the array of an optimizer's state for the parameter `name`. Errors: not_representable (another shape than the
/// parameter's, a dtype that the files do not have).
Status check_state(std::string_view name, const LeafView& parameter, const LeafView& state);

/// Checks that names are UTF-8 and different, and that metadata is UTF-8 and has none of the keys `own` of the format.
/// Errors: not_representable, duplicate.
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
