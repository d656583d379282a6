// A class that cannot be moved is made by the caller.
#include <stele/record.hpp>

#include <mutex>

struct Net {
  std::mutex busy;
  stele::Tensor<float, 2> weight;
  STELE_MODULE(Net, weight)
};

auto load(const stele::Snapshot& s) { return stele::load<Net>(s); }
// EXPECT-FIRST: this class cannot be moved .it has a mutex, an atomic, or a deleted move., so load cannot return it
// LINES-GCC: 10
// LINES-CLANG: 15
