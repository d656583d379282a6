// Opens bytes as a safetensors file, as they are and with the header's length made right; reads everything, loads
// modules, saves again.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

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
  const SafetensorsRecorder<> recorder;
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
    require(all && all->size() == leaf.byte_size() && text_of(leaf.view()) == *all);
    whole = whole && means_something(leaf.dtype(), *all);
    total += leaf.byte_size();
  }
  require(total <= file.size());
  require(recorder.verify(bytes_of(file)).has_value() == whole);

  const Capabilities& can = recorder.format().capabilities();
  const auto again = saved(recorder, *opened);
  require(again.has_value());
  const auto back = recorder.open(*again);
  require(back.has_value());
  require(difference(facts(*opened, can), facts(*back, can)).empty());
  const auto twice = saved(recorder, *back);
  require(twice && text_of(twice->span()) == text_of(again->span()));
  const auto other = saved(BinaryRecorder<>(), *opened);
  require(other && BinaryRecorder<>().verify(*other).has_value() == whole);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  check(file);
  if (size < 8) return 0;
  // The header ends before the first NUL: then one mutation of the text is not undone by the length.
  const std::size_t end = std::min(file.find('\0', 8), file.size());
  put_at(file, 0, std::uint64_t{end - 8});
  if (end != file.size()) file.erase(end, 1);
  check(file);
  return 0;
}
