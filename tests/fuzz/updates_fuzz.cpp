// Opens bytes as a weight update in one safetensors file, and applies it to a base, whole and in part.
#include <stele/deltas/updates.hpp>
#include <stele/recorders/safetensors.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fuzz/require.hpp"
#include "support/recorders.hpp"

namespace {

using namespace stele;
using namespace stele_test;

const Snapshot& base() {
  static const std::map<std::string, std::vector<float>> weights = [] {
    std::map<std::string, std::vector<float>> all{{"a", std::vector<float>(70)}, {"b", std::vector<float>(600)}};
    for (std::size_t i = 0; i < 600; ++i) all["b"][i] = static_cast<float>(i);
    return all;
  }();
  static const Snapshot snapshot = snapshot_of(weights).value();
  return snapshot;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto known = is_update(bytes);
  const auto applied = apply_update(base(), bytes);
  require(!applied || (known && *known));
  if (!applied) return 0;
  require(applied->leaf_count() == base().leaf_count());
  for (std::size_t i = 0; i < applied->leaf_count(); ++i) {
    const LeafView leaf = applied->leaf(i);
    std::string part(40, '\0');
    const Status first = leaf.read(8, std::as_writable_bytes(std::span(part)));
    const auto all = content(leaf);
    require(first.has_value() == all.has_value());
    if (!all) continue;
    require(all->size() == leaf.byte_size() && all->substr(8, 40) == part);
    require(leaf.read(8, std::as_writable_bytes(std::span(part))).has_value() && all->substr(8, 40) == part);
  }
  return 0;
}
