#include <stele/record.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  int flags : 3;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT: stele_finds_a_bit_field_or_an_anonymous_union_list_the_fields_with_STELE_MODULE
// EXPECT: Linear
