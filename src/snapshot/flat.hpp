// Formats whose files are a flat list of named tensors keep what names cannot say (values, ties, empty containers,
// class versions) as one JSON string among the metadata, under the key `stele`, only when there is something to say.
// Shared by safetensors and formats like it; docs/formats/flat.md.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// Whether names alone would not say that this container or none is there.
STELE_EXPORT bool must_be_said(const SnapshotData& data, std::uint32_t node);

/// Nodes of a snapshot whose kinds are guessed that must be said, too: Nones and empty containers in what has no
/// tensor, which may be an alternative of a variant, or a part of a value. By node; empty where nothing is guessed.
STELE_EXPORT std::vector<bool> guessed_empties(const SnapshotData& data);

inline constexpr std::string_view flat_key = "stele";

/// The JSON text for the key, or an empty string where the names say all. Errors: limit (values nested too deep),
/// duplicate (two tensors whose paths are equal). `elsewhere`: the values that the format has another place for.
STELE_EXPORT Result<std::string> flat_extras(
    const Snapshot& snapshot, const std::function<bool(const std::string& path, const Value&)>& elsewhere = nullptr);

/// Adds what such a text says to the builder of a flat snapshot, whose tensors have all been added. `find` gives a
/// node by name: that of a tensor, or of a value that the format has another place for; else no_index. `memory` counts
/// what is taken; the caller has admitted the text to it. Errors: malformed, duplicate, limit.
STELE_EXPORT Status add_flat_extras(std::string_view json, SnapshotBuilder& builder,
                                    const std::function<std::uint32_t(std::string_view)>& find, IndexBudget& memory);

}  // namespace detail
}  // namespace v0
}  // namespace stele
