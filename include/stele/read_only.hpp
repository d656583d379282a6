// The bases of formats that the library only reads, and of their recorders.
#pragma once

#include <concepts>

#include "stele/recorder.hpp"

namespace stele::inline v0 {

/// A format that is only read: every save is an error (unsupported).
class STELE_EXPORT ReadOnlyFormat : public Format {
 public:
  bool writes() const noexcept final { return false; }
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const final;
};

/// Loads modules from files of a format that is only read.
template <std::derived_from<ReadOnlyFormat> FormatType, PrecisionSettings Settings = NativePrecision>
class ReadOnlyRecorder : public Recorder<FormatType, Settings> {
 public:
  using Recorder<FormatType, Settings>::Recorder;
  /// Not available: the format is only read.
  template <class... Arguments>
  void save(Arguments&&...) const = delete;
};

}  // namespace stele::inline v0
