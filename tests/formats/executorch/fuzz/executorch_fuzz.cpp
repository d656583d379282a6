// Opens bytes as a data file and as a program of ExecuTorch, reads everything, and saves it as a data file.
#include <stele/recorders/executorch.hpp>

#include "fuzz/target.hpp"

void stele_test::fuzz(std::string_view file) {
  const auto check = [&](const stele::Result<stele::Snapshot>& opened) {
    if (!opened) return;
    load_all(*opened);
    read_leaves(*opened, file.size() * (1 + opened->leaf_count()));  // tensors may share bytes
    save_again(stele::PtdRecorder<>(), *opened, false);
  };
  check(stele::PtdRecorder<>().open(bytes_of(file)));
  check(stele::PteRecorder<>().open(bytes_of(file)));
}
