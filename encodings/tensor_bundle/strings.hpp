// Reads string tensors of a checkpoint as values, and the bytes of variants, which have their own kind of checksum.
#pragma once

#include <cstddef>
#include <span>

#include "base/limits.hpp"
#include "bundle.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::tensorflow {

/// Reads the strings of an entry: varint lengths; u32 masked CRC-32C of these lengths as numbers of 4 bytes (8 bytes
/// from 2^32 on); the strings. Returns a string, or bytes if it is not UTF-8; for a rank above 0, nested lists of
/// these. Errors: truncated, malformed, checksum, limit, io.
Result<Value> read_strings(const Entry& entry, IndexBudget& memory);

/// Reads the entries of variants: varint length, bytes, and u32 masked CRC-32C for each element. `at` is the Entry.
Status read_variants(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                     ReadContext& context);
Status stream_variants(const void* at, std::uint64_t number, std::uint64_t size, PieceSink& sink, ReadContext& context);
inline constexpr LeafOps variant_ops{.read = read_variants, .stream = stream_variants};

}  // namespace stele::inline v0::detail::tensorflow
