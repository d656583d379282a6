// PaddlePaddle's parameter files: `.pdiparams`, `__params__` (all variables in one file), or a folder with one file for
// each variable. Byte layout (all little-endian; paddle/phi/core/framework/dense_tensor_serialize.cc and
// framework.proto):
//
//  1. u32 0, the version of the tensor with its levels of detail (LoD).
//  2. u64 L, the number of levels (0 for parameters); for each: u64 number of bytes, then these bytes, u64 offsets.
//  3. u32 0, the version of the tensor.
//  4. i32 n, the length of the description.
//  5. Description, n bytes, protobuf: 08 dtype, then 10 extent for each dimension, all varints.
//  6. The elements, row-major, without a length or padding.
//
// A file consists of such records without gaps, in the order of the variables' names, which the file does not store.
// The names come from the program next to the file, or from the model (LoadOptions::layout, the module's type).
//
// Framed variants from Paddle's first design (https://github.com/PaddlePaddle/Paddle/issues/7722), which no release of
// Paddle reads:
//
// - sized: u64 size of the record in bytes, record.
// - named: u64 size of the rest in bytes, u64 size of the name in bytes, name in UTF-8, record.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stele/recorder.hpp"

namespace stele::inline v0 {

/// A variable of a Paddle program, stored in a parameter file.
struct PaddleVariable {
  std::string name;
  DType dtype = DType::none;          // none: any
  std::vector<std::int64_t> shape{};  // -1: any extent
  friend bool operator==(const PaddleVariable&, const PaddleVariable&) = default;
};

/// Returns the persistable variables of a program, in the order of their names. `from` is a ProgramDesc (`.pdmodel`,
/// `__model__`) or a program of Paddle 3 (`.json`). Errors: malformed, truncated, unsupported (variables that are not
/// dense tensors), duplicate (one name with two types), limit.
STELE_EXPORT Result<std::vector<PaddleVariable>> paddle_program(const Input& from);

/// The source of the names of a file's tensors.
enum class PaddleNames : std::uint8_t {
  automatic,  // PaddleOptions::program; else LoadOptions::layout; else the program next to the file (x.pdmodel or
              // x.json of x.pdiparams; __model__ of __params__); else the module that is loaded
  layout,     // LoadOptions::layout, or the module that is loaded, even if there is a program
  counter,    // no names: "0", "1", … in the file's order
};

/// The order of the tensors in a file without names.
enum class PaddleOrder : std::uint8_t {
  sorted,    // by name, as all of Paddle's writers do
  declared,  // as in the module, or in LoadOptions::layout: files of hand-made exporters
};

enum class PaddleFraming : std::uint8_t { none, sized, named };

struct PaddleOptions {
  bool folder = false;  // a folder with a file for each variable, named after it; loads accept both
  PaddleNames names = PaddleNames::automatic;
  PaddleOrder order = PaddleOrder::sorted;
  /// Framing for saves, and for loads if it is not `none`; otherwise a load detects it from the content.
  PaddleFraming framing = PaddleFraming::none;
  /// The names for a load, and the dtypes and shapes with which loads and saves are compared.
  std::vector<PaddleVariable> program{};
};

/// Paddle's parameters. A load compares the shapes with the shapes of the program, layout or module, if there is one.
/// If they match a different PaddleOrder than the requested one, the error names it. A tied tensor is written under
/// each of its names. LoD is kept as the annotation `paddle.lod`, a list of lists of numbers. A file without names can
/// be opened even if no module matches it: PaddleNames::counter opens any file, and leaf(i) of the Snapshot is the
/// file's i-th record.
class STELE_EXPORT PaddleFormat final : public Format {
 public:
  explicit PaddleFormat(PaddleOptions options = {}) : options_(std::move(options)) {}
  std::string_view name() const noexcept override { return options_.folder ? "paddle-folder" : "paddle"; }
  std::string_view extension() const noexcept override { return options_.folder ? "" : ".pdiparams"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  bool is_folder() const noexcept override { return options_.folder; }
  bool opens(bool /*folder*/) const noexcept override { return true; }
  bool recognises_folder(const Bundle& folder) const override;
  Status may_replace(const Bundle& folder) const override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
  const PaddleOptions& options() const noexcept { return options_; }

 private:
  PaddleOptions options_;
};

template <PrecisionSettings Settings = NativePrecision>
using PaddleRecorder = Recorder<PaddleFormat, Settings>;

}  // namespace stele::inline v0
