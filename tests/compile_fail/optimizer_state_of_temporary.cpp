// A kind of state borrows its module, so that must live on.
#include <stele/optimizer_state.hpp>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};

auto f(stele::OptimizerState& state) { return state.set("M", Linear{}); }
// EXPECT: set.*deleted|deleted.*set
// EXPECT: deleted function|deleted member function
