// Integers whose scales a graph names: ONNX, OpenVINO, Core ML.
#include "passes/composites/recogniser.hpp"

namespace stele::inline v0::detail::composites {

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
    const LeafView zeros = leaf(leaf_of(*zero_item));
    if (element_size(zeros.dtype()) != 0) {
      why = set_zeros(*c, leaf_of(*zero_item));
    } else if (zeros.dtype() == DType::u4 && codes.dtype() == DType::u4 && c->scales.columns == 1 &&
               c->scales.rows > 1 && zeros.size() == c->scales.rows) {  // one string of bits
      c->zeros = c->scales;
      c->zeros.leaf = leaf_of(*zero_item);
      c->zeros.packing = Packing::column_words;
      c->zeros.bits = 4;
    } else {
      STELE_TRY_ASSIGN(const std::string bytes, bytes_of(leaf_of(*zero_item)));
      const bool one = zeros.size() == 1 && zeros.dtype() == codes.dtype();
      if (one) {  // the numbers of the codes contain it
        auto table = std::make_shared<Table>(*c->table);
        const float zero = (*table)[static_cast<unsigned char>(bytes[0]) & 0xf];
        for (float& number : *table) number -= zero;
        c->table = std::move(table);
      } else if (bytes.find_first_not_of('\0') != bytes.npos) {
        why = "zero points of 4 bits";
      }
    }
  }
  return add(name, c, why);
}

}  // namespace stele::inline v0::detail::composites
