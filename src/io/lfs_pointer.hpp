// Pointers of git-lfs: text files in place of files that git-lfs has not fetched.
#pragma once

#include <string_view>

namespace stele::inline v0::detail {

inline constexpr std::string_view lfs_pointer_begin = "version https://git-lfs.github.com/spec/";
inline constexpr std::string_view lfs_pointer_text = "a git-lfs pointer: run git lfs pull";
/// Maximum size of a pointer in bytes (git-lfs, docs/spec.md).
inline constexpr unsigned max_lfs_pointer = 1024;

}  // namespace stele::inline v0::detail
