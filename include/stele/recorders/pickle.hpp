// Python pickles of NumPy arrays in dicts, lists and tuples: Paddle's `.pdparams` and `.pdopt`, `.pkl`. Reads protocol
// 2 to 5 as data: imports no module and calls no function (docs/formats/pickle.md). Read-only.
#pragma once

#include "stele/recorder.hpp"

namespace stele::inline v0 {

/// Pickles whose objects are NumPy's arrays and scalars, dicts, lists, tuples, sets, strings, bytes and numbers. Names
/// are the keys and indices, joined by dots. Arrays are lazy, in any byte order and axis order; arrays of Python
/// objects, strings, dates or structures are unreadable entries. Everything else is a value.
///
/// In Paddle's files, a pair of a name and an array is a tensor, and arrays of unsigned 16-bit integers are bf16, as
/// paddle.load() reads them. The table `StructuredToParameterName@@` becomes the annotation `paddle.name` of its
/// tensors. Slices of large arrays (`UnpackBigParamInfor@@`) become one tensor.
///
/// Errors of open, in addition to those of all formats: unsupported (an object of any other class or function, with its
/// name).
class STELE_EXPORT PickleFormat final : public Format {
 public:
  std::string_view name() const noexcept override { return "pickle"; }
  std::string_view extension() const noexcept override { return ".pdparams"; }
  const Capabilities& capabilities() const noexcept override;
  bool writes() const noexcept override { return false; }
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// Returns an error (unsupported), because the format is read-only.
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
};

template <PrecisionSettings Settings = NativePrecision>
class PickleRecorder : public Recorder<PickleFormat, Settings> {
  using Base = Recorder<PickleFormat, Settings>;

 public:
  using Base::Base;
  /// Not available: pickles are read-only.
  template <class... Arguments>
  void save(Arguments&&...) const = delete;
};

}  // namespace stele::inline v0
