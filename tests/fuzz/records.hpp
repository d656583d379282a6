// Shared by the fuzz targets of formats whose files store all parts of a record.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include <stele/composite.hpp>

#include "fuzz/require.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace stele_test {

/// Loads modules of two classes, which may fail. `total_bytes`: the limit of their tensors, or 0.
inline void load_leniently(const stele::Snapshot& snapshot, std::uint64_t total_bytes = 0) {
  stele::LoadOptions options;
  options.allow_missing = options.allow_unused = {"*"};
  options.convert = {true, true};
  options.limits.total_bytes = total_bytes;
  static_cast<void>(stele::load<std::map<std::string, stele::Tensor<float>>>(snapshot, options));
  static_cast<void>(stele::load<Branch>(snapshot, options));
}

/// Returns true if the first element of each quantized weight can be read: parts that are whole may contradict each
/// other.
inline bool composites_agree(const stele::Snapshot& snapshot) {
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const stele::LeafView leaf = snapshot.leaf(i);
    std::array<std::byte, sizeof(float)> element{};
    if (leaf.byte_size() >= element.size() && stele::composite(leaf) && !leaf.read(0, element)) return false;
  }
  return true;
}

/// Saves, opens and saves again; checks that the content is the same, and from then on the bytes. A snapshot must have
/// the parts of quantized weights, which may contradict each other.
template <class R>
void save_twice(const R& recorder, const stele::Snapshot& snapshot) {
  const stele::Capabilities& can = recorder.format().capabilities();
  const auto again = saved(recorder, snapshot);
  require(again.has_value());
  const auto opened = recorder.open(*again);
  require(opened.has_value());
  const auto back = stele::split_composites(*opened);
  require(back.has_value());
  require(difference(facts(snapshot, can), facts(*back, can)).empty());
  const auto twice = saved(recorder, *back);
  require(twice && text_of(twice->span()) == text_of(again->span()));
}

}  // namespace stele_test
