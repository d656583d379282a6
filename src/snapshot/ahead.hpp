// Computes (converts, transposes, unpacks) a leaf on a second thread, ahead of the reader of its pieces.
#pragma once

#include "base/hash.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Returns true if a second thread would make streaming the leaf faster.
bool worth_ahead(const LeafView& leaf, const Workers& workers) noexcept;

/// Calls leaf.stream(sink, context), with the pieces made on a second thread and passed on by this one, a few at a
/// time. Updates `hasher`, unless it is null, with the pieces while they are in cache.
Status stream_ahead(const LeafView& leaf, ReadContext& context, Hasher* hasher, PieceSink& sink);

}  // namespace stele::inline v0::detail
