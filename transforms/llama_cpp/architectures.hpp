// The architectures of llama.cpp that models of the hub are converted to, as data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "stele/config.hpp"

namespace stele::inline v0::detail::llama_cpp {

/// A tensor's module in transformers and in llama.cpp. `*` is a number: the layer, and then the expert.
struct TensorRow {
  enum class Change : std::uint8_t {
    none,
    queries,     // rows of query heads
    keys,        // rows of key heads
    transposed,  // weights of Conv1D are [inputs, outputs]
  };
  std::string_view from, to;
  Change change = Change::none;
  bool bias = false;      // may have a bias
  bool optional = false;  // may be absent
};

/// A setting of config.json that becomes a key-value pair.
struct KeyRow {
  enum class Kind : std::uint8_t { count, real };
  static constexpr double required = -1, left_out = -2;
  std::string_view key;  // without the architecture's name
  std::array<std::string_view, 2> from;
  Kind kind = Kind::count;
  double otherwise = required;  // the value if the setting is absent
  std::int64_t factor = 1;      // of the second setting
};

/// A setting whose values, separated by `|`, are those that llama.cpp computes. May be absent.
struct SettingRow {
  std::string_view key, values;
};

/// A pair for models with a certain vocabulary.
struct TokenRow {
  std::int64_t vocabulary;
  std::string_view key;
  std::int64_t id;
};

enum class Rope : std::uint8_t {
  none,
  scaled,  // linear, yarn, llama3
  phi3,    // longrope
  gemma3,  // another base for layers with a sliding window
};

struct Architecture {
  std::string_view model_type;  // of config.json
  std::string_view name;        // of llama.cpp
  std::array<std::span<const TensorRow>, 4> tensors{};
  std::array<std::span<const KeyRow>, 3> keys{};
  std::array<std::span<const SettingRow>, 2> settings{};
  std::span<const TokenRow> tokens{};
  Rope rope = Rope::scaled;
  double rope_base = 1e4;      // if config.json has none
  std::int64_t head_size = 0;  // the size of a head if config.json has none; 0: hidden_size / num_attention_heads
  // transformers rotates the first half of a head's rows with the second, llama.cpp's llama rotates neighbours.
  bool interleaved = false;
  bool tied = false;            // llama.cpp has no output but the embedding
  bool norms_plus_one = false;  // the factors of norms are stored minus 1
  bool space_prefix = true;     // the tokenizer begins a text with a space
  std::size_t period = 0;       // of layers with a sliding window: all of a period but its last layer; 0: none has one
  std::int64_t large = 0;       // the number of layers of the model whose queries are scaled by hidden_size / heads
};

/// Returns the architecture of a model_type, or nullptr.
const Architecture* find_architecture(std::string_view model_type) noexcept;
std::span<const Architecture> architectures() noexcept;

}  // namespace stele::inline v0::detail::llama_cpp
