// 8-bit floats and integers with scales: DeepSeek, compressed-tensors, ComfyUI, ModelOpt, torchao.
#include "passes/composites/recogniser.hpp"

namespace stele::inline v0::detail::composites {

std::vector<Block> Recogniser::blocks_of(const std::string& stem, std::string_view codes) {
  std::vector<Block> blocks;
  if (codes == "._weight_qdata") {  // torchao describes each weight
    const auto text = snapshot_.metadata().find(stem + ".weight");
    const auto about = text != snapshot_.metadata().end() ? parse_json(text->second) : Result<Value>(Value());
    if (!about) return {};
    const ValueEntry size = about->at("_data").at("block_size");
    const auto columns = size.to<std::uint64_t>();
    const auto list = size.to<std::vector<std::uint64_t>>();
    if (columns && *columns != 0) return {Block{1, *columns}};
    const bool pair = list && list->size() >= 2 && list->back() != 0 && *(list->end() - 2) != 0;
    return pair ? std::vector{Block{*(list->end() - 2), list->back()}} : std::vector<Block>();
  }
  const std::string_view layer =
      codes.empty() && stem.ends_with(".weight") ? std::string_view(stem).substr(0, stem.size() - 7) : stem;
  for (const LayerSettings& s : configuration_.of(layer)) {
    if (const auto block = s.block()) blocks.push_back(*block);
  }
  return blocks;
}

Status Recogniser::scaled(const std::string& stem, Suffixes suffixes, std::string_view scheme) {
  const auto* const names = suffixes.begin();
  const Made c = begin(stem, weight_suffix(names[0]), scheme, suffixes, names[1] == "_scale_inv");
  if (c == nullptr) return {};
  const LeafView codes = leaf(c->codes);
  const bool floats = is_float8(codes.dtype());
  if (!floats && codes.dtype() != DType::i8) return {};  // another meaning of the name
  c->table = floats ? float8_table(codes.dtype()) : signed_table(8);
  set_shape(*c, codes.shape());
  if (c->rows == 0 || c->columns == 0) return {};
  const std::uint32_t scales = part(*c, names[1]);
  std::string why;
  const bool bytes = element_size(leaf(scales).dtype()) == 1;
  if (!bytes || !in_tiles(stem) || !set_tiles(*c, scales, 32)) {
    auto blocks = blocks_of(stem, names[0]);
    const bool deepseek = names[1] == "_scale_inv" || names[1] == ".scale";
    if (blocks.empty() && (deepseek || bytes)) blocks = {deepseek ? Block{128, 128} : Block{1, 32}};
    why = set_grid(*c, scales, blocks);
  }
  if (why.empty() && !set_dtype(c->scales)) why = "scales that are no floats";
  if (c->scheme.empty()) {
    c->scheme = !floats                                   ? "int8"
                : exponents(c->scales)                    ? "mxfp8"
                : c->scales.rows * c->scales.columns == 1 ? "scaled-fp8"
                                                          : "fp8";
  }
  const bool has_zeros = suffixes.size() > 2 && names[2].ends_with("zero_point?");
  if (has_zeros && why.empty()) why = set_zeros(*c, part(*c, names[2].substr(0, names[2].size() - 1)));
  if (suffixes.size() > 3 && why.empty())
    why = set_group_of(*c, part(*c, names[3].substr(0, names[3].size() - 1)), true);
  return add(stem, c, why);
}

Status Recogniser::weight_scale(const std::string& stem) {
  const Item* const weight = find(stem + ".weight");
  const DType dtype = weight != nullptr ? leaf(leaf_of(*weight)).dtype() : DType::none;
  if (is_word(dtype)) return quark_words(stem);
  if (dtype == DType::u8) return quark_weight(stem) != nullptr ? quark_bytes(stem) : modelopt_bytes(stem);
  return scaled(stem + ".weight", {"", "_scale", "_zero_point?", "_g_idx?"}, "");
}

Status Recogniser::fbgemm_experts(const std::string& stem) {
  if (configuration_.of_all().get<std::string>("quant_method") != "fbgemm_fp8") return {};
  const Made c = begin(stem, "", "fp8", {"", "_scale"});
  if (c == nullptr || !is_float8(leaf(c->codes).dtype()) || leaf(c->codes).shape().size() != 3) return {};
  set_shape(*c, leaf(c->codes).shape());
  if (c->rows == 0 || c->columns == 0) return {};
  c->table = float8_table(leaf(c->codes).dtype());
  const LeafView scales = leaf(part(*c, "_scale"));
  const auto shape = scales.shape();
  const std::uint64_t experts = c->rows / c->stack_rows;
  const bool fits =
      shape.size() == 3 && shape[0] == experts && (shape[1] == 1 || shape[2] == 1) && shape[1] * shape[2] == c->columns;
  if (!fits || !is_float(scales)) return add(stem, c, "scales of the shape " + to_string(shape));
  c->scales.leaf = part(*c, "_scale");
  c->scales.rows = experts;
  c->scales.columns = c->columns;
  c->row_group = c->stack_rows;
  c->group = 1;
  return add(stem, c);
}

Status Recogniser::deepseek(const std::string& stem) {
  const Item* const weight = find(stem + ".weight");
  const Item* const scale = find(stem + ".scale");
  if (weight == nullptr || leaf(leaf_of(*scale)).dtype() != DType::f8_e8m0) return {};
  if (leaf(leaf_of(*weight)).dtype() == DType::i8) return halves(stem, "mxfp4", {".weight", ".scale"});
  return scaled(stem, {".weight", ".scale"}, "fp8");
}

}  // namespace stele::inline v0::detail::composites
