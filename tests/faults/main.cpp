// The program of all tests in this folder; says at the end what was done.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "harness.hpp"

int main(int argc, char** argv) {
  // Files in memory where that can be: a disk is waited for whenever a file is replaced.
  if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 0);
  const int result = doctest::Context(argc, argv).run();
  const stele_faults::Totals& all = stele_faults::totals;
  std::printf("faults: %zu calls counted; %zu failed, %zu done in part, %zu killed; %zu files lost\n", all.calls,
              all.failures, all.partial, all.kills, all.lost);
  return all.lost != 0 ? EXIT_FAILURE : result;
}
