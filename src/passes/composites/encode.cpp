// Chooses the weights of a model that a scheme encodes, and makes their parts.
#include "passes/composites/encode.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "io/text.hpp"
#include "passes/composites/composite.hpp"
#include "passes/composites/encoded_schemes.hpp"
#include "passes/composites/encoded_weight.hpp"
#include "passes/composites/tables.hpp"
#include "passes/composites/written_configuration.hpp"
#include "passes/precision.hpp"
#include "snapshot/items.hpp"
#include "snapshot/side_files.hpp"
#include "snapshot/undecoded.hpp"
#include "stele/pattern.hpp"
#include "stele/source.hpp"

namespace stele::inline v0 {
namespace detail::composites {
namespace {

bool any_matches(const std::vector<std::string>& patterns, std::string_view path) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) { return matches(p, path); });
}

constexpr std::string_view weight_ending = ".weight";

/// Makes the parts of a model's weights.
class Quantizer {
 public:
  Quantizer(const WeightScheme& how, const EncodedScheme& scheme, Report* report)
      : how_(how), scheme_(scheme), report_(report), group_(how.group != 0 ? how.group : scheme.group) {}

  Result<Snapshot> run(const Snapshot& snapshot) {
    STELE_TRY(read_config(snapshot));
    if (floats_of_model_ == DType::none) floats_of_model_ = most_common(snapshot);
    STELE_TRY_ASSIGN(const Snapshot base, without_old_schemes(snapshot));
    STELE_TRY_ASSIGN(const Items items, Items::of(base));
    Items result;
    result.keep(items);
    result.metadata = items.metadata;
    result.properties = items.properties;
    for (const Item& old : items.list) {
      const bool weight = is_weight(old);
      if (weight && chosen_[leaf_of(old)]) {
        add_weight(base, old, result);
      } else {
        if (weight) modules_.kept.push_back(stem_of(old));
        result.list.push_back(old);
      }
    }
    auto& kept = modules_.kept;
    std::sort(kept.begin(), kept.end());
    if (!std::binary_search(kept.begin(), kept.end(), "lm_head")) kept.emplace_back("lm_head");
    const Value config = config_of(scheme_, group_, modules_);
    STELE_TRY_ASSIGN(result.metadata[config_key], to_json(config));
    STELE_TRY_ASSIGN(const Snapshot parts, result.build());
    return join_composites(parts, config);
  }

 private:
  static bool is_weight(const Item& item) {
    return item.is_tensor() && item.path.ends_with(weight_ending) && item.path.size() > weight_ending.size() &&
           is_plain_float(item.leaf().dtype()) && item.leaf().shape().size() == 2;
  }
  static std::string stem_of(const Item& item) { return item.path.substr(0, item.path.size() - weight_ending.size()); }
  static std::uint32_t leaf_of(const Item& item) { return item.from->nodes[item.node].index; }

  /// Reads config.json, if the model is from a folder of the hub.
  Status read_config(const Snapshot& snapshot) {
    const auto& beside = snapshot.data()->beside;
    if (beside == nullptr || !std::binary_search(beside->names.begin(), beside->names.end(), "config.json")) return {};
    constexpr std::uint64_t max_bytes = std::uint64_t{16} << 20;
    STELE_TRY_ASSIGN(const SourcePtr file, beside->folder->open("config.json"));
    if (file->size() > max_bytes) return {};
    STELE_TRY_ASSIGN(const std::string text, read_text(*file, max_bytes));
    const auto config = parse_json(text);
    if (!config) return {};
    if (auto type = config->at("model_type").to<std::string>()) model_type_ = *std::move(type);
    for (const char* const key : {"dtype", "torch_dtype"}) {
      const auto dtype = config->at(key).to<std::string>();
      if (!dtype) continue;
      if (*dtype == "float16") floats_of_model_ = DType::f16;
      if (*dtype == "bfloat16") floats_of_model_ = DType::bf16;
      if (*dtype == "float32") floats_of_model_ = DType::f32;
    }
    return {};
  }

  /// Returns the dtype of most numbers that are not quantized.
  static DType most_common(const Snapshot& snapshot) {
    std::map<DType, std::uint64_t> counts;
    for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
      const LeafView leaf = snapshot.leaf(i);
      if (composite_of(leaf) == nullptr && is_plain_float(leaf.dtype())) counts[leaf.dtype()] += leaf.size();
    }
    counts.erase(DType::f64);
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return most != counts.end() ? most->first : DType::bf16;
  }

  /// Chooses the weights. Returns the snapshot with the quantized weights that are not chosen as floats: a model has
  /// one scheme.
  Result<Snapshot> without_old_schemes(const Snapshot& snapshot) {
    STELE_TRY_ASSIGN(const Items items, Items::of(snapshot));
    const ItemIndex index(items.list);
    std::set<std::string> tied;
    for (const Item& item : items.list) {
      if (item.target) tied.insert(*item.target);
    }
    chosen_.resize(snapshot.leaf_count());
    std::vector<DType> dtypes;
    for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) dtypes.push_back(snapshot.leaf(i).dtype());
    for (const Item& item : items.list) {
      if (!item.is_tensor()) continue;
      const std::uint32_t leaf = leaf_of(item);
      if (is_weight(item) && any_matches(how_.patterns, item.path) && !any_matches(how_.except, item.path)) {
        STELE_TRY(check_orientation(item, index, items));
        const auto shape = item.leaf().shape();
        const std::string why =
            tied.contains(item.path) ? "it has two names" : obstacle(scheme_, group_, shape[0], shape[1]);
        chosen_[leaf] = why.empty();
        modules_.unfit = modules_.unfit || !why.empty();
        if (!why.empty() && report_ != nullptr) {
          report_->add(Report::What::kept, item.path, "not " + how_.name + ": " + why);
        }
      }
      const Composite* const old = composite_of(item.leaf());
      if (old == nullptr || chosen_[leaf]) continue;
      dtypes[leaf] = floats_of_model_;
      if (report_ != nullptr) {
        report_->add(Report::What::converted, item.path, old->scheme + " -> " + std::string(name(floats_of_model_)));
      }
    }
    return with_dtypes(snapshot, std::move(dtypes), {});
  }

  /// Refuses models whose weights are transposed: the Conv1D of GPT-2 has a bias for each column.
  Status check_orientation(const Item& weight, const ItemIndex& index, const Items& items) const {
    const auto shape = weight.leaf().shape();
    const auto bias = index.find(stem_of(weight) + ".bias");
    if (scheme_.package == Package::awq) {
      // transformers 5.24, AWQ_SCALES_MAPPINGS: these need scales of activations, which only AWQ itself finds.
      constexpr std::string_view scaled[] = {"starcoder2", "RefinedWebModel", "falcon",      "mpt",
                                             "gptj",       "gpt_neox",        "gpt_bigcode", "bloom"};
      if (std::find(std::begin(scaled), std::end(scaled), model_type_) != std::end(scaled)) {
        return Error(Errc::unsupported, "AWQ scales activations in models of this type")
            .path(weight.path)
            .found(model_type_);
      }
    }
    if (!bias || !items.list[*bias].is_tensor()) return {};
    const std::uint64_t count = items.list[*bias].leaf().size();
    if (count == shape[0] || count != shape[1]) return {};
    return Error(Errc::unsupported,
                 "the weight is stored as [inputs, outputs], which no package of these schemes reads")
        .path(weight.path)
        .found("a bias of " + std::to_string(count) + " beside a weight of " + to_string(shape))
        .hint("transpose the weights first, for a model whose layers are Linear");
  }

  void add_weight(const Snapshot& base, const Item& old, Items& result) {
    const auto shape = old.leaf().shape();
    const std::uint64_t n = shape[0], k = shape[1];
    auto made = std::make_shared<Weight>();
    made->scheme = &scheme_;
    made->base = base;
    made->leaf = leaf_of(old);
    made->path = old.path;
    made->elements = n * k;
    made->group = group_ != 0 ? group_ : k;
    made->row_group = scheme_.row_group;
    made->rows = n;
    made->columns = k;
    if (scheme_.package == Package::bitsandbytes) {
      made->columns = group_;
      made->rows = (made->elements + group_ - 1) / group_;
    }
    const DType own = old.leaf().dtype();
    const bool model_only = composite_of(old.leaf()) != nullptr;
    made->floats_of_model = model_only ? floats_of_model_ : own == DType::f64 ? DType::f32 : own;
    made->scales = scheme_.scales != DType::none ? scheme_.scales : made->floats_of_model;
    made->table = table();
    add_parts(*made, n, k);
    for (std::size_t p = 0; p < made->parts.size(); ++p) {
      const auto& part = made->parts[p];
      Item& item = result.list.emplace_back(old);
      item.path = stem_of(old) + part.suffix;
      item.derived = DerivedLeaf{part.dtype, part.shape, part.bytes(), provider_of(*made, p)};
    }
    result.keepers.push_back(std::move(made));
    modules_.quantized.push_back(stem_of(old));
  }

  TablePtr table() const {
    switch (scheme_.coding) {
      case Coding::integer:
        return integer_table(scheme_.bits, scheme_.package == Package::compressed_tensors);
      case Coding::float4:
        return e2m1_table();
      case Coding::float8:
        return float8_table(DType::f8_e4m3fn);
      case Coding::table:
        break;
    }
    return nf4_table();
  }

  const WeightScheme& how_;
  const EncodedScheme& scheme_;
  Report* report_;
  std::uint64_t group_;  // 0: a row
  std::string model_type_;
  DType floats_of_model_ = DType::none;
  std::vector<bool> chosen_;  // by leaf
  Modules modules_;
};

}  // namespace
}  // namespace detail::composites

namespace comp = detail::composites;

std::vector<std::string> WeightScheme::default_except() {
  return {"*embed*", "shared.weight", "*pos_emb*",     "*relative_attention_bias*", "*wte*", "*wpe*", "*lm_head*",
          "*norm*",  "*router*",      "*.gate.weight", "*shared_expert_gate*"};
}

Result<Snapshot> quantize_weights(const Snapshot& snapshot, const WeightScheme& how, Report* report) {
  return detail::guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(const comp::EncodedScheme* const scheme, comp::find_scheme(how));
    STELE_TRY(detail::check_decoded(snapshot));  // a model has one scheme
    return comp::Quantizer(how, *scheme, report).run(snapshot);
  });
}

}  // namespace stele::inline v0
