// A class derived from a listed one has no list of its own.
#include <stele/record.hpp>

class Base {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Base, weight)
};
class Derived : public Base {
 public:
  Derived();
  stele::Param<stele::Tensor<float, 2>> more;
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
// EXPECT: this type cannot be recorded: give it a field list
// EXPECT: Derived
