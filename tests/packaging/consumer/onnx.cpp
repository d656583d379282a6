// One recorder alone: ONNX.
#include <stele/recorders/onnx.hpp>

#include "model.hpp"

int main() {
  const stele::OnnxRecorder<> recorder;
  recorder.save(make_model(), "one.onnx").value();
  check(recorder.load<Model>("one.onnx").value(), "one.onnx");
  const stele::OnnxRecorder<> into(stele::OnnxFormat({.model = "one.onnx"}));
  into.save(make_model(), "two.onnx").value();
  check(recorder.load<Model>("two.onnx").value(), "two.onnx");
  return 0;
}
