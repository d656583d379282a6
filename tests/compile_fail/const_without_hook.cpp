// A const member is recorded; loading it needs a hook.
#include <stele/record.hpp>

struct Linear {
  const stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};

auto load(const stele::Snapshot& s) { return stele::load<Linear>(s); }
// EXPECT: this module needs a default constructor and no const members, or a static
// EXPECT: from_record.stele::Record<M>&&
// EXPECT: Linear
