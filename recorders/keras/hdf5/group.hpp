// Groups: their links, in symbol tables, in link messages or in fractal heaps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "object_header.hpp"

namespace stele::inline v0::detail::hdf5 {

struct Link {
  std::string name{};
  std::uint64_t object = undefined;
  std::string reason{};  // why the link is not followed
};

/// Returns true if an object with these messages is a group.
bool is_group(const Header& header);

/// Returns the links of a group, in the file's order, or sorted by number if all of their names are numbers; those in a
/// heap in the order of their creation, or sorted by name if the file has no such order. `path`: path of the group, for
/// errors. Errors: malformed, truncated, limit.
Result<std::vector<Link>> read_links(File& file, const Header& header, std::string_view path);

}  // namespace stele::inline v0::detail::hdf5
