// Zarr (https://zarr-specs.readthedocs.io), versions 2 and 3: a folder in which a group is a folder and an array is a
// folder with its chunks. Version 3: `zarr.json` in each folder, and chunks `c/0/0`, `c/0/1`, …; version 2: `.zgroup`,
// `.zarray`, `.zattrs`, and chunks `0.0`, `0.1`, … (docs/formats/zarr.md).
#pragma once

#include <cstdint>

#include "stele/recorder.hpp"

namespace stele::inline v0 {

struct ZarrOptions {
  /// Level of zstd, 1 to 19; 0: chunks are not compressed.
  int level = 3;
  /// Maximum size of a chunk in bytes, unless one row along the first axis is larger. 0: each tensor is one chunk.
  std::uint64_t chunk_bytes = std::uint64_t{64} << 20;
};

/// Folders of zarr arrays. A path `layers.0.weight` is the array `layers/0/weight`. The attributes of the root group
/// are properties, and its strings are metadata, too; the annotations `zarr.attributes` and `zarr.dimension_names`
/// contain an array's attributes and dimension names. Arrays with other dtypes, filters or codecs are unreadable
/// entries. Saves write version 3, without sharding. Stores no checksums.
class STELE_EXPORT ZarrFormat final : public Format {
 public:
  explicit ZarrFormat(ZarrOptions options = {}) : options_(options) {}
  std::string_view name() const noexcept override { return "zarr"; }
  std::string_view extension() const noexcept override { return ".zarr"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  bool is_folder() const noexcept override { return true; }
  /// Also opens the metadata file of a folder.
  bool opens(bool /*folder*/) const noexcept override { return true; }
  bool recognises_folder(const Bundle& folder) const override;
  Status may_replace(const Bundle& folder) const override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Result<std::vector<Loss>> losses(const Snapshot& snapshot, std::string_view file) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
  const ZarrOptions& options() const noexcept { return options_; }

 private:
  ZarrOptions options_;
};

template <PrecisionSettings Settings = NativePrecision>
using ZarrRecorder = Recorder<ZarrFormat, Settings>;

}  // namespace stele::inline v0
