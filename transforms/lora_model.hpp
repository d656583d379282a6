// The classes and ties of a model's layers, from its folder and names.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora_config.hpp"
#include "snapshot/items.hpp"
#include "snapshot/side_files.hpp"

namespace stele::inline v0::detail::lora {

/// Returns true for the weight of a head that transformers may tie to an embedding.
bool is_head(std::string_view tensor);

class ModelFacts {
 public:
  /// Reads config.json, if the model is from a folder of the hub. Errors: io, malformed, limit.
  static Result<ModelFacts> of(const Snapshot& model, const LoraConfig& adapter);

  /// Returns true for a Conv1D, false for a Linear, and nullopt if the model's class is unknown.
  std::optional<bool> conv1d(std::string_view module) const;
  /// Returns true if the length of a bias shows that the model has a Conv1D, or a Linear.
  static bool has_biased(const Items& items, const ItemIndex& index, bool conv1d);

  /// Returns the embedding that a head is, which the model's file leaves out.
  std::optional<std::size_t> source_of(std::string_view head, const ItemIndex& index) const;
  /// Returns the head that the model's file leaves out because it is this embedding; nothing if one is present. Errors:
  /// unsupported (not known).
  Result<std::optional<std::string>> absent_head_of(std::string_view embedding,
                                                    const std::function<bool(std::string_view)>& present) const;

  /// The merge has untied the head and the embedding.
  void set_untied() noexcept { untied_ = true; }
  /// Returns the files next to the weights, with a config.json for a model without ties if the ties end.
  Result<std::shared_ptr<const SideFiles>> side_files(const std::shared_ptr<const SideFiles>& beside,
                                                      std::vector<std::string>& notes) const;

 private:
  std::string config_;  // the text of config.json; empty: none
  std::string model_;   // the name of the model in transformers; empty: not known
  std::string class_;
  std::optional<bool> tied_;
  bool untied_ = false;
};

}  // namespace stele::inline v0::detail::lora
