// Checkpoints of Orbax, JAX's checkpoint library: a folder with a folder for each item, which contains the item's tree
// as JSON (`_METADATA`) and an array of zarr for each leaf, in an OCDBT database (`manifest.ocdbt`, `d/`) or as plain
// files (docs/formats/orbax.md).
#pragma once

#include "stele/recorder.hpp"

namespace stele::inline v0 {

/// Orbax's folders, read-only: an item, a step, or a folder of steps, of which the newest complete one is opened. A
/// step with one tree opens as this tree; one with several, as a member for each. Dicts are maps, tuples and lists are
/// lists, numbers and strings of Python are values. Arrays that cannot be read are unreadable entries. Also opens an
/// OCDBT database of other zarr arrays.
class STELE_EXPORT OrbaxFormat final : public Format {
 public:
  std::string_view name() const noexcept override { return "orbax"; }
  /// Returns "": the names of checkpoints have no extension.
  std::string_view extension() const noexcept override { return ""; }
  const Capabilities& capabilities() const noexcept override;
  bool writes() const noexcept override { return false; }
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  bool is_folder() const noexcept override { return true; }
  /// Also opens `manifest.ocdbt`, `_METADATA` and `_CHECKPOINT_METADATA` in a folder.
  bool opens(bool /*folder*/) const noexcept override { return true; }
  bool recognises_folder(const Bundle& folder) const override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// Also returns an error (missing) if the checkpoint lacks the data of an entry.
  Result<Report> verify(SourcePtr source, const OpenContext& context) const override;
  /// Returns an error (unsupported), because the format is read-only.
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
};

template <PrecisionSettings Settings = NativePrecision>
using OrbaxRecorder = Recorder<OrbaxFormat, Settings>;

}  // namespace stele::inline v0
