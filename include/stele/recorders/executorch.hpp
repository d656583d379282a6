// ExecuTorch's files (docs/formats/executorch.md): `.ptd`, named tensors beside a program, read and written; `.pte`, a
// program, whose constants are read.
#pragma once

#include "stele/recorder.hpp"

namespace stele::inline v0 {

/// ExecuTorch's data files, `.ptd`. Names are whole paths. Keys that share a segment are tied, and a tied tensor is
/// stored once under all its names. Tensors in another order of axes are transposed when they are read. Data without a
/// tensor's layout are unreadable entries. Stores no values, metadata or checksums.
class STELE_EXPORT PtdFormat final : public Format {
 public:
  std::string_view name() const noexcept override { return "ptd"; }
  std::string_view extension() const noexcept override { return ".ptd"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
};

/// Constants of ExecuTorch's programs, `.pte`; read-only. Tensors without a name are `constant.N` and `mutable.N`, N
/// being the number of the tensor's data. Data of delegates are not tensors: those with a key are unreadable entries,
/// the others have a note.
class STELE_EXPORT PteFormat final : public Format {
 public:
  std::string_view name() const noexcept override { return "pte"; }
  std::string_view extension() const noexcept override { return ".pte"; }
  const Capabilities& capabilities() const noexcept override;
  bool writes() const noexcept override { return false; }
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// Returns an error (unsupported), because programs are only read.
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
};

template <PrecisionSettings Settings = NativePrecision>
using PtdRecorder = Recorder<PtdFormat, Settings>;

template <PrecisionSettings Settings = NativePrecision>
class PteRecorder : public Recorder<PteFormat, Settings> {
 public:
  using Recorder<PteFormat, Settings>::Recorder;
  /// Not available: programs are only read.
  template <class... Arguments>
  void save(Arguments&&...) const = delete;
};

}  // namespace stele::inline v0
