#include <stele/record.hpp>

#include <array>
#include <variant>

template <class T>
struct Layer {
  std::array<T, 2> weight;
};
struct Model {
  std::variant<Layer<float>, Layer<double>> layer;
};

auto save(const Model& m) { return stele::snapshot_of(m); }
// EXPECT: two alternatives of a std::variant have the same name: name them with stele::attributes
