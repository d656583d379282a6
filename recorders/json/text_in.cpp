// Reads the characters of a document at any offset, for every compression.
#include "text_in.hpp"

#include <algorithm>
#include <bit>

#include "base/threads.hpp"
#include "encodings/gzip/inflate.hpp"
#include "stele/bytes.hpp"
#include "text_frames.hpp"

namespace stele::inline v0::detail::json {
namespace {

constexpr std::size_t input_size = std::size_t{64} << 10;

// ---- plain

class PlainText final : public Text {
 public:
  explicit PlainText(SourcePtr source) : source_(std::move(source)) {}
  Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) const override {
    const std::uint64_t left = source_->size() - std::min(offset, source_->size());
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(left, out.size()));
    STELE_TRY(source_->read_at(offset, out.first(n)));
    return n;
  }

 private:
  SourcePtr source_;
};

// ---- streams

/// Decompresses a source from its beginning.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;
  /// Returns the number of characters written to `out`; 0 at the end.
  virtual Result<std::size_t> next(std::span<std::byte> out) = 0;
};

#if STELE_ZSTD
class ZstdStream final : public Stream {
 public:
  explicit ZstdStream(const Source& source) : source_(source), context_(zstd::new_decompressor()), input_(input_size) {
    // A frame declares its window size, which is limited by the size of the file.
    const int window = std::clamp(static_cast<int>(std::bit_width(source.size())) + 1, 23, 27);
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, window);
  }
  Result<std::size_t> next(std::span<std::byte> out) override {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos == 0) {
      STELE_TRY_ASSIGN(const auto bytes, input());
      if (bytes.empty() && between_) return std::size_t{0};
      ZSTD_inBuffer from{bytes.data(), bytes.size(), 0};
      const std::size_t left = ZSTD_decompressStream(context_.get(), &to, &from);
      if (ZSTD_isError(left)) return damaged(source_, position(), ZSTD_getErrorName(left));
      between_ = left == 0;
      use(from.pos);
      if (bytes.empty() && to.pos == 0 && !between_) return truncated();
    }
    return to.pos;
  }

 private:
  bool at_end() const { return offset_ == source_.size(); }
  /// Returns unused compressed bytes; reads more if there are none.
  Result<std::span<const std::byte>> input() {
    if (rest_.empty() && !at_end()) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(source_.size() - offset_, input_size));
      STELE_TRY(source_.read_at(offset_, input_.span().first(n)));
      offset_ += n;
      rest_ = input_.span().first(n);
    }
    return rest_;
  }
  void use(std::size_t n) { rest_ = rest_.subspan(n); }
  std::uint64_t position() const { return offset_ - rest_.size(); }
  Error truncated() const {
    return Error(Errc::truncated, "the compressed data end early").file(source_.name()).offset(source_.size());
  }

  const Source& source_;
  zstd::Decompressor context_;
  bool between_ = false;  // between two frames
  Bytes input_;
  std::span<const std::byte> rest_;
  std::uint64_t offset_ = 0;
};
#endif

class GzipStream final : public Stream {
 public:
  explicit GzipStream(const Source& source) : data_{0, source.size(), 0, 0, true}, inflater_(source, data_) {}
  Result<std::size_t> next(std::span<std::byte> out) override { return inflater_.next(out); }

 private:
  const gzip::Data data_;
  gzip::Inflater inflater_;
};

/// Text that is decompressed from the beginning. A read at an offset decompresses all text before it.
class StreamedText final : public Text {
 public:
  StreamedText(SourcePtr source, Coding coding) : source_(std::move(source)), coding_(coding) {}
  Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) const override {
    const Lock lock(mutex_);
    if (stream_ == nullptr || offset < at_) {
      at_ = 0;
      stream_.reset();
      if (coding_ == Coding::gzip) stream_ = std::make_unique<GzipStream>(*source_);
#if STELE_ZSTD
      if (coding_ == Coding::zstd) stream_ = std::make_unique<ZstdStream>(*source_);
#endif
    }
    if (skipped_.empty() && at_ < offset) skipped_ = Bytes(input_size);
    while (at_ < offset) {
      const auto limit = static_cast<std::size_t>(std::min<std::uint64_t>(offset - at_, input_size));
      STELE_TRY_ASSIGN(const std::size_t n, more(skipped_.span().first(limit)));
      if (n == 0) return std::size_t{0};
    }
    std::size_t done = 0;
    while (done != out.size()) {
      STELE_TRY_ASSIGN(const std::size_t n, more(out.subspan(done)));
      if (n == 0) break;
      done += n;
    }
    return done;
  }
  bool in_order() const noexcept override { return true; }

 private:
  Result<std::size_t> more(std::span<std::byte> out) const {
    auto n = stream_->next(out);
    if (n) {
      at_ += *n;
    } else {
      stream_.reset();  // a stream that failed cannot continue
    }
    return n;
  }

  SourcePtr source_;
  Coding coding_;
  mutable Mutex mutex_;
  mutable std::unique_ptr<Stream> stream_;
  mutable std::uint64_t at_ = 0;  // characters decompressed so far
  mutable Bytes skipped_;
};

}  // namespace

Coding coding_of(std::span<const std::byte> head) noexcept {
  if (gzip::is_gzip(head)) return Coding::gzip;
  if (head.size() < 4) return Coding::plain;
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(head[i]); };
  const std::uint32_t magic = at(0) | at(1) << 8 | at(2) << 16 | at(3) << 24;
  return magic == zstd::magic || (magic & 0xfffffff0U) == zstd::skippable_magic ? Coding::zstd : Coding::plain;
}

Result<OpenedText> open_text(SourcePtr source, Coding coding, std::uint64_t budget) {
  OpenedText opened;
  if (coding == Coding::zstd) {
#if STELE_ZSTD
    STELE_TRY_ASSIGN(const bool seekable, open_frames(source, budget, opened));
    if (seekable) return opened;
#else
    static_cast<void>(budget);
    return zstd::left_out(source->name());
#endif
  }
  if (coding == Coding::plain) {
    opened.text = std::make_unique<PlainText>(std::move(source));
  } else {
    opened.text = std::make_unique<StreamedText>(std::move(source), coding);
  }
  return opened;
}

}  // namespace stele::inline v0::detail::json
