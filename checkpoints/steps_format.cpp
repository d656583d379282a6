// Opens runs and steps without a manager.
#include "stele/checkpoints/steps_format.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/urls.hpp"
#include "manifest.hpp"
#include "parts.hpp"
#include "snapshot/data.hpp"
#include "state.hpp"
#include "stele/bundle.hpp"

namespace stele::inline v0 {
namespace {

using detail::ManagerState;
using detail::steps::Check;
using detail::steps::Manifest;
using detail::steps::manifest_name;

/// Returns true if the folder has the manifest of a step.
bool is_step(const Bundle& folder) {
  const auto there = folder.contains(manifest_name);
  if (!there || !*there) return false;
  const auto source = folder.open(manifest_name);
  return source && detail::steps::is_manifest(**source);
}

/// A run, and the step of it that is meant; nullopt: the newest complete step.
struct Where {
  std::string run;
  std::optional<std::int64_t> step;
};

Result<Where> where(const Source& source) {
  std::string path = source.name();
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (!is_step(*source.bundle())) return Where{std::move(path), std::nullopt};
#ifndef __wasi__
  // "." and "dir/.." have no name of a step. zig's C++ library has no file system for WebAssembly.
  if (!detail::is_url(path)) {
    std::error_code failed;
    const auto whole = std::filesystem::canonical(std::u8string(path.begin(), path.end()), failed).generic_u8string();
    if (!failed) path.assign(whole.begin(), whole.end());
  }
#endif
  const std::size_t slash = path.rfind('/');
  const std::string_view name = std::string_view(path).substr(slash + 1);
  const auto step = detail::steps::step_of(name);
  if (!step || slash == path.npos) {
    return Error(Errc::invalid_argument, "the folder of a step has another name than the step's")
        .file(source.name())
        .expected("step-00000100, for example")
        .found(name)
        .hint("rename the folder");
  }
  return Where{slash == 0 ? "/" : path.substr(0, slash), step};
}

struct Found {
  std::unique_ptr<ManagerState> run;
  Manifest manifest;
  bool newest = false;               // chosen because it is the newest
  std::vector<std::string> skipped;  // newer steps that are not complete, with the reason
};

Result<Found> find_step(const Source& source, std::span<const Format* const> formats, const LoadOptions& options,
                        Check check) {
  STELE_TRY_ASSIGN(const Where at, where(source));
  ManagerOptions looking;
  looking.parts.dry_run = true;
  looking.load = options;
  looking.load.part.clear();
  looking.older_formats = formats;
  const auto any = std::find_if(formats.begin(), formats.end(), [](const Format* f) {
    return f->writes() && !f->is_folder() && detail::steps::check_format(f, {}, {});
  });
  if (any == formats.end()) return Error(Errc::invalid_argument, "the list of formats has none for steps");
  const std::shared_ptr<const Format> borrowed(std::shared_ptr<const Format>(), *any);
  Found found{std::make_unique<ManagerState>(at.run, borrowed, PrecisionSpec(), std::move(looking)), {}, !at.step, {}};
  STELE_TRY(found.run->start());
  if (at.step) {
    STELE_TRY_ASSIGN(found.manifest, found.run->manifest(*at.step, check));
    return found;
  }
  STELE_TRY_ASSIGN(const std::vector<std::int64_t> all, found.run->numbers());
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    auto manifest = found.run->manifest(*step, Check::sizes);
    if (manifest && check != Check::sizes)
      manifest = found.run->manifest(*step, check);
    else if (!manifest && manifest.error().code() != Errc::unsupported &&
             !detail::steps::is_of_machine(manifest.error())) {
      found.skipped.push_back("step " + std::to_string(*step) +
                              " is not complete: " + std::string(manifest.error().message()));
      continue;
    }
    STELE_TRY_ASSIGN(found.manifest, std::move(manifest));
    return found;
  }
  return Error(Errc::not_found, "the run has no complete step")
      .file(source.name())
      .found(found.skipped.empty() ? "no step" : found.skipped.front());
}

/// Adds what is known of the step to its parameters.
Snapshot described(const Snapshot& parameters, const Found& found) {
  auto data = detail::derived_data(parameters);
  const StepInfo& info = found.manifest.info;
  std::string text = "step " + std::to_string(info.step) + ", in the format " + info.format;
  if (found.newest) text += ": the newest complete step of the run";
  if (info.base) text += "; a delta of step " + std::to_string(*info.base);
  data->notes.push_back(std::move(text));
  data->notes.insert(data->notes.end(), found.skipped.begin(), found.skipped.end());
  if (!info.metrics.empty()) data->left_out.emplace_back("the metrics of the step");
  const auto* const state = info.state.as_map();
  if (state != nullptr && !state->empty()) data->left_out.emplace_back("the state of the step");
  if (!found.manifest.ranks.empty()) data->left_out.emplace_back("the states of the step's processes");
  return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
}

}  // namespace

const Capabilities& StepsFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.nesting = true,
                                    .values = true,
                                    .aliases = true,
                                    .metadata = true,
                                    .properties = true,
                                    .composites = true,
                                    .checksums = true};
  return can;
}

bool StepsFormat::recognises(std::span<const std::byte> /*head*/, std::uint64_t /*size*/) const noexcept {
  return false;
}

bool StepsFormat::recognises_folder(const Bundle& folder) const {
  if (is_step(folder)) return true;
  const auto names = folder.names();
  return names && std::any_of(names->begin(), names->end(), [](std::string_view name) {
           const std::size_t slash = name.find('/');
           return slash != name.npos && name.substr(slash + 1) == manifest_name &&
                  detail::steps::step_of(name.substr(0, slash));
         });
}

Result<Snapshot> StepsFormat::open(SourcePtr source, const OpenContext& context) const {
  STELE_TRY_ASSIGN(Checkpoint checkpoint, open_checkpoint(std::move(source), context));
  return std::move(checkpoint.parameters);
}

Result<Checkpoint> StepsFormat::open_checkpoint(SourcePtr source, const OpenContext& context) const {
  return detail::guarded(source->name(), [&]() -> Result<Checkpoint> {
    STELE_TRY_ASSIGN(const Found found, find_step(*source, formats_, context.options(), Check::sizes));
    STELE_TRY_ASSIGN(OpenedStep opened, found.run->open(found.manifest));
    opened.checkpoint.parameters = described(opened.checkpoint.parameters, found);
    return std::move(opened.checkpoint);
  });
}

Result<Report> StepsFormat::verify(SourcePtr source, const OpenContext& context) const {
  return detail::guarded(source->name(), [&]() -> Result<Report> {
    STELE_TRY_ASSIGN(const Found found, find_step(*source, formats_, context.options(), Check::contents));
    STELE_TRY(found.run->open(found.manifest));
    Report report;
    for (const std::string& step : found.skipped) report.add(Report::What::unchecked, step, "");
    return report;
  });
}

Status StepsFormat::write_checkpoint(const Checkpoint& /*checkpoint*/, Sink& sink, const SaveOptions& /*o*/) const {
  return Error(Errc::unsupported, "steps are written by a CheckpointManager").file(sink.name());
}

}  // namespace stele::inline v0
