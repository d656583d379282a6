// Opens bytes as a tar archive, mapped and not mapped, plain and (if they do not begin like gzip) in gzip. Reads every
// file in pieces, and writes all files into a new archive, which must contain the same. Then repeats this with all
// checksums corrected.
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "encodings/gzip/gzip.hpp"
#include "encodings/tar/tar.hpp"
#include "fuzz/require.hpp"
#include "fuzz/unmapped.hpp"
#include "stele/sink.hpp"

namespace {

using stele_test::require;
using stele_test::Unmapped;

using namespace stele;
namespace gzip = detail::gzip;
namespace tar = detail::tar;

constexpr std::uint64_t most = std::uint64_t{1} << 20;

std::string_view text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string gzipped(std::span<const std::byte> bytes) {
  z_stream z{};
  require(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&z, static_cast<uLong>(bytes.size())), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  require(deflate(&z, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - z.avail_out);
  deflateEnd(&z);
  return out;
}

/// Reads the beginning of a file in pieces, from the end and then in order. A file that opens must be readable.
std::string content(const Bundle& bundle, const std::string& name) {
  const auto source = bundle.open(name);
  require(source && (*source)->bundle()->contains(file_name(name)).value() && bundle.contains(name).value());
  std::string all(static_cast<std::size_t>(std::min((*source)->size(), most)), '\0');
  const auto out = std::as_writable_bytes(std::span(all));
  const std::size_t piece = out.size() / 3 + 1;
  for (std::size_t end = out.size(); end != 0; end -= std::min(end, piece)) {
    const std::size_t begin = end - std::min(end, piece);
    require((*source)->read_at(begin, out.subspan(begin, end - begin)).has_value());
  }
  const std::string before = all;
  for (std::size_t at = 0; at < out.size(); at += piece) {
    require((*source)->read_at(at, out.subspan(at, std::min(piece, out.size() - at))).has_value());
  }
  require(all == before);
  if (const auto view = (*source)->view(); !view.empty()) require(text(view.first(all.size())) == all);
  return all;
}

/// Checks that both archives have the same content under these names.
void check(const Bundle& a, const Bundle& b, const std::vector<std::string>& names) {
  for (const std::string& name : names) require(content(a, name) == content(b, name));
}

std::vector<std::string> names_of(const Bundle& bundle) {
  auto names = bundle.names();
  require(names && std::is_sorted(names->begin(), names->end()));
  return *std::move(names);
}

void run(std::span<const std::byte> bytes) {
  const SourcePtr mapped = borrow_bytes(bytes);
  const auto opened = tar::open(mapped);
  const auto again = tar::open(std::make_shared<Unmapped>(mapped));
  require(opened.has_value() == again.has_value());
  std::byte room[600];
  static_cast<void>(tar::looks_like_tar(gzip::inflated_head(bytes, room)));
  const bool is_gzip = gzip::is_gzip(bytes);
  const std::string packed = is_gzip ? std::string() : gzipped(bytes);
  if (!is_gzip) {
    const auto inflated = tar::open(borrow_bytes(std::as_bytes(std::span(packed))));
    require(inflated.has_value() == opened.has_value());
    if (!opened) require(inflated.error().code() == opened.error().code());
    if (opened) check(**opened, **inflated, names_of(**inflated));
  }
  if (!opened) return;
  const auto names = names_of(**opened);
  require(names == names_of(**again));
  check(**opened, **again, names);

  for (const bool in_gzip : {false, true}) {
    BufferSink sink;
    const auto writer = std::make_shared<tar::Writer>(sink, in_gzip);
    for (const std::string& name : names) {
      const std::string all = content(**opened, name);
      auto file = writer->create(name);
      require(file && (*file)->reserve(all.size()) && (*file)->write(std::as_bytes(std::span(all))) &&
              (*file)->commit());
    }
    require(writer->finish().has_value());
    const auto copied = tar::open(own_bytes(sink.take()));
    require(copied.has_value() && names_of(**copied) == names);
    check(**opened, **copied, names);
  }
}

/// Returns the archive with correct checksums in all blocks that are marked as headers.
std::string with_sums(std::string archive) {
  for (std::size_t at = 0; archive.size() - at >= 512; at += 512) {
    if (archive.compare(at + 257, 5, "ustar") != 0) continue;
    archive.replace(at + 148, 8, "        ");
    unsigned sum = 0;
    for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(archive[at + i]);
    for (std::size_t i = 6; i-- != 0; sum >>= 3) archive[at + 148 + i] = static_cast<char>('0' + (sum & 7));
    archive[at + 154] = 0;
  }
  return archive;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  run(bytes);
  const std::string before(text(bytes)), after = with_sums(before);
  if (after != before) run(std::as_bytes(std::span(after)));
  return 0;
}
