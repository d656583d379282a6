// The parts of a step: its parameters and optimizer state, in any format.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "place.hpp"
#include "stele/bundle.hpp"
#include "stele/checkpoint.hpp"

namespace stele::inline v0::detail::steps {

/// Checks that steps in this format can be saved and then opened without a type. Errors: invalid_argument, unsupported,
/// needs_layout.
Status check_format(const Format* format, PrecisionSpec precision, const LoadOptions& options);

/// Returns true if steps in this format can be deltas of other steps.
bool stores_deltas(const Format& format) noexcept;

/// Writes the parts into `folder` (null on a dry run) and adds their names to the manifest. `path` is the folder's path
/// for messages. A CheckpointFormat writes one file; other formats write one for each part. Errors: those of a save,
/// not_representable (a graph, which only a CheckpointFormat stores). `base`: if it is set, the parts that it has, too,
/// are written as deltas of it.
Result<Report> write_parts(const Format& format, PrecisionSpec precision, const Checkpoint& checkpoint, Bundle* folder,
                           const std::string& path, const SaveOptions& options, Manifest& manifest,
                           const Checkpoint* base = nullptr);

/// Opens the parts of a step. `format` must outlive them. `base`: the step that the parts are deltas of; null: the
/// parts are whole.
/// Errors: those of open() and apply_delta().
Result<Checkpoint> open_parts(const Format& format, const Place& place, const Manifest& manifest,
                              const LoadOptions& options, const Checkpoint* base = nullptr);

/// Returns the parts of a step that is a delta of the base of `older`. Both were opened without a base, and `newer` is
/// a delta of `older`. Errors: those of merge_deltas().
Result<Checkpoint> joined(const Checkpoint& older, const Checkpoint& newer, const LoadOptions& options);

/// Returns the size of all tensors in bytes.
std::uint64_t byte_size(const Checkpoint& checkpoint);

}  // namespace stele::inline v0::detail::steps
