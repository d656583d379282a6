// Models of whisper.cpp (`ggml-base.bin`), files of ggml before GGUF; read-only (docs/formats/whisper.md).
#pragma once

#include "stele/recorder.hpp"

namespace stele::inline v0 {

/// Models of whisper.cpp. Tensors of blocks keep their bytes, as in GGUF. The mel filters are the tensor
/// `mel_filters`. The model's numbers are properties ("whisper.n_vocab"), and so is the vocabulary,
/// `tokenizer.ggml.tokens`: strings in GPT-2's alphabet, in which each character is a byte, as in GGUF.
///
/// A tensor of an unknown type, or of blocks of an earlier version of ggml, and all tensors after it are one unreadable
/// entry, because the type determines the size.
///
/// Errors of open, in addition to those of all formats: unsupported (other models of ggml before GGUF: `ggjt`, `ggmf`,
/// `ggla`, Silero VAD, Parakeet, GPT-2).
class STELE_EXPORT WhisperFormat final : public Format {
 public:
  std::string_view name() const noexcept override { return "whisper"; }
  std::string_view extension() const noexcept override { return ".bin"; }
  const Capabilities& capabilities() const noexcept override;
  bool writes() const noexcept override { return false; }
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// Returns an error (unsupported), because the format is read-only.
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
};

template <PrecisionSettings Settings = NativePrecision>
using WhisperRecorder = Recorder<WhisperFormat, Settings>;

}  // namespace stele::inline v0
