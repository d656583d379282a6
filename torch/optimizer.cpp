#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "state_dict.hpp"
#include "stele/pattern.hpp"
#include "stele/record.hpp"
#include "stele/torch.hpp"

namespace stele::inline v0::torch {
namespace {

namespace optim = ::torch::optim;
using detail::libtorch::StateDict;
using optim::OptimizerOptions;
using optim::OptimizerParamState;

/// The largest number of steps that float stores exactly. Python stores steps as f32 tensors.
constexpr std::int64_t max_float_step = std::int64_t{1} << std::numeric_limits<float>::digits;
/// The largest number of steps that a file can contain: the largest that double stores exactly.
constexpr double max_step = static_cast<double>(std::int64_t{1} << std::numeric_limits<double>::digits);

constexpr std::string_view step_kind = "step";

/// A tensor or count in the optimizer state of one parameter.
struct Member {
  std::string_view kind;  // the key in Python's state
  at::Tensor* tensor = nullptr;
  std::int64_t* count = nullptr;
  bool used = true;  // false if the options of the parameter's group do not use it
};
using Members = std::vector<Member>;

Members members(optim::SGDParamState& state, const optim::SGDOptions& options) {
  return {{"momentum_buffer", &state.momentum_buffer(), nullptr, options.momentum() != 0}};
}
template <class State, class Options>
Members adam_members(State& state, const Options& options) {
  return {{step_kind, nullptr, &state.step()},
          {"exp_avg", &state.exp_avg()},
          {"exp_avg_sq", &state.exp_avg_sq()},
          {"max_exp_avg_sq", &state.max_exp_avg_sq(), nullptr, options.amsgrad()}};
}
Members members(optim::AdamParamState& state, const optim::AdamOptions& options) {
  return adam_members(state, options);
}
Members members(optim::AdamWParamState& state, const optim::AdamWOptions& options) {
  return adam_members(state, options);
}
Members members(optim::RMSpropParamState& state, const optim::RMSpropOptions& options) {
  return {{step_kind, nullptr, &state.step()},
          {"square_avg", &state.square_avg()},
          {"momentum_buffer", &state.momentum_buffer(), nullptr, options.momentum() > 0},
          {"grad_avg", &state.grad_avg(), nullptr, options.centered()}};
}
Members members(optim::AdagradParamState& state, const optim::AdagradOptions&) {
  return {{step_kind, nullptr, &state.step()}, {"sum", &state.sum()}};
}

/// The state of an optimizer class.
struct Class {
  std::unique_ptr<OptimizerParamState> (*make)();
  /// Returns the members, in the same order for all parameters. Returns none if the state or the options belong to
  /// another class.
  Members (*members)(OptimizerParamState& state, const OptimizerOptions& options);
};

template <class State, class Options>
constexpr Class class_for{[]() -> std::unique_ptr<OptimizerParamState> { return std::make_unique<State>(); },
                          [](OptimizerParamState& state, const OptimizerOptions& options) {
                            auto* const own = dynamic_cast<State*>(&state);
                            const auto* const settings = dynamic_cast<const Options*>(&options);
                            return own != nullptr && settings != nullptr ? members(*own, *settings) : Members();
                          }};

const Class* class_of(const optim::Optimizer& optimizer) {
  const auto is = [&](auto* type) { return dynamic_cast<decltype(type)>(&optimizer) != nullptr; };
  using Sgd = const optim::SGD;
  using Adam = const optim::Adam;
  using AdamW = const optim::AdamW;
  using RmsProp = const optim::RMSprop;
  using Adagrad = const optim::Adagrad;
  if (is(static_cast<Sgd*>(nullptr))) return &class_for<optim::SGDParamState, optim::SGDOptions>;
  if (is(static_cast<Adam*>(nullptr))) return &class_for<optim::AdamParamState, optim::AdamOptions>;
  if (is(static_cast<AdamW*>(nullptr))) return &class_for<optim::AdamWParamState, optim::AdamWOptions>;
  if (is(static_cast<RmsProp*>(nullptr))) return &class_for<optim::RMSpropParamState, optim::RMSpropOptions>;
  if (is(static_cast<Adagrad*>(nullptr))) return &class_for<optim::AdagradParamState, optim::AdagradOptions>;
  return nullptr;
}

Error unsupported_class() {
  return Error(Errc::unsupported, "the class of the optimizer is not supported")
      .expected("torch::optim::SGD, Adam, AdamW, RMSprop or Adagrad, with its own options and state");
}

/// A parameter of the optimizer.
struct Parameter {
  at::Tensor tensor;
  const OptimizerOptions* options = nullptr;
  std::vector<std::string> names{};  // paths in the module
};

const void* id_of(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl(); }

void add_names(const ::torch::nn::Module& module, const std::string& path,
               std::unordered_map<const void*, Parameter*>& parameters) {
  for (const auto& item : module.named_parameters(false)) {
    const auto found = parameters.find(id_of(item.value()));
    if (found != parameters.end()) found->second->names.push_back(detail::libtorch::below(path, item.key()));
  }
  for (const auto& child : module.named_children()) {
    if (child.value() != nullptr) add_names(*child.value(), detail::libtorch::below(path, child.key()), parameters);
  }
}

/// Returns the parameters in the optimizer's order, with their names in the module.
Result<std::vector<Parameter>> parameters_of(const optim::Optimizer& optimizer, const ::torch::nn::Module& module) {
  std::vector<Parameter> list;
  for (const optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    if (!group.has_options()) return unsupported_class();
    for (const at::Tensor& tensor : group.params()) list.push_back({tensor, &group.options()});
  }
  std::unordered_map<const void*, Parameter*> by_id;
  for (Parameter& parameter : list) by_id.emplace(id_of(parameter.tensor), &parameter);
  add_names(module, {}, by_id);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].names.empty()) continue;
    return Error(Errc::invalid_argument, "a parameter of the optimizer is not a parameter of the module")
        .expected("the module whose parameters the optimizer changes")
        .found("parameter " + std::to_string(i) + " of the optimizer is not in the module");
  }
  return list;
}

/// Returns the parameter's key in the optimizer's state map. The key's type depends on libtorch's version.
template <class States>
auto state_key(const at::Tensor& parameter) {
  void* const address = parameter.unsafeGetTensorImpl();
  if constexpr (std::is_same_v<typename States::key_type, std::string>) {
    std::ostringstream text;
    text << address;
    return text.str();
  } else {
    return address;
  }
}

/// The tensors of one kind, by parameter.
struct Kind {
  std::string_view name;
  std::unordered_map<const void*, at::Tensor> tensors{};

  /// Returns the tree of these tensors, under the names of their parameters.
  Result<std::shared_ptr<StateDict>> tree(const ::torch::nn::Module& module) const {
    return StateDict::of(module, [this](const at::Tensor& parameter) {
      const auto found = tensors.find(id_of(parameter));
      return found != tensors.end() ? found->second : at::Tensor();
    });
  }
};

Kind& kind_at(std::vector<Kind>& kinds, std::size_t i, std::string_view name) {
  if (i == kinds.size()) kinds.push_back({name});
  return kinds[i];
}

/// Returns the names of a snapshot's tensors and aliases.
std::unordered_set<std::string> names_of(const Snapshot& snapshot) {
  std::unordered_set<std::string> names;
  const auto nodes = snapshot.nodes();
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == NodeKind::tensor || nodes[i].kind == NodeKind::alias) names.insert(snapshot.path(i));
  }
  return names;
}

bool matches_any(const std::vector<std::string>& patterns, const std::vector<std::string>& names) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return matches(pattern, name); });
  });
}

std::string path_in(std::string_view kind, std::string_view name) {
  std::string path(kind);
  if (!name.empty()) path.append(".").append(name);
  return path;
}

/// New state for the parameters whose state is in the file. commit() passes it to the optimizer after everything is
/// loaded.
class NewState {
 public:
  NewState(const Class& type, const OptimizerState& from, const LoadOptions& options)
      : type_(type), from_(from), options_(options) {
    if (options_.report == nullptr) options_.report = &own_;
    options_.trust_data = true;  // the tensors are new, so a failed load cannot damage existing state
  }

  /// Makes state for each parameter, or reports that the parameter keeps its current state.
  Status make(const std::vector<Parameter>& parameters) {
    std::unordered_map<std::string_view, std::unordered_set<std::string>> stored;
    for (const auto& [name, snapshot] : from_.kinds()) stored.emplace(name, names_of(snapshot));
    if (const Snapshot* const steps = from_.find(step_kind)) {
      for (std::size_t i = 0; i < steps->leaf_count(); ++i) {
        if (steps->leaf(i).dtype() != DType::f32) count_dtype_ = ::torch::kDouble;
      }
    }
    for (const Parameter& parameter : parameters) {
      auto state = type_.make();
      Members all = type_.members(*state, *parameter.options);
      if (all.empty()) return unsupported_class();
      const auto has = [&](const Member& member) {
        const auto names = stored.find(member.kind);
        return names != stored.end() && std::any_of(parameter.names.begin(), parameter.names.end(),
                                                    [&](const auto& name) { return names->second.count(name) != 0; });
      };
      const auto absent =
          std::find_if(all.begin(), all.end(), [&](const Member& member) { return member.used && !has(member); });
      if (absent == all.end()) {
        add(parameter, std::move(state), all);
        continue;
      }
      const bool partly = std::any_of(all.begin(), all.end(), [&](const Member& m) { return m.used && has(m); });
      if (!partly && !parameter.tensor.requires_grad()) continue;
      if (partly || !matches_any(options_.allow_missing, parameter.names)) {
        return Error(Errc::missing, partly ? "a part of the optimizer state of a parameter is not in the file"
                                           : "the optimizer state of a parameter is not in the file")
            .path(path_in(absent->kind, parameter.names.front()));
      }
      options_.report->add(Report::What::missing, parameter.names.front());
    }
    return {};
  }

  /// Loads all kinds of state in the file.
  Status load(const ::torch::nn::Module& module) {
    for (const auto& stored : from_.kinds()) {
      const auto same = [&](const Kind& kind) { return kind.name == stored.first; };
      const auto kind = std::find_if(kinds_.begin(), kinds_.end(), same);
      Status loaded = load(module, kind != kinds_.end() ? *kind : Kind{stored.first}, stored.second);
      if (!loaded) {
        const std::string path = path_in(stored.first, loaded.error().path());
        return std::move(loaded).error().path(path);
      }
    }
    return {};
  }

  /// Moves the state into the optimizer.
  void commit(optim::Optimizer& optimizer) {
    auto& states = optimizer.state();
    using States = std::decay_t<decltype(states)>;
    for (const Count& count : counts_) *count.target = static_cast<std::int64_t>(count.value.item<double>());
    states.reserve(states.size() + states_.size());
    for (auto& [parameter, state] : states_) states[state_key<States>(parameter)] = std::move(state);
  }

 private:
  struct Count {
    at::Tensor value;
    std::int64_t* target;
  };

  void add(const Parameter& parameter, std::unique_ptr<OptimizerParamState> state, const Members& all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      Kind& kind = kind_at(kinds_, i, all[i].kind);
      if (!all[i].used) continue;
      at::Tensor tensor;
      if (all[i].count != nullptr) {
        tensor = ::torch::zeros({}, count_dtype_);
        counts_.push_back({tensor, all[i].count});
      } else {
        tensor = ::torch::empty_like(parameter.tensor);
        *all[i].tensor = tensor;
      }
      kind.tensors.emplace(id_of(parameter.tensor), std::move(tensor));
    }
    states_.emplace_back(parameter.tensor, std::move(state));
  }

  Status load(const ::torch::nn::Module& module, const Kind& kind, const Snapshot& snapshot) {
    STELE_TRY_ASSIGN(const std::shared_ptr<StateDict> tree, kind.tree(module));
    LoadOptions options = options_;
    if (kind.name == step_kind) options.convert.allow_kind_change = true;  // older files store an integer
    detail::libtorch::Branch& root = tree->root();
    Report report;
    options.report = &report;
    STELE_TRY(detail::load_object(snapshot, root.type, &root, detail::LoadMode::in_place, options));
    for (detail::libtorch::Entry& e : tree->entries()) {
      if (e.copied()) e.tensor.copy_(e.host);
    }
    for (const auto& [path, e] : tree->paths()) {
      if (kind.name == step_kind) STELE_TRY(check_step(path, e->tensor.item<double>()));
    }
    for (std::size_t i = 0; i < report.size(); ++i) {
      options_.report->add(report[i].what, path_in(kind.name, report[i].path), report[i].detail);
    }
    return {};
  }

  static Status check_step(const std::string& path, double step) {
    if (step >= 0 && step <= max_step && step == std::floor(step)) return {};
    return Error(Errc::malformed, "the step of a parameter is not a valid step count")
        .path(path)
        .expected("an integer from 0 to 2^53")
        .found(std::to_string(step));
  }

  const Class& type_;
  const OptimizerState& from_;
  LoadOptions options_;
  Report own_;                                    // used if the caller passes no report
  at::ScalarType count_dtype_ = ::torch::kFloat;  // f32 if the file's steps are f32; else a dtype that holds any step
  std::vector<Kind> kinds_;
  std::vector<Count> counts_;
  std::vector<std::pair<at::Tensor, std::unique_ptr<OptimizerParamState>>> states_;
};

}  // namespace

Result<OptimizerState> optimizer_state_of(const optim::Optimizer& optimizer, const ::torch::nn::Module& module) {
  return detail::guarded([&]() -> Result<OptimizerState> {
    const ::torch::NoGradGuard no_grad;
    const Class* const type = class_of(optimizer);
    if (type == nullptr) return unsupported_class();
    STELE_TRY_ASSIGN(const std::vector<Parameter> parameters, parameters_of(optimizer, module));
    const auto& states = optimizer.state();
    std::vector<Kind> kinds;
    for (const Parameter& parameter : parameters) {
      const auto found = states.find(state_key<std::decay_t<decltype(states)>>(parameter.tensor));
      if (found == states.end() || found->second == nullptr) continue;
      const Members all = type->members(*found->second, *parameter.options);
      if (all.empty()) return unsupported_class();
      for (std::size_t i = 0; i < all.size(); ++i) {
        Kind& kind = kind_at(kinds, i, all[i].kind);
        at::Tensor tensor;
        if (all[i].count != nullptr) {
          const std::int64_t step = *all[i].count;
          tensor =
              ::torch::full({}, static_cast<double>(step), step <= max_float_step ? ::torch::kFloat : ::torch::kDouble);
        } else {
          tensor = *all[i].tensor;
        }
        if (tensor.defined()) kind.tensors.emplace(id_of(parameter.tensor), std::move(tensor));
      }
    }
    OptimizerState result;
    for (const Kind& kind : kinds) {
      if (kind.tensors.empty()) continue;
      STELE_TRY_ASSIGN(const std::shared_ptr<StateDict> tree, kind.tree(module));
      result.set_snapshot(std::string(kind.name), detail::libtorch::snapshot_of(tree, detail::libtorch::Ties::omitted));
    }
    return result;
  });
}

Result<std::vector<std::string>> parameter_names_of(const optim::Optimizer& optimizer,
                                                    const ::torch::nn::Module& module) {
  return detail::guarded([&]() -> Result<std::vector<std::string>> {
    STELE_TRY_ASSIGN(std::vector<Parameter> parameters, parameters_of(optimizer, module));
    std::vector<std::string> names;
    for (Parameter& parameter : parameters) names.push_back(std::move(parameter.names.front()));
    return names;
  });
}

Status load_optimizer_state(optim::Optimizer& optimizer, const ::torch::nn::Module& module, const OptimizerState& state,
                            const LoadOptions& options) {
  return detail::guarded([&]() -> Status {
    const ::torch::NoGradGuard no_grad;
    const Class* const type = class_of(optimizer);
    if (type == nullptr) return unsupported_class();
    STELE_TRY_ASSIGN(const std::vector<Parameter> parameters, parameters_of(optimizer, module));
    NewState loaded(*type, state, options);
    STELE_TRY(loaded.make(parameters));
    STELE_TRY(loaded.load(module));
    auto given = detail::guarded([&]() -> Status {
      loaded.commit(optimizer);
      return {};
    });
    if (!given) return std::move(given).error().partially_applied(true);
    return {};
  });
}

}  // namespace stele::inline v0::torch
