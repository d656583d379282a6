// Needs announces the future reads of leaves to sources that read ahead.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail {

/// Collects the ranges that leaves will read.
class STELE_EXPORT Needs {
 public:
  enum class Unread : std::uint8_t { withdrawn, kept };  // by the destructor
  explicit Needs(Unread unread = Unread::withdrawn) : unread_(unread) {}
  Needs(const Needs&) = delete;
  Needs& operator=(const Needs&) = delete;
  ~Needs();
  /// Adds a leaf, or the leaves that it is computed from.
  void add(const LeafView& leaf) { add(leaf.provider(), leaf.byte_size()); }
  void add(const Provider& leaf, std::uint64_t size) {
    if (leaf.ops->locate != nullptr || leaf.ops->needs != nullptr) add_stored(leaf, size);
  }
  /// Adds all leaves.
  void add(const Snapshot& snapshot);
  /// Announces the ranges to their sources, which must outlive this object.
  void announce();

 private:
  void add_stored(const Provider& leaf, std::uint64_t size);
  struct PerSource {
    const Source* source;
    std::vector<ByteRange> ranges;
  };
  std::vector<PerSource> found_;
  const Source* last_ = nullptr;              // source of the last leaf
  std::vector<ByteRange>* ranges_ = nullptr;  // announced ranges of last_, if it plans
  unsigned depth_ = 0;
  Unread unread_;
};

}  // namespace stele::inline v0::detail
