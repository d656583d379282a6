// The workloads of docs/performance.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "stele/recorders/gguf.hpp"
#include "stele/recorders/numpy.hpp"
#include "stele/recorders/pytorch.hpp"
#include "stele/stele.hpp"

namespace workload {

/// Fills `numbers` with numbers as small as weights, in a fraction of the time of std::normal_distribution.
inline void fill(std::span<float> numbers, std::uint64_t seed) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15U + 1;
  for (float& number : numbers) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    number = (static_cast<float>(x >> 40) - 8388608.0F) * 1e-8F;
  }
}

template <std::size_t Rank>
stele::Tensor<float, static_cast<int>(Rank)> tensor(const std::array<stele::Extent, Rank>& shape) {
  stele::Tensor<float, static_cast<int>(Rank)> made(shape);
  fill(made.span(), made.size());
  return made;
}

struct Linear {
  stele::Tensor<float, 2> weight;
  stele::Tensor<float, 1> bias;
};
struct Norm {
  stele::Tensor<float, 1> weight;
  stele::Tensor<float, 1> bias;
};
struct Attention {
  Linear c_attn;
  Linear c_proj;
};
struct Feedforward {
  Linear c_fc;
  Linear c_proj;
};
struct Block {
  Norm ln_1;
  Attention attn;
  Norm ln_2;
  Feedforward mlp;
};

/// W1: the shapes of GPT-2 small, 148 tensors, 498 MB.
struct Gpt2 {
  stele::Tensor<float, 2> wte;
  stele::Tensor<float, 2> wpe;
  std::vector<Block> h;
  Norm ln_f;
};

inline Gpt2 gpt2() {
  const auto linear = [](stele::Extent in, stele::Extent out) {
    return Linear{tensor<2>({in, out}), tensor<1>({out})};
  };
  const auto norm = [] { return Norm{tensor<1>({768}), tensor<1>({768})}; };
  Gpt2 made{tensor<2>({50257, 768}), tensor<2>({1024, 768}), {}, norm()};
  for (int i = 0; i < 12; ++i) {
    made.h.push_back({norm(), {linear(768, 2304), linear(768, 768)}, norm(), {linear(768, 3072), linear(3072, 768)}});
  }
  return made;
}

/// W2: 20,000 tensors of 64 to 1024 numbers, 43 MB. W3: one of 2 GiB.
struct List {
  std::vector<stele::Tensor<float, 1>> tensors;
};

inline List many(std::size_t count) {
  List made;
  std::minstd_rand engine(1);
  for (std::size_t i = 0; i < count; ++i) made.tensors.push_back(tensor<1>({64 + engine() % 961}));
  return made;
}

inline List single(std::size_t bytes) {
  List made;
  made.tensors.push_back(tensor<1>({bytes / sizeof(float)}));
  return made;
}

/// W4: 200 scalars, strings and small vectors.
class Section {
 public:
  std::int64_t steps = 1000;
  double rate = 3e-4;
  bool enabled = true;
  std::uint32_t width = 768;
  std::string name = "transformer.block";
  std::string path = "/data/corpora/english/2024/part";
  std::vector<std::string> tags{"train", "frozen", "a"};
  std::vector<float> betas{0.9F, 0.95F, 0.999F};
  STELE_MODULE(Section, steps, rate, enabled, width, name, path, tags, betas)
};
struct Config {
  std::vector<Section> sections = std::vector<Section>(25);
};

/// Returns the memory of every tensor, in order.
inline std::vector<std::span<const std::byte>> pieces(const stele::Snapshot& snapshot) {
  std::vector<std::span<const std::byte>> found;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) found.push_back(snapshot.leaf(i).view());
  return found;
}

}  // namespace workload
