#include <stele/record.hpp>

struct Base {
  stele::Param<stele::Tensor<float, 2>> weight;
};
struct Derived : Base {
  stele::Param<stele::Tensor<float, 2>> more;
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
// EXPECT: a plain aggregate with base classes cannot be recorded
// EXPECT: STELE_MODULE_DERIVED
// EXPECT: Derived
