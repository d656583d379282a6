#include <stele/record.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  volatile float flag;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT: a plain aggregate with a volatile field cannot be recorded: list the fields to record with STELE_MODULE
// EXPECT: Linear
