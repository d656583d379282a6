// Opens Burnpack files.
#include "burnpack.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/limits.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/detail/little_endian.hpp"
#include "types.hpp"

namespace stele::inline v0 {
namespace detail::burn {
namespace {

struct Slot {
  std::uint64_t offset = 0, zeros = 0;
};

struct Pack {
  SourcePtr source;
  Bytes description;  // names are views of it
  std::vector<Slot> places;
};

// A leaf's number is its index in `places`.
constexpr LeafOps pack_ops{.locate = [](const void* at, std::uint64_t number) -> SourceRange {
  const auto* pack = static_cast<const Pack*>(at);
  const Slot& place = pack->places[static_cast<std::size_t>(number)];
  return {pack->source.get(), place.offset, place.zeros};
}};

class BurnpackReader {
 public:
  BurnpackReader(SourcePtr source, const Limits& limits) : pack_(std::make_shared<Pack>()), limits_(limits) {
    pack_->source = std::move(source);
  }

  Result<Snapshot> run() {
    STELE_TRY(read_header());
    memory_ = IndexBudget(limits_, pack_->source->size());
    memory_.admit(pack_->description.size(), index_rate::index);
    STELE_TRY_ASSIGN(index_, read_description(pack_->description.span(), memory_.left()));
    STELE_TRY(find_data());
    STELE_TRY(add_tensors());
    return finish();
  }

 private:
  using Entry = PackIndex::Entry;

  Status read_header() {
    const Source& source = *pack_->source;
    std::byte head[burnpack_header];
    if (source.size() < sizeof head) {
      return Error(Errc::truncated, "the file is shorter than a Burnpack header")
          .expected("10 bytes")
          .found(std::to_string(source.size()));
    }
    STELE_TRY(source.read_at(0, head));
    if (load_le<std::uint32_t>(head) != burnpack_magic) {
      return Error(Errc::bad_magic, "the file does not begin with the magic number of Burnpack")
          .expected("NRUB")
          .offset(0);
    }
    const auto version = load_le<std::uint16_t>(head + 4);
    if (version > burnpack_version) {
      return Error(Errc::unsupported, "the file has a later version of Burnpack")
          .expected("at most 1")
          .found(std::to_string(version))
          .offset(4);
    }
    const auto size = load_le<std::uint32_t>(head + 6);
    if (size > source.size() - sizeof head) {
      return Error(Errc::truncated, "the file ends inside the description")
          .expected(std::to_string(size) + " bytes")
          .found(std::to_string(source.size() - sizeof head))
          .offset(6);
    }
    pack_->description = Bytes(size);
    described_ = sizeof head + size;
    return source.read_at(sizeof head, pack_->description.span());
  }

  Error bad(Errc code, const char* text, const Entry& entry) const {
    return Error(code, text).path(std::string(entry.name)).offset(data_ + entry.begin);
  }

  /// Finds the offset of the tensors' bytes. Burn 0.19 did not align tensors, but its files have the version number of
  /// later files.
  Status find_data() {
    order_.resize(index_.entries.size());
    std::iota(order_.begin(), order_.end(), std::uint32_t{0});
    const auto range = [&](std::uint32_t i) { return std::pair(index_.entries[i].begin, index_.entries[i].end); };
    std::stable_sort(order_.begin(), order_.end(), [&](auto a, auto b) { return range(a) < range(b); });
    const std::uint64_t size = pack_->source->size();
    const std::uint64_t aligned = burnpack_aligned(described_);
    std::uint64_t at = 0;
    data_ = aligned;
    for (const std::uint32_t i : order_) {
      const Entry& entry = index_.entries[i];
      if (entry.end < entry.begin) return bad(Errc::malformed, "the tensor ends before it begins", entry);
      if (entry.end > size) return beyond(entry, size);
      packed_ = packed_ || entry.begin % burnpack_alignment != 0;
      at = std::max(at, entry.end);
    }
    std::array<std::byte, burnpack_alignment> bytes{};
    const auto gap = std::span(bytes).first(static_cast<std::size_t>(std::min(aligned, size) - described_));
    STELE_TRY(pack_->source->read_at(described_, gap));
    const auto used = std::find_if(gap.begin(), gap.end(), [](std::byte b) { return b != std::byte{0}; });
    if (!packed_ && size == described_ + at) {
      // The file may also be aligned and cut short by exactly the padding's size. Files of 0.19 store their version.
      const auto version = index_.metadata.find("version");
      const bool is_v0_19 = version != index_.metadata.end() && version->second.starts_with("0.19.");
      packed_ = at == 0 || used != gap.end() || is_v0_19;
    }
    if (packed_) {
      data_ = described_;
    } else if (used != gap.end()) {
      return Error(Errc::malformed, "the padding after the description is not zero")
          .offset(described_ + static_cast<std::uint64_t>(used - gap.begin()));
    }
    if (data_ <= size) return {};
    return Error(Errc::truncated, "the file ends before the tensor data")
        .expected(std::to_string(data_) + " bytes")
        .found(std::to_string(size));
  }

  Error beyond(const Entry& entry, std::uint64_t size) const {
    return bad(Errc::truncated, "the file ends inside the tensor", entry)
        .expected(std::to_string(entry.end) + " bytes of data")
        .found(std::to_string(size));
  }

  Status add_tensors() {
    const std::uint64_t size = pack_->source->size() - data_;
    builder_.set_flat();
    builder_.reserve(index_.entries.size() + index_.scalars.size() + 1, index_.entries.size(), index_.extents.size());
    pack_->places.reserve(index_.entries.size());
    std::uint64_t at = 0;
    for (const std::uint32_t i : order_) {
      Entry& entry = index_.entries[i];
      // Allows bytes between tensors: for two tensors of one name, Burn wrote both and described the second.
      if (entry.begin < at) {
        return bad(Errc::malformed, "the tensor overlaps the previous tensor", entry)
            .expected("an offset of at least " + std::to_string(at))
            .found(std::to_string(entry.begin));
      }
      if (entry.end > size) return beyond(entry, size);
      if (!pack_->places.empty()) pack_->places.back().zeros = packed_ ? 0 : burnpack_aligned(at) - at;
      const auto shape = index_.extents.begin() + static_cast<std::ptrdiff_t>(entry.extents);
      Tensor tensor{std::move(entry.dtype),
                    {shape, shape + static_cast<std::ptrdiff_t>(entry.rank)},
                    entry.end - entry.begin,
                    {&pack_ops, pack_.get(), pack_->places.size()}};
      if (auto r = add(builder_, entry.name, std::move(tensor)); !r) {
        return std::move(r).error().path(std::string(entry.name)).offset(data_ + entry.begin);
      }
      if (entry.id) builder_.set_id(*entry.id);
      pack_->places.push_back({data_ + entry.begin, 0});
      at = entry.end;
    }
    if (at == size) return {};
    return Error(Errc::malformed, "bytes follow the last tensor")
        .expected(std::to_string(data_ + at) + " bytes")
        .found(std::to_string(data_ + size))
        .offset(data_ + at);
  }

  Result<Snapshot> finish() {
    for (auto& scalar : index_.scalars) builder_.value(scalar.name, std::move(scalar.value), true);
    STELE_TRY(finish_names(builder_, std::move(index_.metadata), memory_));
    index_.skipped.leave_out(builder_.data().left_out, "unknown keys of the description");
    builder_.keep(pack_);
    return builder_.finish();
  }

  std::shared_ptr<Pack> pack_;
  SnapshotBuilder builder_;
  std::uint64_t described_ = 0;  // offset of the description's end
  std::uint64_t data_ = 0;       // offset of the tensors' bytes
  bool packed_ = false;          // the tensors are not aligned
  PackIndex index_;
  std::vector<std::uint32_t> order_;  // entries in file order
  const Limits& limits_;
  IndexBudget memory_;
};

}  // namespace
}  // namespace detail::burn

bool BurnpackFormat::recognises(std::span<const std::byte> head, std::uint64_t) const noexcept {
  return head.size() >= detail::burn::burnpack_header &&
         detail::load_le<std::uint32_t>(head.data()) == detail::burn::burnpack_magic;
}

Result<Snapshot> BurnpackFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::in_host_order(detail::burn::BurnpackReader(std::move(source), context.options().limits).run());
}

}  // namespace stele::inline v0
