// Recognizes gzip files, and computes the CRC-32 of zip and gzip.
#include "gzip.hpp"

#include <algorithm>
#include <new>

#include <libdeflate.h>
#include <zlib.h>

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

}  // namespace stele::inline v0::detail::gzip
