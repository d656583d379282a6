// Opens bytes as a file of MXNet, reads everything, loads modules, saves again.
#include <stele/recorders/mxnet.hpp>

#include "fuzz/target.hpp"

void stele_test::fuzz(std::string_view file) {
  using stele::MxnetNames;
  const auto opened = read_file(stele::MxnetRecorder<>(), file, file.size());
  if (!opened) return;
  for (const MxnetNames names : {MxnetNames::plain, MxnetNames::prefixed}) {
    save_again(stele::MxnetRecorder<>(stele::MxnetFormat({.names = names})), *opened, names == MxnetNames::plain);
  }
}
