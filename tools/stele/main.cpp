// `stele`: looks at, converts, checks and compares model files. docs/guide/command.md.
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "arguments.hpp"

namespace {

/// Replaces the library's names of options in a message by the command's.
std::string with_flags(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> names[] = {
      {"set SaveOptions::allow_loss", "pass --allow-loss"},
      {"pass SaveOptions::allow_loss", "pass --allow-loss"},
      {"set LoadOptions::layout, or load into a type", "pass --names FILE"},
      {"ConvertRules::allow_overflow", "--allow-overflow"},
      {"set PytorchOptions::part", "pass --part PATH"},
      {"see stele::formats()", "see stele formats"},
  };
  for (const auto& [from, to] : names) {
    if (const std::size_t at = text.find(from); at != text.npos) text.replace(at, from.size(), to);
  }
  return text;
}

int fail(stele::command::Terminal& terminal, const stele::Error& error) {
  using namespace stele::command;
  if (terminal.json()) {
    Document(terminal, "stele.error/1").member("error", to_value(error));
  } else {
    terminal.flush();
    std::fprintf(stderr, "stele: %s\n", with_flags(safe(error.to_string())).c_str());
  }
  return interrupted() ? exit_interrupted : exit_failed;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace stele::command;
  try {
    install_signals();
    int status = exit_ok;
    const auto arguments = parse_arguments(argc, argv, status);
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
