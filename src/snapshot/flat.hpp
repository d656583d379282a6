// Formats whose files are a flat list of named tensors store the data that names cannot express (values, ties, empty
// containers, class versions) as one JSON string in the metadata, under the key `stele`, only if there is such data.
// Shared by safetensors and similar formats; docs/formats/flat.md.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Returns true if the names of tensors do not show this container, or this absence of one.
STELE_EXPORT bool needs_empty_entry(const SnapshotData& data, std::uint32_t node);

/// Marks, by node, the nodes with guessed kinds that the file must also list: Nones and empty containers, which may be
/// a null or a part of a value. Returns an empty vector if no kind is guessed.
STELE_EXPORT std::vector<bool> guessed_empties(const SnapshotData& data);

inline constexpr std::string_view flat_key = "stele";

/// Returns false for the text of another program, which is metadata like any other: its first key is not `version`.
STELE_EXPORT bool is_flat_text(std::string_view text);

/// Returns the JSON text for the key, or an empty string if the names are sufficient. `elsewhere` returns true for
/// values that the format stores outside this text; `shown`, for targets of aliases that the format shows otherwise.
/// Errors: limit (values nested too deeply), duplicate (two tensors with the same path).
STELE_EXPORT Result<std::string> flat_extras(
    const Snapshot& snapshot, const std::function<bool(const std::string& path, const Value&)>& elsewhere = nullptr,
    const std::function<bool(const Node& target)>& shown = nullptr);

/// Adds such a text, unless it is empty, to the metadata. Errors: not_representable (the metadata already have the key,
/// although such a text must be added, or with a value that a reader would take for such a text).
STELE_EXPORT Status add_flat_key(std::map<std::string, std::string>& metadata, std::string extras);

/// Adds the contents of such a text to the builder of a flat snapshot, after all tensors. `find` returns the node of a
/// name if it is a tensor or a value that the format stores outside this text, else no_index. `memory` counts the
/// memory; the caller must have admitted the text to it. Errors: malformed, duplicate, limit.
STELE_EXPORT Status add_flat_extras(std::string_view json, SnapshotBuilder& builder,
                                    const std::function<std::uint32_t(std::string_view)>& find, IndexBudget& memory);

}  // namespace stele::inline v0::detail
