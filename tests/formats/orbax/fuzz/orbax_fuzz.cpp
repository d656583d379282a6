// Opens bytes as a folder of Orbax in memory. Corrects sizes and checksums of files that are one part of an OCDBT
// database, because they would hide the reader from random bytes. Reads everything.
#include <stele/recorders/read_only.hpp>

#include "base/crc32c.hpp"
#include "fuzz/target.hpp"

namespace {

void seal(std::string& part) {
  constexpr std::size_t min_bytes = 18;
  if (part.size() < min_bytes || !part.starts_with("\x0c\xdb")) return;
  for (unsigned i = 0; i < 8; ++i) part[4 + i] = static_cast<char>(std::uint64_t{part.size()} >> 8 * i & 0xff);
  const std::uint32_t crc = stele::detail::crc32c(0, part.data(), part.size() - 4);
  for (unsigned i = 0; i < 4; ++i) part[part.size() - 4 + i] = static_cast<char>(crc >> 8 * i & 0xff);
}

}  // namespace

void stele_test::fuzz(std::string_view input) {
  const auto opened = stele::OrbaxRecorder<>().open(stele::bundle_source(folder_of(input, seal)));
  constexpr std::uint64_t max_bytes = std::uint64_t{1} << 20;
  if (opened && opened->byte_size() <= max_bytes) read_leaves(*opened, max_bytes);
}
