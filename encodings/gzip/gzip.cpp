// Recognizes gzip files, and computes the CRC-32 of zip and gzip.
#include "gzip.hpp"

#include <algorithm>
#include <array>
#include <new>

#if STELE_ZLIB
#include <libdeflate.h>
#include <zlib.h>
#endif

#include "inflate.hpp"

namespace stele::inline v0::detail::gzip {

Gzip::Gzip(const SourcePtr& source, std::uint64_t max_size)
    : inflated_(std::make_shared<InflatedSource>(source, max_size)) {}

Result<std::size_t> Gzip::next(std::span<std::byte> out) { return inflated_->pass(out); }

SourcePtr Gzip::source() const { return inflated_; }

bool is_gzip(std::span<const std::byte> head) noexcept {
  return head.size() >= 3 && head[0] == std::byte{0x1f} && head[1] == std::byte{0x8b} && head[2] == std::byte{8};
}

Result<bool> is_gzip(const Source& source) {
  std::byte head[3];
  if (source.is_folder() || source.size() < sizeof head) return false;
  STELE_TRY(source.read_at(0, head));
  return is_gzip(std::span<const std::byte>(head));
}

void add_unchecked_header(Report& report) {
  report.add(Report::What::unchecked, "gzip header", "time, flags, system: loads ignore them");
}

Error left_out(std::string_view file) {
  return Error(Errc::unsupported, "this program was built without zlib")
      .file(file)
      .hint("compile stele with -D STELE_ZLIB=1, and link zlib and libdeflate");
}

#if STELE_ZLIB

std::span<const std::byte> inflated_head(std::span<const std::byte> head, std::span<std::byte> out) noexcept {
  constexpr std::size_t max_piece = std::size_t{64} << 10;
  z_stream z{};
  if (!is_gzip(head) || out.empty() || inflateInit2(&z, 15 + 16) != Z_OK) return {};
  // zlib's interface has no const.
  z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(head.data()));
  z.avail_in = static_cast<uInt>(std::min(head.size(), max_piece));
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(std::min(out.size(), max_piece));
  const uInt all = z.avail_out;
  inflate(&z, Z_SYNC_FLUSH);  // stops at the end of the input
  const std::size_t made = all - z.avail_out;
  inflateEnd(&z);
  return out.first(made);
}

Result<std::size_t> inflate_next(std::span<const std::byte>& in, std::span<std::byte> out) {
  const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> inflater(
      libdeflate_alloc_decompressor(), &libdeflate_free_decompressor);
  if (inflater == nullptr) STELE_THROW(std::bad_alloc());
  const auto decompress = is_gzip(in) ? &libdeflate_gzip_decompress_ex : &libdeflate_zlib_decompress_ex;
  std::size_t used = 0, made = 0;
  const auto result = decompress(inflater.get(), in.data(), in.size(), out.data(), out.size(), &used, &made);
  if (result == LIBDEFLATE_INSUFFICIENT_SPACE) return Error(Errc::malformed, "the deflated data have too many bytes");
  if (result != LIBDEFLATE_SUCCESS) return Error(Errc::malformed, "the deflated data are damaged");
  in = in.subspan(used);
  return made;
}

std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size) noexcept {
  return size == 0 ? crc : libdeflate_crc32(crc, data, size);  // which treats empty data as a new start
}

std::uint32_t crc32_joined(std::uint32_t a, std::uint32_t b, std::uint64_t length_of_b) noexcept {
  // The CRC is linear: `a` is advanced over zeros in place of `b`. For up to some KiB, libdeflate is faster at this
  // than zlib.
  static constexpr std::byte zeros[4096]{};
  if (length_of_b <= sizeof zeros) return ~crc32(~a, zeros, static_cast<std::size_t>(length_of_b)) ^ b;
  // z_off_t has 32 bits on Windows and on other systems of 32 bits. An empty CRC moves `a` by a part of the length.
  constexpr std::uint64_t part = std::uint64_t{1} << 30;
  for (; length_of_b > part; length_of_b -= part) a = static_cast<std::uint32_t>(::crc32_combine(a, 0, z_off_t{part}));
  return static_cast<std::uint32_t>(::crc32_combine(a, b, static_cast<z_off_t>(length_of_b)));
}

#else

std::span<const std::byte> inflated_head(std::span<const std::byte>, std::span<std::byte>) noexcept { return {}; }

Result<std::size_t> inflate_next(std::span<const std::byte>&, std::span<std::byte>) { return left_out({}); }

namespace {

constexpr std::uint32_t polynomial = 0xedb88320;  // bit-reversed

/// tables[k][b]: the CRC of the byte b followed by k zeros.
constexpr auto tables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> made{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? polynomial : 0);
    made[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) made[k][b] = made[k - 1][b] >> 8 ^ made[0][made[k - 1][b] & 0xff];
  }
  return made;
}();

/// Returns the product of two polynomials modulo the CRC's. Bit 31 is the constant term.
std::uint32_t product(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t sum = 0;
  for (std::uint32_t bit = 0x80000000U; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) sum ^= b;
    b = b >> 1 ^ ((b & 1) != 0 ? polynomial : 0);
  }
  return sum;
}

}  // namespace

std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size) noexcept {
  const auto* at = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; size >= 8; size -= 8, at += 8) {  // eight bytes at a time: their tables are looked up independently
    const std::uint32_t low = crc ^ (at[0] | at[1] << 8 | at[2] << 16 | std::uint32_t{at[3]} << 24);
    crc = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff] ^ tables[5][low >> 16 & 0xff] ^ tables[4][low >> 24] ^
          tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^ tables[0][at[7]];
  }
  for (; size != 0; --size) crc = crc >> 8 ^ tables[0][(crc ^ *at++) & 0xff];
  return ~crc;
}

std::uint32_t crc32_joined(std::uint32_t a, std::uint32_t b, std::uint64_t length_of_b) noexcept {
  // The CRC is linear: a is advanced over zeros in place of b, which multiplies it by x^(8 * length).
  std::uint32_t power = 0x00800000;  // x^8
  for (; length_of_b != 0; length_of_b >>= 1) {
    if ((length_of_b & 1) != 0) a = product(a, power);
    power = product(power, power);
  }
  return a ^ b;
}

#endif

}  // namespace stele::inline v0::detail::gzip
