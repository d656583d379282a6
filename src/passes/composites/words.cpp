// Integers of a few bits in words: GPTQ, AWQ, compressed-tensors.
#include <array>
#include <cmath>

#include "passes/composites/recogniser.hpp"

namespace stele::inline v0::detail::composites {

Status Recogniser::packed(const std::string& stem) {
  const Item* const codes = find(stem + "_packed");
  if (is_word(leaf(leaf_of(*codes)).dtype())) return packed_words(stem);
  const LeafView packed = leaf(leaf_of(*codes)), scales = leaf(leaf_of(*find(stem + "_scale")));
  const bool sixths = packed.shape().size() == 2 && scales.shape().size() == 2 && packed.dtype() == DType::u8 &&
                      scales.shape()[1] <= UINT32_MAX && packed.shape()[1] == scales.shape()[1] * 24;
  if (!sixths) return halves(stem, "nvfp4", {"_packed", "_scale", "_global_scale?"});
  const Made c = begin(stem, "", "mxfp6", {"_packed", "_scale"});
  set_shape(*c, std::array<Extent, 2>{packed.shape()[0], scales.shape()[1] * 32});
  if (c->rows == 0 || c->columns == 0) return {};
  c->bits = 6;
  c->packing = Packing::row_bytes;
  c->table = e2m3_table();
  std::string why = set_grid(*c, part(*c, "_scale"), {});
  if (why.empty() && !set_dtype(c->scales)) why = "scales that are no exponents";
  return add(stem, c, why);
}

Status Recogniser::packed_words(const std::string& stem) {
  const Made c = begin(stem, "", "pack-quantized", {"_packed", "_scale", "_shape?", "_zero_point?", "_g_idx?"});
  const LeafView codes = leaf(c->codes);
  const std::uint32_t shape_part = part(*c, "_shape");
  if (shape_part == no_index) return add(stem, c, "the shape is missing");
  std::vector<std::uint64_t> shape;
  STELE_TRY_ASSIGN(const std::vector<float> numbers, floats_of(shape_part));
  shape.reserve(numbers.size());
  for (const float x : numbers) shape.push_back(x >= 0 && x < 0x1p24F ? static_cast<std::uint64_t>(x) : 0);
  if (shape.size() != 2 || codes.shape().size() != 2 || shape[0] != codes.shape()[0] || shape[1] == 0) {
    return add(stem, c, "a shape that is not that of the codes");
  }
  set_shape(*c, shape);
  if (c->rows == 0) return {};
  const std::uint64_t words = codes.shape()[1];
  const auto asked = first_weights() != nullptr ? first_weights()->at("num_bits").to<std::uint64_t>()
                                                : Result<std::uint64_t>(Error(Errc::not_found));
  c->bits = 0;
  std::array<CodeLayout, 2> layouts = {CodeLayout::dense, CodeLayout::padded};
  if (before_dense_words()) std::swap(layouts[0], layouts[1]);
  for (const CodeLayout layout : layouts) {
    for (const unsigned bits : {4U, 8U, 2U, 1U, 3U, 5U, 6U, 7U}) {  // padded words of 7 bits are as many as of 8
      if ((asked && *asked != bits) || c->bits != 0 || code_words(c->columns, bits, layout) != words) continue;
      c->bits = bits;
      c->layout = layout;
    }
  }
  if (c->bits == 0) return add(stem, c, "a width of the codes that is not 1 to 8 bits");
  c->packing = Packing::row_words;
  const float half = std::ldexp(1.0F, static_cast<int>(c->bits) - 1);
  c->table = integer_table(c->bits, true);
  std::string why = set_grid(*c, part(*c, "_scale"), {});
  if (why.empty() && !is_float(leaf(c->scales.leaf))) why = "scales that are no floats";
  if (const std::uint32_t zeros = part(*c, "_zero_point"); why.empty() && zeros != no_index) {
    c->zeros = c->scales;
    c->zeros.leaf = zeros;
    const auto zero_shape = leaf(zeros).shape();
    if (!is_word(leaf(zeros).dtype())) {
      if (leaf(zeros).size() != leaf(c->scales.leaf).size() || element_size(leaf(zeros).dtype()) == 0)
        why = "zero points of another shape";
    } else {
      c->zeros.packing = Packing::column_words;
      c->zeros.bits = c->bits;
      c->zeros.add = -half;
      c->zeros.layout = c->layout;
      if (zero_shape.size() != 2 || zero_shape[1] != c->scales.columns ||
          zero_shape[0] != code_words(c->scales.rows, c->bits, c->layout)) {
        why = "zero points of the shape " + to_string(zero_shape);
      }
    }
  }
  if (why.empty()) why = set_group_of(*c, part(*c, "_g_idx"));
  return add(stem, c, why);
}

Status Recogniser::words(const std::string& stem) {
  const Made c = begin(stem, ".weight", "gptq", {".qweight", ".scales", ".qzeros", ".g_idx?"}, true);
  if (c == nullptr) return {};
  const auto shape = leaf(c->codes).shape();
  const LeafView scales = leaf(part(*c, ".scales")), zeros = leaf(part(*c, ".qzeros"));
  if (!is_word(leaf(c->codes).dtype()) || !is_word(zeros.dtype()) || !is_float(scales)) {
    return add(stem, c, "dtypes other than i32 and floats");
  }
  if (shape.size() != 2 || scales.shape().size() != 2 || zeros.shape().size() != 2 ||
      zeros.shape()[0] != scales.shape()[0]) {
    return add(stem, c, "parts that are not matrices of as many groups");
  }
  const std::uint64_t groups = scales.shape()[0], rows = scales.shape()[1];
  if (groups == 0 || rows == 0 || shape[0] == 0 || shape[1] == 0 || shape[0] > UINT32_MAX || rows > UINT32_MAX)
    return {};
  const std::uint64_t zero_words = zeros.shape()[1];
  const auto bits_asked = config_.at("bits").to<std::uint64_t>();
  const std::uint32_t groups_part = part(*c, ".g_idx");
  c->bits = 0;
  for (const unsigned bits : {4U, 8U, 3U, 2U, 5U, 6U, 7U}) {  // small matrices leave several possible
    const bool fits = groups_part == no_index || divided_up(leaf(groups_part).size() * bits, 32) == shape[0];
    if (c->bits != 0 || divided_up(rows * bits, 32) != zero_words || (bits_asked && *bits_asked != bits) || !fits)
      continue;
    c->bits = bits;
  }
  if (c->bits == 0) return add(stem, c, "zero points of the shape " + to_string(zeros.shape()));
  const bool awq = shape[1] != rows && c->bits == 4 && shape[1] * 8 == rows;
  const std::uint64_t columns = awq                       ? shape[0]
                                : groups_part != no_index ? leaf(groups_part).size()
                                                          : shape[0] * 32 / c->bits;
  if (!awq && (shape[1] != rows || columns > UINT32_MAX || divided_up(columns * c->bits, 32) != shape[0])) {
    return add(stem, c, "codes of the shape " + to_string(shape));
  }
  const auto format = config_.at("checkpoint_format").to<std::string>();
  if (format && *format != "gptq" && *format != "gptq_v2" && *format != "gptq_p") {
    return add(stem, c, "the layout " + *format);
  }
  const auto version = config_.at("version").to<std::string>();
  if (awq && version && *version != "gemm" && *version != "GEMM") return add(stem, c, "the layout " + *version);
  const bool planes = !awq && ((c->bits >= 5 && c->bits <= 7) || (format && *format == "gptq_p"));
  if (planes && (columns % 32 != 0 || rows % 32 != 0)) return add(stem, c, "an extent that is no multiple of 32");
  c->layout = planes ? CodeLayout::planes : CodeLayout::dense;
  const std::array<Extent, 2> extents = {rows, columns};
  set_shape(*c, extents);
  c->scheme = awq ? "awq" : "gptq";
  c->packing = awq ? Packing::interleaved : Packing::column_words;
  c->table = integer_table(c->bits, false);
  c->scales.leaf = part(*c, ".scales");
  c->scales.rows = rows;
  c->scales.columns = groups;
  c->scales.transposed = true;
  c->zeros = c->scales;
  c->zeros.leaf = part(*c, ".qzeros");
  c->zeros.bits = c->bits;
  c->zeros.packing = awq ? Packing::interleaved : Packing::row_words;
  c->zeros.layout = c->layout;
  c->zeros.less_one = !awq && !planes && !(format && *format == "gptq_v2");
  const auto asked = config_.at("group_size").to<std::int64_t>();
  c->group = asked && *asked > 0 && divided_up(c->columns, static_cast<std::uint64_t>(*asked)) == groups
                 ? static_cast<std::uint64_t>(*asked)
             : c->columns % groups == 0 ? c->columns / groups
                                        : 0;
  std::string why = c->group == 0 ? "scales of the shape " + to_string(scales.shape()) : "";
  if (why.empty()) why = set_group_of(*c, part(*c, ".g_idx"));
  return add(stem, c, why);
}

}  // namespace stele::inline v0::detail::composites
