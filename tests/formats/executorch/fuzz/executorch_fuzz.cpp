// Opens bytes as a data file and as a program of ExecuTorch, reads everything, and saves again.
#include <stele/recorders/executorch.hpp>

#include <cstdint>
#include <map>
#include <string>

#include "fuzz/leaves.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

using namespace stele;
using namespace stele_test;

namespace {

/// Reads all that a file has, and writes it as a data file, which must open with the same content.
void check(const Snapshot& opened, std::size_t size) {
  static_cast<void>(load<std::map<std::string, Tensor<float>>>(opened, lenient()));
  static_cast<void>(read_leaves(opened, size * (1 + opened.leaf_count())));  // tensors may share bytes
  const PtdRecorder<> recorder;
  const auto again = saved(recorder, opened);
  if (!again) return;  // unreadable entries
  const auto back = recorder.open(*again);
  require(back.has_value());
  const auto twice = saved(recorder, *back);
  require(twice && text_of(twice->span()) == text_of(again->span()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  if (const auto opened = PtdRecorder<>().open(bytes_of(file))) check(*opened, size);
  if (const auto opened = PteRecorder<>().open(bytes_of(file))) check(*opened, size);
  return 0;
}
