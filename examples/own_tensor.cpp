// Records a tensor class of the program unchanged: traits describe its shape and its elements.
#include <cstdio>
#include <vector>

#include <stele/stele.hpp>

struct Matrix {  // existing code
  std::size_t rows = 0, columns = 0;
  std::vector<float> elements;
};

template <>
struct stele::tensor_traits<Matrix> {
  using element = float;
  static constexpr int rank = 2;
  static Shape shape(const Matrix& m) { return {m.rows, m.columns}; }
  static const float* data(const Matrix& m) { return m.elements.data(); }
  static float* data(Matrix& m) { return m.elements.data(); }
  static void resize(Matrix& m, const Shape& s) { m = {s[0], s[1], std::vector<float>(s[0] * s[1])}; }
};

struct Model {
  std::vector<Matrix> weights;
};

int main() {
  stele::save(Model{{Matrix{2, 3, {1, 2, 3, 4, 5, 6}}}}, "model.safetensors").value();
  const Model again = stele::load<Model>("model.safetensors").value();
  const Matrix& weight = again.weights[0];
  std::printf("%zu x %zu, last element %g\n", weight.rows, weight.columns, double{weight.elements[5]});
}

// Output:
// 2 x 3, last element 6
