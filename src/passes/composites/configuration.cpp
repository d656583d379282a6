// What the configuration and the metadata say of a weight.
#include "passes/composites/recogniser.hpp"

namespace stele::inline v0::detail::composites {

std::vector<std::uint64_t> Recogniser::block_size() const {
  auto list = config_.at("weight_block_size").to<std::vector<std::uint64_t>>();
  if (!list && first_weights() != nullptr) {
    list = first_weights()->at("block_structure").to<std::vector<std::uint64_t>>();
  }
  const bool good = list && list->size() == 2 && (*list)[0] != 0 && (*list)[1] != 0;
  return good ? *std::move(list) : std::vector<std::uint64_t>();
}

bool Recogniser::is_comfy(const std::string& weight) const {
  const std::string layer = weight.ends_with(".weight") ? weight.substr(0, weight.size() - 7) : weight;
  return comfy_.contains(layer) || find(layer + ".comfy_quant") != nullptr;
}

bool Recogniser::in_tiles(const std::string& stem) const {
  if (is_comfy(stem)) return true;
  const auto text = snapshot_.metadata().find(stem + ".weight");
  if (text == snapshot_.metadata().end()) return false;
  const auto about = parse_json(text->second);
  const auto tiles = about ? about->at("_data").at("is_swizzled_scales").to<bool>() : Result<bool>(false);
  return tiles && *tiles;
}

bool Recogniser::before_dense_words() const {
  const auto version = config_.at("version").to<std::string>();
  if (!version || !version->starts_with("0.")) return false;
  unsigned minor = 0;
  for (const char digit : std::string_view(*version).substr(2, 3)) {
    if (digit < '0' || digit > '9') break;
    minor = minor * 10 + static_cast<unsigned>(digit - '0');
  }
  return minor < 18;
}

const Value* Recogniser::first_weights() const {
  const Value* const groups = config_.find("config_groups");
  if (groups == nullptr || groups->as_map() == nullptr || groups->as_map()->size() != 1) return nullptr;
  return groups->as_map()->front().second.find("weights");
}

}  // namespace stele::inline v0::detail::composites
