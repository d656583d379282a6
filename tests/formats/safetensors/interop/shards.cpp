// Sharded safetensors files for and from tests/formats/safetensors/interop/shards.py.
#include <stele/stele.hpp>

#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

namespace {

struct Layer {
  stele::Tensor<float, 2> weight;
};
struct Model {
  std::map<std::string, Layer> layers;
};

Model model(std::size_t count) {
  Model m;
  for (std::size_t i = 1; i <= count; ++i) {
    stele::Tensor<float, 2> t({i, 3});
    for (std::size_t k = 0; k < t.size(); ++k) t.data()[k] = static_cast<float>(i) + static_cast<float>(k) / 4;
    m.layers[std::to_string(i)] = {std::move(t)};
  }
  return m;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s write|read FOLDER\n", argv[0]);
    return 2;
  }
  const std::string path = std::string(argv[2]) + "/model.safetensors.index.json";
  const Model here = model(9);
  if (argv[1] == std::string("write")) {
    std::filesystem::create_directories(argv[2]);
    stele::SaveOptions options;
    options.metadata = {{"note", "caf\u00e9"}};
    const stele::ShardedSafetensorsRecorder<> recorder(stele::ShardedSafetensorsFormat(200));
    recorder.save(here, path, options).value();
    return 0;
  }
  const Model there = stele::load<Model>(path).value();
  bool same = here.layers.size() == there.layers.size();
  for (const auto& [name, layer] : here.layers) {
    const auto found = there.layers.find(name);
    same = same && found != there.layers.end() && found->second.weight.size() == layer.weight.size();
    for (std::size_t k = 0; same && k < layer.weight.size(); ++k) {
      same = found->second.weight.data()[k] == layer.weight.data()[k];
    }
  }
  std::printf("%s: %zu tensors, %s\n", path.c_str(), there.layers.size(), same ? "as expected" : "DIFFERENT");
  return same ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
