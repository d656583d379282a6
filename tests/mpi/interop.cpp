// Exchanges checkpoints with torch.distributed.checkpoint (tests/formats/pytorch/interop/dcp.py):
//   mpi_interop write FOLDER     saves a model with the split `rows`
//   mpi_interop read PATH        loads a checkpoint of PyTorch into several splits, and compares it
#include <cstdio>
#include <cstring>

#include "mpi/support.hpp"

namespace {

using namespace mpi_test;

struct Net {
  Sharded<float> a, b;
  Sharded<double> c;
  STELE_MODULE(Net, a, b, c)
};
Net net(Cut cut) {
  const int r = rank_of(MPI_COMM_WORLD), n = size_of(MPI_COMM_WORLD);
  return {box_of<float>({13, 4}, cut, r, n), box_of<float>({6}, cut, r, n), box_of<double>({5, 3, 2}, cut, r, n)};
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int failed = 0;
  if (std::strcmp(argv[1], "write") == 0) {
    Net model = net(Cut::rows);
    fill(model.a, 1), fill(model.b, 2), fill(model.c, 3);
    mpi::Options options = quick();
    if (argc > 3) options.files = static_cast<unsigned>(std::atoi(argv[3]));
    if (auto saved = mpi::save(model, argv[2], MPI_COMM_WORLD, options); !saved) {
      std::printf("%s\n", why(saved).c_str());
      failed = 1;
    }
  } else {
    for (const Cut cut : all_cuts) {
      Net model = net(cut);
      const auto loaded = mpi::load_into(model, argv[2], MPI_COMM_WORLD, quick());
      if (!loaded || !has(model.a, 1) || !has(model.b, 2) || !has(model.c, 3)) {
        std::printf("%s: split %d: %s\n", argv[2], static_cast<int>(cut), why(loaded).c_str());
        failed = 1;
      }
    }
  }
  MPI_Finalize();
  return failed;
}
