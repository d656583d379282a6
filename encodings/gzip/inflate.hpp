// DEFLATE data (RFC 1951), of a zip entry or of the members of a gzip file, inflated at once or as a Source.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <zlib.h>

#include "encodings/gzip/gzip.hpp"
#include "io/os/os.hpp"
#include "stele/bytes.hpp"
#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace gzip {

inline constexpr std::size_t input_size = std::size_t{64} << 10;
// Bytes whose CRC is computed while they are in cache.
inline constexpr std::size_t piece_size = std::size_t{128} << 10;

/// DEFLATE data in a Source: `compressed` bytes at `offset` become `size` bytes with this CRC-32. `gzip`: members of a
/// gzip file, which contain their CRCs.
struct Data {
  std::uint64_t offset, compressed, size;
  std::uint32_t crc;
  bool gzip = false;
};

Error damaged(const Source& source, std::uint64_t offset, const char* why);
Error wrong_crc(const Source& source, const Data& data, std::uint32_t found);

/// Inflates from the beginning, or from a kept state.
class Inflater {
 public:
  /// zlib's state after some bytes. It contains its own address, so it never moves.
  class State {
   public:
    explicit State(bool gzip) {
      if (inflateInit2(&stream, gzip ? 15 + 16 : -15) != Z_OK) throw std::bad_alloc();
    }
    State(State& other) : used(other.used), made(other.made), crc(other.crc) {
      if (inflateCopy(&stream, &other.stream) != Z_OK) throw std::bad_alloc();
      stream.avail_in = 0;
    }
    State& operator=(const State&) = delete;
    ~State() { inflateEnd(&stream); }

    z_stream stream{};
    std::uint64_t used = 0;  // of the compressed bytes
    std::uint64_t made = 0;
    std::uint32_t crc = 0;  // of all inflated bytes
  };

  Inflater(const Source& source, const Data& data) : Inflater(source, data, std::make_unique<State>(data.gzip)) {}
  Inflater(const Source& source, const Data& data, std::unique_ptr<State> state)
      : source_(source), data_(data), state_(std::move(state)) {}

  std::uint64_t made() const noexcept { return state_->made; }
  std::unique_ptr<State> keep() { return std::make_unique<State>(*state_); }

  /// Reads the next bytes. Returns fewer only at the end.
  Result<std::size_t> next(std::span<std::byte> out) {
    std::size_t made = 0;
    while (made != out.size()) {
      const auto piece = out.subspan(made, std::min(out.size() - made, piece_size));
      STELE_TRY_ASSIGN(const std::size_t n, some(piece));
      if (!data_.gzip) state_->crc = gzip::crc32(state_->crc, piece.data(), n);  // otherwise zlib checks it
      state_->made += n;
      made += n;
      if (n == 0 && ended_) break;
    }
    return made;
  }

  /// Reads the next bytes, all of which must exist.
  Status make(std::span<std::byte> out) {
    STELE_TRY_ASSIGN(const std::size_t made, next(out));
    return made == out.size() ? Status() : bad("deflated data that end early");
  }

  /// Checks, after the last byte, that the data end here too, and that they are correct.
  Status finish() {
    std::byte one_more[1];
    STELE_TRY_ASSIGN(const std::size_t n, some(one_more));
    if (n != 0) return bad("deflated data of more bytes than the directory says");
    if (state_->used != data_.compressed) return bad("bytes behind deflated data");
    if (!data_.gzip && state_->crc != data_.crc) return wrong_crc(source_, data_, state_->crc);
    return {};
  }

 private:
  Error bad(const char* why) const { return damaged(source_, data_.offset + state_->used, why); }

  /// Reads at least one byte. Returns 0 at the end.
  Result<std::size_t> some(std::span<std::byte> out) {
    z_stream& z = state_->stream;
    z.next_out = reinterpret_cast<Bytef*>(out.data());
    z.avail_out = static_cast<uInt>(out.size());
    while (!ended_ && z.avail_out == out.size()) {
      STELE_TRY(feed());
      const uInt before = z.avail_in;
      const int result = inflate(&z, Z_NO_FLUSH);
      state_->used += before - z.avail_in;
      const bool all = state_->used == data_.compressed;
      if (result == Z_STREAM_END) {
        ended_ = !data_.gzip || all;
        if (!ended_) inflateReset(&z);  // another member
        continue;
      }
      if (result == Z_BUF_ERROR && all) {
        return data_.gzip ? Error(Errc::truncated, "a gzip file that is cut off")
                                .file(source_.name())
                                .offset(data_.offset + state_->used)
                          : bad("deflated data that are cut off");
      }
      if (result == Z_MEM_ERROR) throw std::bad_alloc();
      if (result != Z_OK && result != Z_BUF_ERROR) return damage();
    }
    return out.size() - z.avail_out;
  }

  /// Returns the error that zlib has found.
  Error damage() const {
    const std::string_view why = state_->stream.msg != nullptr ? state_->stream.msg : "damaged deflated data";
    if (why != "incorrect data check" && why != "incorrect length check") return bad(why.data());
    return Error(Errc::checksum, "a gzip file is damaged")
        .file(source_.name())
        .offset(data_.offset + state_->used)
        .expected(why == "incorrect data check" ? "another CRC-32" : "another length");
  }

  /// Supplies more compressed bytes after all have been used, if there are more.
  Status feed() {
    z_stream& z = state_->stream;
    const std::uint64_t left = data_.compressed - state_->used;
    if (z.avail_in != 0 || left == 0) return {};
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(left, input_size));
    const std::uint64_t at = data_.offset + state_->used;
    const std::byte* from = nullptr;
    if (const auto all = source_.view(); !all.empty()) {
      from = all.data() + at;
    } else {
      if (input_.empty()) input_ = Bytes(std::min<std::uint64_t>(data_.compressed, input_size));
      STELE_TRY(source_.read_at(at, input_.span().first(n)));
      from = input_.data();
    }
    // zlib's interface has no const.
    z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(from));
    z.avail_in = static_cast<uInt>(n);
    return {};
  }

  const Source& source_;
  const Data& data_;
  std::unique_ptr<State> state_;
  bool ended_ = false;
  Bytes input_;
};

/// The inflated bytes of Data.
class EntrySource : public Source {
 public:
  EntrySource(SourcePtr source, std::string name, const Data& data)
      : Source(std::move(name)), source_(std::move(source)), data_(data) {}
  std::uint64_t size() const noexcept override { return data_.size; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    return guarded(name(), [&]() -> Status {
      if (offset > data_.size || out.size() > data_.size - offset) {
        return Error(Errc::truncated, "the bytes end before")
            .file(name())
            .offset(offset)
            .expected(std::to_string(out.size()) + " bytes")
            .found(std::to_string(data_.size - std::min(offset, data_.size)));
      }
      return out.empty() ? Status() : read(offset, out);
    });
  }

 protected:
  virtual Status read(std::uint64_t offset, std::span<std::byte> out) const = 0;

  const SourcePtr source_;
  mutable Data data_;  // the size of a gzip file is set later
};

class InflatedSource final : public EntrySource {
 public:
  InflatedSource(SourcePtr source, std::string name, const Data& data)
      : EntrySource(std::move(source), std::move(name), data), step_(std::max(least_step, data.size / most_kept + 1)) {}
  /// A gzip file: its size is known at the end of the pass.
  InflatedSource(const SourcePtr& source, std::uint64_t most)
      : EntrySource(source, source->name(), {0, source->size(), bound_of(source->size()), 0, true}),
        most_(most),
        size_known_(false),
        step_(least_step) {}

  /// Reads the next bytes of the pass.
  Result<std::size_t> pass(std::span<std::byte> out) {
    return guarded(name(), [&]() -> Result<std::size_t> {
      const std::lock_guard lock(mutex_);
      if (size_known_) return std::size_t{0};
      auto inflater = std::move(inflater_);  // moved back on success
      if (inflater == nullptr) inflater = std::make_unique<Inflater>(*source_, data_);
      STELE_TRY_ASSIGN(const std::size_t n, next(*inflater, out));
      if (n == out.size()) inflater_ = std::move(inflater);
      return n;
    });
  }

 private:
  static std::uint64_t bound_of(std::uint64_t compressed) {
    return compressed < ~std::uint64_t{0} / max_ratio ? compressed * max_ratio : ~std::uint64_t{0};
  }
  static constexpr std::uint64_t most_kept = 256;
  static constexpr std::uint64_t least_step = std::uint64_t{1} << 20;

  Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    const std::lock_guard lock(mutex_);
    auto inflater = std::move(inflater_);  // moved back on success
    const auto best = static_cast<std::size_t>(std::min<std::uint64_t>(offset / step_, kept_.size()));
    if (inflater == nullptr || inflater->made() > offset || inflater->made() < best * step_) {
      inflater.reset();
      inflater = best == 0
                     ? std::make_unique<Inflater>(*source_, data_)
                     : std::make_unique<Inflater>(*source_, data_, std::make_unique<Inflater::State>(*kept_[best - 1]));
    }
    if (inflater->made() < offset) {
      Bytes skipped(static_cast<std::size_t>(std::min<std::uint64_t>(offset - inflater->made(), piece_size)));
      while (inflater->made() < offset) {
        const auto n = std::min<std::uint64_t>(offset - inflater->made(), skipped.size());
        STELE_TRY(make(*inflater, skipped.span().first(static_cast<std::size_t>(n))));
      }
    }
    STELE_TRY(make(*inflater, out));
    // A kept state has the CRC of all bytes before it, so a reader that reaches the end has checked everything.
    if (inflater->made() == data_.size) return inflater->finish();
    inflater_ = std::move(inflater);
    return {};
  }

  /// Reads the next bytes, all of which must exist.
  Status make(Inflater& inflater, std::span<std::byte> out) const {
    const bool known = size_known_;
    STELE_TRY_ASSIGN(const std::size_t made, next(inflater, out));
    if (made == out.size()) return {};
    if (known) return inflater.make(out.subspan(made));  // for its error
    return Error(Errc::truncated, "the bytes end before").file(name()).offset(inflater.made());
  }

  /// Reads the next bytes. Returns fewer only at the end, which sets the size. Keeps states as it reads.
  Result<std::size_t> next(Inflater& inflater, std::span<std::byte> out) const {
    std::size_t made = 0;
    while (made != out.size()) {
      const std::uint64_t next = step_ * (kept_.size() + 1);
      std::size_t n = out.size() - made;
      if (next > inflater.made()) n = static_cast<std::size_t>(std::min<std::uint64_t>(n, next - inflater.made()));
      STELE_TRY_ASSIGN(const std::size_t got, inflater.next(out.subspan(made, n)));
      made += got;
      if (got != n) break;
      if (inflater.made() == next && next < data_.size) keep(inflater);
    }
    if (inflater.made() > most_) {
      return Error(Errc::limit, "a gzip file that becomes too large")
          .file(name())
          .expected(std::to_string(most_) + " bytes at most (Limits::total_bytes)");
    }
    if (made != out.size() && !size_known_) {
      data_.size = inflater.made();
      size_known_ = true;
    }
    return made;
  }

  void keep(Inflater& inflater) const {
    kept_.push_back(inflater.keep());
    if (kept_.size() < most_kept || size_known_) return;
    // Every other one, so that the kept states do not depend on the final size.
    for (std::size_t i = 0; i < most_kept / 2; ++i) kept_[i] = std::move(kept_[2 * i + 1]);
    kept_.resize(most_kept / 2);
    step_ *= 2;
  }

  const std::uint64_t most_ = UINT64_MAX;
  mutable bool size_known_ = true;
  mutable std::uint64_t step_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<Inflater> inflater_;
  mutable std::vector<std::unique_ptr<Inflater::State>> kept_;  // index i: after (i + 1) * step_ bytes
};

}  // namespace gzip
}  // namespace detail
}  // namespace v0
}  // namespace stele
