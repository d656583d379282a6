#include "snapshot/leaf_gather.hpp"

#include <algorithm>

#include "base/parallel.hpp"
#include "snapshot/ahead.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// Hashes each piece while it is in cache, just before it is written.
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

}  // namespace detail
}  // namespace v0
}  // namespace stele
