// Opens bytes as a model, and reads everything. The bytes up to the first zero byte are the graph, the others the
// constants.
#include <algorithm>
#include <cstdint>
#include <string>

#include "fuzz/require.hpp"
#include "stele/bundle.hpp"
#include "stele/recorders/openvino.hpp"
#include "support/recorders.hpp"

namespace {

using namespace stele;
using namespace stele_test;

SourcePtr model_of(std::string_view graph, std::string_view constants, const char* name) {
  const auto bundle = memory_bundle();
  for (const auto& [file, text] : {std::pair("m.xml", graph), std::pair("m.bin", constants)}) {
    auto sink = bundle->create(file);
    require(sink && (*sink)->write(bytes_of(text)) && (*sink)->commit());
  }
  auto source = bundle->open(name);
  require(source.has_value());
  return *source;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = std::min(bytes.find('\0'), size);
  const std::string_view graph = bytes.substr(0, zero), constants = bytes.substr(std::min(zero + 1, size));
  const OpenvinoRecorder<> recorder;
  const auto opened = recorder.open(model_of(graph, constants, "m.xml"));
  if (!opened) {
    require(opened.error().code() != Errc::out_of_memory);
    return 0;
  }
  std::uint64_t read = 0;
  for (std::size_t i = 0; i < opened->leaf_count() && read < (1U << 20U); ++i) {
    const LeafView leaf = opened->leaf(i);
    if (leaf.byte_size() > (1U << 20U)) continue;  // a weight of many numbers that share their bytes
    const auto all = content(leaf);
    require(!all || all->size() == leaf.byte_size());
    read += leaf.byte_size();
  }
  static_cast<void>(recorder.open(model_of(graph, constants, "m.bin")));
  return 0;
}
