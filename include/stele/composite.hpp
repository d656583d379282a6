// Composite tensors: a composite tensor is a quantized weight that a file, such as a checkpoint of the Hugging Face
// hub, stores as several tensors: codes, scales, zero points and so on. An opened file shows each as one tensor of f32,
// with the name and the shape of the weight, which is decoded piece by piece when it is read. Schemes:
// docs/guide/quantized-checkpoints.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stele/report.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele::inline v0 {

/// A description of a composite tensor: its scheme and its parts.
struct CompositeInfo {
  std::string scheme;       ///< "fp8", "gptq", "awq", "nf4", …
  unsigned bits = 0;        ///< width of a code
  std::uint64_t group = 0;  ///< the number of consecutive elements of a row that share a scale
  std::uint64_t bytes = 0;  ///< size of all parts
  struct Part {
    std::string name;  ///< path of the part, if the tensor has its own path
    DType dtype = DType::none;
    Shape shape{};
  };
  std::vector<Part> parts{};
};

/// Returns the parts of a composite tensor; nullopt for other leaves.
STELE_EXPORT std::optional<CompositeInfo> composite(const LeafView& leaf);

/// How quantize_weights() stores weights.
struct WeightScheme {
  /// - "fp8": floats of 8 bits, a scale for 128 x 128 elements, as in DeepSeek's models
  /// - "int4", "int8", "nvfp4", "mxfp4", "mxfp8": the formats of compressed-tensors
  /// - "gptq", "awq": integers of 4 bits in these layouts, rounded to the nearest
  /// - "nf4": the format of bitsandbytes
  std::string name;
  /// The number of elements of a row that share a scale: of int4, int8, gptq and awq. 0: 128, or a whole row for int8.
  std::uint64_t group = 0;
  /// Patterns (stele/pattern.hpp) of the weights. Only matrices of floats whose names end with `.weight` are changed.
  std::vector<std::string> patterns{"*"};
  /// Patterns of weights that stay unchanged, by default embeddings, the output layer, norms and routers of experts.
  std::vector<std::string> except = default_except();

  STELE_EXPORT static std::vector<std::string> default_except();
};

/// Stores weights as composite tensors, which a save writes as their parts. Sets the metadata `quantization_config` to
/// the configuration that the packages of the scheme read. The numbers are read and encoded when the parts are saved.
/// `report` may be null; it receives a row for each matching weight that stays unchanged because its extents are not
/// multiples of the scheme's blocks, or because it is tied. A save's report has each weight's largest, mean, and root
/// mean square error. Errors: invalid_argument (an unknown scheme, a group that the scheme does not have); errors of
/// reading, for schemes with a scale of the whole weight (nvfp4); later, when a part is read, out_of_range (a number
/// that is not finite).
STELE_EXPORT Result<Snapshot> quantize_weights(const Snapshot& snapshot, const WeightScheme& scheme,
                                               Report* report = nullptr);

/// Joins the parts of quantized weights: returns a snapshot in which each recognised weight is one leaf. Recognises
/// them by the names, dtypes and shapes of their parts, and by the configuration: `config` (the content of a
/// `config.json`, or its `quantization_config`), else the metadata `quantization_config`. Parts that are incomplete, or
/// contradict each other, stay tensors; Snapshot::notes() has a line for each. Reads small parts (shapes, JSON) at
/// once. Errors: io.
///
/// Adds the annotation `undecoded`, with the name of the scheme, to tensors that look like codes and scales (by the
/// names of neighbours, or because the configuration names a scheme) but belong to no scheme that stele decodes. They
/// are copied unchanged, with a row `quantized` in the report of a save. An operation that would treat them as numbers
/// is an error: another precision, or a format that does not keep parts (unsupported); for codes also a load into a
/// field of floats (dtype_mismatch).
STELE_EXPORT Result<Snapshot> join_composites(const Snapshot& snapshot, const Value& config = {});

/// Removes that annotation: codes and scales that are not decoded then count as ordinary numbers.
STELE_EXPORT Snapshot raw_codes(const Snapshot& snapshot);

/// Returns the snapshot with composite tensors replaced by their parts.
STELE_EXPORT Result<Snapshot> split_composites(const Snapshot& snapshot);

}  // namespace stele::inline v0
