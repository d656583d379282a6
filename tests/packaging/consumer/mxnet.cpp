// One recorder alone: MXNet's files.
#include <stele/record.hpp>
#include <stele/recorders/mxnet.hpp>

#include "model.hpp"

int main() {
  const stele::MxnetRecorder<> recorder;
  recorder.save(make_model(), "one.params").value();
  check(stele::from_record<Model>(recorder.load<stele::Record<Model>>("one.params").value()).value(), "MXNet");
  return 0;
}
