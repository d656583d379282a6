// Burnpack files made by hand, without the library's writer, so that any part can be wrong.
#pragma once

#include <doctest/doctest.h>
#include <stele/recorders/burn.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/recorders.hpp"
#include "support/stele_file.hpp"

namespace stele_test {

/// Returns a CBOR head in the shortest form.
inline std::string cbor_head(unsigned major, std::uint64_t n) {
  const unsigned bytes = n < 24 ? 0 : n <= 0xff ? 1 : n <= 0xffff ? 2 : n <= 0xffffffff ? 4 : 8;
  const unsigned info = bytes == 0   ? static_cast<unsigned>(n)
                        : bytes == 1 ? 24
                        : bytes == 2 ? 25
                        : bytes == 4 ? 26
                                     : 27;
  std::string text(1, static_cast<char>(major << 5 | info));
  for (unsigned i = bytes; i-- != 0;) text += static_cast<char>(n >> (8 * i) & 0xff);
  return text;
}
inline std::string cbor(std::uint64_t n) { return cbor_head(0, n); }
inline std::string cbor(std::string_view text) { return cbor_head(3, text.size()) + std::string(text); }
/// Encodes a list of encoded items. The items of a map are keys and values, alternately.
inline std::string cbor_list(const std::vector<std::string>& items) {
  std::string all = cbor_head(4, items.size());
  for (const auto& item : items) all += item;
  return all;
}
inline std::string cbor_map(const std::vector<std::string>& items) {
  return cbor_head(5, items.size() / 2) + cbor_list(items).substr(cbor_head(4, items.size()).size());
}

struct PackTensor {
  std::string name;
  std::string dtype;  // encoded
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;
  std::string more{};  // encoded keys and values, alternately
  unsigned more_keys = 0;
};

/// Returns a map from name to tensor, for the value of "tensors".
inline std::string pack_tensors(const std::vector<PackTensor>& tensors) {
  std::vector<std::string> items;
  for (const PackTensor& t : tensors) {
    std::vector<std::string> shape;
    for (const auto e : t.shape) shape.push_back(cbor(e));
    std::string entry = cbor_map({cbor("dtype"), t.dtype, cbor("shape"), cbor_list(shape), cbor("data_offsets"),
                                  cbor_list({cbor(t.begin), cbor(t.end)})});
    entry[0] = static_cast<char>(entry[0] + static_cast<char>(t.more_keys));
    items.push_back(cbor(t.name));
    items.push_back(entry + t.more);
  }
  return cbor_map(items);
}

inline std::string pack_file(std::string_view description, std::string_view data, bool aligned = true,
                             std::uint16_t version = 1) {
  std::string file("NRUB");
  put(file, version), put(file, static_cast<std::uint32_t>(description.size()));
  file += description;
  if (aligned) pad(file, 256);
  return file + std::string(data);
}
inline std::string pack_file(const std::vector<PackTensor>& tensors, std::string_view data, bool aligned = true) {
  return pack_file(cbor_map({cbor("tensors"), pack_tensors(tensors)}), data, aligned);
}

inline const stele::BurnpackRecorder<> burnpack;

/// Opens a copy of the file, owned by the Snapshot.
inline stele::Snapshot opened(const std::string& file) {
  stele::Bytes bytes(file.size());
  std::copy(file.begin(), file.end(), reinterpret_cast<char*>(bytes.data()));
  auto snapshot = burnpack.open(stele::own_bytes(std::move(bytes)));
  REQUIRE_MESSAGE(snapshot, why(snapshot));
  return *std::move(snapshot);
}

inline std::string written(const stele::Snapshot& snapshot) {
  const auto bytes = saved(burnpack, snapshot);
  REQUIRE_MESSAGE(bytes, why(bytes));
  return std::string(text_of(bytes->span()));
}

}  // namespace stele_test
