// MLX.
#include <algorithm>

#include "passes/composites/recogniser.hpp"

namespace stele::inline v0::detail::composites {
namespace {

/// Returns MLX's group size for rows of so many bits and groups, if only one of its sizes fits; otherwise 0: 4 bits
/// in groups of 32 have the shapes of 2 bits in groups of 64.
std::uint64_t mlx_group(std::uint64_t bits, std::uint64_t groups) {
  std::uint64_t found = 0;
  for (const std::uint64_t group : {32U, 64U, 128U}) {
    const std::uint64_t numbers = group * groups, each = bits / numbers;
    const bool fits = bits % numbers == 0 && (each == 8 || (each >= 2 && each <= 6));
    if (fits && found != 0) return 0;
    if (fits) found = group;
  }
  return found;
}

}  // namespace

Status Recogniser::mlx(const std::string& stem) {
  const Made c = begin(stem, ".weight", "mlx", {".weight", ".scales", ".biases?"});
  if (c == nullptr) return {};
  const LeafView codes = leaf(c->codes), scales = leaf(part(*c, ".scales"));
  const std::uint32_t bias_part = part(*c, ".biases");
  if (codes.dtype() != DType::u32 || codes.shape().size() < 2 || scales.shape().size() != codes.shape().size())
    return {};
  const auto layer = config_layers_.find(stem);  // a layer may have settings of its own
  const Value* const own = layer != config_layers_.end() ? layer->second : &config_;
  const auto mode = own->at("mode").to<std::string>();
  const bool affine = bias_part != no_index;
  const bool halves = !affine && mode && (*mode == "mxfp4" || *mode == "nvfp4"),
             bytes = !affine && mode && *mode == "mxfp8";
  if (!affine && !halves && !bytes) return {};
  const auto asked = own->at("group_size").to<std::uint64_t>();
  std::vector<Extent> extents(codes.shape().begin(), codes.shape().end());
  const std::uint64_t groups = scales.shape().back(), words = extents.back();
  if (groups == 0 || groups > UINT32_MAX || words > UINT32_MAX) return {};
  std::uint64_t group = affine ? 0 : *mode == "nvfp4" ? 16 : 32;
  if (asked && *asked != 0 && *asked < (1U << 20)) group = *asked;
  if (group == 0) group = mlx_group(words * 32, groups);
  if (group == 0) return note(stem, *c, "the group size is not in config.json, and the shapes fit several"), Status();
  extents.back() = groups * group;
  set_shape(*c, extents);
  if (c->rows == 0) return {};
  c->bits = static_cast<unsigned>(std::min<std::uint64_t>(words * 32 / c->columns, 9));
  if (c->bits < 1 || c->bits > 8 || std::uint64_t{c->bits} * c->columns != words * 32 || (halves && c->bits != 4) ||
      (bytes && c->bits != 8)) {
    return add(stem, c, "codes of the shape " + to_string(codes.shape()));
  }
  c->packing = Packing::row_words;
  c->table = affine ? integer_table(c->bits, false) : halves ? e2m1_table() : float8_table(DType::f8_e4m3fn);
  std::string why = set_grid(*c, part(*c, ".scales"), {});
  if (!affine) {
    c->scheme = *mode;
    if (why.empty() && !set_dtype(c->scales, *mode == "nvfp4" ? DType::f8_e4m3fn : DType::f8_e8m0))
      why = "scales that are no floats";
    return add(stem, c, why);
  }
  c->biases = c->scales;
  c->biases.leaf = bias_part;
  const LeafView biases = leaf(bias_part);
  if (why.empty() && (!is_float(scales) || !is_float(biases) || biases.size() != scales.size()))
    why = "scales that are no floats";
  return add(stem, c, why);
}

}  // namespace stele::inline v0::detail::composites
