// Opens bytes as a folder of zarr in memory: files, each a byte with the length of its name, the name, two bytes with
// the length of its content, and the content. Reads everything, saves again.
#include <stele/bundle.hpp>
#include <stele/recorders/zarr.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fuzz/require.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

using namespace stele;
using namespace stele_test;

namespace {

/// Takes a string from the front, after `bytes` bytes with its length.
std::string_view taken(std::string_view& from, std::size_t bytes) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < bytes && !from.empty(); ++i) {
    size = size << 8 | static_cast<unsigned char>(from[0]);
    from.remove_prefix(1);
  }
  const std::string_view text = from.substr(0, size);
  from.remove_prefix(text.size());
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto folder = memory_bundle();
  while (!input.empty()) {
    const std::string_view name = taken(input, 1), content = taken(input, 2);
    const auto file = folder->create(name);
    if (!file) continue;
    static_cast<void>((*file)->write(std::as_bytes(std::span(content))));
    static_cast<void>((*file)->commit());
  }
  const ZarrRecorder<> recorder;
  const auto opened = recorder.open(bundle_source(folder));
  if (!opened) return 0;
  // A few bytes may declare gigabytes of fill values.
  constexpr std::uint64_t max_bytes = std::uint64_t{1} << 20;
  if (opened->byte_size() > max_bytes) return 0;
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const LeafView leaf = opened->leaf(i);
    const auto all = content(leaf);
    require(!all || all->size() == leaf.byte_size());
    const std::size_t item = std::max<std::size_t>(element_size(leaf.dtype()), 1);
    if (!all) continue;
    const std::size_t begin = all->size() / item / 2 * item;
    std::string half(all->size() - begin, '\0');
    require(leaf.read(begin, std::as_writable_bytes(std::span(half))).has_value());
    require(half == all->substr(begin));
  }
  const auto target = memory_bundle();
  const auto sink = bundle_sink(target);
  SaveOptions options;
  options.allow_loss = true;
  if (!recorder.save(*opened, *sink, options)) return 0;
  const auto again = recorder.open(bundle_source(target));
  require(again.has_value());
  return 0;
}
