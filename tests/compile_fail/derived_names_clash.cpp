// Two classes of one name: files could not tell them apart.
#include <stele/derived.hpp>

class Layer {
 public:
  virtual ~Layer() = default;
};
template <class T>
class Dense : public Layer {
 public:
  stele::Tensor<T, 2> weight;
  STELE_MODULE(Dense, weight)
};
template <>
struct stele::derived<Layer> : stele::derived_list<Dense<float>, Dense<double>> {};
struct Model {
  std::unique_ptr<Layer> layer;
};

auto save(const Model& m) { return stele::snapshot_of(m); }
// EXPECT: two classes in the list of stele::derived<Base> have the same name: give one a stele::attr::type_name
