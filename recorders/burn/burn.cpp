// Opens and writes records in the encoding that the options or the content select.
#include "stele/recorders/burn.hpp"

#include <algorithm>
#include <optional>

#include "base/extension.hpp"
#include "base/parallel.hpp"
#include "encodings/gzip/gzip.hpp"
#include "io/cursor.hpp"
#include "passes/byte_order.hpp"
#include "record.hpp"
#include "snapshot/data.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/tree.hpp"

namespace stele::inline v0 {
namespace {

using namespace detail::burn;  // NOLINT(google-build-using-namespace): this file implements the format

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != text.npos ? text.substr(begin) : std::string_view();
}

/// Returns true for a record that a release before about 0.8 wrote in MessagePack without names: a list of the
/// metadata, which are a list, and the item.
bool of_mpk_without_names(std::string_view head) {
  if (!head.starts_with("\x92\x95")) return false;
  head.remove_prefix(2);
  return head.starts_with(
             "\xa3"
             "f32") ||
         head.starts_with(
             "\xa3"
             "f64") ||
         head.starts_with("\xb3half::binary16::f16") || head.starts_with("\xb4half::bfloat::bf16");
}

/// Returns true for a file written by Burn before 0.6: an enum of the states of a module.
bool is_state_named(std::string_view head) {
  for (const std::string_view word : {"{", "\"StateNamed\""}) {
    head = without_blanks(head);
    if (!head.starts_with(word)) return false;
    head.remove_prefix(word.size());
  }
  return true;
}

/// Returns the error for a file that is too old to be read.
std::optional<Error> too_old(std::string_view head) {
  if (is_state_named(head)) {
    return Error(Errc::unsupported, "a release of Burn before 0.6 wrote the file")
        .expected(std::string(known_releases));
  }
  if (!of_mpk_without_names(head)) return std::nullopt;
  // The strings are float, int, format, version.
  std::string version = "an unknown release";
  const auto byte = [&](std::size_t at) -> std::size_t {
    return at < head.size() ? static_cast<unsigned char>(head[at]) : 0;
  };
  std::size_t at = 2;
  for (int i = 0; i < 4 && at < head.size(); ++i) {
    const std::size_t mark = byte(at);
    const std::size_t wide = mark == 0xd9 ? 1 : mark == 0xda ? 2 : 0;
    const std::size_t size = wide == 0 ? mark & 31 : wide == 1 ? byte(at + 1) : byte(at + 1) << 8 | byte(at + 2);
    at += 1 + wide;
    if ((wide == 0 && (mark < 0xa0 || mark >= 0xc0)) || at > head.size() || head.size() - at < size) break;
    if (i == 3) version = head.substr(at, size);
    at += size;
  }
  return too_old_for(version);
}

/// Returns the encoding of an inflated record; by_name if it is not a record.
BurnEncoding encoding_of(std::string_view head) {
  if (head.size() < 12) return BurnEncoding::by_name;
  const auto first = static_cast<unsigned char>(head[0]);
  // MessagePack begins with a short map and its first key.
  if (first >= 0x82 && first <= 0x8f) {
    return head.substr(1, 9) == "\xa8metadata" ? BurnEncoding::mpk : BurnEncoding::by_name;
  }
  if (of_mpk_without_names(head)) return BurnEncoding::mpk;
  if (first == '{') {
    if (is_state_named(head)) return BurnEncoding::json;
    for (const std::string_view word : {"{", "\"metadata\"", ":", "{", "\"float\"", ":"}) {
      head = without_blanks(head);
      if (!head.starts_with(word)) return BurnEncoding::by_name;
      head.remove_prefix(word.size());
    }
    return BurnEncoding::json;
  }
  // bincode begins with the names of the element types.
  for (const std::string_view type : {"\x03"
                                      "f32",
                                      "\x03"
                                      "f64",
                                      "\x13half::binary16::f16", "\x14half::bfloat::bf16"}) {
    if (!head.starts_with(type) || head.size() < type.size() + 4) continue;
    const std::string_view next = head.substr(type.size());
    if (next.starts_with("\x03i") || next.starts_with("\x02i8")) return BurnEncoding::bin;
  }
  return BurnEncoding::by_name;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Names {
  std::string_view name, extension;
};
Names names_of(const BurnOptions& options) {
  switch (options.encoding) {
    case BurnEncoding::bin:
      return options.gzip ? Names{"burn-bin.gz", ".bin.gz"} : Names{"burn-bin", ".bin"};
    case BurnEncoding::json:
      return options.gzip ? Names{"burn-json.gz", ".json.gz"} : Names{"burn-json", ".json"};
    case BurnEncoding::mpk:
      return options.gzip ? Names{"burn-mpk.gz", ".mpk.gz"} : Names{"burn-mpk", ".mpk"};
    case BurnEncoding::by_name:
      break;
  }
  return {"burn", ".mpk"};
}

/// Sets the encoding from the path if the options do not.
BurnOptions resolved(BurnOptions options, std::string_view path) {
  if (options.encoding != BurnEncoding::by_name) return options;
  options.gzip = detail::has_extension(path, ".gz");
  if (options.gzip) path.remove_suffix(3);
  options.encoding = detail::has_extension(path, ".bin")    ? BurnEncoding::bin
                     : detail::has_extension(path, ".json") ? BurnEncoding::json
                                                            : BurnEncoding::mpk;
  return options;
}

/// Maximum bytes to inflate from a gzip file without a record to find damage (64 MiB, a tenth of a second). Bounds the
/// time that a malicious file can take.
constexpr std::uint64_t damage_search = std::uint64_t{64} << 20;

/// Bounds the inflated size of a gzip file: for each byte of a tensor, the longest text of a record (a line of JSON at
/// the deepest nesting is below 192 characters), and for the structure between tensors, the memory bound of opening.
constexpr std::uint64_t max_text_of_byte = 192;
std::uint64_t inflated_bound(std::uint64_t stored, const Limits& limits) {
  if (limits.total_bytes == 0) return detail::add_scaled(0, stored, detail::max_deflate_ratio);
  return detail::add_scaled(detail::add_scaled(detail::compressed_index_base, stored, detail::index_rate::compressed),
                            limits.total_bytes, max_text_of_byte);
}

/// Returns the era to write. Errors: not_representable (an era that stele only reads).
Result<BurnEra> era_to_write(const BurnOptions& how, const Snapshot& snapshot) {
  BurnEra era = how.era;
  if (era == BurnEra::automatic) {
    era = BurnEra::v0_21;
    if (const auto header = burn_header(snapshot)) {
      if (const auto same = era_of(header->version)) era = *same;
    }
  }
  if (era != BurnEra::v0_13) return era;
  return Error(Errc::not_representable, "stele only reads records of Burn 0.13 and earlier")
      .hint("set BurnOptions::era to BurnEra::v0_14 or later");
}

}  // namespace

std::string_view BurnFormat::name() const noexcept { return names_of(options_).name; }
std::string_view BurnFormat::extension() const noexcept { return names_of(options_).extension; }

bool BurnFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  const bool gzip = detail::gzip::is_gzip(head);
  const bool any = options_.encoding == BurnEncoding::by_name;
  if (!any && gzip != options_.gzip) return false;
  std::byte inflated[1024];
  if (gzip) head = detail::gzip::inflated_head(head, inflated);
  const BurnEncoding found = encoding_of(text_of(head));
  return found != BurnEncoding::by_name && (any || found == options_.encoding);
}

Result<Report> BurnFormat::verify(SourcePtr source,  // NOLINT(performance-unnecessary-value-param): overrides
                                  const OpenContext& context) const {
  STELE_TRY_ASSIGN(const Snapshot snapshot, open(source, context));
  STELE_TRY_ASSIGN(Report report, detail::verify_leaves(snapshot, context.options()));
  STELE_TRY_ASSIGN(const bool gzip, detail::gzip::is_gzip(*source));
  gzip ? detail::gzip::add_unchecked_header(report) : detail::add_unchecked_contents(report);
  return report;
}

Result<Snapshot> BurnFormat::open(SourcePtr source, const OpenContext& context) const {
  const std::uint64_t stored = source->size();
  std::byte head[1024];
  std::span<const std::byte> read;
  const auto read_head = [&]() -> Status {
    STELE_TRY_ASSIGN(const std::size_t size, detail::read_some(*source, 0, head));
    read = std::span(head).first(size);
    return {};
  };
  STELE_TRY(read_head());
  // Inflates while reading, so that the bytes after an invalid record stay compressed.
  std::optional<detail::gzip::Gzip> gzip;
  if (detail::gzip::is_gzip(read)) {
    source = gzip.emplace(source, inflated_bound(stored, context.options().limits)).source();
    STELE_TRY(read_head());
  }
  if (auto error = too_old(text_of(read))) return std::move(*error);
  const BurnEncoding encoding = encoding_of(text_of(read));
  const std::uint64_t rate = gzip                             ? detail::index_rate::compressed
                             : encoding == BurnEncoding::json ? detail::index_rate::character
                                                              : detail::index_rate::token;
  detail::IndexBudget budget(context.options().limits, stored, rate);
  if (gzip) budget.admit_compressed();
  const std::uint64_t memory = budget.left();
  auto opened = [&]() -> Result<Snapshot> {
    switch (encoding) {
      case BurnEncoding::mpk:
        return read_named(*mpk_reader(source), memory, options_, context.target().type);
      case BurnEncoding::json: {
        STELE_TRY_ASSIGN(const auto tokens, json_reader(source, memory));
        return read_named(*tokens, memory, options_, context.target().type);
      }
      case BurnEncoding::bin:
        return read_bincode(source, memory, options_, context);
      case BurnEncoding::by_name:
        break;
    }
    return Error(Errc::bad_magic, "the file does not begin with the metadata of a Burn record")
        .expected("metadata in MessagePack, JSON or bincode")
        .offset(0);
  }();
  if (!opened && gzip) {
    // Damage explains the error better, if a short search finds it.
    Bytes piece(std::size_t{256} << 10);
    std::uint64_t inflated = 0;
    for (std::size_t n = piece.size(); n == piece.size() && inflated < damage_search; inflated += n) {
      STELE_TRY_ASSIGN(n, gzip->next(piece.span()));
    }
  }
  if (!opened || !gzip) return detail::in_host_order(std::move(opened));
  auto data = detail::derived_data(*opened);
  data->in_order = true;
  return detail::in_host_order(Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data))));
}

Result<std::vector<Loss>> BurnFormat::losses(const Snapshot& snapshot, std::string_view file) const {
  const BurnOptions how = resolved(options_, file);
  if (how.encoding != BurnEncoding::bin) {
    std::vector<Loss> losses;
    for (const std::uint32_t node : detail::Tree(snapshot).hidden()) {
      losses.push_back({node, "the whole entry: nested names cannot express its name"});
    }
    return losses;
  }
  STELE_TRY_ASSIGN(const BurnEra era, era_to_write(how, snapshot));
  return bincode_losses(snapshot, era, how);
}

Status BurnFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  const BurnOptions how = resolved(options_, sink.name());
  STELE_TRY_ASSIGN(const BurnEra era, era_to_write(how, snapshot));
  const Header header = header_for(snapshot, how.encoding, how.gzip, era);
  const Snapshot ordered = detail::in_file_order(snapshot);
  ReadContext context(detail::workers_of(options));
  const auto write_to = [&](Sink& to, bool measured) -> Status {
    if (how.encoding == BurnEncoding::json)
      return write_named(ordered, header, era, *json_writer(to, context, !how.gzip));
    std::uint64_t size = 0;
    const auto encode = [&](detail::LeafGather* gather) {
      size = 0;
      if (how.encoding == BurnEncoding::bin) {
        return write_bincode(ordered, header, era, how, gather, context, size);
      }
      return write_named(ordered, header, era, *mpk_writer(gather, context, size));
    };
    STELE_TRY(encode(nullptr));  // finds errors before the first byte is written
    if (measured) STELE_TRY(to.reserve(size));
    detail::LeafGather gather(to);
    STELE_TRY(encode(&gather));
    return gather.flush();
  };
  if (!how.gzip) return write_to(sink, true);
  detail::gzip::GzipSink packed(sink, 6);
  STELE_TRY(write_to(packed, false));
  return packed.finish();
}

}  // namespace stele::inline v0
