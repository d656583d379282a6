// Adds LoRA adapters of PEFT to models, and takes them out again.
#include "stele/transforms/lora.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "leaves/needs.hpp"
#include "lora_config.hpp"
#include "lora_model.hpp"
#include "snapshot/converting.hpp"
#include "snapshot/data.hpp"
#include "snapshot/items.hpp"
#include "snapshot/paths.hpp"
#include "stele/pattern.hpp"
#include "stele/precision/convert.hpp"

namespace stele::inline v0 {
namespace detail::lora {
namespace {

/// A product to add: scale * B A to a weight [N, K], or its transpose to a weight [K, N].
struct Product {
  LeafView a, b;
  std::uint64_t rank = 0;
  bool transposed = false;  // the rows of the weight belong to A
  double scale = 0;
};

/// A vector to add, scale * v, to a bias with the same number of elements.
struct Addend {
  LeafView vector;
  double scale = 0;
};

/// Rows that replace rows of a weight.
struct Rows {
  LeafView content;
  std::vector<std::uint64_t> numbers;
};

template <class Number>
constexpr DType dtype_of = std::is_same_v<Number, double> ? DType::f64 : DType::f32;

/// The changes of a tensor. Owned by the keepers of the result, as the data of the leaves is.
struct Change {
  LeafView from;  // the model's tensor, or the adapter's that replaces it
  DType dtype;    // dtype of the result
  std::uint64_t columns = 1;
  std::vector<Product> products{};
  std::vector<Addend> addends{};
  std::vector<Rows> rows{};

  bool replaces_only() const { return from.dtype() == dtype && products.empty() && addends.empty() && rows.empty(); }
};

template <class Number>
Result<std::vector<Number>> numbers_of(const LeafView& leaf) {
  struct Append final : PieceSink {
    std::byte* to = nullptr;
    Status piece(std::span<const std::byte> bytes) override {
      std::memcpy(to, bytes.data(), bytes.size());
      to += bytes.size();
      return {};
    }
  } append;
  std::vector<Number> numbers(static_cast<std::size_t>(leaf.size()));
  append.to = reinterpret_cast<std::byte*>(numbers.data());
  ReadContext context;
  const auto streamed = stream_as(leaf, dtype_of<Number>, {}, append, context);
  STELE_TRY(streamed ? Status() : with_path(streamed.error(), leaf));
  return numbers;
}

/// Applies changes to pieces of a tensor. Number: float, or double for tensors of f64.
template <class Number>
class Changer {
 public:
  explicit Changer(const Change& change) : c_(change) {}

  Status load() {
    for (const Product& product : c_.products) {
      STELE_TRY_ASSIGN(auto a, numbers_of<Number>(product.a));
      STELE_TRY_ASSIGN(auto b, numbers_of<Number>(product.b));
      matrices_.push_back({product, std::move(a), std::move(b)});
    }
    for (const Addend& addend : c_.addends) {
      STELE_TRY_ASSIGN(auto vector, numbers_of<Number>(addend.vector));
      vectors_.push_back({static_cast<Number>(addend.scale), std::move(vector)});
    }
    for (const Rows& rows : c_.rows) {
      STELE_TRY_ASSIGN(const auto numbers, numbers_of<Number>(rows.content));
      for (std::size_t i = 0; i < rows.numbers.size(); ++i) STELE_TRY(set_row(rows.numbers[i], numbers, i));
    }
    return {};
  }

  /// Changes the elements from `first` on, in place.
  Status apply(std::uint64_t first, std::span<std::byte> bytes) {
    const std::size_t size = element_size(c_.dtype), count = bytes.size() / size;
    if (!matrices_.empty() || !vectors_.empty()) {
      for (std::size_t done = 0; done < count;) {
        const std::uint64_t left = c_.columns - (first + done) % c_.columns;
        const auto n = static_cast<std::size_t>(std::min<std::uint64_t>({count - done, left, at_once}));
        STELE_TRY(add(first + done, bytes.subspan(done * size, n * size)));
        done += n;
      }
    }
    replace_rows(first, bytes);
    return {};
  }

 private:
  static constexpr std::size_t at_once = 1024;
  struct Matrices {
    const Product& product;
    std::vector<Number> a, b;
  };
  struct Vector {
    Number scale;
    std::vector<Number> numbers;
  };

  Status set_row(std::uint64_t number, const std::vector<Number>& numbers, std::size_t i) {
    std::vector<std::byte>& row = rows_[number];
    const auto columns = static_cast<std::size_t>(c_.columns);
    row.resize(columns * element_size(c_.dtype));
    const auto* const from = reinterpret_cast<const std::byte*>(numbers.data() + i * columns);
    const ConvertOutcome outcome = convert(dtype_of<Number>, from, c_.dtype, row.data(), columns);
    if (outcome.status == ConvertStatus::ok) return {};
    return with_path(convert_error(outcome, dtype_of<Number>, c_.dtype, i * columns), c_.rows.front().content);
  }

  /// Adds to elements of one row.
  Status add(std::uint64_t first, std::span<std::byte> bytes) {
    const std::size_t n = bytes.size() / element_size(c_.dtype);
    Number numbers[at_once];
    auto* const raw = reinterpret_cast<std::byte*>(numbers);
    convert(c_.dtype, bytes.data(), dtype_of<Number>, raw, n, {.allow_overflow = true});
    for (const Matrices& matrices : matrices_) {
      sum(matrices, first / c_.columns, first % c_.columns, n);
      for (std::size_t i = 0; i < n; ++i) numbers[i] += sums_[i] * static_cast<Number>(matrices.product.scale);
    }
    for (const Vector& vector : vectors_) {
      for (std::size_t i = 0; i < n; ++i) {
        numbers[i] += vector.numbers[static_cast<std::size_t>(first) + i] * vector.scale;
      }
    }
    const ConvertOutcome outcome = convert(dtype_of<Number>, raw, c_.dtype, bytes.data(), n);
    if (outcome.status == ConvertStatus::ok) return {};
    return with_path(convert_error(outcome, dtype_of<Number>, c_.dtype, first), c_.from);
  }

  /// Sets sums_ to elements of B A, or of its transpose, adding the product of one rank at a time.
  void sum(const Matrices& m, std::uint64_t row, std::uint64_t column, std::size_t n) {
    std::fill_n(sums_, n, Number(0));
    const auto rank = static_cast<std::size_t>(m.product.rank), r = static_cast<std::size_t>(row),
               k = static_cast<std::size_t>(column), width = m.a.size() / rank;
    for (std::size_t i = 0; i < rank; ++i) {
      if (m.product.transposed) {
        const Number a = m.a[i * width + r];
        for (std::size_t j = 0; j < n; ++j) sums_[j] += m.b[(k + j) * rank + i] * a;
      } else {
        const Number b = m.b[r * rank + i];
        const Number* const a = m.a.data() + i * width + k;
        for (std::size_t j = 0; j < n; ++j) sums_[j] += b * a[j];
      }
    }
  }

  void replace_rows(std::uint64_t first, std::span<std::byte> bytes) {
    const std::uint64_t size = element_size(c_.dtype), begin = first * size, end = begin + bytes.size();
    for (auto at = rows_.lower_bound(first / c_.columns); at != rows_.end(); ++at) {
      const std::uint64_t row = at->first * c_.columns * size;
      if (row >= end) break;
      const std::uint64_t low = std::max(row, begin), high = std::min<std::uint64_t>(row + at->second.size(), end);
      std::memcpy(bytes.data() + static_cast<std::size_t>(low - begin),
                  at->second.data() + static_cast<std::size_t>(low - row), static_cast<std::size_t>(high - low));
    }
  }

  const Change& c_;
  std::vector<Matrices> matrices_;
  std::vector<Vector> vectors_;
  std::map<std::uint64_t, std::vector<std::byte>> rows_;  // rows in the dtype of the result
  Number sums_[at_once];
};

template <class Number>
class ChangingSink final : public PieceSink {
 public:
  ChangingSink(const Change& change, PieceSink& next, ReadContext& context)
      : changer_(change), size_(element_size(change.dtype)), next_(next), staging_(context) {}
  Status load() { return changer_.load(); }
  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto now = bytes.first(std::min(bytes.size(), ReadContext::piece_size));
      std::byte* to = next_.place(done_, now.size());
      if (to == nullptr) to = staging_.data();
      std::memcpy(to, now.data(), now.size());
      STELE_TRY(changer_.apply(done_ / size_, {to, now.size()}));
      STELE_TRY(next_.piece({to, now.size()}));
      done_ += now.size();
      bytes = bytes.subspan(now.size());
    }
    return {};
  }

 private:
  Changer<Number> changer_;
  std::size_t size_;
  PieceSink& next_;
  ReadContext::Piece staging_;
  std::uint64_t done_ = 0;
};

template <class Number>
Status stream(const Change& change, PieceSink& sink, ReadContext& context) {
  ChangingSink<Number> changing(change, sink, context);
  STELE_TRY(changing.load());
  const auto streamed = stream_as(change.from, change.dtype, {}, changing, context);
  return streamed ? Status() : with_path(streamed.error(), change.from);
}

Status changed_stream(const void* at, std::uint64_t, std::uint64_t, PieceSink& sink, ReadContext& context) {
  const auto& change = *static_cast<const Change*>(at);
  return change.dtype == DType::f64 ? stream<double>(change, sink, context) : stream<float>(change, sink, context);
}

/// Reads elements of a leaf in another dtype.
Status read_as(const LeafView& leaf, DType dtype, std::uint64_t first, std::span<std::byte> out, ReadContext& context) {
  const std::size_t from = element_size(leaf.dtype()), to = element_size(dtype),
                    at_once = ReadContext::piece_size / from;
  ReadContext::Piece piece(context);
  for (std::size_t done = 0, count = out.size() / to; done < count;) {
    const std::size_t n = std::min(at_once, count - done);
    STELE_TRY(leaf.read((first + done) * from, {piece.data(), n * from}, context));
    const ConvertOutcome outcome = convert(leaf.dtype(), piece.data(), dtype, out.data() + done * to, n);
    if (outcome.status != ConvertStatus::ok) {
      return with_path(convert_error(outcome, leaf.dtype(), dtype, first + done), leaf);
    }
    done += n;
  }
  return {};
}

template <class Number>
Status apply(const Change& change, std::uint64_t first, std::span<std::byte> bytes) {
  Changer<Number> changer(change);
  STELE_TRY(changer.load());
  return changer.apply(first, bytes);
}

Status changed_read(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out,
                    ReadContext& context) {
  const auto& change = *static_cast<const Change*>(at);
  const std::uint64_t first = offset / element_size(change.dtype);
  STELE_TRY(change.from.dtype() == change.dtype ? change.from.read(offset, out, context)
                                                : read_as(change.from, change.dtype, first, out, context));
  return change.dtype == DType::f64 ? apply<double>(change, first, out) : apply<float>(change, first, out);
}

void changed_needs(const void* at, std::uint64_t, detail::Needs& needs) {
  needs.add(static_cast<const Change*>(at)->from);
}

constexpr LeafOps changed_ops{.read = changed_read, .stream = changed_stream, .needs = changed_needs};

/// Returns the name that a model has for a tensor or module of the adapter.
std::string model_name(std::string name) {
  constexpr std::string_view prefix = "base_model.model.";
  if (name.starts_with(prefix)) name.erase(0, prefix.size());
  return name;
}

std::optional<std::string> without_suffix(const std::string& name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return std::nullopt;
  return name.substr(0, name.size() - suffix.size());
}

bool same_shape(const LeafView& a, const LeafView& b) { return Shape(a.shape()) == Shape(b.shape()); }

class Merge {
 public:
  Merge(const Snapshot& adapter, LoraConfig config, ModelFacts model, const LoraOptions& options, Items items)
      : adapter_(adapter),
        config_(std::move(config)),
        options_(options),
        items_(std::move(items)),
        index_(items_.list),
        model_(std::move(model)),
        notes_(config_.notes()) {}

  Result<Snapshot> run() {
    for (std::uint32_t i = 0; i < adapter_.leaf_count(); ++i) STELE_TRY(sort(adapter_.leaf(i)));
    STELE_TRY(replace_modules());
    for (const auto& [name, leaf] : copies_) STELE_TRY(replace_copy(name, leaf));
    for (const auto& [module, pair] : pairs_) STELE_TRY(add_product(module, pair));
    for (const auto& [module, leaf] : biases_) STELE_TRY(add_bias(module, leaf));
    for (const auto& [module, leaf] : tokens_) STELE_TRY(set_rows(module, leaf));
    if (tokens_.empty() && config_.has_tokens()) {
      return Error(Errc::malformed, "the adapter has no rows for the trained tokens of its configuration")
          .path("trainable_token_indices");
    }
    return finish();
  }

 private:
  struct Pair {
    std::optional<LeafView> a{}, b{};
    bool embedding = false;
  };

  /// Sorts the adapter's tensors by their purpose.
  Status sort(const LeafView& leaf) {
    const std::string name = leaf.path();
    for (const bool is_a : {true, false}) {
      const std::string which = is_a ? "A" : "B";
      for (const bool embedding : {false, true}) {
        const std::string part = embedding ? ".lora_embedding_" + which : ".lora_" + which + ".weight";
        const auto module = without_suffix(name, part);
        if (!module) continue;
        Pair& pair = pairs_[model_name(*module)];
        (is_a ? pair.a : pair.b) = leaf;
        pair.embedding = embedding;
        return {};
      }
    }
    if (const auto module = without_suffix(name, ".lora_B.bias")) {
      biases_.emplace_back(model_name(*module), leaf);
      return {};
    }
    if (const auto module = without_suffix(name, ".token_adapter.trainable_tokens_delta")) {
      tokens_.emplace_back(model_name(*module), leaf);
      return {};
    }
    for (const char* const training : {".lora_velora_embed", ".lora_monteclora_sampler."}) {
      if (name.find(training) != name.npos) return {};  // PEFT merges only the matrices
    }
    if (name.find(".lora_") != name.npos) {
      return Error(Errc::unsupported, "a tensor of the adapter is neither a matrix of LoRA nor a weight").path(name);
    }
    std::string own = model_name(name);
    // With `bias` "all", PEFT writes the biases of a saved module three times, and loads only those with its plain
    // name.
    for (const std::string_view copy : {".modules_to_save.", ".original_module."}) {
      const std::size_t begin = own.find(copy);
      if (begin != own.npos && config_.saves(own.substr(0, begin) + own.substr(begin + copy.size() - 1))) return {};
    }
    constexpr std::string_view wrapped = ".base_layer.";
    const std::size_t at = own.find(wrapped);
    if (at != own.npos) own.erase(at, wrapped.size() - 1);
    const bool module = at == own.npos && config_.saves(own);
    (module ? saved_ : copies_).emplace_back(std::move(own), leaf);
    return {};
  }

  /// Replaces the modules of modules_to_save. PEFT trains copies of them, so they lose their ties.
  Status replace_modules() {
    for (const std::string& entry : config_.modules_to_save()) {
      const auto named = [&](std::string_view name) { return names_module(entry, name); };
      const auto of_adapter = [&](const auto& tensor) { return named(tensor.first); };
      if (std::any_of(saved_.begin(), saved_.end(), of_adapter)) continue;
      const auto of_model = [&](const Item& item) { return named(item.path); };
      if (std::none_of(items_.list.begin(), items_.list.end(), of_model)) continue;
      return Error(Errc::malformed, "the adapter has no tensor of a module that its configuration names")
          .path("modules_to_save")
          .expected(entry);
    }
    if (options_.subtract) {
      for (const auto& entry : saved_) stays(entry.first);
      return {};
    }
    for (const auto& [name, leaf] : saved_) STELE_TRY(replace_module(name, leaf));
    return {};
  }

  Status replace_module(const std::string& name, const LeafView& leaf) {
    STELE_TRY(check_not_in_tied_module(name));
    if (config_.keeps_ties()) return replace_copy(name, leaf);
    STELE_TRY(untie(name));
    const auto at = find(name);
    if (!at) {  // a new head, or one that the model's file leaves out because it is tied
      add(name, leaf);
      return {};
    }
    return replace(*at, name, leaf);
  }

  /// Refuses tensors of a module that is tied as a whole: the names below it do not show which ties would end.
  Status check_not_in_tied_module(const std::string& name) const {
    const auto inside = [&](const std::string& module) {
      return name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.';
    };
    for (const Item& item : items_.list) {
      if (!item.target || (!inside(item.path) && !inside(*item.target))) continue;
      return Error(Errc::unsupported, "the adapter replaces a part of a module that is tied to another one")
          .path(name)
          .found(item.path + " tied to " + *item.target)
          .hint("convert the model to safetensors first");
    }
    return {};
  }

  /// Gives a tensor separate contents.
  Status untie(const std::string& name) {
    const auto at = index_.find(name);
    std::vector<Item>& list = items_.list;
    if (!at) {
      if (model_.source_of(name, index_)) model_.set_untied();
      return {};
    }
    if (list[*at].target) {
      const auto target = index_.find(*list[*at].target);
      if (!target || !list[*target].is_tensor()) return {};
      notes_.push_back(name + ": no longer tied to " + *list[*at].target + " (modules_to_save)");
      list[*at].from = list[*target].from;
      list[*at].node = list[*target].node;
      list[*at].target.reset();
      model_.set_untied();
      return {};
    }
    std::optional<std::size_t> heir;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].target != name) continue;
      model_.set_untied();
      notes_.push_back(list[i].path + ": no longer tied to " + name + " (modules_to_save)");
      if (heir) {
        list[i].target = list[*heir].path;
        continue;
      }
      heir = i;
      list[i].from = list[*at].from;
      list[i].node = list[*at].node;
      list[i].target.reset();
    }
    return heir ? Status() : untie_absent_head(name, *at);
  }

  /// If the model's file leaves out its head because it is the embedding `name`, adds the head.
  Status untie_absent_head(const std::string& name, std::size_t at) {
    const auto present = [&](std::string_view head) { return index_.find(head) || is_saved(head); };
    STELE_TRY_ASSIGN(const auto head, model_.absent_head_of(name, present));
    if (!head) return {};
    Item item = items_.list[at];
    item.path = *head;
    added_.push_back(std::move(item));
    model_.set_untied();
    notes_.push_back(*head + ": no longer tied to " + name + " (modules_to_save)");
    return {};
  }
  bool is_saved(std::string_view name) const {
    return std::any_of(saved_.begin(), saved_.end(), [&](const auto& entry) { return entry.first == name; });
  }

  void add(const std::string& name, const LeafView& leaf) {
    Item item;
    item.path = name;
    item.from = adapter_.data().get();
    item.node = leaf.node();
    added_.push_back(std::move(item));
    notes_.push_back(name + ": new, from the adapter (modules_to_save)");
  }

  /// Replaces a tensor that PEFT does not copy: a bias, or the weight of an embedding. Tied tensors change, too.
  Status replace_copy(const std::string& name, const LeafView& leaf) {
    const auto at = find_or_source(name);
    if (!at) return missing(name);
    if (options_.subtract) return stays(name), Status();
    return replace(*at, name, leaf);
  }
  void stays(const std::string& name) { notes_.push_back(name + ": the adapter replaced it, and so it stays"); }

  /// The result has the dtype of the model, as in PEFT.
  Status replace(std::size_t at, const std::string& name, const LeafView& leaf) {
    const LeafView own = items_.list[at].leaf();
    if (!same_shape(own, leaf)) {
      return Error(Errc::shape_mismatch, "a tensor of the adapter has another shape than the model's")
          .path(name)
          .expected(to_string(own.shape()))
          .found(to_string(leaf.shape()));
    }
    if (own.dtype() != leaf.dtype() && !(is_plain_float(own.dtype()) && is_plain_float(leaf.dtype()))) {
      return Error(Errc::dtype_mismatch, "a tensor of the adapter has another dtype than the model's")
          .path(name)
          .expected(stele::name(own.dtype()))
          .found(stele::name(leaf.dtype()));
    }
    change(at).from = leaf;
    return {};
  }

  Status add_product(const std::string& module, const Pair& pair) {
    if (!pair.a || !pair.b) {
      return Error(Errc::malformed, "the adapter has only one of a pair of matrices").path(module);
    }
    const std::string name = module + ".weight";
    STELE_TRY_ASSIGN(const std::size_t at, floats(name));
    const auto shape = items_.list[at].leaf().shape(), sa = pair.a->shape(), sb = pair.b->shape();
    Product product{*pair.a, *pair.b};
    const bool matrices = shape.size() == 2 && sa.size() == 2 && sb.size() == 2 && sa[0] == sb[1] && sa[0] != 0;
    const bool straight = matrices && shape[0] == sb[0] && shape[1] == sa[1];
    const bool turned = matrices && shape[0] == sa[1] && shape[1] == sb[0];
    if (pair.embedding ? !turned : !straight && !turned) {
      return Error(Errc::shape_mismatch, "the matrices of the adapter do not fit the weight")
          .path(name)
          .expected(to_string(shape))
          .found(to_string(sb) + " times " + to_string(sa));
    }
    product.transposed = !straight || pair.embedding;
    if (straight && turned && !pair.embedding) {
      STELE_TRY_ASSIGN(product.transposed, is_conv1d(module));
    }
    product.rank = sa[0];
    product.scale = config_.scale(module, product.rank);
    if (options_.subtract) product.scale = -product.scale;
    change(at).products.push_back(product);
    return {};
  }

  /// Returns true if a square weight belongs to a Conv1D, whose weights are [in, out], and not to a Linear.
  Result<bool> is_conv1d(const std::string& module) const {
    const auto listed = [&](const std::vector<std::string>& patterns) {
      return std::any_of(patterns.begin(), patterns.end(), [&](const auto& p) { return matches(p, module); });
    };
    const bool conv1d = listed(options_.conv1d), linear = listed(options_.linear);
    if (conv1d != linear) return conv1d;
    if (conv1d) return Error(Errc::invalid_argument, "a layer is both a Conv1D and a Linear").path(module);
    if (!index_.find(module + ".bias")) return false;  // a Conv1D has one
    if (const auto known = model_.conv1d(module)) return *known;
    // PEFT stores the orientation of the last layer that it visited. It applies to all layers, unless the model has
    // layers of both classes.
    if (!model_.has_biased(items_, index_, !config_.fan_in_fan_out())) return config_.fan_in_fan_out();
    return Error(Errc::unsupported, "a square weight may be that of a Conv1D [in, out] or of a Linear [out, in]")
        .path(module)
        .found("a model with both")
        .hint("name the layer in LoraOptions::conv1d or LoraOptions::linear");
  }

  Status add_bias(const std::string& module, const LeafView& leaf) {
    const std::string name = module + ".bias";
    const auto pair = pairs_.find(module);
    if (pair == pairs_.end() || !pair->second.b) {
      return Error(Errc::malformed, "the adapter has a bias without matrices").path(module);
    }
    STELE_TRY_ASSIGN(const std::size_t at, floats(name));
    const LeafView own = items_.list[at].leaf();
    if (own.shape().size() != 1 || !same_shape(own, leaf)) {
      return Error(Errc::shape_mismatch, "a bias of the adapter has another shape than the model's")
          .path(name)
          .expected(to_string(own.shape()))
          .found(to_string(leaf.shape()));
    }
    const double scale = config_.scale(module, pair->second.b->shape().back());
    change(at).addends.push_back({leaf, options_.subtract ? -scale : scale});
    return {};
  }

  /// Sets the rows of trainable_token_indices.
  Status set_rows(const std::string& module, const LeafView& leaf) {
    const std::string name = module + ".weight";
    STELE_TRY_ASSIGN(const std::size_t at, floats(name));
    STELE_TRY_ASSIGN(auto numbers, config_.tokens(module));
    const auto shape = items_.list[at].leaf().shape(), rows = leaf.shape();
    if (shape.size() != 2 || rows.size() != 2 || rows[1] != shape[1] || rows[0] != numbers.size()) {
      return Error(Errc::shape_mismatch, "the rows of the adapter do not fit the weight")
          .path(name)
          .expected(std::to_string(numbers.size()) + " rows of " + to_string(shape))
          .found(to_string(rows));
    }
    for (const std::uint64_t number : numbers) {
      if (number >= shape[0]) {
        return Error(Errc::out_of_range, "a trained token is not a row of the weight")
            .path(name)
            .expected("less than " + std::to_string(shape[0]))
            .found(std::to_string(number));
      }
    }
    if (options_.subtract) {
      notes_.push_back(name + ": the adapter replaced " + std::to_string(numbers.size()) + " rows, and so they stay");
      return {};
    }
    Change& changed = change(at);
    if (!changed.products.empty()) {
      return Error(Errc::unsupported, "the adapter has both matrices and rows for a weight").path(name);
    }
    changed.rows.push_back({leaf, std::move(numbers)});
    return {};
  }

  Result<Snapshot> finish() {
    for (auto& [at, change] : changes_) {
      const LeafView own = items_.list[at].leaf();
      if (change->replaces_only()) {
        const LeafView& from = change->from;
        items_.list[at].derived = DerivedLeaf{from.dtype(), Shape(from.shape()), from.byte_size(), from.provider()};
        continue;
      }
      const auto bytes = byte_length(change->dtype, own.size());
      items_.list[at].derived = DerivedLeaf{change->dtype, Shape(own.shape()), *bytes, {&changed_ops, change.get(), 0}};
      items_.keepers.push_back(change);
    }
    items_.list.insert(items_.list.end(), added_.begin(), added_.end());
    items_.keepers.push_back(adapter_.data());
    STELE_TRY_ASSIGN(items_.beside, model_.side_files(items_.beside, notes_));
    STELE_TRY_ASSIGN(const Snapshot merged, items_.build());
    auto data = derived_data(merged);
    data->notes = std::move(notes_);
    return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
  }

  Change& change(std::size_t at) {
    const auto [found, fresh] = changes_.try_emplace(at);
    if (fresh) {
      const LeafView own = items_.list[at].leaf();
      found->second = std::make_shared<Change>(Change{own, own.dtype()});
      if (!own.shape().empty()) found->second->columns = std::max<std::uint64_t>(own.shape().back(), 1);
    }
    return *found->second;
  }

  /// Returns the tensor of a name, or of the name that it is tied to.
  std::optional<std::size_t> find(const std::string& name) const {
    auto at = index_.find(name);
    if (at && items_.list[*at].target) at = index_.find(*items_.list[*at].target);
    return at && items_.list[*at].is_tensor() ? at : std::nullopt;
  }
  /// Also returns the embedding that an absent head is tied to.
  std::optional<std::size_t> find_or_source(const std::string& name) const {
    const auto at = find(name);
    return at ? at : model_.source_of(name, index_);
  }
  Result<std::size_t> floats(const std::string& name) const {
    const auto at = find_or_source(name);
    if (!at) return missing(name);
    const DType dtype = items_.list[*at].leaf().dtype();
    if (is_plain_float(dtype)) return *at;
    return Error(Errc::dtype_mismatch, "only floats can be changed")
        .path(name)
        .found(stele::name(dtype))
        .hint("convert the model to floats first");
  }
  static Error missing(const std::string& name) {
    const char* const hint = is_head(name) ? "if the model's head is its embedding, pass the folder whose config.json "
                                             "has tie_word_embeddings: true"
                                           : "";
    return Error(Errc::not_found, "the model has no tensor for a part of the adapter").path(name).hint(hint);
  }

  const Snapshot& adapter_;
  LoraConfig config_;
  const LoraOptions& options_;
  Items items_;
  ItemIndex index_;
  ModelFacts model_;
  std::vector<std::string> notes_;
  std::map<std::string, Pair> pairs_;                       // by module
  std::vector<std::pair<std::string, LeafView>> biases_;    // by module
  std::vector<std::pair<std::string, LeafView>> tokens_;    // by module
  std::vector<std::pair<std::string, LeafView>> saved_;     // tensors of modules_to_save
  std::vector<std::pair<std::string, LeafView>> copies_;    // other tensors of the model
  std::map<std::size_t, std::shared_ptr<Change>> changes_;  // by item
  std::vector<Item> added_;
};

}  // namespace
}  // namespace detail::lora

Result<Snapshot> merge_lora(const Snapshot& model, const Snapshot& adapter, const Value& config,
                            const LoraOptions& options) {
  return detail::guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(auto read, detail::lora::LoraConfig::of(config));
    STELE_TRY_ASSIGN(auto facts, detail::lora::ModelFacts::of(model, read));
    STELE_TRY_ASSIGN(detail::Items items, detail::Items::of(model));
    return detail::lora::Merge(adapter, std::move(read), std::move(facts), options, std::move(items)).run();
  });
}

Result<Snapshot> merge_lora(const Snapshot& model, const Snapshot& adapter, const Value& config, bool subtract) {
  return merge_lora(model, adapter, config, LoraOptions{.subtract = subtract});
}

}  // namespace stele::inline v0
