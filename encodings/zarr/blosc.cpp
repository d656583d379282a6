// Decodes frames of Blosc 1.
#include "encodings/zarr/blosc.hpp"

#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/byte_planes.hpp"
#include "encodings/gzip/gzip.hpp"
#include "stele/bytes.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::zarr {
namespace {

constexpr std::size_t header_bytes = 16;
// limits for splitting a block into one part for each byte of an element
constexpr std::size_t max_parts = 16, min_part = 128;
enum Flags : unsigned { shuffled = 1, stored = 2, bits_shuffled = 4, delta = 8, not_split = 16 };

Error broken_frame(std::string_view found) {
  return Error(Errc::malformed, "a Blosc frame is damaged").found(std::string(found));
}

Status unpack_part(unsigned codec, std::span<const std::byte> in, std::span<std::byte> out) {
  if (in.size() == out.size()) {
    std::copy(in.begin(), in.end(), out.begin());
    return {};
  }
  bool good = false;
  if (codec == 1) {
    good = lz4_block(in, out);
  } else if (codec == 3) {
    const auto made = gzip::inflate_next(in, out);
    good = made && *made == out.size();
  } else if (codec == 4) {
    good = ZSTD_decompress(out.data(), out.size(), in.data(), in.size()) == out.size();
  } else {
    return Error(Errc::unsupported, "stele does not decode the inner codec of a Blosc frame")
        .found(codec == 0   ? "blosclz"
               : codec == 2 ? "snappy"
                            : "codec " + std::to_string(codec));
  }
  return good ? Status() : Status(broken_frame("compressed data that do not decode"));
}

/// Reverses the shuffle of bits: bit k of byte b of all elements is one run of bits.
void unshuffle_bits(std::span<const std::byte> in, std::span<std::byte> out, std::size_t width) {
  const std::size_t count = in.size() / width, run = count / 8;
  if (count % 8 != 0) {
    std::copy(in.begin(), in.end(), out.begin());
    return;
  }
  std::memset(out.data(), 0, count * width);
  for (std::size_t b = 0; b < width; ++b) {
    for (std::size_t k = 0; k < 8; ++k) {
      const std::byte* const bits = in.data() + (b * 8 + k) * run;
      for (std::size_t i = 0; i < count; ++i) {
        out[i * width + b] |= (bits[i / 8] >> (i % 8) & std::byte{1}) << k;
      }
    }
  }
  std::copy(in.begin() + static_cast<std::ptrdiff_t>(count * width), in.end(),
            out.begin() + static_cast<std::ptrdiff_t>(count * width));
}

}  // namespace

// A block is sequences of a token (4 bits length of literals, 4 bits length of a copy minus 4), literals, and u16
// distance of the copy; 15 continues a length with bytes up to one below 255.
bool lz4_block(std::span<const std::byte> in, std::span<std::byte> out) {
  std::size_t at = 0, made = 0;
  const auto length = [&](std::size_t& n) {
    if (n != 15) return true;
    for (unsigned byte = 255; byte == 255; n += byte) {
      if (at == in.size()) return false;
      byte = std::to_integer<unsigned>(in[at++]);
    }
    return true;
  };
  const auto copy = [&](const std::byte* from, std::size_t n, std::size_t room) {  // most are short: 16 bytes at once
    if (n <= 16 && std::min(room, out.size() - made) >= 16) {
      std::memcpy(out.data() + made, from, 16);
    } else {
      std::memcpy(out.data() + made, from, n);
    }
    made += n;
  };
  while (at < in.size()) {
    const auto token = std::to_integer<unsigned>(in[at++]);
    std::size_t literals = token >> 4;
    if (!length(literals) || literals > in.size() - at || literals > out.size() - made) return false;
    copy(in.data() + at, literals, in.size() - at);
    at += literals;
    if (at == in.size()) return made == out.size();
    if (in.size() - at < 2) return false;
    const std::size_t distance = load_le<std::uint16_t>(in.data() + at);
    at += 2;
    std::size_t copied = token & 15U;
    if (!length(copied)) return false;
    copied += 4;
    if (distance == 0 || distance > made || copied > out.size() - made) return false;
    // A copy that is longer than its distance repeats these bytes: each turn has twice as many of them.
    for (const std::size_t from = made - distance; copied != 0;) {
      const std::size_t n = std::min(copied, made - from);
      copy(out.data() + from, n, made - from);
      copied -= n;
    }
  }
  return false;
}

Result<std::size_t> blosc_decode(std::span<const std::byte> in, std::span<std::byte> out) {
  if (in.size() < header_bytes) return broken_frame("fewer than 16 bytes");
  const auto flags = std::to_integer<unsigned>(in[2]);
  const auto width = std::max<std::size_t>(std::to_integer<std::size_t>(in[3]), 1);
  const std::size_t size = load_le<std::uint32_t>(in.data() + 4), block = load_le<std::uint32_t>(in.data() + 8);
  if (in[0] != std::byte{2} || (flags & delta) != 0) {
    return Error(Errc::unsupported, "stele does not decode this version of Blosc frames")
        .expected("version 2")
        .found(std::to_string(std::to_integer<int>(in[0])));
  }
  if (load_le<std::uint32_t>(in.data() + 12) != in.size()) return broken_frame("another size of the frame");
  if (size > out.size()) return broken_frame(std::to_string(size) + " decoded bytes");
  if (size == 0) return size;
  if ((flags & stored) != 0) {
    if (in.size() - header_bytes != size) return broken_frame("another size of stored bytes");
    std::memcpy(out.data(), in.data() + header_bytes, size);
    return size;
  }
  if (block == 0 || block > size) return broken_frame("a block of " + std::to_string(block) + " bytes");
  const std::size_t blocks = size / block + (size % block != 0 ? 1 : 0);
  if (blocks > (in.size() - header_bytes) / 4) return broken_frame("too many blocks");
  Bytes shuffled_block;
  if ((flags & (shuffled | bits_shuffled)) != 0) shuffled_block = Bytes(block);
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::span<std::byte> to = out.subspan(i * block, std::min(block, size - i * block));
    const bool shuffle = (flags & shuffled) != 0 && width > 1, bits = !shuffle && (flags & bits_shuffled) != 0;
    const std::span<std::byte> made = shuffle || bits ? shuffled_block.span().first(to.size()) : to;
    // Versions without the flag split by these numbers only.
    const bool splits = (flags & not_split) == 0 && width <= max_parts && block / width >= min_part;
    const std::size_t parts = splits && to.size() == block ? width : 1;
    if (made.size() % parts != 0) return broken_frame("a block that cannot be split");
    const std::size_t part = made.size() / parts;
    std::size_t at = load_le<std::uint32_t>(in.data() + header_bytes + 4 * i);
    for (std::size_t k = 0; k < parts; ++k) {
      if (at > in.size() || in.size() - at < 4) return broken_frame("a block outside the frame");
      const std::size_t n = load_le<std::uint32_t>(in.data() + at);
      at += 4;
      if (n > in.size() - at) return broken_frame("a block outside the frame");
      STELE_TRY(unpack_part(flags >> 5, in.subspan(at, n), made.subspan(k * part, part)));
      at += n;
    }
    if (shuffle) {
      join_byte_planes(made, to.data(), width);
    } else if (bits) {
      unshuffle_bits(made, to, width);
    }
  }
  return size;
}

}  // namespace stele::inline v0::detail::zarr
