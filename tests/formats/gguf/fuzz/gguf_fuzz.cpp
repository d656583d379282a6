// Opens bytes as a GGUF file, as they are and with the data's length made right; reads and decodes everything, loads
// modules, saves again.
#include <stele/quantize.hpp>
#include <stele/recorders/gguf.hpp>

#include <cmath>
#include <cstdint>
#include <string>

#include "fuzz/records.hpp"

namespace {

using namespace stele;
using namespace stele_test;

void check(std::string_view file) {
  const GgufRecorder<> recorder(GgufFormat(std::size_t{1} << 16));
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) return;
  load_leniently(*opened);

  std::uint64_t total = 0;
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const LeafView leaf = opened->leaf(i);
    const auto all = content(leaf);
    require(all && all->size() == leaf.byte_size() && text_of(leaf.view()) == *all);
    total += leaf.byte_size();
  }
  require(total <= file.size());
  require(recorder.verify(bytes_of(file)).has_value());

  const auto floats = dequantize(*opened);
  require(floats.has_value());
  for (std::size_t i = 0; i < floats->leaf_count(); ++i) {
    const LeafView leaf = floats->leaf(i);
    require(leaf.byte_size() <= (std::uint64_t{1} << 26) || is_block(opened->leaf(i).dtype()));
    const auto all = content(leaf);
    require(all && all->size() == leaf.byte_size());
    if (leaf.byte_size() < 4) continue;
    // A part equals the part of the whole.
    std::byte part[4];
    const std::uint64_t middle = leaf.byte_size() / 2 / 8 * 8;
    if (element_size(leaf.dtype()) != 4 || middle + 4 > leaf.byte_size()) continue;
    require(leaf.read(middle, part).has_value());
    require(text_of(part) == std::string_view(*all).substr(static_cast<std::size_t>(middle), 4));
  }

  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    if (opened->leaf(i).dtype() == DType::opaque) return;  // of an unknown type: read, and not written
  }
  save_twice(recorder, *opened);
  const auto again = saved(recorder, *opened);
  require(again.has_value());
  const auto reopened = recorder.open(*again);
  require(reopened.has_value());
  // NaNs do not equal themselves: compared as JSON.
  for (const auto& [key, text] : opened->metadata()) require(reopened->metadata().at(key) == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  check(file);
  // Mutations seldom keep the length right: as many zeros as the error asks for are added, or the rest is cut off.
  for (int i = 0; i < 2; ++i) {
    const auto opened = GgufRecorder<>().open(bytes_of(file));
    if (opened || !opened.error().offset()) return 0;
    const Error& error = opened.error();
    if (error.code() == Errc::malformed && error.message() == "bytes follow the last tensor") {
      file.resize(static_cast<std::size_t>(*error.offset()));
    } else if (error.code() == Errc::truncated && error.path() != "" && size < 65536) {
      file.resize((file.size() + 31) / 32 * 32 + 4096);
    } else {
      return 0;
    }
    check(file);
  }
  return 0;
}
