// Shared by the fuzz targets of Burn's formats.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "fuzz/require.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace stele_test {

/// Returns options that accept missing, unused and converted fields.
inline stele::LoadOptions lenient() {
  stele::LoadOptions options;
  options.allow_missing = options.allow_unused = {"*"};
  options.convert = {true, true};
  return options;
}

/// Reads all leaves, and a part of each. Returns false if a leaf cannot be read, or has elements without a meaning.
/// Aborts if the leaves have more than `max_bytes`.
inline bool read_leaves(const stele::Snapshot& snapshot, std::uint64_t max_bytes) {
  bool whole = true;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const stele::LeafView leaf = snapshot.leaf(i);
    const auto all = content(leaf);
    require(!all || all->size() == leaf.byte_size());
    whole = whole && all && means_something(leaf.dtype(), *all);
    total += leaf.byte_size();
    const std::size_t size = std::max<std::size_t>(stele::element_size(leaf.dtype()), 1);
    if (!all) continue;
    const std::size_t begin = all->size() / size / 2 * size;
    std::string half(all->size() - begin, '\0');
    require(leaf.read(begin, std::as_writable_bytes(std::span(half))).has_value());
    require(half == all->substr(begin));
  }
  require(total <= max_bytes);
  return whole;
}

}  // namespace stele_test
