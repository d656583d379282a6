// STELE_MODULE where STELE_MODULE_DERIVED was meant: the base's fields would vanish.
#include <stele/record.hpp>

class Base {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Base, weight)
};
class Derived : public Base {
  stele::Param<stele::Tensor<float, 2>> more;
  STELE_MODULE(Derived, more)
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
// EXPECT: a base of this class has a field list, and this class's list does not name the base
// EXPECT: STELE_MODULE_DERIVED.Class, .Base., fields
// EXPECT: Derived
