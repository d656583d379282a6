// Opens bytes as a Burnpack file, as they are and with the description's length made right; reads everything, loads
// modules, saves again.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include <stele/recorders/burn.hpp>

#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/stele_file.hpp"

namespace {

using namespace stele;
using namespace stele_test;

void require(bool good) {
  if (!good) std::abort();
}

void check(std::string_view file) {
  const BurnpackRecorder<> recorder;
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) {
    const auto offset = opened.error().offset();
    static_cast<void>(offset);
    return;
  }
  LoadOptions options;
  options.allow_missing = options.allow_unused = {"*"};
  options.convert = {true, true};
  static_cast<void>(from_snapshot<std::map<std::string, Tensor<float>>>(*opened, options));
  static_cast<void>(from_snapshot<Branch>(*opened, options));

  bool whole = true;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const LeafView leaf = opened->leaf(i);
    const auto all = content(leaf);
    whole = whole && all && means_something(leaf.dtype(), *all);
    require(!all || all->size() == leaf.byte_size());
    total += leaf.byte_size();
  }
  require(total <= file.size());
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
  // Two bytes say how long the description is; most mutations would break the one in the file.
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
