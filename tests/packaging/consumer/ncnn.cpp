// One recorder alone: models of ncnn, which it only reads.
#include <stele/recorders/read_only.hpp>

#include <span>
#include <string_view>

#include "opened.hpp"

int main() {
  const auto files = stele::memory_bundle();
  put(*files, "one.param", "7767517\n2 2\nInput in 0 1 in\nBias add 1 1 in add 0=1\n");
  put(*files, "one.bin", std::string_view("\x00\x00\x00\x40", 4));
  const stele::NcnnRecorder<> recorder;
  const stele::Snapshot opened = recorder.open(files->open("one.param").value()).value();
  check(opened, "add.bias", {2.0F});
  return 0;
}
