// Opens bytes as a model with a file of weights, and reads everything. The first four bytes are the size of the model;
// the weights follow it.
#include <algorithm>
#include <cstdint>
#include <string>

#include "fuzz/require.hpp"
#include "stele/bundle.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/recorders/read_only.hpp"
#include "support/recorders.hpp"

namespace {

using namespace stele;
using namespace stele_test;

void read(const Result<Snapshot>& opened) {
  if (!opened) {
    require(opened.error().code() != Errc::out_of_memory);
    return;
  }
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < opened->leaf_count() && total < (1U << 20U); ++i) {
    const LeafView leaf = opened->leaf(i);
    if (leaf.byte_size() > (1U << 20U)) continue;  // a weight of many numbers that share their bytes
    const auto all = content(leaf);
    require(!all || all->size() == leaf.byte_size());
    total += leaf.byte_size();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data) + 4, size - 4);
  const std::size_t split = std::min<std::size_t>(detail::load_le<std::uint32_t>(bytes_of(all).data() - 4), all.size());
  const auto bundle = memory_bundle();
  for (const auto& [name, text] :
       {std::pair("m.mlmodel", all.substr(0, split)), std::pair("weights/weight.bin", all.substr(split))}) {
    auto sink = bundle->create(name);
    require(sink && (*sink)->write(bytes_of(text)) && (*sink)->commit());
  }
  const CoremlRecorder<> recorder;
  for (const char* const name : {"m.mlmodel", "weights/weight.bin"}) {
    auto source = bundle->open(name);
    require(source.has_value());
    read(recorder.open(*source));
  }
  return 0;
}
