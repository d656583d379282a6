// Checks boxes, and joins them to a tensor.
#include "leaves/boxes.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/hash.hpp"
#include "leaves/blocks.hpp"
#include "leaves/needs.hpp"
#include "leaves/provider.hpp"
#include "leaves/source_range.hpp"

namespace stele::inline v0::detail {
namespace {

/// Maximum number of axes along which the boxes of one tensor may be cut: each axis doubles the number of corners of a
/// box.
constexpr std::size_t max_cut_axes = 8;

/// Returns the axes along which a box is smaller than the tensor.
std::vector<std::size_t> cut_axes(std::span<const Box> boxes, std::span<const Extent> shape) {
  std::vector<std::size_t> axes;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (std::any_of(boxes.begin(), boxes.end(), [&](const Box& b) { return b.length[d] != shape[d]; })) {
      axes.push_back(d);
    }
  }
  return axes;
}

/// A corner of boxes, with the sum of the boxes' signs there.
struct Corner {
  std::array<Extent, max_cut_axes> at{};
  std::int64_t sign = 0;
};

void add_corners(std::vector<Corner>& corners, const Box& box, std::span<const std::size_t> axes, int factor) {
  for (unsigned ends = 0; ends < 1U << axes.size(); ++ends) {
    Corner& corner = corners.emplace_back();
    corner.sign = factor;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const bool end = (ends >> i & 1) != 0;
      corner.at[i] = box.start[axes[i]] + (end ? box.length[axes[i]] : 0);
      if (end) corner.sign = -corner.sign;
    }
  }
}

Status check_inside(const Box& box, std::span<const Extent> shape) {
  if (box.start.size() != shape.size() || box.length.size() != shape.size()) {
    return Error(Errc::malformed, "a part's rank differs from that of its tensor")
        .expected(std::to_string(shape.size()))
        .found(std::to_string(box.start.size()));
  }
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (box.start[d] <= shape[d] && box.length[d] <= shape[d] - box.start[d]) continue;
    return Error(Errc::malformed, "a part exceeds its tensor")
        .expected("at most " + std::to_string(shape[d]) + " along axis " + std::to_string(d))
        .found(std::to_string(box.length[d]) + " from " + std::to_string(box.start[d]) + " on");
  }
  return {};
}

}  // namespace

Status check_cover(std::span<const Box> boxes, std::span<const Extent> shape, IndexBudget& memory) {
  for (const Box& box : boxes) STELE_TRY(check_inside(box, shape));
  if (std::find(shape.begin(), shape.end(), Extent{0}) != shape.end()) return {};
  const std::vector<std::size_t> axes = cut_axes(boxes, shape);
  if (axes.size() > max_cut_axes) {
    return Error(Errc::unsupported, "the tensor is cut along too many axes")
        .expected("at most " + std::to_string(max_cut_axes))
        .found(std::to_string(axes.size()));
  }
  // The function that is 1 in a box and 0 elsewhere is determined by the box's corners with alternating signs. The sum
  // of these functions is 1 in the whole tensor exactly if the corners of the boxes cancel those of the whole tensor.
  const std::size_t count = (boxes.size() + 1) << axes.size();
  if (!memory.take(count * sizeof(Corner))) {
    return index_error("the list of a tensor's parts needs more memory than the size of the file allows");
  }
  std::vector<Corner> corners;
  corners.reserve(count);
  for (const Box& box : boxes) add_corners(corners, box, axes, 1);
  add_corners(corners, {std::vector<Extent>(shape.size()), {shape.begin(), shape.end()}}, axes, -1);
  std::sort(corners.begin(), corners.end(), [](const Corner& a, const Corner& b) { return a.at < b.at; });
  for (std::size_t i = 0; i < corners.size();) {
    std::int64_t sum = 0;
    const std::size_t first = i;
    for (; i < corners.size() && corners[i].at == corners[first].at; ++i) sum += corners[i].sign;
    if (sum == 0) continue;
    std::string at;
    for (std::size_t k = 0; k < axes.size(); ++k) {
      at += (k != 0 ? ", " : "at ") + std::to_string(corners[first].at[k]) + " along axis " + std::to_string(axes[k]);
    }
    if (axes.empty()) at = std::to_string(boxes.size()) + " parts that each cover the whole tensor";
    return Error(Errc::malformed, "the parts of the tensor overlap or do not cover it").found(at);
  }
  return {};
}

JoinedBoxes::JoinedBoxes(std::span<const Extent> shape, std::size_t element, std::span<const Box> boxes,
                         std::span<const Provider> parts)
    : strides_(std::max<std::size_t>(shape.size(), 1), element) {
  for (std::size_t d = shape.size(); d-- > 1;) strides_[d - 1] = strides_[d] * shape[d];
  parts_.reserve(boxes.size());
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const Box& box = boxes[i];
    if (std::find(box.length.begin(), box.length.end(), Extent{0}) != box.length.end()) continue;
    Part part{parts[i], element, 1, 0, 0, shape.empty() ? 0 : shape.size() - 1, extents_.size()};
    while (part.axis > 0 && box.length[part.axis] == shape[part.axis]) --part.axis;
    if (shape.empty()) {
      extents_.push_back(0);
    } else {
      part.run = strides_[part.axis] * box.length[part.axis];
      extents_.insert(extents_.end(), box.start.begin(),
                      box.start.begin() + static_cast<std::ptrdiff_t>(part.axis + 1));
      extents_.insert(extents_.end(), box.length.begin(), box.length.begin() + static_cast<std::ptrdiff_t>(part.axis));
    }
    for (std::size_t d = 0; d < part.axis; ++d) part.count *= box.length[d];
    part.begin = place(part, 0);
    part.end = place(part, part.count - 1) + part.run;
    parts_.push_back(part);
  }
  std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) { return a.begin < b.begin; });
  reach_.reserve(parts_.size());
  for (const Part& part : parts_) reach_.push_back(std::max(part.end, reach_.empty() ? 0 : reach_.back()));
}

std::uint64_t JoinedBoxes::memory(std::size_t parts, std::size_t rank) noexcept {
  return sizeof(JoinedBoxes) + 8 * rank + parts * (sizeof(Part) + 8 + 4 * sizeof(Extent) * (rank + 1)) + 128;
}

std::uint64_t JoinedBoxes::place(const Part& part, std::uint64_t k) const noexcept {
  const Extent* const start = extents_.data() + part.extents;
  const Extent* const length = start + part.axis + 1;
  std::uint64_t at = start[part.axis] * strides_[part.axis];
  for (std::size_t d = part.axis; d-- > 0; k /= length[d]) at += (start[d] + k % length[d]) * strides_[d];
  return at;
}

std::uint64_t JoinedBoxes::bytes_before(const Part& part, Position at, std::uint64_t end) const noexcept {
  std::uint64_t size = 0;
  for (; at.run < part.count; ++at.run, at.within = 0) {
    const std::uint64_t begin = place(part, at.run) + at.within;
    if (begin >= end) break;
    const std::uint64_t n = part.run - at.within;
    if (n > end - begin) return size + (end - begin);
    size += n;
  }
  return size;
}

/// Stores consecutive bytes of a part at their positions in a block of the tensor, which must contain all of them.
class JoinedBoxes::Scatter final : public PieceSink {
 public:
  Scatter(const JoinedBoxes& tensor, const Part& part, Position& at, std::uint64_t first, std::span<std::byte> out)
      : tensor_(tensor), part_(part), at_(at), first_(first), out_(out) {}

  std::byte* place(std::uint64_t, std::size_t size) override {
    return at_.run < part_.count && size <= part_.run - at_.within ? here() : nullptr;
  }
  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), part_.run - at_.within));
      if (std::byte* const to = here(); to != bytes.data()) std::memcpy(to, bytes.data(), n);
      at_.within += n;
      if (at_.within == part_.run) at_ = {at_.run + 1, 0};
      bytes = bytes.subspan(n);
    }
    return {};
  }

 private:
  std::byte* here() const noexcept { return out_.data() + (tensor_.place(part_, at_.run) + at_.within - first_); }

  const JoinedBoxes& tensor_;
  const Part& part_;
  Position& at_;
  std::uint64_t first_;
  std::span<std::byte> out_;
};

Status JoinedBoxes::copy(const Part& part, Position& at, std::uint64_t first, std::span<std::byte> out,
                         ReadContext& context, Hasher* hasher) const {
  std::uint64_t size = bytes_before(part, at, first + out.size());
  std::uint64_t offset = at.run * part.run + at.within;
  const auto all = view_bytes(part.leaf, part.size());
  const bool stored = part.leaf.ops->locate != nullptr;
  const SourceRange range = stored ? part.leaf.ops->locate(part.leaf.at, part.leaf.number) : SourceRange();
  Scatter scatter(*this, part, at, first, out);
  // A computed leaf is read once for each block, because each read may take a pass over the data from which it is
  // computed.
  const std::uint64_t step = stored ? ReadContext::piece_size : size;
  std::optional<ReadContext::Piece> staging;
  Bytes computed;
  for (std::size_t n = 0; size != 0; size -= n, offset += n) {
    n = static_cast<std::size_t>(all.empty() ? std::min(step, size) : size);
    std::span<const std::byte> piece;
    if (!all.empty()) {
      piece = all.subspan(static_cast<std::size_t>(offset), n);
    } else if (stored && n <= ReadContext::piece_size / 4) {
      STELE_TRY_ASSIGN(piece, context.window(*range.source, range.offset + offset, n));
    } else {
      std::byte* to = scatter.place(0, n);
      if (to == nullptr && stored) to = (staging ? *staging : staging.emplace(context)).data();
      if (to == nullptr) computed = Bytes(n), to = computed.data();
      STELE_TRY(read_bytes(part.leaf, part.size(), offset, {to, n}, context));
      piece = {to, n};
    }
    if (hasher != nullptr) hasher->update(piece.data(), n);
    STELE_TRY(scatter.piece(piece));
  }
  return {};
}

Status JoinedBoxes::read(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out,
                         ReadContext& context) {
  const auto& self = *static_cast<const JoinedBoxes*>(at);
  const std::uint64_t end = offset + out.size();
  const auto low = std::partition_point(self.reach_.begin(), self.reach_.end(),
                                        [&](std::uint64_t reach) { return reach <= offset; });
  for (auto i = static_cast<std::size_t>(low - self.reach_.begin()); i < self.parts_.size(); ++i) {
    const Part& part = self.parts_[i];
    if (part.begin >= end) break;
    if (part.end <= offset) continue;
    // The first run that ends after `offset`; runs are in the order of their positions.
    Position from;
    for (std::uint64_t high = part.count; from.run < high;) {
      const std::uint64_t middle = from.run + (high - from.run) / 2;
      self.place(part, middle) + part.run > offset ? high = middle : from.run = middle + 1;
    }
    const std::uint64_t begin = self.place(part, from.run);
    if (begin < offset) from.within = offset - begin;
    STELE_TRY(self.copy(part, from, offset, out, context, nullptr));
  }
  return {};
}

/// Fills the blocks in order. Parts inside one block are streamed; other parts are read in order while their checksum
/// is computed.
class JoinedBoxes::Blocks {
 public:
  explicit Blocks(const JoinedBoxes& tensor) : tensor_(tensor) {}

  Status fill(std::uint64_t first, std::span<std::byte> out, ReadContext& context) const {
    const std::uint64_t end = first + out.size();
    while (!begun_.empty() && begun_.front().next < end) {
      std::pop_heap(begun_.begin(), begun_.end(), later);
      Begun part = std::move(begun_.back());
      begun_.pop_back();
      STELE_TRY(go_on(std::move(part), first, out, context));
    }
    for (; fresh_ < tensor_.parts_.size() && tensor_.parts_[fresh_].begin < end; ++fresh_) {
      const Part& part = tensor_.parts_[fresh_];
      if (part.end <= end) {
        Position at;
        Scatter scatter(tensor_, part, at, first, out);
        STELE_TRY(stream_bytes(part.leaf, part.size(), scatter, context));
        continue;
      }
      Begun begun{&part, part.begin, {}, nullptr};
      if (part.leaf.ops->locate != nullptr) {
        const SourceRange range = part.leaf.ops->locate(part.leaf.at, part.leaf.number);
        if (range.hashed) begun.hasher = std::make_unique<Hasher>(range.crc);
      }
      STELE_TRY(go_on(std::move(begun), first, out, context));
    }
    return {};
  }

 private:
  struct Begun {
    const Part* part;
    std::uint64_t next;  // position of its next byte in the tensor
    Position at;
    std::unique_ptr<Hasher> hasher;
  };
  static bool later(const Begun& a, const Begun& b) noexcept { return a.next > b.next; }

  Status go_on(Begun part, std::uint64_t first, std::span<std::byte> out, ReadContext& context) const {
    STELE_TRY(tensor_.copy(*part.part, part.at, first, out, context, part.hasher.get()));
    if (part.at.run == part.part->count) return check(part, context);
    part.next = tensor_.place(*part.part, part.at.run) + part.at.within;
    begun_.push_back(std::move(part));
    std::push_heap(begun_.begin(), begun_.end(), later);
    return {};
  }

  static Status check(const Begun& part, ReadContext& context) {
    struct Discard final : PieceSink {
      Status piece(std::span<const std::byte>) override { return {}; }
    };
    const Provider& leaf = part.part->leaf;
    if (leaf.ops->locate != nullptr) {
      const SourceRange range = leaf.ops->locate(leaf.at, leaf.number);
      if (part.hasher != nullptr) STELE_TRY(check_hash(range, part.hasher->digest()));
      return check_padding(range, part.part->size());
    }
    Discard discard;
    return leaf.ops->stream != nullptr ? stream_bytes(leaf, part.part->size(), discard, context) : Status();
  }

  const JoinedBoxes& tensor_;
  // mutable, because stream_blocks() has a const step
  mutable std::vector<Begun> begun_;  // a heap: the part with the first next byte is in front
  mutable std::size_t fresh_ = 0;     // the first part that no block has reached yet
};

Status JoinedBoxes::stream(const void* at, std::uint64_t, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  const Blocks blocks(*static_cast<const JoinedBoxes*>(at));
  return stream_blocks<Blocks>(&blocks, size, sink, context);
}

Provider JoinedBoxes::provider() const noexcept {
  static constexpr LeafOps ops{
      .read = read, .stream = stream, .needs = [](const void* at, std::uint64_t, Needs& needs) {
        for (const Part& part : static_cast<const JoinedBoxes*>(at)->parts_) needs.add(part.leaf, part.size());
      }};
  return {&ops, this, 0};
}

}  // namespace stele::inline v0::detail
