// Tensors: names, axes, order of rows and dtypes of transformers -> those of llama.cpp.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include "../concatenate.hpp"
#include "leaves/blocks.hpp"
#include "leaves/needs.hpp"
#include "parts.hpp"
#include "passes/precision.hpp"
#include "passes/transpose.hpp"
#include "snapshot/data.hpp"
#include "snapshot/items.hpp"

namespace stele::inline v0::detail::llama_cpp {
namespace {

// ---- names

/// A tensor's place in llama.cpp.
struct Place {
  const TensorRow* row;
  std::string path;                   // of an expert's tensor: that of the joined tensor
  std::vector<std::int64_t> numbers;  // the layer and the expert
  bool bias;
};

std::vector<std::string_view> segments(std::string_view path) {
  std::vector<std::string_view> all;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t dot = std::min(path.find('.', at), path.size());
    all.push_back(path.substr(at, dot - at));
    at = dot + 1;
  }
  return all;
}

/// Returns the numbers at the places of `*`; nullopt if the name does not match.
std::optional<std::vector<std::int64_t>> match(std::string_view pattern, std::span<const std::string_view> name) {
  const auto wanted = segments(pattern);
  if (wanted.size() != name.size()) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] != "*") {
      if (wanted[i] != name[i]) return std::nullopt;
      continue;
    }
    std::int64_t& number = numbers.emplace_back(0);
    const char* const end = name[i].data() + name[i].size();
    const auto [rest, error] = std::from_chars(name[i].data(), end, number);
    if (error != std::errc() || rest != end || number < 0) return std::nullopt;
  }
  return numbers;
}

std::string with_number(std::string_view pattern, std::span<const std::int64_t> numbers) {
  std::string path(pattern);
  const std::size_t star = path.find('*');
  if (star != path.npos) path.replace(star, 1, std::to_string(numbers.front()));
  return path;
}

/// GPT-2's models have a prefix that the tensors on the hub lack.
std::string_view without_prefix(std::string_view path) {
  constexpr std::string_view prefix = "transformer.";
  return path.starts_with(prefix) ? path.substr(prefix.size()) : path;
}

std::optional<Place> place_of(const Architecture& architecture, std::string_view path) {
  const auto name = segments(architecture.model_type == "gpt2" ? without_prefix(path) : path);
  const std::string_view kind = name.back();
  if (kind != "weight" && kind != "bias") return std::nullopt;
  for (const auto& rows : architecture.tensors) {
    for (const TensorRow& row : rows) {
      auto numbers = match(row.from, std::span(name).first(name.size() - 1));
      if (!numbers || (kind == "bias" && !row.bias)) continue;
      std::string to = with_number(row.to, *numbers).append(".").append(kind);
      return Place{&row, std::move(to), *std::move(numbers), kind == "bias"};
    }
  }
  return std::nullopt;
}

/// Returns true for buffers of old files, which llama.cpp computes.
bool is_buffer(std::string_view path) {
  constexpr std::string_view ends[] = {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias",
                                       ".attention.masked_bias"};
  return std::any_of(std::begin(ends), std::end(ends), [&](std::string_view end) { return path.ends_with(end); });
}

// ---- values

/// f32 vectors plus a number.
struct Shifted {
  LeafView base;
  float by;

  Status fill(std::uint64_t from, std::span<std::byte> out, ReadContext& context) const {
    STELE_TRY(base.read(from, out, context));
    for (std::size_t at = 0; at + sizeof(float) <= out.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, out.data() + at, sizeof value);
      value += by;
      std::memcpy(out.data() + at, &value, sizeof value);
    }
    return {};
  }
};
Status read_shifted(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out,
                    ReadContext& context) {
  return static_cast<const Shifted*>(at)->fill(offset, out, context);
}
void shifted_needs(const void* at, std::uint64_t, Needs& needs) { needs.add(static_cast<const Shifted*>(at)->base); }
constexpr LeafOps shifted_ops{.read = read_shifted, .needs = shifted_needs};

const std::byte* view_vector(const void* at, std::uint64_t) {
  return reinterpret_cast<const std::byte*>(static_cast<const std::vector<float>*>(at)->data());
}
constexpr LeafOps vector_ops{.view = view_vector};

/// Returns true for tensors that llama.cpp computes with as f32.
bool stays_f32(std::string_view path, std::size_t rank) {
  return rank < 2 || path.ends_with("_norm.weight") || path.ends_with("ffn_gate_inp.weight") ||
         path == "position_embd.weight";
}

class Tensors {
 public:
  Tensors(const Architecture& architecture, const Value& config, const Sizes& sizes, Report& rows)
      : is_(architecture), config_(config), sizes_(sizes), rows_(rows) {}

  Result<Snapshot> run(const Snapshot& model) {
    STELE_TRY(place(model));
    STELE_TRY(check_complete());
    STELE_TRY_ASSIGN(Snapshot now, with_new_paths(model, [&](std::string_view path, const LeafView*) {
                       const auto found = new_paths_.find(path);
                       return found != new_paths_.end() ? std::optional(found->second) : std::nullopt;
                     }));
    STELE_TRY_ASSIGN(now, in_f32(now));
    STELE_TRY_ASSIGN(now, ordered(now));
    if (is_.norms_plus_one) now = shifted(now);
    return joined(now);
  }

 private:
  /// Finds the place of each tensor.
  Status place(const Snapshot& model) {
    for (std::uint32_t i = 0; i < model.nodes().size(); ++i) {
      const NodeKind kind = model.nodes()[i].kind;
      if (kind != NodeKind::tensor && kind != NodeKind::alias) continue;
      const std::string path = model.path(i);
      if (is_buffer(path)) {
        rows_.add(Report::What::unused, path, "llama.cpp computes it");
        continue;
      }
      const auto place = place_of(is_, path);
      if (!place) return not_for_llama_cpp(path, "a tensor of " + std::string(is_.model_type), "another");
      const std::int64_t layer = place->numbers.empty() ? 0 : place->numbers[0];
      if (layer >= sizes_.layers || (place->numbers.size() > 1 && place->numbers[1] >= sizes_.experts))
        return not_for_llama_cpp(path, std::to_string(sizes_.layers) + " layers", "another number");
      if (place->row->to == "output") {
        STELE_TRY_ASSIGN(const bool tied, is_tied(path, kind == NodeKind::alias));
        if (tied) continue;
      }
      std::string to = place->path;
      if (place->numbers.size() > 1) to += "." + std::to_string(place->numbers[1]);
      if (!places_.emplace(to, *place).second)
        return Error(Errc::duplicate, "two tensors have the same name in llama.cpp").path(path).found(to);
      new_paths_.emplace(path, std::move(to));
    }
    return {};
  }

  /// Returns true if the output is the embedding, which llama.cpp then takes.
  Result<bool> is_tied(const std::string& path, bool alias) {
    if (alias || flag(config_, "tie_word_embeddings", is_.tied)) {
      if (!alias) rows_.add(Report::What::unused, path, "tied to the embedding by tie_word_embeddings");
      return true;
    }
    if (is_.tied) return not_for_llama_cpp("tie_word_embeddings", "true", "false");
    return false;
  }

  /// Checks that no tensor is missing.
  Status check_complete() const {
    for (const auto& rows : is_.tensors) {
      for (const TensorRow& row : rows) {
        if (row.optional) continue;
        const bool layered = row.to.find('*') != row.to.npos;
        const bool of_experts = std::count(row.from.begin(), row.from.end(), '*') > 1;
        for (std::int64_t layer = 0; layer < (layered ? sizes_.layers : 1); ++layer) {
          for (std::int64_t expert = 0; expert < (of_experts ? sizes_.experts : 1); ++expert) {
            std::string path = with_number(row.to, std::span(&layer, 1)) + ".weight";
            if (of_experts) path += "." + std::to_string(expert);
            if (places_.contains(path)) continue;
            return Error(Errc::missing, "not a model for llama.cpp: a tensor is missing")
                .path(path)
                .expected(std::to_string(sizes_.layers) + " layers of " + std::string(is_.model_type));
          }
        }
      }
    }
    return {};
  }

  Result<Snapshot> in_f32(const Snapshot& snapshot) {
    std::vector<DType> to;
    std::size_t vectors = 0;
    for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
      const LeafView leaf = snapshot.leaf(i);
      if (!is_plain_float(leaf.dtype())) {
        return Error(Errc::unsupported, "not a model for llama.cpp: a tensor has no floats")
            .path(leaf.path())
            .expected("f64, f32, f16 or bf16")
            .found(name(leaf.dtype()));
      }
      const bool f32 = stays_f32(leaf.path(), leaf.shape().size());
      vectors += f32 ? 1 : 0;
      to.push_back(f32 || leaf.dtype() == DType::f64 ? DType::f32 : leaf.dtype());
    }
    rows_.add(Report::What::converted, "*",
              std::to_string(vectors) + " vectors, norms and routers are f32, as llama.cpp computes with them");
    return with_dtypes(snapshot, std::move(to), {});
  }

  Result<Snapshot> with_shapes(const Snapshot& snapshot, const auto& shape_of) {
    auto data = derived_data(snapshot);
    for (std::size_t i = 0; i < data->leaves.size(); ++i) {
      const LeafView leaf = snapshot.leaf(i);
      STELE_TRY_ASSIGN(const std::vector<Extent> shape, shape_of(leaf, places_.at(leaf.path())));
      data->leaves[i].shape = static_cast<std::uint32_t>(data->extents.size());
      data->leaves[i].rank = static_cast<std::uint16_t>(shape.size());
      data->extents.insert(data->extents.end(), shape.begin(), shape.end());
    }
    return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
  }

  bool is_interleaved(const Place& place) const {
    return is_.interleaved &&
           (place.row->change == TensorRow::Change::queries || place.row->change == TensorRow::Change::keys);
  }

  /// Turns the weights of Conv1D, and moves the rows of heads: [heads, 2, half] become [heads, half, 2].
  Result<Snapshot> ordered(const Snapshot& snapshot) {
    STELE_TRY_ASSIGN(const Snapshot cut, with_shapes(snapshot, [&](const LeafView& leaf, const Place& place) {
                       return cut_shape(leaf, place);
                     }));
    STELE_TRY_ASSIGN(const Snapshot turned,
                     transpose_where(cut, [&](const LeafView& leaf) -> std::optional<std::vector<std::size_t>> {
                       const Place& place = places_.at(leaf.path());
                       if (place.row->change == TensorRow::Change::transposed && !place.bias)
                         return std::vector<std::size_t>{1, 0};
                       if (!is_interleaved(place)) return std::nullopt;
                       return place.bias ? std::vector<std::size_t>{0, 2, 1} : std::vector<std::size_t>{0, 2, 1, 3};
                     }));
    return with_shapes(turned, [&](const LeafView& leaf, const Place& place) -> Result<std::vector<Extent>> {
      std::vector<Extent> shape(leaf.shape().begin(), leaf.shape().end());
      if (is_interleaved(place)) {
        shape[2] *= shape[0] * shape[1];
        shape.erase(shape.begin(), shape.begin() + 2);
      }
      if (place.numbers.size() > 1) shape.insert(shape.begin(), 1);  // an expert
      return shape;
    });
  }

  Result<std::vector<Extent>> cut_shape(const LeafView& leaf, const Place& place) const {
    std::vector<Extent> shape(leaf.shape().begin(), leaf.shape().end());
    const bool norm = place.row->to.ends_with("norm");
    const auto bad = [&](const std::string& expected) {
      return Error(Errc::shape_mismatch, "a tensor has another shape than config.json describes")
          .path(place.path)
          .expected(expected)
          .found(to_string(leaf.shape()));
    };
    if (shape.size() != (place.bias || norm ? 1U : 2U)) return bad(place.bias || norm ? "a vector" : "a matrix");
    const auto extent = [](std::int64_t n) { return static_cast<Extent>(n); };
    if (place.row->to == "token_embd" && shape != std::vector{extent(sizes_.vocabulary), extent(sizes_.width)})
      return bad(std::to_string(sizes_.vocabulary) + " x " + std::to_string(sizes_.width));
    if (!is_interleaved(place)) return shape;
    const std::int64_t heads = place.row->change == TensorRow::Change::queries ? sizes_.heads : sizes_.key_heads;
    const Extent rows = shape[0];
    if (sizes_.head % 2 != 0 || rows % extent(sizes_.head) != 0 || rows / extent(sizes_.head) != extent(heads))
      return bad(std::to_string(heads) + " heads of " + std::to_string(sizes_.head) + " rows");
    shape[0] = extent(sizes_.head) / 2;
    shape.insert(shape.begin(), {extent(heads), 2});
    return shape;
  }

  /// transformers' norms of these models multiply by 1 + weight.
  static Snapshot shifted(const Snapshot& snapshot) {
    auto data = derived_data(snapshot);
    for (std::size_t i = 0; i < data->leaves.size(); ++i) {
      const LeafView base = snapshot.leaf(i);
      if (!base.path().ends_with("norm.weight") || base.byte_size() == 0) continue;
      auto step = std::make_shared<Shifted>(Shifted{base, 1});
      data->leaves[i].provider = {&shifted_ops, step.get(), 0};
      data->keepers.push_back(std::move(step));
    }
    return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
  }

  /// Joins the tensors of experts.
  Result<Snapshot> joined(const Snapshot& snapshot) const {
    std::map<std::string, std::vector<std::string>> parts;  // by the joined tensor
    for (const auto& [path, place] : places_) {
      if (place.numbers.size() < 2) continue;
      auto& all = parts[place.path];
      all.resize(static_cast<std::size_t>(sizes_.experts));
      all[static_cast<std::size_t>(place.numbers[1])] = path;
    }
    if (parts.empty()) return snapshot;
    std::vector<Join> joins;
    joins.reserve(parts.size());
    for (auto& [path, all] : parts) joins.push_back({std::move(all), path});
    return concatenate_each(snapshot, joins, 0);
  }

  const Architecture& is_;
  const Value& config_;
  const Sizes& sizes_;
  Report& rows_;
  std::map<std::string, Place> places_;                        // by the new path, of an expert with its number
  std::map<std::string, std::string, std::less<>> new_paths_;  // by the old path
};

}  // namespace

Result<Snapshot> tensors_of(const Architecture& architecture, const Value& config, const Sizes& sizes,
                            const Snapshot& model, Report& rows) {
  return Tensors(architecture, config, sizes, rows).run(model);
}

Snapshot vectors_of(const Factors& factors) {
  SnapshotBuilder builder;
  builder.set_flat();
  builder.begin(NodeKind::module, std::string_view());
  for (const auto& [path, numbers] : factors) {
    auto kept = std::make_shared<const std::vector<float>>(numbers);
    const Extent shape[] = {kept->size()};
    builder.tensor(builder.intern(path), DType::f32, shape, kept->size() * sizeof(float), {&vector_ops, kept.get(), 0});
    builder.keep(std::move(kept));
  }
  builder.end();
  return builder.finish();
}

bool has_names_of(const Architecture& architecture, const Snapshot& model) {
  bool layered = false;
  for (std::uint32_t i = 0; i < model.nodes().size(); ++i) {
    const NodeKind kind = model.nodes()[i].kind;
    if (kind != NodeKind::tensor && kind != NodeKind::alias) continue;
    const std::string path = model.path(i);
    if (is_buffer(path)) continue;
    const auto place = place_of(architecture, path);
    if (!place) return false;
    layered = layered || !place->numbers.empty();
  }
  return layered;
}

}  // namespace stele::inline v0::detail::llama_cpp
