#include <stele/record.hpp>

class Linear {
 public:
  Linear();
  stele::Param<stele::Tensor<float, 2>> weight;
  float& field;
  STELE_MODULE(Linear, weight, field)
};
// EXPECT: a field of module 'Linear' does not exist, or is a reference or a bit-field
// EXPECT: make it an ordinary member, or leave it out of the list
// EXPECT: bit-field|reference
