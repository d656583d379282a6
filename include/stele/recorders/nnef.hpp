// NNEF 1.0.x: a folder with one `.dat` file for each tensor, and a text file that describes them. Byte layout of a
// `.dat` file (all little-endian; https://registry.khronos.org/NNEF/specs/1.0/nnef-1.0.5.html, section 5.2):
//
//  1. 4E EF, u8 1, u8 0: magic, version 1.0.
//  2. u32 n, bytes of data: the number of items times their bits / 8, rounded up.
//  3. u32 rank, at most 8.
//  4. u32[8] extents; 0 after the rank.
//  5. At 44: u32 bits of an item, 1 to 64.
//  6. At 48: u16 type: 0 float, 1 unsigned, 2 quantized unsigned, 3 quantized signed, 4 signed, 5 bool.
//  7. At 50: u16 vendor of the type; 0: none.
//  8. 32 B parameters of the type, until 1.0.2; 44 B reserved, zero.
//  9. At 128, to the end of the file: the items, row-major. Whole bytes are little-endian; other widths are one
//     stream of bits, the most significant first, with zeros filling up the last byte.
//
// The folder (section 5.1), or a tar archive of it, plain or compressed by gzip:
//
//  1. LABEL.dat for each tensor; a label is the tensor's path with slashes for dots: `layers/0/weight` for
//     `layers.0.weight`.
//  2. graph.nnef, text: `name = variable<scalar>(shape = [2, 3], label = 'layers/0/weight');` for each tensor.
//  3. graph.quant, text, if a tensor is quantized: `"name": min_max_linear_quantize(min = …, max = …, bits = 8, …);`
#pragma once

#include <cstdint>

#include "stele/quantize.hpp"
#include "stele/recorder.hpp"

namespace stele::inline v0 {

enum class NnefContainer : std::uint8_t {
  by_name,  // on save, from the path's extension: .tgz, .dat; other paths: a folder
  folder,
  tgz,     // the folder as a tar archive in gzip
  tensor,  // one .dat file, for a single tensor
};

struct NnefOptions {
  NnefContainer container = NnefContainer::by_name;  // for saves; loads accept all of them, and .tar
  /// Writes graph.nnef, so that NNEF's tools can open the folder. If there are quantized tensors, it is always written,
  /// because they need it.
  bool graph = true;
};

/// NNEF. A path can be a label if its segments consist of [A-Za-z0-9_.-], no segment is empty or dots only, and no two
/// labels differ only in upper and lower case (NNEF's own rule). Otherwise a save is an error (not_representable); the
/// remedy is to rename the parameter (stele/transform.hpp). A tensor of 4 GiB or more is also not_representable,
/// because the length in the header has 32 bits. A tied tensor is written under each of its names.
///
/// A load uses the tensors that graph.nnef names, if it exists, and checks their shapes; otherwise all .dat files. A
/// dot in a label remains part of its segment. Items whose width is not 8, 16, 32 or 64 bits become the next wider
/// dtype, with the annotation `nnef.bits`, so that a save writes them with their original width. The reader accepts
/// types that have the same meaning in all of NNEF 1.0 to 1.0.5, the provisional layout of 2017, and the four extra
/// bytes that NNEF-Tools wrote before October 2018. Quantized items are integers with the annotation `quantization`
/// (stele/quantize.hpp) and, because that annotation is optional in files, `nnef.quantized`; LoadOptions::dequantize
/// converts them to f32. Items with a vendor are `opaque`, with the annotations `nnef.vendor`, `nnef.type` and
/// `nnef.bits`.
///
/// Data begins at byte 128 of a file, and files in a .tar archive begin at multiples of 512. A mapped load
/// (Storage::mmap) can point into both, for all dtypes, but not into packed or compressed data.
class STELE_EXPORT NnefFormat final : public Format {
 public:
  explicit NnefFormat(NnefOptions options = {}) : options_(options) {}
  std::string_view name() const noexcept override;
  /// Returns ".nnef", ".nnef.tgz" or ".dat"; for by_name: ".nnef".
  std::string_view extension() const noexcept override;
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  bool is_folder() const noexcept override { return options_.container <= NnefContainer::folder; }
  bool makes_folder(std::string_view path) const noexcept override;
  bool opens(bool /*folder*/) const noexcept override { return true; }
  bool recognises_folder(const Bundle& folder) const override;
  Status may_replace(const Bundle& folder) const override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Result<Report> verify(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
  const NnefOptions& options() const noexcept { return options_; }

 private:
  NnefOptions options_;
};

template <PrecisionSettings Settings = NativePrecision>
using NnefRecorder = Recorder<NnefFormat, Settings>;

}  // namespace stele::inline v0
