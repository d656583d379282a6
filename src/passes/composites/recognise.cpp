// Finds the parts of quantized weights by their names, dtypes and shapes. Layouts: docs/guide/quantized-checkpoints.md.
#include <algorithm>
#include <bitset>
#include <map>
#include <set>
#include <utility>

#include "base/of_machine.hpp"
#include "io/text.hpp"
#include "passes/composites/recogniser.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/undecoded.hpp"
#include "stele/bundle.hpp"
#include "stele/parts.hpp"
#include "stele/source.hpp"

namespace stele::inline v0 {
namespace detail::composites {

namespace {

/// Returns the names below which there are tensors.
std::set<std::string_view> layers_of(const Items& items) {
  std::set<std::string_view> names;
  for (const Item& item : items.list) {
    const std::size_t dot = item.path.rfind('.');
    if (dot != item.path.npos) names.insert(std::string_view(item.path).substr(0, dot));
  }
  return names;
}

}  // namespace

Recogniser::Recogniser(const Snapshot& snapshot, Items items, const Value& config, Orientation orientation)
    : snapshot_(snapshot),
      items_(std::move(items)),
      index_(items_.list),
      configuration_(config, [layers = layers_of(items_)](std::string_view name) { return layers.contains(name); }),
      claimed_(snapshot.leaf_count()),
      orientation_(orientation) {
  for (const Item& i : items_.list) {
    if (i.target) tied_.insert(*i.target);
  }
  const auto text = snapshot.metadata().find("_quantization_metadata");
  if (text == snapshot.metadata().end()) return;
  const auto parsed = parse_json(text->second);
  const Value* const layers = parsed ? parsed->find("layers") : nullptr;
  if (layers == nullptr || layers->as_map() == nullptr) return;
  for (const auto& [layer, description] : *layers->as_map()) comfy_.insert(layer);
}

Result<Snapshot> Recogniser::run() {
  for (std::size_t i = 0; i < items_.list.size(); ++i) {
    if (items_.list[i].is_tensor()) STELE_TRY(noted(items_.list[i].path, item(items_.list[i].path)));
  }
  return finish();
}

Result<Snapshot> Recogniser::run(const std::vector<Scaled>& tensors) {
  struct Use {
    const Scaled* first;
    bool several;
  };
  std::map<std::string_view, Use> uses;  // of codes
  for (const Scaled& s : tensors) {
    Use& use = uses.try_emplace(s.codes, Use{&s, false}).first->second;
    use.several = use.several || !(*use.first == s);
  }
  for (const Scaled& s : tensors) {
    const Use& use = uses.at(s.codes);
    if (use.first != &s) continue;
    if (use.several) {
      add_note(s.codes + ": several scales multiply it");
    } else {
      STELE_TRY(noted(s.codes, linear(s)));
    }
  }
  return finish();
}

Status Recogniser::noted(const std::string& path, Status added) {
  if (added) return added;
  const Errc code = added.error().code();
  if (code != Errc::limit && code != Errc::dtype_mismatch && code != Errc::malformed) return added;
  add_note(path + ": " + std::string(added.error().message()));
  return {};
}

Result<Snapshot> Recogniser::finish() {
  if (made_at_.empty() && notes_.empty()) return snapshot_;
  Items result;
  result.keep(items_);
  result.metadata = items_.metadata;
  result.properties = items_.properties;
  result.left_out = items_.left_out;
  for (const Item& old : items_.list) {
    const std::uint32_t part = old.is_tensor() ? leaf_of(old) : no_index;
    if (const auto made = made_at_.find(part); made != made_at_.end()) {
      const auto& [name, composite] = made->second;
      Item& item = result.list.emplace_back(old);
      item.path = name;
      item.derived =
          DerivedLeaf{DType::f32, composite->shape, composite->size() * sizeof(float), provider_of(*composite)};
      result.keepers.push_back(composite);
    } else if (part == no_index || !claimed_[part]) {
      result.list.push_back(old);
    }
  }
  STELE_TRY_ASSIGN(const Snapshot joined, result.build());
  auto data = derived_data(joined);
  if (note_count_ > notes_.size()) notes_.push_back("and " + std::to_string(note_count_ - notes_.size()) + " more");
  data->notes = std::move(notes_);
  data->origin = snapshot_.origin();
  std::uint64_t bytes = 0;
  for (const LeafData& leaf : data->leaves) bytes += leaf.bytes;
  data->capacity = std::max(data->capacity, bytes);
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

/// A scheme, by the name of one of its parts. The first row that fits a name decides.
struct Recogniser::Scheme {
  std::string_view suffix;  // of the part's name, after the stem
  std::string_view also;    // suffix of another part that must exist; "": none
  std::string_view unless;  // suffix of another part that must not exist; "": none
  Status (*add)(Recogniser& r, const std::string& stem);

  static std::span<const Scheme> all();
};

std::span<const Recogniser::Scheme> Recogniser::Scheme::all() {
  using R = Recogniser;
  using Stem = const std::string;
  static constexpr Scheme rows[] = {
      {"_scale_inv", "", "",
       [](R& r, Stem& s) {
         return r.scaled(s, {"", "_scale_inv"}, "fp8");
       }},
      {"._weight_scale", "", "", [](R& r, Stem& s) { return r.torchao(s); }},
      {"_scale", "_packed", "", [](R& r, Stem& s) { return r.packed(s); }},
      {"_scale", "_scale_2", "",
       [](R& r, Stem& s) {
         return r.halves(s, "nvfp4", {"", "_scale", "_scale_2"});
       }},
      {".weight_scale", "", "", [](R& r, Stem& s) { return r.weight_scale(s); }},
      {"_proj_scale", "", "", [](R& r, Stem& s) { return r.fbgemm_experts(s + "_proj"); }},
      {".scale", "", "", [](R& r, Stem& s) { return r.deepseek(s); }},
      {".qscale_weight", "", "",
       [](R& r, Stem& s) {
         return r.scaled(s, {".weight", ".qscale_weight"}, "");
       }},
      {"._scale", "", "._shift",
       [](R& r, Stem& s) {
         return r.scaled(s, {"._data", "._scale"}, "");
       }},
      {".W_q", "", "", [](R& r, Stem& s) { return r.hqq(s); }},
      {".scale_weight", "", "",
       [](R& r, Stem& s) {
         return r.scaled(s, {".weight", ".scale_weight"}, "scaled-fp8");
       }},
      {".qweight", "", "", [](R& r, Stem& s) { return r.words(s); }},
      {".absmax", "", "", [](R& r, Stem& s) { return r.bitsandbytes(s); }},
      {".SCB", "", "", [](R& r, Stem& s) { return r.bitsandbytes_8(s); }},
      {"_blocks", "", "", [](R& r, Stem& s) { return r.blocks(s); }},
      {".scales", "", ".qweight", [](R& r, Stem& s) { return r.mlx(s); }},
  };
  return rows;
}

Status Recogniser::item(const std::string& path) {
  for (const Scheme& scheme : Scheme::all()) {
    if (!path.ends_with(scheme.suffix)) continue;
    const std::string stem = path.substr(0, path.size() - scheme.suffix.size());
    const auto has = [&](std::string_view suffix) { return find(std::string(stem).append(suffix)) != nullptr; };
    if (!scheme.also.empty() && !has(scheme.also)) continue;
    if (!scheme.unless.empty() && has(scheme.unless)) continue;
    return scheme.add(*this, stem);
  }
  return {};
}

bool Recogniser::may_have_parts(const Snapshot& snapshot) {
  /// The end of the name of a part without which there is no weight of a scheme.
  struct Mark {
    std::string_view text;
    bool whole;  // the text is all that follows the last dot
    bool usual;  // `scale`, also the name of a norm's weight
  };
  static const std::vector<Mark> marks = [] {
    std::vector<Mark> made;
    for (const Scheme& scheme : Scheme::all()) {
      const std::string_view mark = scheme.also.empty() ? scheme.suffix : scheme.also;
      const std::size_t dot = mark.rfind('.');
      made.push_back({mark.substr(dot + 1), dot != mark.npos, mark == ".scale"});  // npos + 1 is 0
    }
    return made;
  }();
  static const std::bitset<256> ends = [] {
    std::bitset<256> made;
    for (const Mark& mark : marks) made.set(static_cast<unsigned char>(mark.text.back()));
    return made;
  }();
  for (const Node& node : snapshot.nodes()) {
    if (node.kind != NodeKind::tensor || node.name == nullptr) continue;  // an element of a list
    std::string_view last(node.name, node.name_size);
    if (last.empty() || !ends[static_cast<unsigned char>(last.back())]) continue;
    last.remove_prefix(last.rfind('.') + 1);
    for (const Mark& mark : marks) {
      if (last.empty() || last.back() != mark.text.back()) continue;
      const bool fits = mark.whole ? last == mark.text : last.ends_with(mark.text);
      if (fits && (!mark.usual || snapshot.leaf(node.index).dtype() == DType::f8_e8m0)) return true;
    }
  }
  return false;
}

namespace {

/// Returns the part of a configuration that describes the quantization.
Value inner(Value config) {
  const auto path = quantization_path(config);
  return path.empty() ? std::move(config) : Value(at_path(config, path));
}

Orientation orientation_of(const Value& config) {
  return model_with_conv1d(config).empty() ? Orientation::rows : Orientation::columns;
}

Result<Snapshot> join(const Snapshot& snapshot, const Value& quantization, Orientation orientation) {
  auto items = Items::of(snapshot);
  if (!items) return snapshot;  // too many names
  return Recogniser(snapshot, *std::move(items), quantization, orientation).run();
}

/// The JSON files beside a model.
class Beside {
 public:
  explicit Beside(const Bundle& bundle) : bundle_(bundle) {}

  /// Returns the content of a file; null if the file is missing, not understood, or refused. Errors: io.
  Result<Value> json_of(const char* name) {
    auto content = read(name);
    if (content || !is_refusal(content.error())) return content;
    notes_.push_back("the server refuses " + std::string(name) + " beside the file (" +
                     std::string(content.error().found()) + "): if it describes the quantization, it is not used");
    return Value();
  }
  /// Returns the description in ModelOpt's or Mistral's separate file; null if there is none.
  Result<Value> description() {
    for (const char* const name : {"hf_quant_config.json", "params.json"}) {
      STELE_TRY_ASSIGN(const Value config, json_of(name));
      const Value* const found = config.find("quantization");
      if (found != nullptr && found->as_map() != nullptr) return *found;
    }
    return Value();
  }
  /// Returns the snapshot with a note for the first refused file: a server that refuses one refuses all.
  Snapshot noted(Snapshot snapshot) const {
    if (notes_.empty()) return snapshot;
    auto data = derived_data(snapshot);
    data->notes.push_back(notes_.front());
    return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
  }

 private:
  Result<Value> read(const char* name) const {
    constexpr std::uint64_t max_bytes = std::uint64_t{4} << 20;
    STELE_TRY_ASSIGN(const bool exists, bundle_.contains(name));
    if (!exists) return Value();
    STELE_TRY_ASSIGN(const SourcePtr file, bundle_.open(name));
    if (file->size() > max_bytes) return Value();
    STELE_TRY_ASSIGN(const std::string text, read_text(*file, max_bytes));
    return parse_config(text);
  }

  const Bundle& bundle_;
  std::vector<std::string> notes_;
};

}  // namespace

Snapshot as_stored(const Snapshot& snapshot) {
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    if (const Composite* const composite = composite_of(snapshot.leaf(i))) return composite->base;
  }
  return snapshot;
}

Result<Snapshot> joined(const Snapshot& snapshot, const std::vector<Scaled>& tensors) {
  if (tensors.empty()) return snapshot;
  auto items = Items::of(snapshot);
  if (!items) return snapshot;  // too many names
  const Value no_configuration;
  return Recogniser(snapshot, *std::move(items), no_configuration, Orientation::rows).run(tensors);
}

namespace {

/// Returns the configuration in the metadata; null if there is none.
Value own_configuration(const Snapshot& snapshot) {
  const auto text = snapshot.metadata().find(config_key);
  if (text == snapshot.metadata().end()) return {};
  auto parsed = parse_json(text->second);
  return parsed ? *std::move(parsed) : Value();
}

/// Joins the parts, unless names are nested: joining makes them flat.
Result<Snapshot> recognised(const Snapshot& snapshot, const Value& quantization, Orientation orientation) {
  if (!snapshot.flat() || !Recogniser::may_have_parts(snapshot)) return with_undecoded(snapshot, quantization);
  STELE_TRY_ASSIGN(const Snapshot all, join(snapshot, quantization, orientation));
  return with_undecoded(all, quantization);
}

Result<Snapshot> joined_if_flat(const Snapshot& snapshot) {
  if (snapshot.flat()) return join_composites(snapshot);
  return with_undecoded(snapshot, inner(own_configuration(snapshot)));
}

}  // namespace

Result<Snapshot> joined(const Snapshot& snapshot, const Source& source) {
  const bool configured = snapshot.metadata().contains(config_key);
  if (!configured && !may_have_codes(snapshot) && !Recogniser::may_have_parts(snapshot)) return snapshot;
  const auto bundle = source.bundle();
  if (bundle == nullptr || configured) return joined_if_flat(snapshot);
  Beside beside(*bundle);
  STELE_TRY_ASSIGN(const Value config, beside.json_of("config.json"));
  Value quantization;
  if (const auto path = quantization_path(config); !path.empty()) quantization = at_path(config, path);
  if (quantization.is_null()) {
    STELE_TRY_ASSIGN(quantization, beside.json_of("quantize_config.json"));
  }
  const bool of_hub = quantization.as_map() != nullptr;  // in the form of config.json
  if (!of_hub) {
    STELE_TRY_ASSIGN(quantization, beside.description());
  }
  if (quantization.as_map() == nullptr && config.as_map() == nullptr) {
    STELE_TRY_ASSIGN(const Snapshot alone, joined_if_flat(snapshot));
    return beside.noted(alone);
  }
  const std::string type = model_with_conv1d(config);
  const bool known = config.find(model_type_key) != nullptr;
  STELE_TRY_ASSIGN(Snapshot all,
                   recognised(snapshot, quantization, known ? orientation_of(config) : Orientation::open));
  all = beside.noted(all);
  if (!has_composites(all) && !has_undecoded(all)) return all;
  std::map<std::string, std::string> added;
  if (of_hub) {
    STELE_TRY_ASSIGN(added[config_key], to_json(quantization));
  }
  if (!type.empty()) added[model_type_key] = type;
  return added.empty() ? all : with_metadata(all, added);
}

}  // namespace detail::composites

namespace comp = detail::composites;

Result<Snapshot> join_composites(const Snapshot& snapshot, const Value& config) {
  return detail::guarded([&]() -> Result<Snapshot> {
    const Value own = config.is_null() ? comp::own_configuration(snapshot) : config;
    const auto& metadata = snapshot.metadata();
    Value model = own;  // whole configurations name the kind of model
    if (const auto type = metadata.find(comp::model_type_key);
        type != metadata.end() && own.find(comp::model_type_key) == nullptr) {
      model = Value(Value::Map{{comp::model_type_key, Value(type->second)}});
    }
    const auto orientation = model.as_map() != nullptr ? comp::orientation_of(model) : comp::Orientation::open;
    const Value quantization = comp::inner(own);
    if (!comp::Recogniser::may_have_parts(snapshot)) return comp::with_undecoded(snapshot, quantization);
    STELE_TRY_ASSIGN(const Snapshot all, comp::join(snapshot, quantization, orientation));
    return comp::with_undecoded(all, quantization);
  });
}

Snapshot raw_codes(const Snapshot& snapshot) { return detail::without_undecoded(snapshot); }

Result<Snapshot> split_composites(const Snapshot& snapshot) {
  return detail::guarded([&]() -> Result<Snapshot> {
    if (!comp::has_composites(snapshot)) return snapshot;
    STELE_TRY_ASSIGN(detail::Items items, detail::Items::of(snapshot));
    detail::Items result;
    result.keep(items);
    result.metadata = items.metadata;
    result.properties = items.properties;
    for (const detail::Item& old : items.list) {
      const comp::Composite* const c = old.is_tensor() && !old.derived ? comp::composite_of(old.leaf()) : nullptr;
      if (c == nullptr) {
        result.list.push_back(old);
        continue;
      }
      result.keepers.push_back(c->base.data());
      for (const comp::Part& part : c->parts) {
        detail::Item& item = result.list.emplace_back();
        item.from = c->base.data().get();
        item.node = c->part(part.leaf).node();
        item.path = comp::path_of(comp::stem_of(old.path, *c), part);
      }
    }
    STELE_TRY_ASSIGN(const Snapshot parts, result.build());
    auto data = detail::derived_data(parts);
    data->origin = snapshot.origin();
    return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
  });
}

Result<Tensor<float, 2>> detail::decode_parts(const Snapshot& layer) {
  return guarded([&]() -> Result<Tensor<float, 2>> {
    const auto below = [](std::string_view path, const LeafView*) { return "layer." + std::string(path); };
    STELE_TRY_ASSIGN(const Snapshot named, with_new_paths(layer, below));
    STELE_TRY_ASSIGN(const Snapshot joined, join_composites(named));
    const auto weight = joined.find("layer.weight");
    if (!weight || comp::composite_of(*weight) == nullptr) {
      return Error(Errc::malformed, "the parts are no quantized weight")
          .found(joined.notes().empty() ? "other names" : joined.notes().front());
    }
    Tensor<float, 2> numbers({weight->shape()[0], weight->shape()[1]});
    STELE_TRY(weight->read(0, std::as_writable_bytes(std::span(numbers.data(), numbers.size()))));
    return numbers;
  });
}

std::optional<CompositeInfo> composite(const LeafView& leaf) {
  const comp::Composite* const c = comp::composite_of(leaf);
  if (c == nullptr) return std::nullopt;
  CompositeInfo info{c->scheme, c->bits, c->group};
  const std::string stem = comp::stem_of(leaf.path(), *c);
  for (const comp::Part& part : c->parts) {
    const LeafView view = c->part(part.leaf);
    info.bytes += view.byte_size();
    info.parts.push_back({comp::path_of(stem, part), view.dtype(), Shape(view.shape())});
  }
  return info;
}

}  // namespace stele::inline v0
