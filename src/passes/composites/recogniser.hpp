// Finds the parts of quantized weights and makes composite tensors of them. One class, with a source for each family of
// schemes. Layouts: docs/guide/quantized-checkpoints.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "passes/composites/composite.hpp"
#include "passes/composites/configuration.hpp"
#include "passes/composites/tables.hpp"
#include "snapshot/items.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::composites {

inline std::uint64_t divided_up(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

inline bool is_float8(DType d) {
  return d == DType::f8_e4m3fn || d == DType::f8_e5m2 || d == DType::f8_e4m3fnuz || d == DType::f8_e5m2fnuz;
}
inline bool is_word(DType d) { return d == DType::i32 || d == DType::u32; }

/// How a model stores the weights of the layers that some of its kind store as [inputs, outputs].
enum class Orientation : std::uint8_t { rows, columns, open };

class Recogniser {
 public:
  Recogniser(const Snapshot& snapshot, Items items, const Value& config, Orientation orientation);
  /// Returns false if no name can name a part: the usual case, which must cost little.
  static bool may_have_parts(const Snapshot& snapshot);
  Result<Snapshot> run();
  Result<Snapshot> run(const std::vector<Scaled>& tensors);

 private:
  using Made = std::shared_ptr<Composite>;
  using Suffixes = std::initializer_list<std::string_view>;

  // --- recognise.cpp ---

  /// Adds a note if the error concerns the parts.
  Status noted(const std::string& path, Status added);
  Result<Snapshot> finish();
  struct Scheme;
  /// Makes the composite tensor of which this is the part that determines the scheme.
  Status item(const std::string& path);

  // --- assemble.cpp ---

  /// Returns true for floats of whole bytes.
  static bool is_float(const LeafView& l) {
    return dtype_class(l.dtype()) == DTypeClass::floating && element_size(l.dtype()) != 0;
  }
  std::uint32_t leaf_of(const Item& item) const { return item.from->nodes[item.node].index; }
  LeafView leaf(std::uint32_t number) const { return snapshot_.leaf(number); }
  /// Returns the suffix of the weight that has this part.
  static std::string_view weight_suffix(std::string_view codes) {
    return codes == ".weight" || codes == "._weight_qdata" ? ".weight" : "";
  }
  static std::uint32_t part(const Composite& c, std::string_view suffix) {
    const auto at = std::find_if(c.parts.begin(), c.parts.end(), [&](const Part& p) { return p.suffix == suffix; });
    return at != c.parts.end() ? at->leaf : no_index;
  }
  bool exponents(const Grid& scales) const {
    return scales.dtype == DType::f8_e8m0 || leaf(scales.leaf).dtype() == DType::f8_e8m0;
  }
  const Item* find(std::string_view path) const;
  /// Reads a small part.
  Result<std::string> bytes_of(std::uint32_t number) const;
  Result<std::vector<float>> floats_of(std::uint32_t number) const;
  /// Begins a composite tensor of the parts with these suffixes, the first of which has the codes; optional ones end
  /// with '?'. Returns null if a part is missing; adds a note if the names certainly belong to the scheme.
  Made begin(const std::string& stem, std::string_view suffix, std::string_view scheme, Suffixes suffixes,
             bool sure = false);
  void add_note(std::string text);
  void note(const std::string& stem, const Composite& c, std::string_view why);
  /// Adds a finished composite tensor, unless `why` contains a problem.
  Status add(const std::string& stem, Made made, std::string_view why = {});
  /// Returns a table of a file; most files store equal tables for all weights.
  TablePtr table_of(const std::vector<float>& numbers);
  /// Gives the weight of a layer the orientation that the unquantized model has. Returns what is wrong.
  std::string set_orientation(const std::string& stem, Composite& c) const;
  /// Calls `plan` with each of the settings that a layer may have. Returns the plan, if all settings that fit give
  /// equal plans; else sets `why`. `plan(settings, made)` returns the problem, or an empty string.
  template <class Plan, class F>
  std::optional<Plan> only_plan(std::string_view layer, std::string& why, const F& plan) {
    std::optional<Plan> only;
    for (const LayerSettings& s : configuration_.of(layer)) {
      Plan made;
      std::string wrong = plan(s, made);
      if (!wrong.empty()) {
        if (why.empty()) why = std::move(wrong);
      } else if (only && !(*only == made)) {
        why = "the configuration leaves open which settings the layer has";
        return std::nullopt;
      } else {
        only = std::move(made);
      }
    }
    if (only) why.clear();
    return only;
  }

  /// Returns true for a layer that ComfyUI describes.
  bool is_comfy(const std::string& weight) const;
  /// Returns true if the scales of a weight with groups of 16 or 32 elements are in tiles.
  bool in_tiles(const std::string& stem) const;

  // --- grids.cpp ---

  /// Sets the matrix of a weight: leading axes are a stack.
  static void set_shape(Composite& c, std::span<const Extent> shape);
  /// Sets the groups of a grid of scales, [stacks..., a, b] for a weight [stacks..., N, K]: uses the known block, or
  /// else the size, if exactly one fits. Returns what is wrong.
  std::string set_grid(Composite& c, std::uint32_t scales, std::span<const Block> known);
  /// Sets the dtype of scales; bytes are those of `bytes`. Returns false if the dtype has no numbers.
  bool set_dtype(Grid& scales, DType bytes = DType::f8_e8m0) const;
  /// Sets groups of `group` columns, whose scales are in tiles, if the tiles are whole.
  bool set_tiles(Composite& c, std::uint32_t scales, std::uint64_t group) const;
  /// Sets the number that multiplies or divides all scales.
  Result<std::string> set_global(float& number, std::uint32_t part) const;
  /// Sets the scales for the indices of an axis. Returns what is wrong.
  std::string set_axis(Composite& c, std::uint32_t scales, std::int64_t axis);
  /// Sets a scale for each part of consecutive rows.
  void set_rows(Composite& c, std::uint32_t scales);
  /// Zero points, as many as scales, in the same order.
  std::string set_zeros(Composite& c, std::uint32_t zeros);
  /// Sets the list of the columns' groups. `may_be_unset`: with a -1 in the list, columns are in order.
  std::string set_group_of(Composite& c, std::uint32_t groups, bool may_be_unset = false);

  // --- linear.cpp ---

  /// Integers of 8 or 4 bits with scales of f32 for all, or for each index of an axis (ONNX's DequantizeLinear).
  Status linear(const Scaled& s);
  /// Sets the zero points: one, or one for each scale. Returns what is wrong.
  Result<std::string> set_linear_zeros(Composite& c, std::uint32_t zeros);

  // --- float8.cpp ---

  /// Returns the blocks that the configuration, or the metadata of torchao, has for a weight.
  std::vector<Block> blocks_of(const std::string& stem, std::string_view codes);
  /// 8-bit floats or integers, with scales for the tensor, its rows, groups or blocks.
  Status scaled(const std::string& stem, Suffixes suffixes, std::string_view scheme);
  /// Joins a `weight_scale` with its codes: 8-bit numbers, or bytes and words of smaller codes.
  Status weight_scale(const std::string& stem);
  /// Llama 4 of FBGEMM: stacks of experts [E, K, N], scales of [E, 1, N] or [E, N, 1].
  Status fbgemm_experts(const std::string& stem);
  /// DeepSeek V4: exponents as scales of 8-bit floats in blocks, or of pairs of 4-bit floats.
  Status deepseek(const std::string& stem);

  // --- float4.cpp ---

  /// Pairs of 4-bit floats in bytes, the lower half first, with scales for groups of a row.
  Status halves(const std::string& stem, std::string_view scheme, Suffixes suffixes);
  Status finish_global(const std::string& stem, const Made& c, std::string why);
  /// gpt-oss: [..., K / 32, 16] bytes of floats of 4 bits, [..., K / 32] exponents.
  Status blocks(const std::string& stem);

  // --- words.cpp ---

  /// compressed-tensors' packed weights: integers in words, or floats of 4 or 6 bits in bytes.
  Status packed(const std::string& stem);
  Status packed_words(const std::string& stem);
  /// GPTQ and AWQ: codes in words, transposed.
  Status words(const std::string& stem);
  /// Returns the zero point of the first weight with this number of bits; nullopt if the weight has several.
  Result<std::optional<unsigned>> stored_zero(std::uint32_t zeros, unsigned bits, std::uint64_t count);

  // --- bitsandbytes.cpp ---

  /// bitsandbytes' 4 bits: codes of a table, and the largest number of each block, which may be quantized, too.
  Status bitsandbytes(const std::string& weight);
  /// Returns why codes of 8 bits are not stored row by row; bitsandbytes before 0.45 had layouts of GPUs.
  Result<std::string> other_order(const std::string& stem) const;
  /// bitsandbytes' 8 bits: a row has the scale SCB / 127.
  Status bitsandbytes_8(const std::string& stem);

  // --- mlx.cpp ---

  /// MLX: number = code * scale + bias, or floats with scales for groups.
  Status mlx(const std::string& stem);

  // --- modelopt.cpp ---

  /// Returns ModelOpt's name of a layer's scheme; empty if the configuration has none.
  std::string quant_algo(const std::string& layer) const;
  /// ModelOpt's W4A16_AWQ and MXFP4: bytes, with a `weight_scale`.
  Status modelopt_bytes(const std::string& stem);
  Status modelopt_int4(const std::string& stem);
  /// Sets the factors of the input, if the layer has them. Returns what is wrong.
  std::string set_factors(Composite& c, const std::string& layer) const;

  // --- quark.cpp ---

  /// Returns the description of a layer's weight in the configuration of Quark; null if another package wrote it.
  const Value* quark_weight(const std::string& layer) const;
  Status quark_bytes(const std::string& stem);
  /// Quark's integers of 4 bits, transposed as in AWQ.
  Status quark_words(const std::string& stem);

  // --- hqq.cpp ---

  /// HQQ: groups of the weight are rows, or columns, of a matrix.
  Status hqq(const std::string& stem);

  // --- torchao.cpp ---

  /// torchao, as torchao.prototype.safetensors writes it: the metadata describe each weight.
  Status torchao(const std::string& stem);
  /// torchao's Int4Tensor: number = code * scale + zero, with a sign, both stored as [K / g, N].
  Status torchao_int4(const std::string& stem, const Made& c);

  const Snapshot& snapshot_;
  Items items_;
  ItemIndex index_;
  Configuration configuration_;
  std::set<std::string> comfy_;                                    // layers that ComfyUI describes
  std::map<std::uint32_t, std::pair<std::string, Made>> made_at_;  // leaf of the codes -> name, tensor
  std::vector<bool> claimed_;                                      // leaves that are parts
  std::set<std::string> tied_;                                     // paths that have a second name
  std::vector<std::string> notes_;
  std::size_t note_count_ = 0;
  std::vector<TablePtr> tables_;
  Orientation orientation_;
  // zero points of GPTQ, by bits; nullopt: different zero points
  std::map<unsigned, std::optional<unsigned>> stored_zeros_;
};

}  // namespace stele::inline v0::detail::composites
