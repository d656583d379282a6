// One recorder alone: Keras' files.
#include <stele/record.hpp>
#include <stele/recorders/keras.hpp>

#include "model.hpp"

int main() {
  const stele::KerasRecorder<> recorder;
  recorder.save(make_model(), "one.keras").value();
  check(stele::from_record<Model>(recorder.load<stele::Record<Model>>("one.keras").value()).value(), "Keras");
  return 0;
}
