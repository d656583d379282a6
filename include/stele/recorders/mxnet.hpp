// Files of MXNet (mx.nd.save, Gluon's save_parameters, mx.model.save_checkpoint), `.params`; all little-endian
// (docs/formats/mxnet.md):
//
//  1. u64 0x112, u64 0, u64 number of arrays.
//  2. Each array: u32 0xf993fac9, i32 storage type, i32 rank, i64 extents, i32 device type, i32 device, i32 dtype, the
//     elements. Three further layouts are read.
//  3. u64 number of names: the number of arrays, or 0. Each name: u64 length, bytes.
#pragma once

#include <cstdint>

#include "stele/recorder.hpp"

namespace stele::inline v0 {

/// The names that a save writes. Names that were read with a prefix, `arg:` or `aux:`, always get it again.
enum class MxnetNames : std::uint8_t {
  plain,     // without a prefix, as Gluon's save_parameters writes them
  prefixed,  // as mx.model.load_params requires: `aux:` before statistics (running_mean, running_var, moving_mean,
             // moving_var), `arg:` before other names
};

struct MxnetOptions {
  MxnetNames names = MxnetNames::plain;
};

/// MXNet's files. Names are paths without the prefixes `arg:` and `aux:`, which are the annotation `mxnet.prefix`.
/// Arrays of a list without names are called 0, 1, … . Sparse arrays and arrays without a shape are unreadable entries.
/// Tensors without axes or elements are written as MXNet's NumPy interface does (version 3): MXNet loads such files
/// only with mx.npx.set_np() or mx.util.np_shape(). Stores no checksums, values or metadata.
class STELE_EXPORT MxnetFormat final : public Format {
 public:
  explicit MxnetFormat(MxnetOptions options = {}) : options_(options) {}
  std::string_view name() const noexcept override { return "mxnet"; }
  std::string_view extension() const noexcept override { return ".params"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
  const MxnetOptions& options() const noexcept { return options_; }

 private:
  MxnetOptions options_;
};

template <PrecisionSettings Settings = NativePrecision>
using MxnetRecorder = Recorder<MxnetFormat, Settings>;

}  // namespace stele::inline v0
