// Models and checks of the tests that every recorder passes.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/random_model.hpp"

namespace recorder_models {

using namespace stele;
using namespace stele_test;

using Floats = Tensor<float, 1>;

inline Floats floats(std::initializer_list<float> values) { return Floats({values.size()}, values); }

class Layer {
 public:
  Param<Tensor<float, 2>> weight;
  std::optional<Param<Floats>> bias;
  int unlisted = 7;
  STELE_MODULE(Layer, weight, bias)
};

inline Layer layer(std::size_t rows, std::size_t columns, float first, bool bias) {
  Layer l;
  l.weight = Tensor<float, 2>({rows, columns});
  for (std::size_t i = 0; i < l.weight->size(); ++i) (*l.weight)[i] = first + static_cast<float>(i);
  if (bias) l.bias = Floats::filled({rows}, first);
  return l;
}

struct Model {
  std::vector<Layer> layers;
  std::map<std::string, Tensor<double>> heads;
  std::variant<Nothing, Layer> act;
  std::shared_ptr<Floats> embedding, unembedding;
  std::int64_t step = 0;
  std::string note;
  STELE_MODULE(Model, layers, heads, act, embedding, unembedding, step, note)
};

inline Model model() {
  Model m;
  m.layers.push_back(layer(3, 4, 1, true));
  m.layers.push_back(layer(2, 3, -5, false));
  m.heads.emplace("mean", Tensor<double>({2}, {0.5, -0.25}));
  m.heads.emplace("scale", Tensor<double>(Shape{}, {3.5}));
  m.act = layer(1, 1, 9, true);
  m.embedding = m.unembedding = std::make_shared<Floats>(floats({1, 2, 3}));
  m.step = -42;
  m.note = "trained";
  return m;
}

/// Everything that is recorded of two modules is the same, bit by bit.
template <class M>
void check_same(const M& a, const M& b, const Capabilities& can) {
  const auto before = snapshot_of(a);
  const auto after = snapshot_of(b);
  REQUIRE_MESSAGE(before, why(before));
  REQUIRE_MESSAGE(after, why(after));
  Capabilities nested = can;
  nested.nesting = true;
  CHECK(difference(facts(*before, nested), facts(*after, nested)) == "");
}

template <class M>
M reloaded(const AnyRecorder& recorder, const M& module, const LoadOptions& options = {}) {
  auto bytes = saved(recorder, module);
  REQUIRE_MESSAGE(bytes, why(bytes));
  auto loaded = recorder.load<M>(*bytes, options);
  REQUIRE_MESSAGE(loaded, why(loaded));
  return *std::move(loaded);
}

template <class T>
void check_bits(const T& a, const T& b) {
  REQUIRE(a.shape() == b.shape());
  CHECK(text_of(std::as_bytes(a.span())) == text_of(std::as_bytes(b.span())));
}

}  // namespace recorder_models
