// All processes run all cases in the same order; a failure in one of them fails the run.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <mpi.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int result = doctest::Context(argc, argv).run();
  MPI_Finalize();
  return result;
}
