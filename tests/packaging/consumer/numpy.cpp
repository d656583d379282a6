// One recorder alone: NumPy.
#include <stele/recorders/numpy.hpp>

#include "model.hpp"

int main() {
  const stele::NpzRecorder<> recorder;
  recorder.save(make_model(), "one.npz").value();
  check(recorder.load<Model>("one.npz").value(), "one.npz");
  return 0;
}
