// A class in the list that is not derived from the base.
#include <stele/derived.hpp>

class Layer {
 public:
  virtual ~Layer() = default;
};
class Dense {
 public:
  stele::Tensor<float, 2> weight;
  STELE_MODULE(Dense, weight)
};
template <>
struct stele::derived<Layer> : stele::derived_list<Dense> {};
struct Model {
  std::unique_ptr<Layer> layer;
};

auto save(const Model& m) { return stele::snapshot_of(m); }
// EXPECT: a class in the list of stele::derived<Base> is not publicly derived from Base
// EXPECT: ListedClass<Layer, Dense>
