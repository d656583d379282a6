// One recorder alone: Paddle's parameter files.
#include <stele/recorders/paddle.hpp>

#include "model.hpp"

int main() {
  const stele::PaddleRecorder<> recorder;
  recorder.save(make_model(), "one.pdiparams").value();
  Model model = make_model();  // the file says no names: those of a live model, or of a type that leaves none open
  recorder.load_into(model, "one.pdiparams").value();
  check(model, "one.pdiparams");
  return 0;
}
