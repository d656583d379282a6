// One recorder alone: ExecuTorch's data files.
#include <stele/record.hpp>
#include <stele/recorders/executorch.hpp>

#include "model.hpp"

int main() {
  const stele::PtdRecorder<> recorder;
  recorder.save(make_model(), "one.ptd").value();
  check(stele::from_record<Model>(recorder.load<stele::Record<Model>>("one.ptd").value()).value(), "ExecuTorch");
  return 0;
}
