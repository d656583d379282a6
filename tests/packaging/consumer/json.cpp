// One recorder alone: JSON.
#include <stele/recorders/json.hpp>

#include "model.hpp"

int main() {
  const stele::JsonRecorder<> recorder;
  for (const char* path : {"one.json", "one.json.gz", "one.json.zst"}) {
    recorder.save(make_model(), path).value();
    check(recorder.load<Model>(path).value(), path);
  }
  return 0;
}
