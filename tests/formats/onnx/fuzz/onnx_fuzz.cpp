// Opens bytes as an ONNX model, and reads everything. What was read is written as a new model, which reads the same.
#include <cstdint>
#include <span>
#include <string>

#include "fuzz/require.hpp"
#include "stele/recorders/onnx.hpp"
#include "support/recorders.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stele;
  using namespace stele_test;
  const OnnxRecorder<> recorder;
  const auto opened = recorder.open(std::as_bytes(std::span(data, size)));
  if (!opened) {
    require(opened.error().code() != Errc::out_of_memory);
    return 0;
  }
  std::string before;
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const auto all = content(opened->leaf(i));
    if (!all) return 0;  // varints are checked when they are read
    before += *all;
  }
  const auto again = saved(recorder, *opened);
  if (!again) return 0;  // a name that is not UTF-8
  const auto back = recorder.open(*again);
  require(back.has_value() && back->leaf_count() == opened->leaf_count());
  std::string after;
  for (std::size_t i = 0; i < back->leaf_count(); ++i) {
    const auto all = content(back->leaf(i));
    require(all.has_value());
    after += *all;
  }
  require(after == before);
  return 0;
}
