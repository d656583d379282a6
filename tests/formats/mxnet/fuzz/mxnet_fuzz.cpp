// Opens bytes as a file of MXNet, reads everything, loads modules, saves again.
#include <stele/recorders/mxnet.hpp>

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
  const MxnetRecorder<> recorder;
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) return 0;
  const LoadOptions options = lenient();
  static_cast<void>(load<std::map<std::string, Tensor<float>>>(*opened, options));
  static_cast<void>(load<Branch>(*opened, options));
  const bool whole = read_leaves(*opened, size);
  require(recorder.verify(bytes_of(file)).has_value() == whole);
  for (const MxnetNames names : {MxnetNames::plain, MxnetNames::prefixed}) {
    const MxnetRecorder<> to(MxnetFormat({.names = names}));
    const auto again = saved(to, *opened);
    if (!again) continue;  // unreadable entries
    const auto back = to.open(*again);
    require(back.has_value());
    const Capabilities& can = to.format().capabilities();
    if (names == MxnetNames::plain) require(difference(facts(*opened, can), facts(*back, can)).empty());
    const auto twice = saved(to, *back);
    require(twice && text_of(twice->span()) == text_of(again->span()));
  }
  return 0;
}
