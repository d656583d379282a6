#include "run.hpp"

#include <cstdio>
#include <exception>

#include <stele/plugin.hpp>

#include "arguments.hpp"

namespace stele::command {

namespace {

int report_failure(Terminal& terminal, const Error& error) {
  if (terminal.json()) {
    Document(terminal, "stele.error/1").member("error", command::to_value(error));
  } else {
    terminal.flush();
    std::fprintf(stderr, "stele: %s\n",
                 error.code() == Errc::cancelled && interrupted() ? "interrupted" : error_text(error).c_str());
  }
  return interrupted() ? exit_interrupted : exit_failed;
}

}  // namespace

int run(const std::vector<std::string>& words, std::string* output) {
  forget_models();
  try {
    int status = exit_ok;
    const auto arguments = parse_arguments(words, output, status);
    if (!arguments) return status;
    Terminal terminal(arguments->common);
    try {
      for (const std::string& plugin : arguments->common.plugins) {
        if (const auto loaded = load_plugin(plugin); !loaded) return report_failure(terminal, loaded.error());
      }
      const auto result = arguments->command(terminal);
      return result ? *result : report_failure(terminal, result.error());
    } catch (...) {
      return report_failure(terminal, detail::error_of_exception());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stele: %s\n", safe(error.what()).c_str());
  }
  return exit_failed;
}

}  // namespace stele::command
