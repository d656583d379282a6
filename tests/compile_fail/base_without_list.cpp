#include <stele/record.hpp>

class Base {
 public:
  stele::Param<stele::Tensor<float, 2>> weight;
};
class Derived : public Base {
  stele::Param<stele::Tensor<float, 2>> more;
  STELE_MODULE_DERIVED(Derived, (Base), more)
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
// EXPECT: a base class of a module has no field list: give it STELE_MODULE
// EXPECT: Base
