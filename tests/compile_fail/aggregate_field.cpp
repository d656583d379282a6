// A field of a plain aggregate that cannot be recorded: the message shows its name and type.
#include <stele/record.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  void* audit;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT: a field of this module cannot be recorded
// EXPECT: Linear.*audit
// EXPECT: list the fields to record with STELE_MODULE
