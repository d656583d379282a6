// Models of the Hugging Face hub for llama.cpp: the tensors, hyperparameters and tokenizer of its GGUF files.
#pragma once

#include <string_view>

#include "stele/bundle.hpp"
#include "stele/report.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::llama_cpp {

/// Converts a language model of transformers to what llama.cpp's converter writes: the names, axes and order of rows of
/// its tensors, experts stacked to one tensor, norms and vectors in f32, and the key-value pairs as properties. Other
/// tensors keep their dtype; quantize_gguf() of the result chooses another. Tensors are read when the result is saved.
/// `folder` has config.json and the files of the tokenizer: tokenizer.model or tokenizer.json, tokenizer_config.json,
/// added_tokens.json, chat_template.jinja. `report` may be null; otherwise it gets rows for tensors and settings that
/// llama.cpp does not use, and one for those that are f32.
///
/// The values of `model_type` are llama, mistral, mixtral, qwen2, qwen3, gemma, gemma2, phi3 and gpt2.
///
/// Errors: unsupported (another model, tokenizer or setting, a tensor that the architecture does not have), missing (a
/// tensor, a setting, the tokenizer), malformed (a configuration), shape_mismatch, those of reading files.
STELE_EXPORT Result<Snapshot> from_hub(const Snapshot& model, const Bundle& folder, Report* report = nullptr);

/// Like from_hub() above, with the files beside the weights of a folder that HubFormat opened. Errors:
/// invalid_argument (the model is not from such a folder).
STELE_EXPORT Result<Snapshot> from_hub(const Snapshot& model, Report* report = nullptr);

/// Returns true if a config.json is one of a model of transformers: it has the key model_type or architectures.
STELE_EXPORT bool is_model_config(const Value& config);

/// Returns true if all names are those of one architecture that from_hub() converts.
STELE_EXPORT bool has_known_names(const Snapshot& model);

}  // namespace stele::inline v0::llama_cpp
