// Opens bytes as weights with their network: the text up to the first zero byte is the network. Reads everything, loads
// a module.
#include <stele/recorders/read_only.hpp>

#include "fuzz/target.hpp"

void stele_test::fuzz(std::string_view input) {
  const std::size_t end = std::min(input.find('\0'), input.size());
  const stele::DarknetRecorder<> recorder(stele::DarknetFormat({.cfg = std::string(input.substr(0, end))}));
  read_file(recorder, input.substr(end), input.size() - end);
}
