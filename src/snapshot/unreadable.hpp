// Entries of a file that are not tensors of a known kind. Each is represented by an opaque leaf, so that the rest of
// the file remains readable: a load or save that needs the entry fails or reports it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "leaves/tensor_entry.hpp"
#include "stele/report.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// The annotation of such a leaf: the reason, as a noun phrase such as "an array of Python objects".
inline constexpr std::string_view unreadable_key = "unreadable";

/// Adds the leaf, with one dimension: the size of the entry in the file, in bytes. `provider` reads them; if it has no
/// `ops`, the leaf is empty. Returns the leaf's node.
STELE_EXPORT std::uint32_t add_unreadable(SnapshotBuilder& builder, NodeName name, std::string_view reason,
                                          std::uint64_t bytes = 0, Provider provider = {}, bool conditional = false);
/// Returns the reason, or an empty string for other leaves.
STELE_EXPORT std::string_view unreadable(const LeafView& leaf) noexcept;
/// Returns the reason in the form for errors and reports.
inline std::string shown_unreadable(std::string_view reason) { return "an unreadable entry: " + std::string(reason); }
/// Adds a row `unchecked` for each such leaf: a checksum may cover its bytes, but no code reads them.
STELE_EXPORT void add_unreadable_rows(const Snapshot& snapshot, Report& report);

}  // namespace stele::inline v0::detail
