// std::formatter of Error, Errc and Report, for std::format and std::print. A separate header, because the standard
// header is slow to compile; it is empty if the standard library has no std::format.
#pragma once

#include <version>

#ifdef __cpp_lib_format
#include <format>
#include <string_view>

#include "stele/report.hpp"
#include "stele/result.hpp"

template <>
struct std::formatter<stele::Errc> : std::formatter<std::string_view> {
  auto format(stele::Errc code, auto& context) const { return formatter<string_view>::format(name(code), context); }
};
template <>
struct std::formatter<stele::Error> : std::formatter<std::string_view> {
  auto format(const stele::Error& error, auto& context) const {
    return formatter<string_view>::format(error.to_string(), context);
  }
};
template <>
struct std::formatter<stele::Report> : std::formatter<std::string_view> {
  auto format(const stele::Report& report, auto& context) const {
    return formatter<string_view>::format(report.to_string(), context);
  }
};
#endif
