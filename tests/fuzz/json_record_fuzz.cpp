// Opens bytes as a JSON record, as they are and compressed; reads everything, loads modules, saves again in every
// encoding.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <span>
#include <string>

#include <zstd.h>

#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace {

using namespace stele;
using namespace stele_test;

void require(bool good) {
  if (!good) std::abort();
}

template <class F>
void check_again(const Snapshot& opened) {
  const Recorder<F> recorder;
  const Capabilities& can = recorder.format().capabilities();
  const auto again = saved(recorder, opened);
  require(again.has_value());
  const auto back = recorder.open(*again);
  require(back.has_value());
  require(difference(facts(opened, can), facts(*back, can)).empty());
  const auto twice = saved(recorder, *back);
  require(twice && text_of(twice->span()) == text_of(again->span()));
}

/// Whether the bytes are a record.
bool check(std::string_view file) {
  const JsonRecorder<> recorder;
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) return false;
  LoadOptions options;
  options.allow_missing = options.allow_unused = {"*"};
  options.convert = {true, true};
  options.limits.total_bytes = std::uint64_t{1} << 24;
  static_cast<void>(from_snapshot<std::map<std::string, Tensor<float>>>(*opened, options));
  static_cast<void>(from_snapshot<Branch>(*opened, options));

  // Data are looked at when they are read.
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
  check_again<PlainJsonFormat>(*opened);
  check_again<ZstdJsonFormat>(*opened);
  if (means) check_again<ReadableJsonFormat>(*opened);
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
