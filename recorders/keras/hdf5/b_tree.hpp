// B-trees of version 1: of the symbol tables of groups (type 0), and of chunks (type 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "file.hpp"

namespace stele::inline v0::detail::hdf5 {

using VisitChild = std::function<Status(std::uint64_t child, View key)>;

/// Calls `visit` with the address of each child of the leaves of a B-tree of version 1, and the key before it.
/// `key_size`: size of a key in bytes.
Status each_leaf(File& file, std::uint64_t tree, unsigned type, std::size_t key_size, const VisitChild& visit);

}  // namespace stele::inline v0::detail::hdf5
