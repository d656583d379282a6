// `stele`: looks at, converts, checks and compares model files. docs/guide/command.md.
#include <cstdio>
#include <exception>

#include "arguments.hpp"

namespace {

int fail(stele::command::Terminal& terminal, const stele::Error& error) {
  using namespace stele::command;
  using stele::Errc;
  if (terminal.json()) {
    Document(terminal, "stele.error/1").member("error", to_value(error));
  } else {
    terminal.flush();
    std::fprintf(stderr, "stele: %s\n",
                 error.code() == Errc::cancelled && interrupted() ? "interrupted" : error_text(error).c_str());
  }
  return interrupted() ? exit_interrupted : exit_failed;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace stele::command;
  try {
    install_signals();
    int status = exit_ok;
    const auto arguments = parse_arguments(prepare_console(argc, argv), status);
    if (!arguments) return status;
    Terminal terminal(arguments->common);
    try {
      const auto result = arguments->command(terminal);
      return result ? *result : fail(terminal, result.error());
    } catch (...) {
      return fail(terminal, stele::detail::error_of_exception());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stele: %s\n", safe(error.what()).c_str());
  }
  return exit_failed;
}
