// The parts of a conversion to llama.cpp, and what they share: access to JSON, errors, files.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "architectures.hpp"
#include "stele/bundle.hpp"
#include "stele/report.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::llama_cpp {

/// Returns the member of a map; null if it is missing.
const Value& member(const Value& map, std::string_view key);
std::string_view text(const Value& map, std::string_view key);
/// Returns a bool that may be missing.
bool flag(const Value& map, std::string_view key, bool otherwise = false);
const Value::List& list(const Value& map, std::string_view key);
/// Returns a number of any kind; nullopt for other values.
std::optional<double> number(const Value& value);
/// Returns a value as text for errors.
std::string shown(const Value& value);

/// Returns a positive integer. Errors: missing, malformed.
Result<std::int64_t> positive(const Value& config, std::string_view key);
/// GGUF has f32: a number that is not exact in it would be stored as f64, which llama.cpp refuses.
Value f32(double value);

/// Returns the error of a model that llama.cpp cannot run.
Error not_for_llama_cpp(std::string_view path, std::string_view expected, std::string_view found);
/// Returns the content of a file; nullopt if it is missing. Errors: those of reading, limit.
Result<std::optional<std::string>> text_of(const Bundle& folder, std::string_view name);
/// Returns the content of a JSON file; null if it is missing. Errors: those of text_of(), malformed.
Result<Value> json_of(const Bundle& folder, std::string_view name);

/// The numbers of a model on which its tensors depend.
struct Sizes {
  std::int64_t layers = 0, width = 0, heads = 0, key_heads = 0, head = 0, experts = 0, vocabulary = 0;
};

/// Factors of rotary embeddings, which llama.cpp has as tensors.
using Factors = std::map<std::string, std::vector<float>>;

/// Adds the pairs of the hyperparameters. Errors: unsupported, missing, malformed.
Result<Sizes> add_hyperparameters(const Architecture& architecture, const Value& config, Value::Map& pairs,
                                  Factors& factors, Report& rows);
/// Adds the pairs of the tokenizer. Errors: unsupported, missing, malformed, those of reading.
Status add_tokenizer(const Architecture& architecture, const Value& config, const Sizes& sizes, const Bundle& folder,
                     Value::Map& pairs, Report& rows);
/// Returns the tensors as llama.cpp has them. Errors: unsupported, missing, shape_mismatch.
Result<Snapshot> tensors_of(const Architecture& architecture, const Value& config, const Sizes& sizes,
                            const Snapshot& model, Report& rows);
/// Returns a snapshot of f32 vectors.
Snapshot vectors_of(const Factors& factors);
/// Returns true if all names of tensors are those of the architecture.
bool has_names_of(const Architecture& architecture, const Snapshot& model);

}  // namespace stele::inline v0::detail::llama_cpp
