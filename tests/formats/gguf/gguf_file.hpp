// GGUF files made by hand from the layout in stele/recorders/gguf.hpp, without the library's writer.
#pragma once

#include <stele/recorders/gguf.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace stele_test::gguf {

template <class T>
std::string number(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bytes.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff));
  }
  return bytes;
}
inline std::string text(std::string_view value) { return number(std::uint64_t{value.size()}) + std::string(value); }
inline std::string pair(std::string_view key, std::uint32_t type, const std::string& value) {
  return text(key) + number(type) + value;
}
inline std::string array(std::uint32_t type, std::uint64_t count, const std::string& elements) {
  return number(type) + number(count) + elements;
}
/// `extents`: innermost first, as in the file.
inline std::string tensor(std::string_view name, const std::vector<std::uint64_t>& extents, std::uint32_t type,
                          std::uint64_t offset) {
  std::string entry = text(name) + number(static_cast<std::uint32_t>(extents.size()));
  for (const std::uint64_t extent : extents) entry += number(extent);
  return entry + number(type) + number(offset);
}
inline std::string file(const std::vector<std::string>& pairs, const std::vector<std::string>& tensors,
                        const std::string& data, std::uint32_t version = 3, std::size_t alignment = 32) {
  std::string bytes =
      "GGUF" + number(version) + number(std::uint64_t{tensors.size()}) + number(std::uint64_t{pairs.size()});
  for (const std::string& p : pairs) bytes += p;
  for (const std::string& t : tensors) bytes += t;
  if (!tensors.empty()) bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
  return bytes + data;
}
inline std::string architecture(std::string_view name = "test") { return pair("general.architecture", 8, text(name)); }

inline stele::SourcePtr source(const std::string& bytes) {
  stele::Bytes copy(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  return stele::own_bytes(std::move(copy));
}
inline stele::Result<stele::Snapshot> open(const std::string& bytes, const stele::LoadOptions& options = {}) {
  return stele::GgufRecorder<>().open(source(bytes), options);
}

}  // namespace stele_test::gguf
