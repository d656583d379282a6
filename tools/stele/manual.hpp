// The manual page and the completion scripts, made from the command line's own description.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace stele::command {

/// Returns the manual page in roff's man macros (man(7)).
std::string manual_page(const CLI::App& app);
/// Returns a completion script for `shell`: bash, zsh or fish.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace stele::command
