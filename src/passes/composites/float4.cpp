// 4-bit floats in halves of bytes: NVFP4 and MXFP4.
#include <algorithm>
#include <array>

#include "passes/composites/recogniser.hpp"

namespace stele::inline v0::detail::composites {

Status Recogniser::halves(const std::string& stem, std::string_view scheme, Suffixes suffixes) {
  const auto* const names = suffixes.begin();
  const Made c = begin(stem, weight_suffix(names[0]), scheme, suffixes);
  if (c == nullptr) return {};
  const LeafView codes = leaf(c->codes);
  if (element_size(codes.dtype()) != 1 || codes.shape().empty() || codes.shape().back() > UINT32_MAX) return {};
  std::vector<Extent> extents(codes.shape().begin(), codes.shape().end());
  const std::uint32_t scales = part(*c, names[1]);
  c->bits = 4;
  c->packing = is_comfy(stem) ? Packing::high_first : Packing::low_first;
  c->table = e2m1_table();
  extents.back() *= 2;
  set_shape(*c, extents);
  if (c->rows == 0 || c->columns == 0) return {};
  const bool bytes = leaf(scales).dtype() == DType::u8 || leaf(scales).dtype() == DType::f8_e8m0;
  std::string why;
  const std::uint64_t group = bytes ? 32 : 16;
  if (!in_tiles(stem) || !set_tiles(*c, scales, group)) {
    why = set_grid(*c, scales, std::array{Block{1, group}});
  }
  if (why.empty() && !set_dtype(c->scales)) why = "scales that are no floats";
  if (why.empty() && exponents(c->scales)) c->scheme = "mxfp4";
  return finish_global(stem, c, std::move(why));
}

Status Recogniser::finish_global(const std::string& stem, const Made& c, std::string why) {
  for (const Part& p : c->parts) {
    if (!why.empty()) break;
    if (p.suffix == "_global_scale") {
      STELE_TRY_ASSIGN(why, set_global(c->divisor, p.leaf));
    } else if (p.suffix == "_scale_2" || p.suffix == "._weight_per_tensor_scale") {
      STELE_TRY_ASSIGN(why, set_global(c->scale_factor, p.leaf));
    }
  }
  return add(stem, c, why);
}

Status Recogniser::blocks(const std::string& stem) {
  const Made c = begin(stem, "", "mxfp4", {"_blocks", "_scales"});
  if (c == nullptr) return {};
  const LeafView scales = leaf(part(*c, "_scales"));
  const auto shape = leaf(c->codes).shape();
  if (leaf(c->codes).dtype() != DType::u8 || shape.size() < 3 || scales.shape().size() + 1 != shape.size() ||
      !std::equal(scales.shape().begin(), scales.shape().end(), shape.begin()) || shape.back() > 1024) {
    return {};
  }
  std::vector<Extent> extents(shape.begin(), shape.end() - 1);
  const std::uint64_t block = shape.back() * 2;
  if (block == 0 || extents.back() > UINT32_MAX) return {};
  extents.back() *= block;
  set_shape(*c, extents);
  if (c->rows == 0 || c->columns == 0) return {};
  c->bits = 4;
  c->packing = Packing::low_first;
  c->table = e2m1_table();
  c->group = block;
  c->row_group = 1;
  c->scales.leaf = part(*c, "_scales");
  c->scales.rows = c->rows;
  c->scales.columns = c->columns / block;
  return add(stem, c, set_dtype(c->scales) ? "" : "scales that are no exponents");
}

}  // namespace stele::inline v0::detail::composites
