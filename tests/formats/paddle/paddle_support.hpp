// Recorders, models and files that the tests of Paddle share.
#pragma once

#include <stele/bundle.hpp>
#include <stele/recorders/paddle.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/models.hpp"
#include "support/paddle.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace stele_test::paddle {

using namespace std::string_literals;
using stele::DType;
using stele::LoadOptions;
using stele::PaddleFormat;
using stele::PaddleNames;
using stele::PaddleOptions;
using stele::PaddleRecorder;
using stele::PaddleVariable;
using stele::Tensor;

inline std::string paddle_golden(const std::string& name) { return test_data("paddle") + "/" + name; }

inline PaddleRecorder<> by(PaddleOptions options) { return PaddleRecorder<>(PaddleFormat(std::move(options))); }
inline const PaddleRecorder<> plain;
inline const PaddleRecorder<> counting = by({.names = PaddleNames::counter});

/// The bytes of what is saved.
template <class M>
inline std::string file_of(const PaddleRecorder<>& recorder, const M& module) {
  return std::string(text_of(good(saved(recorder, module)).span()));
}

inline stele::SourcePtr own(std::string_view text) {
  stele::Bytes bytes(text.size());
  std::copy(text.begin(), text.end(), reinterpret_cast<char*>(bytes.data()));
  return stele::own_bytes(std::move(bytes));
}

/// A layout of names alone.
inline LoadOptions named_as(const std::vector<std::string>& names) {
  LoadOptions options;
  options.layout.emplace();
  for (const std::string& name : names) options.layout->tensors.push_back({name});
  return options;
}

inline std::map<std::string, std::string> files_in(const stele::Bundle& bundle) {
  std::map<std::string, std::string> files;
  for (const std::string& name : good(bundle.names())) {
    const auto source = good(bundle.open(name));
    std::string& text = files[name];
    text.resize(static_cast<std::size_t>(source->size()));
    good(source->read_at(0, std::as_writable_bytes(std::span(text))));
  }
  return files;
}

struct Fc {
  Tensor<float, 2> w;
  Tensor<float, 1> b;
  STELE_MODULE(Fc, w, b)
};
struct Net {
  Fc fc;
  STELE_MODULE(Net, fc)
};
struct List {
  std::vector<Fc> layers;
};
struct Other {
  Tensor<float, 2> other;
};
struct Half {
  Tensor<stele::float16, 2> w;
};
struct WithValue {
  Tensor<float, 1> w;
  std::string label;
  STELE_MODULE(WithValue, w, label)
};
struct Two {
  Tensor<float, 1> a;
  Tensor<float, 0> b;
};
inline Net net() { return {{Tensor<float, 2>({2, 3}, {0, 1, 2, 3, 4, 5}), vec({9, 8, 7})}}; }

/// The same file in the order of the class: fc.w, fc.b.
inline std::string declared_file() {
  const std::string sorted = small_paddle_file();
  return sorted.substr(36) + sorted.substr(0, 36);
}

inline std::vector<PaddleVariable> net_program() { return {{"fc.b", DType::f32, {3}}, {"fc.w", DType::f32, {2, 3}}}; }

}  // namespace stele_test::paddle
