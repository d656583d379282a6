// Checkpoint: a model with everything needed to continue its training: parameters, graph, training configuration,
// optimizer state. Archives and SameDiff files store all of these.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "stele/graph.hpp"
#include "stele/optimizer_state.hpp"
#include "stele/recorder.hpp"
#include "stele/training.hpp"

namespace stele::inline v0 {

/// Everything that a training run needs to continue.
struct Checkpoint {
  Snapshot parameters;
  std::optional<Graph> graph{};
  std::optional<TrainingConfig> training{};
  OptimizerState optimizer{};
  /// Rows Report::What::lost: parts of the opened file that this checkpoint does not contain. Saves repeat them in
  /// their reports.
  Report left_out{};
};

/// A format whose files store checkpoints.
class STELE_EXPORT CheckpointFormat : public Format {
 public:
  ~CheckpointFormat() override;
  /// Opens a file like open(), including its graph, training configuration and optimizer state. All arrays are lazy.
  virtual Result<Checkpoint> open_checkpoint(SourcePtr source, const OpenContext& context) const = 0;
  /// Returns false if the files cannot store a graph, which is then a loss.
  virtual bool stores_graphs() const noexcept { return true; }
  /// Writes a checkpoint like write(). The capabilities and the precision apply to its parameters only.
  virtual Status write_checkpoint(const Checkpoint& checkpoint, Sink& sink, const SaveOptions& options) const = 0;
  const CheckpointFormat* checkpoints() const noexcept final { return this; }
  /// Writes a checkpoint that has only parameters.
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const final;
};

namespace detail {
// The implementation of CheckpointRecorder.
STELE_EXPORT Result<Report> save_checkpoint(const CheckpointFormat& format, PrecisionSpec precision,
                                            const Checkpoint& checkpoint, const Output& to, const SaveOptions& options);
STELE_EXPORT Result<Checkpoint> open_checkpoint(const CheckpointFormat& format, const Input& from,
                                                const LoadOptions& options);
}  // namespace detail

/// Opens all parts of a file of this format. All arrays are lazy. `format` must outlive them.
inline Result<Checkpoint> open_checkpoint(const CheckpointFormat& format, const Input& from,
                                          const LoadOptions& options = default_load_options()) {
  return detail::open_checkpoint(format, from, options);
}

/// A recorder that also saves and opens whole checkpoints. The precision applies to parameters; optimizer state is
/// unchanged.
template <class FormatType, PrecisionSettings Settings = NativePrecision>
class CheckpointRecorder : public Recorder<FormatType, Settings> {
  using Base = Recorder<FormatType, Settings>;

 public:
  using Base::Base;
  using Base::save;
  /// Writes a checkpoint to a file or a Sink, like a module.
  Result<Report> save(const Checkpoint& checkpoint, const Output& to,
                      const SaveOptions& options = default_save_options()) const {
    return detail::save_checkpoint(Base::format(), precision_spec<Settings>(), checkpoint, to, options);
  }
  /// Opens all parts of a file. All arrays are lazy.
  Result<Checkpoint> open_checkpoint(const Input& from, const LoadOptions& options = default_load_options()) const {
    return detail::open_checkpoint(Base::format(), from, options);
  }
};

}  // namespace stele::inline v0
