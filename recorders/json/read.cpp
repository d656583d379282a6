// The JSON format: recognizes, opens and verifies documents.
#include <algorithm>
#include <utility>

#include "document_reader.hpp"
#include "encodings/gzip/gzip.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/fill.hpp"
#include "stele/recorders/json.hpp"

namespace stele::inline v0 {

namespace json = detail::json;

namespace {

/// Returns true if the text can be the beginning of a document of this format.
bool is_document(std::string_view text) {
  const auto skip = [&](std::string_view token) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    if (!text.starts_with(token)) return false;
    text.remove_prefix(token.size());
    return true;
  };
  return skip("{") && skip("\"format\"") && skip(":") && skip("\"stele-json\"");
}

/// Returns true if the gzip data that begin with `head` may inflate to a document, and not to a tar archive.
bool inflates_to_document(std::span<const std::byte> head) noexcept {
  std::byte room[64];
  const auto inflated = detail::gzip::inflated_head(head, room);
  const std::string_view text(reinterpret_cast<const char*>(inflated.data()), inflated.size());
  if (text.size() == sizeof room) return is_document(text);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first == text.npos || text[first] == '{';
}

}  // namespace

std::string_view JsonFormat::name() const noexcept {
  return options_.encoding == JsonEncoding::plain  ? "json"
         : options_.encoding == JsonEncoding::gzip ? "json.gz"
                                                   : "json.zst";
}

std::string_view JsonFormat::extension() const noexcept {
  return options_.encoding == JsonEncoding::plain  ? ".json"
         : options_.encoding == JsonEncoding::gzip ? ".json.gz"
                                                   : ".json.zst";
}

bool JsonFormat::recognises(std::span<const std::byte> head, std::uint64_t) const noexcept {
  const json::Coding coding = json::coding_of(head);
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  const bool plain = coding == json::Coding::plain && is_document(text);
  const bool gzip = coding == json::Coding::gzip && inflates_to_document(head);
  switch (options_.encoding) {
    case JsonEncoding::plain:
      return plain;
    case JsonEncoding::gzip:
      return gzip;
    case JsonEncoding::zstd:
      return coding == json::Coding::zstd;
    case JsonEncoding::by_name:
      break;
  }
  return plain || gzip || coding == json::Coding::zstd;
}

namespace {

/// Adds the rows for contents that the checksums of the compression do not cover.
Status add_unchecked(const Source& source, Report& report) {
  STELE_TRY_ASSIGN(const bool gzip, detail::gzip::is_gzip(source));
  if (gzip) {
    detail::gzip::add_unchecked_header(report);
    return {};
  }
  std::byte head[5]{};
  if (source.size() >= sizeof head) STELE_TRY(source.read_at(0, head));
  // RFC 8878: a frame's header declares whether it has a checksum. A file written with an index begins with a skippable
  // frame, and all its frames have a checksum.
  constexpr std::byte has_checksum{0x04};
  const std::string_view text(reinterpret_cast<const char*>(head), sizeof head);
  const bool frame = text.starts_with("\x28\xb5\x2f\xfd") && (head[4] & has_checksum) != std::byte{0};
  const bool index = text.substr(1, 3) == "\x2a\x4d\x18";
  if (!frame && !index) detail::add_unchecked_contents(report);
  return {};
}

}  // namespace

Result<Report> JsonFormat::verify(SourcePtr source,  // NOLINT(performance-unnecessary-value-param): overrides
                                  const OpenContext& context) const {
  json::DocumentReader reader(source, context.options().limits);
  STELE_TRY_ASSIGN(const Snapshot snapshot, detail::in_host_order(reader.run()));
  STELE_TRY_ASSIGN(Report report, detail::verify_leaves(snapshot, context.options()));
  STELE_TRY(add_unchecked(*source, report));
  STELE_TRY(reader.check_index());
  return report;
}

Result<Snapshot> JsonFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::in_host_order(json::DocumentReader(std::move(source), context.options().limits).run());
}

}  // namespace stele::inline v0
