// Reads the index of a dataset's chunks.
#include "chunk_index.hpp"

#include <algorithm>
#include <bit>
#include <optional>
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

/// Sorts the chunks by number.
Status sort_chunks(ChunkedLeaf& leaf) {
  const auto before = [](const Chunk& a, const Chunk& b) { return a.number < b.number; };
  if (!std::is_sorted(leaf.chunks.begin(), leaf.chunks.end(), before)) {
    std::sort(leaf.chunks.begin(), leaf.chunks.end(), before);
  }
  const auto same = [](const Chunk& a, const Chunk& b) { return a.number == b.number; };
  const auto twice = std::adjacent_find(leaf.chunks.begin(), leaf.chunks.end(), same);
  return twice == leaf.chunks.end() ? Status() : bad("two chunks have the same place", twice->offset);
}

/// The chunks of a dataset at its maximum size. An implicit index or an array has a place for each of them. In an
/// extensible array, the unlimited axis varies slowest.
struct Grid {
  std::vector<std::uint64_t> chunks;  // along each axis; of the unlimited axis: as many as there are
  std::vector<std::size_t> axes;      // the slowest first
  std::uint64_t count;                // without an unlimited axis
};

Result<Grid> largest_grid(const Space& space, const ChunkedLeaf& leaf, bool extensible, std::uint64_t offset) {
  const auto mismatch = [&] { return bad("the maximum size of a dataset does not fit its index of chunks", offset); };
  Grid grid{leaf.grid, {}, 1};
  for (std::size_t d = 0; d < grid.chunks.size(); ++d) {
    const std::uint64_t most = space.maximum.empty() ? leaf.shape[d] : space.maximum[d];
    if (most == undefined && extensible) {
      if (!grid.axes.empty() && space.maximum[grid.axes[0]] == undefined) return mismatch();
      grid.axes.insert(grid.axes.begin(), d);
      continue;
    }
    if (most == undefined || most < leaf.shape[d]) return mismatch();
    grid.axes.push_back(d);
    grid.chunks[d] = most / leaf.extent[d] + (most % leaf.extent[d] != 0 ? 1 : 0);
    const auto count = checked_mul(grid.count, grid.chunks[d]);
    if (!count) return bad("a dataset may grow to too many chunks", offset);
    grid.count = *count;
  }
  if (extensible && space.maximum.empty()) return mismatch();
  return grid;
}

/// Returns the number of the chunk at a place of the largest grid, or nothing if the dataset does not have the chunk.
std::optional<std::uint64_t> number_at(std::uint64_t place, const ChunkedLeaf& leaf, const Grid& grid) {
  std::uint64_t at[max_axes] = {}, number = 0;
  for (std::size_t i = grid.axes.size(); i-- > 0;) {
    const std::size_t axis = grid.axes[i];
    at[axis] = i == 0 ? place : place % grid.chunks[axis];
    if (at[axis] >= leaf.grid[axis]) return std::nullopt;
    place /= grid.chunks[axis];
  }
  for (std::size_t d = 0; d < grid.axes.size(); ++d) number = number * leaf.grid[d] + at[d];
  return number;
}

Status implicit_chunks(File& file, std::uint64_t address, const Grid& grid, ChunkedLeaf& leaf) {
  if (!leaf.filters.empty()) return bad("a dataset with filters has no index of its chunks", address);
  if (grid.count > file.size() / leaf.chunk_bytes || address > file.size()) {
    return Error(Errc::truncated, "a dataset exceeds the file").offset(address);
  }
  for (std::uint64_t place = 0; place < grid.count; ++place) {
    const auto number = number_at(place, leaf, grid);
    if (!number) continue;
    const std::uint64_t at = address + place * leaf.chunk_bytes;
    STELE_TRY(add_chunk(file, leaf, {*number, at, static_cast<std::uint32_t>(leaf.chunk_bytes), 0}));
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
  return sort_chunks(leaf);
}

/// Takes {u64 address}, or with filters {u64 address, size, u32 mask of filters}. `size_bytes`: 0 without filters.
Result<Chunk> take_chunk(In& in, std::size_t size_bytes, const ChunkedLeaf& leaf, std::uint64_t structure) {
  Chunk chunk{0, in.u64(), static_cast<std::uint32_t>(leaf.chunk_bytes), 0};
  if (size_bytes == 0) return chunk;
  const std::uint64_t stored = in.number(size_bytes);
  chunk.mask = in.u32();
  if (chunk.offset != undefined && stored > UINT32_MAX) return bad("a chunk is too large", structure);
  chunk.size = static_cast<std::uint32_t>(stored);
  return chunk;
}

/// Returns the size of the numbers of bytes of chunks in entries of this size. Errors: malformed.
Result<std::size_t> size_bytes_of(std::size_t entry_size, bool filtered, std::uint64_t structure) {
  if (!filtered && entry_size == 8) return std::size_t{0};
  if (filtered && entry_size > 12 && entry_size <= 20) return entry_size - 12;
  return bad("an index of chunks does not fit its dataset", structure);
}

Status chunk_records(File& file, std::uint64_t address, ChunkedLeaf& leaf) {
  const std::size_t rank = leaf.shape.size();
  const bool filtered = !leaf.filters.empty();
  Bytes buffer;
  STELE_TRY_ASSIGN(In head, file.structure(address, 12, "BTHD", buffer));
  head.take(6);
  const std::size_t record_size = head.u16();
  if (record_size < 8 * rank) return bad("an index of chunks does not fit its dataset", address);
  STELE_TRY_ASSIGN(const std::size_t size_bytes, size_bytes_of(record_size - 8 * rank, filtered, address));
  STELE_TRY(each_record(file, address, filtered ? 11 : 10, record_size, [&](View record) -> Status {
    In in(record);
    STELE_TRY_ASSIGN(Chunk chunk, take_chunk(in, size_bytes, leaf, address));
    for (std::size_t d = 0; d < rank; ++d) {
      const std::uint64_t at = in.u64();
      if (at >= leaf.grid[d]) return bad("a chunk is outside its dataset", chunk.offset);
      chunk.number = chunk.number * leaf.grid[d] + at;
    }
    return add_chunk(file, leaf, chunk);
  }));
  return sort_chunks(leaf);
}

/// Reads fixed and extensible arrays of the places of chunks. Long blocks of entries are divided into pages; a bitmap
/// tells which of them have been written.
class ArrayReader {
 public:
  ArrayReader(File& file, std::uint64_t address, const Grid& grid, ChunkedLeaf& leaf)
      : file_(file), address_(address), grid_(grid), leaf_(leaf) {}

  Status fixed() {
    Bytes buffer;
    STELE_TRY_ASSIGN(In head, file_.structure(address_, 28, "FAHD", buffer));
    STELE_TRY(entry_format(head));
    STELE_TRY(page_size(head));
    const std::uint64_t count = head.u64(), block = head.u64();
    if (count != grid_.count) return bad("an array of chunks does not fit its dataset", address_);
    if (block == undefined) return {};
    STELE_TRY(file_.structure(block, block_head, "FADB", buffer));
    const std::uint64_t first = block + block_head;
    if (count <= page_) return entries(first, 0, count);
    const std::uint64_t bitmap = ((count - 1) / page_ + 8) / 8;
    STELE_TRY_ASSIGN(const View written, file_.read(first, bitmap, buffer));
    return pages(first + bitmap + checksum, 0, count, written, 0);
  }

  Status extensible() {
    Bytes buffer, block;
    STELE_TRY_ASSIGN(In head, file_.structure(address_, 72, "EAHD", buffer));
    STELE_TRY(entry_format(head));
    const unsigned bits = head.u8();
    const std::uint64_t in_index = head.u8(), smallest = head.u8(), pointers = head.u8();
    STELE_TRY(page_size(head));
    head.take(std::uint64_t{4} * 8);
    const std::uint64_t end = head.u64();  // after the last chunk that was written
    head.u64();
    const std::uint64_t index = head.u64();
    constexpr unsigned max_bits = 48;  // HDF5 uses 32
    if (!std::has_single_bit(smallest) || !std::has_single_bit(pointers) || bits > max_bits ||
        bits < static_cast<unsigned>(std::bit_width(smallest)) - 1) {
      return bad("an array of chunks has sizes that do not fit", address_);
    }
    const unsigned groups = bits + 2 - static_cast<unsigned>(std::bit_width(smallest));
    const unsigned direct = 2 * (static_cast<unsigned>(std::bit_width(pointers)) - 1);
    if (index == undefined) return {};
    if (groups < direct) return bad("an array of chunks has sizes that do not fit", address_);
    offset_bytes_ = (bits + 7) / 8;
    STELE_TRY(file_.structure(index, block_head, "EAIB", block));
    STELE_TRY(entries(index + block_head, 0, in_index));
    const std::uint64_t addresses = 2 * (pointers - 1) + groups - direct;
    STELE_TRY_ASSIGN(const View places, file_.read(index + block_head + in_index * entry_size_, 8 * addresses, block));
    In in(places);
    // Groups of blocks double their numbers of entries. The index has the blocks of the first groups.
    std::uint64_t first = in_index;
    for (unsigned g = 0; g < groups && first < end; first += smallest << g, ++g) {
      const std::uint64_t blocks = std::uint64_t{1} << g / 2, count = smallest << (g + 1) / 2;
      if (g >= direct) {
        STELE_TRY(block_group(in.u64(), first, blocks, count));
        continue;
      }
      for (std::uint64_t i = 0; i < blocks; ++i) STELE_TRY(data_block(in.u64(), first + i * count, count, {}, 0));
    }
    return sort_chunks(leaf_);
  }

 private:
  static constexpr std::uint64_t block_head = 14;  // letters, version, client, address of the array
  static constexpr std::uint64_t checksum = 4;

  Status entry_format(In& head) {
    head.u8();
    const unsigned client = head.u8();
    entry_size_ = head.u8();
    if (client > 1 || (client == 1) == leaf_.filters.empty()) {
      return bad("an array of chunks does not fit its dataset", address_);
    }
    STELE_TRY_ASSIGN(size_bytes_, size_bytes_of(entry_size_, client == 1, address_));
    return {};
  }

  Status page_size(In& head) {
    const unsigned bits = head.u8();
    if (bits > 32) return bad("an array of chunks has sizes that do not fit", address_);
    page_ = std::uint64_t{1} << bits;
    return {};
  }

  /// Adds the chunks of entries in one place of the file. `first`: the number of the first entry.
  Status entries(std::uint64_t at, std::uint64_t first, std::uint64_t count) {
    const auto size = checked_mul(count, entry_size_);
    if (!size) return bad("an array of chunks is too long", address_);
    Bytes buffer;
    STELE_TRY_ASSIGN(const View bytes, file_.read(at, *size, buffer));
    In in(bytes);
    for (std::uint64_t i = 0; i < count; ++i) {
      STELE_TRY_ASSIGN(Chunk chunk, take_chunk(in, size_bytes_, leaf_, at));
      const auto number = number_at(first + i, leaf_, grid_);
      if (chunk.offset == undefined || !number) continue;
      chunk.number = *number;
      STELE_TRY(add_chunk(file_, leaf_, chunk));
    }
    return {};
  }

  /// `bit`: of the first page in the bitmap, whose bytes begin with the highest bit.
  Status pages(std::uint64_t at, std::uint64_t first, std::uint64_t count, View written, std::uint64_t bit) {
    for (std::uint64_t done = 0; done < count; done += page_, ++bit, at += page_ * entry_size_ + checksum) {
      const auto byte = std::to_integer<unsigned>(written[static_cast<std::size_t>(bit / 8)]);
      if ((byte >> (7 - bit % 8) & 1U) == 0) continue;
      STELE_TRY(entries(at, first + done, std::min(page_, count - done)));
    }
    return {};
  }

  Status data_block(std::uint64_t at, std::uint64_t first, std::uint64_t count, View written, std::uint64_t bit) {
    if (at == undefined) return {};
    Bytes buffer;
    const std::uint64_t head = block_head + offset_bytes_;
    STELE_TRY(file_.structure(at, head, "EADB", buffer));
    if (count <= page_) return entries(at + head, first, count);
    if (written.empty()) return bad("an array of chunks has sizes that do not fit", address_);
    return pages(at + head + checksum, first, count, written, bit);
  }

  /// Reads a block that has the addresses of data blocks, and the bitmap of their pages.
  Status block_group(std::uint64_t at, std::uint64_t first, std::uint64_t blocks, std::uint64_t count) {
    if (at == undefined) return {};
    Bytes buffer, content;
    const std::uint64_t head = block_head + offset_bytes_, pages = count > page_ ? count / page_ : 0;
    const std::uint64_t bitmap = blocks * ((pages + 7) / 8);
    STELE_TRY(file_.structure(at, head, "EASB", buffer));
    STELE_TRY_ASSIGN(const View bytes, file_.read(at + head, bitmap + 8 * blocks, content));
    In in(bytes);
    const View written = in.take(bitmap);
    for (std::uint64_t i = 0; i < blocks; ++i) {
      STELE_TRY(data_block(in.u64(), first + i * count, count, written, i * pages));
    }
    return {};
  }

  File& file_;
  const std::uint64_t address_;
  const Grid& grid_;
  ChunkedLeaf& leaf_;
  std::size_t entry_size_ = 0, size_bytes_ = 0, offset_bytes_ = 0;
  std::uint64_t page_ = 0;  // entries of a page
};

}  // namespace

Result<std::string_view> read_chunk_index(File& file, const Layout& layout, std::uint64_t offset, const Space& space,
                                          ChunkedLeaf& leaf) {
  if (leaf.chunk_bytes > UINT32_MAX || (layout.index == Layout::Index::single && layout.size > UINT32_MAX)) {
    return std::string_view("a dataset with chunks of 4 GiB or more");
  }
  const auto whole = static_cast<std::uint32_t>(leaf.chunk_bytes);
  using Index = Layout::Index;
  Grid grid{};
  if (layout.index == Index::implicit || layout.index == Index::fixed || layout.index == Index::extensible) {
    STELE_TRY_ASSIGN(grid, largest_grid(space, leaf, layout.index == Index::extensible, offset));
  }
  switch (layout.index) {
    case Index::single:
      for (const std::uint64_t n : leaf.grid) {
        if (n != 1) return bad("a dataset has one chunk, but more elements", offset);
      }
      STELE_TRY(add_chunk(
          file, leaf,
          {0, layout.address, leaf.filtered(0) ? static_cast<std::uint32_t>(layout.size) : whole, layout.mask}));
      break;
    case Index::implicit:
      STELE_TRY(implicit_chunks(file, layout.address, grid, leaf));
      break;
    case Index::fixed:
      STELE_TRY(ArrayReader(file, layout.address, grid, leaf).fixed());
      break;
    case Index::extensible:
      STELE_TRY(ArrayReader(file, layout.address, grid, leaf).extensible());
      break;
    case Index::tree:
      STELE_TRY(chunk_tree(file, layout.address, leaf));
      break;
    case Index::records:
      STELE_TRY(chunk_records(file, layout.address, leaf));
      break;
  }
  return std::string_view();
}

}  // namespace stele::inline v0::detail::hdf5
