// Opens bytes as a delta in a .stele file, as they are and with all hashes made right; applies it to a base, whole and
// in part, joins it with itself and with its base's other deltas.
#include <stele/delta.hpp>
#include <stele/recorders/binary.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fuzz/require.hpp"
#include "support/recorders.hpp"
#include "support/stele_file.hpp"

namespace {

using namespace stele;
using namespace stele_test;
using Weights = std::map<std::string, std::vector<float>>;

Weights weights(float changed) {
  Weights all{{"a", std::vector<float>(70)}, {"b", std::vector<float>(600)}, {"c", std::vector<float>(5, 1)}};
  for (std::size_t i = 0; i < 600; ++i) all["b"][i] = static_cast<float>(i);
  all["b"][30] = all["b"][599] = changed;
  for (float& x : all["a"]) x = changed;
  return all;
}

void read_all(const Snapshot& snapshot) {
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    if (leaf.byte_size() > 1'000'000) continue;
    const auto all = content(leaf);
    std::string part(static_cast<std::size_t>(leaf.byte_size()), '\0');
    const Status read = leaf.read(0, std::as_writable_bytes(std::span(part)));
    require(!all || (read && part == *all));
  }
}

void check(const std::string& file) {
  static const Weights base = weights(0), next = weights(7);
  static const Snapshot from = snapshot_of(base).value(), to = snapshot_of(next).value();
  static const Snapshot there = make_delta(from, to).value(), back = make_delta(to, from).value();
  const auto delta = BinaryRecorder<>().open(bytes_of(file));
  if (!delta) return;
  const bool valid = delta_info(*delta).has_value();
  const bool verified = BinaryRecorder<>().verify(bytes_of(file)).has_value();
  const auto applied = apply_delta(from, *delta);
  if (!valid) return require(!applied && (!verified || !delta->metadata().contains("stele.delta")));
  if (applied) {
    read_all(*applied);
    if (const auto saved_again = saved(BinaryRecorder<>(), *applied)) {
      require(BinaryRecorder<>().verify(*saved_again).has_value());
    }
  }
  for (const Snapshot* second : {&there, &back, &*delta}) {
    const auto merged = merge_deltas(*delta, *second);
    if (!merged) continue;
    read_all(*merged);
    if (const auto both = apply_delta(from, *merged)) read_all(*both);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  check(file);
  fix_hashes(file);
  check(file);
  return 0;
}
