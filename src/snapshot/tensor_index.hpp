// Converts the entries of a file that is a flat list of named tensors to its Snapshot. The only code that sorts,
// compares and looks up these names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "leaves/tensor_entry.hpp"
#include "snapshot/paths.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Returns the tensors of a snapshot, by leaf. Takes the names from `paths`.
STELE_EXPORT std::vector<TensorEntry> entries_of(const Snapshot& snapshot, const LeafPaths& paths);

/// Adds an entry to a flat Snapshot, and takes its memory from `memory`. Errors: limit.
STELE_EXPORT Status add_entry(SnapshotBuilder& to, const TensorEntry& entry, IndexBudget& memory);

/// A node whose name earlier nodes also have.
struct RepeatedName {
  std::uint32_t node = 0;
  std::size_t earlier = 0;  // number of those nodes
};

/// Sorts the names of a flat Snapshot to which all entries have been added, each with its full name. Adds the nodes of
/// names that occur twice to `repeated`; without it, such a name is an error (duplicate).
STELE_EXPORT Status sort_names(SnapshotBuilder& to, std::vector<RepeatedName>* repeated = nullptr);

/// Adds the data that names cannot express, from the text (docs/formats/flat.md), after sort_names(). The caller must
/// have admitted the text to `memory`. Errors: malformed, duplicate, limit.
STELE_EXPORT Status add_extras(SnapshotBuilder& to, std::string_view extras, IndexBudget& memory);

/// Calls sort_names() and add_extras(), with the text in the metadata if there is one. The remaining metadata become
/// the Snapshot's metadata.
STELE_EXPORT Status finish_names(SnapshotBuilder& to, std::map<std::string, std::string> metadata, IndexBudget& memory);

}  // namespace stele::inline v0::detail
