// Opens bytes as a zip file, mapped and not mapped; reads every entry at once and as a Source, and copies all into a
// new file.
#include <algorithm>
#include <cstdint>
#include <string>

#include "encodings/zip/zip.hpp"
#include "fuzz/require.hpp"
#include "fuzz/unmapped.hpp"
#include "stele/sink.hpp"

namespace {

using stele_test::require;
using stele_test::Unmapped;

using namespace stele;
namespace zip = detail::zip;

constexpr std::uint64_t most = std::uint64_t{1} << 22;

std::string_view text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Reads an entry in pieces, from the end and then in order; of a larger entry, only its beginning.
bool stream(const zip::Directory& directory, const zip::Entry& entry, std::span<std::byte> out) {
  const auto source = directory.open(entry);
  if (!source) return false;
  require((*source)->size() == entry.size);
  const std::size_t piece = out.size() / 3 + 1;
  bool good = true;
  for (std::size_t end = out.size(); end != 0; end -= std::min(end, piece)) {
    const std::size_t begin = end - std::min(end, piece);
    good = (*source)->read_at(begin, out.subspan(begin, end - begin)) && good;
  }
  const std::string before(text(out));
  for (std::size_t at = 0; at < out.size(); at += piece) {
    good = (*source)->read_at(at, out.subspan(at, std::min(piece, out.size() - at))) && good;
  }
  require(!good || text(out) == before);
  return good;
}

void check(const SourcePtr& source, const zip::Directory& directory) {
  BufferSink sink;
  detail::Gather gather(sink);
  zip::Writer writer(gather);
  bool small = true, whole = true;
  for (const zip::Entry& entry : directory.entries()) {
    require(directory.find(entry.name) == &entry);
    require(entry.header < entry.end && entry.end <= source->size());
    const auto at = directory.data(entry);
    require(!at || (*at > entry.header && *at <= entry.end && entry.compressed <= entry.end - *at));
    const auto bytes = directory.read(entry, most);
    Bytes streamed(static_cast<std::size_t>(std::min(entry.size, most)));
    const bool good = stream(directory, entry, streamed.span());
    if (bytes) require(good && text(streamed.span()) == text(bytes->span()));
    if (!bytes && good && entry.method == zip::deflated) require(entry.size > most);
    if (zip::is_encrypted(entry)) {
      require(!at && !bytes && !good);
      whole = whole && at.error().code() == Errc::unsupported;  // the entry's local header matches the directory
    } else if (entry.method == zip::stored || entry.method == zip::deflated) {
      small = small && entry.size <= most;
      whole = whole && (bytes || entry.size > most);
    }

    Bytes all(static_cast<std::size_t>(entry.end - entry.header));
    require(source->read_at(entry.header, all.span()).has_value());
    writer.adopt(entry, gather.position());
    require(gather.write(all.span()).has_value());
  }
  const ProgressCallback nobody;
  detail::Meter meter(nobody, 0);
  if (small || !whole) require(directory.check(meter).has_value() == whole);
  require(writer.finish() && gather.flush());
  const auto copied = zip::Directory::open(own_bytes(sink.take()), ~std::uint64_t{0});
  require(copied && (*copied)->entries().size() == directory.entries().size());
  for (std::size_t i = 0; i < directory.entries().size(); ++i) {
    const auto before = directory.read(directory.entries()[i], most);
    const auto after = (*copied)->read((*copied)->entries()[i], most);
    require(before.has_value() == after.has_value());
    if (before) require(text(before->span()) == text(after->span()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const SourcePtr mapped = borrow_bytes(bytes);
  const auto opened = zip::Directory::open(mapped, most);
  const SourcePtr unmapped = std::make_shared<Unmapped>(mapped);
  const auto again = zip::Directory::open(unmapped, most);
  require(opened.has_value() == again.has_value());
  if (!opened) return 0;
  check(mapped, **opened);
  check(unmapped, **again);
  return 0;
}
