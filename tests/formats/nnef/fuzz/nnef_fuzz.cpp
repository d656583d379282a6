// The first byte chooses: a tensor file; graph.nnef, graph.quant and a tensor file (of several names), "\n%%\n" between
// them; an archive. Opens them, reads everything, saves again as a folder and as what it was: the same comes back.
#include <stele/bundle.hpp>
#include <stele/recorders/nnef.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

#include "fuzz/require.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace {

using namespace stele;
using namespace stele_test;

const NnefRecorder<> folders;
const NnefRecorder<> tensors(NnefFormat({.container = NnefContainer::tensor}));
const NnefRecorder<> archives(NnefFormat({.container = NnefContainer::tgz}));

void put(Bundle& bundle, const std::string& name, std::string_view text) {
  const auto sink = bundle.create(name);
  require(sink && (*sink)->write(bytes_of(text)).has_value() && (*sink)->commit().has_value());
}

std::string all_of(const Bundle& bundle) {
  std::string all;
  const auto names = bundle.names();
  require(names.has_value());
  for (const std::string& name : *names) {
    const auto source = bundle.open(name);
    require(source.has_value());
    all += name + '\n' + std::string(text_of((*source)->view()));
  }
  return all;
}

/// Null where the format cannot say it: labels, quantization.
std::shared_ptr<Bundle> saved_folder(const Snapshot& snapshot) {
  const auto bundle = memory_bundle();
  const auto sink = bundle_sink(bundle);
  const auto report = folders.save(snapshot, *sink, quick());
  if (!report) {
    require(report.error().code() == Errc::not_representable);
    return nullptr;
  }
  return bundle;
}

void check(const Snapshot& opened) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < opened.leaf_count(); ++i) total += opened.leaf(i).byte_size();
  if (total > std::uint64_t{1} << 22) return;  // a short archive may hold much
  for (std::size_t i = 0; i < opened.leaf_count(); ++i) {
    const LeafView leaf = opened.leaf(i);
    const auto all = content(leaf);
    require(all && all->size() == leaf.byte_size() && means_something(leaf.dtype(), *all));
    const std::size_t size = std::max<std::size_t>(element_size(leaf.dtype()), 1);
    const std::size_t begin = all->size() / size / 2 * size;
    std::string half(all->size() - begin, '\0');
    require(leaf.read(begin, std::as_writable_bytes(std::span(half))).has_value());
    require(half == all->substr(begin));
  }
  const Capabilities& plain = folders.format().capabilities();
  Capabilities full = plain;
  full.annotations = true;

  const auto binary = saved(BinaryRecorder<>(), opened);
  if (!binary && opened.leaf_count() == 0) return require(binary.error().code() == Errc::unsupported);  // unread files
  require(binary.has_value());
  const auto same = BinaryRecorder<>().open(*binary);
  require(same && difference(facts(opened, full), facts(*same, full)).empty());

  LoadOptions options;
  options.dequantize = true;
  if (const auto floats = BinaryRecorder<>().open(*binary, options)) {
    for (std::size_t i = 0; i < floats->leaf_count(); ++i) {
      const auto all = content(floats->leaf(i));
      require(all || all.error().code() == Errc::out_of_range);
    }
  }

  const auto folder = saved_folder(opened);
  if (folder == nullptr) return;
  const auto again = folders.open(bundle_source(folder));
  require(again.has_value());
  require(difference(facts(opened, plain), facts(*again, plain)).empty());
  const auto twice = saved_folder(*again);
  require(twice != nullptr && all_of(*twice) == all_of(*folder));
  const auto archive = saved(archives, *again);
  require(archive.has_value());
  const auto unpacked = archives.open(*archive);
  require(unpacked && difference(facts(*again, full), facts(*unpacked, full)).empty());
  if (opened.leaf_count() != 1) return;
  const auto tensor = saved(tensors, opened);
  if (!tensor) return require(tensor.error().code() == Errc::not_representable);
  const auto alone = tensors.open(*tensor);
  require(alone && content(alone->leaf(0)).value() == content(opened.leaf(0)).value());
}

void check_folder(std::string_view text) {
  constexpr std::string_view between = "\n%%\n";
  const auto part = [&] {
    const std::size_t end = text.find(between);
    const std::string_view first = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + between.size());
    return first;
  };
  const auto bundle = memory_bundle();
  if (const auto graph = part(); !graph.empty()) put(*bundle, "graph.nnef", graph);
  if (const auto quant = part(); !quant.empty()) put(*bundle, "graph.quant", quant);
  for (const char* name : {"a.dat", "b/c.dat", "b/d.e.dat"}) put(*bundle, name, text);
  if (const auto opened = folders.open(bundle_source(bundle))) check(*opened);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      if (const auto opened = tensors.open(bytes_of(rest))) check(*opened);
      break;
    case 1:
      check_folder(rest);
      break;
    default:
      if (const auto opened = folders.open(bytes_of(rest))) check(*opened);
  }
  return 0;
}
