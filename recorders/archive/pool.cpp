// Finds arrays of an archive by content.
#include "pool.hpp"

#include <algorithm>

namespace stele::inline v0::detail::archive {

namespace {

/// Signals that two leaves' bytes differ.
constexpr Errc differs = Errc::checksum;

/// Compares a leaf's bytes with bytes that can be read at any offset.
template <class Read>
class CompareSink final : public PieceSink {
 public:
  explicit CompareSink(Read read) : read_(std::move(read)) {}
  Status piece(std::span<const std::byte> bytes) override {
    other_.resize(bytes.size());
    STELE_TRY(read_(done_, std::span(other_)));
    done_ += bytes.size();
    return std::equal(bytes.begin(), bytes.end(), other_.begin()) ? Status() : Error(differs);
  }

 private:
  Read read_;
  std::vector<std::byte> other_;
  std::uint64_t done_ = 0;
};

}  // namespace

Result<std::optional<Reference>> Pool::find(Kind kind, const LeafView& leaf, std::uint32_t crc,
                                            ReadContext& context) const {
  const auto [first, last] = known_[static_cast<int>(kind)].equal_range(key(leaf, crc));
  for (auto it = first; it != last; ++it) {
    const Known& other = it->second;
    Status same;
    if (other.stored != nullptr) {
      CompareSink sink([&](std::uint64_t at, std::span<std::byte> out) {
        return other.stored->source->read_at(other.stored->offset + at, out);
      });
      same = leaf.stream(sink, context);
    } else {
      CompareSink sink([&](std::uint64_t at, std::span<std::byte> out) { return other.leaf->read(at, out); });
      same = leaf.stream(sink, context);
    }
    if (same) return std::optional(other.reference);
    if (same.error().code() != differs) return std::move(same).error();
  }
  return std::optional<Reference>();
}

}  // namespace stele::inline v0::detail::archive
