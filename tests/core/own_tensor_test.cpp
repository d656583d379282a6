// Tensor classes of a program: without memory, of any rank.
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <vector>

#include "support/models.hpp"
#include "support/temp_dir.hpp"

namespace own_tensor_test {

struct Array {
  std::vector<stele::Extent> extents;
  std::vector<float> elements;
};

}  // namespace own_tensor_test

template <>
struct stele::tensor_traits<own_tensor_test::Array> {
  using Array = own_tensor_test::Array;
  using element = float;
  static constexpr int rank = dynamic_rank;
  static Shape shape(const Array& a) { return {a.extents.begin(), a.extents.end()}; }
  static const float* data(const Array& a) { return a.elements.data(); }
  static float* data(Array& a) { return a.elements.data(); }
  static void resize(Array& a, const Shape& s) {
    a.extents.assign(s.begin(), s.end());
    a.elements.resize(static_cast<std::size_t>(*s.element_count()));
  }
  static bool unset(const Array& a) { return a.extents.empty() && a.elements.empty(); }
};

namespace own_tensor_test {

using namespace stele_test;

struct Model {
  Array weight, scale;
};

TEST_CASE("own tensor: any rank, into a new and an existing object") {
  const TempDir dir;
  const Model saved{{{2, 3}, {1, 2, 3, 4, 5, 6}}, {{}, {0.5F}}};
  good(stele::save(saved, dir / "m.safetensors"));
  Model filled;
  good(stele::load_into(filled, dir / "m.safetensors"));
  for (const Model& model : {good(stele::load<Model>(dir / "m.safetensors")), filled}) {
    CHECK(model.weight.extents == saved.weight.extents);
    CHECK(model.weight.elements == saved.weight.elements);
    CHECK(model.scale.extents.empty());
    CHECK(model.scale.elements == saved.scale.elements);
  }
}

TEST_CASE("own tensor: a shape with elements, but no memory") {
  const TempDir dir;
  const stele::Error error = bad(stele::save(Model{{{2, 3}, {}}, {{}, {1}}}, dir / "m.safetensors"));
  CHECK(error.code() == stele::Errc::invalid_argument);
  CHECK(error.path() == "weight");
  CHECK(error.message() == "the tensor has no memory: data() of its tensor_traits returns null");
  CHECK(error.found() == "a null pointer, and a shape with elements");
}

}  // namespace own_tensor_test
