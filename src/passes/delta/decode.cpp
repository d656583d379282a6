#include <algorithm>
#include <bit>
#include <cstring>

#include "leaves/needs.hpp"
#include "passes/delta/delta.hpp"

namespace stele::inline v0::detail::delta {
namespace {

constexpr bool little_endian = std::endian::native == std::endian::little;

/// to ^= with; both have the same size.
void xor_bytes(std::span<std::byte> to, std::span<const std::byte> with) noexcept {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] ^= with[i];
}

}  // namespace

Status SparseReader::read_table(ReadContext& context) {
  const std::uint64_t blocks = sparse_blocks(bytes_, unit_), size = leaf_.byte_size();
  if (blocks > size / sizeof(SparseBlock)) return malformed("a sparse tensor of a delta is too short");
  table_.resize(static_cast<std::size_t>(blocks));
  STELE_TRY(leaf_.read(0, std::as_writable_bytes(std::span(table_)), context));
  std::uint64_t place = blocks * sizeof(SparseBlock);
  for (SparseBlock& block : table_) {
    to_file_order(block);
    // A gap takes a byte, and one more for each 255 elements.
    if (block.count > sparse_block || block.gaps > block.count + sparse_block / 255) {
      return malformed("a block of a sparse tensor of a delta is too large");
    }
    places_.push_back(place);
    place += block.gaps + std::uint64_t{block.count} * unit_;
    if (place > size) break;
  }
  if (place != size) return malformed("the blocks of a sparse tensor of a delta do not fill it");
  return {};
}

Status SparseReader::begin(std::uint64_t block, ReadContext& context) {
  block_ = block;
  passed_ = after_ = block * sparse_block;
  const auto number = static_cast<std::size_t>(block);
  const std::size_t gaps = table_[number].gaps, values = table_[number].count * unit_;
  STELE_TRY_ASSIGN(const auto block_bytes, window_.at(places_[number], gaps + values, context));
  gaps_ = block_bytes.first(gaps);
  values_ = block_bytes.subspan(gaps);
  count_ = table_[number].count;
  value_ = 0;
  return advance();
}

Status SparseReader::advance() {
  next_ = UINT64_MAX;
  if (value_ == count_) {
    return gaps_.empty() ? Status() : malformed("a sparse tensor of a delta has gaps without elements");
  }
  const std::uint64_t left = std::min((block_ + 1) * sparse_block, bytes_ / unit_) - after_;
  std::uint64_t gap = 0;
  for (std::size_t i = 0; i < gaps_.size(); ++i) {
    gap += static_cast<std::uint64_t>(gaps_[i]);
    if (gap >= left) return malformed("a changed element of a delta lies outside its block");
    if (gaps_[i] == std::byte{255}) continue;
    gaps_ = gaps_.subspan(i + 1);
    next_ = after_ + gap;
    after_ = next_ + 1;
    return {};
  }
  return malformed("a sparse tensor of a delta has elements without gaps");
}

Status SparseReader::patch(std::uint64_t offset, std::span<std::byte> bytes, ReadContext& context) {
  if (table_.empty()) STELE_TRY(read_table(context));
  const std::uint64_t end = (offset + bytes.size()) / unit_;
  for (std::uint64_t at = offset / unit_; at < end;) {
    const std::uint64_t block = at / sparse_block, stop = std::min(end, (block + 1) * sparse_block);
    if (block_ != block || at < passed_) STELE_TRY(begin(block, context));
    STELE_TRY(unit_ == 2   ? patch_to<2>(at, stop, offset, bytes.data())
              : unit_ == 4 ? patch_to<4>(at, stop, offset, bytes.data())
                           : patch_to<0>(at, stop, offset, bytes.data()));
    passed_ = at = stop;
  }
  return {};
}

/// Changes the elements from `at` to `stop`. `bytes`: the tensor's bytes from `offset` on. `Unit`: unit_, or 0.
template <std::size_t Unit>
Status SparseReader::patch_to(std::uint64_t at, std::uint64_t stop, std::uint64_t offset, std::byte* bytes) {
  const std::size_t unit = Unit != 0 ? Unit : unit_;
  const std::uint64_t block_end = std::min((block_ + 1) * sparse_block, bytes_ / unit);
  while (next_ < stop) {
    if (next_ >= at) {
      std::byte* const to = bytes + (next_ * unit - offset);
      for (std::size_t k = 0; k < unit; ++k) to[little_endian ? k : unit - 1 - k] ^= values_[k * count_ + value_];
    }
    ++value_;
    // Most gaps are one byte.
    const std::uint64_t gap = gaps_.empty() ? 255 : static_cast<std::uint64_t>(gaps_.front());
    if (gap < 255 && value_ < count_ && gap < block_end - after_) {
      next_ = after_ + gap;
      after_ = next_ + 1;
      gaps_ = gaps_.subspan(1);
    } else {
      STELE_TRY(advance());
    }
  }
  return {};
}

/// Receives the pieces of the base, and passes on the pieces of the new version.
class Decoded::Sink final : public PieceSink {
 public:
  Sink(const Leaf& leaf, PieceSink& to, ReadContext& context)
      : leaf_(leaf), to_(to), context_(context), staging_(context), base_(leaf.dtype), next_(leaf.dtype) {
    if (leaf.encoding == Encoding::xored) window_.emplace(leaf.delta);
    if (leaf.encoding == Encoding::sparse) sparse_.emplace(leaf.delta, leaf.bytes, leaf.dtype);
  }

  std::byte* place(std::uint64_t offset, std::size_t size) override {
    return leaf_.encoding == Encoding::same ? to_.place(offset, size) : nullptr;
  }

  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto now = bytes.first(std::min(bytes.size(), ReadContext::piece_size));
      if (leaf_.base_hash) base_.update(now);
      if (leaf_.encoding == Encoding::same) {
        STELE_TRY(to_.piece(now));
      } else {
        std::byte* to = to_.place(done_, now.size());
        if (to == nullptr) to = staging_.data();
        const std::span<std::byte> out(to, now.size());
        if (window_) {
          STELE_TRY_ASSIGN(const auto changes, window_->at(done_, now.size(), context_));
          for (std::size_t i = 0; i < out.size(); ++i) out[i] = now[i] ^ changes[i];
        } else {
          std::memcpy(to, now.data(), now.size());
          STELE_TRY(sparse_->patch(done_, out, context_));
        }
        if (leaf_.hash) next_.update(out);
        STELE_TRY(to_.piece(out));
      }
      done_ += now.size();
      bytes = bytes.subspan(now.size());
    }
    return {};
  }

  Status check() const {
    if (leaf_.base_hash && base_.digest() != *leaf_.base_hash) {
      return Error(Errc::checksum, "the tensor is not that of the delta's base").path(leaf_.path);
    }
    if (leaf_.hash && leaf_.encoding != Encoding::same && next_.digest() != *leaf_.hash) {
      return Error(Errc::checksum, "the tensor's changes in the delta are damaged").path(leaf_.path);
    }
    return {};
  }

 private:
  const Leaf& leaf_;
  PieceSink& to_;
  ReadContext& context_;
  ReadContext::Piece staging_;
  FileHasher base_, next_;
  std::optional<Window> window_;
  std::optional<SparseReader> sparse_;
  std::uint64_t done_ = 0;
};

namespace {

const Decoded& decoded(const void* at) { return *static_cast<const Decoded*>(at); }

Status read_decoded(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                    ReadContext& context) {
  return decoded(at).read(static_cast<std::size_t>(number), offset, out, context);
}

Status stream_decoded(const void* at, std::uint64_t number, std::uint64_t, PieceSink& sink, ReadContext& context) {
  return decoded(at).stream(static_cast<std::size_t>(number), sink, context);
}

void needs_of_decoded(const void* at, std::uint64_t number, Needs& needs) {
  const Decoded::Leaf& leaf = decoded(at).leaf(static_cast<std::size_t>(number));
  needs.add(leaf.base);
  if (leaf.encoding != Encoding::same) needs.add(leaf.delta);
}

std::uint64_t hash_of_decoded(const void* at, std::uint64_t number) {
  return *decoded(at).leaf(static_cast<std::size_t>(number)).hash;
}

constexpr LeafOps checked_ops{
    .read = read_decoded, .stream = stream_decoded, .needs = needs_of_decoded, .hash = hash_of_decoded};
constexpr LeafOps unchecked_ops{.read = read_decoded, .stream = stream_decoded, .needs = needs_of_decoded};

}  // namespace

Provider Decoded::add(Leaf leaf) {
  const bool checked = leaf.hash.has_value();
  leaves_.push_back(std::move(leaf));
  return {checked ? &checked_ops : &unchecked_ops, this, leaves_.size() - 1};
}

std::size_t Decoded::chain_of(const LeafView& leaf) noexcept {
  return leaf.provider().ops == &checked_ops ? decoded(leaf.provider().at).chain_ : 0;
}

Status Decoded::stream(std::size_t number, PieceSink& to, ReadContext& context) const {
  const Leaf& leaf = leaves_[number];
  Sink sink(leaf, to, context);
  STELE_TRY(leaf.base.stream(sink, context));
  STELE_TRY(sink.check());
  checked_[number] = true;
  return {};
}

Status Decoded::read(std::size_t number, std::uint64_t offset, std::span<std::byte> out, ReadContext& context) const {
  STELE_TRY(check(number, context));
  const Leaf& leaf = leaves_[number];
  STELE_TRY(leaf.base.read(offset, out, context));
  if (leaf.encoding == Encoding::same) return {};
  if (leaf.encoding == Encoding::sparse) {
    return SparseReader(leaf.delta, leaf.bytes, leaf.dtype).patch(offset, out, context);
  }
  ReadContext::Piece staging(context);
  while (!out.empty()) {
    const std::span<std::byte> changes(staging.data(), std::min(out.size(), ReadContext::piece_size));
    STELE_TRY(leaf.delta.read(offset, changes, context));
    xor_bytes(out.first(changes.size()), changes);
    out = out.subspan(changes.size());
    offset += changes.size();
  }
  return {};
}

/// Checks a whole tensor once, when a part of it is read.
Status Decoded::check(std::size_t number, ReadContext& context) const {
  if (!leaves_[number].hash || checked_[number]) return {};
  struct Discard final : PieceSink {
    Status piece(std::span<const std::byte>) override { return {}; }
  } discard;
  return stream(number, discard, context);
}

// ---- joined deltas

namespace {

/// Adds the changes of one delta to pieces of a tensor. Consecutive pieces are fastest.
class Changes {
 public:
  Changes(const Joined::Part& part, std::uint64_t bytes, DType dtype) : window_(part.leaf) {
    if (part.encoding == Encoding::sparse) sparse_.emplace(part.leaf, bytes, dtype);
  }
  Status add(std::uint64_t offset, std::span<std::byte> bytes, ReadContext& context) {
    if (sparse_) return sparse_->patch(offset, bytes, context);
    STELE_TRY_ASSIGN(const auto changes, window_.at(offset, bytes.size(), context));
    xor_bytes(bytes, changes);
    return {};
  }

 private:
  Window window_;
  std::optional<SparseReader> sparse_;
};

std::vector<Changes> changes_of(const Joined::Leaf& leaf) {
  std::vector<Changes> all;
  all.reserve(leaf.parts.size());
  for (const Joined::Part& part : leaf.parts) all.emplace_back(part, leaf.bytes, leaf.dtype);
  return all;
}

const Joined::Leaf& joined(const void* at, std::uint64_t number) {
  return static_cast<const Joined*>(at)->leaf(static_cast<std::size_t>(number));
}

Status read_joined(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                   ReadContext& context) {
  std::fill(out.begin(), out.end(), std::byte{0});
  // Applies the deltas in turn, so that the caller's memory is the only buffer for any number of deltas.
  const Joined::Leaf& leaf = joined(at, number);
  for (const Joined::Part& part : leaf.parts) {
    STELE_TRY(Changes(part, leaf.bytes, leaf.dtype).add(offset, out, context));
  }
  return {};
}

Status stream_joined(const void* at, std::uint64_t number, std::uint64_t, PieceSink& sink, ReadContext& context) {
  const Joined::Leaf& leaf = joined(at, number);
  std::vector<Changes> all = changes_of(leaf);
  ReadContext::Piece staging(context);
  for (std::uint64_t done = 0; done < leaf.bytes;) {
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(leaf.bytes - done, ReadContext::piece_size));
    std::byte* to = sink.place(done, size);
    if (to == nullptr) to = staging.data();
    const std::span<std::byte> out(to, size);
    std::fill(out.begin(), out.end(), std::byte{0});
    for (Changes& changes : all) STELE_TRY(changes.add(done, out, context));
    STELE_TRY(sink.piece(out));
    done += size;
  }
  return {};
}

void needs_of_joined(const void* at, std::uint64_t number, Needs& needs) {
  for (const Joined::Part& part : joined(at, number).parts) needs.add(part.leaf);
}

constexpr LeafOps joined_ops{.read = read_joined, .stream = stream_joined, .needs = needs_of_joined};

}  // namespace

Provider Joined::add(Leaf leaf) {
  leaves_.push_back(std::move(leaf));
  return {&joined_ops, this, leaves_.size() - 1};
}

const Joined::Leaf* Joined::of(const LeafView& leaf) noexcept {
  return leaf.provider().ops == &joined_ops ? &joined(leaf.provider().at, leaf.provider().number) : nullptr;
}

}  // namespace stele::inline v0::detail::delta
