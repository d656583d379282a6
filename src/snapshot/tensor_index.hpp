// From the entries of a file that is a flat list of named tensors to its Snapshot: the one place where names are
// sorted, compared and looked up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "snapshot/paths.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// A tensor of a file, as its encoding describes it; or an entry that is none.
struct TensorEntry {
  std::string_view name;  // whole
  DType dtype = DType::none;
  std::span<const Extent> shape;
  std::uint64_t bytes = 0;
  Provider provider{};
  std::string_view unreadable{};  // the reason why it is no tensor
};

/// Returns the tensors of a snapshot, by leaf. The names are those of `paths`.
STELE_EXPORT std::vector<TensorEntry> entries_of(const Snapshot& snapshot, const LeafPaths& paths);

/// Adds an entry to a flat Snapshot, and takes what it needs from `memory`. Errors: limit.
STELE_EXPORT Status add_entry(SnapshotBuilder& to, const TensorEntry& entry, IndexBudget& memory);

/// A node whose name earlier nodes have.
struct RepeatedName {
  std::uint32_t node = 0;
  std::size_t earlier = 0;  // number of those nodes
};

/// Sorts the names of a flat Snapshot to which all entries are added, each with its whole name. Adds the nodes of names
/// that occur twice to `repeated`. Errors: duplicate (such a name).
STELE_EXPORT Status sort_names(SnapshotBuilder& to, std::vector<RepeatedName>* repeated = nullptr);

/// Adds what a text says that names cannot express (docs/formats/flat.md), after sort_names(). The caller has admitted
/// the text to `memory`. Errors: malformed, duplicate, limit.
STELE_EXPORT Status add_extras(SnapshotBuilder& to, std::string_view extras, IndexBudget& memory);

/// Does both, with the text in the metadata if they have one. The rest of the metadata become those of the Snapshot.
STELE_EXPORT Status finish_names(SnapshotBuilder& to, std::map<std::string, std::string> metadata, IndexBudget& memory);

}  // namespace stele::inline v0::detail
