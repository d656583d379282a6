// Opens bytes as a model of llama2.c, reads everything, loads modules.
#include <stele/recorders/read_only.hpp>

#include "fuzz/target.hpp"

void stele_test::fuzz(std::string_view file) {
  const stele::Llama2cRecorder<> recorder;
  static_cast<void>(recorder.format().recognises(bytes_of(file), file.size()));
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) return;
  load_all(*opened);
  read_leaves(*opened, 4 * file.size());  // a code of one byte becomes an f32
}
