// Opens zip files that contain one file of a model.
#include "model_zip.hpp"

#ifdef STELE_ZIP
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/extension.hpp"
#include "base/limits.hpp"
#include "base/meter.hpp"
#include "base/of_machine.hpp"
#include "encodings/gzip/entry.hpp"
#include "encodings/zip/zip.hpp"
#include "io/os/os.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/read_only.hpp"
#include "stele/recorders/any.hpp"

namespace stele::inline v0::detail {
namespace {

using DirectoryPtr = std::shared_ptr<const zip::Directory>;

/// Maximum number of names in the error for several files.
constexpr std::size_t max_listed = 5;

/// Opens the directory. If a program was put before the zip file without a change of the zip file's offsets, the
/// offsets count from the end of the program.
Result<DirectoryPtr> directory_of(const SourcePtr& source) {
  const std::uint64_t memory = add_scaled(index_base, source->size(), index_rate::file);
  auto directory = zip::Directory::open(source, memory);
  constexpr std::uint64_t end_size = 22;
  if (directory || directory.error().code() != Errc::malformed || source->size() < end_size) return directory;
  std::array<std::byte, end_size> end{};
  const std::uint64_t place = source->size() - end_size;
  STELE_TRY(source->read_at(place, end));
  const std::uint64_t used =
      std::uint64_t{load_le<std::uint32_t>(end.data() + 12)} + load_le<std::uint32_t>(end.data() + 16);
  if (load_le<std::uint32_t>(end.data()) != 0x06054b50U || used >= place) return directory;
  const gzip::Data rest{place - used, used + end_size, used + end_size, 0};
  auto moved = zip::Directory::open(std::make_shared<gzip::StoredSource>(source, source->name(), rest), memory);
  return moved ? moved : directory;
}

/// A file of a model in a zip file.
struct Found {
  std::string name;
  SourcePtr source;
  const Format* format = nullptr;
};

/// Returns the entries that are files of models by their names and by their contents. JSON files describe a model next
/// to its weights, and are not candidates.
Result<std::vector<Found>> models_of(const zip::Directory& directory) {
  std::vector<Found> all;
  for (const zip::Entry& entry : directory.entries()) {
    if (detail::has_extension(entry.name, ".json") || zip::is_encrypted(entry)) continue;
    if (entry.method != zip::stored && entry.method != zip::deflated) continue;
    if (!detail::has_extension(entry.name, ".bin") && !format_of_path(entry.name)) continue;
    STELE_TRY_ASSIGN(SourcePtr source, directory.open(entry));
    const auto format = format_in(*source, false);
    if (!format && is_of_machine(format.error())) return format.error();
    if (format) all.push_back({std::string(entry.name), std::move(source), *format});
  }
  return all;
}

class ModelZipFormat final : public ReadOnlyFormat {
 public:
  std::string_view name() const noexcept override { return "zip"; }
  std::string_view extension() const noexcept override { return ".zip"; }
  const Capabilities& capabilities() const noexcept override {
    static constexpr Capabilities can{};
    return can;
  }
  bool recognises(std::span<const std::byte> /*head*/, std::uint64_t /*size*/) const noexcept override { return false; }
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override {
    return guarded(source->name(), [&]() -> Result<Snapshot> {
      STELE_TRY_ASSIGN(const Found found, find(source));
      return found.format->open(found.source, context);
    });
  }
  Result<Report> verify(SourcePtr source, const OpenContext& context) const override {
    return guarded(source->name(), [&]() -> Result<Report> {
      STELE_TRY_ASSIGN(const Found found, find(source));
      STELE_TRY_ASSIGN(const Report model, found.format->verify(found.source, context));
      STELE_TRY_ASSIGN(const DirectoryPtr directory, directory_of(source));
      Meter meter(context.options().progress, source->size());
      STELE_TRY_ASSIGN(Report report, directory->check(meter));
      for (std::size_t i = 0; i < model.size(); ++i) {  // the CRCs of the zip file cover the contents
        if (model[i].path != "contents") report.add(model[i].what, model[i].path, model[i].detail);
      }
      return report;
    });
  }

 private:
  static Result<Found> find(const SourcePtr& source) {
    STELE_TRY_ASSIGN(const DirectoryPtr directory, directory_of(source));
    STELE_TRY_ASSIGN(std::vector<Found> all, models_of(*directory));
    if (all.size() == 1) return std::move(all.front());
    Error error(Errc::malformed, "the zip file does not contain exactly one file of a model");
    std::string names = all.empty() ? "none" : "";
    for (std::size_t i = 0; i < std::min(all.size(), max_listed); ++i) {
      names.append(i == 0 ? "" : ", ").append(all[i].name.substr(0, 100));
    }
    if (all.size() > max_listed) names += " and " + std::to_string(all.size() - max_listed) + " more";
    return std::move(error).file(source->name()).found(std::move(names)).hint("extract one of the files");
  }
};

}  // namespace

Result<const Format*> model_zip_format(const Source& source) {
  static const ModelZipFormat format;
  const SourcePtr borrowed(SourcePtr(), &source);
  const auto directory = directory_of(borrowed);
  if (!directory && is_of_machine(directory.error())) return directory.error();
  if (!directory || (*directory)->find("tags.txt") != nullptr) return nullptr;
  const auto models = models_of(**directory);
  if (!models && is_of_machine(models.error())) return models.error();
  return models && !models->empty() ? &format : nullptr;
}

}  // namespace stele::inline v0::detail
#endif
