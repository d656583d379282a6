// Opens bytes as a model, and reads everything. The bytes up to the first zero byte are the graph, the others the
// constants.
#include <stele/recorders/openvino.hpp>

#include "fuzz/target.hpp"

void stele_test::fuzz(std::string_view input) {
  const std::size_t zero = std::min(input.find('\0'), input.size());
  const auto files =
      files_of({{"m.xml", input.substr(0, zero)}, {"m.bin", input.substr(std::min(zero + 1, input.size()))}});
  const stele::OpenvinoRecorder<> recorder;
  const auto opened = recorder.open(files->open("m.xml").value());
  read_small(opened);
  if (opened) static_cast<void>(recorder.open(files->open("m.bin").value()));
}
