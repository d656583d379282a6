// Reads the index of a dataset's chunks.
#include "chunk_index.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "b_tree.hpp"

namespace stele::inline v0::detail::hdf5 {
namespace {

Status add_chunk(File& file, ChunkedLeaf& leaf, const Chunk& chunk) {
  STELE_TRY(file.take(3 * sizeof(Chunk)));
  if (chunk.offset > file.size() || chunk.size > file.size() - chunk.offset) {
    return Error(Errc::truncated, "a chunk exceeds the file").offset(chunk.offset);
  }
  leaf.chunks.push_back(chunk);
  return {};
}

/// The chunks of a dataset at its maximum size. An implicit index or a fixed array has a place for each.
struct Grid {
  std::vector<std::uint64_t> chunks;  // along each axis
  std::uint64_t count;
};

Result<Grid> largest_grid(const Space& space, const ChunkedLeaf& leaf, std::uint64_t offset) {
  Grid grid{leaf.grid, 1};
  for (std::size_t d = 0; d < grid.chunks.size(); ++d) {
    const std::uint64_t most = space.maximum.empty() ? leaf.shape[d] : space.maximum[d];
    if (most == undefined || most < leaf.shape[d]) {
      return bad("the maximum size of a dataset does not fit its index of chunks", offset);
    }
    grid.chunks[d] = most / leaf.extent[d] + (most % leaf.extent[d] != 0 ? 1 : 0);
    const auto count = checked_mul(grid.count, grid.chunks[d]);
    if (!count) return bad("a dataset may grow to too many chunks", offset);
    grid.count = *count;
  }
  return grid;
}

/// Returns the place of a chunk of the dataset in the largest grid.
std::uint64_t place_of(std::uint64_t number, const ChunkedLeaf& leaf, const Grid& grid) {
  std::uint64_t place = 0, stride = 1;
  for (std::size_t d = leaf.grid.size(); d-- > 0; number /= leaf.grid[d], stride *= grid.chunks[d]) {
    place += number % leaf.grid[d] * stride;
  }
  return place;
}

Status implicit_chunks(File& file, std::uint64_t address, std::uint64_t count, const Grid& grid, ChunkedLeaf& leaf) {
  if (!leaf.filters.empty()) return bad("a dataset with filters has no index of its chunks", address);
  if (grid.count > file.size() / leaf.chunk_bytes || address > file.size()) {
    return Error(Errc::truncated, "a dataset exceeds the file").offset(address);
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = address + place_of(i, leaf, grid) * leaf.chunk_bytes;
    STELE_TRY(add_chunk(file, leaf, {i, at, static_cast<std::uint32_t>(leaf.chunk_bytes), 0}));
  }
  return {};
}

Status chunk_tree(File& file, std::uint64_t address, ChunkedLeaf& leaf) {
  const std::size_t rank = leaf.shape.size();
  STELE_TRY(each_leaf(file, address, 1, 8 * (rank + 2), [&](std::uint64_t child, View key) -> Status {
    In in(key);
    Chunk chunk;
    chunk.size = in.u32();
    chunk.mask = in.u32();
    chunk.offset = child;
    for (std::size_t d = 0; d < rank; ++d) {
      const std::uint64_t start = in.u64();
      if (start % leaf.extent[d] != 0 || start >= leaf.shape[d]) {
        // A shrunk dataset keeps the chunk that its end cuts, but no chunk after it.
        return bad("a chunk is outside its dataset", child);
      }
      chunk.number = chunk.number * leaf.grid[d] + start / leaf.extent[d];
    }
    return add_chunk(file, leaf, chunk);
  }));
  const auto before = [](const Chunk& a, const Chunk& b) { return a.number < b.number; };
  if (!std::is_sorted(leaf.chunks.begin(), leaf.chunks.end(), before)) {
    std::sort(leaf.chunks.begin(), leaf.chunks.end(), before);
  }
  const auto same = [](const Chunk& a, const Chunk& b) { return a.number == b.number; };
  const auto twice = std::adjacent_find(leaf.chunks.begin(), leaf.chunks.end(), same);
  return twice == leaf.chunks.end() ? Status() : bad("two chunks have the same place", twice->offset);
}

Result<std::string_view> fixed_array(File& file, std::uint64_t address, std::uint64_t count, const Grid& grid,
                                     ChunkedLeaf& leaf) {
  Bytes buffer;
  STELE_TRY_ASSIGN(In head, file.structure(address, 28, "FAHD", buffer));
  head.u8();
  const unsigned client = head.u8(), entry_size = head.u8(), page_bits = head.u8();
  const std::uint64_t entries = head.u64(), block = head.u64();
  if (client > 1 || entry_size < 8 + 5 * client || entry_size > 20 || entries != grid.count ||
      (client == 1) == leaf.filters.empty()) {
    return bad("an array of chunks does not fit its dataset", address);
  }
  if (block == undefined) return std::string_view();
  if (page_bits >= 64 || entries > std::uint64_t{1} << page_bits) {
    return std::string_view("a dataset with a paged index of chunks");
  }
  STELE_TRY(file.structure(block, 14, "FADB", buffer));
  const auto size = checked_mul(entries, entry_size);
  if (!size) return bad("an array of chunks is too long", address);
  Bytes content;
  STELE_TRY_ASSIGN(const View bytes, file.read(block + 14, *size, content));
  for (std::uint64_t i = 0; i < count; ++i) {
    In in(bytes.subspan(static_cast<std::size_t>(place_of(i, leaf, grid) * entry_size), entry_size));
    Chunk chunk{i, in.u64(), static_cast<std::uint32_t>(leaf.chunk_bytes), 0};
    if (client == 1) {
      const std::uint64_t stored = in.number(std::min<std::size_t>(entry_size - 12, 8));
      chunk.mask = in.u32();
      if (stored > UINT32_MAX) return bad("a chunk is too large", block);
      chunk.size = static_cast<std::uint32_t>(stored);
    }
    if (chunk.offset != undefined) STELE_TRY(add_chunk(file, leaf, chunk));
  }
  return std::string_view();
}

}  // namespace

Result<std::string_view> read_chunk_index(File& file, const Layout& layout, std::uint64_t offset, const Space& space,
                                          ChunkedLeaf& leaf) {
  std::uint64_t count = 1;
  for (const std::uint64_t n : leaf.grid) count *= n;  // at most the number of elements
  if (leaf.chunk_bytes > UINT32_MAX) return bad("a chunk is too large", offset).expected("less than 2^32 bytes");
  const auto whole = static_cast<std::uint32_t>(leaf.chunk_bytes);
  switch (layout.index) {
    case Layout::Index::single:
      if (count != 1) return bad("a dataset has one chunk, but more elements", offset);
      if (!leaf.filters.empty() && layout.size > UINT32_MAX) return bad("a chunk is too large", offset);
      STELE_TRY(add_chunk(
          file, leaf,
          {0, layout.address, leaf.filtered(0) ? static_cast<std::uint32_t>(layout.size) : whole, layout.mask}));
      break;
    case Layout::Index::implicit:
    case Layout::Index::fixed: {
      STELE_TRY_ASSIGN(const Grid grid, largest_grid(space, leaf, offset));
      if (layout.index == Layout::Index::fixed) return fixed_array(file, layout.address, count, grid, leaf);
      STELE_TRY(implicit_chunks(file, layout.address, count, grid, leaf));
      break;
    }
    case Layout::Index::tree:
      STELE_TRY(chunk_tree(file, layout.address, leaf));
      break;
  }
  return std::string_view();
}

}  // namespace stele::inline v0::detail::hdf5
