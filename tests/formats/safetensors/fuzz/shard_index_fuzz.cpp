// Opens bytes as the index of two shards with boxes, before its checksum, whole and in boxes; reads everything.
#include <stele/bundle.hpp>
#include <stele/recorders/safetensors.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/require.hpp"
#include "json/sealed.hpp"
#include "snapshot/shard_index.hpp"
#include "support/recorders.hpp"

namespace {

using namespace stele;
using namespace stele_test;
namespace shards = stele::detail::shards;

struct Part {
  Tensor<float, 2> a;
  std::vector<double> b;
};

/// `a` is cut by rows: one in `0`, two in `1`; `b` is in `1`.
std::shared_ptr<Bundle> two_files() {
  const auto bundle = memory_bundle();
  Part parts[] = {{Tensor<float, 2>::filled({1, 2}, 1.0F), {}}, {Tensor<float, 2>::filled({2, 2}, 2.0F), {1, 2, 3}}};
  for (int i = 0; i < 2; ++i) {
    const auto sink = bundle->create(std::to_string(i)).value();
    require(SafetensorsRecorder<>().save(parts[i], *sink).has_value());
  }
  return bundle;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::shared_ptr<Bundle> bundle = two_files();
  std::string text(reinterpret_cast<const char*>(data), size);
  detail::json::seal(text);
  const auto sink = bundle->create(shards::shard_index_name).value();
  require(sink->write(bytes_of(text)) && sink->commit());
  const SourcePtr folder = bundle_source(bundle);
  const LoadOptions options;
  for (const bool boxes : {false, true}) {
    shards::WantedBox wanted;
    if (boxes) {  // every tensor without its first and last index along the first axis
      wanted = [](std::string_view, std::span<const Extent> shape) -> std::optional<detail::Box> {
        if (shape.empty() || shape[0] < 2) return std::nullopt;
        detail::Box box{std::vector<Extent>(shape.size()), {shape.begin(), shape.end()}};
        box.start[0] = 1;
        box.length[0] -= 1;
        return box;
      };
    }
    const OpenContext context(options, {});
    const auto open = [&](const SourcePtr& shard) { return SafetensorsFormat().open(shard, context); };
    const auto opened = shards::open_shards(*folder, options.limits, open, wanted);
    if (!opened) continue;
    for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
      if (opened->leaf(i).byte_size() > 1'000'000) continue;  // a tensor without elements in any file
      const auto all = content(opened->leaf(i));
      require(!all || all->size() == opened->leaf(i).byte_size());
    }
  }
  return 0;
}
