// safetensors, one file. Byte layout (all little-endian; https://github.com/huggingface/safetensors, README):
//
//  1. u64 N, the length of the header; at most 100,000,000.
//  2. Header, N bytes: a JSON object in UTF-8, padded with spaces to a multiple of 8:
//     {"__metadata__": {string: string}, name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …}
//     The offsets count from the end of the header.
//  3. The tensors' bytes, row-major, in the order of the offsets, without a gap, to the end of the file.
//
// Written like the reference writer: sorted by dtype, widest first, then by name; `__metadata__` first, if there is
// any; no spaces. Plain models therefore give identical bytes. The metadata key `stele` contains the data that names
// cannot express (docs/formats/flat.md).
#pragma once

#include "stele/recorder.hpp"

namespace stele::inline v0 {

/// safetensors. Stricter than the reference reader: duplicate tensors, metadata keys and keys of a tensor are errors.
/// Ignores unknown keys of a tensor, like the reference reader.
class STELE_EXPORT SafetensorsFormat final : public Format {
 public:
  std::string_view name() const noexcept override { return "safetensors"; }
  std::string_view extension() const noexcept override { return ".safetensors"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
};

template <PrecisionSettings Settings = NativePrecision>
using SafetensorsRecorder = Recorder<SafetensorsFormat, Settings>;

/// A model in several safetensors files ("shards") and an index, in the format of transformers: the shards
/// `x-00001-of-00003.safetensors`, … are next to `x.safetensors.index.json`. The index is a JSON object with the
/// members:
///
///  1. "metadata": {"total_size": bytes of all tensors, and strings: the user's metadata, and `stele` as in one file},
///  2. "weight_map": {tensor: file, …}.
///
/// The index is written last, so a new set appears completely or not at all. An existing set is not replaced, unless
/// FileSinkOptions::allow_nonatomic. The sink must know its bundle (a file, or a sink of memory_bundle()).
///
/// Also opens folders that contain one of these: an index; the files that torch.distributed.checkpoint writes for each
/// rank (HuggingFaceStorageWriter), whose boxes are joined to whole tensors when they are read; or one safetensors
/// file.
class STELE_EXPORT ShardedSafetensorsFormat final : public Format {
 public:
  /// `shard_bytes`: maximum bytes of tensors in a file, which only a single larger tensor exceeds; the default equals
  /// transformers' default.
  explicit ShardedSafetensorsFormat(std::uint64_t shard_bytes = 5'000'000'000) noexcept : shard_bytes_(shard_bytes) {}
  std::string_view name() const noexcept override { return "safetensors-sharded"; }
  std::string_view extension() const noexcept override { return ".safetensors.index.json"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  bool opens(bool /*folder*/) const noexcept override { return true; }
  bool recognises_folder(const Bundle& folder) const override;
  Status may_replace(const Bundle& folder) const override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;

 private:
  std::uint64_t shard_bytes_;
};

/// A folder of a model as the Hugging Face hub has it: `config.json` (or `adapter_config.json`), the weights in
/// `model.safetensors` or in several files with their index, and any other files. A snapshot of such a folder refers to
/// its other files, and a save to a folder copies them, byte for byte; transforms keep them. A save replaces, adds or
/// removes the entry `quantization_config` of `config.json`, so that it matches the metadata with this key, and then
/// leaves out files that describe the old quantization (`quantize_config.json`, `quant_config.json`,
/// `hf_quant_config.json`). Copies of the weights in other formats (`pytorch_model.bin`), and names that begin with a
/// dot, are not copied. A folder that has other files than weights is not replaced.
class STELE_EXPORT HubFormat final : public Format {
 public:
  /// `shard_bytes`: as in ShardedSafetensorsFormat.
  explicit HubFormat(std::uint64_t shard_bytes = 5'000'000'000) noexcept : shard_bytes_(shard_bytes) {}
  std::string_view name() const noexcept override { return "hub"; }
  std::string_view extension() const noexcept override { return ""; }
  const Capabilities& capabilities() const noexcept override;
  bool is_folder() const noexcept override { return true; }
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  bool recognises_folder(const Bundle& folder) const override;
  Status may_replace(const Bundle& folder) const override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;

 private:
  std::uint64_t shard_bytes_;
};

template <PrecisionSettings Settings = NativePrecision>
using HubRecorder = Recorder<HubFormat, Settings>;

template <PrecisionSettings Settings = NativePrecision>
using ShardedSafetensorsRecorder = Recorder<ShardedSafetensorsFormat, Settings>;

}  // namespace stele::inline v0
