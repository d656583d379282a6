// One recorder alone: models of ncnn, which it only reads.
#include <stele/bundle.hpp>
#include <stele/recorders/read_only.hpp>

#include <cstddef>
#include <cstdlib>
#include <span>
#include <string_view>

#include "model.hpp"

namespace {

void put(stele::Bundle& files, std::string_view name, std::string_view content) {
  const auto file = files.create(name).value();
  file->write(std::as_bytes(std::span(content))).value();
  file->commit().value();
}

}  // namespace

int main() {
  const auto files = stele::memory_bundle();
  put(*files, "one.param", "7767517\n2 2\nInput in 0 1 in\nBias add 1 1 in add 0=1\n");
  put(*files, "one.bin", std::string_view("\x00\x00\x00\x40", 4));
  const stele::NcnnRecorder<> recorder;
  const stele::Snapshot opened = recorder.open(files->open("one.param").value()).value();
  const auto bias = opened.find("add.bias");
  float element[1]{};
  if (!bias || !bias->read(0, std::as_writable_bytes(std::span(element)))) return EXIT_FAILURE;
  return element[0] == 2 ? EXIT_SUCCESS : EXIT_FAILURE;
}
