// Datasets in chunks, with filters, and datasets without stored bytes.
#include "chunks.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/byte_planes.hpp"
#include "base/limits.hpp"
#include "base/threads.hpp"
#include "encodings/gzip/gzip.hpp"

namespace stele::inline v0::detail::hdf5 {
namespace {

constexpr std::uint16_t shuffle_filter = 2, fletcher_filter = 3, lzf_filter = 32000;  // LZF is h5py's own
constexpr std::size_t fletcher_size = 4;

std::uint32_t fletcher32(std::span<const std::byte> data) noexcept {
  std::uint32_t low = 0, high = 0;
  const auto fold = [](std::uint32_t sum) { return (sum & 0xffff) + (sum >> 16); };
  for (std::size_t at = 0; at < data.size();) {
    // 360 words are the most whose sums fit 32 bits. A last odd byte is the upper half of a word.
    for (unsigned n = 0; n < 360 && at < data.size(); ++n, at += 2) {
      const auto first = std::to_integer<std::uint32_t>(data[at]);
      const auto second = at + 1 < data.size() ? std::to_integer<std::uint32_t>(data[at + 1]) : 0;
      low += first << 8 | second;
      high += low;
    }
    low = fold(low);
    high = fold(high);
  }
  return fold(high) << 16 | fold(low);
}

/// Decodes LibLZF's format: runs of 1 to 32 bytes, and copies of 3 to 264 of the last 8192 bytes. Returns the size of
/// the decoded bytes. Errors: malformed.
Result<std::size_t> decode_lzf(std::span<const std::byte> from, std::span<std::byte> to) {
  const auto refuse = [] { return damaged("the data of LZF are damaged"); };
  std::size_t at = 0, size = 0;
  while (at < from.size()) {
    const auto control = std::to_integer<std::size_t>(from[at++]);
    if (control < 32) {
      const std::size_t n = control + 1;
      if (n > from.size() - at || n > to.size() - size) return refuse();
      std::memcpy(to.data() + size, from.data() + at, n);
      at += n;
      size += n;
      continue;
    }
    std::size_t n = (control >> 5) + 2;
    if (n == 9 && at < from.size()) n += std::to_integer<std::size_t>(from[at++]);
    if (at == from.size()) return refuse();
    const std::size_t distance = ((control & 31U) << 8 | std::to_integer<std::size_t>(from[at++])) + 1;
    if (distance > size || n > to.size() - size) return refuse();
    for (const std::size_t end = size + n; size < end; ++size) to[size] = to[size - distance];  // may overlap
  }
  return size;
}

}  // namespace

bool has_filter(std::uint16_t id) noexcept {
  return max_ratio(id) > 1 || id == shuffle_filter || id == fletcher_filter;
}

std::uint64_t max_ratio(std::uint16_t filter) noexcept {
  constexpr std::uint64_t max_lzf_ratio = 88;  // 264 bytes of 3
  return filter == deflate_filter ? max_deflate_ratio : filter == lzf_filter ? max_lzf_ratio : 1;
}

bool ChunkedLeaf::filtered(std::uint64_t number) const noexcept {
  if (!plain_edges || filters.empty()) return !filters.empty();
  for (std::size_t d = shape.size(); d-- > 0; number /= grid[d]) {
    if (number % grid[d] == grid[d] - 1 && shape[d] % extent[d] != 0) return false;
  }
  return true;
}

Result<Bytes> ChunkedLeaf::decode(const Chunk& chunk) const {
  const auto bad = [&](Errc code, const char* what) {
    return Error(code, what).file(source->name()).offset(chunk.offset);
  };
  Bytes bytes(chunk.size);
  STELE_TRY(source->read_at(chunk.offset, bytes.span()));
  std::uint64_t checks = 0;  // bytes of checksums inside compressed data
  for (const Filter& filter : filters) checks += filter.id == fletcher_filter ? fletcher_size : 0;
  for (std::size_t i = filtered(chunk.number) ? filters.size() : 0; i-- > 0;) {
    if (i < 32 && (chunk.mask >> i & 1U) != 0) continue;
    if (filters[i].id == fletcher_filter) {
      if (bytes.size() < fletcher_size) return bad(Errc::malformed, "a chunk is shorter than its checksum");
      const std::size_t size = bytes.size() - fletcher_size;
      const auto stored = load_le<std::uint32_t>(bytes.data() + size);
      const std::uint32_t found = fletcher32(bytes.span().first(size));
      // Versions before 1.6.3 swapped the bytes of each half on little-endian machines.
      const std::uint32_t old = (found & 0x00ff00ff) << 8 | (found >> 8 & 0x00ff00ff);
      if (stored != found && stored != old) return bad(Errc::checksum, "the checksum of a chunk does not match");
      bytes.truncate(size);
    } else if (filters[i].id == deflate_filter || filters[i].id == lzf_filter) {
      Bytes plain(static_cast<std::size_t>(chunk_bytes + checks));
      std::span<const std::byte> stored = bytes.span();
      const auto size =
          filters[i].id == lzf_filter ? decode_lzf(stored, plain.span()) : gzip::inflate_next(stored, plain.span());
      if (!size) return bad(Errc::malformed, "the compressed data of a chunk are damaged");
      plain.truncate(*size);
      bytes = std::move(plain);
    } else if (filters[i].value > 1) {
      Bytes plain(bytes.size());
      join_byte_planes(bytes.span(), plain.data(), filters[i].value);
      bytes = std::move(plain);
    }
  }
  if (bytes.size() != chunk_bytes) {
    return bad(Errc::malformed, "a chunk has another size than its elements")
        .expected(std::to_string(chunk_bytes) + " bytes")
        .found(std::to_string(bytes.size()));
  }
  return bytes;
}

/// Copies the elements of a chunk that are inside the dataset to its band.
void ChunkedLeaf::scatter(std::uint64_t number, std::span<const std::byte> from, std::span<std::byte> to) const {
  const std::size_t rank = shape.size();
  std::uint64_t first[max_axes], count[max_axes], at[max_axes] = {};
  for (std::size_t d = rank; d-- > 0; number /= grid[d]) {
    first[d] = number % grid[d] * extent[d];
    count[d] = std::min<std::uint64_t>(extent[d], shape[d] - first[d]);
  }
  first[0] = 0;  // the band begins at the chunk
  const auto run = static_cast<std::size_t>(count[rank - 1] * element);
  for (;;) {
    std::uint64_t source_at = 0, target = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      source_at = source_at * extent[d] + at[d];
      target = target * shape[d] + first[d] + at[d];
    }
    std::memcpy(to.data() + target * element, from.data() + source_at * element, run);
    std::size_t d = rank - 1;
    while (d-- > 0) {
      if (++at[d] < count[d]) break;
      at[d] = 0;
    }
    if (d == SIZE_MAX) return;
  }
}

Status ChunkedLeaf::load(std::uint64_t band) const {
  loaded_ = undefined;
  const std::uint64_t rows = std::min<std::uint64_t>(extent[0], shape[0] - band * extent[0]);
  const auto size = static_cast<std::size_t>(rows * (bytes / shape[0]));
  if (band_.size() != size) band_ = Bytes(size);
  std::uint64_t per_band = 1;
  for (std::size_t d = 1; d < grid.size(); ++d) per_band *= grid[d];
  const auto before = [](const Chunk& chunk, std::uint64_t number) { return chunk.number < number; };
  const auto begin = std::lower_bound(chunks.begin(), chunks.end(), band * per_band, before);
  const auto end = std::lower_bound(begin, chunks.end(), (band + 1) * per_band, before);
  if (static_cast<std::uint64_t>(end - begin) != per_band) {
    if (fill.empty()) {
      std::memset(band_.data(), 0, size);
    } else {
      for (std::size_t i = 0; i < size; i += fill.size()) std::memcpy(band_.data() + i, fill.data(), fill.size());
    }
  }
  for (auto chunk = begin; chunk != end; ++chunk) {
    STELE_TRY_ASSIGN(const Bytes plain, decode(*chunk));
    scatter(chunk->number, plain.span(), band_.span());
  }
  loaded_ = band;
  return {};
}

Status ChunkedLeaf::read(const void* at, std::uint64_t /*number*/, std::uint64_t offset, std::span<std::byte> out,
                         ReadContext& /*context*/) {
  const auto& leaf = *static_cast<const ChunkedLeaf*>(at);
  return guarded([&]() -> Status {
    const Lock lock(leaf.mutex_);
    const std::uint64_t band_bytes =
        std::min<std::uint64_t>(leaf.extent[0], leaf.shape[0]) * (leaf.bytes / leaf.shape[0]);
    while (!out.empty()) {
      const std::uint64_t band = offset / band_bytes;
      if (leaf.loaded_ != band) STELE_TRY(leaf.load(band));
      const auto within = static_cast<std::size_t>(offset - band * band_bytes);
      const std::size_t n = std::min(out.size(), leaf.band_.size() - within);
      std::memcpy(out.data(), leaf.band_.data() + within, n);
      offset += n;
      out = out.subspan(n);
    }
    if (offset == leaf.bytes) {  // the end of a pass
      leaf.band_ = Bytes();
      leaf.loaded_ = undefined;
    }
    return {};
  });
}

Provider ChunkedLeaf::provider() const noexcept {
  static constexpr LeafOps ops{.read = &ChunkedLeaf::read, .encoding = "chunks"};
  return {&ops, this};
}

}  // namespace stele::inline v0::detail::hdf5
