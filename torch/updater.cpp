#include <torch/torch.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "stele/record.hpp"
#include "stele/torch.hpp"
#include "training/pytorch_settings.hpp"

namespace stele::inline v0::torch {
namespace {

namespace optim = ::torch::optim;
namespace settings = detail::pytorch;
using optim::OptimizerOptions;

// visit() passes each option of a class, with its key in Python, to a ToGroup or a FromGroup.

template <class Visitor>
void visit(Visitor& v, optim::SGDOptions& o) {
  v("lr", o.lr());
  v("momentum", o.momentum());
  v("dampening", o.dampening());
  v("weight_decay", o.weight_decay());
  v("nesterov", o.nesterov());
}

template <class Visitor, class Options>
void visit_adam(Visitor& v, Options& o) {
  v("lr", o.lr());
  v("betas", o.betas());
  v("eps", o.eps());
  v("weight_decay", o.weight_decay());
  v("amsgrad", o.amsgrad());
}

// Python has one class for Adam and AdamW, and distinguishes them by this flag.
template <class Visitor>
void visit(Visitor& v, optim::AdamOptions& o) {
  bool decoupled = false;
  visit_adam(v, o);
  v("decoupled_weight_decay", decoupled);
}
template <class Visitor>
void visit(Visitor& v, optim::AdamWOptions& o) {
  bool decoupled = true;
  visit_adam(v, o);
  v("decoupled_weight_decay", decoupled);
}

template <class Visitor>
void visit(Visitor& v, optim::RMSpropOptions& o) {
  v("lr", o.lr());
  v("momentum", o.momentum());
  v("alpha", o.alpha());
  v("eps", o.eps());
  v("centered", o.centered());
  v("weight_decay", o.weight_decay());
}

template <class Visitor>
void visit(Visitor& v, optim::AdagradOptions& o) {
  v("lr", o.lr());
  v("lr_decay", o.lr_decay());
  v("eps", o.eps());
  v("weight_decay", o.weight_decay());
  v("initial_accumulator_value", o.initial_accumulator_value());
}

/// Copies options to a dict of `param_groups`.
struct ToGroup {
  Value::Map group{};

  void operator()(const char* key, double& value) { group.emplace_back(key, Value(value)); }
  void operator()(const char* key, bool& value) { group.emplace_back(key, Value(value)); }
  void operator()(const char* key, std::tuple<double, double>& value) {
    group.emplace_back(key, Value(Value::List{Value(std::get<0>(value)), Value(std::get<1>(value))}));
  }
};

/// Copies a group to options. The group comes from pytorch_settings.cpp and has all keys, with values of the expected
/// kinds.
struct FromGroup {
  const Value& group;
  std::vector<std::string_view> keys{};

  const Value& at(const char* key) {
    keys.push_back(key);
    return *group.find(key);
  }
  static double number(const Value& value) {
    const std::int64_t* const integer = value.as_i64();
    return integer != nullptr ? static_cast<double>(*integer) : *value.as_f64();
  }
  void operator()(const char* key, double& value) { value = number(at(key)); }
  void operator()(const char* key, bool& value) { value = *at(key).as_bool(); }
  void operator()(const char* key, std::tuple<double, double>& value) {
    const Value::List& list = *at(key).as_list();
    value = {number(list[0]), number(list[1])};
  }
};

/// The default learning rate of SGD in Python. libtorch has no default.
constexpr double sgd_rate = 1e-3;

using Types = std::vector<std::string_view>;

/// Calls `f` with new options of the optimizer's class and the updater types that match the class.
template <class F>
auto with_options(const optim::Optimizer& optimizer, F&& f) -> decltype(f(optim::AdamOptions(), Types())) {
  if (dynamic_cast<const optim::SGD*>(&optimizer) != nullptr) {
    return f(optim::SGDOptions(sgd_rate), Types{"Sgd", "Nesterovs"});
  }
  if (dynamic_cast<const optim::Adam*>(&optimizer) != nullptr) {
    return f(optim::AdamOptions(), Types{"Adam", "AMSGrad"});
  }
  if (dynamic_cast<const optim::AdamW*>(&optimizer) != nullptr) {
    // Files of older PyTorch versions store the same settings for Adam and AdamW.
    return f(optim::AdamWOptions(), Types{"AdamW", "Adam", "AMSGrad"});
  }
  if (dynamic_cast<const optim::RMSprop*>(&optimizer) != nullptr) return f(optim::RMSpropOptions(), Types{"RmsProp"});
  if (dynamic_cast<const optim::Adagrad*>(&optimizer) != nullptr) return f(optim::AdagradOptions(), Types{"AdaGrad"});
  return Error(Errc::unsupported, "the class of the optimizer is not supported")
      .expected("torch::optim::SGD, Adam, AdamW, RMSprop or Adagrad");
}

Error no_setting(std::string_view name) {
  return Error(Errc::unsupported, "libtorch's optimizer has no such setting").path(std::string(name));
}

Status check_numbers(const TrainingObject& updater) {
  for (const auto& [name, number] : updater.numbers) {
    const bool beta = name == "beta1" || name == "beta2";
    const double value = number.value();
    if (value >= 0 && (!beta || value < 1)) continue;
    return Error(Errc::out_of_range, "PyTorch does not accept this number of the updater")
        .path(name)
        .expected(beta ? "a number from 0 up to, but not including, 1" : "a number from 0 on")
        .found(std::to_string(value));
  }
  return {};
}

/// Copies the settings of the updater to options.
template <class Options>
Status read(const TrainingObject& updater, const Types& types, Options& options) {
  if (std::find(types.begin(), types.end(), updater.type) == types.end()) {
    std::string expected(types[0]);
    for (std::size_t i = 1; i < types.size(); ++i) expected.append(" or ").append(types[i]);
    return Error(Errc::invalid_argument, "the updater does not match the optimizer's class")
        .expected(expected)
        .found(updater.type);
  }
  if (const auto member = settings::unknown_member(updater)) return no_setting(*member);
  STELE_TRY(check_numbers(updater));
  TrainingConfig config;
  config.updater = updater;
  STELE_TRY_ASSIGN(const Value group, settings::group_of(config));
  FromGroup reader{group};
  visit(reader, options);
  for (const auto& [key, value] : *group.as_map()) {
    const bool* const flag = value.as_bool();
    if (flag == nullptr || !*flag) continue;
    if (std::find(reader.keys.begin(), reader.keys.end(), key) == reader.keys.end()) return no_setting(key);
  }
  return {};
}

Status check(const optim::SGDOptions& options) {
  if (!options.nesterov() || (options.momentum() != 0 && options.dampening() == 0)) return {};
  return Error(Errc::out_of_range, "Nesterov momentum needs a momentum and no dampening").path("momentum");
}
Status check(const OptimizerOptions& /*options*/) { return {}; }

}  // namespace

Result<TrainingObject> updater_of(const optim::Optimizer& optimizer) {
  return detail::guarded([&]() -> Result<TrainingObject> {
    const auto& groups = optimizer.param_groups();
    const OptimizerOptions& from =
        groups.empty() || !groups.front().has_options() ? optimizer.defaults() : groups.front().options();
    return with_options(optimizer, [&](auto options, const Types& /*types*/) -> Result<TrainingObject> {
      options = static_cast<const decltype(options)&>(from);
      ToGroup writer;
      visit(writer, options);
      return settings::updater_of(Value(std::move(writer.group)));
    });
  });
}

Status set_updater(optim::Optimizer& optimizer, const TrainingObject& updater) {
  return detail::guarded([&]() -> Status {
    return with_options(optimizer, [&](auto options, const Types& types) -> Status {
      STELE_TRY(read(updater, types, options));
      STELE_TRY(check(options));
      using Options = decltype(options);
      for (optim::OptimizerParamGroup& group : optimizer.param_groups()) {
        static_cast<Options&>(group.options()) = options;
      }
      static_cast<Options&>(optimizer.defaults()) = options;
      return {};
    });
  });
}

}  // namespace stele::inline v0::torch
