// Converts layers of Keras to layers of PyTorch, and back: names, axis orders, the order of gates.
//
// | Keras | PyTorch |
// |---|---|
// | Dense: kernel [in, out], bias | Linear: weight [out, in], bias |
// | Conv1D, 2D, 3D: kernel [axes…, in, out], bias | Conv1d, …: weight [out, in, axes…], bias |
// | Conv1DTranspose, …: kernel [axes…, out, in], bias | ConvTranspose1d, …: weight [in, out, axes…], bias |
// | DepthwiseConv1D, 2D: kernel [axes…, in, n], bias | Conv1d, 2d of `in` groups: weight [in·n, 1, axes…], bias |
// | BatchNormalization: gamma, beta, moving_mean, moving_variance | weight, bias, running_mean, running_var |
// | LayerNormalization: gamma, beta | weight, bias |
// | Embedding: embeddings | weight |
// | LSTM: kernel, recurrent_kernel, bias | weight_ih_l0, weight_hh_l0, bias_ih_l0; bias_hh_l0 is zeros |
// | GRU: the same, with gates z, r, h and a bias [2, 3n] | the same, with gates r, z, n and two biases |
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stele/snapshot.hpp"

namespace stele::inline v0::keras {

enum class LayerKind : std::uint8_t {
  dense,
  conv,  // also transposed convolutions
  depthwise_conv,
  batch_norm,
  layer_norm,
  embedding,
  lstm,
  gru,
};

/// A layer of a Keras model.
struct Layer {
  LayerKind kind = LayerKind::dense;
  /// The module's path in PyTorch: the layer's name, after the names of the models that contain it.
  std::string name{};
  /// Paths of the layer's tensors in the file, in Keras' order (kernel, bias). A normalization without scale or center
  /// lacks the corresponding names.
  std::vector<std::string> variables{};
  bool scale = true, center = true;  // normalizations: has gamma, has beta
};

/// Returns the layers of an opened `.keras` file, or of an `.h5` file of a whole model (not those inside a model of the
/// model), from the configuration in its metadata. Leaves out layers of other kinds, custom layers and a GRU with
/// reset_after=False, which PyTorch does not have. Errors: missing (no configuration), malformed.
STELE_EXPORT Result<std::vector<Layer>> layers_of(const Snapshot& file);

/// Converts the layers to PyTorch's. Tensors of no layer keep their names. The result has no metadata and properties.
/// A Dense layer after Flatten is not changed further: Keras flattens [axes…, channels], PyTorch [channels, axes…].
/// Errors: missing (a variable that the file does not have), shape_mismatch (an unexpected rank), duplicate.
STELE_EXPORT Result<Snapshot> to_pytorch(const Snapshot& file, std::span<const Layer> layers);
/// The same for layers_of(file).
STELE_EXPORT Result<Snapshot> to_pytorch(const Snapshot& file);

/// Returns `file` with the layers' tensors of a PyTorch state_dict; all other entries of `file` remain. The two biases
/// of an LSTM are added. Errors: missing, shape_mismatch, unused (a tensor of the state_dict that no layer uses, except
/// num_batches_tracked), unsupported (biases of an LSTM other than f32 and f64).
STELE_EXPORT Result<Snapshot> from_pytorch(const Snapshot& state_dict, const Snapshot& file,
                                           std::span<const Layer> layers);
/// The same for layers_of(file).
STELE_EXPORT Result<Snapshot> from_pytorch(const Snapshot& state_dict, const Snapshot& file);

}  // namespace stele::inline v0::keras
