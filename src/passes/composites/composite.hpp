// A composite tensor: computes its numbers from its parts. Schemes do not depend on file formats.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stele/composite.hpp"
#include "stele/detail/codes.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::composites {

/// The key of the metadata, and of a hub's config.json, that has the configuration of a scheme.
inline constexpr const char* config_key = "quantization_config";

/// The key of the metadata, and of config.json, that has the kind of model. Joining adds it for kinds that store the
/// weights of some layers as [inputs, outputs].
inline constexpr const char* model_type_key = "model_type";

/// Returns the content of a config.json; null if it cannot be understood, or is too large.
STELE_EXPORT Value parse_config(std::string_view text);

/// Returns the places at which a config.json describes the quantization: the keys of each, the outermost first.
STELE_EXPORT std::vector<std::vector<std::string>> quantization_paths(const Value& config);
/// Returns the path of the description for the whole model; empty if there is none, or if parts of the model have
/// different descriptions.
STELE_EXPORT std::vector<std::string> quantization_path(const Value& config);
/// Returns the value at a path.
STELE_EXPORT const Value& at_path(const Value& config, const std::vector<std::string>& path);

/// Returns the kind of a config.json's model, or of a model in it, if its layers are Conv1D of transformers, which
/// store weights as [inputs, outputs]; empty otherwise.
STELE_EXPORT std::string model_with_conv1d(const Value& config);

/// How a part stores codes of a few bits. K: the columns of the weight; N: its rows.
enum class Packing : std::uint8_t {
  elements,      ///< an element of 8 bits each, row by row
  low_first,     ///< two codes in a byte, the lower half first, row by row
  high_first,    ///< the upper half first
  row_words,     ///< a row is one string of bits, the lowest bits of its words first
  row_bytes,     ///< like row_words, with bytes instead of words
  column_words,  ///< [K * bits / 32, N]: a column is one string of bits
  interleaved,   ///< [K, N / 8]: words of eight columns, in the order of AWQ
  row_pairs,     ///< [N / 2, K]: rows 2i are the lower halves of bytes
  row_blocks,    ///< [⌈N / n⌉, K]: n blocks of consecutive rows share words, the first block has the highest bits
};

/// The columns of a word of AWQ, whose lowest bits have column 0.
inline constexpr std::array<std::uint8_t, 8> interleaved_columns = {0, 2, 4, 6, 1, 3, 5, 7};

/// Swaps the bytes of elements on big-endian machines: bits are numbered in little-endian words.
inline void swap_big_endian([[maybe_unused]] std::span<std::byte> bytes, [[maybe_unused]] std::size_t element) {
  if constexpr (std::endian::native != std::endian::little) {
    for (; element > 1 && bytes.size() >= element; bytes = bytes.subspan(element)) {
      std::reverse(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(element));
    }
  }
}

/// The number of each code.
using Table = std::array<float, 256>;

/// A matrix of numbers, one for each group of elements.
struct Grid {
  std::uint32_t leaf = no_index;  ///< index of a leaf of the base; no_index: absent
  std::uint64_t rows = 0, columns = 0;
  bool transposed = false;  ///< stored as [columns, rows]
  Packing packing = Packing::elements;
  unsigned bits = 0;  ///< width of packed integers; 0: elements of the leaf's dtype
  CodeLayout layout = CodeLayout::dense;
  /// GPTQ v1 stores packed integers minus 1; the subtraction borrows across the integers of a word
  bool less_one = false;
  float add = 0;              ///< added to each packed integer
  bool swizzled = false;      ///< stored in tiles of 128 rows and 4 columns, padded to whole tiles
  DType dtype = DType::none;  ///< dtype of the elements, if the leaf has bytes

  bool exists() const noexcept { return leaf != no_index; }
};

struct Part {
  std::string suffix;  ///< the part's name is the stem and this suffix
  std::uint32_t leaf = no_index;
  bool whole = false;  ///< `suffix` is the whole name
};

/// value = (table[code] - zero) * scale, or table[code] * scale + bias, in f32, times the factor of the column, if
/// there are factors. An element of row r and column c has the scale of row r / N * ⌈N / row_group⌉ + r % N / row_group
/// and column c / group, or group_of[c].
struct Composite {
  Snapshot base;  ///< has the parts
  std::string scheme;
  std::string suffix;    ///< suffix of the weight's name, after the stem
  bool by_names = true;  ///< names identify the parts; false: only the graph does
  std::vector<Part> parts;
  Shape shape;
  std::uint64_t rows = 0, columns = 0;  ///< size of the matrix, which has the tensor's elements in the same order
  std::uint64_t stack_rows = 0;         ///< N: rows of one matrix of a stack
  unsigned bits = 8;
  std::uint64_t group = 0, row_group = 1;
  std::uint32_t codes = no_index;
  Packing packing = Packing::elements;
  CodeLayout layout = CodeLayout::dense;
  std::shared_ptr<const Table> table;
  Grid scales, zeros, biases;
  bool transposed = false;            ///< `shape` is [columns, rows] of the matrix that the parts store
  std::uint32_t group_of = no_index;  ///< leaf of K integers; no_index: c / group
  bool groups_may_be_unset = false;   ///< if an integer of group_of is -1: c / group, as in compressed-tensors
  std::uint32_t factors = no_index;   ///< leaf of K factors of a layer's input; no_index: none
  float factor = 1;                   ///< factor of all numbers: 1 / 127 for SCB
  float scale_factor = 1;             ///< of the scales
  float divisor = 1;                  ///< divisor of the scales: SCB / 127, scale / global
  // bitsandbytes: scales = scale_table[code] * nested[row / nested_group] + scale_offset
  Grid nested;
  std::uint64_t nested_group = 0;
  std::shared_ptr<const Table> scale_table;
  float scale_offset = 0;

  LeafView part(std::uint32_t leaf) const { return base.leaf(leaf); }
  std::uint64_t size() const noexcept { return *shape.element_count(); }
};

/// Returns the number of rows that are decoded together.
std::uint64_t rows_at_once(const Composite& composite) noexcept;

/// Returns the leaf of a composite tensor, which must outlive it.
Provider provider_of(const Composite& composite) noexcept;

/// Returns the composite tensor of a leaf, or nullptr.
const Composite* composite_of(const LeafView& leaf) noexcept;

/// Returns the part of a weight's path that the paths of its parts begin with.
inline std::string stem_of(const std::string& path, const Composite& composite) {
  return path.ends_with(composite.suffix) ? path.substr(0, path.size() - composite.suffix.size()) : path;
}

/// Returns the path of a part.
inline std::string path_of(const std::string& stem, const Part& part) {
  return part.whole ? part.suffix : stem + part.suffix;
}

/// A tensor of integers with a scale, and perhaps a zero point, for all or for each index of an axis.
struct Scaled {
  std::string codes, scale, zero;  // names of the tensors; `zero` may be empty
  std::int64_t axis = 0;
  bool blocks = false;  // a scale for blocks of the axis, which is not decoded
  friend bool operator==(const Scaled&, const Scaled&) = default;
};
/// Returns the snapshot with the parts of these tensors joined; ignores tensors that are not in it. A tensor with
/// several scales stays as it is, with a note.
STELE_EXPORT Result<Snapshot> joined(const Snapshot& snapshot, const std::vector<Scaled>& tensors);

/// Returns the snapshot of an opened file with its quantized weights joined. The configuration is in its metadata, or
/// in a file next to the source; it is then added to the metadata.
Result<Snapshot> joined(const Snapshot& snapshot, const Source& source);

/// Returns the snapshot with composite tensors (those for which `which` returns true; all if it is empty) as tensors of
/// f32 that a save does not store as parts.
Snapshot decoded(const Snapshot& snapshot, const std::function<bool(const LeafView&)>& which = nullptr);

/// Returns the tensors that an opened file stores, in its order: undoes joined().
STELE_EXPORT Snapshot as_stored(const Snapshot& snapshot);

/// Returns false if no tensor can be codes: the usual case, which costs little.
bool may_have_codes(const Snapshot& snapshot);

/// Annotates codes and scales of weights that no scheme decodes (snapshot/undecoded.hpp), and adds a note for each
/// scheme. `config` describes the quantization; null: no description.
Snapshot with_undecoded(const Snapshot& snapshot, const Value& config);

/// Returns true if a leaf is a composite tensor.
bool has_composites(const Snapshot& snapshot) noexcept;

}  // namespace stele::inline v0::detail::composites
