// LoRA adapters, as the Python package PEFT writes them: low-rank changes of a model's weights.
#pragma once

#include <string>
#include <vector>

#include "stele/result.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele::inline v0 {

/// Options of merge_lora(). Patterns of matches() for names of modules.
struct LoraOptions {
  bool subtract = false;              // takes the adapter out of a model into which it was merged
  std::vector<std::string> conv1d{};  // layers of the class Conv1D, with weights [in, out]
  std::vector<std::string> linear{};  // layers of the class Linear, with weights [out, in]
};

/// Adds an adapter to a model as PEFT's merge_and_unload() does: a weight W [N, K] becomes W + scale * B A, where the
/// adapter has A [r, K] and B [N, r]; scale is lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora. The adapter's
/// biases (`bias`), rows of embeddings (trainable_token_indices) and modules (modules_to_save) replace the model's;
/// replaced modules lose their ties. Weights are computed in f32 (weights of f64 in f64), piece by piece when they are
/// read, and rounded once to the model's dtype; quantized weights become f32. `config`: the content of
/// `adapter_config.json`.
///
/// A layer of PyTorch's class Linear has a weight [out, in], a layer of transformers' class Conv1D (GPT-2) a weight
/// [in, out]. For a square weight, the class follows from the model's class (in config.json next to the model, or in
/// `config`), from the absence of a bias, or from fan_in_fan_out if the model has layers of one class only; else it is
/// an error, unless the options name the layer.
///
/// `subtract`: W - scale * B A. Tensors and rows that the adapter replaced keep the adapter's values.
///
/// Snapshot::notes() lists new tensors, ties that end, and tensors that stay.
///
/// Errors: not_found (the model lacks a tensor of the adapter), shape_mismatch, dtype_mismatch, out_of_range (a token),
/// malformed (a configuration without lora_alpha, or an adapter that lacks what its configuration names), unsupported
/// (a setting that is not merged: its key is the error's path; a key that is not known; an unexpected kind of tensor; a
/// square weight of an unknown class).
STELE_EXPORT Result<Snapshot> merge_lora(const Snapshot& model, const Snapshot& adapter, const Value& config,
                                         const LoraOptions& options);
STELE_EXPORT Result<Snapshot> merge_lora(const Snapshot& model, const Snapshot& adapter, const Value& config,
                                         bool subtract = false);

}  // namespace stele::inline v0
