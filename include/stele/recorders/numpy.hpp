// NumPy's files. Byte layout of a .npy file, which holds one array
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html):
//
//  1. 93 'NUMPY', u8 major, u8 0: version 1.0, 2.0 or 3.0.
//  2. N, little-endian: u16 in version 1.0, u32 in 2.0 and 3.0.
//  3. Header, N bytes: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, a literal of Python, then spaces
//     and a line end, so that the elements begin at a multiple of 64. Latin-1 in versions 1.0 and 2.0, UTF-8 in 3.0.
//  4. The elements, to the end of the file: the last axis varies fastest, or with fortran_order the first.
//
// A .npz file is a zip file (encodings/zip/zip.hpp) with one entry NAME.npy for each array. The entry `__stele__.npy`,
// an array of bytes, contains as JSON the data that NumPy cannot store (docs/formats/numpy.md).
#pragma once

#include "stele/recorder.hpp"

namespace stele::inline v0 {

/// NumPy has no dtypes for bfloat16 and the 8-bit floats: its files declare such elements as V2 and V1, bytes without a
/// type. These options are the dtypes with which a load reads them, if the file itself does not name a dtype.
struct NpyOptions {
  DType void1 = DType::none;  // for V1, for example DType::f8_e4m3fn
  DType void2 = DType::none;  // for V2, for example DType::bf16
};

/// One array without a name: for a model with one tensor. A load gives the array the name of the only tensor in the
/// module or Layout, else the name of the file. Saving more tensors, values or metadata is an error
/// (not_representable); NpzFormat stores them. Saving a tensor of a dtype that NumPy does not have (bf16, f8) is also
/// an error, because the file cannot store the dtype's name.
///
/// Reads arrays of either byte order and in Fortran order; reading converts the order of axes and bytes. Arrays of
/// Python objects are pickles and are refused (unsupported), as are structured dtypes, strings and dates.
class STELE_EXPORT NpyFormat final : public Format {
 public:
  explicit NpyFormat(NpyOptions options = {}) : options_(options) {}
  std::string_view name() const noexcept override { return "npy"; }
  std::string_view extension() const noexcept override { return ".npy"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
  const NpyOptions& options() const noexcept { return options_; }

 private:
  NpyOptions options_;
};

template <PrecisionSettings Settings = NativePrecision>
using NpyRecorder = Recorder<NpyFormat, Settings>;

/// Several arrays with names, as numpy.savez writes them. Reads stored and deflated entries; writes stored entries
/// whose elements begin at multiples of 64 bytes of the file. An entry that is not an array of numbers becomes an
/// opaque tensor with the annotation `unreadable` (the reason); a load or save that needs the entry fails.
class STELE_EXPORT NpzFormat final : public Format {
 public:
  explicit NpzFormat(NpyOptions options = {}) : options_(options) {}
  std::string_view name() const noexcept override { return "npz"; }
  std::string_view extension() const noexcept override { return ".npz"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<bool> recognises_file(const Source& source) const override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Result<Report> verify(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
  const NpyOptions& options() const noexcept { return options_; }

 private:
  NpyOptions options_;
};

template <PrecisionSettings Settings = NativePrecision>
using NpzRecorder = Recorder<NpzFormat, Settings>;

}  // namespace stele::inline v0
