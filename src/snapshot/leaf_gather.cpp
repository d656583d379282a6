#include "snapshot/leaf_gather.hpp"

#include <algorithm>

#include "base/parallel.hpp"
#include "snapshot/ahead.hpp"

namespace stele::inline v0::detail {

/// Hashes each piece while it is in the cache, just before it is written.
class LeafGather::LeafSink final : public PieceSink {
 public:
  LeafSink(LeafGather& to, bool hash) : to_(to), hash_(hash) {
    if (hash) to.hasher_.reset();
  }
  Status piece(std::span<const std::byte> bytes) override {
    if (!hash_) return to_.write(bytes);
    while (!bytes.empty()) {
      const auto now = bytes.first(std::min(bytes.size(), ReadContext::piece_size));
      to_.hasher_.update(now.data(), now.size());
      STELE_TRY(to_.write(now));
      bytes = bytes.subspan(now.size());
    }
    return {};
  }

 private:
  LeafGather& to_;
  bool hash_;
};

bool LeafGather::passes_by(const LeafView& leaf) noexcept {
  const LeafOps& ops = *leaf.provider().ops;
  return ops.stream == nullptr && ops.locate == nullptr && ops.view != nullptr && !leaf.view().empty();
}

Status LeafGather::leaf(const LeafView& leaf, ReadContext& context, std::uint64_t* hash) {
  if (leaf.byte_size() < direct && passes_by(leaf)) {
    const auto bytes = leaf.view();
    if (hash != nullptr) *hash = hasher_.of(bytes.data(), bytes.size());
    return bytes.size() < min_referred_bytes ? write(bytes) : refer(bytes);
  }
  if (hash != nullptr && leaf.byte_size() >= min_parallel_hash_bytes && context.workers().threads > 1 &&
      passes_by(leaf)) {
    const auto bytes = leaf.view();
    Status written;
    beside(
        context.workers(), [&] { *hash = hasher_.of(bytes.data(), bytes.size()); }, [&] { written = write(bytes); });
    return written;
  }
  if (worth_ahead(leaf, context.workers())) {
    hasher_.reset();
    LeafSink sink(*this, false);
    STELE_TRY(stream_ahead(leaf, context, hash != nullptr ? &hasher_ : nullptr, sink));
  } else {
    LeafSink sink(*this, hash != nullptr);
    STELE_TRY(leaf.stream(sink, context));
  }
  if (hash != nullptr) *hash = hasher_.digest();
  return {};
}

Status LeafGather::leaf_after_hash(const LeafView& leaf, ReadContext& context,
                                   const std::function<Status(std::uint64_t)>& begin,
                                   const std::function<Status(std::uint64_t)>& patch) {
  const std::uint64_t size = leaf.byte_size();
  if (size <= max_held_bytes && (size == 0 || passes_by(leaf))) {
    STELE_TRY(begin(hasher_.of(leaf.view().data(), static_cast<std::size_t>(size))));
    return size == 0 ? Status() : this->leaf(leaf, context);
  }
  if (size <= max_held_bytes) {
    class Hold final : public PieceSink {
     public:
      Status piece(std::span<const std::byte> bytes) override {
        all.insert(all.end(), bytes.begin(), bytes.end());
        return {};
      }
      std::vector<std::byte> all;
    } held;
    held.all.reserve(static_cast<std::size_t>(size));
    STELE_TRY(leaf.stream(held, context));
    STELE_TRY(begin(hasher_.of(held.all.data(), held.all.size())));
    return write(held.all);
  }
  if (can_patch()) {
    STELE_TRY(begin(0));
    std::uint64_t hash = 0;
    STELE_TRY(this->leaf(leaf, context, &hash));
    return patch(hash);
  }
  class Hash final : public PieceSink {
   public:
    explicit Hash(Hasher& hasher) : hasher_(hasher) { hasher.reset(); }
    Status piece(std::span<const std::byte> bytes) override {
      hasher_.update(bytes.data(), bytes.size());
      return {};
    }

   private:
    Hasher& hasher_;
  } hash(hasher_);
  STELE_TRY(leaf.stream(hash, context));
  STELE_TRY(begin(hasher_.digest()));
  return this->leaf(leaf, context);
}

}  // namespace stele::inline v0::detail
