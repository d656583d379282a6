// Opens bytes as weights with their network: the text up to the first zero byte is the network. Reads everything, loads
// a module.
#include <stele/recorders/read_only.hpp>

#include <cstdint>
#include <map>
#include <string>

#include "fuzz/leaves.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

using namespace stele;
using namespace stele_test;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(all.find('\0'), all.size());
  const std::string_view file = all.substr(end);
  const DarknetRecorder<> recorder(DarknetFormat({.cfg = std::string(all.substr(0, end))}));
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) return 0;
  const LoadOptions options = lenient();
  static_cast<void>(load<std::map<std::string, Tensor<float>>>(*opened, options));
  static_cast<void>(load<Branch>(*opened, options));
  const bool whole = read_leaves(*opened, file.size());
  require(recorder.verify(bytes_of(file)).has_value() == whole);
  return 0;
}
