// Marks of leaves: annotations in memory that describe a leaf to later operations. Files do not store them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

struct SnapshotData;

/// Returns the text of a leaf's mark; an empty string if it has none.
std::string_view mark_of(const LeafView& leaf, std::string_view key) noexcept;
/// Sets the mark of leaf number `leaf`.
void set_mark(SnapshotData& data, std::size_t leaf, std::string_view key, std::string text);
bool has_mark(const Snapshot& snapshot, std::string_view key) noexcept;
/// Returns the snapshot without the mark.
Snapshot without_mark(const Snapshot& snapshot, std::string_view key);

}  // namespace stele::inline v0::detail
