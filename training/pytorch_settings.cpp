#include "pytorch_settings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace stele::inline v0::detail::pytorch {
namespace {

enum class Form : std::uint8_t {
  rate,      // a number, or the updater's learning rate schedule
  number,    // a number
  betas,     // two numbers: beta1 and beta2
  flag,      // a bool
  constant,  // a bool that the updater's type determines
  none,      // None in Python: the optimizer chooses
};

/// A setting of a PyTorch optimizer, and the corresponding member of the updater.
struct Setting {
  std::string_view key;
  Form form;
  std::string_view member{};  // empty if the updater has no such member
  double preset = 0;          // PyTorch's default; for a flag, 1 means true
  bool always = false;        // true for members that DL4J's updater has
};

// Defaults that are integers in Python are 0 or 1. PyTorch treats them like floats.

constexpr Setting rate(double preset) { return {"lr", Form::rate, "learningRate", preset, true}; }
constexpr Setting number(std::string_view key, std::string_view member, double preset, bool always = false) {
  return {key, Form::number, member, preset, always};
}
constexpr Setting constant(std::string_view key, bool value) { return {key, Form::constant, {}, value ? 1.0 : 0.0}; }
constexpr Setting betas{"betas", Form::betas, {}, 0, true};
constexpr Setting decay = number("weight_decay", "weightDecay", 0);
constexpr Setting maximize{"maximize", Form::flag, "maximize"};
constexpr Setting foreach{"foreach", Form::none};
constexpr Setting fused{"fused", Form::none};
constexpr Setting capturable = constant("capturable", false);
constexpr Setting differentiable = constant("differentiable", false);
constexpr Setting eps(double preset) { return number("eps", "epsilon", preset, true); }

constexpr Setting adam[] = {rate(1e-3),
                            betas,
                            eps(1e-8),
                            decay,
                            constant("amsgrad", false),
                            maximize,
                            foreach,
                            capturable,
                            differentiable,
                            fused,
                            constant("decoupled_weight_decay", false)};
constexpr Setting ams_grad[] = {rate(1e-3),
                                betas,
                                eps(1e-8),
                                decay,
                                constant("amsgrad", true),
                                maximize,
                                foreach,
                                capturable,
                                differentiable,
                                fused,
                                constant("decoupled_weight_decay", false)};
constexpr Setting adam_w[] = {rate(1e-3),
                              betas,
                              eps(1e-8),
                              number("weight_decay", "weightDecay", 0.01, true),
                              {"amsgrad", Form::flag, "amsgrad"},
                              maximize,
                              foreach,
                              capturable,
                              differentiable,
                              fused,
                              constant("decoupled_weight_decay", true)};
constexpr Setting nadam[] = {rate(2e-3),
                             betas,
                             eps(1e-8),
                             decay,
                             number("momentum_decay", "momentumDecay", 4e-3),
                             {"decoupled_weight_decay", Form::flag, "decoupledWeightDecay"},
                             maximize,
                             foreach,
                             capturable,
                             differentiable};
constexpr Setting ada_max[] = {rate(2e-3), betas, eps(1e-8), decay, foreach, maximize, differentiable, capturable};
constexpr Setting ada_delta[] = {
    rate(1.0), number("rho", "rho", 0.9, true), eps(1e-6), decay, maximize, capturable, foreach, differentiable};
constexpr Setting ada_grad[] = {rate(1e-2),
                                number("lr_decay", "learningRateDecay", 0),
                                eps(1e-10),
                                decay,
                                number("initial_accumulator_value", "initialAccumulatorValue", 0),
                                foreach,
                                maximize,
                                differentiable,
                                fused};
constexpr Setting rms_prop[] = {rate(1e-2),
                                number("momentum", "momentum", 0),
                                number("alpha", "rmsDecay", 0.99, true),
                                eps(1e-8),
                                {"centered", Form::flag, "centered"},
                                decay,
                                capturable,
                                foreach,
                                maximize,
                                differentiable};
constexpr Setting sgd[] = {rate(1e-3),
                           number("momentum", "momentum", 0),
                           number("dampening", "dampening", 0),
                           decay,
                           constant("nesterov", false),
                           maximize,
                           foreach,
                           differentiable,
                           fused};
constexpr Setting nesterovs[] = {rate(1e-3),
                                 number("momentum", "momentum", 0.9, true),
                                 number("dampening", "dampening", 0),
                                 decay,
                                 constant("nesterov", true),
                                 maximize,
                                 foreach,
                                 differentiable,
                                 fused};

/// A PyTorch optimizer, recognized by keys that it has, a key that it lacks, and a flag that is true.
struct Optimizer {
  std::string_view updater;
  std::span<const Setting> settings;
  std::array<std::string_view, 2> has;
  std::string_view lacks;
  std::string_view is_true;
};

constexpr std::array<Optimizer, 10> optimizers = {{
    {"Nadam", nadam, {"betas", "momentum_decay"}, {}, {}},
    {"AdamW", adam_w, {"betas", "amsgrad"}, {}, "decoupled_weight_decay"},
    {"AMSGrad", ams_grad, {"betas", "amsgrad"}, {}, "amsgrad"},
    {"Adam", adam, {"betas", "amsgrad"}, {}, {}},
    // The keys exclude RAdam, which has decoupled_weight_decay, and SparseAdam, which has no foreach.
    {"AdaMax", ada_max, {"betas", "foreach"}, "decoupled_weight_decay", {}},
    {"RmsProp", rms_prop, {"alpha", "centered"}, {}, {}},
    {"AdaGrad", ada_grad, {"lr_decay", "eps"}, {}, {}},
    {"AdaDelta", ada_delta, {"rho", "eps"}, {}, {}},
    {"Nesterovs", nesterovs, {"momentum", "dampening"}, {}, "nesterov"},
    {"Sgd", sgd, {"momentum", "dampening"}, {}, {}},
}};

constexpr std::string_view beta1 = "beta1", beta2 = "beta2";
constexpr double beta1_preset = 0.9, beta2_preset = 0.999;

bool is_true(const Value* value) { return value != nullptr && value->as_bool() != nullptr && *value->as_bool(); }

double member_or(const TrainingObject& updater, std::string_view name, double preset) {
  const TrainingNumber* const number = updater.number(name);
  return number != nullptr ? number->value() : preset;
}

/// Returns the default with Python's type: 0 is an integer.
Value preset_of(const Setting& setting) { return setting.preset == 0 ? Value(std::int64_t{0}) : Value(setting.preset); }

Result<Value> value_of(const Setting& setting, const TrainingConfig& config) {
  const TrainingObject& updater = config.updater;
  switch (setting.form) {
    case Form::rate: {
      if (updater.number(setting.member) == nullptr && updater.object("learningRateSchedule") == nullptr) {
        return Value(setting.preset);
      }
      STELE_TRY_ASSIGN(const double now, learning_rate(config));
      return Value(std::isnan(now) ? member_or(updater, setting.member, setting.preset) : now);
    }
    case Form::number: {
      if (setting.member == "momentum") {
        if (const TrainingObject* schedule = updater.object("momentumISchedule")) {
          STELE_TRY_ASSIGN(const double now, value_at(*schedule, config.iteration_count, config.epoch_count));
          return Value(now);
        }
      }
      const TrainingNumber* const number = updater.number(setting.member);
      return number != nullptr ? Value(number->value()) : preset_of(setting);
    }
    case Form::betas:
      return Value(
          Value::List{Value(member_or(updater, beta1, beta1_preset)), Value(member_or(updater, beta2, beta2_preset))});
    case Form::flag: {
      const bool* const flag = updater.flag(setting.member);
      const bool reversed = setting.member == "maximize" && !config.minimize;
      return Value(reversed || (flag != nullptr && *flag));
    }
    case Form::constant:
      return Value(setting.preset != 0);
    case Form::none:
      break;
  }
  return Value();
}

void set_member(TrainingObject& updater, const Setting& setting, const Value* value) {
  switch (setting.form) {
    case Form::rate:
    case Form::number: {
      const auto number = value != nullptr ? number_of(*value) : std::nullopt;
      if (number && (setting.always || *number != setting.preset)) updater.set(setting.member, *number);
      return;
    }
    case Form::betas: {
      const Value::List* const list = value != nullptr ? value->as_list() : nullptr;
      if (list == nullptr || list->size() != 2) return;
      const auto first = number_of(list->front());
      const auto second = number_of(list->back());
      if (first && second) updater.set(beta1, *first).set(beta2, *second);
      return;
    }
    case Form::flag:
      if (is_true(value)) updater.set(setting.member, true);
      return;
    case Form::constant:
    case Form::none:
      return;
  }
}

const Optimizer* optimizer_of(const TrainingObject& updater) {
  const auto found =
      std::find_if(optimizers.begin(), optimizers.end(), [&](const Optimizer& o) { return o.updater == updater.type; });
  return found != optimizers.end() ? &*found : nullptr;
}

/// Returns true if a setting corresponds to the updater's member `name`: a flag if `flag` is true, else a number.
bool has_member(std::span<const Setting> settings, std::string_view name, bool flag) {
  return std::any_of(settings.begin(), settings.end(), [&](const Setting& s) {
    return s.form == Form::betas ? !flag && (name == beta1 || name == beta2)
                                 : !name.empty() && s.member == name && (s.form == Form::flag) == flag;
  });
}

}  // namespace

std::optional<double> number_of(const Value& value) {
  if (const double* f = value.as_f64()) return *f;
  if (const std::int64_t* i = value.as_i64()) return static_cast<double>(*i);
  return std::nullopt;
}

TrainingObject updater_of(const Value& group) {
  TrainingObject updater;
  const auto fits = [&](const Optimizer& o) {
    return std::all_of(o.has.begin(), o.has.end(), [&](std::string_view key) { return group.find(key) != nullptr; }) &&
           (o.lacks.empty() || group.find(o.lacks) == nullptr) && (o.is_true.empty() || is_true(group.find(o.is_true)));
  };
  const auto found = std::find_if(optimizers.begin(), optimizers.end(), fits);
  if (found == optimizers.end()) return updater;
  updater.type = found->updater;
  for (const Setting& setting : found->settings) set_member(updater, setting, group.find(setting.key));
  return updater;
}

Result<Value> group_of(const TrainingConfig& config) {
  const Optimizer* const optimizer = optimizer_of(config.updater);
  if (optimizer == nullptr) return Value();
  Value::Map group;
  for (const Setting& setting : optimizer->settings) {
    STELE_TRY_ASSIGN(Value value, value_of(setting, config));
    group.emplace_back(setting.key, std::move(value));
  }
  return Value(std::move(group));
}

std::optional<std::string_view> unknown_member(const TrainingObject& updater) {
  const Optimizer* const optimizer = optimizer_of(updater);
  const std::span<const Setting> settings = optimizer != nullptr ? optimizer->settings : std::span<const Setting>();
  // Reports schedules first, because their numbers are NaN.
  if (!updater.objects.empty()) return updater.objects.front().first;
  for (const auto& member : updater.numbers) {
    if (!has_member(settings, member.first, false)) return member.first;
  }
  for (const auto& member : updater.flags) {
    if (!has_member(settings, member.first, true)) return member.first;
  }
  if (!updater.texts.empty()) return updater.texts.front().first;
  for (const TrainingRaw& member : updater.other) {
    if (member.json != "null") return member.name;
  }
  return std::nullopt;
}

bool is_tuple(std::string_view setting) noexcept {
  return setting == "betas" || setting == "etas" || setting == "step_sizes";
}

}  // namespace stele::inline v0::detail::pytorch
