// Finds codes and scales of quantized weights that no scheme decodes, by names that their packages give to tensors. A
// module with only floats, or with integers without scales, has no codes.
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "passes/composites/recogniser.hpp"
#include "snapshot/data.hpp"
#include "snapshot/marks.hpp"
#include "snapshot/undecoded.hpp"
#include "stele/quantize.hpp"

namespace stele::inline v0::detail::composites {
namespace {

/// Endings of the names of two tensors of a layer.
struct Signature {
  std::string_view codes, companion;
  std::string_view scheme{};  // empty: several schemes use these names
};

/// Names that identify one scheme for all shapes.
constexpr Signature named_signatures[] = {
    {".q_weight", ".q_scale", "exl2"},
    {".q_weight", ".q_scale_max", "exl2"},
    {".trellis", ".suh", "exl3"},
    {".trellis", ".svh", "exl3"},
    {".trellis", ".su", "exl3"},
    {".codes", ".codebooks", "aqlm"},
    {".codes", ".scales", "aqlm"},
    {".B", ".s", "marlin"},
    {".Qidxs", ".SU", "quip"},
    {".Qidxs", ".SV", "quip"},
    {".Qidxs", ".Wscale", "quip"},
    {".indices", ".centroids", "vptq"},
    {".indices", ".centroids.weight", "vptq"},
    {".W_q", ".scale", "hqq"},
    {".W_q", ".zero", "hqq"},
    {".W_q", ".meta", "hqq"},
    {"._data._data", "._scale", "quanto"},
    {"._data._data", "._shift", "quanto"},
    {"._data", "._scale", "quanto"},
    {"._data", "._shift", "quanto"},
    {".qdata", ".scale", "torchao"},
    {".int_data", ".scale", "torchao"},
    {".qweight", ".wscales", "nunchaku"},
    {".weight", ".qscale_weight", "Mistral's fp8"},
    {".weight", ".weight_scales", "eetq"},
    {".weight", ".tables", "higgs"},
};

/// Names that several schemes share.
constexpr Signature shared_signatures[] = {
    {".qweight", ".scales"},
    {".qweight", ".qzeros"},
    {".qweight", ".scale"},
    {".qweight", ".weight_scale"},
    {".weight", ".scales"},
    {".weight", ".scale"},
    {".weight", ".scale_weight"},
    {".weight", ".SCB"},
    {".weight", ".wscales"},
    {".weight", ".input_scale"},
    {".weight", ".pre_quant_scale"},
    {".weight", ".weight_quantizer._scale"},
    {".weight", ".weight_scaler"},
    {"_packed", "_scale"},
    {"_packed", "_global_scale"},
    {"_packed", "_shape"},
    {"_blocks", "_scales"},
    {"_quantized", "_scale"},
    {"_qdata", "_scale"},
    {".qvalue", ".scale"},
};

/// The suffixes that a scale's name adds to the name of its codes, as in weight_scale_inv and weight.absmax.
constexpr std::string_view endings_of_scales[] = {
    "_scale",  "_scales", "_scale_inv", "_scale_2", "_scaler", "_absmax",     ".absmax",       "._scale", ".scale",
    ".scales", "._data",  ".quant_map", ".SCB",     "_scb",    "_zero_point", ".absmax_scale", "_qscale",
};

/// Returns true for dtypes of codes. Excludes bools, and wide integers, which are indices and counts.
bool is_code(DType d) {
  switch (d) {
    case DType::i8:
    case DType::u8:
    case DType::i16:
    case DType::u16:
    case DType::i32:
    case DType::u32:
    case DType::i4:
    case DType::u4:
    case DType::f4_e2m1:
      return true;
    default:
      return is_float8(d);
  }
}

bool may_be_codes(const LeafView& leaf) { return is_code(leaf.dtype()) && leaf.shape().size() >= 2 && leaf.size() > 1; }

/// Returns true for tensors that are recognised by their name: QuIP# has codes of 64 bits.
bool may_be_named(const LeafView& leaf, std::string_view name) {
  const bool wide = leaf.dtype() == DType::i64 && name.ends_with("Qidxs");
  return (wide || is_code(leaf.dtype())) && leaf.size() > 1;
}

/// Returns true for the names of weights.
bool names_weight(std::string_view name) {
  if (const std::size_t dot = name.rfind('.'); dot != name.npos) name.remove_prefix(dot + 1);
  return name.find("weight") != name.npos;
}

/// Finds tensors by their names in a container: by whole names in a flat snapshot, by the members of a module in a
/// nested snapshot.
class Names {
 public:
  explicit Names(const Snapshot& snapshot) {
    for (const Node& node : snapshot.nodes()) {
      if (node.kind != NodeKind::tensor || node.name == nullptr) continue;
      all_.push_back({node.parent, std::string_view(node.name, node.name_size), node.index});
    }
    std::sort(all_.begin(), all_.end());
  }
  std::optional<std::uint32_t> find(std::uint32_t parent, std::string_view name) const {
    const Entry key{parent, name, 0};
    const auto at = std::lower_bound(all_.begin(), all_.end(), key);
    return at != all_.end() && at->parent == parent && at->name == name ? std::optional(at->leaf) : std::nullopt;
  }

 private:
  struct Entry {
    std::uint32_t parent;
    std::string_view name;
    std::uint32_t leaf;
    friend bool operator<(const Entry& a, const Entry& b) {
      return std::tie(a.parent, a.name, a.leaf) < std::tie(b.parent, b.name, b.leaf);
    }
  };
  std::vector<Entry> all_;
};

/// Returns the stem of a name with an ending; empty for a member without a dot.
std::optional<std::string_view> stem_of_name(std::string_view name, std::string_view ending) {
  if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  if (ending.starts_with('.') && name == ending.substr(1)) return std::string_view();
  return std::nullopt;
}

std::string joined_name(std::string_view stem, std::string_view ending) {
  if (stem.empty() && ending.starts_with('.')) ending.remove_prefix(1);
  return std::string(stem).append(ending);
}

std::string text_in(const Value& config, const char* key) {
  const Value* const found = config.find(key);
  const std::string* const text = found != nullptr ? found->as_string() : nullptr;
  return text != nullptr ? *text : std::string();
}

/// Returns the scheme that a configuration names, with its variant; empty if it describes no scheme.
std::string scheme_in(const Value& config) {
  std::string scheme;
  for (const char* const key : {"quant_method", "quant_algo", "qformat_weight"}) {
    if (scheme.empty()) scheme = text_in(config, key);
  }
  if (scheme.empty()) return scheme;
  for (const char* const key : {"quant_algo", "format", "checkpoint_format", "quant_type"}) {
    const std::string variant = text_in(config, key);
    if (!variant.empty() && variant != scheme) return scheme.append(" ").append(variant);
  }
  return scheme;
}

class Finder {
 public:
  Finder(const Snapshot& snapshot, const Value& config)
      : snapshot_(snapshot),
        names_(snapshot),
        described_(!scheme_in(config).empty() || config.find("group_size") != nullptr),
        configured_(scheme_in(config)),
        schemes_(snapshot.leaf_count()) {}

  /// Returns the scheme of each leaf; empty if the leaf belongs to no undecoded weight.
  std::vector<std::string> run() {
    for (const Node& node : snapshot_.nodes()) {
      if (node.kind == NodeKind::tensor && node.name != nullptr && is_free(node.index)) look_at(node);
    }
    return std::move(schemes_);
  }

 private:
  /// Returns false for composite tensors, and for tensors that an annotation describes.
  bool is_free(std::uint32_t number) const {
    const LeafView leaf = snapshot_.leaf(number);
    const Annotations* const annotations = leaf.annotations();
    const bool ranged = annotations != nullptr && annotations->contains(std::string(quantization_key));
    return !ranged && composite_of(leaf) == nullptr && leaf.dtype() != DType::opaque;
  }

  void look_at(const Node& node) {
    const std::string_view name(node.name, node.name_size);
    const LeafView leaf = snapshot_.leaf(node.index);
    if (!may_be_named(leaf, name)) return;
    for (const Signature& s : named_signatures) match(node, name, s);
    if (!may_be_codes(leaf)) return;
    for (const Signature& s : shared_signatures) match(node, name, s);
    for (const std::string_view ending : endings_of_scales) match(node, name, {"", ending});
    if (described_ && (is_float8(leaf.dtype()) || names_weight(name))) mark(node.index, "");
  }

  void match(const Node& node, std::string_view name, const Signature& signature) {
    const auto stem = stem_of_name(name, signature.codes);
    if (!stem) return;
    const auto companion = names_.find(node.parent, joined_name(*stem, signature.companion));
    if (!companion || !is_free(*companion)) return;
    mark(node.index, signature.scheme);
    mark(*companion, signature.scheme);
  }

  void mark(std::uint32_t leaf, std::string_view scheme) {
    std::string& known = schemes_[leaf];
    if (!known.empty()) return;
    known = !configured_.empty() ? configured_ : !scheme.empty() ? std::string(scheme) : "an unknown scheme";
  }

  const Snapshot& snapshot_;
  Names names_;
  bool described_;
  std::string configured_;
  std::vector<std::string> schemes_;
};

/// Returns true if a note is about a tensor of the same layer: it gives the reason why its parts stay.
bool is_noted(const std::vector<std::string>& notes, std::string_view path) {
  const std::string_view layer = path.substr(0, path.rfind('.') + 1);
  return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
    const std::string_view weight = std::string_view(note).substr(0, note.find(": the parts of"));
    return weight.size() < note.size() && (path.starts_with(weight) || (!layer.empty() && weight.starts_with(layer)));
  });
}

/// Adds a note for each scheme of tensors that no note is about.
void add_notes(const Snapshot& snapshot, const std::vector<std::string>& schemes, std::vector<std::string>& notes) {
  struct Found {
    std::string first;
    std::size_t count = 0;
  };
  std::map<std::string_view, Found> found;
  for (std::size_t i = 0; i < schemes.size(); ++i) {
    if (schemes[i].empty()) continue;
    std::string path = snapshot.leaf(i).path();
    if (is_noted(notes, path)) continue;
    Found& scheme = found[schemes[i]];
    if (scheme.count++ == 0) scheme.first = std::move(path);
  }
  for (const auto& [scheme, at] : found) {
    notes.push_back("the quantized weights of " + std::string(scheme) +
                    " are not decoded: " + std::to_string(at.count) +
                    " tensors stay as they are, codes and scales, the first of which is " + at.first);
  }
}

}  // namespace

bool may_have_codes(const Snapshot& snapshot) {
  const auto nodes = snapshot.nodes();
  return std::any_of(nodes.begin(), nodes.end(), [&](const Node& node) {
    return node.kind == NodeKind::tensor && node.name != nullptr &&
           may_be_named(snapshot.leaf(node.index), {node.name, node.name_size});
  });
}

Snapshot with_undecoded(const Snapshot& snapshot, const Value& config) {
  std::vector<std::string> schemes;
  if (may_have_codes(snapshot)) schemes = Finder(snapshot, config).run();
  const bool none = std::all_of(schemes.begin(), schemes.end(), [](const std::string& s) { return s.empty(); });
  const std::string scheme = none && !has_composites(snapshot) ? scheme_in(config) : "";
  if (none && scheme.empty()) return snapshot;
  auto data = derived_data(snapshot);
  if (none) data->notes.push_back("the configuration names the quantization " + scheme + ", but no tensor has codes");
  for (std::size_t i = 0; i < schemes.size(); ++i) {
    if (!schemes[i].empty()) set_mark(*data, i, undecoded_key, schemes[i]);
  }
  add_notes(snapshot, schemes, data->notes);
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

}  // namespace stele::inline v0::detail::composites
