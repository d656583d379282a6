// One recorder alone: NNEF.
#include <stele/recorders/nnef.hpp>

#include "model.hpp"

int main() {
  const Model model = make_model();
  for (const auto container : {stele::NnefContainer::folder, stele::NnefContainer::tgz}) {
    const stele::NnefRecorder<> recorder(stele::NnefFormat({.container = container}));
    const std::string path = "one" + std::string(recorder.format().extension());
    recorder.save(model, path).value();
    check(recorder.load<Model>(path).value(), path.c_str());
  }
  return 0;
}
