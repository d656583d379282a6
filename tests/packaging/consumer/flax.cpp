// One recorder alone: Flax's files.
#include <stele/record.hpp>
#include <stele/recorders/flax.hpp>

#include "model.hpp"

int main() {
  const stele::FlaxRecorder<> recorder;
  recorder.save(make_model(), "one.msgpack").value();
  check(stele::from_record<Model>(recorder.load<stele::Record<Model>>("one.msgpack").value()).value(), "Flax");
  return 0;
}
