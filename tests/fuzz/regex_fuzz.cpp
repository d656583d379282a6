// Compiles the first line as an expression of a configuration, and matches the other lines with it.
#include <cstdint>
#include <string_view>

#include "base/regex.hpp"
#include "fuzz/require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t line = all.find('\n');
  const auto regex = stele::detail::regex::Regex::compile(all.substr(0, line));
  if (!regex || line == all.npos) return 0;
  const std::string_view text = all.substr(line + 1);
  const bool beginning = regex->matches_beginning(text);
  stele_test::require(regex->matches_part(text) || !beginning);
  stele_test::require(regex->matches_beginning(text) == beginning);
  return 0;
}
