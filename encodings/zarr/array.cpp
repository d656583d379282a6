// The elements of zarr arrays as leaves, whose chunks are decoded when they are read.
#include "encodings/zarr/array.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/crc32c.hpp"
#include "base/shortened.hpp"
#include "base/threads.hpp"
#include "leaves/blocks.hpp"
#include "leaves/region.hpp"
#include "leaves/source_range.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::zarr {
namespace {

constexpr std::uint64_t index_bit = std::uint64_t{1} << 63;
/// An absent chunk of a shard has this offset and length.
constexpr std::uint64_t absent = UINT64_MAX;
/// Maximum size of the block that a stream assembles (256 MiB): a row of chunks, so that each chunk is decoded once.
constexpr std::uint64_t max_block_bytes = std::uint64_t{256} << 20;

/// Moves to the next position of a box of positions, the last axis first. Returns false after the last one.
bool advance(std::span<Extent> at, std::span<const Extent> first, std::span<const Extent> last) {
  for (std::size_t d = at.size(); d-- > 0;) {
    if (at[d] < last[d]) return ++at[d], true;
    at[d] = first[d];
  }
  return false;
}

/// Fills `out`, which is not empty, with copies of an element.
void repeat(std::span<const std::byte> element, std::span<std::byte> out) {
  constexpr std::size_t max_piece = std::size_t{16} << 10;  // stays in the first-level cache
  std::memcpy(out.data(), element.data(), element.size());
  for (std::size_t done = element.size(), n = 0; done < out.size(); done += n) {
    n = std::min({done, out.size() - done, max_piece});
    std::memcpy(out.data() + done, out.data(), n);
  }
}

template <std::size_t size>
void copy_strided(const std::byte* from, std::uint64_t stride, std::byte* to, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) std::memcpy(to + i * size, from + i * stride, size);
}

}  // namespace

/// One array.
class ArrayLeaf {
 public:
  ArrayLeaf(const Arrays& all, Array array) : all_(all), array_(std::move(array)) {
    const std::size_t rank = array_.shape.size();
    item_ = element_size(array_.type->dtype);
    strides_.assign(rank, 1);
    encoded_strides_.assign(rank, item_);
    for (std::size_t d = rank; d-- > 1;) strides_[d - 1] = strides_[d] * array_.shape[d];
    std::uint64_t stride = item_;
    for (std::size_t k = rank; k-- > 0;) {
      const std::size_t axis = array_.order.empty() ? k : array_.order[k];
      encoded_strides_[axis] = stride;
      stride *= array_.chunk[axis];
    }
    for (std::size_t d = 0; d < rank; ++d) {
      per_value_.push_back(array_.sharded ? array_.shard[d] / array_.chunk[d] : 1);
      grid_.push_back(blocks_of(array_.shape[d], array_.chunk[d]));
      values_.push_back(blocks_of(grid_[d], per_value_[d]));
      inner_ *= per_value_[d];
    }
    find_values();
  }

  const Array& array() const noexcept { return array_; }
  /// Returns the bytes and the number of the chunks in a stored value.
  std::uint64_t bytes_of_value() const noexcept { return inner_ * array_.chunk_bytes; }
  std::uint64_t chunks_of_value() const noexcept { return inner_; }
  std::uint64_t chunks() const noexcept { return count_of(grid_); }
  /// Returns the number of values that the array has if no chunk is absent.
  std::uint64_t values() const noexcept { return count_of(values_); }

  /// A value of the store: a chunk, or a shard of chunks.
  struct Present {
    std::uint64_t number;  // row-major, in the grid of values
    std::size_t key;
  };
  /// Returns the values that exist, by number.
  std::span<const Present> present() const noexcept { return present_; }

  /// Fills `out` with the bytes that start at `offset`. `cache`: keeps the decoded chunks for later calls.
  Status fill(std::uint64_t offset, std::span<std::byte> out, bool cache) const {
    const std::uint64_t first = offset / item_, count = out.size() / item_;
    if (count == 0) return {};
    if (!array_.complete && (array_.sharded || present_.size() < values())) {
      repeat(std::span(array_.fill).first(item_), out);
    }
    Box box{std::vector<Extent>(array_.shape.size()), array_.shape};
    return boxes(0, box, first, first + count, {out.data(), first, cache});
  }

  /// Returns the key of the value at these positions in the grid of values.
  std::string key_of(std::span<const Extent> at) const {
    std::string key = array_.path.empty() ? "" : array_.path + '/';
    if (array_.prefix) key += 'c';
    if (at.empty() && !array_.prefix) key += '0';
    for (std::size_t d = 0; d < at.size(); ++d) {
      if (d != 0 || array_.prefix) key += array_.separator;
      key += std::to_string(at[d]);
    }
    return key;
  }

  static Status read(const void* at, std::uint64_t /*number*/, std::uint64_t offset, std::span<std::byte> out,
                     ReadContext& /*context*/) {
    return static_cast<const ArrayLeaf*>(at)->fill(offset, out, true);
  }
  static Status stream(const void* at, std::uint64_t /*number*/, std::uint64_t size, PieceSink& sink,
                       ReadContext& /*context*/) {
    const ArrayLeaf& array = *static_cast<const ArrayLeaf*>(at);
    const std::uint64_t band = array.array_.shape.empty()
                                   ? array.item_
                                   : add_scaled(0, array.array_.chunk[0], array.strides_[0] * array.item_);
    const std::uint64_t bands = std::max<std::uint64_t>(assembly_bytes / std::max<std::uint64_t>(band, 1), 1);
    std::uint64_t step = std::min(add_scaled(0, bands, band), max_block_bytes);
    // Pieces consist of whole elements; the size of every piece except the last is a multiple of 64 bytes.
    if (step % ReadContext::piece_size != 0 && step < size) step = std::max<std::uint64_t>(step / 64 * 64, 64);
    Bytes block(static_cast<std::size_t>(std::min(size, step)));
    for (std::uint64_t done = 0; done < size;) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(size - done, block.size()));
      STELE_TRY(array.fill(done, block.span().first(n), block.size() < size));
      for (std::size_t passed = 0; passed < n; passed += ReadContext::piece_size) {
        STELE_TRY(sink.piece(block.span().subspan(passed, std::min(ReadContext::piece_size, n - passed))));
      }
      done += n;
    }
    return {};
  }

 private:
  struct Output {
    std::byte* bytes;
    std::uint64_t first;  // the number of the first element
    bool cache;
  };

  std::uint64_t count_of(std::span<const std::uint64_t> grid) const noexcept {
    return array_.bytes != 0 ? element_count(grid).value_or(UINT64_MAX) : 0;
  }
  static std::uint64_t blocks_of(std::uint64_t extent, std::uint64_t block) noexcept {
    return extent / block + (extent % block != 0 ? 1 : 0);
  }

  /// Finds the values that the store has.
  void find_values() {
    if (array_.bytes == 0) return;
    const auto [first, last] = all_.store_->range(array_.path.empty() ? "" : array_.path + '/');
    for (std::size_t key = first; key < last; ++key) {
      if (const auto number = number_of(all_.store_->keys()[key])) present_.push_back({*number, key});
    }
    present_.shrink_to_fit();
    const auto before = [](const Present& a, const Present& b) { return a.number < b.number; };
    if (!std::is_sorted(present_.begin(), present_.end(), before)) {
      std::sort(present_.begin(), present_.end(), before);
    }
  }

  /// Returns the number of a value from its key: the reverse of key_of(). Returns nullopt for other keys.
  std::optional<std::uint64_t> number_of(std::string_view key) const {
    if (!array_.path.empty()) key.remove_prefix(array_.path.size() + 1);
    const std::size_t rank = array_.shape.size();
    if (rank == 0) return key == (array_.prefix ? "c" : "0") ? std::optional<std::uint64_t>(0) : std::nullopt;
    std::uint64_t number = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      const std::string_view before = d != 0 ? std::string_view(&array_.separator, 1) : array_.prefix ? "c" : "";
      if (!key.starts_with(before)) return std::nullopt;
      key.remove_prefix(before.size());
      if (d == 0 && array_.prefix) {
        if (!key.starts_with(array_.separator)) return std::nullopt;
        key.remove_prefix(1);
      }
      std::uint64_t at = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), at);
      const auto digits = static_cast<std::size_t>(end - key.data());
      if (error != std::errc() || at >= values_[d] || (key[0] == '0' && digits != 1)) return std::nullopt;
      key.remove_prefix(digits);
      number = number * values_[d] + at;
    }
    return key.empty() ? std::optional(number) : std::nullopt;
  }

  Error absent_chunk(const std::string& name) const {
    return Error(Errc::missing, "a chunk of the array is absent, although its writer stores all chunks")
        .path(shortened(array_.path, 200))
        .file(name);
  }

  Error wrong(const Stored& stored, std::string_view what) const {
    return Error(Errc::malformed, std::string(what))
        .path(shortened(array_.path, 200))
        .file(stored.source->name())
        .offset(stored.offset);
  }

  /// Splits the elements [begin, end) of the box, whose axes before `d` have one element, into boxes. Depth: the rank.
  Status boxes(std::size_t d, Box& box, std::uint64_t begin, std::uint64_t end, const Output& out) const {
    const std::size_t rank = array_.shape.size();
    if (d == rank) return values_of(box, out);
    const std::uint64_t row = strides_[d];
    const auto rows = [&](std::uint64_t from, std::uint64_t to) {
      box.start[d] = from, box.length[d] = to - from;
      for (std::size_t k = d + 1; k < rank; ++k) box.start[k] = 0, box.length[k] = array_.shape[k];
      return values_of(box, out);
    };
    const auto inside = [&](std::uint64_t at, std::uint64_t from, std::uint64_t to) {
      box.start[d] = at, box.length[d] = 1;
      return boxes(d + 1, box, from, to, out);
    };
    std::uint64_t from = begin / row;
    const std::uint64_t to = end / row;
    if (begin % row != 0) {
      STELE_TRY(inside(from, begin % row, from == to ? end % row : row));
      if (from == to) return {};
      ++from;
    }
    if (from < to) STELE_TRY(rows(from, to));
    return end % row != 0 ? inside(to, 0, end % row) : Status();
  }

  /// Copies the stored values that contain a part of the box.
  Status values_of(const Box& box, const Output& out) const {
    const std::size_t rank = box.start.size();
    std::vector<Extent> first(rank), last(rank);
    for (std::size_t d = 0; d < rank; ++d) {
      const std::uint64_t extent = per_value_[d] * array_.chunk[d];
      first[d] = box.start[d] / extent;
      last[d] = (box.start[d] + box.length[d] - 1) / extent;
    }
    // The values of a row have consecutive numbers, so that absent values take no time.
    const std::uint64_t row = rank != 0 ? last.back() - first.back() : 0;
    if (rank != 0) last.back() = first.back();
    std::vector<Extent> at = first;
    do {
      std::uint64_t begin = 0;
      for (std::size_t d = 0; d < rank; ++d) begin = begin * values_[d] + at[d];
      STELE_TRY(row_of(at, begin, begin + row, box, out));
    } while (advance(at, first, last));
    return {};
  }

  /// Copies the values with the numbers `begin` to `last`; the first is at `at`.
  Status row_of(std::vector<Extent> at, std::uint64_t begin, std::uint64_t last, const Box& box,
                const Output& out) const {
    const auto before = [](const Present& value, std::uint64_t number) { return value.number < number; };
    std::uint64_t next = begin;
    for (auto value = std::lower_bound(present_.begin(), present_.end(), begin, before);
         value != present_.end() && value->number <= last; ++value, ++next) {
      if (array_.complete && value->number != next) break;
      if (!at.empty()) at.back() += value->number - std::exchange(begin, value->number);
      STELE_TRY(copy_value(at, value->key, box, out));
    }
    if (!array_.complete || next > last) return {};
    if (!at.empty()) at.back() += next - begin;
    return absent_chunk(all_.store_->name() + '/' + key_of(at));
  }

  /// Copies the chunks of a value that contain a part of the box.
  Status copy_value(std::span<const Extent> value, std::size_t key, const Box& box, const Output& out) const {
    const std::size_t rank = box.start.size();
    std::vector<Extent> first(rank), last(rank);
    for (std::size_t d = 0; d < rank; ++d) {
      const Extent begin = value[d] * per_value_[d];
      first[d] = std::max(begin, box.start[d] / array_.chunk[d]);
      last[d] = std::min(begin + per_value_[d] - 1, (box.start[d] + box.length[d] - 1) / array_.chunk[d]);
    }
    std::vector<Extent> at = first;
    Box part{std::vector<Extent>(rank), std::vector<Extent>(rank)};
    do {
      STELE_TRY_ASSIGN(const auto chunk, find_chunk(at, value, key, out.cache));
      if (chunk == nullptr) continue;  // has the fill value
      for (std::size_t d = 0; d < rank; ++d) {
        const Extent begin = at[d] * array_.chunk[d];
        part.start[d] = std::max(begin, box.start[d]);
        const Extent room = array_.chunk[d] - (part.start[d] - begin);
        part.length[d] = std::min(room, box.start[d] + box.length[d] - part.start[d]);
      }
      copy(*chunk, at, part, out);
    } while (advance(at, first, last));
    return {};
  }

  /// Copies a part of a chunk.
  void copy(const Bytes& chunk, std::span<const Extent> at, const Box& part, const Output& out) const {
    const std::size_t rank = part.start.size();
    const std::size_t inner = rank - 1;
    std::vector<Extent> row(part.start.begin(), part.start.end());
    const std::uint64_t run = rank != 0 ? part.length[inner] : 1;
    for (bool more = true; more;) {
      std::uint64_t to = 0, from = 0;
      for (std::size_t d = 0; d < rank; ++d) {
        to += row[d] * strides_[d];
        from += (row[d] - at[d] * array_.chunk[d]) * encoded_strides_[d];
      }
      copy_run(chunk.data() + from, rank != 0 ? encoded_strides_[inner] : item_, out.bytes + (to - out.first) * item_,
               run);
      more = false;
      for (std::size_t d = rank == 0 ? 0 : inner; d-- > 0 && !more;) {
        more = row[d] + 1 < part.start[d] + part.length[d];
        row[d] = more ? row[d] + 1 : part.start[d];
      }
    }
  }

  void copy_run(const std::byte* from, std::uint64_t stride, std::byte* to, std::uint64_t count) const {
    if (stride == item_) {
      std::memcpy(to, from, static_cast<std::size_t>(count * item_));
      return;
    }
    switch (item_) {
      case 1:
        return copy_strided<1>(from, stride, to, count);
      case 2:
        return copy_strided<2>(from, stride, to, count);
      case 4:
        return copy_strided<4>(from, stride, to, count);
      case 8:
        return copy_strided<8>(from, stride, to, count);
      default:
        return copy_strided<16>(from, stride, to, count);
    }
  }

  /// Returns a decoded chunk of the value with this position and key; null if the value is a shard that lacks it.
  Result<std::shared_ptr<const Bytes>> find_chunk(std::span<const Extent> at, std::span<const Extent> value,
                                                  std::size_t key, bool cache) const {
    std::uint64_t number = 0;
    for (std::size_t d = 0; d < at.size(); ++d) number = number * grid_[d] + at[d];
    if (auto known = all_.cached(this, number)) return known;
    STELE_TRY_ASSIGN(Stored stored, all_.store_->open(key));
    if (array_.sharded) {
      STELE_TRY_ASSIGN(const bool found, find_in_shard(at, value, stored));
      if (!found && array_.complete) return absent_chunk(stored.source->name());
      if (!found) return std::shared_ptr<const Bytes>();
    }
    STELE_TRY_ASSIGN(Bytes decoded, decoded_chunk(stored));
    if (array_.big_endian) {
      const std::size_t width = array_.type->swapped;
      for (std::size_t i = 0; i < decoded.size(); i += width)
        std::reverse(decoded.data() + i, decoded.data() + i + width);
    }
    if (array_.type->bits != 0) extend(decoded.span());
    auto made = std::make_shared<const Bytes>(std::move(decoded));
    if (cache) all_.keep(this, number, made);
    return made;
  }

  /// Extends small integers to their bytes: the other bits of the stored bytes have no meaning.
  void extend(std::span<std::byte> elements) const {
    const unsigned shift = 8 - array_.type->bits;
    const bool is_signed = array_.type->dtype == DType::i8;
    for (std::byte& element : elements) {
      const auto high = static_cast<std::uint8_t>(std::to_integer<unsigned>(element) << shift);
      element = static_cast<std::byte>(is_signed ? static_cast<std::int8_t>(high) >> shift : high >> shift);
    }
  }

  /// Narrows `stored`, a shard, to the chunk in it. Returns false if the chunk is absent.
  Result<bool> find_in_shard(std::span<const Extent> at, std::span<const Extent> shard, Stored& stored) const {
    std::uint64_t number = 0, inner = 0;
    for (std::size_t d = 0; d < at.size(); ++d) {
      number = number * values_[d] + shard[d];
      inner = inner * per_value_[d] + at[d] % per_value_[d];
    }
    auto index = all_.cached(this, number | index_bit);
    if (index == nullptr) {
      if (stored.size / 16 < inner_) return wrong(stored, "a shard is shorter than its index");
      const std::uint64_t size = 16 * inner_ + (array_.index_crc ? 4 : 0);
      if (size > std::min<std::uint64_t>(stored.size, SIZE_MAX / 2))
        return wrong(stored, "a shard is shorter than its index");
      Bytes bytes(static_cast<std::size_t>(size));
      STELE_TRY(stored.source->read_at(stored.offset + (array_.index_first ? 0 : stored.size - size), bytes.span()));
      const auto plain = static_cast<std::size_t>(16 * inner_);
      if (array_.index_crc && crc32c(0, bytes.data(), plain) != load_le<std::uint32_t>(bytes.data() + plain)) {
        return Error(Errc::checksum, "the CRC-32C of a shard's index does not match")
            .path(shortened(array_.path, 200))
            .file(stored.source->name());
      }
      index = std::make_shared<const Bytes>(std::move(bytes));
      all_.keep(this, number | index_bit, index);
    }
    const auto offset = load_le<std::uint64_t>(index->data() + 16 * inner);
    const auto length = load_le<std::uint64_t>(index->data() + 16 * inner + 8);
    if (offset == absent && length == absent) return false;
    if (offset > stored.size || length > stored.size - offset) {
      return wrong(stored, "a chunk exceeds its shard")
          .found(std::to_string(length) + " bytes at " + std::to_string(offset));
    }
    stored.offset += offset;
    stored.size = length;
    return true;
  }

  Result<Bytes> decoded_chunk(const Stored& stored) const {
    const std::uint64_t bound = max_encoded(array_.chunk_bytes);
    if (stored.size > bound) return wrong(stored, "a chunk has more bytes than its elements");
    std::uint64_t most = stored.size;
    for (std::size_t i = array_.codecs.size(); i-- > 0;) most = max_decoded(array_.codecs[i], most);
    if (most < array_.chunk_bytes || (array_.codecs.empty() && stored.size != array_.chunk_bytes)) {
      return wrong(stored, "a chunk has too few bytes")
          .expected(std::to_string(array_.chunk_bytes) + (array_.codecs.empty() ? "" : " after decoding"))
          .found(std::to_string(stored.size));
    }
    if (std::max(bound, stored.size) > SIZE_MAX / 2) return wrong(stored, "a chunk is too large for this machine");
    Bytes bytes(static_cast<std::size_t>(stored.size));
    STELE_TRY(stored.source->read_at(stored.offset, bytes.span()));
    for (std::size_t i = array_.codecs.size(); i-- > 0;) {
      const bool last = i == 0;
      auto decoded = decode(array_.codecs[i], bytes.span(), last ? array_.chunk_bytes : bound, !last);
      if (!decoded) {
        return std::move(decoded)
            .error()
            .path(shortened(array_.path, 200))
            .file(stored.source->name())
            .offset(stored.offset);
      }
      bytes = *std::move(decoded);
    }
    return bytes;
  }

  const Arrays& all_;
  Array array_;
  std::size_t item_ = 1;
  std::vector<std::uint64_t> strides_;          // strides of the array, in elements
  std::vector<std::uint64_t> encoded_strides_;  // strides of a chunk, in bytes
  std::vector<std::uint64_t> grid_;             // number of chunks along each axis
  std::vector<std::uint64_t> per_value_;        // number of chunks in a stored value along each axis
  std::vector<std::uint64_t> values_;           // number of stored values along each axis
  std::uint64_t inner_ = 1;                     // number of chunks in a stored value
  std::vector<Present> present_;
};

namespace {

constexpr LeafOps chunk_ops{.read = ArrayLeaf::read, .stream = ArrayLeaf::stream, .encoding = "zarr"};

/// Returns true if the array's elements are the bytes of a single chunk.
bool is_plain(const Array& array) {
  if (!array.codecs.empty() || array.sharded || !array.order.empty()) return false;
  if ((array.big_endian && array.type->swapped != 1) || array.type->bits != 0) return false;
  for (std::size_t d = 0; d < array.shape.size(); ++d) {
    if (d == 0 ? array.shape[0] > array.chunk[0] : array.shape[d] != array.chunk[d]) return false;
  }
  return array.bytes != 0;
}

}  // namespace

Arrays::Arrays(std::shared_ptr<const Store> store) : store_(std::move(store)) {}
Arrays::~Arrays() = default;

Result<Provider> Arrays::add(Array& array, IndexBudget& memory) {
  if (!array.unreadable.empty()) return Provider();
  const std::size_t rank = array.shape.size();
  if (!memory.take(sizeof(ArrayLeaf) + 128 + 64 * rank + 2 * array.path.size())) {
    return index_error("the arrays need more memory than the size of their metadata allows");
  }
  Array copy = array;
  copy.attributes = Value();
  copy.dimension_names = Value();
  auto leaf = std::make_unique<const ArrayLeaf>(*this, std::move(copy));
  const Array& kept = leaf->array();
  const std::uint64_t values = leaf->present().size();
  if (!memory.take(sizeof(ArrayLeaf::Present) * values)) {
    return index_error("the arrays need more memory than the size of their metadata allows");
  }
  // The chunks' files may be few and small while the shape is large.
  const std::uint64_t unit = leaf->bytes_of_value();
  constexpr std::uint64_t small = std::uint64_t{1} << 20;
  std::uint64_t decoded = 0;
  if (unit <= small) {
    decoded = add_scaled(0, values, unit);
  } else {
    for (const ArrayLeaf::Present& value : leaf->present()) {
      if (decoded >= kept.bytes) break;
      STELE_TRY_ASSIGN(const Stored stored, store_->open(value.key));
      std::uint64_t most = stored.size;
      for (std::size_t i = kept.codecs.size(); i-- > 0;) most = max_decoded(kept.codecs[i], most);
      decoded = add_scaled(decoded, 1, !kept.sharded ? std::min(most, unit) : most);
    }
  }
  const std::uint64_t chunks =
      leaf->chunks() - std::min(leaf->chunks(), add_scaled(0, values, leaf->chunks_of_value()));
  const std::uint64_t bytes = kept.bytes - std::min(kept.bytes, decoded);
  if (chunks > absent_chunks_ || bytes > absent_bytes_) {
    array.unreadable = "an array of " + std::to_string(kept.bytes) + " bytes, most of whose chunks are absent";
    return Provider();
  }
  absent_chunks_ -= chunks, absent_bytes_ -= bytes;
  if (!kept.complete && values < leaf->values()) note_absent(kept, leaf->values() - values, leaf->values());
  capacity_ = add_scaled(capacity_, 1, std::min(decoded, kept.bytes));
  if (is_plain(kept)) {
    const auto key = store_->find(leaf->key_of(std::vector<Extent>(rank)));
    constexpr std::size_t max_files = 64;  // a process has a limited number of open files
    if (key && sources_.size() < max_files) {
      STELE_TRY_ASSIGN(Stored stored, store_->open(*key));
      if (stored.size == kept.chunk_bytes) {
        sources_.push_back(stored.source);
        return Provider{&source_ops, sources_.back().get(), stored.offset};
      }
    }
  }
  arrays_.push_back(std::move(leaf));
  return Provider{&chunk_ops, arrays_.back().get(), 0};
}

void Arrays::note_absent(const Array& array, std::uint64_t absent_values, std::uint64_t values) {
  constexpr std::size_t max_notes = 64;
  if (notes_.size() > max_notes) return;
  std::string note = std::to_string(absent_values) + " of " + std::to_string(values) +
                     (array.sharded ? " shards" : " chunks") + " of " + shortened(array.path, 200) +
                     " are absent: their elements are the fill value";
  notes_.push_back(notes_.size() < max_notes ? std::move(note) : "chunks of more arrays are absent");
}

std::shared_ptr<const Bytes> Arrays::cached(const ArrayLeaf* array, std::uint64_t number) const {
  const Lock lock(mutex_);
  const auto found = std::find_if(cache_.begin(), cache_.end(),
                                  [&](const Cached& c) { return c.array == array && c.number == number; });
  if (found == cache_.end()) return nullptr;
  cache_.splice(cache_.begin(), cache_, found);
  return found->bytes;
}

void Arrays::keep(const ArrayLeaf* array, std::uint64_t number, std::shared_ptr<const Bytes> bytes) const {
  constexpr std::size_t max_entries = 256;
  const Lock lock(mutex_);
  cached_bytes_ += bytes->size();
  cache_.push_front({array, number, std::move(bytes)});
  while (cache_.size() > 1 && (cached_bytes_ > cache_bytes || cache_.size() > max_entries)) {
    cached_bytes_ -= cache_.back().bytes->size();
    cache_.pop_back();
  }
}

}  // namespace stele::inline v0::detail::zarr
