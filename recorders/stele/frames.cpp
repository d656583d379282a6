// Compressed blocks of `.stele`.
#include "frames.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "base/parallel.hpp"
#include "base/threads.hpp"
#include "encodings/zstd/contexts.hpp"
#include "stele/precision/shuffle.hpp"
#include "stele/recorders/stele_reader.hpp"

namespace stele::inline v0::detail {
#if STELE_ZSTD
namespace {

constexpr std::size_t frame_size = std::size_t{1} << 20;
constexpr std::uint32_t plain_frame = 0x80000000U;
// Neighbouring numbers of a tensor hardly ever repeat. A search for repetitions takes most of the time of level 1 and
// finds nothing; only the unequal frequencies of exponents are compressible. A fast level with long strides and forced
// Huffman coding, which such levels omit by default, saves as much or more on normally distributed, sparse and rounded
// weights. Level -200 takes a fifth less of zstd's time than -50 in both directions, and still finds long repeated
// parts; level -1000 misses some of them.
constexpr int level = -200;
constexpr auto literal_compression = ZSTD_c_experimentalParam5;
constexpr int huffman = 1;
/// Minimum size in bytes for compression: fewer bytes are not worth a frame.
constexpr std::uint64_t min_compressed_bytes = 512;

std::uint64_t frame_count(std::uint64_t length) { return length / frame_size + (length % frame_size != 0 ? 1 : 0); }

/// The contexts and memory that a thread needs for frames.
class Workspace {
 public:
  ZSTD_CCtx& compressor() {
    if (compressor_ == nullptr) compressor_ = zstd::new_compressor();
    const bool forced = !ZSTD_isError(ZSTD_CCtx_setParameter(compressor_.get(), literal_compression, huffman));
    ZSTD_CCtx_setParameter(compressor_.get(), ZSTD_c_compressionLevel, forced ? level : 1);
    ZSTD_CCtx_setParameter(compressor_.get(), ZSTD_c_contentSizeFlag, 0);
    return *compressor_;
  }
  ZSTD_DCtx& decompressor() {
    if (decompressor_ == nullptr) decompressor_ = zstd::new_decompressor();
    return *decompressor_;
  }
  /// Memory for one frame.
  std::byte* scratch() {
    if (scratch_.empty()) scratch_ = Bytes(frame_size);
    return scratch_.data();
  }

 private:
  zstd::Compressor compressor_;
  zstd::Decompressor decompressor_;
  Bytes scratch_;
};

/// A workspace for the duration of a frame. Workspaces are kept, because making one costs as much as a small frame.
/// They are not thread_local: MinGW's g++ before 16 frees the memory of such objects before it destroys them
/// (gcc.gnu.org/PR80816).
class Borrowed {
 public:
  Borrowed() {
    const Lock lock(mutex_);
    for (auto& kept : idle_) {
      if (kept != nullptr) {
        own_ = std::move(kept);
        return;
      }
    }
    own_ = std::make_unique<Workspace>();
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() {
    const Lock lock(mutex_);
    for (auto& place : idle_) {
      if (place == nullptr) {
        place = std::move(own_);
        return;
      }
    }
  }
  Workspace* operator->() const noexcept { return own_.get(); }

 private:
  static inline Mutex mutex_;
  static inline std::array<std::unique_ptr<Workspace>, 16> idle_;
  std::unique_ptr<Workspace> own_;
};

/// A frame to be written.
struct Packed {
  std::span<const std::byte> plain;  // in the tensor, or in `gathered`
  Bytes gathered;
  Bytes packed;  // allocated with the maximum compressed size
  std::size_t size = 0;
  bool compressed = false;

  /// Appends bytes to `gathered` and returns the bytes that do not fit.
  std::span<const std::byte> gather(std::span<const std::byte> bytes) {
    if (gathered.empty()) gathered = Bytes(frame_size);
    const std::size_t n = std::min(bytes.size(), frame_size - plain.size());
    std::memcpy(gathered.data() + plain.size(), bytes.data(), n);
    plain = std::span<const std::byte>(gathered.span()).first(plain.size() + n);
    return bytes.subspan(n);
  }
  void pack(unsigned width) {
    if (packed.empty()) packed = Bytes(ZSTD_compressBound(frame_size));
    const Borrowed workspace;
    const std::byte* from = plain.data();
    if (width != 1) {
      shuffle_bytes(plain.data(), workspace->scratch(), plain.size() / width, width);
      from = workspace->scratch();
    }
    size = ZSTD_compress2(&workspace->compressor(), packed.data(), packed.size(), from, plain.size());
    // A saving of less than a sixteenth is not worth the time to decompress.
    compressed = !ZSTD_isError(size) && size + plain.size() / 16 <= plain.size();
  }
  std::span<const std::byte> bytes() const { return compressed ? packed.span().first(size) : plain; }
};

Error broken(const FramedBlock& block, const char* text) {
  return Error(Errc::malformed, text).file(block.source.name()).offset(block.offset);
}

/// Reads the table of a block in parts, because a small file may declare a large tensor.
class Table {
 public:
  explicit Table(const FramedBlock& block) : block_(block), count_(frame_count(block.length)) {}

  struct Frame {
    std::uint64_t offset;  // in the source
    std::uint32_t stored;
    bool compressed;
    std::uint32_t length;  // number of plain bytes
  };
  /// Moves to the next frame.
  Status next(Frame& frame) {
    if (at_ % part == 0) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(count_ - at_, part));
      const std::uint64_t table = block_.offset + block_.stored - 4 * count_;
      STELE_TRY(block_.source.read_at(table + 4 * at_, std::span(bytes_).first(4 * n)));
    }
    const auto word = format::load_le<std::uint32_t>(bytes_ + 4 * (at_ % part));
    frame.offset = block_.offset + used_;
    frame.stored = word & ~plain_frame;
    frame.compressed = (word & plain_frame) == 0;
    frame.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(block_.length - at_ * frame_size, frame_size));
    used_ += frame.stored;
    ++at_;
    const std::uint64_t frames_size = block_.stored - 4 * count_;
    if (frame.stored > frame_size || used_ > frames_size || (at_ == count_ && used_ != frames_size) ||
        (!frame.compressed && frame.stored != frame.length)) {
      return broken(block_, "the frames of a compressed block do not match its table");
    }
    return {};
  }
  bool done() const { return at_ == count_; }
  /// Hashes the table's own bytes.
  Status hash(Hasher& to) {
    const std::uint64_t table = block_.offset + block_.stored - 4 * count_;
    for (std::uint64_t at = 0; at < count_; at += part) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(count_ - at, part));
      STELE_TRY(block_.source.read_at(table + 4 * at, std::span(bytes_).first(4 * n)));
      to.update(bytes_, 4 * n);
    }
    return {};
  }

 private:
  static constexpr std::size_t part = 256;
  const FramedBlock& block_;
  std::uint64_t count_;
  std::uint64_t at_ = 0;
  std::uint64_t used_ = 0;
  std::byte bytes_[4 * part];
};

Status unpack(const FramedBlock& block, const Table::Frame& frame, const std::byte* stored, std::byte* out) {
  if (!frame.compressed) {
    std::memcpy(out, stored, frame.length);
    return {};
  }
  const Borrowed workspace;
  std::byte* plain = block.width != 1 ? workspace->scratch() : out;
  const std::size_t n = ZSTD_decompressDCtx(&workspace->decompressor(), plain, frame.length, stored, frame.stored);
  if (ZSTD_isError(n) || n != frame.length || frame.length % block.width != 0) {
    return Error(Errc::malformed, "a compressed frame is damaged").file(block.source.name()).offset(frame.offset);
  }
  if (plain != out) unshuffle_bytes(plain, out, frame.length / block.width, block.width);
  return {};
}

}  // namespace

bool frames_fit(std::uint64_t stored, std::uint64_t length) noexcept {
  const std::uint64_t count = frame_count(length);
  // A frame has at least one byte. A plain frame is as large as its content.
  return length != 0 && stored / 5 >= count && length / max_zstd_ratio <= stored && stored <= length + 4 * count;
}

class FrameWriter::FrameSink final : public PieceSink {
 public:
  FrameSink(const Workers& workers, LeafGather& out) : workers_(workers), out_(out) {}

  void begin(const LeafView& leaf) {
    width_ = swap_unit(leaf.dtype());
    start_ = out_.position();
    batch_limit_ = static_cast<std::size_t>(
        std::min<std::uint64_t>(frame_count(leaf.byte_size()), std::uint64_t{workers_.threads}));
    if (batch_.size() < batch_limit_) batch_.resize(batch_limit_);
    for (Packed& frame : batch_) frame.plain = {};  // clears frames of a leaf that failed
    full_ = 0;
    as_it_is_ = false;
    sizes_.clear();
    hasher_.reset();
    stored_.reset();
  }

  Status piece(std::span<const std::byte> bytes) override {
    // A live tensor arrives whole: its frames are used in place, and become invalid after this call.
    bool taken = false;
    while (bytes.size() >= frame_size && !as_it_is_ && batch_[full_].plain.empty()) {
      batch_[full_].plain = bytes.first(frame_size);
      hasher_.update(bytes.data(), frame_size);
      bytes = bytes.subspan(frame_size);
      taken = true;
      if (++full_ == batch_limit_ || sizes_.empty()) STELE_TRY(flush());
    }
    if (taken) STELE_TRY(flush());
    while (!bytes.empty()) {
      const auto now = bytes.first(std::min(bytes.size(), ReadContext::piece_size));
      hasher_.update(now.data(), now.size());
      STELE_TRY(add(now));
      bytes = bytes.subspan(now.size());
    }
    return {};
  }
  Result<StoredBlock> finish() {
    STELE_TRY(flush());
    if (as_it_is_) return StoredBlock{};
    for (const std::uint32_t size : sizes_) {
      std::byte bytes[4];
      format::store_le(bytes, size);
      stored_.update(bytes, sizeof bytes);
      STELE_TRY(out_.write(bytes));
    }
    return StoredBlock{out_.position() - start_, stored_.digest()};
  }
  std::uint64_t hash() const { return hasher_.digest(); }

 private:
  Status add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (as_it_is_) return out_.write(bytes);
      Packed& frame = batch_[full_];
      bytes = frame.gather(bytes);
      // The first frame decides whether the whole tensor is compressed.
      if (frame.plain.size() == frame_size && (++full_ == batch_limit_ || sizes_.empty())) STELE_TRY(flush());
    }
    return {};
  }

  Status flush() {
    const std::size_t count = full_ + (full_ < batch_limit_ && !batch_[full_].plain.empty() ? 1 : 0);
    full_ = 0;
    parallel(workers_, count, [&](std::size_t i) { batch_[i].pack(width_); });
    for (std::size_t i = 0; i < count; ++i) {
      Packed& frame = batch_[i];
      as_it_is_ = as_it_is_ || (sizes_.empty() && !frame.compressed);
      stored_.update(frame.bytes().data(), frame.bytes().size());
      STELE_TRY(out_.write(frame.bytes()));
      sizes_.push_back(static_cast<std::uint32_t>(frame.bytes().size()) | (frame.compressed ? 0U : plain_frame));
      frame.plain = {};
    }
    return {};
  }

  unsigned width_ = 1;
  Workers workers_;
  LeafGather& out_;
  std::uint64_t start_ = 0;
  std::vector<Packed> batch_;  // the first `batch_limit_` frames are in use
  std::size_t batch_limit_ = 0;
  std::size_t full_ = 0;
  bool as_it_is_ = false;
  std::vector<std::uint32_t> sizes_;
  Hasher hasher_;
  Hasher stored_;
};

FrameWriter::FrameWriter(const Workers& workers, LeafGather& out)
    : sink_(std::make_unique<FrameSink>(workers, out)), out_(out) {}
FrameWriter::~FrameWriter() = default;

Result<StoredBlock> FrameWriter::write(const LeafView& leaf, ReadContext& context, std::uint64_t& hash) {
  if (leaf.byte_size() < min_compressed_bytes) {
    STELE_TRY(out_.leaf(leaf, context, &hash));
    return StoredBlock{};
  }
  sink_->begin(leaf);
  STELE_TRY(leaf.stream(*sink_, context));
  hash = sink_->hash();
  return sink_->finish();
}

Status stream_frames(const FramedBlock& block, PieceSink& sink, ReadContext& context, std::uint64_t& hash) {
  struct Job {
    Table::Frame frame;
    std::span<const std::byte> stored;
    std::byte* out;
    Status status;
  };
  Hasher as_stored;
  Table table(block);
  Hasher hasher;
  std::vector<Job> jobs;
  const auto all = block.source.view();
  const std::size_t limit = std::size_t{2} * context.workers().threads;
  for (std::uint64_t done = 0; !table.done();) {
    jobs.clear();
    std::size_t stored_size = 0;
    std::size_t plain_size = 0;
    while (!table.done() && jobs.size() < limit) {
      Job& job = jobs.emplace_back();
      STELE_TRY(table.next(job.frame));
      stored_size += job.frame.stored;
      plain_size += job.frame.length;
    }
    const std::uint64_t offset = jobs.front().frame.offset;
    std::span<const std::byte> from;
    if (!all.empty()) {
      from = all.subspan(static_cast<std::size_t>(offset), stored_size);
    } else {
      const std::span<std::byte> stored(context.memory(0, stored_size), stored_size);
      STELE_TRY(block.source.read_at(offset, stored));
      from = stored;
    }
    as_stored.update(from.data(), stored_size);
    std::byte* to = sink.place(done, plain_size);
    if (to == nullptr) to = context.memory(1, plain_size);
    std::byte* at = to;
    for (Job& job : jobs) {
      job.stored = from.first(job.frame.stored);
      from = from.subspan(job.frame.stored);
      job.out = at;
      at += job.frame.length;
    }
    parallel(context.workers(), jobs.size(),
             [&](std::size_t i) { jobs[i].status = unpack(block, jobs[i].frame, jobs[i].stored.data(), jobs[i].out); });
    // Passes frames on in order, so that the first error does not depend on the number of frames decompressed together.
    for (Job& job : jobs) {
      if (!job.status) return std::move(job.status);
      for (std::size_t passed = 0; passed < job.frame.length;) {
        const std::size_t n = std::min<std::size_t>(ReadContext::piece_size, job.frame.length - passed);
        hasher.update(job.out + passed, n);
        STELE_TRY(sink.piece({job.out + passed, n}));
        passed += n;
      }
    }
    done += plain_size;
  }
  STELE_TRY(table.hash(as_stored));
  if (as_stored.digest() != block.hash) {
    return Error(Errc::checksum, "a compressed block is damaged").file(block.source.name()).offset(block.offset);
  }
  hash = hasher.digest();
  return {};
}

Status read_frames(const FramedBlock& block, std::uint64_t first, std::span<std::byte> out) {
  Table table(block);
  Bytes stored;
  Bytes plain;
  for (std::uint64_t at = 0; !out.empty() && !table.done();) {
    Table::Frame frame;
    STELE_TRY(table.next(frame));
    const std::uint64_t begin = at;
    at += frame.length;
    if (at <= first) continue;
    if (stored.empty()) {
      stored = Bytes(frame_size);
      plain = Bytes(frame_size);
    }
    STELE_TRY(block.source.read_at(frame.offset, stored.span().first(frame.stored)));
    STELE_TRY(unpack(block, frame, stored.data(), plain.data()));
    const std::size_t skip = static_cast<std::size_t>(first - begin);
    const std::size_t n = std::min(out.size(), static_cast<std::size_t>(frame.length) - skip);
    std::memcpy(out.data(), plain.data() + skip, n);
    out = out.subspan(n);
    first += n;
  }
  return {};
}

#endif
}  // namespace stele::inline v0::detail
