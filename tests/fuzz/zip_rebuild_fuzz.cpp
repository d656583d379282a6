// Builds a directory for bytes from their local headers, mapped and not mapped. Checks that entries of the result are
// inside the bytes.
#include <algorithm>
#include <cstdint>
#include <string>

#include "encodings/zip/rebuild.hpp"
#include "encodings/zip/zip.hpp"
#include "fuzz/require.hpp"
#include "fuzz/unmapped.hpp"

namespace {

using stele_test::require;
using stele_test::Unmapped;

using namespace stele;
namespace zip = detail::zip;

constexpr std::uint64_t most = std::uint64_t{1} << 22;

Bytes all_of(const Source& source) {
  Bytes bytes(static_cast<std::size_t>(source.size()));
  require(source.read_at(0, bytes.span()).has_value());
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const SourcePtr bytes = borrow_bytes(std::as_bytes(std::span(data, size)));
  const auto rebuilt = zip::with_new_directory(bytes);
  const auto again = zip::with_new_directory(std::make_shared<Unmapped>(bytes));
  require(rebuilt.has_value() == again.has_value());
  if (!rebuilt) return 0;
  const auto same = [](const zip::Omitted& a, const zip::Omitted& b) { return a.name == b.name && a.cut == b.cut; };
  require(std::ranges::equal(*zip::omitted_entries(**rebuilt), *zip::omitted_entries(**again), same));
  const Bytes file = all_of(**rebuilt), other = all_of(**again);
  require(std::ranges::equal(file.span(), other.span()));
  require(!(*rebuilt)->read_at(file.size(), Bytes(1).span()));

  // The scan accepts what the headers declare; the directory may refuse it.
  const auto directory = zip::Directory::open(*rebuilt, most);
  if (!directory) return 0;
  for (const zip::Entry& entry : (*directory)->entries()) {
    require(entry.header < size && entry.end <= size);
    if (const auto content = (*directory)->read(entry, most)) require(content->size() == entry.size);
  }
  return 0;
}
