// Braces could be the rows of a matrix, or a shape and its elements.
#include <stele/tensor.hpp>

stele::Tensor<float, 2> rows{{1, 2}, {3, 4}};
// EXPECT: deleted
// EXPECT: nested_braces
// LINES-GCC: 10
