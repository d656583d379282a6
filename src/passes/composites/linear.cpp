// Integers whose scales a graph names: ONNX, OpenVINO, Core ML.
#include "passes/composites/recogniser.hpp"

namespace stele::inline v0::detail::composites {

Result<std::string> Recogniser::set_linear_zeros(Composite& c, std::uint32_t number) {
  const LeafView zeros = leaf(number), scales = leaf(c.scales.leaf);
  const DType dtype = zeros.dtype();
  const bool halves = element_size(dtype) == 0, one = zeros.size() == 1;
  const bool is_integer = dtype == DType::i8 || dtype == DType::u8 || dtype == DType::i4 || dtype == DType::u4;
  if (one && is_integer && (halves || scales.size() != 1)) {  // the numbers of the codes contain it
    STELE_TRY_ASSIGN(const std::string bytes, bytes_of(number));
    const unsigned width = halves ? 4 : 8, byte = static_cast<unsigned char>(bytes[0]);
    const bool has_sign = dtype == DType::i8 || dtype == DType::i4;
    const float zero = (*(has_sign ? signed_table(width) : integer_table(width, false)))[halves ? byte & 0xf : byte];
    auto table = std::make_shared<Table>(*c.table);
    for (float& value : *table) value -= zero;
    c.table = std::move(table);
    return std::string();
  }
  const auto a = zeros.shape(), b = scales.shape();
  if (!one && !std::equal(a.begin(), a.end(), b.begin(), b.end())) {
    return "zero points of the shape " + to_string(a);
  }
  if (!halves) return set_zeros(c, number);
  if (dtype == DType::u4 && leaf(c.codes).dtype() == DType::u4 && c.scales.columns == 1 && c.scales.rows > 1) {
    c.zeros = c.scales;  // one string of bits
    c.zeros.leaf = number;
    c.zeros.packing = Packing::column_words;
    c.zeros.bits = 4;
    return std::string();
  }
  STELE_TRY_ASSIGN(const std::string bytes, bytes_of(number));
  return bytes.find_first_not_of('\0') != bytes.npos ? "zero points of 4 bits" : std::string();
}

Status Recogniser::linear(const Scaled& s) {
  const Item *const codes_item = find(s.codes), *const scale_item = find(s.scale), *const zero_item = find(s.zero);
  if (codes_item == nullptr || scale_item == nullptr) return {};  // the model computes them
  const LeafView codes = leaf(leaf_of(*codes_item));
  const bool halves = codes.dtype() == DType::i4 || codes.dtype() == DType::u4;
  const bool has_sign = codes.dtype() == DType::i4 || codes.dtype() == DType::i8;
  if (!halves && codes.dtype() != DType::i8 && codes.dtype() != DType::u8) return {};
  constexpr std::string_view ending = "_quantized";  // of onnxruntime's quantizer
  std::string name = s.codes;
  if (name.ends_with(ending) && name.size() > ending.size()) name.resize(name.size() - ending.size());
  if (name != s.codes && index_.find(name)) name = s.codes;
  auto c = std::make_shared<Composite>();
  c->base = snapshot_;
  c->scheme = "linear";
  c->by_names = false;
  for (const Item* const part : {codes_item, scale_item, zero_item}) {
    if (part == nullptr) continue;
    const bool below = part->path.starts_with(name);
    c->parts.push_back({below ? part->path.substr(name.size()) : part->path, leaf_of(*part), !below});
  }
  c->codes = leaf_of(*codes_item);
  set_shape(*c, codes.shape());
  if (c->rows == 0 || c->columns == 0) return {};
  c->bits = halves ? 4 : 8;
  c->packing = halves ? Packing::low_first : Packing::elements;
  c->table = has_sign ? signed_table(c->bits) : integer_table(c->bits, false);
  if (halves && c->columns % 2 != 0 && c->rows > 1) return add(name, c, "rows that are no whole bytes");
  if (s.blocks) return add(name, c, "scales of blocks");
  std::string why = set_axis(*c, leaf_of(*scale_item), s.axis);
  if (why.empty() && !is_float(leaf(c->scales.leaf))) why = "scales that are no floats";
  if (why.empty() && zero_item != nullptr) {
    STELE_TRY_ASSIGN(why, set_linear_zeros(*c, leaf_of(*zero_item)));
  }
  return add(name, c, why);
}

}  // namespace stele::inline v0::detail::composites
