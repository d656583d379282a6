#include "base/reserved_names.hpp"

#include <algorithm>
#include <iterator>

namespace stele::inline v0::detail {

namespace {

constexpr std::string_view separators = "/\\";

char upper(char c) noexcept { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

/// Compares with an upper-case name.
bool is(std::string_view text, std::string_view name) noexcept {
  return std::equal(text.begin(), text.end(), name.begin(), name.end(), [](char a, char b) { return upper(a) == b; });
}

/// Removes the first part, and the separator after it.
std::string_view take_part(std::string_view& path) noexcept {
  const std::string_view part = path.substr(0, path.find_first_of(separators));
  path.remove_prefix(std::min(path.size(), part.size() + 1));
  return part;
}

bool is_separator(char c) noexcept { return separators.find(c) != separators.npos; }

}  // namespace

bool is_reserved(std::string_view part) noexcept {
  if (part.ends_with('.') || part.ends_with(' ')) return true;
  std::string_view stem = part.substr(0, part.find_first_of(".:"));  // NUL:.bin also names the device
  stem = stem.substr(0, stem.find_last_not_of(' ') + 1);
  constexpr std::string_view devices[] = {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"};
  if (std::any_of(std::begin(devices), std::end(devices), [&](auto device) { return is(stem, device); })) return true;
  if (!is(stem.substr(0, 3), "COM") && !is(stem.substr(0, 3), "LPT")) return false;
  const std::string_view port = stem.substr(3);  // a digit, or a superscript digit in UTF-8
  return (port.size() == 1 && port[0] >= '0' && port[0] <= '9') || port == "\xc2\xb9" || port == "\xc2\xb2" ||
         port == "\xc2\xb3";
}

std::string_view reserved_part(std::string_view path) noexcept {
  if (path.size() >= 2 && is_separator(path[0]) && is_separator(path[1])) {
    path.remove_prefix(2);
    const std::string_view server = take_part(path);
    if (server == "?" || server == ".") return {};
    take_part(path);  // the share
  } else if (path.size() >= 2 && path[1] == ':') {
    path.remove_prefix(2);  // the drive
  }
  while (!path.empty()) {
    const std::string_view part = take_part(path);
    if (part != "." && part != ".." && is_reserved(part)) return part;
  }
  return {};
}

}  // namespace stele::inline v0::detail
