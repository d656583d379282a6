// One recorder alone: saves the model in each of FILES and loads it. CMakeLists.txt defines HEADER, RECORDER and FILES.
#include <stele/record.hpp>
#include HEADER

#include "model.hpp"

int main() {
  const stele::RECORDER<> recorder;
  for (const char* path : {FILES}) {
    recorder.save(make_model(), path).value();
    check(recorder.load<Model>(path).value(), path);
    check(stele::from_record<Model>(recorder.load<stele::Record<Model>>(path).value()).value(), "its record");
  }
  return 0;
}
