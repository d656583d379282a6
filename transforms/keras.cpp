#include "stele/transforms/keras.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "passes/transpose.hpp"
#include "snapshot/data.hpp"
#include "snapshot/items.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::keras {
namespace {

using detail::Item;
using detail::Items;

// ---- the configuration

bool lower(char c) { return c >= 'a' && c <= 'z'; }
bool upper(char c) { return c >= 'A' && c <= 'Z'; }

/// Returns the name that Keras gives the variables of a class (keras/src/utils/naming.py, to_snake_case).
std::string snake_case(std::string_view name) {
  std::string out;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (!lower(c) && !upper(c) && c != '_' && !(c >= '0' && c <= '9')) continue;
    const bool starts_word = (i + 1 < name.size() && lower(name[i + 1])) || (i > 0 && lower(name[i - 1]));
    if (upper(c) && i > 0 && starts_word) out += '_';
    out += upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

std::optional<LayerKind> kind_of(std::string_view type) {
  constexpr std::pair<std::string_view, LayerKind> kinds[] = {
      {"Dense", LayerKind::dense},
      {"Conv1D", LayerKind::conv},
      {"Conv2D", LayerKind::conv},
      {"Conv3D", LayerKind::conv},
      {"Conv1DTranspose", LayerKind::conv},
      {"Conv2DTranspose", LayerKind::conv},
      {"Conv3DTranspose", LayerKind::conv},
      {"DepthwiseConv1D", LayerKind::depthwise_conv},
      {"DepthwiseConv2D", LayerKind::depthwise_conv},
      {"BatchNormalization", LayerKind::batch_norm},
      {"LayerNormalization", LayerKind::layer_norm},
      {"Embedding", LayerKind::embedding},
      {"LSTM", LayerKind::lstm},
      {"GRU", LayerKind::gru},
  };
  const auto* const found =
      std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& kind) { return kind.first == type; });
  return found != std::end(kinds) ? std::optional(found->second) : std::nullopt;
}

std::string_view text_of(const Value* map, std::string_view key) {
  const Value* const value = map != nullptr ? map->find(key) : nullptr;
  const std::string* const text = value != nullptr ? value->as_string() : nullptr;
  return text != nullptr ? std::string_view(*text) : std::string_view();
}
bool flag_of(const Value* map, std::string_view key) {
  const Value* const value = map != nullptr ? map->find(key) : nullptr;
  const bool* const flag = value != nullptr ? value->as_bool() : nullptr;
  return flag == nullptr || *flag;
}

std::string joined(const std::string& path, std::string_view segment) {
  std::string text = path;
  if (!text.empty()) text += '.';
  append_segment(text, segment);
  return text;
}

/// Converts the path of a dataset in a group to the path of its tensor.
std::string below(std::string path, std::string_view dataset) {
  for (;;) {
    const std::size_t slash = dataset.find('/');
    path = joined(path, dataset.substr(0, slash));
    if (slash == dataset.npos) return path;
    dataset.remove_prefix(slash + 1);
  }
}

class Configuration {
 public:
  explicit Configuration(const Snapshot& file) : file_(file) {
    for (std::size_t i = 0; i < file.leaf_count(); ++i) tensors_.insert(file.leaf(i).path());
  }

  Result<std::vector<Layer>> run() {
    constexpr const char* config = "config.json";
    constexpr const char* legacy = "model_config";
    const auto& metadata = file_.metadata();
    auto text = metadata.find(config);
    legacy_ = text == metadata.end();
    if (legacy_) text = metadata.find(legacy);
    if (text == metadata.end()) {
      return Error(Errc::missing, "the file has no configuration of a Keras model")
          .expected("metadata with the key config.json or model_config")
          .hint("list the layers");
    }
    auto parsed = parse_json(text->second);
    if (!parsed) return std::move(parsed).error().path(text->first);
    model(*parsed, "", "");
    return std::move(layers_);
  }

 private:
  /// `path`: of the model's variables; `name`: of its module.
  void model(const Value& config, const std::string& path, const std::string& name) {
    const Value* const inner = config.find("config");
    const Value* const list = inner != nullptr ? inner->find("layers") : nullptr;
    if (list == nullptr || list->as_list() == nullptr) return;
    std::map<std::string, int> used;
    for (const Value& entry : *list->as_list()) {
      const std::string_view type = text_of(&entry, "class_name");
      const Value* const settings = entry.find("config");
      std::string unique = snake_case(type);
      const auto [number, first] = used.try_emplace(unique, 0);
      if (!first) unique += "_" + std::to_string(++number->second);
      const std::string at = joined(path.empty() ? "layers" : path + ".layers", unique);
      const std::string_view layer = text_of(settings, "name");
      if (layer.empty()) continue;
      const bool container = settings->find("layers") != nullptr;
      if (container && !legacy_) model(entry, at, joined(name, layer));
      if (const auto kind = kind_of(type); kind && !container) add(*kind, *settings, at, layer, joined(name, layer));
    }
  }

  void add(LayerKind kind, const Value& settings, const std::string& path, std::string_view layer, std::string name) {
    if (kind == LayerKind::gru && !flag_of(&settings, "reset_after")) return;
    Layer made{kind, std::move(name), {}, flag_of(&settings, "scale"), flag_of(&settings, "center")};
    if (legacy_) {
      const std::string group = "model_weights/" + std::string(layer);
      const Value* const names = file_.properties().find(group + "@weight_names");
      if (names == nullptr || names->as_list() == nullptr) return;
      for (const Value& dataset : *names->as_list()) {
        if (dataset.as_string() == nullptr) return;
        made.variables.push_back(below(joined("model_weights", layer), *dataset.as_string()));
      }
    } else {
      const bool recurrent = kind == LayerKind::lstm || kind == LayerKind::gru;
      const std::string variables = path + (recurrent ? ".cell.vars." : ".vars.");
      while (tensors_.contains(variables + std::to_string(made.variables.size()))) {
        made.variables.push_back(variables + std::to_string(made.variables.size()));
      }
    }
    // A quantized layer without a bias has codes and their scale, as many variables as a layer with a bias.
    const auto first = made.variables.empty() ? std::nullopt : file_.find(made.variables.front());
    if (first && dtype_class(first->dtype()) != DTypeClass::floating) return;
    // A quantized layer, or a layer with adapters, has more variables in a different order.
    const std::size_t most = kind == LayerKind::batch_norm                       ? 4
                             : kind == LayerKind::lstm || kind == LayerKind::gru ? 3
                             : kind == LayerKind::embedding                      ? 1
                                                                                 : 2;
    if (!made.variables.empty() && made.variables.size() <= most) layers_.push_back(std::move(made));
  }

  const Snapshot& file_;
  std::set<std::string> tensors_;
  std::vector<Layer> layers_;
  bool legacy_ = false;
};

// ---- variables

enum class Change : std::uint8_t { none, matrix, conv, depthwise, gru_matrix, lstm_bias, gru_bias };

struct Variable {
  std::string keras{};
  std::string torch{}, second{};  // `second`: of two biases
  Change change = Change::none;
};

Result<std::vector<Variable>> variables_of(std::span<const Layer> layers) {
  std::vector<Variable> all;
  for (const Layer& layer : layers) {
    struct Part {
      const char* name;
      const char* second;
      Change change;
    };
    std::vector<Part> parts;
    switch (layer.kind) {
      case LayerKind::dense:
        parts = {{"weight", "", Change::matrix}, {"bias", "", Change::none}};
        break;
      case LayerKind::conv:
        parts = {{"weight", "", Change::conv}, {"bias", "", Change::none}};
        break;
      case LayerKind::depthwise_conv:
        parts = {{"weight", "", Change::depthwise}, {"bias", "", Change::none}};
        break;
      case LayerKind::batch_norm:
      case LayerKind::layer_norm:
        if (layer.scale) parts.push_back({"weight", "", Change::none});
        if (layer.center) parts.push_back({"bias", "", Change::none});
        if (layer.kind == LayerKind::layer_norm) break;
        parts.push_back({"running_mean", "", Change::none});
        parts.push_back({"running_var", "", Change::none});
        break;
      case LayerKind::embedding:
        parts = {{"weight", "", Change::none}};
        break;
      case LayerKind::lstm:
        parts = {{"weight_ih_l0", "", Change::matrix},
                 {"weight_hh_l0", "", Change::matrix},
                 {"bias_ih_l0", "bias_hh_l0", Change::lstm_bias}};
        break;
      case LayerKind::gru:
        parts = {{"weight_ih_l0", "", Change::gru_matrix},
                 {"weight_hh_l0", "", Change::gru_matrix},
                 {"bias_ih_l0", "bias_hh_l0", Change::gru_bias}};
        break;
    }
    if (layer.variables.size() > parts.size()) {
      return Error(Errc::invalid_argument, "a layer has too many variables")
          .path(layer.name)
          .expected("at most " + std::to_string(parts.size()))
          .found(std::to_string(layer.variables.size()));
    }
    const auto full = [&](std::string_view name) {
      return layer.name.empty() ? std::string(name) : layer.name + "." + std::string(name);
    };
    for (std::size_t i = 0; i < layer.variables.size(); ++i) {
      all.push_back({layer.variables[i], full(parts[i].name), *parts[i].second != '\0' ? full(parts[i].second) : "",
                     parts[i].change});
    }
  }
  return all;
}

bool has_rank(Change change, std::size_t rank) {
  switch (change) {
    case Change::none:
      return true;
    case Change::conv:
    case Change::depthwise:
      return rank >= 3;
    case Change::lstm_bias:
      return rank == 1;
    default:
      return rank == 2;
  }
}

/// Returns Keras' axis for each axis in PyTorch, before the first two axes of a depthwise kernel are joined; empty:
/// equal axes.
std::vector<std::size_t> axes_of(Change change, std::size_t rank) {
  if (change == Change::matrix || change == Change::gru_matrix) return {1, 0};
  if (change != Change::conv && change != Change::depthwise) return {};
  std::vector<std::size_t> axes{rank - 1, rank - 2};
  if (change == Change::depthwise) std::swap(axes[0], axes[1]);
  for (std::size_t d = 0; d + 2 < rank; ++d) axes.push_back(d);
  return axes;
}
std::vector<std::size_t> inverse(const std::vector<std::size_t>& axes) {
  std::vector<std::size_t> out(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) out[axes[i]] = i;
  return out;
}

// ---- leaves

/// A tensor that consists of equally large blocks of other tensors.
struct Blocks {
  struct Block {
    std::optional<LeafView> leaf{};  // nullopt: zeros
    std::uint64_t offset = 0;
  };
  std::vector<Block> blocks{};
  std::uint64_t size = 0;  // bytes of a block

  Provider provider() const {
    static constexpr LeafOps ops{.read = [](const void* at, std::uint64_t, std::uint64_t offset,
                                            std::span<std::byte> out, ReadContext& context) -> Status {
      const auto& self = *static_cast<const Blocks*>(at);
      while (!out.empty()) {
        const Block& block = self.blocks[static_cast<std::size_t>(offset / self.size)];
        const std::uint64_t within = offset % self.size;
        const auto part = out.first(static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), self.size - within)));
        if (block.leaf) {
          STELE_TRY(block.leaf->read(block.offset + within, part, context));
        } else {
          std::fill(part.begin(), part.end(), std::byte{0});
        }
        offset += part.size();
        out = out.subspan(part.size());
      }
      return {};
    }};
    return {&ops, this};
  }
};

/// The sum of two tensors of f32 or f64.
struct Sum {
  LeafView a, b;

  template <class T>
  static void add(std::span<std::byte> to, std::span<const std::byte> from) {
    for (std::size_t i = 0; i + sizeof(T) <= to.size(); i += sizeof(T)) {
      T x, y;
      std::memcpy(&x, to.data() + i, sizeof x);
      std::memcpy(&y, from.data() + i, sizeof y);
      x += y;
      std::memcpy(to.data() + i, &x, sizeof x);
    }
  }
  Provider provider() const {
    static constexpr LeafOps ops{.read = [](const void* at, std::uint64_t, std::uint64_t offset,
                                            std::span<std::byte> out, ReadContext& context) -> Status {
      const auto& self = *static_cast<const Sum*>(at);
      ReadContext::Piece piece(context);
      while (!out.empty()) {
        const auto part = out.first(std::min(out.size(), ReadContext::piece_size));
        const std::span<std::byte> other(piece.data(), part.size());
        STELE_TRY(self.a.read(offset, part, context));
        STELE_TRY(self.b.read(offset, other, context));
        self.a.dtype() == DType::f64 ? add<double>(part, other) : add<float>(part, other);
        offset += part.size();
        out = out.subspan(part.size());
      }
      return {};
    }};
    return {&ops, this};
  }
};

/// The order of blocks that exchanges the gates z and r.
constexpr std::size_t gates[] = {1, 0, 2};

std::string shown(std::span<const Extent> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

Error wrong_shape(std::string_view path, const std::string& expected, std::span<const Extent> shape) {
  return Error(Errc::shape_mismatch, "a layer's tensor has another shape")
      .path(std::string(path))
      .expected(expected)
      .found(shown(shape));
}

/// Returns the blocks of a leaf, in the order of `gates`; for a matrix of biases, of its row `row`.
std::shared_ptr<Blocks> gates_of(const LeafView& leaf, std::size_t rows, std::size_t row) {
  auto blocks = std::make_shared<Blocks>();
  blocks->size = leaf.byte_size() / (3 * rows);
  for (const std::size_t gate : gates) blocks->blocks.push_back({leaf, (3 * row + gate) * blocks->size});
  return blocks;
}

Error no_tensor(const std::string& path, const char* where) { return Error(Errc::missing, where).path(path); }

/// Keeps the data of an item's leaves. `to`: the object that the provider points to.
template <class T>
void derive(Item& item, Items& items, const LeafView& leaf, std::vector<Extent> shape, std::uint64_t bytes,
            std::shared_ptr<T> to) {
  item.derived = detail::DerivedLeaf{leaf.dtype(), Shape(shape), bytes, to->provider()};
  items.keepers.push_back(std::move(to));
}

}  // namespace

Result<std::vector<Layer>> layers_of(const Snapshot& file) {
  return detail::guarded([&] { return Configuration(file).run(); });
}

Result<Snapshot> to_pytorch(const Snapshot& file, std::span<const Layer> layers) {
  return detail::guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(const std::vector<Variable> variables, variables_of(layers));
    std::map<std::string, const Variable*> by_path;
    for (const Variable& variable : variables) {
      const auto leaf = file.find(variable.keras);
      if (!leaf) return no_tensor(variable.keras, "the file has no such variable of a layer");
      if (!has_rank(variable.change, leaf->shape().size()) ||
          (variable.change == Change::gru_matrix && leaf->shape()[1] % 3 != 0) ||
          (variable.change == Change::gru_bias && (leaf->shape()[0] != 2 || leaf->shape()[1] % 3 != 0))) {
        return wrong_shape(variable.keras, "the shape of such a layer", leaf->shape());
      }
      by_path.emplace(variable.keras, &variable);
    }
    STELE_TRY_ASSIGN(
        const Snapshot turned,
        detail::transpose_where(file, [&](const LeafView& leaf) -> std::optional<std::vector<std::size_t>> {
          const auto found = by_path.find(leaf.path());
          if (found == by_path.end()) return std::nullopt;
          auto axes = axes_of(found->second->change, leaf.shape().size());
          return axes.empty() ? std::nullopt : std::optional(std::move(axes));
        }));
    STELE_TRY_ASSIGN(Items items, Items::of(turned));
    items.metadata.clear();
    items.properties.reset();
    items.keepers.push_back(turned.data());
    std::vector<Item> list;
    for (Item& item : items.list) {
      if (item.target) {
        if (const auto found = by_path.find(*item.target); found != by_path.end()) item.target = found->second->torch;
      }
      const auto found = item.is_tensor() ? by_path.find(item.path) : by_path.end();
      if (found == by_path.end()) {
        list.push_back(std::move(item));
        continue;
      }
      const Variable& variable = *found->second;
      const LeafView leaf = item.leaf();
      const std::vector<Extent> shape(leaf.shape().begin(), leaf.shape().end());
      item.path = variable.torch;
      Item second = item;
      second.path = variable.second;
      switch (variable.change) {
        case Change::depthwise: {
          std::vector<Extent> grouped{shape[0] * shape[1], 1};
          grouped.insert(grouped.end(), shape.begin() + 2, shape.end());
          item.derived = detail::DerivedLeaf{leaf.dtype(), Shape(grouped), leaf.byte_size(), leaf.provider()};
          break;
        }
        case Change::gru_matrix:
          if (leaf.byte_size() != 0) derive(item, items, leaf, shape, leaf.byte_size(), gates_of(leaf, 1, 0));
          break;
        case Change::gru_bias:
          if (leaf.byte_size() == 0) return wrong_shape(variable.keras, "elements", shape);
          derive(second, items, leaf, {shape[1]}, leaf.byte_size() / 2, gates_of(leaf, 2, 1));
          derive(item, items, leaf, {shape[1]}, leaf.byte_size() / 2, gates_of(leaf, 2, 0));
          break;
        case Change::lstm_bias: {
          auto zeros = std::make_shared<Blocks>();
          zeros->size = std::max<std::uint64_t>(leaf.byte_size(), 1);
          zeros->blocks.emplace_back();
          derive(second, items, leaf, shape, leaf.byte_size(), std::move(zeros));
          break;
        }
        default:
          break;
      }
      list.push_back(std::move(item));
      if (!variable.second.empty()) list.push_back(std::move(second));
    }
    items.list = std::move(list);
    return items.build();
  });
}

Result<Snapshot> to_pytorch(const Snapshot& file) {
  STELE_TRY_ASSIGN(const std::vector<Layer> layers, layers_of(file));
  return to_pytorch(file, layers);
}

Result<Snapshot> from_pytorch(const Snapshot& state_dict, const Snapshot& file, std::span<const Layer> layers) {
  return detail::guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(const std::vector<Variable> variables, variables_of(layers));
    std::map<std::string, const Variable*> by_path;
    std::set<std::string> used;
    for (const Variable& variable : variables) {
      by_path.emplace(variable.keras, &variable);
      used.insert({variable.torch, variable.second});
    }
    for (std::size_t i = 0; i < state_dict.leaf_count(); ++i) {
      const std::string path = state_dict.leaf(i).path();
      if (!used.contains(path) && !path.ends_with("num_batches_tracked")) {
        return Error(Errc::unused, "no layer of the Keras model uses the tensor").path(path);
      }
    }
    STELE_TRY_ASSIGN(Items items, Items::of(file));
    items.keepers.push_back(state_dict.data());
    std::size_t found_variables = 0;
    for (Item& item : items.list) {
      const auto found = item.is_tensor() ? by_path.find(item.path) : by_path.end();
      if (found == by_path.end()) continue;
      ++found_variables;
      const Variable& variable = *found->second;
      const LeafView before = item.leaf();
      const std::vector<Extent> keras(before.shape().begin(), before.shape().end());
      if (!has_rank(variable.change, keras.size())) return wrong_shape(item.path, "the rank of such a layer", keras);
      const auto leaf = state_dict.find(variable.torch);
      if (!leaf) return no_tensor(variable.torch, "the state_dict has no such tensor");
      // The shape before the axes are exchanged, and PyTorch's.
      const std::vector<std::size_t> axes = axes_of(variable.change, keras.size());
      std::vector<Extent> shape = keras;
      for (std::size_t d = 0; d < axes.size(); ++d) shape[d] = keras[axes[d]];
      std::vector<Extent> torch = shape;
      if (variable.change == Change::depthwise) torch[0] = shape[0] * shape[1], torch[1] = 1;
      const bool two = !variable.second.empty();
      if (variable.change == Change::gru_bias) torch.erase(torch.begin());
      const auto check = [&](const LeafView& of) -> Status {
        const bool same = std::equal(torch.begin(), torch.end(), of.shape().begin(), of.shape().end());
        return same ? Status() : Status(wrong_shape(of.path(), shown(torch), of.shape()));
      };
      STELE_TRY(check(*leaf));
      std::optional<LeafView> second;
      if (two) {
        second = state_dict.find(variable.second);
        if (!second) return no_tensor(variable.second, "the state_dict has no such tensor");
        STELE_TRY(check(*second));
        if (second->dtype() != leaf->dtype()) {
          return Error(Errc::dtype_mismatch, "the two biases of a layer have different types").path(variable.second);
        }
      }
      switch (variable.change) {
        case Change::gru_matrix:
          if (leaf->byte_size() % 3 != 0) return wrong_shape(variable.torch, "three gates", leaf->shape());
          derive(item, items, *leaf, shape, leaf->byte_size(), gates_of(*leaf, 1, 0));
          break;
        case Change::gru_bias: {
          if (leaf->byte_size() % 3 != 0) return wrong_shape(variable.torch, "three gates", leaf->shape());
          auto blocks = gates_of(*leaf, 1, 0);
          const auto others = gates_of(*second, 1, 0);
          blocks->blocks.insert(blocks->blocks.end(), others->blocks.begin(), others->blocks.end());
          derive(item, items, *leaf, keras, 2 * leaf->byte_size(), std::move(blocks));
          break;
        }
        case Change::lstm_bias:
          if (leaf->dtype() != DType::f32 && leaf->dtype() != DType::f64) {
            return Error(Errc::unsupported, "the two biases of an LSTM cannot be added")
                .path(variable.torch)
                .expected("f32 or f64")
                .found(stele::name(leaf->dtype()));
          }
          derive(item, items, *leaf, shape, leaf->byte_size(), std::make_shared<Sum>(Sum{*leaf, *second}));
          break;
        default:
          item.derived = detail::DerivedLeaf{leaf->dtype(), Shape(shape), leaf->byte_size(), leaf->provider()};
          break;
      }
    }
    if (found_variables != by_path.size()) {
      for (const auto& [path, variable] : by_path) {
        if (!file.find(path)) return no_tensor(path, "the file has no such variable of a layer");
      }
    }
    STELE_TRY_ASSIGN(const Snapshot named, items.build());
    return detail::transpose_where(named, [&](const LeafView& leaf) -> std::optional<std::vector<std::size_t>> {
      const auto found = by_path.find(leaf.path());
      if (found == by_path.end()) return std::nullopt;
      const auto axes = axes_of(found->second->change, leaf.shape().size());
      return axes.empty() ? std::nullopt : std::optional(inverse(axes));
    });
  });
}

Result<Snapshot> from_pytorch(const Snapshot& state_dict, const Snapshot& file) {
  STELE_TRY_ASSIGN(const std::vector<Layer> layers, layers_of(file));
  return from_pytorch(state_dict, file, layers);
}

}  // namespace stele::inline v0::keras
