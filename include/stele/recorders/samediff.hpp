// DL4J's SameDiff files: .fb (all releases up to 1.0.0-M2.1), .sdnb and .sdz (2025 and later).
//
// .fb
// 1. one FlatBuffer, its root a SameDiffGraph (dl4j/samediff.fbs): variables with their arrays inside,
//    operations, placeholders, loss variables, training configuration as JSON, optimizer state; below 2 GiB in all.
//    Arrays of dialect A: `shape` is ND4J's shapeInfo. DL4J writes them big-endian; stele little-endian, which DL4J
//    reads too
//
// .sdnb
// 1. "SDNB", then big-endian: i32 version (1), i64 offset and i64 length of the manifest, i64 32: the start of 2.
// 2. a FlatBuffer as in .fb, with arrays of dialect B: `shape` has the extents; arrays of 1 MiB and more are in 3.
// 3. arrays without gaps, little-endian
// 4. manifest: a Java object with their positions (recorders/samediff/manifest.hpp)
// Several files BASE.shard0-of-N.sdnb, … form one model; the first file contains the graph.
//
// .sdz: a zip file of one .sdnb (with the entry name "model"), or of its shards.
// docs/formats/samediff.md specifies every byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stele/checkpoint.hpp"
#include "stele/recorder.hpp"

namespace stele::inline v0 {

enum class SameDiffContainer : std::uint8_t {
  by_name,  // on save, from the path's extension: .sdnb, .sdz; other paths, and memory: fb
  fb,
  sdnb,
  sdz,
};

struct SameDiffOptions {
  SameDiffContainer container = SameDiffContainer::by_name;
  /// .sdnb and .sdz: maximum bytes of tensors in a shard; larger models have several shards. DL4J cannot read shards of
  /// 2 GiB.
  std::uint64_t shard_bytes = std::uint64_t{1} << 30;
};

/// Reads any of the three containers, independent of the options. Tensors are the variables and constants with arrays,
/// by name; an array of strings is a value. Errors of open(): malformed, truncated, unsupported (for example files from
/// before 1.0.0-beta4), missing (a shard), duplicate, limit.
class STELE_EXPORT SameDiffFormat : public CheckpointFormat {
 public:
  SameDiffFormat() = default;
  explicit SameDiffFormat(SameDiffOptions options) : options_(options) {}
  const SameDiffOptions& options() const noexcept { return options_; }

  /// Returns "samediff", "sdnb" or "sdz".
  std::string_view name() const noexcept override;
  std::string_view extension() const noexcept override;
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// Checks a file, including its graph, training configuration and optimizer state.
  Result<Report> verify(SourcePtr source, const OpenContext& context) const override;
  Result<Checkpoint> open_checkpoint(SourcePtr source, const OpenContext& context) const override;
  /// Writes a file. Errors: limit (a file of 2 GiB or more; the error names the tensor and the container to use
  /// instead), exists (existing shards).
  Status write_checkpoint(const Checkpoint& checkpoint, Sink& sink, const SaveOptions& options) const override;

 private:
  SameDiffOptions options_;
};

/// Opens all parts of a SameDiff file: parameters, graph, training configuration, optimizer state. All arrays are lazy.
STELE_EXPORT Result<Checkpoint> open_samediff(const Input& from, const LoadOptions& options = default_load_options());

/// Saves and loads SameDiff files. The precision applies to parameters; optimizer state is unchanged.
template <PrecisionSettings Settings = NativePrecision>
class SameDiffRecorder : public CheckpointRecorder<SameDiffFormat, Settings> {
  using Base = CheckpointRecorder<SameDiffFormat, Settings>;

 public:
  SameDiffRecorder() = default;
  explicit SameDiffRecorder(SameDiffContainer container) : Base(SameDiffFormat({.container = container})) {}
  explicit SameDiffRecorder(SameDiffOptions options) : Base(SameDiffFormat(options)) {}
};

}  // namespace stele::inline v0
