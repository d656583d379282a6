// Compresses data for gzip files and zip entries.
#include "deflate.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "gzip.hpp"
#include "stele/bytes.hpp"
#if STELE_ZLIB
#include <zlib.h>
#endif

namespace stele::inline v0::detail::gzip {
#if STELE_ZLIB
namespace {

/// Size of the pieces passed to zlib, independent of the caller's pieces.
constexpr std::size_t buffer_size = std::size_t{64} << 10;

}  // namespace

struct Deflater::State {
  z_stream stream{};
  gz_header head{};
};

Deflater::Deflater(Framing framing, int level, int strategy) : state_(std::make_unique<State>()) {
  // 15: the largest window; 16: a gzip header; negative: no header.
  const int window = framing == Framing::gzip ? 15 + 16 : -15;
  if (deflateInit2(&state_->stream, level, Z_DEFLATED, window, 8, strategy) != Z_OK) STELE_THROW(std::bad_alloc());
  state_->head.os = 255;  // unknown, so that all systems write the same bytes
  if (framing == Framing::gzip) deflateSetHeader(&state_->stream, &state_->head);
}

Deflater::~Deflater() { deflateEnd(&state_->stream); }

std::size_t Deflater::next(std::span<const std::byte>& in, std::span<std::byte> out, bool finish) {
  constexpr std::size_t max_piece = std::size_t{1} << 30;  // zlib counts in 32 bits
  const std::size_t taken = std::min(in.size(), max_piece), free = std::min(out.size(), max_piece);
  z_stream& z = state_->stream;
  // zlib's interface has no const.
  z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
  z.avail_in = static_cast<uInt>(taken);
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(free);
  ended_ = deflate(&z, finish && taken == in.size() ? Z_FINISH : Z_NO_FLUSH) == Z_STREAM_END;
  in = in.subspan(taken - z.avail_in);
  return free - z.avail_out;
}

struct GzipSink::State {
  State(int level, int strategy) : deflater(Deflater::Framing::gzip, level, strategy) {}

  Bytes plain = Bytes(buffer_size);
  Bytes packed = Bytes(buffer_size);
  std::size_t used = 0;
  Deflater deflater;
};

GzipSink::GzipSink(Sink& below, int level, int strategy)
    : Sink(below.name()), below_(below), state_(std::make_unique<State>(level, strategy)) {}

GzipSink::~GzipSink() = default;

Status GzipSink::write(std::span<const std::span<const std::byte>> pieces) {
  for (auto bytes : pieces) {
    while (!bytes.empty()) {
      const std::size_t n = std::min(bytes.size(), buffer_size - state_->used);
      std::memcpy(state_->plain.data() + state_->used, bytes.data(), n);
      state_->used += n;
      bytes = bytes.subspan(n);
      if (state_->used == buffer_size) STELE_TRY(deflate_all(false));
    }
  }
  return {};
}

Status GzipSink::finish() { return deflate_all(true); }

Status GzipSink::deflate_all(bool finish) {
  auto in = std::span<const std::byte>(state_->plain.span()).first(std::exchange(state_->used, 0));
  while (finish ? !state_->deflater.ended() : !in.empty()) {
    const std::size_t n = state_->deflater.next(in, state_->packed.span(), finish);
    if (n != 0) STELE_TRY(below_.write(std::span<const std::byte>(state_->packed.span()).first(n)));
  }
  return {};
}

#else

struct GzipSink::State {};

GzipSink::GzipSink(Sink& below, int, int) : Sink(below.name()), below_(below) {}
GzipSink::~GzipSink() = default;
Status GzipSink::write(std::span<const std::span<const std::byte>>) { return left_out(below_.name()); }
Status GzipSink::finish() { return left_out(below_.name()); }

#endif
}  // namespace stele::inline v0::detail::gzip
