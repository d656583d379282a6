// Archives made by hand, and readers for their contents.
#pragma once

#include <stele/recorders/archive.hpp>

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dl4j/arrays.hpp"
#include "encodings/zip/zip.hpp"
#include "stele/detail/little_endian.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

namespace stele_test {

namespace zip = stele::detail::zip;

/// An array with its bytes in the machine's order.
struct Array {
  stele::DType dtype = stele::DType::f32;
  std::vector<stele::Extent> shape;
  std::string bytes;
  friend bool operator==(const Array&, const Array&) = default;
};
template <class T>
std::string bytes_of_numbers(const std::vector<T>& numbers) {
  return std::string(text_of(std::as_bytes(std::span(numbers))));
}
inline Array floats(std::vector<stele::Extent> shape, const std::vector<float>& numbers) {
  return {stele::DType::f32, std::move(shape), bytes_of_numbers(numbers)};
}
/// Returns a vector.
inline Array floats(const std::vector<float>& numbers) { return floats({numbers.size()}, numbers); }

using Arrays = std::map<std::string, Array>;

/// Returns a flat Snapshot that owns the arrays.
inline stele::Snapshot snapshot(const Arrays& arrays) {
  static constexpr stele::LeafOps ops{
      .view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
  stele::SnapshotBuilder builder;
  builder.set_flat();
  for (const auto& [name, a] : arrays) {
    // Aligned like the bytes of a vector.
    auto bytes = std::make_shared<std::vector<std::byte>>();
    for (const char c : a.bytes) bytes->push_back(static_cast<std::byte>(c));
    builder.tensor(builder.intern(name), a.dtype, a.shape, bytes->size(), {&ops, bytes->data(), 0});
    builder.keep(std::move(bytes));
  }
  return builder.finish();
}
inline stele::Checkpoint checkpoint(const Arrays& arrays) { return stele::Checkpoint{snapshot(arrays)}; }

inline Arrays arrays_of(const stele::Snapshot& from) {
  Arrays all;
  for (std::size_t i = 0; i < from.leaf_count(); ++i) {
    const auto leaf = from.leaf(i);
    const bool fresh =
        all.emplace(leaf.path(), Array{leaf.dtype(), {leaf.shape().begin(), leaf.shape().end()}, good(content(leaf))})
            .second;
    CHECK(fresh);
  }
  return all;
}

/// Returns the file that `f(zip::Writer&)` writes.
template <class F>
std::string zipped_by(F f) {
  stele::BufferSink sink;
  stele::detail::Gather gather(sink);
  zip::Writer writer(gather);
  f(writer);
  good(writer.finish());
  good(gather.flush());
  return std::string(text_of(sink.take().span()));
}
using Entries = std::vector<std::pair<std::string, std::string>>;
inline std::string zipped(const Entries& entries, std::uint16_t method = zip::stored) {
  return zipped_by([&](zip::Writer& w) {
    for (const auto& [name, bytes] : entries) good(w.add(name, bytes_of(bytes), method));
  });
}

/// Returns all entries of a file in order. Checks their CRC-32s.
inline Entries unzipped(std::string_view file) {
  const auto directory = good(zip::Directory::open(stele::borrow_bytes(bytes_of(file)), UINT64_MAX));
  Entries all;
  for (const zip::Entry& e : directory->entries()) {
    const auto bytes = directory->read(e, UINT64_MAX);
    CAPTURE(e.name);
    REQUIRE_MESSAGE(bytes, why(bytes));
    all.emplace_back(e.name, text_of(bytes->span()));
  }
  return all;
}
inline std::vector<std::string> names_of(const Entries& entries) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : entries) names.push_back(name);
  return names;
}
inline std::string entry(const Entries& entries, std::string_view wanted) {
  for (const auto& [name, bytes] : entries) {
    if (name == wanted) return bytes;
  }
  FAIL("no entry " << wanted);
  return {};
}

/// Returns an array in the form of an entry. Its numbers are little-endian, as in the machine's memory.
inline std::string array_entry(stele::DType dtype, std::vector<stele::Extent> shape, std::string_view bytes) {
  if (bytes.empty()) return stele::detail::samediff::array_alone(dtype, shape, {}, 0);
  return stele::detail::samediff::array_head(dtype, shape, bytes.size()) + std::string(bytes);
}
inline std::string array_entry(const std::vector<float>& numbers) {
  return array_entry(stele::DType::f32, {numbers.size()}, in_file_order(bytes_of_numbers(numbers), stele::DType::f32));
}

inline stele::Result<stele::Checkpoint> opened(std::string_view file, std::string_view tag = {}) {
  return stele::open_archive(bytes_of(file), tag);
}
/// Returns the error of opening an invalid tag.
inline stele::Error open_error(std::string_view file, std::string_view tag = {}) { return bad(opened(file, tag)); }

inline stele::ArchiveRecorder<> recorder_of(stele::ArchiveOptions options) {
  return stele::ArchiveRecorder<>{stele::ArchiveFormat(std::move(options))};
}
inline std::string archive_of(const stele::Checkpoint& checkpoint, stele::ArchiveOptions options = {}) {
  stele::BufferSink sink;
  good(recorder_of(std::move(options)).save(checkpoint, sink));
  return std::string(text_of(sink.take().span()));
}
inline std::vector<std::string> tags_of(const stele::Input& from) { return good(stele::archive_tags(from)); }

}  // namespace stele_test
