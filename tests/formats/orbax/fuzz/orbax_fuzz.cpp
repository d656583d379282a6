// Opens bytes as a folder of Orbax in memory: files, each a byte with the length of its name, the name, two bytes with
// the length of its content, and the content. Corrects sizes and checksums of files that are one part of an OCDBT
// database, because they would hide the reader from random bytes. Reads everything.
#include <stele/bundle.hpp>
#include <stele/recorders/read_only.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/crc32c.hpp"
#include "fuzz/require.hpp"
#include "support/recorders.hpp"

using namespace stele;
using namespace stele_test;

namespace {

std::string_view taken(std::string_view& from, std::size_t bytes) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < bytes && !from.empty(); ++i) {
    size = size << 8 | static_cast<unsigned char>(from[0]);
    from.remove_prefix(1);
  }
  const std::string_view text = from.substr(0, size);
  from.remove_prefix(text.size());
  return text;
}

void seal(std::string& part) {
  constexpr std::size_t min_bytes = 18;
  if (part.size() < min_bytes || !part.starts_with("\x0c\xdb")) return;
  for (unsigned i = 0; i < 8; ++i) part[4 + i] = static_cast<char>(std::uint64_t{part.size()} >> 8 * i & 0xff);
  const std::uint32_t crc = detail::crc32c(0, part.data(), part.size() - 4);
  for (unsigned i = 0; i < 4; ++i) part[part.size() - 4 + i] = static_cast<char>(crc >> 8 * i & 0xff);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto folder = memory_bundle();
  while (!input.empty()) {
    const std::string_view name = taken(input, 1);
    std::string content(taken(input, 2));
    seal(content);
    const auto file = folder->create(name);
    if (!file) continue;
    static_cast<void>((*file)->write(std::as_bytes(std::span(content))));
    static_cast<void>((*file)->commit());
  }
  const auto opened = OrbaxRecorder<>().open(bundle_source(folder));
  if (!opened) return 0;
  constexpr std::uint64_t max_bytes = std::uint64_t{1} << 20;
  if (opened->byte_size() > max_bytes) return 0;
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const LeafView leaf = opened->leaf(i);
    const auto all = content(leaf);
    require(!all || all->size() == leaf.byte_size());
  }
  return 0;
}
