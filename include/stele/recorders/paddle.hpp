// PaddlePaddle's parameter files: `.pdiparams`, `__params__` (all variables in one file), or a folder of one file a
// variable. Byte layout (all little-endian; paddle/phi/core/framework/dense_tensor_serialize.cc and framework.proto):
//
//  1. u32 0, the version of the tensor with its levels of detail (LoD).
//  2. u64 L, the number of levels (0 for parameters); for each: u64 bytes, then so many bytes of u64 offsets.
//  3. u32 0, the version of the tensor.
//  4. i32 n, the length of the description.
//  5. Description, n bytes, protobuf: 08 dtype, then 10 extent for each dimension, all varints.
//  6. The elements, row-major, without a length or padding.
//
// A file is such records, one behind the other, to its end; in the order of the variables' names, which stand nowhere.
// They come from the program that the file belongs to, or from the model (LoadOptions::layout, the module's own type).
//
// Framed variants, as Paddle's first design had them (https://github.com/PaddlePaddle/Paddle/issues/7722); no release
// of Paddle reads these:
//  - sized: u64 bytes of the record, record.
//  - named: u64 bytes of all that follows, u64 bytes of the name, name in UTF-8, record.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stele/recorder.hpp"

namespace stele {
inline namespace v0 {

/// A variable of a Paddle program, as a parameter file holds it.
struct PaddleVariable {
  std::string name;
  DType dtype = DType::none;          // none: any
  std::vector<std::int64_t> shape{};  // -1: any extent
  friend bool operator==(const PaddleVariable&, const PaddleVariable&) = default;
};

/// The persistable variables of a program, in the order of their names: of a ProgramDesc (`.pdmodel`, `__model__`) or
/// of the program that Paddle 3 writes (`.json`). Errors: malformed, truncated, unsupported (variables that are no
/// dense tensors), duplicate (one name twice, with two types), limit.
STELE_EXPORT Result<std::vector<PaddleVariable>> paddle_program(const Input& from);

/// Where the names of a file's tensors come from.
enum class PaddleNames : std::uint8_t {
  automatic,  // PaddleOptions::program; else LoadOptions::layout; else the program beside the file (x.pdmodel or x.json
              // of x.pdiparams; __model__ of __params__); else the module that is loaded
  layout,     // the last of these, though a program is there; or LoadOptions::layout
  counter,    // none: "0", "1", … in the file's order
};

/// The order of the tensors in a file that does not name them.
enum class PaddleOrder : std::uint8_t {
  sorted,    // by name, as all of Paddle's own writers do
  declared,  // as in the module, or as LoadOptions::layout says: of hand-made exporters
};

enum class PaddleFraming : std::uint8_t { none, sized, named };

struct PaddleOptions {
  bool folder = false;  // a folder of one file a variable, of the variable's name; loads take either
  PaddleNames names = PaddleNames::automatic;
  PaddleOrder order = PaddleOrder::sorted;
  /// Saves, and loads where it is not `none`; else a load looks at the content.
  PaddleFraming framing = PaddleFraming::none;
  /// What a load takes the names from, and checks dtypes and shapes against; a save is checked likewise.
  std::vector<PaddleVariable> program{};
};

/// Paddle's parameters. A load that has shapes to compare (of a program, a layout or a module) compares them; where
/// they fit another PaddleOrder than the one asked for, the error says so. A tied tensor is written under each of its
/// names. LoD is kept as the annotation `paddle.lod`, a list of lists of numbers. The names of a file that says none
/// need not fit a module: PaddleNames::counter opens any file, and leaf(i) of what was opened is its i-th record.
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

}  // namespace v0
}  // namespace stele
