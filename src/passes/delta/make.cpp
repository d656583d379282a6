#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/meter.hpp"
#include "passes/delta/delta.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"
#include "stele/composite.hpp"
#include "stele/expansion.hpp"

namespace stele::inline v0 {
namespace detail::delta {
namespace {

constexpr std::size_t max_chain = 256;

Snapshot finished(std::unique_ptr<SnapshotData> data) {
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

/// Returns the tensors that files store. Errors: invalid_argument, for a delta.
Result<Snapshot> stored(const Snapshot& snapshot) {
  STELE_TRY(not_a_delta(*snapshot.data()));
  return split_composites(snapshot);
}

bool same_type(const LeafView& a, DType dtype, std::span<const Extent> shape, std::uint64_t bytes) {
  return a.dtype() == dtype && a.byte_size() == bytes &&
         std::equal(a.shape().begin(), a.shape().end(), shape.begin(), shape.end());
}

/// Sets a leaf of a delta to its encoding.
void set_encoded(SnapshotData& data, std::size_t leaf, const Coding& coding, std::uint64_t sparse_bytes,
                 const Provider& provider) {
  if (coding.encoding == Encoding::xored) {
    return set_leaf(data, leaf, coding.dtype, coding.shape.span(), coding.bytes, provider, value_of(coding));
  }
  const Extent extent = coding.encoding == Encoding::sparse ? sparse_bytes : 0;
  set_leaf(data, leaf, DType::u8, std::span(&extent, 1), extent, provider, value_of(coding));
}

/// Makes the delta between two models.
class Maker {
 public:
  Maker(Snapshot base, Snapshot next, const LoadOptions& options)
      : base_(std::move(base)), next_(std::move(next)), options_(options) {}

  Result<Snapshot> run() {
    STELE_TRY_ASSIGN(base_names_, Names::of(base_));
    STELE_TRY_ASSIGN(next_names_, Names::of(next_));
    STELE_TRY(check_expansion(base_));
    STELE_TRY(check_expansion(next_));
    pair_by_name();
    STELE_TRY(compare_all());
    STELE_TRY(hash_rest_of_base());
    const LeafPaths paths(*next_.data());
    pair_by_content();
    auto data = derived_data(next_);
    auto encoded = std::make_shared<Encoded>(pairs_.size());
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      Pair& pair = pairs_[i];
      if (pair.base == no_index) continue;
      const LeafView leaf = next_.leaf(i);
      Coding coding{pair.result.encoding, pair.result.hash,    pair.result.base_hash, {},
                    leaf.dtype(),         Shape(leaf.shape()), leaf.byte_size()};
      if (pair.name != paths[i]) coding.from = pair.name;
      Provider provider = zeros();
      if (coding.encoding != Encoding::same) {
        provider = encoded->add({base_.leaf(pair.base), leaf, coding.encoding, std::move(pair.result.blocks)});
      }
      set_encoded(*data, i, coding, pair.result.sparse_bytes, provider);
    }
    std::vector<std::uint64_t> hashes(pairs_.size());
    for (std::size_t i = 0; i < hashes.size(); ++i) hashes[i] = pairs_[i].result.hash;
    STELE_TRY_ASSIGN(data->metadata[key],
                     text_of({base_names_.digest(base_, &base_hashes_), next_names_.digest(next_, &hashes),
                              base_names_.digest(base_, nullptr)}));
    data->keepers.push_back(encoded);
    data->keepers.push_back(base_.data());
    data->in_order = data->in_order || base_.in_order();
    data->capacity = 0;
    data->type = nullptr;
    return finished(std::move(data));
  }

 private:
  struct Pair {
    std::uint32_t base = no_index;  // a leaf
    std::string name;               // in the base
    Comparison result;
  };

  void pair_by_name() {
    pairs_.resize(next_.leaf_count());
    for (const Named& named : next_names_.list()) {
      Pair& pair = pairs_[named.leaf];
      const auto found = base_names_.find(named.path);
      if (pair.base != no_index || !found) continue;
      const LeafView leaf = next_.leaf(named.leaf);
      if (!same_type(base_.leaf(*found), leaf.dtype(), leaf.shape(), leaf.byte_size())) continue;
      pair.base = *found;
      pair.name = named.path;
    }
  }

  Status compare_all() {
    Meter meter(options_.progress, next_.byte_size());
    const bool in_order = base_.in_order() || next_.in_order();
    base_.will_read();
    next_.will_read();
    return each_leaf(pairs_.size(), options_, in_order, [&](std::size_t i, ReadContext& context) -> Status {
      const LeafView leaf = next_.leaf(i);
      Pair& pair = pairs_[i];
      if (pair.base == no_index) {
        STELE_TRY_ASSIGN(pair.result.hash, hash_of(leaf, context));
        return meter.add(leaf.byte_size());
      }
      const LeafView base = base_.leaf(pair.base);
      const auto old = stored_hash(base);
      auto known = stored_hash(leaf);
      if (old && !known && !leaf.view().empty()) {  // hashing memory costs less than reading the base
        STELE_TRY_ASSIGN(known, hash_of(leaf, context));
      }
      if (known && old && *known == *old) {
        pair.result.hash = pair.result.base_hash = *known;
        return meter.add(leaf.byte_size());
      }
      auto result = compare(base, leaf, context);
      if (!result) return with_path(std::move(result).error(), leaf);
      pair.result = *std::move(result);
      if (old && *old != pair.result.base_hash) {
        return Error(Errc::checksum, "the tensor's hash differs from that in its file").path(base.path());
      }
      return meter.add(leaf.byte_size());
    });
  }

  Status hash_rest_of_base() {
    base_hashes_.resize(base_.leaf_count());
    std::vector<bool> known(base_.leaf_count());
    for (const Pair& pair : pairs_) {
      if (pair.base == no_index) continue;
      base_hashes_[pair.base] = pair.result.base_hash;
      known[pair.base] = true;
    }
    return each_leaf(known.size(), options_, base_.in_order(), [&](std::size_t i, ReadContext& context) -> Status {
      if (known[i]) return {};
      STELE_TRY_ASSIGN(base_hashes_[i], hash_of(base_.leaf(i), context));
      return {};
    });
  }

  /// Finds the old names of tensors that are only renamed.
  void pair_by_content() {
    using Content = std::tuple<std::uint64_t, DType, std::string>;
    std::map<Content, const Named*> gone;
    for (const Named& named : base_names_.list()) {
      if (next_names_.find(named.path)) continue;
      const LeafView leaf = base_.leaf(named.leaf);
      gone.emplace(Content(base_hashes_[named.leaf], leaf.dtype(), to_string(leaf.shape())), &named);
    }
    for (std::size_t i = 0; i < pairs_.size() && !gone.empty(); ++i) {
      Pair& pair = pairs_[i];
      const LeafView leaf = next_.leaf(i);
      if (pair.base != no_index || leaf.byte_size() == 0) continue;
      const auto found = gone.find(Content(pair.result.hash, leaf.dtype(), to_string(leaf.shape())));
      if (found == gone.end() || base_.leaf(found->second->leaf).byte_size() != leaf.byte_size()) continue;
      pair.base = found->second->leaf;
      pair.name = found->second->path;
      pair.result.base_hash = pair.result.hash;
    }
  }

  Snapshot base_, next_;
  const LoadOptions& options_;
  Names base_names_, next_names_;
  std::vector<Pair> pairs_;  // one for each leaf of next_
  std::vector<std::uint64_t> base_hashes_;
};

Result<Snapshot> applied(const Snapshot& base, const Snapshot& delta) {
  STELE_TRY_ASSIGN(const Description description, description_of(delta));
  STELE_TRY_ASSIGN(const Names names, Names::of(base));
  const auto wrong = [](const char* text, const std::string& expected, const std::string& found) {
    return Error(Errc::checksum, text).expected(expected).found(found);
  };
  if (std::string found = names.digest(base, nullptr); found != description.names) {
    return wrong("the model is not the base of the delta: its tensors have other names, dtypes or shapes",
                 description.names, found);
  }
  std::vector<std::uint64_t> hashes(base.leaf_count());
  bool known = true;
  std::size_t chain = 0;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const LeafView leaf = base.leaf(i);
    const auto hash = stored_hash(leaf);
    known = known && hash.has_value();
    hashes[i] = hash.value_or(0);
    chain = std::max(chain, Decoded::chain_of(leaf));
  }
  if (known) {
    if (std::string found = names.digest(base, &hashes); found != description.base) {
      return wrong("the model is not the base of the delta: it has other weights", description.base, found);
    }
  }
  if (chain >= max_chain) {
    return Error(Errc::limit, "too many deltas on each other")
        .expected("at most " + std::to_string(max_chain))
        .hint("join them with merge_deltas() or `stele compact`");
  }
  auto data = derived_data(delta);
  auto decoded = std::make_shared<Decoded>(delta.leaf_count(), chain + 1);
  const LeafPaths paths(*delta.data());
  std::vector<std::uint64_t> next(delta.leaf_count());
  bool all_known = true;
  for (std::size_t i = 0; i < delta.leaf_count(); ++i) {
    const LeafView leaf = delta.leaf(i);
    STELE_TRY_ASSIGN(Coding coding, coding_of(leaf));
    if (coding.encoding == Encoding::plain) {
      const auto hash = stored_hash(leaf);
      all_known = all_known && hash.has_value();
      next[i] = hash.value_or(0);
      continue;
    }
    next[i] = coding.hash;
    std::string path(paths[i]);
    const auto number = names.find(coding.from.empty() ? path : coding.from);
    const auto contradicts = [&](const char* text) { return Error(Errc::malformed, text).path(path); };
    if (!number) return contradicts("the base has no tensor with the name that the delta has for it");
    const LeafView from = base.leaf(*number);
    if (!same_type(from, coding.dtype, coding.shape.span(), coding.bytes)) {
      return contradicts("the base's tensor has another dtype or shape than the delta");
    }
    const auto hash = stored_hash(from);
    if (hash && *hash != coding.base_hash) {
      return Error(Errc::checksum, "the tensor is not that of the delta's base").path(path);
    }
    if (coding.encoding == Encoding::same && coding.hash != coding.base_hash) {
      return contradicts("an unchanged tensor has two hashes");
    }
    Provider provider = from.provider();
    if (coding.encoding != Encoding::same || !hash) {
      provider = decoded->add(
          {coding.encoding, from, leaf, coding.bytes, coding.dtype, coding.hash, coding.base_hash, std::move(path)});
    }
    set_leaf(*data, i, coding.dtype, coding.shape.span(), coding.bytes, provider, {});
  }
  data->metadata.erase(key);
  data->keepers.push_back(decoded);
  data->keepers.push_back(base.data());
  data->beside = base.data()->beside;
  for (const std::string& part : base.data()->left_out) {  // a graph, for example, is in neither
    const auto& parts = data->left_out;
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) data->left_out.push_back(part);
  }
  data->in_order = data->in_order || base.in_order();
  const std::uint64_t of_base = base.data()->capacity, of_delta = delta.data()->capacity;
  data->capacity =
      of_base == 0 && of_delta == 0 ? 0 : std::max(of_base, base.byte_size()) + std::max(of_delta, delta.byte_size());
  const Snapshot result = finished(std::move(data));
  if (all_known) {
    STELE_TRY_ASSIGN(const Names result_names, Names::of(result));
    if (std::string found = result_names.digest(result, &next); found != description.next) {
      return wrong("the delta lacks tensors, or has others than it had", description.next, found);
    }
  }
  return join_composites(result);
}

/// Joins deltas that follow each other.
class Merger {
 public:
  Merger(std::span<const Snapshot> deltas, const LoadOptions& options)
      : deltas_(deltas.begin(), deltas.end()), options_(options) {}

  Result<Snapshot> run() {
    if (deltas_.empty()) return Error(Errc::invalid_argument, "there is no delta to join");
    STELE_TRY(check_order());
    if (deltas_.size() == 1) return deltas_.front();
    STELE_TRY(find_tensors());
    STELE_TRY(compare_joined());
    const Snapshot& last = deltas_.back();
    auto data = derived_data(last);
    auto decoded = std::make_shared<Decoded>(tensors_.size(), 1);
    auto encoded = std::make_shared<Encoded>(joined_of_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      Tensor& t = tensors_[i];
      const Coding& coding = t.coding;
      if (coding.encoding == Encoding::plain) continue;  // new in the last delta
      if (t.is_new) {
        Provider provider = t.parts.front().leaf.provider();
        if (t.joined != no_index) {
          provider = decoded->add({Encoding::same, changes_.leaf(t.joined), last.leaf(i), coding.bytes, coding.dtype,
                                   coding.hash, coding.hash, last.leaf(i).path()});
        }
        set_leaf(*data, i, coding.dtype, coding.shape.span(), coding.bytes, provider, {});
        continue;
      }
      Coding joined = coding;
      joined.base_hash = t.base_hash;
      joined.from = t.from;
      joined.encoding = Encoding::same;
      std::uint64_t sparse_bytes = 0;
      Provider provider = zeros();
      if (t.joined != no_index) {
        Comparison& result = results_[t.joined];
        joined.encoding = result.encoding;
        sparse_bytes = result.sparse_bytes;
        if (joined.encoding != Encoding::same) {
          provider =
              encoded->add({zeros_.leaf(t.joined), changes_.leaf(t.joined), result.encoding, std::move(result.blocks)});
        }
      } else if (!t.parts.empty()) {
        const Joined::Part& part = t.parts.front();
        joined.encoding = part.encoding;
        sparse_bytes = part.leaf.byte_size();
        provider = part.leaf.provider();
      }
      set_encoded(*data, i, joined, sparse_bytes, provider);
    }
    STELE_TRY_ASSIGN(data->metadata[key],
                     text_of({descriptions_.front().base, descriptions_.back().next, descriptions_.front().names}));
    data->keepers.push_back(decoded);
    data->keepers.push_back(encoded);
    for (const Snapshot& s : {zeros_, changes_}) data->keepers.push_back(s.data());
    for (const Snapshot& delta : deltas_) {
      data->keepers.push_back(delta.data());
      data->in_order = data->in_order || delta.in_order();
    }
    data->capacity = 0;
    return finished(std::move(data));
  }

 private:
  struct Tensor {
    Coding coding;                    // the coding in the last delta
    std::vector<Joined::Part> parts;  // the changes of the deltas, in the order of the deltas
    bool is_new = false;              // the first part has the tensor itself
    std::uint64_t base_hash = 0;
    std::string from;                 // path in the base; empty: the same path
    std::uint32_t joined = no_index;  // number in joined_of_, if it has several parts
  };

  Status check_order() {
    for (const Snapshot& delta : deltas_) {
      STELE_TRY_ASSIGN(Description next, description_of(delta));
      if (!descriptions_.empty() && descriptions_.back().next != next.base) {
        return Error(Errc::checksum, "a delta does not follow the one before it")
            .expected(descriptions_.back().next)
            .found(next.base);
      }
      descriptions_.push_back(std::move(next));
    }
    return {};
  }

  Status find_tensors() {
    std::vector<Names> names;  // the names in each delta except the last
    for (std::size_t i = 0; i + 1 < deltas_.size(); ++i) {
      STELE_TRY_ASSIGN(Names own, Names::of(deltas_[i]));
      names.push_back(std::move(own));
    }
    std::vector<std::unique_ptr<LeafPaths>> paths;
    for (const Snapshot& delta : deltas_) paths.push_back(std::make_unique<LeafPaths>(*delta.data()));
    tensors_.resize(deltas_.back().leaf_count());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      Tensor& t = tensors_[i];
      STELE_TRY_ASSIGN(t.coding, coding_of(deltas_.back().leaf(i)));
      Coding coding = t.coding;
      std::size_t leaf = i;
      for (std::size_t d = deltas_.size();;) {
        const LeafView view = deltas_[--d].leaf(leaf);
        if (coding.encoding != Encoding::same) add_part(t, coding.encoding, view);
        t.is_new = coding.encoding == Encoding::plain;
        if (t.is_new) break;
        const std::string path((*paths[d])[leaf]);
        const std::string& before = coding.from.empty() ? path : coding.from;
        t.base_hash = coding.base_hash;
        if (d == 0) {
          if (before != (*paths.back())[i]) t.from = before;
          break;
        }
        const auto number = names[d - 1].find(before);
        if (!number) return Error(Errc::malformed, "a delta lacks a tensor of the one that follows it").path(path);
        STELE_TRY_ASSIGN(Coding older, coding_of(deltas_[d - 1].leaf(*number)));
        if (older.dtype != coding.dtype || older.bytes != coding.bytes || !(older.shape == coding.shape)) {
          return Error(Errc::malformed, "the deltas have other dtypes or shapes for one tensor").path(path);
        }
        if (older.encoding != Encoding::plain && older.hash != coding.base_hash) {
          return Error(Errc::malformed, "the deltas have other hashes for one tensor").path(path);
        }
        leaf = *number;
        coding = std::move(older);
      }
      std::reverse(t.parts.begin(), t.parts.end());
      if (t.parts.size() < 2) continue;
      t.joined = static_cast<std::uint32_t>(joined_of_.size());
      joined_of_.push_back(i);
    }
    return {};
  }

  /// Adds the changes of a leaf: the leaf itself, or the leaves of a joined leaf.
  static void add_part(Tensor& t, Encoding encoding, const LeafView& leaf) {
    const Encoded::Leaf* const encoded = Encoded::of(leaf);
    const Joined::Leaf* const joined = encoded != nullptr ? Joined::of(encoded->next) : nullptr;
    if (joined == nullptr) {
      t.parts.push_back({encoding, leaf});
    } else {
      t.parts.insert(t.parts.end(), joined->parts.rbegin(), joined->parts.rend());
    }
  }

  /// Returns a snapshot with a leaf for each tensor of joined_of_.
  template <class ProviderOf>
  Snapshot leaves(std::shared_ptr<const void> owner, const ProviderOf& provider_of) const {
    SnapshotBuilder builder;
    builder.begin(NodeKind::list, "");
    for (std::size_t n = 0; n < joined_of_.size(); ++n) {
      const Coding& coding = tensors_[joined_of_[n]].coding;
      builder.tensor(SnapshotBuilder::Name::element(static_cast<std::uint32_t>(n)), coding.dtype, coding.shape.span(),
                     coding.bytes, provider_of(n));
    }
    builder.end();
    builder.keep(std::move(owner));
    return builder.finish();
  }

  Status compare_joined() {
    zeros_ = leaves(nullptr, [](std::size_t) { return zeros(); });
    auto joined = std::make_shared<Joined>(joined_of_.size());
    changes_ = leaves(joined, [&](std::size_t n) {
      Tensor& t = tensors_[joined_of_[n]];
      return joined->add({t.parts, t.coding.bytes, t.coding.dtype});
    });
    results_.resize(joined_of_.size());
    Meter meter(options_.progress, changes_.byte_size());
    const bool in_order = std::any_of(deltas_.begin(), deltas_.end(), [](const Snapshot& d) { return d.in_order(); });
    return each_leaf(joined_of_.size(), options_, in_order, [&](std::size_t n, ReadContext& context) -> Status {
      if (tensors_[joined_of_[n]].is_new) return meter.add(changes_.leaf(n).byte_size());
      auto result = compare(zeros_.leaf(n), changes_.leaf(n), context);
      if (!result) return with_path(std::move(result).error(), deltas_.back().leaf(joined_of_[n]));
      results_[n] = *std::move(result);
      return meter.add(changes_.leaf(n).byte_size());
    });
  }

  std::vector<Snapshot> deltas_;
  const LoadOptions& options_;
  std::vector<Description> descriptions_;
  std::vector<Tensor> tensors_;         // one for each leaf of the last delta
  std::vector<std::size_t> joined_of_;  // leaves of the last delta
  Snapshot zeros_, changes_;            // a leaf for each of joined_of_
  std::vector<Comparison> results_;
};

}  // namespace

Status check_delta(const Snapshot& snapshot) {
  STELE_TRY(description_of(snapshot));
  struct Discard final : PieceSink {
    Status piece(std::span<const std::byte>) override { return {}; }
  };
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    STELE_TRY_ASSIGN(const Coding coding, coding_of(leaf));
    if (coding.encoding != Encoding::sparse) continue;
    SparseReader reader(leaf, coding.bytes, coding.dtype);
    ReadContext context;
    ReadContext::Piece piece(context);
    for (std::uint64_t at = 0; at < coding.bytes;) {
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(coding.bytes - at, ReadContext::piece_size));
      STELE_TRY(with_path(reader.patch(at, {piece.data(), size}, context), leaf));
      at += size;
    }
  }
  return {};
}

}  // namespace detail::delta

namespace deltas = detail::delta;

std::optional<DeltaInfo> delta_info(const Snapshot& snapshot) {
  const auto description = deltas::description_of(snapshot);
  if (!description) return std::nullopt;
  DeltaInfo info{description->base, description->next};
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const auto coding = deltas::coding_of(snapshot.leaf(i));
    if (!coding) return std::nullopt;
    info.bytes += snapshot.leaf(i).byte_size();
    if (!coding->from.empty()) ++info.renamed;
    switch (coding->encoding) {
      case deltas::Encoding::plain:
        ++info.added;
        break;
      case deltas::Encoding::same:
        ++info.unchanged;
        break;
      default:
        ++info.changed;
    }
  }
  return info;
}

Result<std::string> weights_digest(const Snapshot& snapshot, const LoadOptions& options) {
  return detail::guarded([&]() -> Result<std::string> {
    STELE_TRY_ASSIGN(const Snapshot stored, deltas::stored(snapshot));
    STELE_TRY_ASSIGN(const auto names, deltas::Names::of(stored));
    STELE_TRY_ASSIGN(const auto hashes, deltas::hashes_of(stored, options));
    return names.digest(stored, &hashes);
  });
}

Result<Snapshot> make_delta(const Snapshot& base, const Snapshot& next, const LoadOptions& options) {
  return detail::guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(Snapshot from, deltas::stored(base));
    STELE_TRY_ASSIGN(Snapshot to, deltas::stored(next));
    return deltas::Maker(std::move(from), std::move(to), options).run();
  });
}

Result<Snapshot> apply_delta(const Snapshot& base, const Snapshot& delta) {
  return detail::guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(const Snapshot from, deltas::stored(base));
    return deltas::applied(from, delta);
  });
}

Result<Snapshot> merge_deltas(std::span<const Snapshot> all, const LoadOptions& options) {
  return detail::guarded([&] { return deltas::Merger(all, options).run(); });
}

Result<Snapshot> merge_deltas(const Snapshot& first, const Snapshot& second, const LoadOptions& options) {
  const Snapshot both[] = {first, second};
  return merge_deltas(both, options);
}

}  // namespace stele::inline v0
