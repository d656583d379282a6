#include <stele/record.hpp>

class Base {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Base, weight)
};
class Derived : Base {
  stele::Param<stele::Tensor<float, 2>> more;
  STELE_MODULE_DERIVED(Derived, (Base), more)
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
// EXPECT: a base of this module is private, or occurs twice: inherit publicly
// EXPECT: Derived
