// The configuration of a LoRA adapter: adapter_config.json of PEFT.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/result.hpp"
#include "stele/value.hpp"

namespace re2 {
class RE2;
}

namespace stele::inline v0::detail::lora {

/// The treatment of a key of adapter_config.json in a merge.
enum class Use : std::uint8_t {
  read,      // the merge uses it
  harmless,  // the tensors of the adapter show its effect, or only training depends on it
  refused,   // an error, unless its value is null, false or empty
};

struct Key {
  std::string_view name;
  Use use;
  std::string_view hint{};  // hint of the error for a refused key
};

/// Returns all keys that are known, sorted by name.
std::span<const Key> known_keys();

/// Returns true if an entry of modules_to_save names the module of a tensor, or a module around it.
bool names_module(std::string_view entry, std::string_view tensor);

class LoraConfig {
 public:
  /// Errors: unsupported (a key that the merge does not support), malformed.
  static Result<LoraConfig> of(const Value& config);
  LoraConfig(LoraConfig&&) noexcept;
  LoraConfig& operator=(LoraConfig&&) noexcept;
  ~LoraConfig();

  /// Returns the scale of the product for a module of this rank.
  double scale(const std::string& module, std::uint64_t rank) const;
  /// The orientation of the layer that PEFT visited last: true if its weight is [in, out].
  bool fan_in_fan_out() const noexcept { return fan_in_fan_out_; }
  /// Returns true for a tensor of a module of modules_to_save.
  bool saves(std::string_view tensor) const;
  const std::vector<std::string>& modules_to_save() const noexcept { return saved_; }
  /// PEFT ties a module of modules_to_save to its tied modules again.
  bool keeps_ties() const noexcept { return keeps_ties_; }
  /// Returns the trained rows of an embedding. Errors: malformed.
  Result<std::vector<std::uint64_t>> tokens(std::string_view module) const;
  bool has_tokens() const noexcept { return !tokens_.is_null(); }
  /// Returns the name of the model in transformers (`gpt2`), if PEFT stored its class.
  std::optional<std::string> transformers_model() const;
  /// Lines for Snapshot::notes().
  const std::vector<std::string>& notes() const noexcept { return notes_; }

 private:
  LoraConfig();
  Status read(const Value& config);
  Status read_alphas(const Value& config);

  double alpha_ = 0;
  std::vector<std::pair<std::unique_ptr<re2::RE2>, double>> alphas_;  // in the order of the file
  bool root_ = false, fan_in_fan_out_ = false, keeps_ties_ = false;
  std::vector<std::string> saved_;
  Value tokens_;
  std::string library_;  // the Python module of the model's class
  std::vector<std::string> notes_;
};

}  // namespace stele::inline v0::detail::lora
