// Builds TensorFlow checkpoints byte by byte: tables, entries, shards. For files that TensorFlow does not write.
#pragma once

#include <stele/bundle.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/crc32c.hpp"
#include "support/protobuf.hpp"
#include "support/recorders.hpp"

namespace stele_test::tensor_bundle {

inline std::string u32(std::uint64_t n) {
  std::string text;
  for (int i = 0; i < 4; ++i) text += static_cast<char>(n >> 8 * i);
  return text;
}
inline std::string message(unsigned field, const std::string& content) {
  return varint(field << 3 | 2) + varint(content.size()) + content;
}
inline std::uint32_t masked_crc(std::string_view bytes) {
  return stele::detail::masked_crc(stele::detail::crc32c(0, bytes.data(), bytes.size()));
}

/// Returns bytes in Snappy's format: only literals, of up to 60 bytes, or of any length with a length of three bytes.
inline std::string literals(std::string_view bytes, bool long_lengths = false) {
  std::string text = varint(bytes.size());
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t n = std::min<std::size_t>(bytes.size() - i, long_lengths ? 1 << 20 : 60);
    text += static_cast<char>(long_lengths ? 62 << 2 : (n - 1) << 2);
    if (long_lengths) text += u32(n - 1).substr(0, 3);
    text += bytes.substr(i, n);
    i += n;
  }
  return text;
}
inline std::string literals_of_snappy(std::string_view bytes) { return literals(bytes); }
/// Returns bytes in Snappy's format with copies: each of up to 64 bytes from any earlier position, found by trial.
inline std::string copies(std::string_view bytes) {
  std::string text = varint(bytes.size()), run;
  const auto end_run = [&] {
    if (!run.empty()) text += static_cast<char>((run.size() - 1) << 2) + run;
    run.clear();
  };
  for (std::size_t i = 0; i < bytes.size();) {
    std::size_t length = 0, distance = 0;
    for (std::size_t d = 1; d <= std::min<std::size_t>(i, 5000); ++d) {
      std::size_t n = 0;
      while (n < 64 && i + n < bytes.size() && bytes[i + n] == bytes[i + n - d]) ++n;
      if (n > length) length = n, distance = d;
    }
    if (length < 4) {
      run += bytes[i++];
      if (run.size() == 60) end_run();
      continue;
    }
    end_run();
    if (length <= 11 && distance < 2048) {
      text += static_cast<char>(1 | (length - 4) << 2 | distance >> 8 << 5);
      text += static_cast<char>(distance);
    } else {
      const bool wide = i % 2 != 0;
      text += static_cast<char>((length - 1) << 2 | (wide ? 3 : 2));
      text += u32(distance).substr(0, wide ? 4 : 2);
    }
    i += length;
  }
  end_run();
  return text;
}

/// The options for writing a table.
struct TableStyle {
  std::size_t block_entries = 8, restart_interval = 4;
  std::string (*compress)(std::string_view) = nullptr;
};

using TableEntries = std::vector<std::pair<std::string, std::string>>;

inline std::string block(const TableEntries& entries, std::size_t restart_interval) {
  std::string text, restarts, last;
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& [key, value] = entries[i];
    std::size_t shared = 0;
    if (i % restart_interval == 0) {
      restarts += u32(text.size());
      ++count;
    } else {
      while (shared < std::min(last.size(), key.size()) && last[shared] == key[shared]) ++shared;
    }
    text += varint(shared) + varint(key.size() - shared) + varint(value.size()) + key.substr(shared) + value;
    last = key;
  }
  return text + (count == 0 ? u32(0) + u32(1) : restarts + u32(count));
}

/// Appends a block with its trailer; returns the block's place.
inline std::string put_block(std::string& file, std::string content, const TableStyle& style) {
  char type = 0;
  if (style.compress != nullptr) content = style.compress(content), type = 1;
  const std::string place = varint(file.size()) + varint(content.size());
  content += type;
  file += content + u32(masked_crc(content));
  return place;
}

/// Returns a table with the entries in this order.
inline std::string table(const TableEntries& entries, const TableStyle& style = {}) {
  std::string file;
  TableEntries index;
  for (std::size_t i = 0; i < entries.size(); i += style.block_entries) {
    const std::size_t end = std::min(entries.size(), i + style.block_entries);
    const TableEntries part(entries.begin() + static_cast<std::ptrdiff_t>(i),
                            entries.begin() + static_cast<std::ptrdiff_t>(end));
    const std::string place = put_block(file, block(part, style.restart_interval), style);
    index.emplace_back(part.back().first, place);
  }
  const std::string metadata = put_block(file, block({}, 1), style);
  std::string footer = metadata + put_block(file, block(index, 1), style);
  footer.resize(40);
  return file + footer + "\x57\xfb\x80\x8b\x24\x75\x47\xdb";
}

/// Returns a table of one block with this content.
inline std::string table_of_block(const std::string& content, const std::string& last_key,
                                  const TableStyle& style = {}) {
  std::string file;
  const std::string place = put_block(file, content, style);
  const std::string metadata = put_block(file, block({}, 1), {});
  std::string footer = metadata + put_block(file, block({{last_key, place}}, 1), {});
  footer.resize(40);
  return file + footer + "\x57\xfb\x80\x8b\x24\x75\x47\xdb";
}

/// The fields of BundleEntryProto.
struct Entry {
  std::uint64_t dtype = 1;
  std::vector<std::uint64_t> shape{};
  std::uint64_t shard = 0, offset = 0, size = 0;
  std::uint32_t crc = 0;              // masked
  std::vector<std::string> slices{};  // TensorSliceProto
  std::string text() const {
    std::string dims;
    for (const std::uint64_t n : shape) dims += message(2, n != 0 ? number(1, n) : "");
    std::string all = number(1, dtype) + message(2, dims);
    if (shard != 0) all += number(3, shard);
    if (offset != 0) all += number(4, offset);
    if (size != 0) all += number(5, size);
    all += varint(6 << 3 | 5) + u32(crc);
    for (const std::string& slice : slices) all += message(7, slice);
    return all;
  }
};

inline std::string header(std::uint64_t shards = 1, const std::string& more = message(3, number(1, 1))) {
  return number(1, shards) + more;
}

/// A checkpoint in memory: x.index and shards.
struct Files {
  TableEntries entries = {{"", header()}};
  std::vector<std::string> shards = {""};
  TableStyle style{};

  /// Appends elements to the first shard, and the entry of a tensor with them.
  Entry& add(const std::string& key, std::uint64_t dtype, std::vector<std::uint64_t> shape, const std::string& bytes) {
    Entry entry{dtype, std::move(shape), 0, shards[0].size(), bytes.size(), masked_crc(bytes)};
    shards[0] += bytes;
    tensors.emplace_back(key, std::move(entry));
    return tensors.back().second;
  }
  std::string index() const {
    TableEntries all = entries;
    for (const auto& [key, entry] : tensors) all.emplace_back(key, entry.text());
    std::sort(all.begin(), all.end());
    return table(all, style);
  }
  std::shared_ptr<stele::Bundle> bundle() const { return bundle_of(index(), shards); }

  static std::shared_ptr<stele::Bundle> bundle_of(std::string_view index, const std::vector<std::string>& shards) {
    const auto bundle = stele::memory_bundle();
    const auto put = [&](const std::string& name, std::string_view bytes) {
      const auto sink = bundle->create(name).value();
      sink->write(bytes_of(bytes)).value();
      sink->commit().value();
    };
    put("x.index", index);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      char name[64];
      std::snprintf(name, sizeof name, "x.data-%05zu-of-%05zu", i, shards.size());
      put(name, shards[i]);
    }
    return bundle;
  }

  std::vector<std::pair<std::string, Entry>> tensors;
};

}  // namespace stele_test::tensor_bundle
