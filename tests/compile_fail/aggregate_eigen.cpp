#include <stele/record.hpp>

#include <Eigen/Core>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  Eigen::MatrixXf matrix;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT-FIRST-GCC: "matrix".*Linear
// EXPECT-FIRST-CLANG: matrix.*Linear
// EXPECT-FIRST: this looks like a type of Eigen: include stele/eigen.hpp
// LINES-GCC: 10
// LINES-CLANG: 15
