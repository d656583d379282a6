// bitsandbytes: nf4, fp4 and int8.
#include "passes/composites/recogniser.hpp"

namespace stele::inline v0::detail::composites {

Status Recogniser::bitsandbytes(const std::string& weight) {
  const bool usual = weight.ends_with(".weight");  // parameters of fused experts have other names: experts.gate_up_proj
  const Made c = begin(weight, "", "nf4",
                       {"", ".absmax", ".quant_map", ".nested_absmax?", ".nested_quant_map?",
                        ".quant_state.bitsandbytes__nf4?", ".quant_state.bitsandbytes__fp4?"},
                       usual || find(weight + ".quant_map") != nullptr);
  if (c == nullptr) return {};
  const std::string layer = usual ? weight.substr(0, weight.size() - 7) : weight;
  c->bits = 4;
  c->packing = Packing::high_first;
  std::uint32_t state_part = part(*c, ".quant_state.bitsandbytes__nf4");
  if (state_part == no_index) {
    state_part = part(*c, ".quant_state.bitsandbytes__fp4");
    c->scheme = "fp4";
  }
  if (state_part == no_index) return add(weight, c, "the quant_state is missing");
  STELE_TRY_ASSIGN(const std::string text, bytes_of(state_part));
  const auto state = parse_json(text);
  if (!state) return add(weight, c, "a quant_state that is not JSON");
  const auto shape = state->at("shape").to<std::vector<std::uint64_t>>();
  const auto block = state->at("blocksize").to<std::uint64_t>();
  const LeafView codes = leaf(c->codes), absmax = leaf(part(*c, ".absmax"));
  if (!shape || !block || *block < 2 || *block % 2 != 0 || *block > (1U << 20) || element_size(codes.dtype()) == 0) {
    return add(weight, c, "a quant_state without shape and blocksize");
  }
  const auto count = element_count(*shape);
  if (!count || *count == 0 || divided_up(*count, 2) > codes.byte_size() ||
      codes.byte_size() - divided_up(*count, 2) >= 8 || divided_up(*count, *block) != absmax.size()) {
    return add(weight, c, "a shape that is not that of the codes");
  }
  c->shape = Shape(*shape);
  c->columns = c->group = *block;
  c->rows = c->stack_rows = divided_up(*count, *block);
  c->scales.leaf = part(*c, ".absmax");
  c->scales.rows = c->rows;
  c->scales.columns = 1;
  STELE_TRY_ASSIGN(const std::vector<float> table, floats_of(part(*c, ".quant_map")));
  if (table.size() != 16) return add(weight, c, "a quant_map that has not 16 numbers");
  c->table = table_of(table);
  const std::uint32_t nested = part(*c, ".nested_absmax"), nested_map = part(*c, ".nested_quant_map");
  if (nested == no_index) {
    const std::string why = is_float(absmax) ? set_orientation(layer, *c) : "an absmax that has no floats";
    return add(weight, c, why);
  }
  const auto nested_block = state->at("nested_blocksize").to<std::uint64_t>();
  const auto offset = state->at("nested_offset").to<double>();
  if (nested_map == no_index || !nested_block || *nested_block == 0 || !offset || absmax.dtype() != DType::u8 ||
      divided_up(absmax.size(), *nested_block) != leaf(nested).size()) {
    return add(weight, c, "an incomplete nested quantization");
  }
  STELE_TRY_ASSIGN(const std::vector<float> scale_table, floats_of(nested_map));
  if (scale_table.size() != 256) return add(weight, c, "a nested_quant_map that has not 256 numbers");
  c->scale_table = table_of(scale_table);
  c->nested.leaf = nested;
  c->nested.rows = leaf(nested).size();
  c->nested.columns = 1;
  c->nested_group = *nested_block;
  c->scale_offset = static_cast<float>(*offset);
  return add(weight, c, set_orientation(layer, *c));
}

Result<std::string> Recogniser::other_order(const std::string& stem) const {
  const auto at = index_.find(stem + ".weight_format");
  if (!at) return std::string();
  const Item& format = items_.list[*at];
  std::string order;
  if (format.is_tensor()) {
    STELE_TRY_ASSIGN(const std::vector<float> numbers, floats_of(leaf_of(format)));
    constexpr std::string_view orders[] = {"row", "col32", "col_turing", "col_ampere"};
    const bool known = numbers.size() == 1 && numbers[0] >= 0 && numbers[0] < 4;
    order = known ? orders[static_cast<std::size_t>(numbers[0])] : "unknown";
  } else if (!format.target && format.from->nodes[format.node].kind == NodeKind::value) {  // before 0.41
    const std::string* const text = format.from->values[format.from->nodes[format.node].index].as_string();
    order = text != nullptr ? *text : "unknown";
  }
  return order == "row" ? std::string() : "the weight_format " + order;
}

Status Recogniser::bitsandbytes_8(const std::string& stem) {
  const Made c = begin(stem, ".weight", "int8", {".weight", ".SCB", ".weight_format?"}, true);
  if (c == nullptr) return {};
  const LeafView codes = leaf(c->codes), scales = leaf(part(*c, ".SCB"));
  if (codes.dtype() != DType::i8 || codes.shape().size() != 2) return {};
  set_shape(*c, codes.shape());
  if (c->rows == 0 || c->columns == 0) return {};
  c->table = signed_table(8);
  c->factor = 7.874015718698502e-3F;  // the constant of bitsandbytes for 1 / 127
  std::string why = set_grid(*c, part(*c, ".SCB"), std::array{Block{1, 0}});
  if (why.empty() && !is_float(scales)) why = "an SCB that has no floats";
  if (why.empty()) {
    STELE_TRY_ASSIGN(why, other_order(stem));
  }
  if (why.empty()) why = set_orientation(stem, *c);
  return add(stem, c, why);
}

}  // namespace stele::inline v0::detail::composites
