// Opens bytes as a TensorFlow checkpoint in memory, by each kind of names, and reads everything. The first byte tells
// what the other bytes are, because checksums would hide most of the reader from random bytes:
//
//   0  the index
//   1  the table's only block; its checksum is right
//   2  the same, compressed by Snappy
//   3  the graph of objects, up to the first 0xff; then keys and entries, each after a byte with its length
//
// The shard has all the bytes.
#include <stele/bundle.hpp>
#include <stele/recorders/tensorflow.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fuzz/require.hpp"
#include "support/recorders.hpp"
#include "support/tensor_bundle.hpp"

namespace {

using namespace stele;
using namespace stele_test;
using namespace stele_test::tensor_bundle;

/// Takes a string from the front, after a byte with its length.
std::string taken(std::string_view& from) {
  if (from.empty()) return {};
  const auto size = std::min<std::size_t>(static_cast<unsigned char>(from[0]), from.size() - 1);
  std::string text(from.substr(1, size));
  from.remove_prefix(1 + size);
  return text;
}

std::string index_of(unsigned char mode, std::string_view bytes, std::string& shard) {
  if (mode == 0) return std::string(bytes);
  if (mode == 1) return table_of_block(std::string(bytes), std::string(1000, '\xff'));
  if (mode == 2) {
    // As compressed bytes, whatever they are.
    static thread_local std::string compressed;
    compressed = bytes;
    return table_of_block("", std::string(1000, '\xff'), {.compress = [](std::string_view) { return compressed; }});
  }
  TableEntries entries = {{"", header()}};
  const std::string graph(bytes.substr(0, bytes.find('\xff')));
  bytes.remove_prefix(std::min(graph.size() + 1, bytes.size()));
  const std::string lengths = u32(graph.size()), crc = u32(masked_crc(lengths));
  Entry entry{7, {}, 0, shard.size()};
  entry.crc = masked_crc(lengths + crc + graph);
  const std::string stored = varint(graph.size()) + crc + graph;
  entry.size = stored.size();
  shard += stored;
  entries.emplace_back("_CHECKPOINTABLE_OBJECT_GRAPH", entry.text());
  while (!bytes.empty()) {
    std::string key = taken(bytes);
    entries.emplace_back(std::move(key), taken(bytes));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  entries.erase(std::unique(entries.begin(), entries.end(), same), entries.end());
  return table(entries);
}

void read_all(const Snapshot& snapshot, std::uint64_t max_bytes) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    total += leaf.byte_size();
    require(total <= max_bytes);  // no byte belongs to two tensors
    std::string bytes(static_cast<std::size_t>(leaf.byte_size()), '\0');
    require(leaf.read(0, std::as_writable_bytes(std::span(bytes))).has_value());
    const auto checked = content(leaf);
    require(checked ? *checked == bytes : checked.error().code() == Errc::checksum || leaf.dtype() == DType::opaque);
    const std::size_t half = bytes.size() / 32 * 16;
    std::string part(bytes.size() - half, '\0');
    require(leaf.read(half, std::as_writable_bytes(std::span(part))).has_value());
    require(part == bytes.substr(half));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string shard(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string index = index_of(data[0], bytes, shard);
  const auto bundle = Files::bundle_of(index, {shard});
  std::size_t leaves = 0;
  for (const auto names : {TensorBundleNames::keys, TensorBundleNames::objects, TensorBundleNames::variables}) {
    const TensorBundleRecorder<> recorder(TensorBundleFormat({.names = names}));
    const auto opened = recorder.open_checkpoint(bundle->open("x.index").value());
    if (!opened) {
      require(opened.error().code() != Errc::out_of_memory);
      if (names == TensorBundleNames::keys) return 0;
      continue;
    }
    std::size_t count = opened->parameters.leaf_count();
    read_all(opened->parameters, shard.size());
    for (const auto& [kind, arrays] : opened->optimizer.kinds()) {
      read_all(arrays, shard.size());
      count += arrays.leaf_count();
    }
    if (names == TensorBundleNames::keys) leaves = count;
    require(count == leaves);  // no name leaves a tensor out
  }
  return 0;
}
