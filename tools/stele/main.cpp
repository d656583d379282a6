// `stele`: looks at, converts, checks and compares model files. docs/guide/command.md.
#include <cstdio>

#include "console.hpp"
#include "model.hpp"
#include "run.hpp"

int main(int argc, char** argv) {
  const auto status = stele::detail::guarded([&]() -> stele::Result<int> {
    stele::command::install_signals();
    stele::command::watch_interrupts();
    return stele::command::run(stele::command::prepare_console(argc, argv));
  });
  if (!status) std::fprintf(stderr, "stele: %s\n", status.error().to_string().c_str());
  return status.value_or(2);
}
