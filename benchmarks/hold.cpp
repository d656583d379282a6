// Measures how long a background save blocks the training loop, relative to a memcpy of the model's bytes in the same
// run.
#include <stele/checkpoints/manager.hpp>
#include <stele/stele.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

namespace {

using namespace stele;

struct Model {
  std::vector<Tensor<float>> layers;
};
Model model_of(std::size_t layers) {
  Model model;
  for (std::size_t i = 0; i < layers; ++i) model.layers.push_back(Tensor<float>::filled({1024, 1024}, 1.0F));
  return model;
}

template <class Work>
double seconds(Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main() {
  const Model model = model_of(64), m = model_of(32), v = model_of(32);  // 512 MiB in 128 tensors
  const Checkpoint checkpoint = checkpoint_of(model, StateKind("M", m), StateKind("V", v)).value();
  std::vector<const Tensor<float>*> all;
  for (const Model* part : {&model, &m, &v}) {
    for (const auto& layer : part->layers) all.push_back(&layer);
  }
  const std::size_t bytes = all.size() * all[0]->size() * sizeof(float);
  const auto copy_to = [&](std::byte* to) {
    for (const auto* tensor : all) {
      std::memcpy(to, tensor->data(), tensor->size() * sizeof(float));
      to += tensor->size() * sizeof(float);
    }
  };
  const std::string folder = "hold-steps";
  std::filesystem::remove_all(folder);
  ManagerOptions options{.keep = keep::latest(1)};
  options.parts.file.durability = Durability::process;
  options.staging_bytes = 2 * bytes + 1'000'000;
  auto manager = CheckpointManager::open(folder, BinaryRecorder<>(), options).value();
  const auto save = [&](std::int64_t step) { return seconds([&] { manager.save_async(step, checkpoint).value(); }); };
  double fresh_copy = 0;
  Bytes to;
  fresh_copy = seconds([&] {
    to = Bytes(bytes);
    copy_to(to.data());
  });
  const double fresh = save(0);
  save(1);  // warms up the second block of memory
  manager.wait().value();
  std::vector<double> copies, idle, busy;
  for (int round = 0; round < 9; ++round) {
    copies.push_back(seconds([&] { copy_to(to.data()); }));
    idle.push_back(save(2 * round + 2));
    busy.push_back(save(2 * round + 3));  // while the previous step is being written
    manager.wait().value();
  }
  const double copy = median(copies);
  std::printf(
      "A background save of %zu MiB holds the loop for\n"
      "  %.2f x memcpy (%.1f GB/s)\n  %.2f x memcpy while the previous step is written\n"
      "  %.2f x memcpy into new memory, the first time\n",
      bytes >> 20, median(idle) / copy, static_cast<double>(bytes) / copy / 1e9, median(busy) / copy,
      fresh / fresh_copy);
  std::filesystem::remove_all(folder);
}
