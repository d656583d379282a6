// Models shared by several tests, and helpers to inspect them.
#pragma once

#include <stele/module.hpp>
#include <stele/record.hpp>
#include <stele/snapshot.hpp>
#include <stele/tensor.hpp>
#include <stele/value.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stele_test {

using Vec = stele::Param<stele::Tensor<float, 1>>;
using Mat = stele::Param<stele::Tensor<float, 2>>;
using Paths = std::vector<std::string>;

inline stele::Tensor<float, 1> vec(std::initializer_list<float> numbers) { return {{numbers.size()}, numbers}; }

/// Returns a matrix of rows × columns numbers: first, first + 1, …
inline stele::Tensor<float, 2> mat(std::size_t rows, std::size_t columns, float first) {
  stele::Tensor<float, 2> t({rows, columns});
  std::iota(t.begin(), t.end(), first);
  return t;
}

class Linear {
 public:
  Linear() = default;
  Linear(std::size_t in, std::size_t out, float first, bool with_bias = true)
      : weight(mat(out, in, first)), in_features(in) {
    if (with_bias) bias = Vec(stele::Tensor<float, 1>::filled({out}, first));
  }
  Mat weight;
  std::optional<Vec> bias;
  std::size_t in_features = 0;  // not listed
  STELE_MODULE(Linear, weight, bias)
};

struct Mlp {
  std::vector<Linear> layers;
  stele::Tensor<float, 1> scale;
  int seed = 0;
};

inline Mlp small_mlp(float first = 1) {
  Mlp m;
  m.layers.emplace_back(3, 4, first);
  m.layers.emplace_back(4, 2, first + 100, false);
  m.scale = vec({first, 2, 3});
  return m;
}

/// Tensors and modules with two names each.
struct TiedLayers {
  std::shared_ptr<Vec> embedding;
  Vec middle;
  std::shared_ptr<Vec> head;
  std::shared_ptr<Linear> encoder, decoder;
  STELE_MODULE(TiedLayers, embedding, middle, head, encoder, decoder)
};
inline TiedLayers tied_layers(float n) {
  TiedLayers t;
  t.embedding = t.head = std::make_shared<Vec>(vec({n, n}));
  t.middle = vec({n});
  t.encoder = t.decoder = std::make_shared<Linear>(2, 2, n);
  return t;
}

/// Returns the value of a Result. If there is none, the test fails with the error's text.
template <class T>
T good(stele::Result<T> result) {
  if (!result) FAIL(result.error().to_string());
  return *std::move(result);
}
inline void good(const stele::Status& status) {
  if (!status) FAIL(status.error().to_string());
}
/// Returns the error of a Result, which must have one.
template <class T>
stele::Error bad(const stele::Result<T>& result) {
  REQUIRE_FALSE(result.has_value());
  return result.error();
}

/// Returns the options with a report.
inline stele::LoadOptions reporting(stele::LoadOptions options, stele::Report& report) {
  options.report = &report;
  return options;
}

template <class M>
stele::Snapshot snapshot(const M& module) {
  return good(stele::snapshot_of(module));
}

/// Returns one line for each node except the root: "tensor layers.0.weight".
inline std::string outline(const stele::Snapshot& s) {
  std::string text;
  for (std::uint32_t i = 1; i < s.nodes().size(); ++i) {
    text += std::string(name(s.nodes()[i].kind)) + " " + s.path(i) + "\n";
  }
  return text;
}
template <class M>
std::string outline(const M& module) {
  return outline(good(stele::snapshot_of(module)));
}

/// Returns the paths of all tensors, in order.
template <class M>
std::vector<std::string> tensor_paths(const M& module) {
  std::vector<std::string> paths;
  good(stele::for_each_param(module, [&](const std::string& path, const stele::LeafView&) { paths.push_back(path); }));
  return paths;
}

/// A copy of everything that a module records: names, kinds, dtypes, shapes, ids, values and bytes.
struct Image {
  std::string text;
  std::vector<stele::Value> values;
  bool operator==(const Image&) const = default;
};
inline Image image(const stele::Snapshot& s) {
  Image all{outline(s), {}};
  for (const stele::Node& node : s.nodes()) {
    if (node.kind == stele::NodeKind::value) all.values.push_back(s.value(node));
  }
  for (std::size_t i = 0; i < s.leaf_count(); ++i) {
    const stele::LeafView leaf = s.leaf(i);
    all.text += std::string(name(leaf.dtype())) + stele::to_string(leaf.shape());
    if (const auto id = leaf.id()) {
      all.text += "#" + std::to_string(static_cast<int>(id->form)) + ":" + std::to_string(id->high) + ":" +
                  std::to_string(id->low);
    }
    std::string bytes(static_cast<std::size_t>(leaf.byte_size()), '\0');
    good(leaf.read(0, std::as_writable_bytes(std::span(bytes))));
    all.text += "=" + bytes;
  }
  return all;
}
template <class M>
Image image(const M& module) {
  return image(good(stele::snapshot_of(module)));
}

}  // namespace stele_test
