// A record of a temporary takes its tensors, which a const one does not allow.
#include <stele/record.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};

const Linear make();
auto f() { return stele::record_of(make()); }
auto g() { return stele::snapshot_of(Linear{}); }
// EXPECT: no matching function for call to .record_of|use of deleted function
// EXPECT: is_lvalue_reference_v
// EXPECT: deleted
