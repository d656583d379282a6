// NVIDIA ModelOpt (0.47): integers and floats of 4 bits. Their names do not identify the scheme; the configuration
// does. Its AWQ adds factors by which a layer multiplies its input.
#include "passes/composites/recogniser.hpp"

namespace stele::inline v0::detail::composites {

std::string Recogniser::quant_algo(const std::string& layer) const {
  const LayerSettings all = configuration_.of_all();
  const auto algo = all.get<std::string>("quant_algo");
  if (!algo || *algo != "MIXED_PRECISION") return algo.value_or("");
  const Value* const layers = all.find("quantized_layers");
  const Value* const own = layers != nullptr ? layers->find(layer) : nullptr;
  const Value* const name = own != nullptr ? own->find("quant_algo") : nullptr;
  return name != nullptr && name->as_string() != nullptr ? *name->as_string() : std::string();
}

Status Recogniser::modelopt_bytes(const std::string& stem) {
  const std::string algo = quant_algo(stem);
  if (algo == "W4A16_AWQ") return modelopt_int4(stem);
  if (algo == "MXFP4" || algo == "W4A8_MXFP4_FP8") return halves(stem + ".weight", "mxfp4", {"", "_scale"});
  return {};
}

/// Two rows of integers share a row of bytes: rows 2i are in the lower halves.
Status Recogniser::modelopt_int4(const std::string& stem) {
  const Made c = begin(stem, ".weight", "int4-awq", {".weight", ".weight_scale"});
  if (c == nullptr) return {};
  const LeafView codes = leaf(c->codes), scales = leaf(part(*c, ".weight_scale"));
  std::vector<Extent> extents(codes.shape().begin(), codes.shape().end());
  if (extents.size() < 2 || extents[extents.size() - 2] > UINT32_MAX) return add(stem, c, "codes that are no matrix");
  extents[extents.size() - 2] *= 2;
  set_shape(*c, extents);
  if (c->rows == 0 || c->columns == 0) return {};
  c->bits = 4;
  c->packing = Packing::row_pairs;
  c->table = signed_table(4);
  const auto shape = scales.shape();
  const bool fits = shape.size() == extents.size() && shape[shape.size() - 2] == c->stack_rows && shape.back() != 0 &&
                    c->columns % shape.back() == 0;
  std::string why = fits ? set_grid(*c, part(*c, ".weight_scale"), {}) : "scales of the shape " + to_string(shape);
  if (why.empty() && !is_float(scales)) why = "scales that are no floats";
  return add(stem, c, why);
}

std::string Recogniser::set_factors(Composite& c, const std::string& layer) const {
  if (find(layer + ".svdquant_lora_a") != nullptr) return "a low-rank matrix (svdquant_lora_a) is added to them";
  const Item* const factors = find(layer + ".pre_quant_scale");
  if (factors == nullptr) return {};
  const LeafView numbers = leaf(leaf_of(*factors));
  const bool fits = c.shape.rank() >= 2 && c.columns == c.shape.span().back() && numbers.size() == c.columns;
  if (!fits) return "a pre_quant_scale of the shape " + to_string(numbers.shape());
  if (!is_float(numbers)) return "a pre_quant_scale that has no floats";
  if (claimed_[leaf_of(*factors)] || tied_.contains(factors->path)) return "a pre_quant_scale of several layers";
  c.factors = leaf_of(*factors);
  return {};
}

}  // namespace stele::inline v0::detail::composites
