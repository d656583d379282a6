// Files of Darknet, `.weights`; read-only (docs/formats/darknet.md):
//
//  1. i32 major, i32 minor, i32 revision; u64 number of images seen in training (u32 before version 0.2).
//  2. The weights of all layers as 32-bit floats, without names and shapes, which come from the network's text
//  (`.cfg`).
#pragma once

#include <string>

#include "stele/recorder.hpp"

namespace stele::inline v0 {

struct DarknetOptions {
  /// The text of the network's `.cfg` file. If it is empty, the reader opens the file next to the weights:
  /// `yolo.cfg` for `yolo.weights`, `yolo_final.weights`, `yolo_best.weights`, `yolo_last.weights`,
  /// `yolo_1000.weights`.
  std::string cfg{};
};

/// Darknet's files. Names are LAYER.SECTION.PART, with the numbers that Darknet prints: 0.convolutional.biases,
/// 0.convolutional.scales, … . Without a network, all numbers are one tensor with the name `weights`, and notes() of
/// the snapshot tell why. Version and number of images are metadata (darknet.version, darknet.seen).
///
/// Revision 5 of version 0.2 is read with the layers of AlexeyAB's program, other files with those of the original. A
/// file may end between two layers. The weights from a section on that is not supported are one unreadable entry.
///
/// Errors of open, in addition to those of all formats: malformed (the network describes more or fewer numbers).
class STELE_EXPORT DarknetFormat final : public Format {
 public:
  explicit DarknetFormat(DarknetOptions options = {}) : options_(std::move(options)) {}
  std::string_view name() const noexcept override { return "darknet"; }
  std::string_view extension() const noexcept override { return ".weights"; }
  const Capabilities& capabilities() const noexcept override;
  bool writes() const noexcept override { return false; }
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// Returns an error (unsupported), because the format is read-only.
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
  const DarknetOptions& options() const noexcept { return options_; }

 private:
  DarknetOptions options_;
};

template <PrecisionSettings Settings = NativePrecision>
class DarknetRecorder : public Recorder<DarknetFormat, Settings> {
 public:
  using Recorder<DarknetFormat, Settings>::Recorder;
  /// Not available: files of Darknet are read-only.
  template <class... Arguments>
  void save(Arguments&&...) const = delete;
};

}  // namespace stele::inline v0
