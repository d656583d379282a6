// `stele`: looks at, converts, checks and compares model files. docs/guide/command.md.
#include <cstdio>
#include <exception>

#include "console.hpp"
#include "model.hpp"
#include "run.hpp"

int main(int argc, char** argv) {
  try {
    stele::command::install_signals();
    stele::command::watch_interrupts();
    return stele::command::run(stele::command::prepare_console(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stele: %s\n", error.what());
  }
  return 2;
}
