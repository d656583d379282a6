// Collects a format's own bytes and the bytes of leaves for a sink.
#pragma once

#include <functional>

#include "base/hash.hpp"
#include "io/gather.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

class STELE_EXPORT LeafGather final : public Gather {
 public:
  /// Hashes leaves with XXH3-64, or with `crc`.
  explicit LeafGather(Sink& sink, Crc32 crc = nullptr) : Gather(sink), hasher_(crc) {}

  /// Writes a leaf's bytes and, unless `hash` is null, hashes them. Errors: those of LeafView::stream and of the sink.
  Status leaf(const LeafView& leaf, ReadContext& context, std::uint64_t* hash = nullptr);
  /// Writes a leaf whose hash precedes its bytes. Calls `begin(hash)` once, before the bytes. For a large leaf and a
  /// sink that can patch, calls `begin(0)`, and `patch(hash)` after the bytes. Errors: those of leaf(), `begin` and
  /// `patch`.
  Status leaf_after_hash(const LeafView& leaf, ReadContext& context, const std::function<Status(std::uint64_t)>& begin,
                         const std::function<Status(std::uint64_t)>& patch);
  /// Returns true if leaf() writes the leaf directly from a module in memory, without reading its bytes.
  static bool passes_by(const LeafView& leaf) noexcept;

 private:
  class LeafSink;
  /// Leaves with fewer bytes are copied, because that costs the system less than an additional piece.
  static constexpr std::size_t min_referred_bytes = 256;
  /// Maximum size of a computed (converted, decompressed) leaf that leaf_after_hash() holds in memory (1 MiB).
  static constexpr std::size_t max_held_bytes = std::size_t{1} << 20;
  /// Minimum size of a tensor in memory that a second thread hashes while it is written: starting the thread takes a
  /// hundredth of the hashing time.
  static constexpr std::size_t min_parallel_hash_bytes = std::size_t{4} << 20;

  Hasher hasher_;
};

}  // namespace stele::inline v0::detail
