// Writes the text of a document to a sink, for every compression.
#include "text_out.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "base/parallel.hpp"
#include "encodings/gzip/gzip.hpp"
#include "encodings/zstd/contexts.hpp"
#include "stele/bytes.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/precision/base64.hpp"

namespace stele::inline v0::detail::json {

Status TextOut::write(std::string_view text) {
  position_ += text.size();
  while (!text.empty()) {
    if (room_.empty()) STELE_TRY(full());
    const std::size_t n = std::min(text.size(), room_.size());
    std::memcpy(room_.data(), text.data(), n);
    room_ = room_.subspan(n);
    text.remove_prefix(n);
  }
  return {};
}

Status TextOut::base64(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // Encodes whole groups of three bytes in place. A group that crosses the end goes through a buffer.
    const std::size_t whole = std::min(bytes.size(), room_.size() / 4 * 3);
    const auto now = bytes.first(whole != 0 ? whole : std::min<std::size_t>(bytes.size(), 3));
    const std::size_t size = base64_size(now.size());
    if (whole != 0) {
      base64_encode(now, room_.data());
      room_ = room_.subspan(size);
      position_ += size;
    } else {
      char four[4];
      base64_encode(now, four);
      STELE_TRY(write({four, sizeof four}));
    }
    bytes = bytes.subspan(now.size());
  }
  return {};
}

namespace {

std::span<char> characters(Bytes& bytes) { return {reinterpret_cast<char*>(bytes.data()), bytes.size()}; }

class PlainOut final : public TextOut {
 public:
  explicit PlainOut(Sink& sink) : sink_(sink), buffer_(std::size_t{256} << 10) { room_ = characters(buffer_); }
  Status finish(std::string_view) override { return full(); }

 private:
  Status full() override {
    const std::size_t n = buffer_.size() - room_.size();
    room_ = characters(buffer_);
    return n != 0 ? sink_.write(std::span<const std::byte>(buffer_.span()).first(n)) : Status();
  }
  Sink& sink_;
  Bytes buffer_;
};

class CountedOut final : public TextOut {
 public:
  Status finish(std::string_view) override { return {}; }

 private:
  Status full() override {
    room_ = nowhere_;
    return {};
  }
  char nowhere_[4096];
};

class GzipOut final : public TextOut {
 public:
  GzipOut(Sink& sink, int level, int strategy) : gzip_(sink, level, strategy), text_(std::size_t{64} << 10) {
    room_ = characters(text_);
  }
  Status finish(std::string_view) override {
    STELE_TRY(full());
    return gzip_.finish();
  }

 private:
  Status full() override {
    const auto written = std::as_const(text_).span().first(text_.size() - room_.size());
    room_ = characters(text_);
    return gzip_.write(written);
  }
  gzip::GzipSink gzip_;
  Bytes text_;
};

#if STELE_ZSTD
/// A frame to be written.
struct Packed {
  Bytes text;
  std::size_t used = 0;
  Bytes packed;
  std::size_t size = 0;
  zstd::Compressor context;

  void pack(int level) {
    if (packed.empty()) packed = Bytes(ZSTD_compressBound(frame_size));
    if (context == nullptr) {
      context = zstd::new_compressor();
      ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level);
      ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
    }
    size = ZSTD_compress2(context.get(), packed.data(), packed.size(), text.data(), used);
    if (ZSTD_isError(size))
      STELE_THROW(std::bad_alloc());  // the buffer is large enough, so the only cause is a lack of memory
  }
};

// Sizes of two headers: of a zstd frame in one segment, with a content size of 8 bytes, and of a block.
constexpr std::size_t frame_head = 13, block_head = 3;
constexpr std::size_t max_block = std::size_t{128} << 10;

constexpr std::size_t raw_frame_size(std::size_t text) {
  return frame_head + text + block_head * (text / max_block + 1);
}

/// Writes a zstd frame of raw blocks (RFC 8878), of raw_frame_size() bytes at most. Returns its size.
std::size_t raw_frame(std::string_view text, std::byte* out) {
  std::byte* p = out;
  store_le(p, zstd::magic);
  p[4] = std::byte{0xe0};
  store_le(p + 5, std::uint64_t{text.size()});
  p += frame_head;
  bool last = false;
  while (!last) {
    const std::size_t n = std::min(text.size(), max_block);
    last = n == text.size();
    const auto head = static_cast<std::uint32_t>(n << 3 | (last ? 1 : 0));
    for (unsigned i = 0; i < block_head; ++i) *p++ = static_cast<std::byte>(head >> 8 * i & 0xff);
    std::memcpy(p, text.data(), n);
    p += n;
    text.remove_prefix(n);
  }
  return static_cast<std::size_t>(p - out);
}

class ZstdOut final : public TextOut {
 public:
  ZstdOut(Sink& sink, int level, const Workers& workers)
      : sink_(sink), level_(level), workers_(workers), batch_(workers.threads) {
    store_le(head_, index_magic);
    store_le(head_ + 4, std::uint32_t{8});
    std::memcpy(head_ + 8, index_tag, 8);
    pieces_.emplace_back(head_);
    entry(sizeof head_, 0);
    begin();
  }
  bool wants_index() const noexcept override { return true; }

  Status finish(std::string_view index) override {
    batch_[now_].used = frame_size - room_.size();
    pack(batch_[now_].used != 0 ? now_ + 1 : now_);
    if (position() > frame_size * batch_.size()) {
      STELE_TRY(write_pieces());
      batch_.clear();  // frees the frames before the index is made, which may be large
    }
    Bytes packed;
    STELE_TRY(add_index(index, packed));
    std::byte head[8];
    std::byte tail[9]{};
    store_le(head, table_magic);
    store_le(head + 4, static_cast<std::uint32_t>(table_.size() + sizeof tail));
    store_le(tail, static_cast<std::uint32_t>(table_.size() / 8));
    store_le(tail + 5, table_end);
    pieces_.insert(pieces_.end(), {std::span<const std::byte>(head), std::span<const std::byte>(table_),
                                   std::span<const std::byte>(tail)});
    return write_pieces();
  }

 private:
  void begin() {
    Packed& frame = batch_[now_];
    if (frame.text.empty()) frame.text = Bytes(frame_size);
    room_ = characters(frame.text);
  }
  Status full() override {
    batch_[now_].used = frame_size;
    if (++now_ == batch_.size()) {
      pack(now_);
      STELE_TRY(write_pieces());
      now_ = 0;
    }
    begin();
    return {};
  }
  void pack(std::size_t count) {
    parallel(workers_, count, [&](std::size_t i) { batch_[i].pack(level_); });
    for (std::size_t i = 0; i < count; ++i) {
      const auto stored = std::span<const std::byte>(batch_[i].packed.span()).first(batch_[i].size);
      pieces_.push_back(stored);
      entry(stored.size(), batch_[i].used);
      char hash[8];
      store_le(reinterpret_cast<std::byte*>(hash), hash64(stored.data(), stored.size()));
      hashes_.append(hash, sizeof hash);
    }
  }
  void entry(std::size_t stored, std::size_t plain) {
    stored_ += stored;
    std::byte bytes[8];
    store_le(bytes, static_cast<std::uint32_t>(stored));
    store_le(bytes + 4, static_cast<std::uint32_t>(plain));
    table_.insert(table_.end(), bytes, bytes + sizeof bytes);
  }
  Status write_pieces() {
    auto written = sink_.write(std::span<const std::span<const std::byte>>(pieces_));
    pieces_.clear();
    return written;
  }

  Status add_index(std::string_view rest, Bytes& packed) {
    constexpr std::size_t head = 32;
    const std::string& index = hashes_.append(rest);
    packed = Bytes(head + ZSTD_compressBound(index.size()));
    const zstd::Compressor context = zstd::new_compressor();
    std::size_t n =
        ZSTD_compress2(context.get(), packed.data() + head, packed.size() - head, index.data(), index.size());
    if (ZSTD_isError(n)) STELE_THROW(std::bad_alloc());
    if (!admits(stored_ + n, index.size())) {
      packed = Bytes(head + raw_frame_size(index.size()));
      n = raw_frame(index, packed.data() + head);
    }
    const std::size_t size = head + n;
    if (size - 8 > 0xffffffffU) return Error(Errc::limit, "the index exceeds 4 GiB");
    store_le(packed.data(), index_magic);
    store_le(packed.data() + 4, static_cast<std::uint32_t>(size - 8));
    std::memcpy(packed.data() + 8, index_tag, 8);
    store_le(packed.data() + 24, std::uint64_t{index.size()});
    Hasher hasher;
    hasher.update(table_.data(), table_.size());
    hasher.update(packed.data() + 24, size - 24);
    store_le(packed.data() + 16, hasher.digest());
    entry(size, 0);
    pieces_.push_back(std::span<const std::byte>(packed.span()).first(size));
    return {};
  }

  Sink& sink_;
  int level_;
  Workers workers_;
  std::vector<Packed> batch_;
  std::size_t now_ = 0;
  std::byte head_[16];
  std::vector<std::span<const std::byte>> pieces_;  // bytes that are not written yet
  std::vector<std::byte> table_;
  std::string hashes_;        // hashes of the frames
  std::uint64_t stored_ = 0;  // bytes of all frames
};
#endif

}  // namespace

std::unique_ptr<TextOut> counted_text() { return std::make_unique<CountedOut>(); }

Result<std::unique_ptr<TextOut>> text_out(Coding coding, int level, bool noise, bool stored,
                                          [[maybe_unused]] const Workers& workers, Sink& sink) {
  using Made = std::unique_ptr<TextOut>;
  if (coding == Coding::zstd) {
#if STELE_ZSTD
    return Made(std::make_unique<ZstdOut>(sink, level == 0 ? 1 : std::clamp(level, -50, 19), workers));
#else
    return zstd::left_out(sink.name());
#endif
  }
  if (coding == Coding::gzip) {
    const int of_zlib = level == 0 ? 1 : std::clamp(level, 1, 9);
    return Made(std::make_unique<GzipOut>(sink, stored ? 0 : of_zlib,
                                          level == 0 && noise ? gzip::huffman_only : gzip::default_strategy));
  }
  return Made(std::make_unique<PlainOut>(sink));
}

}  // namespace stele::inline v0::detail::json
