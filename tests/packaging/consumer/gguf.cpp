// One recorder alone: GGUF, with a matrix in blocks.
#include <stele/precision/blocks.hpp>
#include <stele/record.hpp>
#include <stele/recorders/gguf.hpp>

#include "model.hpp"

int main() {
  const stele::GgufRecorder<> recorder;
  recorder.save(make_model(), "one.gguf").value();
  check(stele::from_record<Model>(recorder.load<stele::Record<Model>>("one.gguf").value()).value(), "gguf");
  return stele::encodable(stele::ggml::q4_K) ? 0 : 1;
}
