#include "gather.hpp"

#include <algorithm>
#include <cstring>

namespace stele {
inline namespace v0 {
namespace detail {

Status Gather::write(std::span<const std::byte> bytes) {
  position_ += bytes.size();
  if (bytes.size() >= direct) {
    const std::span<const std::byte> pieces[] = {staging_.span().first(used_), bytes};
    const bool staged = used_ != 0;
    used_ = 0;
    return sink_.write(std::span(pieces).subspan(staged ? 0 : 1));
  }
  if (bytes.size() > size - used_) STELE_TRY(flush());
  if (!bytes.empty()) std::memcpy(staging_.data() + used_, bytes.data(), bytes.size());
  used_ += bytes.size();
  return {};
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
  if (used_ == 0) return {};
  const auto all = staging_.span().first(used_);
  used_ = 0;
  return sink_.write(std::span<const std::byte>(all));
}

/// Hashes each piece while it is in cache, just before it is written.
class Gather::LeafSink final : public PieceSink {
 public:
  LeafSink(Gather& to, bool hash) : to_(to), hash_(hash) {
    if (hash) to.hasher_.reset();
  }
  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto now = bytes.first(std::min(bytes.size(), ReadContext::piece_size));
      if (hash_) to_.hasher_.update(now.data(), now.size());
      STELE_TRY(to_.write(now));
      bytes = bytes.subspan(now.size());
    }
    return {};
  }

 private:
  Gather& to_;
  bool hash_;
};

Status Gather::leaf(const LeafView& leaf, ReadContext& context, std::uint64_t* hash) {
  const std::uint64_t before = position_;
  const auto bytes = leaf.view();
  if (!bytes.empty() && bytes.size() < direct && leaf.provider().ops->stream == nullptr) {
    if (hash != nullptr) *hash = hash64(bytes.data(), bytes.size());
    return write(bytes);
  }
  LeafSink sink(*this, hash != nullptr);
  STELE_TRY(leaf.stream(sink, context));
  if (hash != nullptr) *hash = hasher_.digest();
  if (position_ - before != leaf.byte_size()) {
    return Error(Errc::malformed, "a leaf gave another number of bytes than it said")
        .path(leaf.path())
        .expected(std::to_string(leaf.byte_size()))
        .found(std::to_string(position_ - before));
  }
  return {};
}

}  // namespace detail
}  // namespace v0
}  // namespace stele
