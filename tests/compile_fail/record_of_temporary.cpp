// A record borrows, so the module must live on.
#include <stele/record.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};

auto f() { return stele::record_of(Linear{}); }
// EXPECT: record_of.*deleted|deleted.*record_of
// EXPECT-GCC: use of deleted function
// EXPECT-CLANG: call to deleted function 'record_of'
