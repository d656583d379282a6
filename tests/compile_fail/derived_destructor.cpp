// std::unique_ptr would destroy the base alone.
#include <stele/derived.hpp>

class Layer {
 public:
  virtual int kind() const = 0;
};
class Dense : public Layer {
 public:
  int kind() const override { return 1; }
  stele::Tensor<float, 2> weight;
  STELE_MODULE(Dense, weight)
};
template <>
struct stele::derived<Layer> : stele::derived_list<Dense> {};
struct Model {
  std::unique_ptr<Layer> layer;
};

auto save(const Model& m) { return stele::snapshot_of(m); }
// EXPECT: a std::unique_ptr<Base> needs a virtual destructor of Base
// EXPECT: Layer
