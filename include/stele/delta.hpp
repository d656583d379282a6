// Deltas: the difference between two versions of a model, as a snapshot that a `.stele` file stores. It has the names,
// the values and the metadata of the new version; each of its tensors is one of the following:
//
// - unchanged, without bytes; perhaps renamed;
// - the XOR of the old and the new elements, whole, or at the positions of changed elements only;
// - new, as it is.
//
// Guide: docs/guide/deltas.md. Format: docs/formats/delta.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "stele/options.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0 {

/// A description of a delta.
struct DeltaInfo {
  std::string base;  ///< weights_digest() of the version to which the delta applies
  std::string next;  ///< weights_digest() of the resulting version
  // Numbers of tensors.
  std::uint64_t unchanged = 0, renamed = 0, changed = 0, added = 0;
  std::uint64_t bytes = 0;  ///< size of all elements that the delta stores, before compression
};

/// Returns the description; nullopt if the snapshot is not a delta, or is malformed.
STELE_EXPORT std::optional<DeltaInfo> delta_info(const Snapshot& snapshot);

/// Returns 16 hexadecimal digits that identify the names, dtypes, shapes and elements of all tensors: the XXH3 digest
/// that `stele hash` prints. It does not depend on the file's format, on the order of tensors, or on ties. Reads the
/// elements of tensors whose file does not store their XXH3; otherwise the file is trusted. Quantized weights count as
/// the tensors that the file stores. Errors: io, checksum, cancelled.
STELE_EXPORT Result<std::string> weights_digest(const Snapshot& snapshot,
                                                const LoadOptions& options = default_load_options());

/// Returns the delta from `base` to `next`, to be saved by a CompressedRecorder. Reads both once; the elements of
/// changed tensors are read again, and encoded, when the delta is saved. Tensors with one name, dtype and shape are
/// compared; a tensor without such a counterpart is new, unless a tensor of `base` that `next` lacks has the same
/// elements. Uses LoadOptions::threads, executor and progress. Errors: invalid_argument (`base` or `next` is a delta),
/// those of reading.
STELE_EXPORT Result<Snapshot> make_delta(const Snapshot& base, const Snapshot& next,
                                         const LoadOptions& options = default_load_options());

/// Returns the version that a delta gives. Its tensors are decoded piece by piece when they are read, and compared with
/// the checksums in the delta: the first read of a part of a tensor checks the whole tensor. Side files of the folder
/// of `base` remain. Errors: checksum (`base` is not the base of the delta: at once if its tensors have other names,
/// dtypes or shapes, or its file stores XXH3 checksums; otherwise when a tensor is read), invalid_argument (`delta` is
/// not a delta, or `base` is one), malformed, limit (more than 256 deltas on each other).
STELE_EXPORT Result<Snapshot> apply_delta(const Snapshot& base, const Snapshot& delta);

/// Returns one delta with the combined effect of all, applied in order. Needs no base. Reads each once, and again when
/// the result is saved. Errors: checksum (a delta does not follow its predecessor), invalid_argument (an empty list),
/// malformed, errors of reading.
STELE_EXPORT Result<Snapshot> merge_deltas(std::span<const Snapshot> deltas,
                                           const LoadOptions& options = default_load_options());
STELE_EXPORT Result<Snapshot> merge_deltas(const Snapshot& first, const Snapshot& second,
                                           const LoadOptions& options = default_load_options());

}  // namespace stele::inline v0
