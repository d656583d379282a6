// A class in the list whose fields are not listed: they would not be saved.
#include <stele/derived.hpp>

class Layer {
 public:
  virtual ~Layer() = default;
  stele::Tensor<float, 1> scale;
  STELE_MODULE(Layer, scale)
};
class Dense : public Layer {
 public:
  stele::Tensor<float, 2> weight;
};
template <>
struct stele::derived<Layer> : stele::derived_list<Dense> {};
struct Model {
  std::unique_ptr<Layer> layer;
};

auto save(const Model& m) { return stele::snapshot_of(m); }
// EXPECT: a class in the list of stele::derived<Base> has no field list: give it STELE_MODULE or STELE_MODULE_DERIVED
// EXPECT: ListedClass<Layer, Dense>
