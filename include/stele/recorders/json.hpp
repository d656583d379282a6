// Readable JSON, suitable for diffs: plain, or compressed by zstd or gzip. docs/formats/json.md specifies it.
//
// A document (RFC 8259, UTF-8), here with line breaks:
//
// clang-format off
//  1. {"format":"stele-json","version":1,
//  2.  "layout":"flat",                    only if names are whole paths; "guessed": nested by nest()
//  3.  "metadata":{"key":"text", …},
//  4.  "record":NODE}
//
// A NODE:
//
//  5. module, map      {"name":NODE, …}; a name that begins with $ gets another $ before it
//     with a version   {"$version":2,"name":NODE, …}
//  6. list, array      [NODE, …]; with gaps {"$elements":{"0":NODE,"3":NODE}}
//  7. variant          {"$variant":"alternative","value":NODE}
//  8. tensor           {"$dtype":"F32","shape":[2,3],"data":"base64"}; also "id" and "annotations"; or
//                      {"$dtype":"F32","shape":[2,3],"data":[[1.0,2.5,-0.0],["nan","inf",1e-45]]}
//  9. value            true, 7, 1.5, "text"; lists and maps as {"$value":…}; see docs/formats/json.md for the rest
//  10. tie             {"$ref":"path.of.the.first"}
//  11. absent          null
// clang-format on
//
// Elements in base64 are little-endian and row-major. With zstd, the text is divided into frames of 640 KiB. Skippable
// frames after them contain an index of the leaves and a table of the frames (zstd's seekable format).
#pragma once

#include <cstdint>
#include <string_view>

#include "stele/recorder.hpp"

namespace stele::inline v0 {

enum class JsonEncoding : std::uint8_t {
  by_name,  // from the path: .json, .json.gz; other paths, and memory: zstd
  plain,
  zstd,  // read lazily, like plain documents; any zstd decompressor reads it
  gzip,  // read in one pass from the beginning
};

struct JsonOptions {
  JsonEncoding encoding = JsonEncoding::by_name;
  /// Writes one line for each member.
  bool pretty = false;
  /// Maximum number of elements of a tensor that is written as numbers (the shortest that read back to identical bits).
  /// Larger tensors, and tensors of packed, complex or 8-bit float dtypes, are written in base64.
  std::uint64_t numbers_up_to = 0;
  /// Level of the compressor: -50 to 19 for zstd, 1 to 9 for gzip; 0: zstd 1, gzip 1. Other levels are clamped.
  int level = 0;
};

/// JSON. Reads all encodings, also in files from other programs.
class STELE_EXPORT JsonFormat : public Format {
 public:
  JsonFormat() = default;
  explicit JsonFormat(const JsonOptions& options) noexcept : options_(options) {}
  /// Returns "json", "json.zst" or "json.gz".
  std::string_view name() const noexcept override;
  std::string_view extension() const noexcept override;
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Result<Report> verify(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;

 private:
  JsonOptions options_;
};

/// Saves and loads files, in the encoding given by the file's name: `recorder.save(module, "model.json")`.
template <PrecisionSettings Settings = NativePrecision>
using JsonRecorder = Recorder<JsonFormat, Settings>;

}  // namespace stele::inline v0
