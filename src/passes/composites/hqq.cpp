// HQQ (0.2.8): a matrix of groups, whose rows or columns have a scale and a zero point of floats. Tensors next to it
// contain the shape of the weight, the axis of the groups, and the packing.
#include <algorithm>
#include <array>
#include <iterator>

#include "passes/composites/recogniser.hpp"

namespace stele::inline v0::detail::composites {
namespace {

struct HqqPacking {
  std::string_view name;
  unsigned bits, rows;  // rows of the matrix of groups that share a row of words
  DType word;
};
constexpr HqqPacking hqq_packings[] = {{"8bit_u8", 8, 1, DType::u8},
                                       {"4bit_u8", 4, 2, DType::u8},
                                       {"2bit_u8", 2, 4, DType::u8},
                                       {"1bit_u8", 1, 8, DType::u8},
                                       {"3bit_32", 3, 10, DType::i32}};

}  // namespace

Status Recogniser::hqq(const std::string& stem) {
  const Made c =
      begin(stem, ".weight", "hqq",
            {".W_q", ".scale", ".zero", ".shape", ".axis", ".packing", ".nbits?", ".group_size?", ".unpack_view_dtype?",
             ".view_as_float?", ".quant_scale?", ".quant_zero?", ".compute_dtype?", ".offload_meta?",
             ".encoded_state_dict?", ".stores_quant_config?", ".channel_wise?", ".optimize?", ".round_zero?"});
  if (c == nullptr) return {};
  for (const char* const flag : {".quant_scale", ".quant_zero"}) {
    if (part(*c, flag) == no_index) continue;
    STELE_TRY_ASSIGN(const std::vector<float> set, floats_of(part(*c, flag)));
    if (set.size() != 1 || set[0] != 0) return add(stem, c, std::string(flag).substr(1) + " is set");
  }
  STELE_TRY_ASSIGN(const std::string name, bytes_of(part(*c, ".packing")));
  STELE_TRY_ASSIGN(const std::vector<float> extents, floats_of(part(*c, ".shape")));
  STELE_TRY_ASSIGN(const std::vector<float> axes, floats_of(part(*c, ".axis")));
  const auto* const packing =
      std::find_if(std::begin(hqq_packings), std::end(hqq_packings), [&](const auto& p) { return p.name == name; });
  const LeafView codes = leaf(c->codes), scales = leaf(part(*c, ".scale")), zeros = leaf(part(*c, ".zero"));
  // With `view_as_float`, the words are stored as floats of the compute dtype.
  bool viewed = false;
  if (part(*c, ".view_as_float") != no_index) {
    STELE_TRY_ASSIGN(const std::vector<float> set, floats_of(part(*c, ".view_as_float")));
    viewed = set.size() == 1 && set[0] != 0;
  }
  if (packing == std::end(hqq_packings) || codes.shape().size() != 2 || codes.shape()[0] == 0 ||
      !(codes.dtype() == packing->word || (viewed && is_float(codes)))) {
    return add(stem, c, "a packing that is not read");
  }
  const auto is_extent = [](float e) { return e >= 1 && e < 0x1p24F; };
  if (extents.size() != 2 || !std::all_of(extents.begin(), extents.end(), is_extent) || axes.size() != 1)
    return add(stem, c, "a shape that is no matrix");
  c->shape = Shape(std::array<Extent, 2>{static_cast<Extent>(extents[0]), static_cast<Extent>(extents[1])});
  const std::uint64_t count = c->size(), lines = codes.shape()[0];
  const std::uint64_t width = codes.byte_size() / lines / element_size(packing->word);
  if (width == 0 || count % width != 0 || divided_up(count / width, packing->rows) != lines)
    return add(stem, c, "codes of the shape " + to_string(codes.shape()));
  c->rows = c->stack_rows = count / width;
  c->columns = width;
  c->bits = packing->bits;
  c->packing = packing->rows == 1 ? Packing::elements : Packing::row_blocks;
  c->table = integer_table(c->bits, false);
  const bool along = axes[0] == 1, across = axes[0] == 0;  // a scale for each row, or each column
  if (!is_float(scales) || !is_float(zeros) || zeros.size() != scales.size() || (!along && !across) ||
      (scales.size() != 1 && scales.size() != (along ? c->rows : c->columns))) {
    return add(stem, c, "scales of the shape " + to_string(scales.shape()));
  }
  c->scales.leaf = part(*c, ".scale");
  const bool one = scales.size() == 1;
  c->scales.rows = along && !one ? c->rows : 1;
  c->scales.columns = across && !one ? c->columns : 1;
  c->row_group = c->rows / c->scales.rows;
  c->group = c->columns / c->scales.columns;
  c->zeros = c->scales;
  c->zeros.leaf = part(*c, ".zero");
  return add(stem, c);
}

}  // namespace stele::inline v0::detail::composites
