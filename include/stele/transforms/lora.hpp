// LoRA adapters, as the Python package PEFT writes them: low-rank changes of a model's weights.
#pragma once

#include "stele/result.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele::inline v0 {

/// Adds an adapter to a model: a weight W [N, K] becomes W + scale * B A, where the adapter has A [r, K] and B [N, r];
/// scale is lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora. Tensors that the adapter replaces whole
/// (modules_to_save) replace those of the model. Weights are computed in f32, piece by piece when they are read, and
/// rounded once to the model's dtype; quantized weights become f32. `config`: the content of `adapter_config.json`.
/// `subtract`: W - scale * B A, for a model into which the adapter was merged; what the adapter replaced stays, with
/// a line in Snapshot::notes().
///
/// Errors: not_found (the model lacks a tensor of the adapter), shape_mismatch, dtype_mismatch, malformed (a
/// configuration without lora_alpha), unsupported (convolutions, DoRA, biases, patterns that are no module names).
STELE_EXPORT Result<Snapshot> merge_lora(const Snapshot& model, const Snapshot& adapter, const Value& config,
                                         bool subtract = false);

}  // namespace stele::inline v0
