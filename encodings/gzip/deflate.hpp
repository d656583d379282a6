// zlib's compressor, for gzip files and zip entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace stele::inline v0::detail::gzip {

/// Compresses bytes to DEFLATE data.
class Deflater {
 public:
  enum class Framing : std::uint8_t { none, gzip };

  /// `level` and `strategy` are zlib's; the defaults are -1 and 0. Throws std::bad_alloc.
  Deflater(Framing framing, int level, int strategy);
  ~Deflater();

  /// Compresses bytes from the front of `in`, and removes them from it, until `in` is empty or `out` is full. Returns
  /// the number of bytes written to `out`. `finish`: no more input follows `in`; must then be true in all remaining
  /// calls.
  std::size_t next(std::span<const std::byte>& in, std::span<std::byte> out, bool finish);
  /// Returns true if the end of the data has been written.
  bool ended() const noexcept { return ended_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  bool ended_ = false;
};

}  // namespace stele::inline v0::detail::gzip
