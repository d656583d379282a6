// safetensors, one file. Byte layout (all little-endian; https://github.com/huggingface/safetensors, README):
//
//  1. u64 N, the length of the header; at most 100,000,000.
//  2. Header, N bytes: a JSON object in UTF-8, padded with spaces to a multiple of 8:
//     {"__metadata__": {text: text}, name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …}
//     The offsets count from the end of the header.
//  3. The tensors' bytes, row-major, in the order of the offsets, without a gap, to the end of the file.
//
// Written as the reference writer does: by dtype, widest first, then by name; `__metadata__` first, where there is any;
// no spaces. So plain models give the same bytes. What names cannot say goes to the metadata key `stele`
// (docs/formats/flat.md).
#pragma once

#include "stele/recorder.hpp"

namespace stele {
inline namespace v0 {

/// safetensors. Reading is stricter than the reference: tensors, metadata keys and the three keys of a tensor that
/// stand twice are refused. Keys of a tensor that are unknown are passed over, as the reference does.
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

/// A model in several safetensors files ("shards") and an index, as transformers writes it: beside
/// `x.safetensors.index.json` lie `x-00001-of-00003.safetensors`, … The index is a JSON object of
///
///  1. "metadata": {"total_size": bytes of all tensors, and texts: the user's metadata, and `stele` as in one file},
///  2. "weight_map": {tensor: file, …}.
///
/// The index is written last: a new set is there whole or not at all. A set that is there already is not replaced,
/// unless FileSinkOptions::allow_nonatomic. The sink must know its bundle (a file, or one of memory_bundle()).
class STELE_EXPORT ShardedSafetensorsFormat final : public Format {
 public:
  /// Files of at most so many bytes of tensors, except for larger tensors; transformers' default.
  explicit ShardedSafetensorsFormat(std::uint64_t shard_bytes = 5'000'000'000) noexcept : shard_bytes_(shard_bytes) {}
  std::string_view name() const noexcept override { return "safetensors-sharded"; }
  std::string_view extension() const noexcept override { return ".safetensors.index.json"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;

 private:
  std::uint64_t shard_bytes_;
};

template <PrecisionSettings Settings = NativePrecision>
using ShardedSafetensorsRecorder = Recorder<ShardedSafetensorsFormat, Settings>;

}  // namespace v0
}  // namespace stele
