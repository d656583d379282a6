#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "leaves/needs.hpp"
#include "leaves/provider.hpp"
#include "leaves/region.hpp"
#include "passes/composites/composite.hpp"
#include "snapshot/converting.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/undecoded.hpp"
#include "stele/bytes.hpp"
#include "stele/detail/codes.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::composites {
namespace {

constexpr std::size_t word_bytes = 4, word_bits = 32;
/// Decodes blocks of rows. Takes the memory of one block.
class Decoder {
 public:
  Decoder(const Composite& composite, ReadContext& context) : c_(composite), context_(context) {}

  /// Reads the codes and the numbers of rows.
  Status load(std::uint64_t first, std::uint64_t count) {
    if (c_.group_of != no_index && group_of_.empty()) STELE_TRY(load_groups());
    first_ = first;
    STELE_TRY(load_codes(first, count));
    first_grid_ = grid_row(first);
    const std::uint64_t last_grid = grid_row(first + count - 1) + 1;
    STELE_TRY(load_grid(c_.scales, first_grid_, last_grid, scales_));
    STELE_TRY(load_scales());
    if (c_.zeros.exists()) STELE_TRY(load_grid(c_.zeros, first_grid_, last_grid, zeros_));
    if (c_.biases.exists()) STELE_TRY(load_grid(c_.biases, first_grid_, last_grid, biases_));
    if (c_.factors != no_index && factors_.empty()) {
      Grid line;
      line.leaf = c_.factors;
      line.rows = 1;
      line.columns = c_.columns;
      STELE_TRY(load_grid(line, 0, 1, factors_));
    }
    return {};
  }

  /// Decodes columns [begin, end) of a loaded row.
  void decode(std::uint64_t row, std::uint64_t begin, std::uint64_t end, float* out) const {
    const std::uint8_t* const codes = codes_.data() + (row - first_) * c_.columns;
    const std::size_t line = static_cast<std::size_t>((grid_row(row) - first_grid_) * c_.scales.columns);
    const auto scale_of = [&](std::size_t group) {
      CodeScale scale{scales_[line + group]};
      if (!zeros_.empty()) scale.zero = zeros_[line + group];
      if (!biases_.empty()) scale.bias = biases_[line + group];
      scale.factor = c_.factor;
      return scale;
    };
    while (begin < end) {
      std::uint64_t run = 1;
      std::size_t group = 0;
      if (group_of_.empty()) {
        group = static_cast<std::size_t>(begin / c_.group);
        run = std::min(end, (group + 1) * c_.group) - begin;
      } else {
        group = group_of_[static_cast<std::size_t>(begin)];
        while (begin + run < end && group_of_[static_cast<std::size_t>(begin + run)] == group) ++run;
      }
      decode_codes(codes + begin, c_.table->data(), scale_of(group), out, static_cast<std::size_t>(run));
      for (std::size_t i = 0; i < run && !factors_.empty(); ++i)
        out[i] *= factors_[static_cast<std::size_t>(begin) + i];
      out += run;
      begin += run;
    }
  }

 private:
  std::uint64_t grid_row(std::uint64_t row) const {
    const std::uint64_t each = (c_.stack_rows + c_.row_group - 1) / c_.row_group;
    return row / c_.stack_rows * each + row % c_.stack_rows / c_.row_group;
  }

  /// Reads bytes of a part; the last row of a matrix may be incomplete.
  Status read(std::uint32_t leaf, std::uint64_t offset, std::uint64_t size, Bytes& out) {
    const LeafView part = c_.part(leaf);
    const auto n = static_cast<std::size_t>(std::min(size, part.byte_size() - offset));
    if (out.size() < size) out = Bytes(static_cast<std::size_t>(size));
    STELE_TRY(with_path(read_bytes(part.provider(), part.byte_size(), offset, out.span().first(n), context_), part));
    swap_big_endian(out.span().first(n), element_size(part.dtype()));
    return {};
  }
  /// Reads columns [begin, end) of a part with `rows` rows and `columns` columns.
  Status read_columns(std::uint32_t leaf, std::uint64_t rows, std::uint64_t columns, std::uint64_t begin,
                      std::uint64_t end, Bytes& out) {
    const LeafView part = c_.part(leaf);
    const std::size_t element = element_size(part.dtype());
    const auto size = static_cast<std::size_t>(rows * (end - begin) * element);
    if (out.size() < size) out = Bytes(size);
    const std::array<Extent, 2> shape = {rows, columns};
    const RegionLeaf region(part.provider(), shape, element, {{0, begin}, {rows, end - begin}});
    STELE_TRY(with_path(read_bytes(region.provider(), size, 0, out.span().first(size), context_), part));
    swap_big_endian(out.span().first(size), element);
    return {};
  }
  Status load_groups() {
    const LeafView part = c_.part(c_.group_of);
    group_of_.resize(static_cast<std::size_t>(c_.columns));
    STELE_TRY(read(c_.group_of, 0, part.byte_size(), bytes_));
    const auto stored = [&](std::size_t i) { return load_le<std::uint32_t>(bytes_.data() + i * word_bytes); };
    bool in_order = false;
    for (std::size_t i = 0; i < group_of_.size(); ++i) {
      in_order = in_order || (c_.groups_may_be_unset && stored(i) == UINT32_MAX);
    }
    for (std::size_t i = 0; i < group_of_.size(); ++i) {
      const std::uint32_t group = in_order ? static_cast<std::uint32_t>(i / c_.group) : stored(i);
      if (group >= c_.scales.columns) {
        return Error(Errc::out_of_range, "the group of a column does not exist")
            .path(part.path())
            .expected("less than " + std::to_string(c_.scales.columns))
            .found(std::to_string(static_cast<std::int32_t>(group)));
      }
      group_of_[i] = group;
    }
    return {};
  }

  Status load_codes(std::uint64_t first, std::uint64_t count) {
    const auto columns = static_cast<std::size_t>(c_.columns), rows = static_cast<std::size_t>(count);
    if (codes_.size() < rows * columns) codes_.resize(rows * columns);
    switch (c_.packing) {
      case Packing::elements:
        STELE_TRY(read(c_.codes, first * columns, count * columns, bytes_));
        std::memcpy(codes_.data(), bytes_.data(), rows * columns);
        return {};
      case Packing::low_first:
      case Packing::high_first: {
        const std::size_t line = (columns + 1) / 2;
        STELE_TRY(read(c_.codes, first * line, count * line, bytes_));
        for (std::size_t r = 0; r < rows; ++r) {
          unpack_halves(bytes_.data() + r * line, c_.packing == Packing::low_first, codes_.data() + r * columns,
                        columns);
        }
        return {};
      }
      case Packing::row_words:
      case Packing::row_bytes: {
        const std::size_t line = c_.packing == Packing::row_bytes
                                     ? (columns * c_.bits + 7) / 8
                                     : static_cast<std::size_t>(code_words(columns, c_.bits, c_.layout)) * word_bytes;
        STELE_TRY(read(c_.codes, first * line, count * line, bytes_));
        for (std::size_t r = 0; r < rows; ++r) {
          unpack_bits(bytes_.data() + r * line, c_.bits, c_.layout, codes_.data() + r * columns, columns);
        }
        return {};
      }
      case Packing::column_words: {
        const std::uint64_t lines = code_words(c_.columns, c_.bits, c_.layout);
        STELE_TRY(read_columns(c_.codes, lines, c_.rows, first, first + count, bytes_));
        unpack_column_words(bytes_.data(), static_cast<std::size_t>(lines), rows, columns, codes_.data());
        return {};
      }
      case Packing::interleaved: {
        const std::uint64_t begin = first / 8, end = (first + count + 7) / 8;
        STELE_TRY(read_columns(c_.codes, c_.columns, c_.rows / 8, begin, end, bytes_));
        const auto words = static_cast<std::size_t>(end - begin);
        words_.resize(columns * words * word_bytes);
        transpose_words(bytes_.data(), columns, words, words_.data());
        for (std::size_t w = 0; w < words; ++w) {
          for (unsigned nibble = 0; nibble < 8; ++nibble) {
            const std::uint64_t row = (begin + w) * 8 + interleaved_columns[nibble];
            if (row < first || row >= first + count) continue;
            unpack_field(words_.data() + w * columns * word_bytes, 4 * nibble, codes_.data() + (row - first) * columns,
                         columns);
          }
        }
        return {};
      }
      case Packing::row_pairs:
      case Packing::row_blocks:
        for (std::size_t r = 0; r < rows; ++r) STELE_TRY(load_shared_row(first + r, codes_.data() + r * columns));
        return {};
    }
    return {};
  }

  /// Unpacks a row whose words have the codes of other rows, too.
  Status load_shared_row(std::uint64_t row, std::uint8_t* codes) {
    const LeafView part = c_.part(c_.codes);
    const bool pairs = c_.packing == Packing::row_pairs;
    // HQQ may store words as floats of another size.
    const std::uint64_t lines = pairs ? c_.rows / 2 : part.shape()[0];
    const std::uint64_t bytes = part.byte_size() / lines, element = bytes / c_.columns;
    const std::uint64_t in_word = element == 1 ? 8 / c_.bits : word_bits / c_.bits;  // 10 of 3 bits: 2 bits are spare
    const std::uint64_t field = pairs ? row % 2 : in_word - 1 - row / lines;
    STELE_TRY(read(c_.codes, (pairs ? row / 2 : row % lines) * bytes, bytes, bytes_));
    const auto shift = static_cast<unsigned>(field * c_.bits), mask = (1U << c_.bits) - 1U;
    for (std::size_t i = 0; i < static_cast<std::size_t>(c_.columns); ++i) {
      const std::uint32_t word = element == 1 ? std::to_integer<std::uint32_t>(bytes_.data()[i])
                                              : load_le<std::uint32_t>(bytes_.data() + i * word_bytes);
      codes[i] = static_cast<std::uint8_t>(word >> shift & mask);
    }
    return {};
  }

  /// Unpacks strings of bits that run down `rows` columns of a matrix of words with `lines` lines.
  void unpack_column_words(const std::byte* words, std::size_t lines, std::size_t rows, std::size_t columns,
                           std::uint8_t* codes) {
    words_.resize(rows * lines * word_bytes);
    transpose_words(words, lines, rows, words_.data());  // each string of bits in one piece
    for (std::size_t r = 0; r < rows; ++r) {
      unpack_bits(words_.data() + r * lines * word_bytes, c_.bits, c_.layout, codes + r * columns, columns);
    }
  }
  static void unpack_interleaved(const std::byte* words, std::size_t count, std::uint8_t* codes) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto word = load_le<std::uint32_t>(words + i * word_bytes);
      for (unsigned j = 0; j < 8; ++j)
        codes[i * 8 + interleaved_columns[j]] = static_cast<std::uint8_t>(word >> 4 * j & 15U);
    }
  }

  /// Reads lines [begin, end) of a grid as floats, line by line.
  Status load_grid(const Grid& grid, std::uint64_t begin, std::uint64_t end, std::vector<float>& out) {
    const auto rows = static_cast<std::size_t>(end - begin), columns = static_cast<std::size_t>(grid.columns);
    out.resize(rows * columns);
    if (grid.bits != 0) return load_packed_grid(grid, begin, end, out);
    const LeafView part = c_.part(grid.leaf);
    const std::size_t element = element_size(part.dtype());
    if (grid.swizzled) {
      STELE_TRY(read_tiles(grid, begin, end));
    } else if (grid.transposed) {
      STELE_TRY(read_columns(grid.leaf, grid.columns, grid.rows, begin, end, bytes_));
    } else {
      STELE_TRY(read(grid.leaf, begin * columns * element, rows * columns * element, bytes_));
    }
    swap_big_endian(bytes_.span().first(rows * columns * element), element);  // and back
    numbers_.resize(rows * columns);
    const DType dtype = grid.dtype != DType::none ? grid.dtype : part.dtype();
    auto* const to = reinterpret_cast<std::byte*>(numbers_.data());
    const ConvertOutcome outcome =
        convert(dtype, bytes_.data(), DType::f32, to, numbers_.size(), {.allow_kind_change = true});
    if (outcome.status != ConvertStatus::ok) {
      return convert_error(outcome, dtype, DType::f32, begin * columns).path(part.path());
    }
    if (!grid.transposed) return std::swap(out, numbers_), Status();
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c) out[r * columns + c] = numbers_[c * rows + r];
    }
    return {};
  }
  /// Reads lines [begin, end) of a grid of bytes in tiles. A tile has 32 lines of 16 bytes: line r has the bytes of
  /// rows r, r + 32, r + 64 and r + 96.
  Status read_tiles(const Grid& grid, std::uint64_t begin, std::uint64_t end) {
    constexpr std::uint64_t tile_rows = 128, tile_columns = 4, tile = tile_rows * tile_columns;
    const std::uint64_t across = (grid.columns + tile_columns - 1) / tile_columns * tile;  // bytes of a row of tiles
    const std::uint64_t first = begin / tile_rows, last = (end + tile_rows - 1) / tile_rows;
    Bytes tiles;
    STELE_TRY(read(grid.leaf, first * across, (last - first) * across, tiles));
    const auto size = static_cast<std::size_t>((end - begin) * grid.columns);
    if (bytes_.size() < size) bytes_ = Bytes(size);
    std::byte* to = bytes_.data();
    for (std::uint64_t r = begin; r < end; ++r) {
      const std::uint64_t row = r % tile_rows, line = (r / tile_rows - first) * across + row % 32 * 16 + row / 32 * 4;
      for (std::uint64_t c = 0; c < grid.columns; ++c) {
        *to++ = tiles.data()[line + c / tile_columns * tile + c % tile_columns];
      }
    }
    return {};
  }
  Status load_packed_grid(const Grid& grid, std::uint64_t begin, std::uint64_t end, std::vector<float>& out) {
    const auto rows = static_cast<std::size_t>(end - begin), columns = static_cast<std::size_t>(grid.columns);
    // A padded word has 32 / bits codes; `bits` words without padding have 32 codes.
    const bool padded = grid.layout == CodeLayout::padded;
    const std::uint64_t unit = padded ? word_bits / grid.bits : word_bits, unit_words = padded ? 1 : grid.bits;
    const std::uint64_t all_words = code_words(grid.rows, grid.bits, grid.layout);
    const std::uint64_t first_code = begin / unit * unit, first_word = begin / unit * unit_words;
    const std::uint64_t end_word = std::min(all_words, (end + unit - 1) / unit * unit_words);
    const auto words = static_cast<std::size_t>(end_word - first_word);
    const bool along = grid.packing == Packing::column_words;  // a string of bits runs down a column
    if (along) {
      STELE_TRY(read(grid.leaf, first_word * columns * word_bytes, words * columns * word_bytes, bytes_));
    } else {
      STELE_TRY(read_columns(grid.leaf, grid.columns, all_words, first_word, end_word, bytes_));
    }
    const auto skipped = static_cast<std::size_t>(begin - first_code), count = skipped + rows;
    std::vector<std::uint8_t> codes(std::max(count, words * 8));
    Bytes line(words * word_bytes);
    const std::uint32_t ones = grid.less_one ? word_of_ones(grid.bits) : 0;
    const unsigned plus = grid.less_one && ones == 0 ? 1 : 0, mask = (1U << grid.bits) - 1U;
    for (std::size_t c = 0; c < columns; ++c) {
      for (std::size_t w = 0; w < words; ++w) {
        const std::size_t at = along ? w * columns + c : c * words + w;
        store_le(line.data() + w * word_bytes, load_le<std::uint32_t>(bytes_.data() + at * word_bytes) + ones);
      }
      if (grid.packing == Packing::interleaved) {
        unpack_interleaved(line.data(), words, codes.data());
      } else {
        unpack_bits(line.data(), grid.bits, grid.layout, codes.data(), count);
      }
      for (std::size_t r = 0; r < rows; ++r) {
        out[r * columns + c] = static_cast<float>((codes[skipped + r] + plus) & mask) + grid.add;
      }
    }
    return {};
  }
  /// Returns a word in which each code is 1; 0 if codes cross words.
  static std::uint32_t word_of_ones(unsigned bits) {
    std::uint32_t word = 0;
    for (unsigned at = 0; word_bits % bits == 0 && at < word_bits; at += bits) word |= std::uint32_t{1} << at;
    return word;
  }

  /// Applies the scales of the scales, and the divisor.
  Status load_scales() {
    if (c_.nested.exists()) {
      const std::uint64_t begin = first_grid_ / c_.nested_group;
      const std::uint64_t end = (first_grid_ + scales_.size() - 1) / c_.nested_group + 1;
      std::vector<float> nested;
      STELE_TRY(load_grid(c_.nested, begin, end, nested));
      for (std::size_t i = 0; i < scales_.size(); ++i) {
        const float absmax = (*c_.scale_table)[static_cast<std::size_t>(scales_[i])];
        scales_[i] =
            absmax * nested[static_cast<std::size_t>((first_grid_ + i) / c_.nested_group - begin)] + c_.scale_offset;
      }
    }
    if (c_.scale_factor != 1) {
      for (float& scale : scales_) scale *= c_.scale_factor;
    }
    if (c_.divisor != 1) {
      for (float& scale : scales_) scale /= c_.divisor;
    }
    return {};
  }

  const Composite& c_;
  ReadContext& context_;
  std::uint64_t first_ = 0, first_grid_ = 0;
  std::vector<std::uint8_t> codes_;
  std::vector<std::byte> words_;
  std::vector<float> scales_, zeros_, biases_, factors_, numbers_;
  std::vector<std::uint32_t> group_of_;
  Bytes bytes_;
};

/// Passes the elements [first, end) of the matrix that the parts store to `put(floats)`, at most 256 KiB at a time.
template <class Put>
Status decode_range(const Composite& c, std::uint64_t first, std::uint64_t end, ReadContext& context, const Put& put) {
  Decoder decoder(c, context);
  ReadContext::Piece piece(context);
  auto* const floats = reinterpret_cast<float*>(piece.data());
  constexpr std::size_t capacity = ReadContext::piece_size / sizeof(float);
  std::size_t filled = 0;
  const std::uint64_t at_once = rows_at_once(c);
  for (std::uint64_t row = first / c.columns, loaded = row; first < end; ++row) {
    if (row == loaded) {
      const std::uint64_t count = std::min(at_once, (end + c.columns - 1) / c.columns - row);
      STELE_TRY(decoder.load(row, count));
      loaded = row + count;
    }
    for (const std::uint64_t row_end = std::min(end, (row + 1) * c.columns); first < row_end;) {
      const std::uint64_t n = std::min<std::uint64_t>(row_end - first, capacity - filled);
      const std::uint64_t column = first - row * c.columns;
      decoder.decode(row, column, column + n, floats + filled);
      filled += static_cast<std::size_t>(n);
      first += n;
      if (filled != capacity && first != end) continue;
      STELE_TRY(put(std::span<const std::byte>(piece.data(), filled * sizeof(float))));
      filled = 0;
    }
  }
  return {};
}

/// Passes the elements [first, end) of a weight whose parts store its transpose: bands of its rows, each gathered from
/// all of the matrix.
template <class Put>
Status decode_transposed(const Composite& c, std::uint64_t first, std::uint64_t end, ReadContext& context,
                         const Put& put) {
  constexpr std::uint64_t band_elements = std::uint64_t{2} << 20;
  constexpr std::size_t capacity = ReadContext::piece_size / sizeof(float), unit = 64 / sizeof(float);
  const std::uint64_t inner_rows = c.shape[1], inner_columns = c.shape[0];
  const std::uint64_t band = std::max<std::uint64_t>(1, band_elements / inner_rows);
  std::vector<float> numbers;
  std::size_t kept = 0;  // floats kept from the previous band, because pieces are whole units
  while (first < end) {
    const std::uint64_t begin = first / inner_rows;
    const std::uint64_t stop = std::min({inner_columns, begin + band, (end + inner_rows - 1) / inner_rows});
    numbers.resize(kept + static_cast<std::size_t>((stop - begin) * inner_rows));
    std::uint64_t row = 0, column = 0;
    STELE_TRY(decode_range(c, 0, c.size(), context, [&](std::span<const std::byte> bytes) -> Status {
      for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
        if (column >= begin && column < stop) {
          std::memcpy(&numbers[kept + static_cast<std::size_t>((column - begin) * inner_rows + row)], bytes.data() + at,
                      sizeof(float));
        }
        if (++column == inner_columns) column = 0, ++row;
      }
      return {};
    }));
    const auto skipped = static_cast<std::size_t>(first - begin * inner_rows);  // elements of the first band
    const std::uint64_t next = std::min(end, stop * inner_rows);
    auto rest = std::span(numbers).subspan(skipped, kept + static_cast<std::size_t>(next - first));
    first = next;
    while (rest.size() >= unit || (first == end && !rest.empty())) {
      std::size_t n = std::min(rest.size(), capacity);
      if (first != end) n -= n % unit;
      STELE_TRY(put(std::as_bytes(rest.first(n))));
      rest = rest.subspan(n);
    }
    kept = rest.size();
    std::copy(rest.begin(), rest.end(), numbers.begin());
  }
  return {};
}

/// Passes the elements [first, end) of a weight to `put(floats)`, at most 256 KiB at a time.
template <class Put>
Status decode_elements(const Composite& c, std::uint64_t first, std::uint64_t end, ReadContext& context,
                       const Put& put) {
  return c.transposed ? decode_transposed(c, first, end, context, put) : decode_range(c, first, end, context, put);
}

Status composite_read(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out,
                      ReadContext& context) {
  const auto& c = *static_cast<const Composite*>(at);
  std::byte* to = out.data();
  return decode_elements(c, offset / sizeof(float), (offset + out.size()) / sizeof(float), context,
                         [&](std::span<const std::byte> bytes) -> Status {
                           std::memcpy(to, bytes.data(), bytes.size());
                           to += bytes.size();
                           return {};
                         });
}

Status composite_stream(const void* at, std::uint64_t, std::uint64_t, PieceSink& sink, ReadContext& context) {
  const auto& c = *static_cast<const Composite*>(at);
  struct Discard final : PieceSink {
    Status piece(std::span<const std::byte>) override { return {}; }
  };
  for (const Part& part : c.parts) {  // decoding reads parts of them, without checks
    const LeafView leaf = c.part(part.leaf);
    const auto location = leaf.location();
    Discard discard;
    if (location ? location->hashed : leaf.view().empty()) STELE_TRY(with_path(leaf.stream(discard, context), leaf));
  }
  return decode_elements(c, 0, c.size(), context, [&](std::span<const std::byte> bytes) { return sink.piece(bytes); });
}

void composite_needs(const void* at, std::uint64_t, Needs& needs) {
  const auto& c = *static_cast<const Composite*>(at);
  for (const Part& part : c.parts) needs.add(c.part(part.leaf));
}

constexpr LeafOps composite_ops{.read = composite_read, .stream = composite_stream, .needs = composite_needs};
constexpr LeafOps decoded_ops{.read = composite_read, .stream = composite_stream, .needs = composite_needs};

}  // namespace

std::uint64_t rows_at_once(const Composite& c) noexcept {
  // Codes that are stored along columns need a pass over their lines for each block of rows.
  const bool columns = c.packing == Packing::column_words || c.packing == Packing::interleaved;
  const std::uint64_t codes = columns ? std::uint64_t{2} << 20 : std::uint64_t{64} << 10;
  const std::uint64_t rows = std::max<std::uint64_t>(1, codes / c.columns);
  return columns ? std::max<std::uint64_t>(32, rows / 32 * 32) : rows;
}

bool has_composites(const Snapshot& snapshot) noexcept {
  const auto& leaves = snapshot.data()->leaves;  // every save asks: no LeafViews
  return std::any_of(leaves.begin(), leaves.end(), [](const LeafData& l) { return l.provider.ops == &composite_ops; });
}

Snapshot decoded(const Snapshot& snapshot, const std::function<bool(const LeafView&)>& which) {
  if (!has_composites(snapshot)) return snapshot;
  auto data = derived_data(snapshot);
  bool transposed = false;
  for (std::size_t i = 0; i < data->leaves.size(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const Composite* const c = composite_of(leaf);
    if (c == nullptr || (which && !which(leaf))) continue;
    data->leaves[i].provider.ops = &decoded_ops;
    transposed = transposed || c->transposed;
  }
  const bool left = std::any_of(data->leaves.begin(), data->leaves.end(),
                                [](const LeafData& l) { return l.provider.ops == &composite_ops; });
  if (!left && !has_undecoded(snapshot)) {  // the entries describe no weight any more
    data->metadata.erase(config_key);
    if (transposed) data->metadata.erase(model_type_key);
  }
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

Provider provider_of(const Composite& composite) noexcept { return {&composite_ops, &composite, 0}; }

const Composite* composite_of(const LeafView& leaf) noexcept {
  return leaf.provider().ops == &composite_ops ? static_cast<const Composite*>(leaf.provider().at) : nullptr;
}

}  // namespace stele::inline v0::detail::composites
