// The index of a dataset's chunks: one chunk, no index (implicit), a fixed or extensible array, or a B-tree.
#pragma once

#include <cstdint>
#include <string_view>

#include "chunks.hpp"
#include "file.hpp"

namespace stele::inline v0::detail::hdf5 {

/// Adds the stored chunks to `leaf.chunks`, by number. `offset`: of the layout message, for errors. Returns the reason
/// why the index cannot be read, as a noun phrase, or an empty string. Errors: malformed, truncated, limit.
Result<std::string_view> read_chunk_index(File& file, const Layout& layout, std::uint64_t offset, const Space& space,
                                          ChunkedLeaf& leaf);

}  // namespace stele::inline v0::detail::hdf5
