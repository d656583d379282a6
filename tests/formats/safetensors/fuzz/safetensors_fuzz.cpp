// Opens bytes as a safetensors file, as they are and with the header's length made right; reads everything, loads
// modules, saves again.
#include <algorithm>
#include <cstdint>
#include <string>

#include <stele/composite.hpp>

#include "fuzz/records.hpp"
#include "support/stele_file.hpp"

namespace {

using namespace stele;
using namespace stele_test;

void check(std::string_view file) {
  const SafetensorsRecorder<> recorder;
  auto opened = recorder.open(bytes_of(file));
  if (!opened) {
    const auto offset = opened.error().offset();
    static_cast<void>(offset);
    return;
  }
  const bool agree = composites_agree(*opened);
  opened = split_composites(*opened);
  load_leniently(*opened);

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
  require(recorder.verify(bytes_of(file)).has_value() == (whole && agree));

  save_twice(recorder, *opened);
  const auto other = saved(BinaryRecorder<>(), *opened);
  require(other && BinaryRecorder<>().verify(*other).has_value() == (whole && agree));
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
