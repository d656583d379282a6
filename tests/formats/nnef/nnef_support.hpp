// Models, files and bundles that the tests of NNEF share.
#pragma once

#include <stele/bundle.hpp>
#include <stele/recorders/nnef.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace stele_test::nnef {

using namespace std::string_literals;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;
using stele::Bundle;
using stele::DType;
using stele::NnefContainer;
using stele::NnefFormat;
using stele::NnefRecorder;
using stele::Report;
using stele::Snapshot;
using stele::Tensor;

inline std::string nnef_golden(const std::string& name) { return test_data("nnef") + "/" + name; }

struct Net {
  std::vector<Linear> layers;
  Tensor<std::int64_t, 1> steps;
  Tensor<bool, 2> mask;
  STELE_MODULE(Net, layers, steps, mask)
};
inline Net net(float first = 1) {
  Net n;
  n.layers.emplace_back(3, 4, first);
  n.layers.emplace_back(4, 2, first + 100, false);
  n.steps = Tensor<std::int64_t, 1>({2}, {-1, 1LL << 40});
  n.mask = Tensor<bool, 2>({3, 3}, {true, false, true, true, false, false, false, true, true});
  return n;
}

inline NnefRecorder<> in(NnefContainer container, bool graph = true) {
  return NnefRecorder<>(NnefFormat({.container = container, .graph = graph}));
}

struct Item {
  std::string path;
  DType dtype = DType::u8;
  std::vector<stele::Extent> shape{1};
  std::string bytes = "\0"s;
  stele::Annotations notes{};
};
inline Snapshot flat(const std::vector<Item>& items) {
  stele::SnapshotBuilder builder;
  builder.set_flat();
  for (const Item& item : items) {
    auto memory = std::make_shared<const std::string>(item.bytes);
    const auto* at = reinterpret_cast<const std::byte*>(memory->data());
    builder.tensor(builder.intern(item.path), item.dtype, item.shape, item.bytes.size(), {&memory_ops, at, 0});
    for (const auto& [key, value] : item.notes) builder.annotate(key, value);
    builder.keep(std::move(memory));
  }
  return builder.finish();
}
/// u8 tensors of one element with these paths.
inline Snapshot named(const Names& paths) {
  std::vector<Item> items;
  for (const std::string& path : paths) items.push_back({path});
  return flat(items);
}

/// Saved as a folder in memory.
template <class R, class M>
inline stele::Result<std::shared_ptr<Bundle>> folder_of(const R& recorder, const M& model, Report* report = nullptr) {
  const auto bundle = stele::memory_bundle();
  const auto sink = stele::bundle_sink(bundle);
  auto r = recorder.save(model, *sink, quick());
  if (!r) return std::move(r).error();
  if (report != nullptr) *report = *std::move(r);
  return bundle;
}
inline std::string text_in(const Bundle& bundle, const std::string& name) {
  return std::string(text_of(good(bundle.open(name))->view()));
}
inline void put(Bundle& bundle, const std::string& name, std::string_view text) {
  const auto sink = good(bundle.create(name));
  good(sink->write(bytes_of(text)));
  good(sink->commit());
}
inline Names names_of(const Bundle& bundle) { return good(bundle.names()); }
inline Names paths_of(const Snapshot& s) {
  Names paths;
  for (std::size_t i = 0; i < s.leaf_count(); ++i) paths.push_back(s.leaf(i).path());
  return paths;
}
template <class T>
inline std::vector<T> numbers(const stele::LeafView& leaf) {
  const std::string bytes = good(content(leaf));
  std::vector<T> all(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

/// The words of a header.
inline std::uint32_t word(std::string_view file, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t k = 4; k-- > 0;) value = value << 8 | static_cast<unsigned char>(file.at(at + k));
  return value;
}

/// "q" and the type as expected.txt has it: u12 is a u16 of which a save writes 12 bits.
inline std::string type_text(const stele::LeafView& leaf) {
  const stele::Annotations* notes = leaf.annotations();
  std::string type(stele::name(leaf.dtype()));
  if (notes == nullptr || type == "opaque" || type == "bool") return type;
  if (const auto bits = notes->find("nnef.bits"); bits != notes->end()) {
    type = type.substr(0, 1) + std::to_string(*bits->second.as_i64());
  }
  return (notes->contains("nnef.quantized") ? "q" : "") + type;
}

// ---- files made by hand, without the library's writer

inline std::string u32(std::uint32_t value) {
  std::string text;
  for (int k = 0; k < 4; ++k) text += static_cast<char>(value >> 8 * k & 0xff);
  return text;
}

/// A tensor file: its header and data.
struct File {
  std::uint32_t bits = 32;
  std::uint32_t code = 0;
  std::vector<std::uint32_t> extents{2};
  std::uint32_t length = 8;
  std::string data = std::string(8, '\0');
  std::string version = "\1\0"s;
  std::string parameters{};

  std::string make() const {
    std::string text = "\x4e\xef" + version + u32(length) + u32(static_cast<std::uint32_t>(extents.size()));
    for (const std::uint32_t e : extents) text += u32(e);
    text.resize(44);
    text += u32(bits) + u32(code) + parameters;
    text.resize(128);
    return text + data;
  }
};

inline const NnefRecorder<> tensors(NnefFormat({.container = NnefContainer::tensor}));
inline const NnefRecorder<> folders;

}  // namespace stele_test::nnef
