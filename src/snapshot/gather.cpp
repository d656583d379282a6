#include "snapshot/gather.hpp"

#include <algorithm>
#include <cstring>

#include "base/parallel.hpp"
#include "snapshot/ahead.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

Gather::Gather(Sink& sink, Crc32 crc) : sink_(sink), staging_(size), hasher_(crc) { pieces_.reserve(most_pieces); }

Status Gather::write(std::span<const std::byte> bytes) {
  if (bytes.size() >= direct) {
    STELE_TRY(refer(bytes));
    return flush();
  }
  if (bytes.empty()) return {};
  if (bytes.size() > size - used_) STELE_TRY(flush());
  std::byte* to = staging_.data() + used_;
  std::memcpy(to, bytes.data(), bytes.size());
  used_ += bytes.size();
  if (!pieces_.empty() && pieces_.back().data() + pieces_.back().size() == to) {
    pieces_.back() = {pieces_.back().data(), pieces_.back().size() + bytes.size()};
    waiting_ += bytes.size();
    return {};
  }
  return refer({to, bytes.size()});
}

Status Gather::refer(std::span<const std::byte> bytes) {
  pieces_.push_back(bytes);
  waiting_ += bytes.size();
  // Up to here the bytes are in cache since they were hashed.
  return waiting_ >= size || pieces_.size() == most_pieces ? flush() : Status();
}

Status Gather::zeros(std::size_t count) {
  static constexpr std::byte nothing[4096]{};
  while (count != 0) {
    const std::size_t n = std::min(count, sizeof nothing);
    STELE_TRY(write({nothing, n}));
    count -= n;
  }
  return {};
}

Status Gather::flush() {
  if (pieces_.empty()) return {};
  auto written = sink_.write(std::span<const std::span<const std::byte>>(pieces_));
  pieces_.clear();
  used_ = 0;
  flushed_ += waiting_;
  waiting_ = 0;
  return written;
}

Status Gather::copy(const Source& from, std::uint64_t offset, std::uint64_t size) {
  STELE_TRY(flush());
  STELE_TRY(sink_.copy(from, offset, size));
  flushed_ += size;
  return {};
}

Status Gather::patch(std::uint64_t offset, std::span<const std::byte> bytes) {
  STELE_TRY(flush());
  return sink_.patch(offset, bytes);
}

/// Hashes each piece while it is in cache, just before it is written.
class Gather::LeafSink final : public PieceSink {
 public:
  LeafSink(Gather& to, bool hash) : to_(to), hash_(hash) {
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
  Gather& to_;
  bool hash_;
};

bool Gather::passes_by(const LeafView& leaf) noexcept {
  const LeafOps& ops = *leaf.provider().ops;
  return ops.stream == nullptr && ops.locate == nullptr && ops.view != nullptr && !leaf.view().empty();
}

Status Gather::leaf(const LeafView& leaf, ReadContext& context, std::uint64_t* hash) {
  const std::uint64_t before = position();
  if (leaf.byte_size() < direct && passes_by(leaf)) {
    const auto bytes = leaf.view();
    if (hash != nullptr) *hash = hasher_.of(bytes.data(), bytes.size());
    return bytes.size() < worth_referring ? write(bytes) : refer(bytes);
  }
  if (hash != nullptr && leaf.byte_size() >= worth_beside && context.workers().threads > 1 && passes_by(leaf)) {
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
  if (position() - before != leaf.byte_size()) {
    return Error(Errc::malformed, "a leaf gave another number of bytes than it said")
        .path(leaf.path())
        .expected(std::to_string(leaf.byte_size()))
        .found(std::to_string(position() - before));
  }
  return {};
}

}  // namespace detail
}  // namespace v0
}  // namespace stele
