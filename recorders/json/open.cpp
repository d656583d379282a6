// JSON as a format.
#include <algorithm>
#include <utility>

#include "document_reader.hpp"
#include "encodings/gzip/gzip.hpp"
#include "snapshot/fill.hpp"
#include "stele/recorders/json.hpp"
#include "steps/byte_order.hpp"

namespace stele {
inline namespace v0 {

namespace json = detail::json;

namespace {

bool holds(DType dtype) { return is_known(dtype) && bits(dtype) != 0; }

/// Returns true if the available text can begin a document of this format.
bool is_document(std::string_view text) {
  const auto skip = [&](std::string_view token) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    if (!text.starts_with(token)) return false;
    text.remove_prefix(token.size());
    return true;
  };
  return skip("{") && skip("\"format\"") && skip(":") && skip("\"stele-json\"");
}

/// Returns true if gzip data may inflate to a document, as far as `head` shows. A tar archive does not.
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

const Capabilities& JsonFormat::capabilities() const noexcept {
  static constexpr Capabilities plain{true, true, true, true, false, true, true, false, 0xffff, holds};
  static constexpr Capabilities checked{true, true, true, true, false, true, true, true, 0xffff, holds};
  return options_.encoding == JsonEncoding::plain ? plain : checked;
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

Result<Report> JsonFormat::verify(SourcePtr source,  // NOLINT(performance-unnecessary-value-param): overrides
                                  const OpenContext& context) const {
  json::DocumentReader reader(source, context.options().limits);
  STELE_TRY_ASSIGN(const Snapshot snapshot, detail::in_host_order(reader.run()));
  STELE_TRY_ASSIGN(Report report, detail::verify_packed(snapshot, *source, context.options()));
  STELE_TRY(reader.check_index());
  return report;
}

Result<Snapshot> JsonFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::in_host_order(json::DocumentReader(std::move(source), context.options().limits).run());
}

}  // namespace v0
}  // namespace stele
