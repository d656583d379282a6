#include "gzip.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <zlib.h>

#include "stele/bytes.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace gzip {
namespace {

/// Size of the pieces that zlib gets, independent of the caller's pieces.
constexpr std::size_t piece_size = std::size_t{64} << 10;

}  // namespace

struct GzipSink::State {
  State(int level, int strategy) {
    // 15: the largest window; 16: a gzip header.
    if (deflateInit2(&stream, level, Z_DEFLATED, 15 + 16, 8, strategy) != Z_OK) throw std::bad_alloc();
    head.os = 255;  // unknown, so that all systems write equal bytes
    deflateSetHeader(&stream, &head);
  }
  ~State() { deflateEnd(&stream); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Bytes plain = Bytes(piece_size);
  Bytes packed = Bytes(piece_size);
  std::size_t used = 0;
  z_stream stream{};
  gz_header head{};
};

GzipSink::GzipSink(Sink& below, int level, int strategy)
    : Sink(below.name()), below_(below), state_(std::make_unique<State>(level, strategy)) {}

GzipSink::~GzipSink() = default;

Status GzipSink::write(std::span<const std::span<const std::byte>> pieces) {
  for (auto bytes : pieces) {
    while (!bytes.empty()) {
      const std::size_t n = std::min(bytes.size(), piece_size - state_->used);
      std::memcpy(state_->plain.data() + state_->used, bytes.data(), n);
      state_->used += n;
      bytes = bytes.subspan(n);
      if (state_->used == piece_size) STELE_TRY(deflate_all(Z_NO_FLUSH));
    }
  }
  return {};
}

Status GzipSink::finish() { return deflate_all(Z_FINISH); }

Status GzipSink::deflate_all(int flush) {
  z_stream& z = state_->stream;
  z.next_in = reinterpret_cast<Bytef*>(state_->plain.data());
  z.avail_in = static_cast<uInt>(state_->used);
  state_->used = 0;
  for (;;) {
    z.next_out = reinterpret_cast<Bytef*>(state_->packed.data());
    z.avail_out = static_cast<uInt>(state_->packed.size());
    const int result = deflate(&z, flush);
    const std::size_t n = state_->packed.size() - z.avail_out;
    if (n != 0) STELE_TRY(below_.write(std::span<const std::byte>(state_->packed.span()).first(n)));
    if (flush == Z_FINISH ? result == Z_STREAM_END : z.avail_out != 0) return {};
  }
}

}  // namespace gzip
}  // namespace detail
}  // namespace v0
}  // namespace stele
