// B-trees of version 1: of the symbol tables of groups (type 0), and of chunks (type 1). B-trees of version 2: of
// links, attributes and large objects in fractal heaps, and of chunks (types 10 and 11).
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

using VisitRecord = std::function<Status(View record)>;

/// Calls `visit` with each record of a B-tree of version 2, in the order of the tree.
Status each_record(File& file, std::uint64_t tree, unsigned type, std::size_t record_size, const VisitRecord& visit);

}  // namespace stele::inline v0::detail::hdf5
