// Opens bytes as a model of ncnn, a .param file that ends at the first zero byte and a .bin file after it; reads
// everything, loads modules.
#include <stele/bundle.hpp>
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
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(file.find('\0'), size);
  const std::string_view param = file.substr(0, end), bin = file.substr(std::min(end + 1, size));
  const auto bundle = memory_bundle();
  const auto put = [&](const char* name, std::string_view content) {
    auto sink = bundle->create(name);
    require(sink && (*sink)->write(bytes_of(content)) && (*sink)->commit());
  };
  put("x.param", param);
  put("x.bin", bin);
  const NcnnRecorder<> recorder;
  const auto opened = recorder.open(*bundle->open("x.param"));
  if (!opened) return 0;
  static_cast<void>(load<std::map<std::string, Tensor<float>>>(*opened, lenient()));
  static_cast<void>(read_leaves(*opened, 4 * bin.size()));  // an index of a codebook is one byte, its element four
  return 0;
}
