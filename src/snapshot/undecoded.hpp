// Tensors that are codes or scales of quantized weights whose scheme is not decoded. They are copied unchanged. An
// operation that would treat them as numbers (another precision, a format without such parts, a field of floats) is an
// error.
#pragma once

#include <string_view>

#include "stele/result.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// The annotation of such a leaf in memory: the name of the scheme. Files do not store it.
inline constexpr std::string_view undecoded_key = "undecoded";

/// Returns the name of the scheme; an empty string for other leaves.
STELE_EXPORT std::string_view undecoded(const LeafView& leaf) noexcept;
/// Returns true if the snapshot has such leaves.
bool has_undecoded(const Snapshot& snapshot) noexcept;
/// Refuses such a leaf. Errors: unsupported.
STELE_EXPORT Status check_decoded(const LeafView& leaf);
/// Refuses a snapshot with such leaves; the error has the path of the first one.
STELE_EXPORT Status check_decoded(const Snapshot& snapshot);
/// Returns the snapshot without the annotation.
Snapshot without_undecoded(const Snapshot& snapshot);

}  // namespace stele::inline v0::detail
