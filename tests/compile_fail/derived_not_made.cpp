// A class in the list without a default constructor and without a hook.
#include <stele/derived.hpp>

class Layer {
 public:
  virtual ~Layer() = default;
};
class Dense : public Layer {
 public:
  explicit Dense(int);
  stele::Tensor<float, 2> weight;
  STELE_MODULE(Dense, weight)
};
template <>
struct stele::derived<Layer> : stele::derived_list<Dense> {};
struct Model {
  std::shared_ptr<Layer> layer;
};

auto save(const Model& m) { return stele::snapshot_of(m); }
// EXPECT: a class in the list of stele::derived<Base> cannot be made: it needs a public default constructor
// EXPECT: ListedClass<Layer, Dense>
