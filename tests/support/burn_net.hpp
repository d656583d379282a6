// The model of tests/formats/burn/interop as a C++ user would write it, and Burn's listings of the files that Burn
// wrote.
#pragma once

#include <array>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "recorders/burn/types.hpp"
#include "stele/recorders/burn.hpp"
#include "stele/tensor.hpp"

namespace burn_net {

using Floats = stele::Param<stele::Tensor<float>>;

struct Lin {
  Floats weight;
  std::optional<Floats> bias;
};

using Pair = std::tuple<Lin, Lin>;
using Either = std::variant<Lin, Pair>;

struct Conv2d {
  Floats weight;
  std::optional<Floats> bias;
  static constexpr stele::Attribute stele_attributes[] = {
      stele::attr::burn_layout("weight, bias, stride[2], kernel_size[2], dilation[2], groups, padding")};
};
struct BatchNorm {
  Floats gamma, beta, running_mean, running_var;
  double momentum = 0.1, epsilon = 1e-5;
};
template <int Minor>
struct LayerNorm {
  Floats gamma;
  std::conditional_t<Minor >= 20, std::optional<Floats>, Floats> beta;
  double epsilon = 1e-5;
};
struct Embedding {
  Floats weight;
};
struct Gate {
  Lin input_transform, hidden_transform;
};
template <int Minor>
struct Lstm {
  Gate input_gate, forget_gate, output_gate, cell_gate;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::burn_layout(
      Minor >= 21   ? "input_gate, forget_gate, output_gate, cell_gate, d_hidden, batch_first, reverse, clip, "
                      "input_forget, gate_activation(6 Sigmoid), cell_activation(7 Tanh), hidden_activation(7 Tanh)"
      : Minor == 20 ? "input_gate, forget_gate, output_gate, cell_gate, d_hidden, batch_first, reverse, clip, "
                      "input_forget, gate_activation(5 Sigmoid), cell_activation(6 Tanh), hidden_activation(6 Tanh)"
                    : "input_gate, forget_gate, output_gate, cell_gate, d_hidden")};
};

/// The model in Burn 0.`Minor`. A field that the version does not support is an empty array.
template <int Minor = 21>
struct Net {
  static constexpr bool has_array = Minor >= 15, has_empty = Minor >= 16 || Minor == 13;
  Lin first, second;
  std::vector<Lin> list;
  std::array<Lin, has_array ? 2 : 0> array;
  Pair tuple;
  Either small, pair;
  stele::Param<stele::Tensor<std::int32_t>> counts;
  stele::Param<stele::Tensor<bool>> mask;
  std::conditional_t<has_empty, Floats, std::array<Lin, 0>> empty;
  std::optional<Lin> absent, present;
  Conv2d conv;
  BatchNorm norm;
  LayerNorm<Minor> layer_norm;
  Lin linear;
  Embedding embedding;
  Lstm<Minor> lstm;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::burn_layout(
      "first, second, list, array, tuple, small, pair, counts, mask, empty, absent, present, conv, norm, layer_norm, "
      "linear, embedding, lstm, pool, dropout, activation, groups, stride[2], rate, name")};
};

/// dtypes.*: a Rust record of bare tensors. The tensors' C++ types do not matter for opening a file.
template <int Minor>
struct Dtypes {
  using Any = stele::Tensor<float>;
  Any f64, f32, flex32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, bool_native;
  std::conditional_t<Minor >= 21, Any, std::array<Lin, 0>> bool_u8, bool_u32;
  Any q8s, q8s_odd, q8f_block, q4s, q2f_block, e4m3;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::burn_record()};
};

/// A line of an `.expect` file.
struct Expected {
  std::string path, dtype, shape, id, hex;
};
inline std::vector<Expected> expected(const std::string& file) {
  std::ifstream in(file + ".expect");
  std::vector<Expected> lines;
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    Expected& e = lines.emplace_back();
    std::getline(fields, e.path, '\t');
    std::getline(fields, e.dtype, '\t');
    std::getline(fields, e.shape, '\t');
    std::getline(fields, e.id, '\t');
    std::getline(fields, e.hex, '\t');
  }
  return lines;
}

/// Returns the elements in hexadecimal digits; i32 as i64 if `widened`.
inline std::string digits(const stele::LeafView& leaf, bool widened) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(leaf.byte_size()));
  if (!leaf.read(0, bytes)) return "cannot be read";
  static constexpr char hex[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto b = std::to_integer<unsigned>(bytes[i]);
    text += {hex[b >> 4], hex[b & 15U]};
    if (widened && leaf.dtype() == stele::DType::i32 && i % 4 == 3) text += std::string(8, b >= 128 ? 'f' : '0');
  }
  return text;
}

/// Returns the first tensor that differs from Burn's listing; empty if all are equal. For a model, the listing includes
/// Burn's conversions (floats are f32, integers i64); otherwise tensors are compared unchanged.
inline std::string difference(const stele::Snapshot& snapshot, const std::string& file, bool model) {
  std::size_t count = 0;
  for (const Expected& line : expected(file)) {
    if (line.shape.empty() || line.shape[0] != '[' || line.id.empty()) continue;  // a plain value
    ++count;
    const auto leaf = snapshot.find(line.path);
    if (!leaf) return line.path + ": is missing";
    std::string shape;
    const auto extents = stele::detail::burn::shape_of(*leaf);
    if (!extents) return line.path + ": " + extents.error().to_string();
    for (const stele::Extent e : *extents) shape += (shape.empty() ? "" : ", ") + std::to_string(e);
    if ('[' + shape + ']' != line.shape) return line.path + ": shape [" + shape + "], Burn has " + line.shape;
    const auto id = leaf->id();
    std::string text = "-";
    if (id) text = id->form == stele::ParamId::Form::u64 ? std::to_string(id->low) : stele::detail::burn::id_text(*id);
    if (line.id != "-" && text != line.id) return line.path + ": id " + text + ", Burn has " + line.id;
    const std::string hex = digits(*leaf, model);
    if (hex != line.hex) return line.path + ": " + hex + ", Burn has " + line.hex;
  }
  if (count == snapshot.leaf_count()) return {};
  return std::to_string(snapshot.leaf_count()) + " tensors, Burn has " + std::to_string(count);
}

}  // namespace burn_net

template <>
struct stele::attributes<burn_net::Either> {
  static constexpr stele::Attribute list[] = {stele::attr::alternative(0, "Small"),
                                              stele::attr::alternative(1, "Pair")};
};

namespace burn_net {

/// Calls `use` with a null pointer to the Net of a version.
template <class F>
void with_net(int minor, F use) {
  switch (minor) {
    case 13:
      return use(static_cast<Net<13>*>(nullptr));
    case 14:
      return use(static_cast<Net<14>*>(nullptr));
    case 15:
      return use(static_cast<Net<15>*>(nullptr));
    case 16:
    case 17:
    case 18:
    case 19:
      return use(static_cast<Net<16>*>(nullptr));
    case 20:
      return use(static_cast<Net<20>*>(nullptr));
    default:
      return use(static_cast<Net<>*>(nullptr));
  }
}

}  // namespace burn_net
