// Containers with members in which the reader found nothing: this is not a success.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stele/bundle.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// First words of a part in SnapshotData::left_out that names members of a container: their reader does not know
/// whether they have weights.
inline constexpr std::string_view unread_part = "members that are not read";

/// Returns the snapshot of a container; if it has no tensor and no value, with the names of the members that are not
/// read: those for which `known` returns false, except JSON files and other files that describe a model.
Snapshot with_unread(Snapshot snapshot, std::span<const std::string> members,
                     const std::function<bool(std::string_view)>& known = nullptr);
/// As above, with the files of a folder. Errors: those of Bundle::names().
Result<Snapshot> with_unread(Snapshot snapshot, const Bundle& folder,
                             const std::function<bool(std::string_view)>& known = nullptr);

/// Returns the error of a container in which the reader found no tensor and no value, but members that it does not
/// read; nullopt for other snapshots. Errors: unsupported.
std::optional<Error> nothing_found(const Snapshot& snapshot);
/// Returns that error as a status.
Status check_found(const Snapshot& snapshot);
/// Adds a note to a snapshot with that error.
Snapshot with_note_of_nothing(const Snapshot& snapshot);

}  // namespace stele::inline v0::detail
