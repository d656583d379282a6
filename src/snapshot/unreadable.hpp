// Entries of a file that are no tensors of a known kind. An opaque leaf stands for each, so that the rest of the file
// stays readable: a load or save that needs the entry fails or reports it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stele/report.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// The annotation of such a leaf: the reason, a noun phrase such as "an array of Python objects".
inline constexpr std::string_view unreadable_key = "unreadable";
/// Memory of a leaf with this annotation, beyond that of other leaves and the text.
inline constexpr std::uint64_t unreadable_memory = 256;

/// Adds the leaf, with one dimension: the number of the entry's bytes in the file. `provider` reads them; without
/// `ops`, the leaf is empty. Returns its node.
STELE_EXPORT std::uint32_t add_unreadable(SnapshotBuilder& builder, NodeName name, std::string_view reason,
                                          std::uint64_t bytes = 0, Provider provider = {}, bool conditional = false);
/// Returns the reason, or nothing for other leaves.
STELE_EXPORT std::string_view unreadable(const LeafView& leaf) noexcept;
/// Returns the reason as errors and reports show it.
inline std::string shown_unreadable(std::string_view reason) { return "an unreadable entry: " + std::string(reason); }
/// Adds a row `unchecked` for each such leaf: a checksum may cover its bytes, but nothing reads them.
STELE_EXPORT void add_unreadable_rows(const Snapshot& snapshot, Report& report);

}  // namespace stele::inline v0::detail
