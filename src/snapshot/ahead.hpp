// Computes (converts, transposes, unpacks) a leaf on a second thread, ahead of the consumer of its pieces.
#pragma once

#include "base/hash.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Returns true if a second thread would make streaming the leaf faster.
bool worth_ahead(const LeafView& leaf, const Workers& workers) noexcept;

/// Calls leaf.stream(sink, context). A second thread computes the pieces, a few ahead; the calling thread passes them
/// to `sink`. Updates `hasher`, unless it is null, with the pieces while they are in the cache.
Status stream_ahead(const LeafView& leaf, ReadContext& context, Hasher* hasher, PieceSink& sink);

}  // namespace stele::inline v0::detail
