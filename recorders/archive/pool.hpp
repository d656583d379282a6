// Finds arrays of an archive by content.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "file.hpp"
#include "lines.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::archive {

/// The arrays in the file by dtype, shape and CRC-32, to find duplicates.
class Pool {
 public:
  struct Known {
    Reference reference;
    const Stored* stored = nullptr;  // null for an array of this save, which is `leaf`
    std::optional<LeafView> leaf;
  };
  using Key = std::tuple<DType, std::vector<Extent>, std::uint32_t>;
  static Key key(const LeafView& leaf, std::uint32_t crc) {
    return {leaf.dtype(), {leaf.shape().begin(), leaf.shape().end()}, crc};
  }
  void add(Kind kind, Key key, Known known) {
    known_[static_cast<int>(kind)].emplace(std::move(key), std::move(known));
  }

  /// Finds an array with the same bytes. A read error ends the search, because the save would fail with it as well.
  Result<std::optional<Reference>> find(Kind kind, const LeafView& leaf, std::uint32_t crc, ReadContext& context) const;

 private:
  std::multimap<Key, Known> known_[2];
};

}  // namespace stele::inline v0::detail::archive
