// Reads the bytes of a leaf through its Provider, for leaves that are not in a Snapshot yet and for parts of leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Returns all `size` bytes of the leaf if they are in memory, else an empty span.
STELE_EXPORT std::span<const std::byte> view_bytes(const Provider& leaf, std::uint64_t size) noexcept;

/// Reads bytes of a leaf of `size` bytes, without verifying a checksum. The caller must have checked the range.
STELE_EXPORT Status read_bytes(const Provider& leaf, std::uint64_t size, std::uint64_t offset, std::span<std::byte> out,
                               ReadContext& context);

/// Passes all `size` bytes of the leaf to `sink`, and checks them.
STELE_EXPORT Status stream_bytes(const Provider& leaf, std::uint64_t size, PieceSink& sink, ReadContext& context);

}  // namespace stele::inline v0::detail
