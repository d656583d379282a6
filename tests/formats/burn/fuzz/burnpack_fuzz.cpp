// Opens bytes as a Burnpack file, as they are and with the description's length corrected; reads everything, loads
// modules, saves again.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include <stele/recorders/burn.hpp>

#include "fuzz/leaves.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/stele_file.hpp"

namespace {

using namespace stele;
using namespace stele_test;

void check(std::string_view file) {
  const BurnpackRecorder<> recorder;
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) return;
  const LoadOptions options = lenient();
  static_cast<void>(load<std::map<std::string, Tensor<float>>>(*opened, options));
  static_cast<void>(load<Branch>(*opened, options));
  const bool whole = read_leaves(*opened, file.size());
  require(recorder.verify(bytes_of(file)).has_value() == whole);
  if (!whole) return;

  const Capabilities& can = recorder.format().capabilities();
  const auto again = saved(recorder, *opened);
  require(again.has_value());
  const auto back = recorder.open(*again);
  require(back.has_value());
  require(difference(facts(*opened, can), facts(*back, can)).empty());
  const auto twice = saved(recorder, *back);
  require(twice && text_of(twice->span()) == text_of(again->span()));
  const auto other = saved(BinaryRecorder<>(), *opened);
  require(other && BinaryRecorder<>().verify(*other).has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The first two bytes are the length of the description; most mutations would break the one in the file.
  std::string file(reinterpret_cast<const char*>(data), size);
  check(file);
  if (size < 12) return 0;
  const std::size_t described = std::min<std::size_t>(data[0] | std::size_t{data[1]} << 8, size - 2);
  std::string made("NRUB\1\0", 6);
  put(made, static_cast<std::uint32_t>(described));
  made += file.substr(2, described);
  check(made + file.substr(2 + described));
  pad(made, 256);
  check(made + file.substr(2 + described));
  return 0;
}
