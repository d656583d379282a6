// The command line.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "commands.hpp"

namespace stele::command {

/// A parsed command line: the subcommand, bound to its options.
struct Arguments {
  Common common{};
  std::function<Result<int>(Terminal&)> command;
};

/// Parses the command line. Prints help, the version, completion scripts, the manual page, and messages about wrong
/// arguments; the exit status is then in `status`. `output`: Common::output.
std::optional<Arguments> parse_arguments(const std::vector<std::string>& words, std::string* output, int& status);

}  // namespace stele::command
