#include "manifest.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <limits>
#include <set>

#include "base/hash.hpp"
#include "base/hex.hpp"
#include "io/text.hpp"
#include "json/json.hpp"
#include "json/sealed.hpp"

namespace stele::inline v0::detail::steps {
namespace {

constexpr std::int64_t version = 1;
constexpr std::string_view version_key = "stele_step", folder_prefix = "step-";
constexpr std::size_t min_digits = 8;

/// Returns the UTC time in ISO 8601 format: "2026-11-24T13:50:49Z".
std::string readable(std::int64_t time_ms) {
  using namespace std::chrono;
  const sys_seconds time(floor<seconds>(milliseconds(time_ms)));
  const auto day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  char text[64];
  const int size = std::snprintf(  // NOLINT(cppcoreguidelines-pro-type-vararg)
      text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02dZ", static_cast<int>(date.year()),
      static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), static_cast<int>(clock.hours().count()),
      static_cast<int>(clock.minutes().count()), static_cast<int>(clock.seconds().count()));
  return {text, static_cast<std::size_t>(size)};
}

/// Reads members of the manifest, and keeps the error of the first member that is missing or has another kind.
class Members {
 public:
  explicit Members(const Value& object) : object_(object) {}
  const Value* find(const char* key) { return object_.find(key); }
  std::int64_t integer(const char* key) {
    const Value* value = object_.find(key);
    const std::int64_t* number = value != nullptr ? value->as_i64() : nullptr;
    return number != nullptr ? *number : (bad(key), 0);
  }
  std::string string(const char* key) {
    const Value* value = object_.find(key);
    const std::string* text = value != nullptr ? value->as_string() : nullptr;
    return text != nullptr ? *text : (bad(key), std::string());
  }
  std::string string_or_empty(const char* key) { return object_.find(key) != nullptr ? string(key) : std::string(); }
  const Value::Map& map(const char* key) {
    static const Value::Map none;
    const Value* value = object_.find(key);
    const Value::Map* map = value != nullptr ? value->as_map() : nullptr;
    return map != nullptr ? *map : (bad(key), none);
  }
  void bad(const char* key) {
    if (status_) status_ = Error(Errc::malformed, "the manifest lacks a member, or it has another kind").expected(key);
  }
  Status status() { return std::move(status_); }

 private:
  const Value& object_;
  Status status_;
};

Value number(std::uint64_t n) { return n <= INT64_MAX ? Value(static_cast<std::int64_t>(n)) : Value(n); }

/// Checks that each part is one of the listed files, or a folder of listed files. Every opened file is then verified
/// and inside the step's folder.
Status check_parts(const Manifest& manifest) {
  std::vector<std::string_view> parts;
  for (const std::string* part : {&manifest.checkpoint, &manifest.parameters}) {
    if (!part->empty()) parts.emplace_back(*part);
  }
  if (parts.size() != 1)
    return Error(Errc::malformed, "the manifest does not name exactly one part with the parameters");
  for (const auto& [key, file] : manifest.optimizer) parts.emplace_back(file);
  for (const std::string_view part : parts) {
    const bool listed = std::any_of(manifest.files.begin(), manifest.files.end(), [&](const ManifestFile& file) {
      return file.name == part || (file.name.starts_with(part) && file.name.substr(part.size()).starts_with('/'));
    });
    if (listed && !part.empty() && part != "." && part != ".." && part.find('/') == part.npos) continue;
    return Error(Errc::malformed, "the manifest names a part that is not one of its files").found(part);
  }
  return {};
}

/// Reads the checked body of a manifest.
Result<Manifest> from_value(const Value& root) {
  Members members(root);
  const std::int64_t found = members.integer(std::string(version_key).c_str());
  STELE_TRY(members.status());
  if (found != version) {
    return Error(Errc::unsupported, "this build does not support the manifest's version")
        .expected(std::to_string(version))
        .found(std::to_string(found));
  }
  Manifest manifest;
  StepInfo& info = manifest.info;
  info.step = members.integer("step");
  info.time_ms = members.integer("time_ms");
  info.library = members.string("library");
  info.format = members.string("format");
  if (members.find("base") != nullptr) {
    info.base = members.integer("base");
    if (*info.base < 0 || *info.base >= info.step) members.bad("base");
    const std::int64_t deltas = members.integer("deltas");
    if (deltas < 1 || deltas > static_cast<std::int64_t>(max_deltas)) members.bad("deltas");
    info.deltas = static_cast<std::size_t>(deltas);
  }
  if (members.find("signal") != nullptr) info.signal = static_cast<int>(members.integer("signal"));
  for (const auto& [name, metric] : members.map("metrics")) {
    const double* value = metric.as_f64();
    if (value == nullptr) members.bad("metrics");
    info.metrics[name] = value != nullptr ? *value : 0;
  }
  info.state = Value(members.map("state"));
  if (const Value* ranks = members.find("ranks")) {
    ranks->as_list() != nullptr ? static_cast<void>(manifest.ranks = *ranks->as_list()) : members.bad("ranks");
  }
  manifest.checkpoint = members.string_or_empty("checkpoint");
  manifest.parameters = members.string_or_empty("parameters");
  for (const auto& [key, file] : members.map("optimizer")) {
    const std::string* name = file.as_string();
    if (name == nullptr) members.bad("optimizer");
    manifest.optimizer.emplace_back(key, name != nullptr ? *name : std::string());
  }
  manifest.training = members.string_or_empty("training");
  manifest.objects = members.string_or_empty("objects");
  if (!manifest.objects.empty() && (manifest.objects.find('/') != std::string::npos || !check_name(manifest.objects))) {
    members.bad("objects");
  }
  for (const auto& [name, file] : members.map("files")) {
    Members parts(file);
    const std::int64_t bytes = parts.integer("bytes");
    const auto hash = from_hex(parts.string("xxh3"));
    if (!parts.status() || bytes < 0 || !hash) members.bad("files");
    manifest.files.push_back(
        {name, static_cast<std::uint64_t>(bytes), hash.value_or(0), parts.string_or_empty("version")});
    info.bytes += manifest.files.back().bytes;
  }
  STELE_TRY(members.status());
  STELE_TRY(check_parts(manifest));
  return manifest;
}

/// Checks that a file of a step is a regular file in the step's folder. After this check, an error (io) when opening it
/// comes from the machine, not from the step.
Status check_regular(const FilePlace& place) {
  STELE_TRY_ASSIGN(const os::Info info, os::status_beneath(place.os()));
  if (info.kind == os::Kind::regular || info.kind == os::Kind::missing) return {};
  return Error(Errc::malformed, "a file of the step is not a regular file in its folder").file(place.name);
}

}  // namespace

Result<ManifestFile> hash_file(const Bundle& folder, const std::string& name) {
  STELE_TRY_ASSIGN(const SourcePtr source, folder.open(name));
  Hasher hasher;
  Bytes piece(static_cast<std::size_t>(std::min<std::uint64_t>(source->size(), std::uint64_t{1} << 20)));
  for (std::uint64_t at = 0; at < source->size();) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(source->size() - at, piece.size()));
    STELE_TRY(source->read_at(at, piece.span().first(n)));
    hasher.update(piece.data(), n);
    at += n;
  }
  return ManifestFile{name, source->size(), hasher.digest()};
}

Result<std::string> to_text(const Manifest& manifest) {
  const StepInfo& info = manifest.info;
  std::string text;
  json::Writer out(text, true);
  const auto member = [&](std::string_view key, const Value& value) {
    out.key(key);
    return json::write_value(out, value);
  };
  out.begin_object();
  STELE_TRY(member(version_key, Value(version)));
  STELE_TRY(member("step", Value(info.step)));
  STELE_TRY(member("time", Value(readable(info.time_ms))));
  STELE_TRY(member("time_ms", Value(info.time_ms)));
  STELE_TRY(member("library", Value(info.library)));
  STELE_TRY(member("format", Value(info.format)));
  if (info.base) {
    STELE_TRY(member("base", Value(*info.base)));
    STELE_TRY(member("deltas", Value(static_cast<std::int64_t>(info.deltas))));
  }
  if (info.signal != 0) STELE_TRY(member("signal", Value(std::int64_t{info.signal})));
  Value::Map metrics;
  for (const auto& [name, metric] : info.metrics) metrics.emplace_back(name, Value(metric));
  STELE_TRY(member("metrics", Value(std::move(metrics))));
  if (!manifest.ranks.empty()) STELE_TRY(member("ranks", Value(manifest.ranks)));
  STELE_TRY(member("state", info.state.is_null() ? Value(Value::Map()) : info.state));
  if (!manifest.checkpoint.empty()) STELE_TRY(member("checkpoint", Value(manifest.checkpoint)));
  if (!manifest.parameters.empty()) STELE_TRY(member("parameters", Value(manifest.parameters)));
  Value::Map optimizer;
  for (const auto& [key, file] : manifest.optimizer) optimizer.emplace_back(key, Value(file));
  STELE_TRY(member("optimizer", Value(std::move(optimizer))));
  if (!manifest.training.empty()) STELE_TRY(member("training", Value(manifest.training)));
  if (!manifest.objects.empty()) STELE_TRY(member("objects", Value(manifest.objects)));
  Value::Map files;
  for (const ManifestFile& file : manifest.files) {
    Value::Map entry{{"bytes", number(file.bytes)}, {"xxh3", Value(hex(file.xxh3))}};
    if (!file.version.empty()) entry.emplace_back("version", Value(file.version));
    files.emplace_back(file.name, Value(std::move(entry)));
  }
  STELE_TRY(member("files", Value(std::move(files))));
  json::seal(text);
  if (text.size() > max_manifest) {
    return Error(Errc::limit, "the manifest of the step would be too large")
        .expected("at most " + std::to_string(max_manifest) + " bytes")
        .found(std::to_string(text.size()))
        .hint("keep large states as tensors of a kind of optimizer state");
  }
  return text;
}

Result<Manifest> parse_manifest(std::string_view text) {
  STELE_TRY(json::check_seal(text));
  json::Reader in(text);
  Value root;
  const std::size_t memory = json::kMaxValueBytesPerByte * text.size() + 1024;
  STELE_TRY(json::read_value(in, root, memory));
  if (!in.finish()) return in.error();
  return from_value(root);
}

bool is_manifest(const Source& source) {
  char head[64];
  if (source.size() < sizeof head || !source.read_at(0, std::as_writable_bytes(std::span(head)))) return false;
  std::string_view text(head, sizeof head);
  text.remove_prefix(std::min(text.find_first_not_of("{ \t\r\n"), text.size()));
  return head[0] == '{' && text.starts_with("\"stele_step\"");
}

std::string folder_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return std::string(folder_prefix) + std::string(min_digits - std::min(min_digits, digits.size()), '0') + digits;
}

std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(folder_prefix)) return std::nullopt;
  const std::string_view digits = name.substr(folder_prefix.size());
  std::int64_t step = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  // Each step has only one valid folder name.
  if (read.ec != std::errc() || step < 0 || folder_name(step) != name) return std::nullopt;
  return step;
}

namespace {

Result<Manifest> parse_manifest(const Source& source) {
  STELE_TRY_ASSIGN(const std::string text, read_text(source, max_manifest, "the manifest is too large"));
  return steps::parse_manifest(text);
}

}  // namespace

Status check_nothing_else(const Bundle& folder) {
  STELE_TRY_ASSIGN(const SourcePtr source, folder.open(manifest_name));
  STELE_TRY_ASSIGN(const Manifest manifest, parse_manifest(*source));
  STELE_TRY_ASSIGN(const std::vector<std::string> names, folder.names());
  std::set<std::string_view> known{manifest_name};
  for (const ManifestFile& file : manifest.files) known.insert(file.name);
  for (const std::string& name : names) {
    if (known.contains(name)) continue;
    return Error(Errc::exists, "the folder of the step contains a file that does not belong to the step")
        .found(name)
        .hint("move the file elsewhere");
  }
  return {};
}

Result<FilePlace> open_folder(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  STELE_TRY_ASSIGN(const os::Folder above,
                   os::open_folder({nullptr, path.substr(0, slash + 1), path.substr(0, slash)}));
  auto folder = os::open_below(above, path.substr(slash + 1));
  if (!folder) return std::move(folder).error().file(path);
  return FilePlace{std::make_shared<const os::Folder>(*std::move(folder)), "", path};
}

Result<Manifest> read_manifest_of(const Source& source, std::int64_t step) {
  STELE_TRY_ASSIGN(Manifest manifest, parse_manifest(source));
  if (manifest.info.step == step) return manifest;
  return Error(Errc::malformed, "the manifest belongs to another step")
      .file(source.name())
      .expected(std::to_string(step))
      .found(std::to_string(manifest.info.step));
}

Result<Manifest> read_manifest(const FilePlace& folder, std::int64_t step) {
  const FilePlace place = folder / manifest_name;
  const std::string& path = place.name;
  return guarded(path, [&]() -> Result<Manifest> {
    STELE_TRY(check_regular(place));
    STELE_TRY_ASSIGN(const SourcePtr source, detail::open_file(place, false));
    auto manifest = read_manifest_of(*source, step);
    if (!manifest) return std::move(manifest).error().file(path);
    manifest->info.folder = folder.name;
    manifest->folder = folder;
    return manifest;
  });
}

Result<std::vector<ManifestFile>> list_files(const Bundle& folder) {
  STELE_TRY_ASSIGN(const std::vector<std::string> names, folder.names());
  std::vector<ManifestFile> files;
  for (const std::string& name : names) {
    if (name == manifest_name) continue;
    STELE_TRY_ASSIGN(files.emplace_back(), hash_file(folder, name));
  }
  return files;
}

Status check_size(const ManifestFile& file, std::uint64_t bytes, const std::string& path) {
  if (bytes == file.bytes) return {};
  return Error(Errc::truncated, "a file of the step has another size than in its manifest")
      .file(path)
      .expected(std::to_string(file.bytes))
      .found(std::to_string(bytes));
}

Status check_contents(const Bundle& bundle, const std::string& name, const ManifestFile& file,
                      const std::string& path) {
  STELE_TRY_ASSIGN(const ManifestFile now, hash_file(bundle, name));
  if (now.xxh3 == file.xxh3) return {};
  return Error(Errc::checksum, "a file of the step does not match the checksum in its manifest")
      .file(path)
      .expected(hex(file.xxh3))
      .found(hex(now.xxh3));
}

Status check_files(const FilePlace& folder, const Manifest& manifest, bool contents) {
  const auto bundle = folder_bundle(folder, {}, false);
  for (const ManifestFile& file : manifest.files) {
    STELE_TRY(check_regular(folder / file.name));
    STELE_TRY_ASSIGN(const SourcePtr source, bundle->open(file.name));
    STELE_TRY(check_size(file, source->size(), source->name()));
    if (contents) STELE_TRY(check_contents(*bundle, file.name, file, source->name()));
  }
  return {};
}

}  // namespace stele::inline v0::detail::steps
