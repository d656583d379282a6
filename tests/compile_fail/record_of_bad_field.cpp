// The same by way of a typed record.
#include <stele/record.hpp>

#include <functional>

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::function<void()> callback;
  STELE_MODULE(Linear, weight, callback)
};

auto load(const stele::Snapshot& s) { return stele::load<Linear>(s); }
// EXPECT-FIRST-GCC: "callback".*Linear
// EXPECT-FIRST-CLANG: callback.*Linear
// EXPECT-FIRST: this field cannot be recorded
