// The metadata of records, and their settings.
#include "record.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"

namespace stele::inline v0 {
namespace detail::burn {
namespace {

/// Burn's predefined settings, with the Rust types of their elements.
struct Settings {
  std::string_view name, floats, ints;
  DType floating;
};
constexpr Settings known[] = {{"FullPrecisionSettings", "f32", "i32", DType::f32},
                              {"HalfPrecisionSettings", "half::binary16::f16", "i16", DType::f16},
                              {"DoublePrecisionSettings", "f64", "i64", DType::f64}};

/// Returns the settings for the float type of all float leaves, or the Full settings if the types differ.
const Settings& settings_of(const Snapshot& snapshot) {
  DType all = DType::none;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const DType dtype = snapshot.leaf(i).dtype();
    if (!is_plain_float(dtype)) continue;
    if (all != DType::none && all != dtype) return known[0];
    all = dtype;
  }
  for (const Settings& settings : known) {
    if (settings.floating == all) return settings;
  }
  return known[0];
}

std::string_view recorder_of(BurnEncoding encoding, bool gzip) {
  switch (encoding) {
    case BurnEncoding::bin:
      return gzip ? "BinGzFileRecorder" : "BinFileRecorder";
    case BurnEncoding::json:
      return gzip ? "JsonGzFileRecorder" : "PrettyJsonFileRecorder";
    default:
      return gzip ? "NamedMpkGzFileRecorder" : "NamedMpkFileRecorder";
  }
}

std::string_view version_of(BurnEra era) {
  switch (era) {
    case BurnEra::v0_13:
      return "0.13.2";
    case BurnEra::v0_14:
      return "0.15.0";
    case BurnEra::v0_16:
      return "0.16.1";
    case BurnEra::v0_17:
      return "0.19.1";
    case BurnEra::v0_20:
      return "0.20.1";
    default:
      return "0.21.0";
  }
}

}  // namespace

namespace {

/// Returns N for 0.N or 0.N.…
std::optional<unsigned> minor_of(std::string_view version) {
  unsigned minor = 0;
  if (!version.starts_with("0.")) return std::nullopt;
  const auto [end, error] = std::from_chars(version.data() + 2, version.data() + version.size(), minor);
  const bool whole = error == std::errc() && (end == version.data() + version.size() || *end == '.');
  return whole ? std::optional(minor) : std::nullopt;
}

}  // namespace

Error too_old_for(std::string_view version) {
  return Error(Errc::unsupported, "the release of Burn that wrote the record is too old")
      .expected(std::string(known_releases))
      .found(std::string(version));
}

Error with_age(Error error, const Header& header) {
  const auto minor = minor_of(header.version);
  const bool other = error.code() == Errc::io || error.code() == Errc::checksum || error.code() == Errc::out_of_memory;
  if (!minor || *minor >= 13 || other) return error;
  return too_old_for(header.version).path(error.path()).offset(error.offset().value_or(0));
}

Result<BurnEra> era_of(std::string_view version) {
  if (const auto minor = minor_of(version)) {
    return *minor <= 13   ? BurnEra::v0_13
           : *minor <= 15 ? BurnEra::v0_14
           : *minor <= 16 ? BurnEra::v0_16
           : *minor <= 19 ? BurnEra::v0_17
           : *minor <= 20 ? BurnEra::v0_20
                          : BurnEra::v0_21;
  }
  return Error(Errc::unsupported, "the version of Burn is unknown")
      .expected("0.13 to 0.21")
      .found(std::string(version))
      .hint("set BurnOptions::era");
}

Header header_for(const Snapshot& snapshot, BurnEncoding encoding, bool gzip, BurnEra era) {
  const Settings& settings = settings_of(snapshot);
  Header header{std::string(settings.floats),
                std::string(settings.ints),
                {},
                std::string(version_of(era)),
                std::string(settings.name)};
  const std::string_view recorder = recorder_of(encoding, gzip);
  header.format =
      "burn_core::record::file::" + std::string(recorder) + "<burn_core::record::settings::" + header.settings + '>';
  const auto known_before = burn_header(snapshot);
  if (!known_before) return header;
  // If the snapshot comes from a record, keeps the fields that still apply.
  const Header& old = *known_before;
  const auto old_era = era_of(old.version);
  if (old_era && *old_era == era) header.version = old.version;
  if (old.floats != header.floats) return header;
  header.ints = old.ints;
  header.settings = old.settings;
  const std::string_view in_memory = gzip                            ? std::string_view()
                                     : encoding == BurnEncoding::mpk ? "::NamedMpkBytesRecorder<"
                                     : encoding == BurnEncoding::bin ? "::BinBytesRecorder<"
                                                                     : std::string_view();
  if (old.format.find("::" + std::string(recorder) + '<') != std::string::npos ||
      (!in_memory.empty() && old.format.find(in_memory) != std::string::npos)) {
    header.format = old.format;
  }
  return header;
}

Status check(const Header& header, const BurnOptions& options) {
  const auto mismatch = [&](std::string_view wanted, std::string_view what) {
    return Error(Errc::value_mismatch, "the precision settings of the record differ")
        .expected(std::string(wanted))
        .found("settings " + header.settings + std::string(what) + " (float " + header.floats + ", int " + header.ints +
               ", format " + header.format + ", version " + header.version + ')');
  };
  if (!options.settings.empty() && header.settings != options.settings) {
    std::string differs;
    for (const Settings& settings : known) {
      if (settings.name != options.settings) continue;
      if (settings.floats != header.floats) differs += ", float";
      if (settings.ints != header.ints) differs += ", int";
    }
    if (header.format.find(options.settings) == std::string::npos) differs += ", format";
    return mismatch(options.settings, differs.empty() ? "" : differs + " differ");
  }
  for (const Settings& settings : known) {
    if (settings.name != header.settings) continue;
    if (settings.floats == header.floats && settings.ints == header.ints) return {};
    return mismatch("float " + std::string(settings.floats) + " and int " + std::string(settings.ints), "");
  }
  return {};
}

Status set_id(SnapshotBuilder& builder, const std::string& text, std::uint64_t offset) {
  const auto id = parse_id(text);
  if (!id) {
    return Error(Errc::malformed, "the parameter id does not have a form that Burn uses")
        .offset(offset)
        .expected("13 characters of 0-9 and a-v, 10 in old files, or a UUID")
        .found(text.substr(0, 40));
  }
  const auto node = static_cast<std::uint32_t>(builder.nodes().size() - 1);
  if (*id == made_id(node_path(builder.data(), node))) return {};  // the file had no id
  builder.set_id(*id);
  if (id_text(*id) != text) builder.annotate(std::string(id_note), Value(text));
  return {};
}

std::string id_text_of(const LeafView& leaf, std::string_view path) {
  const auto id = leaf.id();
  if (!id) return id_text(made_id(path));
  if (const Annotations* notes = leaf.annotations()) {
    const auto note = notes->find(std::string(id_note));
    const std::string* text = note != notes->end() ? note->second.as_string() : nullptr;
    if (text != nullptr && parse_id(*text) == id) return *text;
  }
  return id_text(*id);
}

bool is_bare(const LeafView& leaf) {
  return leaf.annotations() != nullptr && leaf.annotations()->contains(std::string(bare_note)) && !leaf.id();
}

void keep(const Header& header, SnapshotBuilder& builder) {
  Header copy = header;
  for (std::size_t i = 0; i < std::size(header_names); ++i) {
    builder.set_origin("burn." + std::string(header_names[i]), std::move(*member(copy, i)));
  }
}

}  // namespace detail::burn

std::optional<BurnHeader> burn_header(const Snapshot& opened) {
  BurnHeader header;
  for (std::size_t i = 0; i < std::size(detail::burn::header_names); ++i) {
    const auto& origin = opened.origin();
    const auto found = origin.find("burn." + std::string(detail::burn::header_names[i]));
    if (found == origin.end()) return std::nullopt;
    *detail::burn::member(header, i) = found->second;
  }
  return header;
}

}  // namespace stele::inline v0
