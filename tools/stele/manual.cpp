#include "manual.hpp"

#include <CLI/CLI.hpp>

namespace stele::command {

std::string manual_page(const CLI::App& app) { return app.help(); }
std::string completion_script(const CLI::App& app, const std::string& shell) { return shell + app.get_name(); }

}  // namespace stele::command
