// A leaf that is computed (converted, transposed, unpacked) on a second thread, ahead of who takes its pieces.
#pragma once

#include "base/hash.hpp"
#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// Whether a second thread would make streaming the leaf faster.
bool worth_ahead(const LeafView& leaf, const Workers& workers) noexcept;

/// leaf.stream(sink, context), its pieces made on a second thread and passed on by this one, a few at a time. `hasher`,
/// where given, is updated with them while they are in cache.
Status stream_ahead(const LeafView& leaf, ReadContext& context, Hasher* hasher, PieceSink& sink);

}  // namespace detail
}  // namespace v0
}  // namespace stele
