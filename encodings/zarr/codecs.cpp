// The codecs of zarr that convert bytes to bytes.
#include "encodings/zarr/codecs.hpp"

#include <zstd.h>

#include <algorithm>
#include <string>

#include "base/byte_planes.hpp"
#include "base/crc32c.hpp"
#include "base/limits.hpp"
#include "encodings/gzip/gzip.hpp"
#include "encodings/zarr/blosc.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::zarr {
namespace {

/// Maximum number of bytes that a byte of an LZ4 block decodes to: one that continues a length.
constexpr std::uint64_t max_lz4_ratio = 255;

Error damaged(std::string_view found) {
  return Error(Errc::malformed, "the compressed data are damaged").found(std::string(found));
}

/// Inflates zlib data, or all members of a gzip file. Returns the number of bytes.
Result<std::size_t> inflate_all(std::span<const std::byte> in, std::span<std::byte> out) {
  std::size_t made = 0;
  do {
    STELE_TRY_ASSIGN(const std::size_t n, gzip::inflate_next(in, out.subspan(made)));
    made += n;
  } while (gzip::is_gzip(in));
  if (!in.empty()) return damaged("bytes after the end");
  return made;
}

/// Decodes the frame of numcodecs' LZ4. Returns the number of bytes.
Result<std::size_t> lz4_decode(std::span<const std::byte> in, std::span<std::byte> out) {
  if (in.size() < 4) return damaged("fewer than four bytes");
  const std::size_t size = load_le<std::uint32_t>(in.data());
  if (size > out.size() || !lz4_block(in.subspan(4), out.first(size))) return damaged("an LZ4 block");
  return size;
}

}  // namespace

std::optional<Codec::Kind> codec_of(std::string_view name) noexcept {
  if (name.starts_with("numcodecs.")) name.remove_prefix(10);
  if (name == "gzip" || name == "zlib") return Codec::gzip;
  if (name == "zstd") return Codec::zstd;
  if (name == "crc32c") return Codec::crc32c;
  if (name == "blosc") return Codec::blosc;
  if (name == "lz4") return Codec::lz4;
  if (name == "shuffle") return Codec::shuffle;
  return std::nullopt;
}

std::uint64_t max_decoded(Codec codec, std::uint64_t bytes) noexcept {
  switch (codec.kind) {
    case Codec::gzip:
      return add_scaled(0, bytes, max_deflate_ratio);
    case Codec::zstd:
    case Codec::blosc:
      return add_scaled(0, bytes, max_zstd_ratio);
    case Codec::lz4:
      return add_scaled(0, bytes, max_lz4_ratio);
    case Codec::crc32c:
    case Codec::shuffle:
      break;
  }
  return bytes;
}

Result<Bytes> decode(Codec codec, std::span<const std::byte> in, std::uint64_t size, bool at_most) {
  if (codec.kind == Codec::crc32c) {
    if (in.size() < 4) return damaged("fewer than four bytes");
    const auto content = in.first(in.size() - 4);
    const std::uint32_t found = crc32c(0, content.data(), content.size());
    if (found != load_le<std::uint32_t>(in.data() + content.size())) {
      return Error(Errc::checksum, "the CRC-32C of a chunk does not match");
    }
    if (content.size() > size || (!at_most && content.size() != size)) return damaged("another size");
    Bytes out(content.size());
    std::copy(content.begin(), content.end(), out.data());
    return out;
  }
  size = std::min(size, add_scaled(1024, 1, max_decoded(codec, in.size())));
  if constexpr (sizeof(std::size_t) < 8) {
    if (size > SIZE_MAX / 2) return Error(Errc::out_of_memory, "a chunk is too large for this machine");
  }
  Bytes out(static_cast<std::size_t>(size));
  std::size_t made = 0;
  if (codec.kind == Codec::gzip) {
    STELE_TRY_ASSIGN(made, inflate_all(in, out.span()));
  } else if (codec.kind == Codec::zstd) {
    made = ZSTD_decompress(out.data(), out.size(), in.data(), in.size());
    if (ZSTD_isError(made) != 0) return damaged(ZSTD_getErrorName(made));
  } else if (codec.kind == Codec::lz4) {
    STELE_TRY_ASSIGN(made, lz4_decode(in, out.span()));
  } else if (codec.kind == Codec::shuffle) {
    const auto width = static_cast<std::size_t>(std::clamp<std::uint64_t>(codec.width, 1, SIZE_MAX));
    if (in.size() > out.size() || in.size() % width != 0) return damaged("shuffled bytes that are no whole elements");
    join_byte_planes(in, out.data(), width);
    made = in.size();
  } else {
    STELE_TRY_ASSIGN(made, blosc_decode(in, out.span()));
  }
  if (made != size && !at_most) {
    return Error(Errc::malformed, "a chunk decodes to another size")
        .expected(std::to_string(size) + " bytes")
        .found(std::to_string(made));
  }
  out.truncate(made);
  return out;
}

}  // namespace stele::inline v0::detail::zarr
