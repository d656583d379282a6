// MLX.
#include <algorithm>

#include "passes/composites/recogniser.hpp"

namespace stele::inline v0::detail::composites {
namespace {

/// Returns MLX's group size for rows with this number of bits and groups, if exactly one size of MLX fits; otherwise 0:
/// 4 bits in groups of 32 have the shapes of 2 bits in groups of 64.
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

struct MlxPlan {
  std::string mode;
  std::uint64_t group = 0;
  unsigned bits = 0;
  bool operator==(const MlxPlan&) const = default;
};

/// Plans rows of `row_bits` bits in this number of groups. Returns the problem, or an empty string.
std::string mlx_plan(const LayerSettings& settings, bool affine, std::uint64_t groups, std::uint64_t row_bits,
                     MlxPlan& plan) {
  plan.mode = affine ? "affine" : settings.get<std::string>("mode").value_or("");
  const bool halves = plan.mode == "mxfp4" || plan.mode == "nvfp4", bytes = plan.mode == "mxfp8";
  if (!affine && !halves && !bytes) return "biases and a known mode in the configuration are both missing";
  plan.group = affine ? 0 : plan.mode == "nvfp4" ? 16 : 32;
  const auto asked = settings.get<std::uint64_t>("group_size");
  if (asked && *asked != 0 && *asked < (1U << 20)) plan.group = *asked;
  if (plan.group == 0) plan.group = mlx_group(row_bits, groups);
  if (plan.group == 0) return "the group size is not in config.json, and the shapes fit several";
  const std::uint64_t columns = groups * plan.group;
  plan.bits = static_cast<unsigned>(std::min<std::uint64_t>(row_bits / columns, 9));
  const bool fits = plan.bits >= 1 && plan.bits <= 8 && plan.bits * columns == row_bits;
  const auto bits = settings.get<std::uint64_t>("bits");
  if (!fits || (halves && plan.bits != 4) || (bytes && plan.bits != 8) || (bits && *bits != plan.bits)) {
    return "its shapes are not those of the settings in the configuration: groups of " + std::to_string(plan.group);
  }
  return {};
}

}  // namespace

Status Recogniser::mlx(const std::string& stem) {
  const Made c = begin(stem, ".weight", "mlx", {".weight", ".scales", ".biases?"});
  if (c == nullptr) return {};
  const LeafView codes = leaf(c->codes), scales = leaf(part(*c, ".scales"));
  const std::uint32_t bias_part = part(*c, ".biases");
  if (codes.dtype() != DType::u32 || codes.shape().size() < 2 || scales.shape().size() != codes.shape().size())
    return {};
  std::vector<Extent> extents(codes.shape().begin(), codes.shape().end());
  const std::uint64_t groups = scales.shape().back(), words = extents.back();
  if (groups == 0 || groups > UINT32_MAX || words > UINT32_MAX) return {};
  const bool affine = bias_part != no_index;
  std::string why;
  const auto plan = only_plan<MlxPlan>(
      stem, why, [&](const LayerSettings& s, MlxPlan& made) { return mlx_plan(s, affine, groups, words * 32, made); });
  if (!plan) return note(stem, *c, why), Status();
  extents.back() = groups * plan->group;
  set_shape(*c, extents);
  if (c->rows == 0) return {};
  c->bits = plan->bits;
  c->packing = Packing::row_words;
  c->table = affine                  ? integer_table(c->bits, false)
             : plan->mode == "mxfp8" ? float8_table(DType::f8_e4m3fn)
                                     : e2m1_table();
  why = set_grid(*c, part(*c, ".scales"), std::array{Block{1, plan->group}});
  if (!affine) {
    c->scheme = plan->mode;
    if (why.empty() && !set_dtype(c->scales, plan->mode == "nvfp4" ? DType::f8_e4m3fn : DType::f8_e8m0))
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
