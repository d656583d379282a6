// Opens bytes as the index of a set of safetensors files that lies in memory, reads everything, saves it again.
#include <stele/bundle.hpp>

#include <array>
#include <cstdint>
#include <string>

#include "fuzz/require.hpp"
#include "support/recorders.hpp"

namespace {

using namespace stele;
using namespace stele_test;

struct Two {
  std::array<float, 2> a{1, 2};
  std::array<double, 1> b{3};
};

/// `a` in x-00001-of-00002.safetensors, `b` in x-00002-of-00002.safetensors.
std::shared_ptr<Bundle> two_files() {
  const auto bundle = memory_bundle();
  const Two two;
  const auto index = bundle->create("x.safetensors.index.json").value();
  require(ShardedSafetensorsRecorder<>(ShardedSafetensorsFormat(1)).save(two, *index).has_value());
  return bundle;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::shared_ptr<Bundle> bundle = two_files();
  const auto sink = bundle->create("index").value();
  require(sink->write(std::as_bytes(std::span(data, size))) && sink->commit());
  const ShardedSafetensorsRecorder<> recorder;
  const auto opened = recorder.open(bundle->open("index").value());
  if (!opened) return 0;
  require(opened->leaf_count() <= 2);
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const auto all = content(opened->leaf(i));
    require(all && all->size() == opened->leaf(i).byte_size());
  }
  LoadOptions options;
  options.allow_missing = options.allow_unused = {"*"};
  static_cast<void>(load<Two>(*opened, options));

  const auto place = memory_bundle();
  const auto again = place->create("y.safetensors.index.json").value();
  if (!recorder.save(*opened, *again)) return 0;  // metadata of the key total_size
  const auto back = recorder.open(place->open("y.safetensors.index.json").value());
  require(back && back->leaf_count() == opened->leaf_count());
  return 0;
}
