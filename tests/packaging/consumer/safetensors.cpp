// One recorder alone: links stele::recorder_safetensors and includes no front door.
#include <stele/record.hpp>
#include <stele/recorders/safetensors.hpp>

#include "model.hpp"

int main() {
  const stele::SafetensorsRecorder<> recorder;
  recorder.save(make_model(), "one.safetensors").value();
  check(stele::from_record<Model>(recorder.load<stele::Record<Model>>("one.safetensors").value()).value(),
        "safetensors");
}
