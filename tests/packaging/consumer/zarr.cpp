// One recorder alone: zarr's folders.
#include <stele/record.hpp>
#include <stele/recorders/zarr.hpp>

#include "model.hpp"

int main() {
  const stele::ZarrRecorder<> recorder;
  recorder.save(make_model(), "one.zarr").value();
  check(stele::from_record<Model>(recorder.load<stele::Record<Model>>("one.zarr").value()).value(), "zarr");
  return 0;
}
