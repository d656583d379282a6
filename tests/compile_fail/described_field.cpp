// A field listed with Boost.Describe that cannot be recorded.
#include <stele/record.hpp>

#include <boost/describe/class.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  void* audit;
};
BOOST_DESCRIBE_STRUCT(Linear, (), (weight, audit))

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "audit".*Linear
// EXPECT-FIRST-CLANG: Linear::audit
// EXPECT-FIRST: a raw pointer cannot be recorded
