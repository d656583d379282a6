// Opens bytes as a file of Caffe, reads everything, loads modules.
#include <stele/recorders/read_only.hpp>

#include "fuzz/target.hpp"

void stele_test::fuzz(std::string_view file) {
  const stele::CaffeRecorder<> recorder;
  static_cast<void>(recorder.format().recognises(bytes_of(file), file.size()));
  read_file(recorder, file, file.size());
}
