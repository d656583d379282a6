// Names that Windows does not give to a file (Naming Files, Paths, and Namespaces, Microsoft Learn). Every system
// checks names in models' folders, so that the folders can be copied to any; Windows also checks the paths of the user.
#pragma once

#include <string_view>

namespace stele::inline v0::detail {

/// Returns true if Windows takes this part of a path for a device (NUL, aux.bin, com7), or removes its end (`a.`, `a
/// `).
bool is_reserved(std::string_view part) noexcept;

/// Returns the first reserved part of a path; empty if it has none, and for a path with the prefix \\?\ or \\.\, whose
/// parts Windows uses unchanged.
std::string_view reserved_part(std::string_view path) noexcept;

}  // namespace stele::inline v0::detail
