// One of three bases is not named; it is the base of a class without a list.
#include <stele/record.hpp>

struct First {
  stele::Param<stele::Tensor<float, 2>> first;
};
BOOST_DESCRIBE_STRUCT(First, (), (first))
struct Second {
  stele::Param<stele::Tensor<float, 2>> second;
  STELE_MODULE(Second, second)
};
struct Between : First {};
class Derived : public Between, public Second {
  stele::Param<stele::Tensor<float, 2>> more;
  STELE_MODULE_DERIVED(Derived, (Second), more)
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
// EXPECT: a base of this class has a field list, and this class's list does not name the base
// EXPECT: Derived
