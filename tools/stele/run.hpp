// One run of the command.
#pragma once

#include <string>
#include <vector>

namespace stele::command {

/// Runs a command line, whose first word is the program, and returns the exit status. `output` receives the text for
/// standard output; null: the command prints it. One run at a time.
int run(const std::vector<std::string>& words, std::string* output = nullptr);

}  // namespace stele::command
