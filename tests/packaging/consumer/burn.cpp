// One recorder alone: Burn's records and Burnpack.
#include <stele/recorders/burn.hpp>

#include "model.hpp"

int main() {
  const stele::BurnRecorder<> recorder;
  const stele::BurnpackRecorder<> pack;
  recorder.save(make_model(), "one.mpk").value();
  recorder.save(make_model(), "one.bin.gz").value();
  pack.save(make_model(), "one.bpk").value();
  check(recorder.load<Model>("one.mpk").value(), "one.mpk");
  check(recorder.load<Model>("one.bin.gz").value(), "one.bin.gz");
  check(pack.load<Model>("one.bpk").value(), "one.bpk");
  return 0;
}
