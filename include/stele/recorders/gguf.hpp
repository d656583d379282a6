// GGUF (ggml, llama.cpp), versions 2 and 3. Byte layout (all little-endian; docs/gguf.md of ggml):
//
//  1. "GGUF", u32 version, u64 number of tensors, u64 number of key-value pairs.
//  2. Key-value pairs: key (u64 length, bytes), u32 type, value. Arrays have u32 element type, u64 count, elements.
//  3. Tensors: name, u32 rank, u64 extents (innermost first: reversed shapes), u32 dtype, u64 offset in the data.
//  4. Padding to `general.alignment` (32), and the tensors' bytes, each padded to it.
//
// Written like gguf-py. Names hold paths; the key `stele` contains the data that names cannot express
// (docs/formats/flat.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stele/recorder.hpp"

namespace stele::inline v0 {

/// The block dtypes that encode_blocks() can write, by ggml's names.
namespace ggml {
inline constexpr DType q8_0 = DType::q8_0;
inline constexpr DType q4_0 = DType::q4_0;
inline constexpr DType q4_1 = DType::q4_1;
inline constexpr DType q5_0 = DType::q5_0;
inline constexpr DType q5_1 = DType::q5_1;
inline constexpr DType q2_K = DType::q2_k;
inline constexpr DType q3_K = DType::q3_k;
inline constexpr DType q4_K = DType::q4_k;
inline constexpr DType q5_K = DType::q5_k;
inline constexpr DType q6_K = DType::q6_k;
inline constexpr DType iq4_nl = DType::iq4_nl;
inline constexpr DType tq1_0 = DType::tq1_0;
inline constexpr DType tq2_0 = DType::tq2_0;
inline constexpr DType mxfp4 = DType::mxfp4;
inline constexpr DType nvfp4 = DType::nvfp4;
inline constexpr DType q1_0 = DType::q1_0;
inline constexpr DType q2_0 = DType::q2_0;
}  // namespace ggml

/// GGUF. Reads every dtype of ggml; tensors of blocks keep their bytes, and load as floats with
/// LoadOptions::dequantize. Tensors of other types are opaque, with the annotation `unreadable`. All key-value pairs
/// are in Snapshot::properties(), strings also in metadata(). Opening one file of a split set (`x-00001-of-00003.gguf`)
/// opens the whole set, if its source has a bundle.
///
/// Refuses more than ggml does: extents whose product overflows, trailing bytes, bools other than 0 and 1, names and
/// keys that are not UTF-8 or contain NUL, empty keys, alignments that are not a power of two of at least 8. Also
/// refuses big-endian files.
class STELE_EXPORT GgufFormat final : public Format {
 public:
  /// `max_name_bytes`: longer names are an error on save. llama.cpp refuses names of more than 63 bytes, unless it was
  /// built with another GGML_MAX_NAME.
  explicit GgufFormat(std::size_t max_name_bytes = 63) noexcept : max_name_bytes_(max_name_bytes) {}
  std::string_view name() const noexcept override { return "gguf"; }
  std::string_view extension() const noexcept override { return ".gguf"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  bool opens(bool /*folder*/) const noexcept override { return true; }
  /// Returns true if the folder has one file or split set with weights, which is in GGUF.
  bool recognises_folder(const Bundle& folder) const override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Result<std::vector<Loss>> losses(const Snapshot& snapshot, std::string_view file) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;

 private:
  std::size_t max_name_bytes_;
};

/// Saves matrices as blocks of this dtype, and vectors unchanged: GgufRecorder<GgufPrecision<ggml::q4_K>>. Settings
/// with `block_rules` choose a dtype for each pattern.
template <DType Blocks>
using GgufPrecision = BlockPrecision<Blocks>;

template <PrecisionSettings Settings = NativePrecision>
using GgufRecorder = Recorder<GgufFormat, Settings>;

/// Quantizes a language model with GGUF's names (blk.0.attn_v.weight) as llama.cpp's llama-quantize does without an
/// importance matrix: `mixture` is Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K_S, Q3_K_M, Q3_K_L, Q4_K_S, Q4_K_M, Q5_K_S,
/// Q5_K_M, Q6_K, IQ4_NL, TQ1_0, TQ2_0, MXFP4_MOE, F16, BF16 or F32. Changes only matrices whose names end in `weight`,
/// except norms, positions and routers. (llama.cpp has different rules for Falcon, which are not applied.) Sets
/// `general.file_type`. Errors: invalid_argument (an unknown mixture), those of quantize_blocks().
STELE_EXPORT Result<Snapshot> quantize_gguf(const Snapshot& snapshot, std::string_view mixture,
                                            Report* report = nullptr);

}  // namespace stele::inline v0
