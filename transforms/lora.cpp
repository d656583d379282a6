#include "stele/transforms/lora.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "snapshot/converting.hpp"
#include "snapshot/data.hpp"
#include "snapshot/items.hpp"
#include "snapshot/needs.hpp"
#include "snapshot/paths.hpp"
#include "stele/precision/convert.hpp"

namespace stele::inline v0 {
namespace detail {
namespace {

/// The change of a weight [N, K]: scale * B A, or its transpose for a weight [K, N].
struct Change {
  Snapshot model, adapter;
  std::uint32_t weight = 0, a = 0, b = 0;  // leaves
  std::uint64_t rank = 0, columns = 0;     // columns: of the weight as it is stored
  bool transposed = false;                 // the rows of the weight belong to A
  float scale = 0;
};

/// Adds changes to pieces of a weight.
class Adder {
 public:
  explicit Adder(const Change& change) : c_(change) {}

  Status load() {
    STELE_TRY(numbers_of(c_.adapter.leaf(c_.a), a_));
    return numbers_of(c_.adapter.leaf(c_.b), b_);
  }

  /// Changes the elements from `first` on, in place.
  Status add(std::uint64_t first, std::span<std::byte> bytes) {
    const DType dtype = c_.model.leaf(c_.weight).dtype();
    const std::size_t size = element_size(dtype);
    for (std::size_t done = 0, count = bytes.size() / size; done < count;) {
      const std::uint64_t row = (first + done) / c_.columns, column = (first + done) % c_.columns;
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>({count - done, c_.columns - column, at_once}));
      sum(row, column, n);
      float numbers[at_once];
      auto* const floats = reinterpret_cast<std::byte*>(numbers);
      std::byte* const at = bytes.data() + done * size;
      convert(dtype, at, DType::f32, floats, n, {.allow_overflow = true});
      for (std::size_t i = 0; i < n; ++i) numbers[i] += sums_[i] * c_.scale;
      const ConvertOutcome outcome = convert(DType::f32, floats, dtype, at, n);
      if (outcome.status != ConvertStatus::ok) {
        return with_path(convert_error(outcome, DType::f32, dtype, first + done), c_.model.leaf(c_.weight));
      }
      done += n;
    }
    return {};
  }

 private:
  static constexpr std::size_t at_once = 1024;

  static Status numbers_of(const LeafView& leaf, std::vector<float>& out) {
    struct Append final : PieceSink {
      std::byte* to = nullptr;
      Status piece(std::span<const std::byte> bytes) override {
        std::memcpy(to, bytes.data(), bytes.size());
        to += bytes.size();
        return {};
      }
    } append;
    out.resize(static_cast<std::size_t>(leaf.size()));
    append.to = reinterpret_cast<std::byte*>(out.data());
    ReadContext context;
    const auto streamed = stream_as(leaf, DType::f32, {}, append, context);
    return streamed ? Status() : with_path(streamed.error(), leaf);
  }

  /// Sets sums_ to elements of B A, or of its transpose, the products of a rank after the other.
  void sum(std::uint64_t row, std::uint64_t column, std::size_t n) {
    std::fill_n(sums_, n, 0.0F);
    const auto rank = static_cast<std::size_t>(c_.rank), r = static_cast<std::size_t>(row),
               k = static_cast<std::size_t>(column);
    for (std::size_t i = 0; i < rank; ++i) {
      if (c_.transposed) {
        const float a = a_[i * (a_.size() / rank) + r];
        for (std::size_t j = 0; j < n; ++j) sums_[j] += b_[(k + j) * rank + i] * a;
      } else {
        const float b = b_[r * rank + i];
        const float* const a = a_.data() + i * c_.columns + k;
        for (std::size_t j = 0; j < n; ++j) sums_[j] += b * a[j];
      }
    }
  }

  const Change& c_;
  std::vector<float> a_, b_;
  float sums_[at_once];
};

class AddingSink final : public PieceSink {
 public:
  AddingSink(const Change& change, PieceSink& next, ReadContext& context)
      : adder_(change), size_(element_size(change.model.leaf(change.weight).dtype())), next_(next), staging_(context) {}
  Status load() { return adder_.load(); }
  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto now = bytes.first(std::min(bytes.size(), ReadContext::piece_size));
      std::byte* to = next_.place(done_, now.size());
      if (to == nullptr) to = staging_.data();
      std::memcpy(to, now.data(), now.size());
      STELE_TRY(adder_.add(done_ / size_, {to, now.size()}));
      STELE_TRY(next_.piece({to, now.size()}));
      done_ += now.size();
      bytes = bytes.subspan(now.size());
    }
    return {};
  }

 private:
  Adder adder_;
  std::size_t size_;
  PieceSink& next_;
  ReadContext::Piece staging_;
  std::uint64_t done_ = 0;
};

Status changed_stream(const void* at, std::uint64_t, std::uint64_t, PieceSink& sink, ReadContext& context) {
  const auto& change = *static_cast<const Change*>(at);
  AddingSink adding(change, sink, context);
  STELE_TRY(adding.load());
  return change.model.leaf(change.weight).stream(adding, context);
}

Status changed_read(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out,
                    ReadContext& context) {
  const auto& change = *static_cast<const Change*>(at);
  const LeafView weight = change.model.leaf(change.weight);
  STELE_TRY(weight.read(offset, out, context));
  Adder adder(change);
  STELE_TRY(adder.load());
  return adder.add(offset / element_size(weight.dtype()), out);
}

void changed_needs(const void* at, std::uint64_t, detail::Needs& needs) {
  const auto& change = *static_cast<const Change*>(at);
  needs.add(change.model.leaf(change.weight));
}

constexpr LeafOps changed_ops{.read = changed_read, .stream = changed_stream, .needs = changed_needs};

/// The configuration of an adapter.
class Scales {
 public:
  explicit Scales(const Value& config) : config_(config) {
    const Value* const patterns = config.find("alpha_pattern");
    if (patterns == nullptr || patterns->as_map() == nullptr) return;
    for (const auto& [key, value] : *patterns->as_map()) alphas_.emplace(key, &value);
  }

  Status check() const {
    const auto type = config_.at("peft_type").to<std::string>();
    if (type && *type != "LORA") {
      return Error(Errc::unsupported, "the adapter is not of the type LORA").found(*type);
    }
    for (const auto& [key, value] : alphas_) {
      if (key.find_first_of("*+?()[]{}|^$\\") != key.npos) {
        return Error(Errc::unsupported, "a pattern of alpha_pattern is a regular expression").found(key);
      }
    }
    if (const auto dora = config_.at("use_dora").to<bool>(); dora && *dora) {
      return Error(Errc::unsupported, "DoRA adapters are not merged");
    }
    return {};
  }
  bool transposed() const { return config_.at("fan_in_fan_out").to<bool>().value_or(false); }

  /// Returns the scale for a module of this rank.
  Result<float> of(const std::string& module, std::uint64_t rank) const {
    auto alpha = config_.at("lora_alpha").to<double>();
    for (std::size_t at = 0; at != module.npos; at = module.find('.', at), at += at != module.npos ? 1 : 0) {
      const auto own = alphas_.find(std::string_view(module).substr(at));
      if (own == alphas_.end()) continue;
      alpha = own->second->to<double>();
      break;
    }
    if (!alpha) return Error(Errc::malformed, "the adapter's configuration has no number lora_alpha");
    const bool root = config_.at("use_rslora").to<bool>().value_or(false);
    const auto r = static_cast<double>(rank);
    return static_cast<float>(*alpha / (root ? std::sqrt(r) : r));
  }

 private:
  const Value& config_;
  std::map<std::string_view, const Value*> alphas_;  // of modules, whole names or ends of them
};

/// Returns the name that a model has for a module of the adapter.
std::string model_name(std::string name) {
  constexpr std::string_view prefix = "base_model.model.";
  if (name.starts_with(prefix)) name.erase(0, prefix.size());
  return name;
}

std::optional<std::string> without_suffix(const std::string& name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return std::nullopt;
  return name.substr(0, name.size() - suffix.size());
}

class Merge {
 public:
  Merge(const Snapshot& model, const Snapshot& adapter, const Value& config, bool subtract, Items items)
      : model_(model),
        adapter_(adapter),
        scales_(config),
        subtract_(subtract),
        items_(std::move(items)),
        index_(items_.list) {}

  Result<Snapshot> run() {
    STELE_TRY(scales_.check());
    for (std::uint32_t i = 0; i < adapter_.leaf_count(); ++i) STELE_TRY(tensor(i, adapter_.leaf(i).path()));
    for (const auto& [module, pair] : pairs_) {
      if (pair.a == no_index || pair.b == no_index) {
        return Error(Errc::malformed, "the adapter has only one of a pair of matrices").path(module);
      }
      STELE_TRY(change(module, pair));
    }
    items_.keepers.push_back(adapter_.data());
    STELE_TRY_ASSIGN(const Snapshot merged, items_.build());
    auto data = derived_data(merged);
    data->notes = std::move(replaced_);
    return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
  }

 private:
  struct Pair {
    std::uint32_t a = no_index, b = no_index;
    bool embedding = false;
  };

  Status tensor(std::uint32_t leaf, const std::string& name) {
    for (const bool is_a : {true, false}) {
      const std::string which = is_a ? "A" : "B";
      for (const bool embedding : {false, true}) {
        const std::string part = embedding ? ".lora_embedding_" + which : ".lora_" + which + ".weight";
        if (const auto module = without_suffix(name, part)) {
          Pair& pair = pairs_[*module];
          (is_a ? pair.a : pair.b) = leaf;
          pair.embedding = embedding;
          return {};
        }
      }
    }
    if (name.find(".lora_") != name.npos) {
      return Error(Errc::unsupported, "a tensor of the adapter is neither a matrix of LoRA nor a weight").path(name);
    }
    if (subtract_) {
      replaced_.push_back(model_name(name) + ": the adapter replaced it, and so it stays");
      return {};
    }
    // A whole tensor, of modules_to_save; or a copy of the model's own weight, which PEFT adds for embeddings.
    std::string own = model_name(name);
    constexpr std::string_view copied = ".base_layer.";
    const std::size_t copy = own.find(copied);
    if (copy != own.npos) own.erase(copy, copied.size() - 1);
    Item* const item = find(own);
    if (item == nullptr) return missing(name);
    const LeafView from = adapter_.leaf(leaf);
    if (Shape(from.shape()) != Shape(item->leaf().shape())) {
      return Error(Errc::shape_mismatch, "a tensor of the adapter has another shape than the model's")
          .path(name)
          .expected(to_string(item->leaf().shape()))
          .found(to_string(from.shape()));
    }
    if (copy != own.npos) return {};
    item->derived = DerivedLeaf{from.dtype(), Shape(from.shape()), from.byte_size(), from.provider()};
    return {};
  }

  Status change(const std::string& module, const Pair& pair) {
    const std::string name = model_name(module) + ".weight";
    Item* const item = find(name);
    if (item == nullptr) return missing(name);
    const LeafView weight = item->leaf(), a = adapter_.leaf(pair.a), b = adapter_.leaf(pair.b);
    if (!is_plain_float(weight.dtype())) {
      return Error(Errc::dtype_mismatch, "only floats can be changed")
          .path(name)
          .found(stele::name(weight.dtype()))
          .hint("convert the model to floats first");
    }
    const auto shape = weight.shape(), sa = a.shape(), sb = b.shape();
    const auto made = std::make_shared<Change>();
    made->transposed = pair.embedding || scales_.transposed();
    const bool matrices = shape.size() == 2 && sa.size() == 2 && sb.size() == 2 && sa[0] == sb[1] && sa[0] != 0;
    const Extent rows = matrices ? (made->transposed ? sa[1] : sb[0]) : 0,
                 columns = matrices ? (made->transposed ? sb[0] : sa[1]) : 0;
    if (!matrices || shape[0] != rows || shape[1] != columns) {
      return Error(Errc::shape_mismatch, "the matrices of the adapter do not fit the weight")
          .path(name)
          .expected(to_string(shape))
          .found(to_string(sb) + " times " + to_string(sa));
    }
    STELE_TRY_ASSIGN(made->scale, scales_.of(model_name(module), sa[0]));
    if (subtract_) made->scale = -made->scale;
    made->model = model_;
    made->adapter = adapter_;
    made->weight = item->from->nodes[item->node].index;
    made->a = pair.a;
    made->b = pair.b;
    made->rank = sa[0];
    made->columns = columns;
    item->derived = DerivedLeaf{weight.dtype(), Shape(shape), weight.byte_size(), {&changed_ops, made.get(), 0}};
    items_.keepers.push_back(made);
    return {};
  }

  Item* find(const std::string& name) {
    auto at = index_.find(name);
    if (at && items_.list[*at].target) at = index_.find(*items_.list[*at].target);
    return at && items_.list[*at].is_tensor() ? &items_.list[*at] : nullptr;
  }
  static Status missing(const std::string& name) {
    return Error(Errc::not_found, "the model has no tensor for a part of the adapter").path(model_name(name));
  }

  const Snapshot& model_;
  const Snapshot& adapter_;
  Scales scales_;
  bool subtract_;
  Items items_;
  ItemIndex index_;
  std::map<std::string, Pair> pairs_;
  std::vector<std::string> replaced_;  // notes
};

}  // namespace
}  // namespace detail

Result<Snapshot> merge_lora(const Snapshot& model, const Snapshot& adapter, const Value& config, bool subtract) {
  return detail::guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(detail::Items items, detail::Items::of(model));
    return detail::Merge(model, adapter, config, subtract, std::move(items)).run();
  });
}

}  // namespace stele::inline v0
