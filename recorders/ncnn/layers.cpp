// The weights of ncnn's layers, in the order of each layer's load_model().
#include "layers.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

namespace stele::inline v0::detail::ncnn {
namespace {

/// Collects the arrays of one layer.
class Plan {
 public:
  Plan(const Layer& layer, std::vector<Blob>& blobs) : layer_(layer), blobs_(blobs) {}

  /// Returns an attribute, or `absent` if the layer does not have it.
  std::int64_t get(std::uint32_t id, std::int64_t absent) {
    const std::uint32_t bit = std::uint32_t{1} << id;
    if ((layer_.given & bit) == 0) return absent;
    if ((layer_.others & bit) != 0) fail();
    return layer_.integers[id];
  }
  /// Returns an attribute that is a count; 1 and a failure if it is not positive.
  std::int64_t count(std::uint32_t id, std::int64_t absent = 0) {
    const std::int64_t number = get(id, absent);
    if (number > 0) return number;
    fail();
    return 1;
  }
  void fail() { failed_ = true; }
  bool failed() const { return failed_; }

  void tagged(std::string_view name, std::initializer_list<std::int64_t> shape) { add(name, Stored::tagged, shape); }
  void raw(std::string_view name, std::initializer_list<std::int64_t> shape) { add(name, Stored::raw, shape); }
  void packed(std::string_view name, std::initializer_list<std::int64_t> shape) { add(name, Stored::packed, shape); }

 private:
  void add(std::string_view name, Stored stored, std::initializer_list<std::int64_t> shape) {
    Blob& blob = blobs_.emplace_back();
    blob.name = name;
    blob.stored = stored;
    for (const std::int64_t extent : shape) {
      if (extent <= 0) fail();  // ncnn refuses empty arrays
      blob.extents[blob.rank++] = static_cast<Extent>(std::max<std::int64_t>(extent, 0));
    }
  }

  const Layer& layer_;
  std::vector<Blob>& blobs_;
  bool failed_ = false;
};

// ---- convolutions

/// A weight of `size` elements: outputs, inputs of each group, `kernel`. One axis if the size is not a multiple.
void add_kernel(Plan& plan, std::int64_t size, std::int64_t outputs, std::initializer_list<std::int64_t> kernel) {
  std::int64_t rest = size;
  bool whole = rest % outputs == 0;
  rest /= outputs;
  for (const std::int64_t extent : kernel) {
    whole = whole && rest % extent == 0;
    rest /= extent;
  }
  const std::int64_t* const k = kernel.begin();
  if (!whole) {
    plan.tagged("weight", {size});
  } else if (kernel.size() == 1) {
    plan.tagged("weight", {outputs, rest, k[0]});
  } else if (kernel.size() == 2) {
    plan.tagged("weight", {outputs, rest, k[0], k[1]});
  } else {
    plan.tagged("weight", {outputs, rest, k[0], k[1], k[2]});
  }
}

/// `dynamic`: number of the attribute that is not 0 if the weight is an input; 0 if the layer has none.
template <int Axes>
void convolution(Plan& plan, std::uint32_t dynamic) {
  if (dynamic != 0 && plan.get(dynamic, 0) != 0) return;
  const std::int64_t outputs = plan.count(0), size = plan.count(6), width = plan.count(1);
  if constexpr (Axes == 1) {
    add_kernel(plan, size, outputs, {width});
  } else if constexpr (Axes == 2) {
    add_kernel(plan, size, outputs, {plan.count(11, width), width});
  } else {
    add_kernel(plan, size, outputs, {plan.count(21, width), plan.count(11, width), width});
  }
  if (plan.get(5, 0) != 0) plan.raw("bias", {outputs});
}

template <int Axes, std::uint32_t Dynamic>
void plain_convolution(Plan& plan) {
  convolution<Axes>(plan, Dynamic);
}

constexpr std::string_view weight_scales = "weight_int8_scales", bottom_scales = "bottom_blob_int8_scales",
                           top_scales = "top_blob_int8_scales";

void convolution_2d(Plan& plan) {
  convolution<2>(plan, 19);
  const std::int64_t scales = plan.get(8, 0);
  if (plan.get(19, 0) != 0 || scales == 0) return;
  plan.raw(weight_scales, {plan.count(0)});
  plan.raw(bottom_scales, {1});
  if (scales > 100) plan.raw(top_scales, {1});
}

void convolution_depth_wise(Plan& plan) {
  convolution<2>(plan, 19);
  const std::int64_t scales = plan.get(8, 0);
  if (plan.get(19, 0) != 0 || scales == 0) return;
  const bool each = scales == 1 || scales == 101;
  if (each || scales == 2 || scales == 102) {
    plan.raw(weight_scales, {each ? plan.count(7, 1) : 1});
    plan.raw(bottom_scales, {1});
  }
  if (scales > 100) plan.raw(top_scales, {1});
}

// ---- matrices

void inner_product(Plan& plan) {
  const std::int64_t outputs = plan.count(0), size = plan.count(2);
  if (size % outputs == 0) {
    plan.tagged("weight", {outputs, size / outputs});
  } else {
    plan.tagged("weight", {size});
  }
  if (plan.get(1, 0) != 0) plan.raw("bias", {outputs});
  if (plan.get(8, 0) == 0) return;
  plan.raw(weight_scales, {outputs});
  plan.raw(bottom_scales, {1});
}

void embed(Plan& plan) {
  const std::int64_t outputs = plan.count(0), size = plan.count(3);
  if (size % outputs == 0) {
    plan.tagged("weight", {size / outputs, outputs});
  } else {
    plan.tagged("weight", {size});
  }
  if (plan.get(2, 0) != 0) plan.raw("bias", {outputs});
  if (plan.get(18, 0) != 0) plan.raw("weight_int8_scale", {1});
}

/// The kind of quantization that Gemm and MultiHeadAttention declare as one number: bits, input scales, size of a
/// block.
struct Quantized {
  std::int64_t bits = 0;  // 0: the weights are not in blocks
  bool input_scales = false;
  std::int64_t block = 0;

  Quantized(Plan& plan, std::int64_t term) {
    const std::int64_t width = term / 100, format = term % 100 / 10, size = term % 10;
    const bool blocks =
        (width == 4 || width == 6 || width == 8) && (format == 0 || format == 1) && size >= 0 && size <= 2;
    if ((term >= 400 && !blocks) || term == 4 || term == 5 || term == 6) plan.fail();  // ncnn refuses these
    if (!blocks) return;
    bits = width;
    input_scales = format == 1;
    block = std::int64_t{32} << size;
  }
  std::int64_t row(std::int64_t extent) const { return (extent * bits + 7) / 8; }
  std::int64_t blocks(std::int64_t extent) const { return (extent + block - 1) / block; }
};

void gemm(Plan& plan) {
  const std::int64_t m = plan.get(7, 0), n = plan.get(8, 0), k = plan.get(9, 0), term = plan.get(18, 0);
  const Quantized quantized(plan, term);
  const bool a = plan.get(4, 0) == 1, b = plan.get(5, 0) == 1;
  if (a && plan.get(2, 0) == 0) plan.tagged("A", {m, k});
  if (a && plan.get(2, 0) != 0) plan.tagged("A", {k, m});
  if (b && plan.get(3, 0) == 0) {
    plan.tagged("B", {k, n});
  } else if (b && quantized.bits != 0) {
    plan.packed("B_packed", {n, quantized.row(k)});
  } else if (b) {
    plan.tagged("B", {n, k});
  }
  const std::int64_t broadcast = plan.get(10, 0);
  if (plan.get(6, 0) == 1 && broadcast != -1) {
    switch (broadcast) {
      case 0:
        plan.tagged("C", {1});
        break;
      case 1:
        plan.tagged("C", {m});
        break;
      case 2:
        plan.tagged("C", {m, 1});
        break;
      case 3:
        plan.tagged("C", {m, n});
        break;
      case 4:
        plan.tagged("C", {1, n});
        break;
      default:
        plan.fail();
    }
  }
  if (quantized.bits != 0) {
    plan.raw("B_quantize_scales", {n, quantized.blocks(k)});
    if (quantized.input_scales) plan.raw("B_input_scales", {k});
  } else if (term != 0) {
    if (a) plan.raw("A_int8_scales", {m});
    if (b) plan.raw("B_int8_scale", {1});
  }
}

void multi_head_attention(Plan& plan) {
  const std::int64_t embed = plan.count(0), size = plan.count(2), keys = plan.count(3, embed),
                     values = plan.count(4, embed), queries = size / embed, term = plan.get(18, 0);
  const Quantized quantized(plan, term);
  if (quantized.bits == 0) {
    plan.tagged("q_weight", {embed, queries});
    plan.raw("q_bias", {embed});
    plan.tagged("k_weight", {embed, keys});
    plan.raw("k_bias", {embed});
    plan.tagged("v_weight", {embed, values});
    plan.raw("v_bias", {embed});
    plan.tagged("out_weight", {queries, embed});
    plan.raw("out_bias", {queries});
    if (term == 0) return;
    plan.raw("q_weight_int8_scales", {embed});
    plan.raw("k_weight_int8_scales", {embed});
    plan.raw("v_weight_int8_scales", {embed});
    plan.raw("out_weight_int8_scale", {1});
    return;
  }
  plan.packed("q_weight_packed", {embed, quantized.row(queries)});
  plan.raw("q_bias", {embed});
  plan.packed("k_weight_packed", {embed, quantized.row(keys)});
  plan.raw("k_bias", {embed});
  plan.packed("v_weight_packed", {embed, quantized.row(values)});
  plan.raw("v_bias", {embed});
  plan.packed("out_weight_packed", {queries, quantized.row(embed)});
  plan.raw("out_bias", {queries});
  plan.raw("q_weight_quantize_scales", {embed, quantized.blocks(queries)});
  plan.raw("k_weight_quantize_scales", {embed, quantized.blocks(keys)});
  plan.raw("v_weight_quantize_scales", {embed, quantized.blocks(values)});
  plan.raw("out_weight_quantize_scales", {queries, quantized.blocks(embed)});
  if (!quantized.input_scales) return;
  plan.raw("q_weight_input_scales", {queries});
  plan.raw("k_weight_input_scales", {keys});
  plan.raw("v_weight_input_scales", {values});
  plan.raw("out_weight_input_scales", {embed});
}

// ---- recurrent layers

/// `gates`: matrices of each direction; `biases`: rows of its bias.
void recurrent(Plan& plan, std::int64_t gates, std::int64_t biases, bool projected) {
  const std::int64_t outputs = plan.count(0), size = plan.count(1), directions = plan.get(2, 0) == 2 ? 2 : 1,
                     hidden = projected ? plan.count(3, outputs) : outputs, inputs = size / directions / hidden / gates;
  plan.tagged("weight_xc", {directions, hidden * gates, inputs});
  plan.tagged("bias_c", {directions, biases, hidden});
  plan.tagged("weight_hc", {directions, hidden * gates, outputs});
  if (hidden != outputs) plan.tagged("weight_hr", {directions, outputs, hidden});
  if (plan.get(8, 0) == 0) return;
  plan.raw("weight_xc_int8_scales", {directions, hidden * gates});
  plan.raw("weight_hc_int8_scales", {directions, hidden * gates});
}

void rnn(Plan& plan) { recurrent(plan, 1, 1, false); }
void gru(Plan& plan) { recurrent(plan, 3, 4, false); }
void lstm(Plan& plan) { recurrent(plan, 4, 4, true); }

// ---- vectors

void batch_norm(Plan& plan) {
  for (const char* name : {"slope", "mean", "var", "bias"}) plan.raw(name, {plan.count(0)});
}

/// `size` and `affine`: numbers of attributes.
template <std::uint32_t Size, std::uint32_t Affine, bool Beta>
void norm(Plan& plan) {
  if (plan.get(Affine, 1) == 0) return;
  plan.raw("gamma", {plan.count(Size)});
  if (Beta) plan.raw("beta", {plan.count(Size)});
}

void scale(Plan& plan) {
  constexpr std::int64_t from_input = -233;
  if (plan.get(0, 0) == from_input) return;
  plan.raw("scale", {plan.count(0)});
  if (plan.get(1, 0) != 0) plan.raw("bias", {plan.count(0)});
}

void bias(Plan& plan) { plan.raw("bias", {plan.count(0)}); }
void prelu(Plan& plan) { plan.raw("slope", {plan.count(0)}); }
void normalize(Plan& plan) { plan.raw("scale", {plan.count(3)}); }
void quantize(Plan& plan) { plan.raw("scale", {plan.count(0, 1)}); }
void dequantize(Plan& plan) {
  plan.raw("scale", {plan.count(0, 1)});
  if (plan.get(1, 0) != 0) plan.raw("bias", {plan.count(1)});
}
void requantize(Plan& plan) {
  plan.raw("scale_in", {plan.count(0, 1)});
  plan.raw("scale_out", {plan.count(1, 1)});
  if (plan.get(2, 0) != 0) plan.raw("bias", {plan.count(2)});
}
void padding(Plan& plan) {
  if (plan.get(6, 0) != 0) plan.raw("per_channel_pad", {plan.count(6)});
}

void memory_data(Plan& plan) {
  const std::int64_t w = plan.get(0, 0), h = plan.get(1, 0), d = plan.get(11, 0), c = plan.get(2, 0),
                     kind = plan.get(21, 1);
  if (kind != 0 && kind != 1) plan.fail();
  const auto add = [&](std::initializer_list<std::int64_t> shape) {
    kind == 0 ? plan.tagged("data", shape) : plan.raw("data", shape);
  };
  if (d != 0) {
    add({c, d, h, w});
  } else if (c != 0) {
    add({c, h, w});
  } else if (h != 0) {
    add({h, w});
  } else if (w != 0) {
    add({w});
  }
}

using Rule = void (*)(Plan& plan);

constexpr std::pair<std::string_view, Rule> rules[] = {
    {"BatchNorm", batch_norm},
    {"Bias", bias},
    {"Convolution", convolution_2d},
    {"Convolution1D", plain_convolution<1, 19>},
    {"Convolution3D", plain_convolution<3, 0>},
    {"ConvolutionDepthWise", convolution_depth_wise},
    {"ConvolutionDepthWise1D", plain_convolution<1, 19>},
    {"ConvolutionDepthWise3D", plain_convolution<3, 0>},
    {"Deconvolution", plain_convolution<2, 28>},
    {"Deconvolution1D", plain_convolution<1, 28>},
    {"Deconvolution3D", plain_convolution<3, 0>},
    {"DeconvolutionDepthWise", plain_convolution<2, 28>},
    {"DeconvolutionDepthWise1D", plain_convolution<1, 28>},
    {"DeconvolutionDepthWise3D", plain_convolution<3, 0>},
    {"DeformableConv2D", plain_convolution<2, 0>},
    {"Dequantize", dequantize},
    {"Embed", embed},
    {"GRU", gru},
    {"Gemm", gemm},
    {"GroupNorm", norm<1, 3, true>},
    {"InnerProduct", inner_product},
    {"InstanceNorm", norm<0, 2, true>},
    {"LSTM", lstm},
    {"LayerNorm", norm<0, 2, true>},
    {"MemoryData", memory_data},
    {"MultiHeadAttention", multi_head_attention},
    {"Normalize", normalize},
    {"PReLU", prelu},
    {"Padding", padding},
    {"Quantize", quantize},
    {"RMSNorm", norm<0, 2, false>},
    {"RNN", rnn},
    {"Requantize", requantize},
    {"Scale", scale},
};

// Layers without weights: all further layers of ncnn, and YoloV5Focus, which its examples define.
constexpr std::string_view without_weights[] = {
    "ArgMax",
    "AbsVal",
    "BNLL",
    "BinaryOp",
    "CELU",
    "Cast",
    "Clip",
    "Concat",
    "CopyTo",
    "Crop",
    "CumulativeSum",
    "DeepCopy",
    "DetectionOutput",
    "Diag",
    "Dropout",
    "ELU",
    "Einsum",
    "Eltwise",
    "Erf",
    "Exp",
    "ExpandDims",
    "Flatten",
    "Flip",
    "Fold",
    "GELU",
    "GLU",
    "GridSample",
    "HardSigmoid",
    "HardSwish",
    "Input",
    "Interp",
    "InverseSpectrogram",
    "LRN",
    "Log",
    "MVN",
    "MatMul",
    "Mish",
    "Noop",
    "PSROIPooling",
    "Packing",
    "Permute",
    "PixelShuffle",
    "Pooling",
    "Pooling1D",
    "Pooling3D",
    "Power",
    "PriorBox",
    "Proposal",
    "ROIAlign",
    "ROIPooling",
    "ReLU",
    "Reduction",
    "Reorg",
    "Reshape",
    "RotaryEmbed",
    "SDPA",
    "SELU",
    "SPP",
    "ShuffleChannel",
    "Shrink",
    "Sigmoid",
    "Slice",
    "Softmax",
    "Softplus",
    "Spectrogram",
    "Split",
    "Squeeze",
    "StatisticsPooling",
    "Swish",
    "TanH",
    "Threshold",
    "Tile",
    "UnaryOp",
    "Unfold",
    "YoloDetectionOutput",
    "YoloV5Focus",
    "Yolov3DetectionOutput",
};

}  // namespace

Unknown blobs_of(const Layer& layer, std::vector<Blob>& blobs) {
  blobs.clear();
  const auto rule =
      std::find_if(std::begin(rules), std::end(rules), [&](const auto& r) { return r.first == layer.type; });
  if (rule != std::end(rules)) {
    Plan plan(layer, blobs);
    rule->second(plan);
    return plan.failed() ? Unknown::attributes : Unknown::no;
  }
  const bool known =
      std::find(std::begin(without_weights), std::end(without_weights), layer.type) != std::end(without_weights);
  return known ? Unknown::no : Unknown::type;
}

}  // namespace stele::inline v0::detail::ncnn
