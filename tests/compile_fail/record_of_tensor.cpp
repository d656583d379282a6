// A tensor alone is loaded, but has no record.
#include <stele/recorders/binary.hpp>

#include <vector>

auto load(const stele::BinaryRecorder<>& recorder) {
  return recorder.load<stele::Record<std::vector<float>>>("weights.stele");
}
// EXPECT: only a module has a Record: a tensor, value or container alone is loaded with load<T>
