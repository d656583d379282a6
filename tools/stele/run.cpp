#include "run.hpp"

#include <cstdio>

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
  const auto ended = detail::guarded([&]() -> Result<int> {
    int status = exit_ok;
    const auto arguments = parse_arguments(words, output, status);
    if (!arguments) return status;
    Terminal terminal(arguments->common);
    const auto result = detail::guarded([&]() -> Result<int> {
      for (const std::string& plugin : arguments->common.plugins) STELE_TRY(load_plugin(plugin));
      return arguments->command(terminal);
    });
    return result ? *result : report_failure(terminal, result.error());
  });
  if (ended) return *ended;
  std::fprintf(stderr, "stele: %s\n", safe(ended.error().message()).c_str());
  return exit_failed;
}

}  // namespace stele::command
