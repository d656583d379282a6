// Composite tensors: a quantized weight that a file stores as several tensors: codes, scales, zero points and others,
// as the checkpoints of the Hugging Face hub do. An opened file shows each as one tensor of f32, with the name and the
// shape of the weight, which is decoded piece by piece when it is read. Schemes: docs/guide/quantized-checkpoints.md.
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
  unsigned bits = 0;        ///< of a code
  std::uint64_t group = 0;  ///< the number of consecutive elements of a row that share a scale
  std::uint64_t bytes = 0;  ///< of all parts
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
  /// - "fp8": floats of 8 bits, a scale for 128 x 128 elements, as DeepSeek has them
  /// - "int4", "int8", "nvfp4", "mxfp4", "mxfp8": those of compressed-tensors
  /// - "gptq", "awq": integers of 4 bits in these layouts, rounded to the nearest
  /// - "nf4": that of bitsandbytes
  std::string name;
  /// The number of elements of a row that share a scale: of int4, int8, gptq and awq. 0: 128, or a whole row for int8.
  std::uint64_t group = 0;
  /// Patterns (stele/pattern.hpp) of the weights. Only matrices of floats whose names end with `.weight` are changed.
  std::vector<std::string> patterns{"*"};
  /// Patterns of weights that stay, by default embeddings, the output layer, norms and routers of experts.
  std::vector<std::string> except = default_except();

  STELE_EXPORT static std::vector<std::string> default_except();
};

/// Stores weights as composite tensors, which a save writes as their parts. The metadata `quantization_config` get the
/// configuration that the packages of the scheme read. The numbers are read and encoded when the parts are saved.
/// `report` may be null; it gets a row for each weight that matches and stays, because its extents are no multiples of
/// those that the scheme needs, or it is tied. A save's report has each weight's largest, mean, and root mean square
/// error. Errors: invalid_argument (an unknown scheme, a group that the scheme does not have); those of reading, for
/// schemes with a scale of the whole weight (nvfp4); later, when a part is read, out_of_range (a number that is not
/// finite).
STELE_EXPORT Result<Snapshot> quantize_weights(const Snapshot& snapshot, const WeightScheme& scheme,
                                               Report* report = nullptr);

/// Joins the parts of quantized weights: returns a snapshot in which each recognised weight is one leaf. Recognises
/// them by the names, dtypes and shapes of their parts, and by the configuration: `config` (the content of a
/// `config.json`, or its `quantization_config`), else the metadata `quantization_config`. Parts that are incomplete, or
/// contradict each other, stay tensors; Snapshot::notes() has a line for each. Reads small parts (shapes, JSON) at
/// once. Errors: io.
///
/// Tensors that look like codes and scales (by their names beside each other, or because the configuration names a
/// scheme), and are no parts of a scheme that is read, get the annotation `undecoded`: the name of the scheme. They are
/// copied as they are, with a row `quantized` in the report of a save. What would take them for numbers is an error:
/// another precision, a format that does not keep parts (unsupported); for codes also a field of floats
/// (dtype_mismatch).
STELE_EXPORT Result<Snapshot> join_composites(const Snapshot& snapshot, const Value& config = {});

/// Removes that annotation: codes and scales that are not decoded are numbers like others.
STELE_EXPORT Snapshot raw_codes(const Snapshot& snapshot);

/// Returns the snapshot with the parts of composite tensors in their places.
STELE_EXPORT Result<Snapshot> split_composites(const Snapshot& snapshot);

}  // namespace stele::inline v0
