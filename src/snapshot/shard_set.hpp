// Models in several files ("shards") with an index, in the layout of transformers: {"metadata": {…}, "weight_map":
// {tensor: file, …}}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "stele/options.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail {

/// Maximum size of an index: the limit of a safetensors header.
inline constexpr std::uint64_t max_index = 100'000'000;

/// Returns true if `head` is the beginning of an index.
bool is_shard_index(std::span<const std::byte> head) noexcept;
/// Returns true if an index that begins with `head` lists PyTorch files (.bin).
bool lists_pickles(std::span<const std::byte> head) noexcept;
/// Returns true if an index that begins with `head` lists files of Keras (.weights.h5).
bool lists_hdf5(std::span<const std::byte> head) noexcept;

/// Opens one shard.
using OpenShard = std::function<Result<Snapshot>(const SourcePtr& shard)>;
/// Opens the files of an index, which are in its folder. Errors: malformed, duplicate, limit, unsupported (a source
/// without a bundle; values in a shard), those of `open`.
Result<Snapshot> open_shard_set(SourcePtr index, const Limits& limits, const OpenShard& open);
/// Opens the files that can be opened. A tensor that the index lists but no opened file has becomes an unreadable leaf
/// (unreadable.hpp); `notes` receives the other faults. Errors: errors of the index itself.
STELE_EXPORT Result<Snapshot> recover_shard_set(const SourcePtr& index, const Limits& limits, const OpenShard& open,
                                                std::vector<std::string>& notes);

}  // namespace stele::inline v0::detail
