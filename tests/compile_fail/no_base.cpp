#include <stele/record.hpp>

class Other {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Other, weight)
};
class Derived {
  stele::Param<stele::Tensor<float, 2>> more;
  STELE_MODULE_DERIVED(Derived, (Other), more)
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
// EXPECT: STELE_MODULE_DERIVED names a class that is not a base of this one
// EXPECT: Derived
