// `.stele` files made by hand from the layout in stele_reader.hpp, without the library's writer, so that any part can
// be wrong. Hashes are computed at the end, unless a test sets them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.hpp"
#include "stele/dtype.hpp"
#include "stele/snapshot.hpp"

namespace stele_test {

template <class T>
void put(std::string& to, T number) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    to += static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i) & 0xff);
  }
}
template <class T>
void put_at(std::string& to, std::size_t at, T number) {
  std::string bytes;
  put(bytes, number);
  to.replace(at, bytes.size(), bytes);
}
inline void pad(std::string& to, std::size_t multiple) { to.resize((to.size() + multiple - 1) / multiple * multiple); }

struct RawNode {
  std::uint8_t kind = 0;
  std::uint8_t flags = 1;
  std::uint16_t zero = 0;
  std::uint32_t name = 0, name_size = 0;
  std::uint32_t end = 0, index = 0;
  std::uint32_t value_size = 0;
  std::uint64_t value = 0;
};

struct RawType {
  std::uint32_t name = 0, name_size = 0, version = 0, zero = 0;
};

struct RawEntry {
  std::uint32_t name = 0, name_size = 0;
  std::uint64_t offset = 0, length = 0, hash = 0;
  std::uint16_t dtype = 0, rank = 0;
  std::uint32_t extent = 0, flags = 0, node = 0;
  std::uint64_t id_low = 0, id_high = 0;
};

struct RawFile {
  std::uint32_t version = 1, alignment = 64;
  std::uint64_t required = 0, optional = 0;
  std::string blocks;  // begins at byte 64; make() pads it to a multiple of 64
  std::vector<RawNode> nodes;
  std::vector<RawType> types;
  std::vector<RawEntry> entries;
  std::vector<std::uint64_t> extents;
  std::string values, metadata, strings;
  std::uint32_t flags = 0;
  // Wrong values for fields that otherwise follow from the other parts.
  std::optional<std::uint32_t> node_count, entry_count, type_count;
  std::optional<std::uint64_t> extent_count, value_bytes, metadata_bytes, string_bytes;
  std::optional<std::uint64_t> header_total, trailer_total, index_offset, index_size;

  struct Text {
    std::uint32_t at, size;
  };
  Text text(std::string_view s) {
    strings += s;
    return {static_cast<std::uint32_t>(strings.size() - s.size()), static_cast<std::uint32_t>(s.size())};
  }
  std::uint32_t node(stele::NodeKind kind, std::string_view name, std::uint32_t end = 0,
                     std::uint32_t index = 0xffffffffU) {
    const Text t = text(name);
    const auto number = static_cast<std::uint32_t>(nodes.size());
    nodes.push_back({static_cast<std::uint8_t>(kind), 1, 0, t.at, t.size, end == 0 ? number + 1 : end, index, 0, 0});
    return number;
  }
  std::uint32_t value(std::string_view name, std::string_view encoded) {
    const std::uint32_t number = node(stele::NodeKind::value, name, 0, 0);
    nodes[number].value = values.size();
    nodes[number].value_size = static_cast<std::uint32_t>(encoded.size());
    values += encoded;
    return number;
  }
  /// Adds a node, an entry and a block. Entries have the order of the calls, so the names must be sorted.
  std::uint32_t tensor(std::string_view name, stele::DType dtype, std::vector<std::uint64_t> shape,
                       std::string_view bytes) {
    const std::uint32_t number = node(stele::NodeKind::tensor, name, 0, static_cast<std::uint32_t>(entries.size()));
    RawEntry e;
    e.name = nodes[number].name;
    e.name_size = nodes[number].name_size;
    e.offset = 64 + blocks.size();
    e.length = bytes.size();
    e.hash = stele::detail::hash64(bytes.data(), bytes.size());
    e.dtype = static_cast<std::uint16_t>(dtype);
    e.rank = static_cast<std::uint16_t>(shape.size());
    e.extent = static_cast<std::uint32_t>(extents.size());
    e.node = number;
    extents.insert(extents.end(), shape.begin(), shape.end());
    entries.push_back(e);
    blocks += bytes;
    pad(blocks, 64);
    return number;
  }

  std::string make() const {
    std::string index;
    put(index, node_count.value_or(static_cast<std::uint32_t>(nodes.size())));
    put(index, entry_count.value_or(static_cast<std::uint32_t>(entries.size())));
    put(index, extent_count.value_or(extents.size()));
    put(index, value_bytes.value_or(values.size()));
    put(index, metadata_bytes.value_or(metadata.size()));
    put(index, string_bytes.value_or(strings.size()));
    put(index, type_count.value_or(static_cast<std::uint32_t>(types.size())));
    put(index, flags);
    index.resize(64);
    for (const RawNode& n : nodes) {
      put(index, n.kind), put(index, n.flags), put(index, n.zero);
      put(index, n.name), put(index, n.name_size), put(index, n.end), put(index, n.index), put(index, n.value_size);
      put(index, n.value);
    }
    for (const RawType& t : types)
      put(index, t.name), put(index, t.name_size), put(index, t.version), put(index, t.zero);
    for (const RawEntry& e : entries) {
      put(index, e.name), put(index, e.name_size), put(index, e.offset), put(index, e.length), put(index, e.hash);
      put(index, e.dtype), put(index, e.rank), put(index, e.extent), put(index, e.flags), put(index, e.node);
      put(index, e.id_low), put(index, e.id_high);
    }
    for (const std::uint64_t e : extents) put(index, e);
    for (const std::string* part : {&values, &metadata, &strings}) {
      index += *part;
      pad(index, 8);
    }

    std::string file("\x93STELE\r\n");
    put(file, version), put(file, alignment), put(file, required), put(file, optional);
    const std::uint64_t blocks_end = 64 + (blocks.size() + 63) / 64 * 64;
    const std::uint64_t total = blocks_end + index.size() + 64;
    put(file, header_total.value_or(total));
    file.resize(56);
    put(file, stele::detail::hash64(file.data(), 56));
    file += blocks;
    pad(file, 64);
    file += index;
    put(file, index_offset.value_or(blocks_end));
    put(file, index_size.value_or(index.size()));
    put(file, trailer_total.value_or(total));
    file.resize(file.size() + 24);
    put(file, stele::detail::hash64(file.data() + blocks_end, index.size() + 48));
    return file + "\n\rELETS\x93";
  }
};

/// Corrects the header and index hashes of a changed file, if it has both.
inline void fix_hashes(std::string& file) {
  if (file.size() < 192) return;
  put_at(file, 56, stele::detail::hash64(file.data(), 56));
  std::uint64_t at = 0;
  for (std::size_t i = 8; i-- != 0;) at = at << 8 | static_cast<unsigned char>(file[file.size() - 64 + i]);
  if (at > file.size() - 64) return;
  const std::size_t index = static_cast<std::size_t>(at);
  put_at(file, file.size() - 16, stele::detail::hash64(file.data() + index, file.size() - 16 - index));
}

}  // namespace stele_test
