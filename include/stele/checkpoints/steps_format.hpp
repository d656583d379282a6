// Runs and steps of a CheckpointManager as models: opened like files, without a manager.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "stele/checkpoint.hpp"

namespace stele::inline v0 {

/// Opens the folder of a step, or of a run, which is its newest complete step (docs/formats/steps.md); also steps that
/// are deltas of others, from the folder that has these, and runs in stores. Checks the sizes of a step's files; their
/// checksums only in verify(). A note tells the step, and a run's newer steps that are not complete. `open()` returns
/// the parameters, `open_checkpoint()` all parts; the metrics and the state of the step are listed as left out. Only
/// reads. register_formats() of stele/recorders/any.hpp makes open() and load() find runs and steps. Errors of open:
/// not_found (a run without a complete step), unsupported (a format that is not in the list), invalid_argument (the
/// folder of a step has another name), those of the step's files.
class STELE_EXPORT StepsFormat final : public CheckpointFormat {
 public:
  /// `formats`: those that steps may be saved in, such as formats(); they must outlive the format.
  explicit StepsFormat(std::span<const Format* const> formats) noexcept : formats_(formats) {}
  std::string_view name() const noexcept override { return "steps"; }
  std::string_view extension() const noexcept override { return ""; }
  const Capabilities& capabilities() const noexcept override;
  bool writes() const noexcept override { return false; }
  bool is_folder() const noexcept override { return true; }
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  bool recognises_folder(const Bundle& folder) const override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Result<Checkpoint> open_checkpoint(SourcePtr source, const OpenContext& context) const override;
  Result<Report> verify(SourcePtr source, const OpenContext& context) const override;
  Status write_checkpoint(const Checkpoint& checkpoint, Sink& sink, const SaveOptions& options) const override;

 private:
  std::span<const Format* const> formats_;
};

}  // namespace stele::inline v0
