// Opens bytes as a model of whisper.cpp, reads everything, loads modules.
#include <stele/recorders/read_only.hpp>

#include "fuzz/target.hpp"

void stele_test::fuzz(std::string_view file) {
  const auto opened = stele::WhisperRecorder<>().open(bytes_of(file));
  if (!opened) return;
  load_all(*opened);
  read_leaves(*opened, file.size());
}
