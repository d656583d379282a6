// Inflates a zip entry or a gzip file's members (RFC 1951).
#include "inflate.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/limits.hpp"
#include "base/threads.hpp"
#include "gzip.hpp"
#include "io/os/os.hpp"
#if STELE_ZLIB
#include <zlib.h>
#endif

namespace stele::inline v0::detail::gzip {
namespace {

#if STELE_ZLIB
constexpr std::size_t input_size = std::size_t{64} << 10;
constexpr std::size_t window_size = std::size_t{32} << 10;
#endif
constexpr std::uint64_t max_kept = 256;
constexpr std::uint64_t min_step = std::uint64_t{1} << 20;

}  // namespace

Error wrong_crc(const Source& source, const Data& data, std::uint32_t found) {
  return Error(Errc::checksum, "the CRC-32 of the zip entry does not match")
      .file(source.name())
      .offset(data.offset)
      .expected(std::to_string(data.crc))
      .found(std::to_string(found));
}

// ---- Inflater

/// Contains its own address, so it is never moved.
class Inflater::State {
 public:
#if STELE_ZLIB
  explicit State(bool gzip) {
    if (inflateInit2(&stream, gzip ? 15 + 16 : -15) != Z_OK) STELE_THROW(std::bad_alloc());
  }
  State(State& other) : used(other.used), made(other.made), crc(other.crc) {
    if (inflateCopy(&stream, &other.stream) != Z_OK) STELE_THROW(std::bad_alloc());
    stream.avail_in = 0;
  }
  State& operator=(const State&) = delete;
  ~State() { inflateEnd(&stream); }

  z_stream stream{};
#else
  explicit State(bool) {}
#endif
  std::uint64_t used = 0;  // number of compressed bytes used
  std::uint64_t made = 0;
  std::uint32_t crc = 0;  // CRC of all inflated bytes
};

Inflater::Inflater(const Source& source, const Data& data)
    : Inflater(source, data, std::make_unique<State>(data.gzip)) {}

Inflater::Inflater(const Source& source, const Data& data, std::unique_ptr<State> state)
    : source_(source), data_(data), state_(std::move(state)) {}

Inflater::~Inflater() = default;

std::uint64_t Inflater::made() const noexcept { return state_->made; }

std::unique_ptr<Inflater::State> Inflater::keep() { return std::make_unique<State>(*state_); }

#if STELE_ZLIB
bool Inflater::again(std::uint64_t offset, std::span<std::byte> out) {
  const std::uint64_t back = state_->made - offset;
  if (back > window_size) return false;
  Bytes window(window_size);
  uInt size = 0;
  if (inflateGetDictionary(&state_->stream, reinterpret_cast<Bytef*>(window.data()), &size) != Z_OK || size < back) {
    return false;
  }
  std::memcpy(out.data(), window.data() + (size - back), out.size());
  return true;
}
#else
bool Inflater::again(std::uint64_t, std::span<std::byte>) { return false; }
#endif

Result<std::size_t> Inflater::next(std::span<std::byte> out) {
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

Status Inflater::make(std::span<std::byte> out) {
  STELE_TRY_ASSIGN(const std::size_t made, next(out));
  return made == out.size() ? Status() : bad("the deflated data ends before the declared size");
}

Status Inflater::finish() {
  std::byte one_more[1];
  STELE_TRY_ASSIGN(const std::size_t n, some(one_more));
  if (n != 0) return bad("the deflated data exceeds the declared size");
  if (state_->used != data_.compressed) return bad("bytes follow the deflated data");
  if (!data_.gzip && state_->crc != data_.crc) return wrong_crc(source_, data_, state_->crc);
  return {};
}

Error Inflater::bad(const char* why) const {
  return Error(Errc::malformed, why).file(source_.name()).offset(data_.offset + state_->used);
}

#if STELE_ZLIB
/// Reads at least one byte, or returns 0 at the end.
Result<std::size_t> Inflater::some(std::span<std::byte> out) {
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
      if (!ended_) inflateReset(&z);  // another member follows
      continue;
    }
    if (result == Z_BUF_ERROR && all) {
      return data_.gzip ? Error(Errc::truncated, "the file ends inside the gzip data")
                              .file(source_.name())
                              .offset(data_.offset + state_->used)
                        : bad("the entry ends inside the deflated data");
    }
    if (result == Z_MEM_ERROR) STELE_THROW(std::bad_alloc());
    if (result != Z_OK && result != Z_BUF_ERROR) return damage();
  }
  return out.size() - z.avail_out;
}

/// Returns the error that zlib has found.
Error Inflater::damage() const {
  const std::string_view why = state_->stream.msg != nullptr ? state_->stream.msg : "";
  const bool crc = why == "incorrect data check";
  if (!crc && why != "incorrect length check") return bad("the deflated data is invalid").found(std::string(why));
  return Error(Errc::checksum,
               crc ? "the CRC-32 of the gzip data does not match" : "the length of the gzip data does not match")
      .file(source_.name())
      .offset(data_.offset + state_->used);
}

/// Supplies more compressed bytes, if there are any, after zlib has used all previous bytes.
Status Inflater::feed() {
  z_stream& z = state_->stream;
  const std::uint64_t left = data_.compressed - state_->used;
  if (z.avail_in != 0 || left == 0) return {};
  const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(left, input_size));
  const std::uint64_t at = data_.offset + state_->used;
  const std::byte* from = nullptr;
  if (const auto all = source_.view(); !all.empty()) {
    from = all.data() + at;
  } else {
    if (input_.empty()) input_ = Bytes(static_cast<std::size_t>(std::min<std::uint64_t>(data_.compressed, input_size)));
    STELE_TRY(source_.read_at(at, input_.span().first(n)));
    from = input_.data();
  }
  // zlib's interface has no const.
  z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(from));
  z.avail_in = static_cast<uInt>(n);
  return {};
}
#else
Result<std::size_t> Inflater::some(std::span<std::byte>) { return left_out(source_.name()); }
#endif

// ---- InflatedSource

InflatedSource::InflatedSource(SourcePtr source, std::string name, const Data& data)
    : EntrySource(std::move(source), std::move(name), data), step_(std::max(min_step, data.size / max_kept + 1)) {}

InflatedSource::InflatedSource(const SourcePtr& source, std::uint64_t max_size)
    : EntrySource(source, source->name(),
                  {0, source->size(), add_scaled(0, source->size(), max_deflate_ratio), 0, true}),
      max_size_(max_size),
      size_known_(false),
      step_(min_step) {}

InflatedSource::~InflatedSource() = default;

Result<std::size_t> InflatedSource::pass(std::span<std::byte> out) {
  return guarded(name(), [&]() -> Result<std::size_t> {
    const Lock lock(mutex_);
    if (size_known_) return std::size_t{0};
    auto inflater = std::move(inflater_);  // moved back on success
    if (inflater == nullptr) inflater = std::make_unique<Inflater>(*source_, data_);
    STELE_TRY_ASSIGN(const std::size_t n, next(*inflater, out));
    if (n == out.size()) inflater_ = std::move(inflater);
    return n;
  });
}

Status InflatedSource::read(std::uint64_t offset, std::span<std::byte> out) const {
  const Lock lock(mutex_);
  auto inflater = std::move(inflater_);  // moved back on success
  // Readers look at a file's first bytes before they read it.
  if (inflater != nullptr && offset < inflater->made()) {
    const auto known =
        out.first(static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), inflater->made() - offset)));
    if (inflater->again(offset, known)) {
      offset += known.size();
      out = out.subspan(known.size());
    }
    if (out.empty()) {
      inflater_ = std::move(inflater);
      return {};
    }
  }
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
  // A kept state includes the CRC of all bytes before it, so a reader that reaches the end has checked everything.
  if (inflater->made() == data_.size) return inflater->finish();
  inflater_ = std::move(inflater);
  return {};
}

/// Reads the next bytes; the data must contain all of them.
Status InflatedSource::make(Inflater& inflater, std::span<std::byte> out) const {
  const bool known = size_known_;
  STELE_TRY_ASSIGN(const std::size_t made, next(inflater, out));
  if (made == out.size()) return {};
  if (known) return inflater.make(out.subspan(made));  // fails with the right error
  return Error(Errc::truncated, "the read passes the end of the gzip data").file(name()).offset(inflater.made());
}

/// Reads the next bytes. Returns fewer only at the end, and then sets the size. Keeps states as it reads.
Result<std::size_t> InflatedSource::next(Inflater& inflater, std::span<std::byte> out) const {
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
  if (inflater.made() > max_size_) {
    return Error(Errc::limit, "the gzip data inflates to more than the limit")
        .file(name())
        .expected("at most " + std::to_string(max_size_) + " bytes")
        .hint("raise LoadOptions::limits.total_bytes");
  }
  if (made != out.size() && !size_known_) {
    data_.size = inflater.made();
    size_known_ = true;
  }
  return made;
}

void InflatedSource::keep(Inflater& inflater) const {
  kept_.push_back(inflater.keep());
  if (kept_.size() < max_kept || size_known_) return;
  // Keeps every second state, so that the kept states do not depend on the final size.
  for (std::size_t i = 0; i < max_kept / 2; ++i) kept_[i] = std::move(kept_[2 * i + 1]);
  kept_.resize(max_kept / 2);
  step_ *= 2;
}

}  // namespace stele::inline v0::detail::gzip
