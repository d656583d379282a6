// The settings that a quantized model's configuration gives to one layer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/regex.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::composites {

/// Rows and columns of the elements that share a scale; 0: all.
struct Block {
  std::uint64_t rows = 0, columns = 0;
  bool operator==(const Block&) const = default;
};

/// The settings of a layer; settings that the layer leaves open come from the settings of all layers.
class LayerSettings {
 public:
  using Index = std::map<std::string_view, const Value*>;
  LayerSettings(const Value* own, const Index& all) : own_(own), all_(&all) {}

  /// Returns a setting; nullptr if it is absent or null.
  const Value* find(std::string_view key) const;
  /// Returns a setting; nullopt if it is absent, null, or of another type.
  template <class T>
  std::optional<T> get(std::string_view key) const {
    const Value* const found = find(key);
    auto value = found != nullptr ? found->to<T>() : Result<T>(Error(Errc::not_found));
    return value ? std::optional<T>(*std::move(value)) : std::nullopt;
  }
  /// Returns the block of a strategy of compressed-tensors, or of `weight_block_size`.
  std::optional<Block> block() const;

 private:
  const Value* own_;
  const Index* all_;
};

/// Finds the settings of layers by the rules of the packages: the targets of compressed-tensors' `config_groups`,
/// gptqmodel's `dynamic`, auto-round's `extra_config`, and MLX's entries for layers.
class Configuration {
 public:
  /// `is_layer` returns true for the names of layers in the file. The configuration must outlive this.
  Configuration(const Value& config, const std::function<bool(std::string_view)>& is_layer);

  /// Returns the settings of a layer; several if the configuration leaves open which. Never empty.
  std::vector<LayerSettings> of(std::string_view layer);
  LayerSettings of_all() const { return {nullptr, all_}; }

 private:
  struct Rule {
    std::optional<regex::Regex> expression;  // nullopt: the syntax is not supported
    bool anywhere;
    const Value* own;  // nullptr: the settings of all layers
  };
  using Owners = std::multimap<std::string, const Value*, std::less<>>;

  void add_groups(const Value::Map& groups);
  void add_dynamic(const Value::Map& rules);
  void add_layers(const Value::Map& layers, bool patterns, const std::function<bool(std::string_view)>& is_layer);
  void add_rule(std::string_view expression, bool anywhere, const Value* own);
  void add_aliases(const std::function<bool(std::string_view)>& is_layer);
  std::vector<LayerSettings> settings(const std::vector<const Value*>& owners) const;

  LayerSettings::Index all_;
  std::map<std::string_view, const Value*> exact_;
  Owners aliases_, tails_;  // settings of layers that the file does not have under these names
  std::vector<Rule> rules_;
  std::vector<const Value*> every_;   // that a layer can have
  std::vector<const Value*> others_;  // settings of layers without a matching rule
  bool whole_ = false;                // the settings of a layer replace those of all layers
  std::size_t instructions_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace stele::inline v0::detail::composites
