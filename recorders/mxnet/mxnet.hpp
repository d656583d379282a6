// Definitions that the reader and the writer of MXNet's files share.
#pragma once

#include <string_view>

namespace stele::inline v0::detail::mxnet {

/// Key of the annotation with the prefix of a name: "arg" or "aux".
inline constexpr std::string_view prefix_note = "mxnet.prefix";
/// Origins of files: a list without names; names whose prefixes are parts of the paths; arrays of version 3.
inline constexpr const char *list_origin = "mxnet.list", *stored_origin = "mxnet.names", *v3_origin = "mxnet.v3";

/// Returns true if a name begins with `arg:` or `aux:`.
inline bool has_prefix(std::string_view name) { return name.starts_with("arg:") || name.starts_with("aux:"); }
inline constexpr std::size_t prefix_size = 4;

}  // namespace stele::inline v0::detail::mxnet
