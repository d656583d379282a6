#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "leaves/needs.hpp"
#include "passes/delta/delta.hpp"

namespace stele::inline v0::detail::delta {
namespace {

/// The number of occurrences of each byte.
using Histogram = std::array<std::uint64_t, 256>;

/// Estimates the bytes that Huffman codes take: the entropy, and at least one bit for each byte.
double coded_size(const Histogram& histogram) {
  double total = 0, bits = 0;
  for (const std::uint64_t count : histogram) total += static_cast<double>(count);
  if (total == 0 || static_cast<double>(*std::max_element(histogram.begin(), histogram.end())) == total) return 0;
  for (const std::uint64_t count : histogram) {
    if (count != 0) bits -= static_cast<double>(count) * std::log2(static_cast<double>(count) / total);
  }
  return std::max(bits, total) / 8;
}

/// Calls changed(i) for each element i of two pieces that differs.
template <class Changed>
void each_changed(std::span<const std::byte> a, std::span<const std::byte> b, std::size_t unit,
                  const Changed& changed) {
  constexpr std::size_t chunk = 64;  // a multiple of every unit
  for (std::size_t at = 0; at < a.size(); at += chunk) {
    const std::size_t size = std::min(chunk, a.size() - at);
    if (std::memcmp(a.data() + at, b.data() + at, size) == 0) continue;
    for (std::size_t i = at; i < at + size; i += unit) {
      if (std::memcmp(a.data() + i, b.data() + i, unit) != 0) changed(i / unit);
    }
  }
}

/// The gaps between changed elements.
class Gaps {
 public:
  /// Passes the bytes of the gap before the changed element `at` to `put`.
  template <class Put>
  void add(std::uint64_t at, const Put& put) {
    std::uint64_t gap = at - after_;
    for (; gap >= 255; gap -= 255) put(std::byte{255});
    put(static_cast<std::byte>(gap));
    after_ = at + 1;
  }
  /// Begins a block of elements.
  void begin(std::uint64_t at) { after_ = at; }

 private:
  std::uint64_t after_ = 0;
};

/// Compares the pieces of a leaf with the pieces of its counterpart.
class CompareSink final : public PieceSink {
 public:
  CompareSink(const LeafView& base, const LeafView& next, ReadContext& context)
      : context_(context),
        window_(base),
        base_(base.dtype()),
        next_(next.dtype()),
        unit_(sparse_unit(next.dtype())),
        planes_(std::min<std::size_t>(unit_, 8)) {}

  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto now = bytes.first(std::min(bytes.size(), ReadContext::piece_size));
      STELE_TRY_ASSIGN(const auto old, window_.at(done_, now.size(), context_));
      base_.update(old);
      next_.update(now);
      compare(old, now);
      done_ += now.size();
      bytes = bytes.subspan(now.size());
    }
    return {};
  }

  Comparison finish() {
    Comparison result;
    result.hash = next_.digest();
    result.base_hash = base_.digest();
    std::uint64_t changed = 0;
    result.sparse_bytes = blocks_.size() * sizeof(SparseBlock);
    for (const SparseBlock& block : blocks_) {
      changed += block.count;
      result.sparse_bytes += block.gaps + std::uint64_t{block.count} * unit_;
    }
    if (changed == 0) return result;
    // The samples predict the compressed size of both encodings; a tensor too small for samples is decided by the
    // sizes.
    constexpr std::uint64_t small = 512;
    double xored = static_cast<double>(done_), sparse = static_cast<double>(result.sparse_bytes);
    if (done_ >= small && sparse < xored) {
      xored = 0;
      for (const Histogram& plane : xored_) xored += coded_size(plane);
      sparse = coded_size(sparse_);
    }
    result.encoding = sparse <= xored ? Encoding::sparse : Encoding::xored;
    if (result.encoding == Encoding::sparse) result.blocks = std::move(blocks_);
    return result;
  }

 private:
  void compare(std::span<const std::byte> old, std::span<const std::byte> now) {
    const std::uint64_t first = done_ / unit_, end = (done_ + now.size()) / unit_;
    const bool sample = done_ / ReadContext::piece_size % 8 == 0;
    while (blocks_.size() * sparse_block < end) blocks_.emplace_back();
    if (std::memcmp(old.data(), now.data(), now.size()) != 0) {
      each_changed(old, now, unit_, [&](std::size_t i) {
        const std::uint64_t at = first + i;
        if (at / sparse_block != block_) {
          block_ = at / sparse_block;
          gaps_.begin(block_ * sparse_block);
        }
        SparseBlock& block = blocks_[static_cast<std::size_t>(block_)];
        ++block.count;
        gaps_.add(at, [&](std::byte byte) {
          ++block.gaps;
          if (sample) ++sparse_[static_cast<std::size_t>(byte)];
        });
        if (!sample) return;
        for (std::size_t k = 0; k < unit_; ++k) {
          const auto bits = static_cast<std::size_t>(old[i * unit_ + k] ^ now[i * unit_ + k]);
          ++sparse_[bits];
          ++xored_[k % planes_][bits];
          --xored_[k % planes_][0];
        }
      });
    }
    if (sample) {
      for (std::size_t k = 0; k < planes_; ++k) xored_[k][0] += now.size() / planes_;
    }
  }

  ReadContext& context_;
  Window window_;
  FileHasher base_, next_;
  std::size_t unit_, planes_;
  std::uint64_t done_ = 0;
  std::vector<SparseBlock> blocks_;
  std::uint64_t block_ = 0;
  Gaps gaps_;
  std::array<Histogram, 8> xored_{};
  Histogram sparse_{};
};

/// Passes on the XOR of a leaf's pieces and its counterpart's pieces.
class XorSink final : public PieceSink {
 public:
  XorSink(const LeafView& base, PieceSink& to, ReadContext& context)
      : window_(base), to_(to), context_(context), staging_(context) {}
  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto now = bytes.first(std::min(bytes.size(), ReadContext::piece_size));
      STELE_TRY_ASSIGN(const auto old, window_.at(done_, now.size(), context_));
      std::byte* to = to_.place(done_, now.size());
      if (to == nullptr) to = staging_.data();
      for (std::size_t i = 0; i < now.size(); ++i) to[i] = now[i] ^ old[i];
      STELE_TRY(to_.piece({to, now.size()}));
      done_ += now.size();
      bytes = bytes.subspan(now.size());
    }
    return {};
  }

 private:
  Window window_;
  PieceSink& to_;
  ReadContext& context_;
  ReadContext::Piece staging_;
  std::uint64_t done_ = 0;
};

/// Makes the bytes of a sparse leaf.
class SparseWriter {
 public:
  SparseWriter(const Encoded::Leaf& leaf, ReadContext& context)
      : leaf_(leaf), context_(context), old_(leaf.base), now_(leaf.next), unit_(sparse_unit(leaf.next.dtype())) {}

  std::vector<std::byte> table() const {
    std::vector<std::byte> bytes(leaf_.blocks.size() * sizeof(SparseBlock));
    for (std::size_t i = 0; i < leaf_.blocks.size(); ++i) {
      SparseBlock block = leaf_.blocks[i];
      to_file_order(block);
      std::memcpy(bytes.data() + i * sizeof block, &block, sizeof block);
    }
    return bytes;
  }

  /// Returns the gaps and the changed units of a block. Errors: io (the tensors changed since they were compared).
  Result<std::vector<std::byte>> block(std::size_t number) {
    const SparseBlock& expected = leaf_.blocks[number];
    const std::size_t count = expected.count;
    std::vector<std::byte> bytes(expected.gaps + count * unit_);
    std::size_t gap_bytes = 0, values = 0;
    const std::uint64_t first = number * sparse_block * unit_;
    const std::uint64_t end = std::min(leaf_.next.byte_size(), first + sparse_block * unit_);
    Gaps gaps;
    if (expected.count != 0) {  // reads the whole block, so that a leaf that decodes blocks decodes it once
      const auto size = static_cast<std::size_t>(end - first);
      STELE_TRY_ASSIGN(const auto old, old_.at(first, size, context_));
      STELE_TRY_ASSIGN(const auto now, now_.at(first, size, context_));
      each_changed(old, now, unit_, [&](std::size_t i) {
        gaps.add(i, [&](std::byte byte) {
          if (gap_bytes < expected.gaps) bytes[gap_bytes] = byte;
          ++gap_bytes;
        });
        for (std::size_t k = 0; k < unit_ && values < count; ++k) {
          const std::size_t place = i * unit_ + (std::endian::native == std::endian::little ? k : unit_ - 1 - k);
          bytes[expected.gaps + k * count + values] = old[place] ^ now[place];
        }
        ++values;
      });
    }
    if (gap_bytes != expected.gaps || values != count) {
      return Error(Errc::io, "a tensor changed while its delta was made").path(leaf_.next.path());
    }
    return bytes;
  }

 private:
  const Encoded::Leaf& leaf_;
  ReadContext& context_;
  Window old_, now_;
  std::size_t unit_;
};

const Encoded::Leaf& encoded(const void* at, std::uint64_t number) {
  return static_cast<const Encoded*>(at)->leaf(static_cast<std::size_t>(number));
}

void needs_of_encoded(const void* at, std::uint64_t number, Needs& needs) {
  needs.add(encoded(at, number).base);
  needs.add(encoded(at, number).next);
}

Status read_xored(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                  ReadContext& context) {
  const Encoded::Leaf& leaf = encoded(at, number);
  STELE_TRY(leaf.next.read(offset, out, context));
  ReadContext::Piece staging(context);
  while (!out.empty()) {
    const std::span<std::byte> old(staging.data(), std::min(out.size(), ReadContext::piece_size));
    STELE_TRY(leaf.base.read(offset, old, context));
    for (std::size_t i = 0; i < old.size(); ++i) out[i] ^= old[i];
    out = out.subspan(old.size());
    offset += old.size();
  }
  return {};
}

Status stream_xored(const void* at, std::uint64_t number, std::uint64_t, PieceSink& sink, ReadContext& context) {
  const Encoded::Leaf& leaf = encoded(at, number);
  XorSink xored(leaf.base, sink, context);
  return leaf.next.stream(xored, context);
}

/// Passes the parts of a sparse leaf that overlap [offset, end) to put(offset of the part, part).
template <class Put>
Status each_part(const Encoded::Leaf& leaf, std::uint64_t offset, std::uint64_t end, ReadContext& context,
                 const Put& put) {
  SparseWriter writer(leaf, context);
  const std::vector<std::byte> table = writer.table();
  if (offset < table.size()) STELE_TRY(put(std::uint64_t{0}, std::span(table)));
  std::uint64_t at = table.size();
  const std::size_t unit = sparse_unit(leaf.next.dtype());
  for (std::size_t i = 0; i < leaf.blocks.size() && at < end; ++i) {
    const std::uint64_t size = leaf.blocks[i].gaps + std::uint64_t{leaf.blocks[i].count} * unit;
    if (size != 0 && at + size > offset) {
      STELE_TRY_ASSIGN(const auto block, writer.block(i));
      STELE_TRY(put(at, std::span(block)));
    }
    at += size;
  }
  return {};
}

Status read_sparse(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                   ReadContext& context) {
  const std::uint64_t end = offset + out.size();
  return each_part(
      encoded(at, number), offset, end, context, [&](std::uint64_t place, std::span<const std::byte> part) -> Status {
        const std::uint64_t from = std::max(place, offset), to = std::min(end, place + part.size());
        if (from < to) {
          std::memcpy(out.data() + (from - offset), part.data() + (from - place), static_cast<std::size_t>(to - from));
        }
        return {};
      });
}

Status stream_sparse(const void* at, std::uint64_t number, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  ReadContext::Piece piece(context);
  std::size_t filled = 0;
  STELE_TRY(
      each_part(encoded(at, number), 0, size, context, [&](std::uint64_t, std::span<const std::byte> part) -> Status {
        while (!part.empty()) {
          const std::size_t n = std::min(part.size(), ReadContext::piece_size - filled);
          std::memcpy(piece.data() + filled, part.data(), n);
          filled += n;
          part = part.subspan(n);
          if (filled != ReadContext::piece_size) continue;
          STELE_TRY(sink.piece({piece.data(), filled}));
          filled = 0;
        }
        return {};
      }));
  return filled != 0 ? sink.piece({piece.data(), filled}) : Status();
}

constexpr LeafOps xored_ops{.read = read_xored, .stream = stream_xored, .needs = needs_of_encoded};
constexpr LeafOps sparse_ops{.read = read_sparse, .stream = stream_sparse, .needs = needs_of_encoded};

}  // namespace

Provider Encoded::add(Leaf leaf) {
  const LeafOps* const ops = leaf.encoding == Encoding::sparse ? &sparse_ops : &xored_ops;
  leaves_.push_back(std::move(leaf));
  return {ops, this, leaves_.size() - 1};
}

const Encoded::Leaf* Encoded::of(const LeafView& leaf) noexcept {
  const Provider& provider = leaf.provider();
  const bool is = provider.ops == &xored_ops || provider.ops == &sparse_ops;
  return is ? &encoded(provider.at, provider.number) : nullptr;
}

Result<Comparison> compare(const LeafView& base, const LeafView& next, ReadContext& context) {
  CompareSink sink(base, next, context);
  STELE_TRY(next.stream(sink, context));
  return sink.finish();
}

}  // namespace stele::inline v0::detail::delta
