// The style sheet and the script of reports: report.css and report.js.
#pragma once

#include <string_view>

namespace stele::command {

extern const std::string_view report_css;
extern const std::string_view report_js;

}  // namespace stele::command
