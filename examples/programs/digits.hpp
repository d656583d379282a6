// The digits classifier that examples/data/train_digits.py trains in PyTorch, as a C++ class, and its test images.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stele/stele.hpp"

using Vector = std::vector<float>;

// A class with private members: the macro lists the recorded fields.
class Linear {
 public:
  Vector operator()(const Vector& x) const {
    calls_.fetch_add(1, std::memory_order_relaxed);
    const auto [outputs, inputs] = weight->shape();
    Vector y(outputs, 0.0F);
    for (std::size_t o = 0; o < outputs; ++o) {
      for (std::size_t i = 0; i < inputs; ++i) y[o] += (*weight)(o, i) * x[i];
      if (bias) y[o] += (**bias)[o];
    }
    return y;
  }

 private:
  stele::Param<stele::Tensor<float, 2>> weight;
  std::optional<stele::Param<stele::Tensor<float, 1>>> bias;  // hidden.1 was trained without one
  mutable std::atomic<std::uint64_t> calls_{0};               // not listed, so not recorded

  STELE_MODULE(Linear, weight, bias)

 public:
  Linear() = default;
  Linear(Linear&& other) noexcept : weight(std::move(other.weight)), bias(std::move(other.bias)) {}
};

// Plain aggregates need no macro: tensors, modules, numbers and strings are recorded.
struct Normalize {
  std::vector<float> mean;
  std::vector<float> scale;
};

enum class Activation { relu };

struct Digits {
  Normalize normalize;
  std::vector<Linear> hidden;
  Linear head;
  Activation activation = Activation::relu;

  int operator()(const std::uint8_t* pixels) const {
    Vector x(normalize.mean.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = (static_cast<float>(pixels[i]) - normalize.mean[i]) * normalize.scale[i];
    }
    for (const Linear& layer : hidden) {
      x = layer(x);
      for (float& v : x) v = std::max(v, 0.0F);
    }
    x = head(x);
    return static_cast<int>(std::max_element(x.begin(), x.end()) - x.begin());
  }
};

struct Images {
  std::size_t count = 0;
  std::vector<std::uint8_t> pixels;  // count × 64
  std::vector<std::uint8_t> labels;
};

// Magic "DIGITS1\n", u32 count, u32 pixels per image (little-endian), pixels, labels.
inline std::optional<Images> read_images(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<std::uint8_t, 16> head{};
  file.read(reinterpret_cast<char*>(head.data()), head.size());
  const auto u32 = [&](std::size_t at) {
    return head[at] | (std::size_t{head[at + 1]} << 8) | (std::size_t{head[at + 2]} << 16);
  };
  if (!file || u32(12) != 64) return std::nullopt;
  Images images{u32(8), {}, {}};
  images.pixels.resize(images.count * 64);
  images.labels.resize(images.count);
  file.read(reinterpret_cast<char*>(images.pixels.data()), static_cast<std::streamsize>(images.pixels.size()));
  file.read(reinterpret_cast<char*>(images.labels.data()), static_cast<std::streamsize>(images.labels.size()));
  return file ? std::optional(std::move(images)) : std::nullopt;
}

inline double accuracy(const Digits& model, const Images& images) {
  std::size_t right = 0;
  for (std::size_t i = 0; i < images.count; ++i) right += model(&images.pixels[i * 64]) == images.labels[i] ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(images.count);
}

/// Returns the largest difference of any parameter of two models.
inline double largest_error(const Digits& a, const Digits& b) {
  const stele::Snapshot left = stele::snapshot_of(a).value();
  const stele::Snapshot right = stele::snapshot_of(b).value();
  double largest = 0;
  for (std::size_t i = 0; i < left.leaf_count(); ++i) {
    std::vector<float> x(left.leaf(i).size());
    std::vector<float> y(x.size());
    left.leaf(i).read(0, std::as_writable_bytes(std::span(x))).value();
    right.leaf(i).read(0, std::as_writable_bytes(std::span(y))).value();
    for (std::size_t k = 0; k < x.size(); ++k) largest = std::max(largest, std::fabs(double{x[k]} - double{y[k]}));
  }
  return largest;
}
