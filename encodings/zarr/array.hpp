// The elements of zarr arrays, as leaves: chunks are found and decoded when they are read.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/threads.hpp"
#include "encodings/zarr/metadata.hpp"
#include "encodings/zarr/store.hpp"
#include "stele/bytes.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::zarr {

class ArrayLeaf;

/// The arrays of a store, and the chunks that were decoded last. The leaves' providers point to it.
class Arrays {
 public:
  explicit Arrays(std::shared_ptr<const Store> store);
  ~Arrays();
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  /// Adds an array and returns its leaf, whose elements are little-endian (in_host_order()). Returns an empty provider
  /// if array.unreadable contains a reason, or if the reader adds one: too much of the array has no chunks. Takes
  /// memory from `memory`. Errors: limit, those of the store.
  Result<Provider> add(Array& array, IndexBudget& memory);
  /// Returns the number of bytes to which the stored chunks can decode.
  std::uint64_t capacity() const noexcept { return capacity_; }
  /// Returns a note for each array that lacks chunks, except those whose chunks must all exist (Array::complete).
  const std::vector<std::string>& notes() const noexcept { return notes_; }

 private:
  friend class ArrayLeaf;
  struct Cached {
    const ArrayLeaf* array;
    std::uint64_t number;  // number of the chunk or, with the highest bit set, of the shard with this index
    std::shared_ptr<const Bytes> bytes;
  };
  /// Size of the cache: chunks that small reads, such as runs of a region, need again (64 MiB). The last one is always
  /// kept.
  static constexpr std::uint64_t cache_bytes = std::uint64_t{64} << 20;

  /// Bounds of the bytes and chunks that a store lacks (16 GiB, 4 Mi): a few bytes of metadata could otherwise describe
  /// elements that take years to read.
  static constexpr std::uint64_t max_absent_bytes = std::uint64_t{16} << 30, max_absent_chunks = std::uint64_t{4} << 20;

  void note_absent(const Array& array, std::uint64_t absent_values, std::uint64_t values);
  std::shared_ptr<const Bytes> cached(const ArrayLeaf* array, std::uint64_t number) const;
  void keep(const ArrayLeaf* array, std::uint64_t number, std::shared_ptr<const Bytes> bytes) const;

  std::shared_ptr<const Store> store_;
  std::vector<std::unique_ptr<const ArrayLeaf>> arrays_;
  std::vector<SourcePtr> sources_;
  std::vector<std::string> notes_;
  std::uint64_t capacity_ = 0;
  // remaining limits for absent chunks
  std::uint64_t absent_bytes_ = max_absent_bytes, absent_chunks_ = max_absent_chunks;
  mutable Mutex mutex_;
  mutable std::list<Cached> cache_;  // the last used first
  mutable std::uint64_t cached_bytes_ = 0;
};

}  // namespace stele::inline v0::detail::zarr
