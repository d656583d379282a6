// Records of Burn's optimizers. A record is a map from the ids of parameters to their states:
//
//  1. Up to 0.21 ID.V1.RankN.FIELD: the id as a string, a version, the parameter's rank, then the fields of the state.
//     An Option that is None is null. Tensors are bare.
//  2. From 0.22 on, in Burnpack, ID.FIELD: the id in decimal. The scalars of the state include ID.__rank; the metadata
//     map ID → path. An Option that is None is left out. Tensors have the id of their parameter.
#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "passes/untie.hpp"
#include "record.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"
#include "tokens.hpp"

namespace stele::inline v0 {
namespace detail::burn {
namespace {

constexpr std::string_view rank_key = "__rank";

struct Parameter {
  std::vector<std::string> paths;  // the first path of a tied parameter owns it
  std::optional<ParamId> own;      // the parameter's id; without it, recorders make one
  ParamId id;
  std::string text;
  std::size_t rank = 0;
};

/// The parameters of a model, in its order. Parameters with equal ids are tied, as in Rust.
class Parameters {
 public:
  Status read(const Snapshot& model) {
    return each_tensor_name(model, [&](const std::string& path, const Node& node) -> Status {
      const LeafView leaf = model.leaf(node.index);
      const std::string owner = leaf.path();
      const ParamId id = leaf.id() ? *leaf.id() : made_id(owner);
      const std::size_t i = by_id_.try_emplace({id.high, id.low}, all_.size()).first->second;
      if (i == all_.size()) {
        STELE_TRY_ASSIGN(const auto shape, shape_of(leaf));
        all_.push_back({{}, leaf.id(), id, id_text_of(leaf, owner), shape.size()});
      }
      all_[i].paths.push_back(path);
      by_path_.emplace(path, i);
      return {};
    });
  }
  std::optional<std::size_t> find(const ParamId& id) const {
    const auto found = by_id_.find({id.high, id.low});
    return found != by_id_.end() ? std::optional(found->second) : std::nullopt;
  }
  std::optional<std::size_t> find(const std::string& path) const {
    const auto found = by_path_.find(path);
    return found != by_path_.end() ? std::optional(found->second) : std::nullopt;
  }
  const std::vector<Parameter>& all() const { return all_; }

 private:
  std::vector<Parameter> all_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> by_id_;
  std::map<std::string, std::size_t> by_path_;
};

/// Removes the first segment of `path`, up to the next dot, and returns it.
std::string_view take_segment(std::string_view& path) {
  const std::string_view segment = path.substr(0, path.find('.'));
  path.remove_prefix(std::min(path.size(), segment.size() + 1));
  return segment;
}
std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(n) : std::nullopt;
}
/// Checks the rank of a state, or of one of its tensors.
Status check_rank(const Parameter& parameter, std::uint64_t found, std::string_view path) {
  if (found == parameter.rank) return {};
  return Error(Errc::shape_mismatch, "the rank of the state differs from that of its parameter")
      .path(std::string(path))
      .expected("rank " + std::to_string(parameter.rank) + " of " + parameter.paths[0])
      .found("rank " + std::to_string(found));
}
Status check_rank(const Parameter& parameter, const LeafView& leaf, std::string_view path) {
  STELE_TRY_ASSIGN(const auto shape, shape_of(leaf));
  return check_rank(parameter, shape.size(), path);
}
void add_tensor(SnapshotBuilder& to, NodeName name, const LeafView& leaf, const ParamId* id, bool bare) {
  to.tensor(name, leaf.dtype(), leaf.shape(), leaf.byte_size(), leaf.provider());
  if (id != nullptr) to.set_id(*id);
  const Annotations none;
  for (const auto& [key, value] : leaf.annotations() != nullptr ? *leaf.annotations() : none) {
    if (key != bare_note) to.annotate(key, value);
  }
  if (bare) to.annotate(std::string(bare_note), Value(true));
}

class OptimizerReader {
 public:
  OptimizerReader(const Snapshot& record, const Parameters& parameters) : record_(record), parameters_(parameters) {}

  Result<BurnOptimizer> run() {
    RunningPath paths(*record_.data());
    for (std::uint32_t i = 1; i < record_.nodes().size(); ++i) {
      const Node& node = record_.nodes()[i];
      const std::string_view path = paths.of(i);
      const bool container = node.kind >= NodeKind::module && node.kind <= NodeKind::variant;
      if (!container || node.end == i + 1) STELE_TRY(add(node, path));
    }
    for (const std::string& field : out_.fields) add_kind(field, fields_[field]);
    return std::move(out_);
  }

 private:
  using States = std::map<std::size_t, const Node*>;  // by parameter

  Status add(const Node& node, std::string_view path) {
    const auto wrong = [&] {
      return Error(Errc::malformed, "the path does not belong to an optimizer record")
          .path(std::string(path))
          .expected("ID.V1.RankN.FIELD, or ID.FIELD in Burnpack");
    };
    std::string_view field = path;
    const std::string_view text = take_segment(field);
    std::string_view rest = field;
    const bool named = take_segment(rest) == "V1" && rest.starts_with("Rank");
    const auto number = named ? std::nullopt : whole_number(text);
    const auto id = number ? ParamId::from_u64(*number) : named ? parse_id(text) : std::nullopt;
    if (!id || field.empty() || node.kind == NodeKind::alias) return wrong();
    const auto found = parameters_.find(*id);
    if (!found) {
      const auto once = record_.metadata().find(std::string(text));
      return Error(Errc::not_found, "no parameter of the model has the id")
          .path(std::string(path))
          .found(std::string(text) + (once != record_.metadata().end() ? " of " + once->second : ""));
    }
    const Parameter& parameter = parameters_.all()[*found];
    if (named) {
      field = rest;
      const auto rank = whole_number(take_segment(field).substr(4));
      if (!rank) return wrong();
      STELE_TRY(check_rank(parameter, *rank, path));
    } else if (field == rank_key) {
      const std::int64_t* rank = node.kind == NodeKind::value ? record_.value(node).as_i64() : nullptr;
      return rank != nullptr ? check_rank(parameter, static_cast<std::uint64_t>(*rank), path) : wrong();
    }
    if (node.kind == NodeKind::tensor) STELE_TRY(check_rank(parameter, record_.leaf(node.index), path));
    const auto [states, first] = fields_.try_emplace(std::string(field));
    if (first) out_.fields.emplace_back(field);
    if (states->second.emplace(*found, &node).second) return {};
    return Error(Errc::duplicate, "the parameter has two states for one field").path(std::string(path));
  }

  void add_kind(const std::string& field, const States& states) {
    SnapshotBuilder to;
    to.set_flat();
    for (const auto& [number, node] : states) {
      const Parameter& parameter = parameters_.all()[number];
      if (node->kind != NodeKind::tensor) {
        out_.values[field][parameter.paths[0]] = value_of(*node);
        continue;
      }
      const auto made = static_cast<std::uint32_t>(to.nodes().size());
      add_tensor(to, to.intern(parameter.paths[0]), record_.leaf(node->index),
                 parameter.own ? &*parameter.own : nullptr, false);
      for (std::size_t i = 1; i < parameter.paths.size(); ++i) to.alias(to.intern(parameter.paths[i]), made, true);
    }
    if (to.data().leaves.empty()) return;
    if (out_.state.empty()) to.set_metadata(metadata());  // only for the first kind, so that metadata are written once
    if (record_.in_order()) to.set_in_order();
    to.keep(record_.data());
    out_.state.set_snapshot(field, to.finish());
  }
  std::map<std::string, std::string> metadata() const {
    auto metadata = record_.metadata();
    std::erase_if(metadata, [&](const auto& entry) {
      const auto id = whole_number(entry.first);
      return id && parameters_.find(ParamId::from_u64(*id));
    });
    return metadata;
  }
  Value value_of(const Node& node) const {
    if (node.kind == NodeKind::value) return record_.value(node);
    if (node.kind == NodeKind::none) return {};
    return node.kind >= NodeKind::list && node.kind <= NodeKind::tuple ? Value(Value::List()) : Value(Value::Map());
  }

  const Snapshot& record_;
  const Parameters& parameters_;
  std::map<std::string, States> fields_;
  BurnOptimizer out_;
};

class OptimizerWriter {
 public:
  explicit OptimizerWriter(const Parameters& parameters) : parameters_(parameters), states_(parameters.all().size()) {}

  /// Collects the states of each parameter, in the order of the fields.
  Status gather(const BurnOptimizer& optimizer) {
    std::vector<std::string_view> fields(optimizer.fields.begin(), optimizer.fields.end());
    for (const auto& kind : optimizer.state.kinds()) fields.push_back(kind.first);
    for (const auto& values : optimizer.values) fields.push_back(values.first);
    std::set<std::string_view> seen;
    for (const std::string_view field : fields) {
      if (!seen.insert(field).second) continue;
      if (const Snapshot* kind = optimizer.state.find(field)) {
        STELE_TRY(each_tensor_name(*kind, [&](const std::string& path, const Node& node) {
          return add(path, {field, kind->leaf(node.index)});
        }));
        to_.keep(kind->data());
        if (kind->in_order()) to_.set_in_order();
        metadata_.insert(kind->metadata().begin(), kind->metadata().end());
      }
      const auto values = optimizer.values.find(std::string(field));
      if (values == optimizer.values.end()) continue;
      for (const auto& [path, value] : values->second) STELE_TRY(add(path, {field, std::nullopt, &value}));
    }
    return {};
  }

  Result<Snapshot> named() {
    to_.begin(NodeKind::module, "");
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (states_[i].empty()) continue;
      const Parameter& parameter = parameters_.all()[i];
      to_.begin(NodeKind::module, to_.intern(parameter.text));
      to_.begin(NodeKind::module, "V1");
      STELE_TRY(nest(to_.intern("Rank" + std::to_string(parameter.rank)), states_[i], 0));
      to_.end();
      to_.end();
    }
    to_.end();
    to_.set_unknown_kinds({.all = true});
    to_.set_metadata(std::move(metadata_));
    return to_.finish();
  }

  Result<Snapshot> flat() {
    to_.set_flat();
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (states_[i].empty()) continue;
      const Parameter& parameter = parameters_.all()[i];
      if (parameter.id.form != ParamId::Form::u64) {
        return Error(Errc::not_representable, "the id of the parameter exceeds 64 bits, the limit of Burn's optimizers")
            .path(parameter.paths[0])
            .found(parameter.text);
      }
      const std::string id = std::to_string(parameter.id.low);
      metadata_[id] = parameter.paths[0];
      to_.value(to_.intern(id + '.' + std::string(rank_key)), Value(std::uint64_t{parameter.rank}));
      for (const State& state : states_[i]) {
        // A missing field means an Option that is None. A missing element would split its list, so elements are
        // written.
        const bool element = whole_number(state.field.substr(state.field.rfind('.') + 1)).has_value();
        if (!element && state.value != nullptr && (state.value->is_null() || is_empty(*state.value))) continue;
        leaf(to_.intern(id + '.' + std::string(state.field)), state, &parameter.id);
      }
    }
    to_.set_metadata(std::move(metadata_));
    return to_.finish();
  }

 private:
  struct State {
    std::string_view field;
    std::optional<LeafView> tensor{};
    const Value* value = nullptr;   // set if the state is not a tensor
    std::string_view left = field;  // the rest of the field, for nest()
  };
  using States = std::vector<State>;

  Status add(const std::string& path, const State& state) {
    const auto found = parameters_.find(path);
    if (!found) {
      return Error(Errc::not_found, "the model has no such parameter").path(path).found(std::string(state.field));
    }
    States& states = states_[*found];
    if (!states.empty() && states.back().field == state.field) {
      if (states.back().tensor && state.tensor) return {};  // another name of a tied parameter
      return Error(Errc::duplicate, "the parameter has two states for one field")
          .path(path)
          .found(std::string(state.field));
    }
    if (state.tensor) STELE_TRY(check_rank(parameters_.all()[*found], *state.tensor, path));
    states.push_back(state);
    return {};
  }

  static bool is_empty(const Value& value) {
    return (value.as_list() != nullptr && value.as_list()->empty()) ||
           (value.as_map() != nullptr && value.as_map()->empty());
  }
  void leaf(NodeName name, const State& state, const ParamId* id) {
    if (state.tensor) {
      add_tensor(to_, name, *state.tensor, id, id == nullptr);
    } else if (state.value->is_null()) {
      to_.none(name, true);
    } else if (is_empty(*state.value)) {
      to_.begin(state.value->as_list() != nullptr ? NodeKind::list : NodeKind::module, name, true);
      to_.end();
    } else {
      to_.value(name, *state.value);
    }
  }

  /// Groups states by the next segments of their fields, in order of first use. Segments 0, 1, … make a list.
  Status nest(NodeName name, const States& states, unsigned depth) {
    if (states.size() == 1 && states[0].left.empty()) return leaf(name, states[0], nullptr), Status();
    std::vector<std::pair<std::string_view, States>> inner;
    std::map<std::string_view, std::size_t> numbers;
    for (State state : states) {
      const std::string_view segment = take_segment(state.left);
      if (segment.empty() || depth == max_depth) {
        return Error(Errc::not_representable, "the field is a prefix of another field, or has too many levels")
            .path(std::string(state.field));
      }
      const auto [found, fresh] = numbers.try_emplace(segment, inner.size());
      if (fresh) inner.push_back({segment, {}});
      inner[found->second].second.push_back(state);
    }
    std::size_t n = 0;
    const bool list =
        std::all_of(inner.begin(), inner.end(), [&](const auto& in) { return in.first == std::to_string(n++); });
    to_.begin(list ? NodeKind::list : NodeKind::module, name);
    for (std::size_t i = 0; i < inner.size(); ++i) {
      STELE_TRY(nest(list ? NodeName::element(i) : NodeName(to_.intern(inner[i].first)), inner[i].second, depth + 1));
    }
    to_.end();
    return {};
  }

  const Parameters& parameters_;
  std::vector<States> states_;  // by parameter
  SnapshotBuilder to_;
  std::map<std::string, std::string> metadata_;
};

Result<Snapshot> written(const BurnOptimizer& optimizer, const Snapshot& model,
                         Result<Snapshot> (OptimizerWriter::*form)()) {
  return guarded([&]() -> Result<Snapshot> {
    Parameters parameters;
    STELE_TRY(parameters.read(model));
    OptimizerWriter writer(parameters);
    STELE_TRY(writer.gather(optimizer));
    return (writer.*form)();
  });
}

}  // namespace
}  // namespace detail::burn

Result<BurnOptimizer> burn_optimizer(const Snapshot& record, const Snapshot& model) {
  return detail::guarded([&]() -> Result<BurnOptimizer> {
    detail::burn::Parameters parameters;
    STELE_TRY(parameters.read(model));
    return detail::burn::OptimizerReader(record, parameters).run();
  });
}
Result<Snapshot> burn_optimizer_record(const BurnOptimizer& optimizer, const Snapshot& model) {
  return detail::burn::written(optimizer, model, &detail::burn::OptimizerWriter::named);
}
Result<Snapshot> burnpack_optimizer_record(const BurnOptimizer& optimizer, const Snapshot& model) {
  return detail::burn::written(optimizer, model, &detail::burn::OptimizerWriter::flat);
}

}  // namespace stele::inline v0
