// Opens bytes as a Paddle parameter file, framed or not, and as a file of a folder; reads everything; writes it again
// in each framing, which must read back the same.
#include <algorithm>
#include <cstdint>
#include <string>

#include "fuzz/require.hpp"
#include "stele/bundle.hpp"
#include "stele/recorders/paddle.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace {

using namespace stele;
using namespace stele_test;

PaddleRecorder<> counting(PaddleFraming framing) {
  return PaddleRecorder<>(
      PaddleFormat({.names = PaddleNames::counter, .order = PaddleOrder::declared, .framing = framing}));
}

/// By number: names that are counted and names in the file are not the same.
std::string told(const Snapshot& snapshot) {
  std::string text;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const auto all = content(leaf);
    require(all && all->size() == leaf.byte_size());
    text += std::string(name(leaf.dtype())) + to_string(leaf.shape()) + *all;
    if (leaf.annotations() == nullptr) continue;
    for (const auto& [key, value] : *leaf.annotations()) text += key + to_text(value);
  }
  return text;
}

void check(std::string_view file, PaddleFraming framing) {
  const auto opened = counting(framing).open(bytes_of(file));
  if (!opened) {
    require(opened.error().code() != Errc::out_of_memory);
    return;
  }
  const std::string before = told(*opened);
  require(opened->byte_size() <= file.size());
  for (const PaddleFraming to : {PaddleFraming::none, PaddleFraming::sized, PaddleFraming::named}) {
    const PaddleRecorder<> recorder = counting(to);
    const auto again = saved(recorder, *opened);
    require(again.has_value());
    const auto back = recorder.open(*again);
    require(back.has_value() && told(*back) == before);
    // By its content too, which says nothing of no tensors.
    const auto found = counting(PaddleFraming::none).open(*again);
    require(found.has_value() && told(*found) == before);
    const auto twice = saved(recorder, *back);
    require(twice && text_of(twice->span()) == text_of(again->span()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string file(reinterpret_cast<const char*>(data), size);
  for (const PaddleFraming framing : {PaddleFraming::none, PaddleFraming::sized, PaddleFraming::named}) {
    check(file, framing);
  }
  const auto bundle = memory_bundle();
  const auto sink = bundle->create("w");
  require(sink && (*sink)->write(bytes_of(file)) && (*sink)->commit());
  const PaddleRecorder<> folders(PaddleFormat({.folder = true}));
  const auto opened = folders.open(bundle_source(bundle));
  require(opened.has_value() == folders.format().recognises_folder(*bundle));
  require(opened.has_value() == folders.format().may_replace(*bundle).has_value());
  return 0;
}
