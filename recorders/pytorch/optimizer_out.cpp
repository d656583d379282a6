// Writes optimizer state as torch.optim's state_dict.
#include "optimizer_out.hpp"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "base/patterns.hpp"
#include "json/json.hpp"
#include "passes/untie.hpp"
#include "training/pytorch_settings.hpp"
#include "tree.hpp"
#include "values.hpp"

namespace stele::inline v0 {
namespace detail::pytorch {
namespace {

/// A group of the file that the parameters were opened from.
struct FileGroup {
  Value::Map settings;
  std::vector<std::string> names;
};

Result<std::vector<FileGroup>> parse_groups(std::string_view json) {
  const auto refuse = [] {
    return Error(Errc::malformed, "the property pytorch.param_groups is invalid")
        .expected("a JSON array of objects with a list of names in params");
  };
  json::Reader in(json);
  Value value;
  if (auto read = json::read_value(in, value, json::kMaxValueBytesPerByte * json.size() + 1024);
      !read || !in.finish()) {
    return refuse();
  }
  if (value.as_list() == nullptr) return refuse();
  std::vector<FileGroup> groups;
  for (Value& group : *value.as_list()) {
    const Value* const names = group.find("params");
    if (names == nullptr || names->as_list() == nullptr) return refuse();
    FileGroup& made = groups.emplace_back();
    for (const Value& name : *names->as_list()) {
      if (name.as_string() == nullptr) return refuse();
      made.names.push_back(*name.as_string());
    }
    for (auto& [key, setting] : *group.as_map()) {
      if (key == "params" || key == "param_names") continue;
      if (const std::string why = obstacle(setting); !why.empty() || !json::valid_utf8(key)) {
        return Error(Errc::not_representable, "a setting of the optimizer has no Python form")
            .path(key)
            .found(why.empty() ? "a key that is not UTF-8" : why);
      }
      made.settings.emplace_back(std::move(key), std::move(setting));
    }
  }
  return groups;
}

class Planner {
 public:
  Planner(const Checkpoint& checkpoint, std::span<const Entry> names, const PytorchOptions& options)
      : checkpoint_(checkpoint),
        names_(names),
        options_(options),
        numbers_(checkpoint.parameters.leaf_count(), no_index) {}

  Result<OptimizerPlan> run() {
    leaves_.reserve(names_.size());
    for (const Entry& e : names_) {
      if (e.leaf != no_index) leaves_.emplace(e.name, e.leaf);
    }
    const auto& origin = checkpoint_.parameters.origin();
    std::vector<FileGroup> groups;
    if (const auto found = origin.find(groups_origin); found != origin.end()) {
      STELE_TRY_ASSIGN(groups, parse_groups(found->second));
    }
    STELE_TRY(number_parameters(groups));
    STELE_TRY(add_groups(groups));
    if (!plan_.groups.empty()) STELE_TRY(add_states());
    return std::move(plan_);
  }

 private:
  std::uint32_t leaf_of(std::string_view name) const {
    const auto found = leaves_.find(name);
    return found != leaves_.end() ? found->second : no_index;
  }

  void number(const std::string& name, std::uint32_t leaf) {
    if (leaf == no_index || numbers_[leaf] != no_index) return;
    numbers_[leaf] = static_cast<std::uint32_t>(plan_.names.size());
    plan_.names.push_back(name);
  }

  Status number_parameters(const std::vector<FileGroup>& groups) {
    for (const std::string& name : options_.parameters) {
      const std::uint32_t leaf = leaf_of(name);
      const bool again = leaf != no_index && numbers_[leaf] != no_index;
      if (leaf == no_index || again) {
        return Error(Errc::invalid_argument,
                     again ? "PytorchOptions::parameters names a tensor twice"
                           : "PytorchOptions::parameters names a tensor that the model does not have")
            .path(name);
      }
      number(name, leaf);
    }
    if (!options_.parameters.empty()) return {};
    for (const FileGroup& group : groups) {
      for (const std::string& name : group.names) number(name, leaf_of(name));
    }
    // All parameters may have new names. A single group has all parameters.
    if (!plan_.names.empty()) return {};
    const Patterns buffers(options_.buffers);
    for (const Entry& e : names_) {
      const bool tensor = e.leaf != no_index && can_be_parameter(checkpoint_.parameters.leaf(e.leaf).dtype());
      if (tensor && !buffers.match(e.name)) number(e.name, e.leaf);
    }
    return {};
  }

  Status add_groups(std::vector<FileGroup>& groups) {
    for (FileGroup& group : groups) {
      Group& made = plan_.groups.emplace_back();
      made.settings = Value(std::move(group.settings));
      for (const std::string& name : group.names) {
        const std::uint32_t leaf = leaf_of(name);
        if (leaf != no_index && numbers_[leaf] != no_index) made.parameters.push_back(numbers_[leaf]);
      }
    }
    if (plan_.groups.empty() && checkpoint_.training) {
      STELE_TRY_ASSIGN(Value settings, group_of(*checkpoint_.training));
      if (!settings.is_null()) plan_.groups.push_back({std::move(settings), {}});
    }
    if (plan_.groups.size() == 1 && plan_.groups[0].parameters.empty()) {
      for (std::uint32_t i = 0; i < plan_.names.size(); ++i) plan_.groups[0].parameters.push_back(i);
    }
    if (!plan_.groups.empty() || checkpoint_.optimizer.empty()) return {};
    const TrainingConfig* const training = checkpoint_.training ? &*checkpoint_.training : nullptr;
    Error error(Errc::missing, "the optimizer's state has no settings that PyTorch knows");
    if (training != nullptr && !training->updater.type.empty()) error = std::move(error).found(training->updater.type);
    return std::move(error).hint("set Checkpoint::training, with an updater such as stele::updaters::adam()");
  }

  Status add_states() {
    for (std::uint32_t k = 0; k < checkpoint_.optimizer.kinds().size(); ++k) {
      const auto& [kind, arrays] = checkpoint_.optimizer.kinds()[k];
      if (!json::valid_utf8(kind)) {
        return Error(Errc::not_representable, "the name of a kind of optimizer state is not UTF-8").found(kind);
      }
      STELE_TRY(each_tensor_name(
          arrays, [&, &kind = kind, &arrays = arrays](const std::string& path, const Node& tensor) -> Status {
            const std::uint32_t leaf = leaf_of(path);
            if (leaf == no_index || numbers_[leaf] == no_index) {
              return Error(Errc::not_representable, "optimizer state belongs to a tensor that is not a parameter")
                  .path(path)
                  .found(kind)
                  .hint("set PytorchOptions::parameters or PytorchOptions::buffers");
            }
            const LeafView array = arrays.leaf(tensor.index);
            const std::string why =
                holds(array.dtype()) ? obstacle(array) : "dtype " + std::string(name(array.dtype()));
            if (!why.empty()) {
              return Error(Errc::not_representable, "PyTorch cannot store the optimizer's state")
                  .path(path)
                  .found(std::string(kind).append(": ").append(why));
            }
            plan_.states.push_back({numbers_[leaf], k, tensor.index});
            return {};
          }));
    }
    auto& states = plan_.states;
    const auto key = [](const StateTensor& s) { return std::tuple(s.parameter, s.kind); };
    std::stable_sort(states.begin(), states.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
    // A tied parameter's state is written once, under one of its names.
    states.erase(
        std::unique(states.begin(), states.end(), [&](const auto& a, const auto& b) { return key(a) == key(b); }),
        states.end());
    return {};
  }

  const Checkpoint& checkpoint_;
  std::span<const Entry> names_;
  const PytorchOptions& options_;
  std::unordered_map<std::string_view, std::uint32_t> leaves_;
  std::vector<std::uint32_t> numbers_;  // numbers of the parameters, by leaf
  OptimizerPlan plan_;
};

}  // namespace

namespace {

/// Returns true if two settings are equal. Numbers of different kinds are equal if their values are.
bool equal(const Value& a, const Value& b) {
  if (const auto number = number_of(a)) return number == number_of(b);
  const Value::List *x = a.as_list(), *y = b.as_list();
  if (x == nullptr || y == nullptr) return a == b;
  return std::equal(x->begin(), x->end(), y->begin(), y->end(), equal);
}

}  // namespace

Result<OptimizerPlan> plan_optimizer(const Checkpoint& checkpoint, std::span<const Entry> names,
                                     const PytorchOptions& options) {
  return Planner(checkpoint, names, options).run();
}

namespace {

/// Returns true if PyTorch's optimizer needs a step count for each parameter and the checkpoint, written by another
/// program, has none. All optimizers but SGD, whose only state is `momentum_buffer`, fail without step counts.
bool counts_steps(const Checkpoint& checkpoint) {
  const auto& kinds = checkpoint.optimizer.kinds();
  const auto is_other = [](const auto& kind) { return kind.first != "momentum_buffer"; };
  return checkpoint.training && checkpoint.optimizer.find("step") == nullptr &&
         std::any_of(kinds.begin(), kinds.end(), is_other);
}

}  // namespace

void write_optimizer(pickle::Writer& out, std::string& text, TensorWriter& tensors, const Checkpoint& checkpoint,
                     const OptimizerPlan& plan, std::span<const std::uint32_t> parts) {
  const auto& kinds = checkpoint.optimizer.kinds();
  const bool counts = counts_steps(checkpoint);
  out.empty_dict();
  out.mark();
  out.string("state");
  out.empty_dict();
  if (!plan.states.empty()) {
    out.mark();
    for (std::size_t i = 0; i < plan.states.size();) {
      const std::uint32_t parameter = plan.states[i].parameter;
      out.integer(parameter);
      out.empty_dict();
      out.mark();
      for (; i < plan.states.size() && plan.states[i].parameter == parameter; ++i) {
        const StateTensor& s = plan.states[i];
        out.string(kinds[s.kind].first);
        tensors.tensor(parts[s.kind], s.leaf, kinds[s.kind].second.leaf(s.leaf));
      }
      if (counts) {
        out.string("step");
        out.integer(checkpoint.training->iteration_count);
      }
      out.set_items();
    }
    out.set_items();
  }
  out.string("param_groups");
  out.empty_list();
  out.mark();
  for (const Group& group : plan.groups) {
    out.empty_dict();
    out.mark();
    for (const auto& [key, setting] : *group.settings.as_map()) {
      out.string(key);
      const ContainerKinds tuple = {{"", {'v'}}};
      write_value(out, text, setting, is_tuple(key) ? &tuple : nullptr);
    }
    const auto list = [&](std::string_view key, auto write) {
      out.string(key);
      out.empty_list();
      if (group.parameters.empty()) return;
      out.mark();
      for (const std::uint32_t number : group.parameters) write(number);
      out.appends();
    };
    list("params", [&](std::uint32_t number) { out.integer(number); });
    // PyTorch loads parameters by number, and keeps the names.
    list("param_names", [&](std::uint32_t number) { out.string(plan.names[number]); });
    out.set_items();
  }
  out.appends();
  out.set_items();
}

}  // namespace detail::pytorch

Result<std::vector<std::string>> settings_of_pytorch_alone(const Checkpoint& checkpoint) {
  namespace pt = detail::pytorch;
  std::vector<std::string> alone;
  const auto found = checkpoint.parameters.origin().find(pt::groups_origin);
  if (found == checkpoint.parameters.origin().end()) return alone;
  STELE_TRY_ASSIGN(const auto groups, pt::parse_groups(found->second));
  Value kept;
  if (checkpoint.training) {
    STELE_TRY_ASSIGN(kept, pt::group_of(*checkpoint.training));
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const auto& [key, value] : groups[i].settings) {
      const Value* const same = kept.find(key);
      if (same == nullptr || !pt::equal(value, *same)) alone.push_back("param_groups." + std::to_string(i) + '.' + key);
    }
  }
  return alone;
}

}  // namespace stele::inline v0
