// A base's field stands at the level of the derived class.
#include <stele/record.hpp>

class Base {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Base, weight)
};
class Derived : public Base {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE_DERIVED(Derived, (Base), weight)
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
// EXPECT: two recorded fields of this module have the same name
// EXPECT: Derived
