// The parts that fuzz targets of one format share. A target defines fuzz().
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "fuzz/leaves.hpp"
#include "stele/bundle.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace stele_test {

/// The target: runs once for each input.
void fuzz(std::string_view input);

/// Loads a list of tensors and a module, which may fail.
inline void load_all(const stele::Snapshot& snapshot) {
  static_cast<void>(stele::load<std::map<std::string, stele::Tensor<float>>>(snapshot, lenient()));
  static_cast<void>(stele::load<Branch>(snapshot, lenient()));
}

/// Opens a file, loads modules, reads everything (at most `max_bytes`), and checks that verify() finds the same faults.
/// Returns nullopt if the file is refused.
template <class R>
std::optional<stele::Snapshot> read_file(const R& recorder, std::string_view file, std::uint64_t max_bytes) {
  auto opened = recorder.open(bytes_of(file));
  if (!opened) return std::nullopt;
  load_all(*opened);
  const bool whole = read_leaves(*opened, max_bytes);
  require(recorder.verify(bytes_of(file)).has_value() == whole);
  return std::move(*opened);
}

/// Reads leaves of at most 1 MiB, until they are 1 MiB together: a few bytes may declare gigabytes of equal elements.
inline void read_small(const stele::Result<stele::Snapshot>& opened) {
  if (!opened) return require(opened.error().code() != stele::Errc::out_of_memory);
  constexpr std::uint64_t max_bytes = 1U << 20U;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < opened->leaf_count() && total < max_bytes; ++i) {
    const stele::LeafView leaf = opened->leaf(i);
    if (leaf.byte_size() > max_bytes) continue;
    const auto all = content(leaf);
    require(!all || all->size() == leaf.byte_size());
    total += leaf.byte_size();
  }
}

/// Saves, opens and saves again. Checks that the bytes are the same, and with `compare` the content. A snapshot with
/// unreadable entries is not saved.
template <class R>
void save_again(const R& recorder, const stele::Snapshot& opened, bool compare = true) {
  const auto again = saved(recorder, opened);
  if (!again) return;
  const auto back = recorder.open(*again);
  require(back.has_value());
  const stele::Capabilities& can = recorder.format().capabilities();
  if (compare) require(difference(facts(opened, can), facts(*back, can)).empty());
  const auto twice = saved(recorder, *back);
  require(twice && text_of(twice->span()) == text_of(again->span()));
}

/// Returns files in memory.
inline std::shared_ptr<stele::Bundle> files_of(
    std::initializer_list<std::pair<std::string_view, std::string_view>> files) {
  auto bundle = stele::memory_bundle();
  for (const auto& [name, content] : files) {
    const auto sink = bundle->create(name);
    require(sink && (*sink)->write(bytes_of(content)) && (*sink)->commit());
  }
  return bundle;
}

/// Returns a folder in memory. The input has its files: a byte with the length of the name, the name, two bytes with
/// the length of the content, and the content, which `change` may change.
template <class Change>
std::shared_ptr<stele::Bundle> folder_of(std::string_view input, Change change) {
  const auto taken = [&](std::size_t bytes) {
    std::size_t size = 0;
    for (std::size_t i = 0; i < bytes && !input.empty(); ++i) {
      size = size << 8 | static_cast<unsigned char>(input[0]);
      input.remove_prefix(1);
    }
    const std::string_view text = input.substr(0, size);
    input.remove_prefix(text.size());
    return text;
  };
  auto folder = stele::memory_bundle();
  while (!input.empty()) {
    const std::string_view name = taken(1);
    std::string content(taken(2));
    change(content);
    const auto file = folder->create(name);
    if (!file) continue;
    static_cast<void>((*file)->write(bytes_of(content)));
    static_cast<void>((*file)->commit());
  }
  return folder;
}

}  // namespace stele_test

/// Called by libFuzzer.
extern "C" [[gnu::used]] inline int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  stele_test::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
