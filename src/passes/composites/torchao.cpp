// torchao, as torchao.prototype.safetensors writes it.
#include <array>

#include "passes/composites/recogniser.hpp"

namespace stele::inline v0::detail::composites {

Status Recogniser::torchao(const std::string& stem) {
  const auto text = snapshot_.metadata().find(stem + ".weight");
  const auto about =
      text != snapshot_.metadata().end() ? parse_json(text->second) : Result<Value>(Error(Errc::not_found));
  const auto type = about ? about->at("_type").to<std::string>() : Result<std::string>(Error(Errc::not_found));
  if (!type) return {};
  const Value* const data = about->find("_data");
  if (data == nullptr) return {};
  const auto element = data->at("elem_dtype").at("_data").to<std::string>();
  if (*type == "NVFP4Tensor" || (*type == "MXTensor" && element && *element == "float4_e2m1fn_x2")) {
    return halves(stem, "nvfp4", {"._weight_qdata", "._weight_scale", "._weight_per_tensor_scale?"});
  }
  if (*type == "Float8Tensor" || *type == "Int8Tensor" || *type == "MXTensor" || *type == "IntxUnpackedToInt8Tensor") {
    return scaled(stem, {"._weight_qdata", "._weight_scale", "._weight_zero_point?"}, "");
  }
  const Made c =
      begin(stem, ".weight", "torchao " + *type, {"._weight_qdata", "._weight_scale", "._weight_zero_point?"});
  if (c == nullptr) return {};
  if (*type != "Int4Tensor") return note(stem, *c, "the type is not read"), Status();
  return torchao_int4(stem, c);
}

Status Recogniser::torchao_int4(const std::string& stem, const Made& c) {
  const LeafView codes = leaf(c->codes), scales = leaf(part(*c, "._weight_scale"));
  const std::uint32_t zeros = part(*c, "._weight_zero_point");
  if (zeros == no_index || codes.shape().size() != 2 || scales.shape().size() != 2 ||
      element_size(codes.dtype()) != 1 || scales.shape()[1] != codes.shape()[0] || codes.shape()[1] > UINT32_MAX ||
      leaf(zeros).size() != scales.size() || !is_float(scales) || !is_float(leaf(zeros))) {
    return add(stem, c, "parts that do not match");
  }
  set_shape(*c, std::array<Extent, 2>{codes.shape()[0], codes.shape()[1] * 2});
  const std::uint64_t groups = scales.shape()[0];
  if (c->rows == 0 || c->columns == 0 || groups == 0 || c->columns % groups != 0)
    return add(stem, c, "groups that do not match");
  c->scheme = "int4";
  c->bits = 4;
  c->packing = Packing::low_first;
  c->table = signed_table(4);
  c->group = c->columns / groups;
  c->scales.leaf = part(*c, "._weight_scale");
  c->scales.rows = c->rows;
  c->scales.columns = groups;
  c->scales.transposed = true;
  c->biases = c->scales;
  c->biases.leaf = zeros;
  return add(stem, c);
}

}  // namespace stele::inline v0::detail::composites
