// What the sources of interop_torch have in common; the folder with Python's files is in STELE_TORCH_FILES.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "stele/stele.hpp"
#include "stele/torch.hpp"

#undef CHECK  // of libtorch's logging
#include <doctest/doctest.h>

namespace nn = ::torch::nn;

struct NetImpl : nn::Module {
  NetImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("head", head);
    scale = register_buffer("scale", ::torch::zeros({3}, ::torch::kDouble));
  }
  ::torch::Tensor forward(::torch::Tensor x) {
    x = ::torch::relu(norm(conv(std::move(x))));
    return head->forward(x.flatten(1)) * scale;
  }
  nn::Conv2d conv{nn::Conv2dOptions(2, 4, 3).bias(false)};
  nn::BatchNorm2d norm{4};
  nn::Sequential head{nn::Linear(4 * 6 * 6, 8), nn::ReLU(), nn::Linear(8, 3)};
  ::torch::Tensor scale;
};
TORCH_MODULE(Net);

inline std::string folder() {
  const char* path = std::getenv("STELE_TORCH_FILES");
  if (path == nullptr) throw std::runtime_error("STELE_TORCH_FILES is not set: make torch");
  return std::string(path) + "/";
}

inline ::torch::Tensor read(const stele::Snapshot& file, const char* name) {
  const stele::LeafView leaf = file.find(name).value();
  const std::vector<std::int64_t> sizes(leaf.shape().begin(), leaf.shape().end());
  ::torch::Tensor t = ::torch::empty(sizes, leaf.dtype() == stele::DType::f64 ? ::torch::kDouble : ::torch::kFloat);
  leaf.read(0, {static_cast<std::byte*>(t.data_ptr()), leaf.byte_size()}).value();
  return t;
}

inline bool equal_state(const nn::Module& a, const nn::Module& b) {
  const auto equal = [](const auto& x, const auto& y) {
    if (x.size() != y.size()) return false;
    for (const auto& item : x) {
      if (!::torch::equal(item.value(), y[item.key()])) return false;
    }
    return true;
  };
  return equal(a.named_parameters(), b.named_parameters()) && equal(a.named_buffers(), b.named_buffers());
}
