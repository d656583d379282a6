// Opens bytes as a file of Flax, reads everything, loads modules, saves again, in parts too.
#include <stele/recorders/flax.hpp>

#include "fuzz/target.hpp"

void stele_test::fuzz(std::string_view file) {
  const stele::FlaxRecorder<> recorder, in_parts(stele::FlaxFormat({.part_bytes = 16}));
  const auto opened = read_file(recorder, file, file.size());
  if (!opened) return;
  save_again(recorder, *opened);
  save_again(in_parts, *opened);
}
