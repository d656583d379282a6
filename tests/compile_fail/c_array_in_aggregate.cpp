#include <stele/record.hpp>

struct Table {
  stele::Param<stele::Tensor<float, 2>> weight;
  float numbers[4];
};

auto save(const Table& m) { return stele::snapshot_of(m); }
// EXPECT: a plain aggregate with a C array cannot be recorded: use std::array, or list the fields
// EXPECT: Table
// LINES-GCC: 12
// LINES-CLANG: 16
