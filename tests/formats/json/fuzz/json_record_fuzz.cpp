// Opens bytes as a JSON record, as they are and compressed; reads everything, loads modules, saves again in every
// encoding.
#include <cstdint>
#include <span>
#include <string>

#include <zstd.h>

#include "fuzz/records.hpp"

namespace {

using namespace stele;
using namespace stele_test;

/// Returns true if the bytes are a record.
bool check(std::string_view file) {
  const JsonRecorder<> recorder;
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) return false;
  load_leniently(*opened, std::uint64_t{1} << 24);

  // Data are checked when they are read.
  bool whole = true;
  bool means = true;
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const LeafView leaf = opened->leaf(i);
    const auto all = content(leaf);
    require(!all || all->size() == leaf.byte_size());
    whole = whole && all;
    means = means && all && means_something(leaf.dtype(), *all);
    const std::size_t unit = element_size(leaf.dtype());
    if (!all || leaf.byte_size() == 0 || unit == 0) continue;
    // A part is the same as that part of the whole.
    std::string part(unit, '\0');
    const std::uint64_t at = leaf.byte_size() / 2 / unit * unit;
    require(leaf.read(at, std::as_writable_bytes(std::span(part))).has_value());
    require(std::string_view(*all).substr(at, unit) == part);
  }
  require(recorder.verify(bytes_of(file)).has_value() == means);
  if (!whole) return true;
  save_twice(Recorder<PlainJsonFormat>(), *opened);
  save_twice(Recorder<ZstdJsonFormat>(), *opened);
  if (means) save_twice(Recorder<ReadableJsonFormat>(), *opened);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const bool good = check(file);
  if (size == 0 || file.front() != '{' || size > 4096) return 0;
  // The same through the compressors of others.
  std::string packed(ZSTD_compressBound(size), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), data, size, 1));
  require(check(packed) == good);
  return 0;
}
