// cereal::defer would leave data out of the value.
#include <stele/cereal.hpp>
#include <stele/record.hpp>

class Late {
 public:
  Late() = default;
  int n = 0;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(cereal::defer(n));
  }
};
struct Model {
  Late late;
  STELE_MODULE(Model, late)
};

auto save(const Model& m) { return stele::snapshot_of(m); }
// EXPECT: stele: cereal::defer cannot be part of a value
