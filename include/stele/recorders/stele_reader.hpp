// The only reader of the `.stele` format: both hosts and microcontrollers parse with this header alone. No heap,
// exceptions, RTTI or iostream; every length is checked before it is used. Byte layout (all numbers little-endian;
// docs/formats/stele.md specifies every byte):
//
// clang-format off
//  1. Header, 64 bytes: 0 magic 93 "STELE" 0D 0A; 8 u32 version 1; 12 u32 alignment of blocks, 64; 16 u64 required
//     features (bit 0: compressed blocks; bit 1: a delta of weights, which a host reads); 24 u64 optional features; 32 u64 total size (0: unknown when it was
//     written); 40 zero; 56 u64 XXH3-64 of 0 to 55.
//  2. Blocks: the bytes of each tensor, row-major, in the order of the tree, each at a multiple of the alignment; the
//     padding is zero. Compressed ones: recorders/stele/frames.hpp.
//  3. Index, at the next multiple of the alignment:
//     a. Header, 64 bytes: 0 u32 nodes; 4 u32 entries; 8 u64 extents; 16 u64 bytes of values; 24 u64 bytes of metadata;
//        32 u64 bytes of strings; 40 u32 types; 44 u32 flags (bit 0: the names are whole paths; bit 1: kinds are
//        guessed; bit 2: section i exists); 48 zero. Then the sections, each padded with zeros to a multiple of 8:
//     b. Nodes, 32 bytes, declaration order: 0 u8 kind; 1 u8 flags (bit 0 named, bit 1 conditional); 2 zero; 4 u32
//        name's offset in the strings (or the element's number); 8 u32 name's length; 12 u32 number one past the
//        subtree; 16 u32 entry (tensor), target node (alias), type or ffffffff (container); 20 u32 length and 24 u64
//        offset in the values (value: itself; tensor: its annotations).
//     c. Types, 16 bytes: 0 u32 name's offset; 4 u32 length; 8 u32 version; 12 zero.
//     d. Entries, 64 bytes, strictly ascending by name: 0 u32 name's offset; 4 u32 length; 8 u64 block's offset; 16 u64
//        length of the elements; 24 u64 XXH3-64 of them; 32 u16 dtype; 34 u16 rank; 36 u32 first extent; 40 u32 flags
//        (bit 0 alias, bits 1-2 form of the id, 0 none); 44 u32 node; 48 u64 id low; 56 u64 id high. An alias repeats
//        its target's fields.
//     e. Extents: u64.
//     f. Values: u8 kind (0 null 1 bool 2 i64 3 u64 4 f64 5 string 6 bytes 7 list 8 map), then u8; 8 bytes; u32 length
//        and bytes; u32 count and values; u32 count and (u32 length, key, value).
//     g. Metadata: u32 pairs, then u32 key length, u32 text length, key, text; keys strictly ascending.
//     h. Strings.
//     i. Stored blocks, 16 bytes for each entry: 0 u64 bytes of its compressed block; 8 u64 XXH3-64 of them. Both 0:
//        the elements are not compressed.
//  4. Trailer, 64 bytes: 0 u64 index offset; 8 u64 index size; 16 u64 total size; 24 zero; 48 u64 XXH3-64 of the index
//     and bytes 0 to 47 of the trailer; 56 magic backwards.
// clang-format on
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "stele/config.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/dtype.hpp"
#include "stele/errc.hpp"

namespace stele::inline v0::format {

inline constexpr std::size_t header_size = 64;
inline constexpr std::size_t trailer_size = 64;
inline constexpr std::size_t index_header_size = 64;
inline constexpr std::size_t node_size = 32;
inline constexpr std::size_t type_size = 16;
inline constexpr std::size_t entry_size = 64;
inline constexpr std::size_t stored_size = 16;
inline constexpr unsigned char magic[8] = {0x93, 'S', 'T', 'E', 'L', 'E', 0x0D, 0x0A};
inline constexpr std::uint32_t version = 1;
inline constexpr std::uint32_t block_alignment = 64;
inline constexpr std::uint64_t compressed_blocks = 1;               // required feature
inline constexpr std::uint64_t weight_delta = 2;                    // required feature: docs/formats/delta.md
inline constexpr std::uint64_t known_features = compressed_blocks;  // features that this reader supports
inline constexpr std::uint32_t flat_names = 1;                      // index flags
inline constexpr std::uint32_t guessed_kinds = 2;
inline constexpr std::uint32_t stored_blocks = 4;
inline constexpr std::uint32_t alias_entry = 1;  // entry flag

/// An error code and a file offset.
struct Fault {
  Errc code = Errc::none;
  std::uint64_t offset = 0;
  constexpr explicit operator bool() const noexcept { return code != Errc::none; }
};

/// XXH3-64 of a block of memory. A reader that cannot afford its code size passes nullptr and does not verify the
/// bytes.
using Hash = std::uint64_t (*)(const void* data, std::size_t size);

using detail::load_le;
using detail::store_le;

/// Returns `value` rounded up to a multiple of `to` (a power of two); nullopt if the result does not fit.
constexpr std::optional<std::uint64_t> round_up(std::uint64_t value, std::uint64_t to) noexcept {
  const auto up = checked_add(value, to - 1);
  return up ? std::optional(*up & ~(to - 1)) : std::nullopt;
}

constexpr bool all_zero(std::span<const std::byte> bytes) noexcept {
  for (const std::byte b : bytes) {
    if (b != std::byte{0}) return false;
  }
  return true;
}

struct Header {
  std::uint64_t total = 0;
  std::uint64_t required = 0;
  std::uint64_t optional = 0;
  std::uint32_t alignment = block_alignment;
};

/// Parses the first 64 bytes. Errors: truncated, bad_magic, unsupported, malformed, checksum.
inline Fault parse_header(std::span<const std::byte> bytes, Hash hash, Header& out,
                          std::uint64_t known = known_features) noexcept {
  if (bytes.size() < sizeof magic || std::memcmp(bytes.data(), magic, sizeof magic) != 0) {
    return {bytes.size() < sizeof magic ? Errc::truncated : Errc::bad_magic, 0};
  }
  if (bytes.size() < header_size) return {Errc::truncated, bytes.size()};
  const std::byte* p = bytes.data();
  if (hash != nullptr && hash(p, 56) != load_le<std::uint64_t>(p + 56)) return {Errc::checksum, 56};
  if (load_le<std::uint32_t>(p + 8) != version) return {Errc::unsupported, 8};
  out.alignment = load_le<std::uint32_t>(p + 12);
  out.required = load_le<std::uint64_t>(p + 16);
  out.optional = load_le<std::uint64_t>(p + 24);
  out.total = load_le<std::uint64_t>(p + 32);
  if ((out.required & ~known) != 0) return {Errc::unsupported, 16};
  if (out.alignment != block_alignment) return {Errc::unsupported, 12};
  if (!all_zero(bytes.subspan(40, 16))) return {Errc::malformed, 40};
  return {};
}

struct Trailer {
  std::uint64_t index_offset = 0;
  std::uint64_t index_size = 0;
};

/// Parses the last 64 bytes of a file of `total` bytes. parse_index checks the hash, which covers the index too.
inline Fault parse_trailer(std::span<const std::byte> bytes, std::uint64_t total, Trailer& out) noexcept {
  const std::uint64_t at = total - trailer_size;
  const std::byte* p = bytes.data();
  for (std::size_t i = 0; i < sizeof magic; ++i) {
    if (p[56 + i] != static_cast<std::byte>(magic[7 - i])) return {Errc::truncated, at + 56};
  }
  out.index_offset = load_le<std::uint64_t>(p);
  out.index_size = load_le<std::uint64_t>(p + 8);
  if (load_le<std::uint64_t>(p + 16) != total) return {Errc::malformed, at + 16};
  if (!all_zero(bytes.subspan(24, 24))) return {Errc::malformed, at + 24};
  if (out.index_offset < header_size || out.index_offset > at || out.index_size != at - out.index_offset ||
      out.index_size < index_header_size) {
    return {Errc::malformed, at};
  }
  return {};
}

struct NodeView {
  std::uint8_t kind = 0;
  bool named = false;
  bool conditional = false;
  std::string_view name{};
  std::uint32_t number = 0;  // number of an element without a name
  std::uint32_t end = 0;
  std::uint32_t index = 0;
  std::span<const std::byte> value{};
};

/// A tensor in the index.
struct Entry {
  std::string_view name{};
  std::uint64_t offset = 0;  // offset of its block in the file
  std::uint64_t length = 0;  // size of its elements
  std::uint64_t stored = 0;  // size of a compressed block; 0: not compressed
  std::uint64_t stored_hash = 0;
  std::uint64_t hash = 0;
  DType dtype = DType::none;
  std::uint16_t rank = 0;
  bool alias = false;
  std::uint8_t id_form = 0;
  std::uint32_t first_extent = 0;
  std::uint32_t node = 0;
  std::uint64_t id_low = 0, id_high = 0;
};

/// A view over the bytes of an index. After parse(), every accessor is safe with a number below its count.
class Index {
 public:
  std::uint32_t nodes() const noexcept { return nodes_; }
  std::uint32_t types() const noexcept { return types_; }
  std::uint32_t entries() const noexcept { return entries_; }
  std::uint64_t extents() const noexcept { return extents_; }
  bool flat() const noexcept { return flat_; }
  bool guessed() const noexcept { return guessed_; }
  std::span<const std::byte> metadata() const noexcept { return metadata_; }
  std::span<const std::byte> strings() const noexcept { return strings_; }
  std::span<const std::byte> values() const noexcept { return values_; }

  /// Parses the bytes of index and trailer together; they are at `offset` in the file with this header.
  Fault parse(const Header& header, std::span<const std::byte> index_and_trailer, std::uint64_t offset,
              Hash hash) noexcept {
    if (index_and_trailer.size() < index_header_size + trailer_size) return {Errc::truncated, offset};
    const std::byte* p = index_and_trailer.data();
    const std::size_t size = index_and_trailer.size() - trailer_size;
    if (hash != nullptr && hash(p, size + 48) != load_le<std::uint64_t>(p + size + 48)) {
      return {Errc::checksum, offset + size + 48};
    }
    nodes_ = load_le<std::uint32_t>(p);
    entries_ = load_le<std::uint32_t>(p + 4);
    extents_ = load_le<std::uint64_t>(p + 8);
    types_ = load_le<std::uint32_t>(p + 40);
    const auto flags = load_le<std::uint32_t>(p + 44);
    flat_ = (flags & flat_names) != 0;
    guessed_ = (flags & guessed_kinds) != 0;
    const bool compressed = (header.required & compressed_blocks) != 0;
    if ((flags & ~(flat_names | guessed_kinds | stored_blocks)) != 0 || ((flags & stored_blocks) != 0) != compressed) {
      return {Errc::malformed, offset + 44};
    }
    if (!all_zero(index_and_trailer.subspan(48, 16))) return {Errc::malformed, offset + 48};
    base_ = offset;
    start_ = p;
    at_ = index_header_size;
    const auto all = index_and_trailer.first(size);
    const auto extents = checked_mul(extents_, 8);
    std::span<const std::byte> extent_bytes;
    if (!extents || !section(all, std::uint64_t{nodes_} * node_size, node_bytes_) ||
        !section(all, std::uint64_t{types_} * type_size, type_bytes_) ||
        !section(all, std::uint64_t{entries_} * entry_size, entry_bytes_) || !section(all, *extents, extent_bytes) ||
        !section(all, load_le<std::uint64_t>(p + 16), values_) ||
        !section(all, load_le<std::uint64_t>(p + 24), metadata_) ||
        !section(all, load_le<std::uint64_t>(p + 32), strings_) ||
        !section(all, (flags & stored_blocks) != 0 ? std::uint64_t{entries_} * stored_size : 0, stored_) ||
        at_ != size) {
      return {Errc::malformed, offset + at_};
    }
    extent_data_ = extent_bytes.data();
    return {};
  }

  /// Returns false if the node's name or value is outside its section, or a field that must be zero is not.
  bool node(std::uint32_t i, NodeView& out) const noexcept {
    const std::byte* p = node_bytes_.data() + std::size_t{i} * node_size;
    out.kind = static_cast<std::uint8_t>(p[0]);
    const auto flags = static_cast<std::uint8_t>(p[1]);
    out.named = (flags & 1U) != 0;
    out.conditional = (flags & 2U) != 0;
    out.number = load_le<std::uint32_t>(p + 4);
    out.end = load_le<std::uint32_t>(p + 12);
    out.index = load_le<std::uint32_t>(p + 16);
    const auto name_length = load_le<std::uint32_t>(p + 8);
    if (flags > 3 || p[2] != std::byte{0} || p[3] != std::byte{0} || (!out.named && name_length != 0)) return false;
    if (out.named && !string(out.number, name_length, out.name)) return false;
    return part(values_, load_le<std::uint64_t>(p + 24), load_le<std::uint32_t>(p + 20), out.value);
  }

  bool type(std::uint32_t i, std::string_view& name, std::uint32_t& type_version) const noexcept {
    const std::byte* p = type_bytes_.data() + std::size_t{i} * type_size;
    type_version = load_le<std::uint32_t>(p + 8);
    return load_le<std::uint32_t>(p + 12) == 0 &&
           string(load_le<std::uint32_t>(p), load_le<std::uint32_t>(p + 4), name);
  }

  /// Returns false if the entry's name or extents are outside their sections, if its flags are unknown, or if it has id
  /// bytes but no id.
  bool entry(std::uint32_t i, Entry& out) const noexcept {
    const std::byte* p = entry_bytes_.data() + std::size_t{i} * entry_size;
    out.offset = load_le<std::uint64_t>(p + 8);
    out.length = load_le<std::uint64_t>(p + 16);
    out.stored = stored_.empty() ? 0 : load_le<std::uint64_t>(stored_.data() + std::size_t{i} * stored_size);
    out.stored_hash = stored_.empty() ? 0 : load_le<std::uint64_t>(stored_.data() + std::size_t{i} * stored_size + 8);
    out.hash = load_le<std::uint64_t>(p + 24);
    out.dtype = static_cast<DType>(load_le<std::uint16_t>(p + 32));
    out.rank = load_le<std::uint16_t>(p + 34);
    out.first_extent = load_le<std::uint32_t>(p + 36);
    const auto flags = load_le<std::uint32_t>(p + 40);
    out.alias = (flags & alias_entry) != 0;
    out.id_form = static_cast<std::uint8_t>((flags >> 1) & 3U);
    out.node = load_le<std::uint32_t>(p + 44);
    out.id_low = load_le<std::uint64_t>(p + 48);
    out.id_high = load_le<std::uint64_t>(p + 56);
    if (out.id_form == 0 && (out.id_low != 0 || out.id_high != 0)) return false;
    if (flags > 7 || out.id_form == 3 || (out.stored == 0 && out.stored_hash != 0)) return false;
    if (out.first_extent > extents_ || out.rank > extents_ - out.first_extent) return false;
    return string(load_le<std::uint32_t>(p), load_le<std::uint32_t>(p + 4), out.name);
  }

  /// Returns the fields of entry i that locate its bytes: offset, length, stored, hash. Requires that parse() and
  /// entry() have checked the entry.
  Entry block(std::uint32_t i) const noexcept {
    const std::byte* p = entry_bytes_.data() + std::size_t{i} * entry_size;
    Entry out;
    out.offset = load_le<std::uint64_t>(p + 8);
    out.length = load_le<std::uint64_t>(p + 16);
    out.hash = load_le<std::uint64_t>(p + 24);
    out.stored = stored_.empty() ? 0 : load_le<std::uint64_t>(stored_.data() + std::size_t{i} * stored_size);
    return out;
  }
  /// Returns false if the name is outside its section.
  bool entry_name(std::uint32_t i, std::string_view& out) const noexcept {
    const std::byte* p = entry_bytes_.data() + std::size_t{i} * entry_size;
    return string(load_le<std::uint32_t>(p), load_le<std::uint32_t>(p + 4), out);
  }
  /// Returns the kind of node i.
  std::uint8_t kind(std::uint32_t i) const noexcept {
    return static_cast<std::uint8_t>(node_bytes_[std::size_t{i} * node_size]);
  }
  /// Returns true if the flags of entry i declare an id.
  bool has_id(std::uint32_t i) const noexcept {
    return (load_le<std::uint32_t>(entry_bytes_.data() + std::size_t{i} * entry_size + 40) & 6U) != 0;
  }

  std::uint64_t extent(const Entry& entry, std::uint32_t dimension) const noexcept {
    return load_le<std::uint64_t>(extent_data_ + (std::size_t{entry.first_extent} + dimension) * 8);
  }

  /// Returns true if the tensor's length matches its dtype and extents.
  bool length_fits(const Entry& entry) const noexcept {
    ElementCounter counter;
    for (std::uint32_t d = 0; d < entry.rank; ++d) counter.add(extent(entry, d));
    const auto count = counter.count();
    if (!count) return false;
    if (bits(entry.dtype) == 0 && !is_block(entry.dtype)) return *count == 0 || is_known(entry.dtype);
    return byte_length(entry.dtype, *count) == entry.length;
  }

  /// Finds an entry by binary search. Returns false if no tensor has this name (or the index is damaged at that point).
  bool find(std::string_view name, Entry& out) const noexcept {
    std::uint32_t low = 0;
    std::uint32_t high = entries_;
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (!entry(middle, out)) return false;
      const int order = out.name.compare(name);
      if (order == 0) return true;
      if (order < 0) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return false;
  }

  /// Returns the file offset of an element of a section, for messages.
  std::uint64_t node_offset(std::uint32_t i) const noexcept {
    return place(node_bytes_) + std::uint64_t{i} * node_size;
  }
  std::uint64_t entry_offset(std::uint32_t i) const noexcept {
    return place(entry_bytes_) + std::uint64_t{i} * entry_size;
  }
  std::uint64_t stored_offset(std::uint32_t i) const noexcept {
    return place(stored_) + std::uint64_t{i} * stored_size;
  }
  std::uint64_t type_offset(std::uint32_t i) const noexcept {
    return place(type_bytes_) + std::uint64_t{i} * type_size;
  }
  std::uint64_t place(std::span<const std::byte> part) const noexcept {
    return base_ + static_cast<std::uint64_t>(part.data() - start_);
  }

 private:
  bool section(std::span<const std::byte> all, std::uint64_t size, std::span<const std::byte>& out) noexcept {
    const auto padded = round_up(size, 8);
    if (!padded || *padded > all.size() - at_) return false;
    out = all.subspan(at_, static_cast<std::size_t>(size));
    if (!all_zero(all.subspan(at_ + static_cast<std::size_t>(size), static_cast<std::size_t>(*padded - size))))
      return false;
    at_ += static_cast<std::size_t>(*padded);
    return true;
  }
  static bool part(std::span<const std::byte> of, std::uint64_t offset, std::uint64_t length,
                   std::span<const std::byte>& out) noexcept {
    if (offset > of.size() || length > of.size() - offset) return false;
    out = of.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(length));
    return true;
  }
  bool string(std::uint32_t offset, std::uint32_t length, std::string_view& out) const noexcept {
    std::span<const std::byte> bytes;
    if (!part(strings_, offset, length, bytes)) return false;
    out = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    return true;
  }

  std::span<const std::byte> node_bytes_{}, type_bytes_{}, entry_bytes_{}, values_{}, metadata_{}, strings_{},
      stored_{};
  const std::byte* extent_data_ = nullptr;
  const std::byte* start_ = nullptr;
  std::uint64_t base_ = 0;
  std::size_t at_ = 0;
  std::uint64_t extents_ = 0;
  std::uint32_t nodes_ = 0, types_ = 0, entries_ = 0;
  bool flat_ = false;
  bool guessed_ = false;
};

/// A tensor's entry and its bytes in the file.
struct TensorBytes {
  Entry entry{};
  std::span<const std::byte> bytes{};
};

/// A whole `.stele` file in memory (flash, a buffer; more bytes may follow it). Copies nothing.
class MemoryFile {
 public:
  /// Opens a file. `hash` verifies header and index; nullptr skips this check.
  Fault open(std::span<const std::byte> memory, Hash hash = nullptr) noexcept {
    Header header;
    if (const Fault f = parse_header(memory, hash, header)) return f;
    const std::uint64_t total = header.total != 0 ? header.total : memory.size();
    if (total > memory.size() || total < header_size + index_header_size + trailer_size) {
      return {Errc::truncated, memory.size()};
    }
    bytes_ = memory.first(static_cast<std::size_t>(total));
    Trailer trailer;
    if (const Fault f = parse_trailer(bytes_.last(trailer_size), total, trailer)) return f;
    blocks_end_ = trailer.index_offset;
    return index_.parse(header, bytes_.subspan(static_cast<std::size_t>(trailer.index_offset)), trailer.index_offset,
                        hash);
  }
  const Index& index() const noexcept { return index_; }

  /// Finds the tensor with that path. `hash` verifies its bytes. Errors: not_found, malformed, checksum, unsupported
  /// (compressed).
  Fault tensor(std::string_view path, TensorBytes& out, Hash hash = nullptr) const noexcept {
    if (!index_.find(path, out.entry)) return {Errc::not_found, 0};
    return locate(out, hash);
  }
  /// Returns the tensor of entry `i`, in the order of names.
  Fault tensor(std::uint32_t i, TensorBytes& out, Hash hash = nullptr) const noexcept {
    if (i >= index_.entries()) return {Errc::not_found, 0};
    if (!index_.entry(i, out.entry)) return {Errc::malformed, index_.entry_offset(i)};
    return locate(out, hash);
  }

 private:
  Fault locate(TensorBytes& out, Hash hash) const noexcept {
    const Entry& e = out.entry;
    if (e.stored != 0) return {Errc::unsupported, e.offset};  // compressed: needs a heap
    if (e.offset < header_size || e.offset > blocks_end_ || e.length > blocks_end_ - e.offset ||
        !index_.length_fits(e)) {
      return {Errc::malformed, e.offset};
    }
    out.bytes = bytes_.subspan(static_cast<std::size_t>(e.offset), static_cast<std::size_t>(e.length));
    if (hash != nullptr && hash(out.bytes.data(), out.bytes.size()) != e.hash) return {Errc::checksum, e.offset};
    return {};
  }

  std::span<const std::byte> bytes_{};
  std::uint64_t blocks_end_ = 0;
  Index index_;
};

}  // namespace stele::inline v0::format
