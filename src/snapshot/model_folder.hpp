// The file of a folder that has its model's weights, by the names that transformers, diffusers and PEFT look for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stele::inline v0::detail {

struct ModelFolder {
  /// The file or index of shards that is loaded from the folder; empty if its names leave this open.
  std::string weights{};
  /// The other files and indexes in the folder itself that may be loaded instead, sorted.
  std::vector<std::string> others{};
};

/// Finds the weights among the names of a folder's files:
///
///  1. the first of model.safetensors, its index, the same of diffusion_pytorch_model, adapter_model.safetensors,
///     pytorch_model.bin, its index, …, consolidated.safetensors that exists;
///  2. beside config.json, adapter_config.json or params.json, the only safetensors file or index, else the only file
///     with weights: a variant, such as model.fp16.safetensors or model.safetensors.index.fp16.json;
///  3. the only file with weights, if it is a .gguf file or the first of a split set: these need no other files.
///
/// The files of an index, and the files of a training run beside the model (optimizer.pt), are no choices.
ModelFolder model_folder(const std::vector<std::string>& names);

/// Returns true for the index of a set of safetensors files (".safetensors"), or of PyTorch files (".bin"), also of a
/// variant: model.safetensors.index.json, model.safetensors.index.fp16.json.
bool is_index_of(std::string_view name, std::string_view extension) noexcept;

/// Returns a note that names the other files of the same kind, which are not read; empty without any.
std::string note_of_others(const ModelFolder& folder, std::string_view extension);

}  // namespace stele::inline v0::detail
