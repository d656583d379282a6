// AMD Quark (0.13): integers of 4 bits in the order of AWQ's words, and MXFP4. The configuration names the scheme.
#include <array>

#include "passes/composites/recogniser.hpp"
#include "stele/pattern.hpp"

namespace stele::inline v0::detail::composites {

const Value* Recogniser::quark_weight(const std::string& layer) const {
  const LayerSettings all = configuration_.of_all();
  if (all.get<std::string>("quant_method") != "quark") return nullptr;
  const Value* config = all.find("global_quant_config");
  const Value* const layers = all.find("layer_quant_config");
  if (layers != nullptr && layers->as_map() != nullptr) {
    for (const auto& [pattern, own] : *layers->as_map()) {
      if (matches(pattern, layer)) config = &own;
    }
  }
  return config != nullptr ? config->find("weight") : nullptr;
}

Status Recogniser::quark_bytes(const std::string& stem) {
  const Value* const weight = quark_weight(stem);
  const auto type =
      weight != nullptr ? weight->at("dtype").to<std::string>() : Result<std::string>(Error(Errc::missing));
  const auto format = weight != nullptr ? weight->at("scale_format").to<std::string>() : type;
  if (!type || *type != "fp4" || !format || *format != "e8m0") return {};
  return halves(stem + ".weight", "mxfp4", {"", "_scale"});
}

Status Recogniser::quark_words(const std::string& stem) {
  const Value* const weight = quark_weight(stem);
  if (weight == nullptr) return {};
  const Made c = begin(stem, ".weight", "quark", {".weight", ".weight_scale", ".weight_zero_point?"});
  if (c == nullptr) return {};
  const auto is = [](const Value& in, const char* key, std::string_view text) {
    const auto found = in.at(key).to<std::string>();
    return found && *found == text;
  };
  const Value* const exported = configuration_.of_all().find("export");
  const bool has_sign = is(*weight, "dtype", "int4");
  if (!has_sign && !is(*weight, "dtype", "uint4")) return add(stem, c, "a dtype other than int4 and uint4");
  if (exported != nullptr && is(*exported, "pack_method", "order")) return add(stem, c, "the pack_method order");
  if (!is(*weight, "qscheme", "per_group")) return add(stem, c, "scales that are not for groups");
  const LeafView scales = leaf(part(*c, ".weight_scale"));
  const auto shape = leaf(c->codes).shape(), grid = scales.shape();
  if (shape.size() != 2 || grid.size() != 2 || shape[0] == 0 || shape[1] == 0 || shape[1] > UINT32_MAX ||
      grid[1] != shape[1] * 8 || grid[0] == 0 || shape[0] % grid[0] != 0 || !is_float(scales)) {
    return add(stem, c, "scales of the shape " + to_string(grid));
  }
  set_shape(*c, std::array<Extent, 2>{shape[1] * 8, shape[0]});
  c->bits = 4;
  c->packing = Packing::interleaved;
  c->table = has_sign ? signed_table(4) : integer_table(4, false);
  c->scales.leaf = part(*c, ".weight_scale");
  c->scales.rows = c->rows;
  c->scales.columns = grid[0];
  c->scales.transposed = true;
  c->group = c->columns / grid[0];
  const std::uint32_t zeros = part(*c, ".weight_zero_point");
  const auto symmetric = weight->at("symmetric").to<bool>();
  if (zeros == no_index || (symmetric && *symmetric)) return add(stem, c);  // its zero points are 0
  const auto zero_shape = leaf(zeros).shape();
  if (has_sign) return add(stem, c, "zero points with a sign");
  if (!is_word(leaf(zeros).dtype()) || zero_shape.size() != 2 || zero_shape[0] != grid[0] || zero_shape[1] != shape[1])
    return add(stem, c, "zero points of the shape " + to_string(zero_shape));
  c->zeros = c->scales;
  c->zeros.leaf = zeros;
  c->zeros.bits = 4;
  c->zeros.packing = Packing::interleaved;
  return add(stem, c);
}

}  // namespace stele::inline v0::detail::composites
