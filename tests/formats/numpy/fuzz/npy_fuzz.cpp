// Opens bytes as .npy and .npz files: as they are, with the header's length made right, and as the entries of a zip
// file, stored and deflated; reads everything, loads modules, saves again.
#include <stele/recorders/numpy.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

#include "encodings/zip/zip.hpp"
#include "fuzz/records.hpp"
#include "support/stele_file.hpp"

namespace {

using namespace stele;
using namespace stele_test;
namespace zip = stele::detail::zip;

/// Maximum size of arrays that are read: deflated ones have up to a thousand times their bytes.
constexpr std::uint64_t max_read = 1U << 18U;
constexpr NpyOptions hints{DType::f8_e5m2, DType::bf16};

template <class R>
void check(std::string_view file) {
  using Format = typename R::format_type;
  const R recorder{Format(hints)};
  const auto plain = R().open(bytes_of(file));
  const auto opened = recorder.open(bytes_of(file));
  require(!plain || opened.has_value());
  if (!opened) {
    static_cast<void>(opened.error().to_string());
    return;
  }
  if (opened->byte_size() > max_read) return;
  load_leniently(*opened, max_read);
  bool whole = true, fits = true;
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const LeafView leaf = opened->leaf(i);
    const auto all = content(leaf);
    require(!all || all->size() == leaf.byte_size());
    whole = whole && all && means_something(leaf.dtype(), *all);
    fits = fits && all && leaf.shape().size() <= 64 && leaf.dtype() != DType::opaque;  // an unreadable entry
  }
  require(recorder.verify(bytes_of(file)).has_value() == whole);
  if (fits) save_twice(NpzRecorder<>(), *opened);
  if (fits && opened->leaf_count() == 1 && can<NpyRecorder<>>().holds(opened->leaf(0).dtype())) {
    BufferSink sink;
    require(NpyFormat().write(*opened, sink, {}).has_value());
    const Bytes one = sink.take();
    const auto again = NpyRecorder<>().open(one);
    require(again && content(again->leaf(0)).value() == content(opened->leaf(0)).value());
  }
}

/// An array with these elements.
std::string array_of(const std::string& type, std::string_view elements) {
  const std::size_t count = type.ends_with('2') ? elements.size() / 2 : elements.size();
  const std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + std::to_string(count) + ",)}";
  std::string file("\x93NUMPY\1\0", 8);
  put(file, static_cast<std::uint16_t>(header.size()));
  return file + header + std::string(elements);
}

std::string zipped(std::string_view name, std::string_view bytes, std::uint16_t method) {
  BufferSink sink;
  detail::Gather gather(sink);
  zip::Writer writer(gather);
  require(writer.add("v.npy", bytes_of(array_of("<V2", "ab")), zip::stored).has_value());
  require(writer.add(name, bytes_of(bytes), method).has_value());
  require(writer.finish().has_value() && gather.flush().has_value());
  return std::string(text_of(sink.take().span()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string file(reinterpret_cast<const char*>(data), size);
  check<NpyRecorder<>>(file);
  check<NpzRecorder<>>(file);
  if (file.starts_with("PK")) return 0;
  for (const std::uint16_t method : {zip::stored, zip::deflated}) {
    check<NpzRecorder<>>(zipped("a/b.npy", file, method));
    check<NpzRecorder<>>(zipped("__stele__.npy", array_of("|u1", file), method));
  }
  // The header ends at the first line end: then one mutation of the text is not undone by the length.
  if (size < 10) return 0;
  std::string made = file;
  const std::size_t end = std::min(made.find('\n', 10), made.size() - 1);
  put_at(made, 8, static_cast<std::uint16_t>(end - 9));
  check<NpyRecorder<>>(made);
  return 0;
}
