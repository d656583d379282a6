// Training objects, and the updaters, schedules and regularizations of DL4J. Class names are compared with a fixed
// table; no class is ever loaded by name.
#include "stele/training.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "classes.hpp"

namespace stele::inline v0 {
namespace detail::training {
namespace {

constexpr std::string_view kUpdaters = "org.nd4j.linalg.learning.config.";
constexpr std::string_view kSchedules = "org.nd4j.linalg.schedule.";
constexpr std::string_view kRegularizations = "org.nd4j.linalg.learning.regularization.";

constexpr std::string_view kStateMV[] = {"M", "V"}, kStateAmsGrad[] = {"M", "V", "V_HAT"}, kStateBelief[] = {"M", "S"};
constexpr std::string_view kStateV[] = {"V"}, kStateG[] = {"G"}, kStateGrad[] = {"grad"};
constexpr std::string_view kStateDelta[] = {"msg", "msdx"};
constexpr std::string_view kAdamLike = "learningRate learningRateSchedule beta1 beta2 epsilon";

constexpr Known kKnown[] = {
    {"Adam", kUpdaters, kAdamLike, kStateMV},
    {"AMSGrad", kUpdaters, kAdamLike, kStateAmsGrad},
    {"Nadam", kUpdaters, kAdamLike, kStateMV},
    {"AdaMax", kUpdaters, kAdamLike, kStateMV},
    {"AdaBelief", kUpdaters, kAdamLike, kStateBelief},
    {"Nesterovs", kUpdaters, "learningRate learningRateSchedule momentum momentumISchedule", kStateV},
    {"RmsProp", kUpdaters, "learningRate learningRateSchedule rmsDecay epsilon", kStateG},
    {"AdaGrad", kUpdaters, "learningRate learningRateSchedule epsilon", kStateGrad},
    {"AdaDelta", kUpdaters, "rho epsilon", kStateDelta},
    {"Sgd", kUpdaters, "learningRate learningRateSchedule"},
    {"NoOp", kUpdaters, ""},
    {"FixedSchedule", kSchedules, "value"},
    {"StepSchedule", kSchedules, "scheduleType initialValue decayRate step"},
    {"ExponentialSchedule", kSchedules, "scheduleType initialValue gamma"},
    {"InverseSchedule", kSchedules, "scheduleType initialValue gamma power"},
    {"PolySchedule", kSchedules, "scheduleType initialValue power maxIter"},
    {"SigmoidSchedule", kSchedules, "scheduleType initialValue gamma stepSize"},
    {"MapSchedule", kSchedules, "scheduleType values"},
    {"CycleSchedule", kSchedules,
     "scheduleType initialLearningRate maxLearningRate cycleLength annealingLength annealingDecay stepSize increment"},
    {"RampSchedule", kSchedules, "baseSchedule numIter"},
    {"L1Regularization", kRegularizations, "l1"},
    {"L2Regularization", kRegularizations, "l2"},
    {"WeightDecay", kRegularizations, "coeff applyLR"},
};

}  // namespace

std::string_view simple_name(std::string_view name) noexcept {
  const std::size_t at = name.find_last_of(".$");
  return at == std::string_view::npos ? name : name.substr(at + 1);
}

const Known* known(std::string_view type) noexcept {
  for (const Known& one : kKnown) {
    if (one.type == type) return &one;
  }
  return nullptr;
}

std::string class_name(const TrainingObject& object) {
  if (!object.class_name.empty() && simple_name(object.class_name) == object.type) return object.class_name;
  const Known* const one = known(object.type);
  return std::string(one != nullptr ? one->package : std::string_view()) + object.type;
}

}  // namespace detail::training

namespace {

using detail::training::find;
using detail::training::kRate;
using detail::training::kRateSchedule;
using detail::training::kValues;

template <class T>
void replace(TrainingObject& object, std::vector<std::pair<std::string, T>>& members, std::string_view name, T value) {
  if (T* const found = find(members, name)) {
    *found = std::move(value);
    return;
  }
  std::string own(name);  // a copy, because the name may be a view into the erased member
  object.erase(own);
  members.emplace_back(std::move(own), std::move(value));
}

TrainingObject made(std::string_view type) {
  TrainingObject object;
  object.type = type;
  return object;
}

TrainingObject with_rate(std::string_view type, const TrainingRate& rate) {
  TrainingObject object = made(type);
  object.set(kRate, rate.rate());
  if (!rate.schedule().type.empty()) object.set(kRateSchedule, rate.schedule());
  return object;
}

TrainingObject adam_like(std::string_view type, const TrainingRate& rate, double beta1, double beta2, double epsilon) {
  return std::move(with_rate(type, rate).set("beta1", beta1).set("beta2", beta2).set("epsilon", epsilon));
}

TrainingObject scheduled(std::string_view name, ScheduleType type) {
  return std::move(made(name).set("scheduleType", type == ScheduleType::epoch ? "EPOCH" : "ITERATION"));
}

TrainingObject as_schedule(const TrainingRate& rate) {
  return rate.schedule().type.empty() ? schedules::fixed(rate.rate()) : rate.schedule();
}

}  // namespace

bool operator==(const TrainingObject& a, const TrainingObject& b) {
  const auto members = [](const TrainingObject& o) {
    return std::tie(o.type, o.class_name, o.numbers, o.flags, o.texts, o.objects, o.values, o.other);
  };
  return members(a) == members(b);
}

const TrainingNumber* TrainingObject::number(std::string_view name) const noexcept { return find(numbers, name); }
const bool* TrainingObject::flag(std::string_view name) const noexcept { return find(flags, name); }
const std::string* TrainingObject::text(std::string_view name) const noexcept { return find(texts, name); }
const TrainingObject* TrainingObject::object(std::string_view name) const noexcept { return find(objects, name); }

TrainingObject& TrainingObject::set(std::string_view name, TrainingNumber number) {
  return replace(*this, numbers, name, number), *this;
}
TrainingObject& TrainingObject::set(std::string_view name, std::string text) {
  return replace(*this, texts, name, std::move(text)), *this;
}
TrainingObject& TrainingObject::set(std::string_view name, TrainingObject object) {
  return replace(*this, objects, name, std::move(object)), *this;
}
TrainingObject& TrainingObject::set_flag(std::string_view name, bool flag) {
  return replace(*this, flags, name, flag), *this;
}

void TrainingObject::erase(std::string_view name) {
  const auto named = [name](const auto& member) { return member.first == name; };
  std::erase_if(numbers, named);
  std::erase_if(flags, named);
  std::erase_if(texts, named);
  std::erase_if(objects, named);
  std::erase_if(other, [name](const TrainingRaw& raw) { return raw.name == name; });
  if (name == kValues) values.clear();
}

std::optional<std::span<const std::string_view>> updater_state_keys(std::string_view updater) noexcept {
  const detail::training::Known* const one = detail::training::known(detail::training::simple_name(updater));
  if (one == nullptr || one->package != detail::training::kUpdaters) return std::nullopt;
  return one->state;
}

namespace updaters {

TrainingObject adam(const TrainingRate& learning_rate, double beta1, double beta2, double epsilon) {
  return adam_like("Adam", learning_rate, beta1, beta2, epsilon);
}
TrainingObject ams_grad(const TrainingRate& learning_rate, double beta1, double beta2, double epsilon) {
  return adam_like("AMSGrad", learning_rate, beta1, beta2, epsilon);
}
TrainingObject nadam(const TrainingRate& learning_rate, double beta1, double beta2, double epsilon) {
  return adam_like("Nadam", learning_rate, beta1, beta2, epsilon);
}
TrainingObject ada_max(const TrainingRate& learning_rate, double beta1, double beta2, double epsilon) {
  return adam_like("AdaMax", learning_rate, beta1, beta2, epsilon);
}
TrainingObject ada_belief(const TrainingRate& learning_rate, double beta1, double beta2, double epsilon) {
  return adam_like("AdaBelief", learning_rate, beta1, beta2, epsilon);
}
TrainingObject nesterovs(const TrainingRate& learning_rate, const TrainingRate& momentum) {
  TrainingObject object = with_rate("Nesterovs", learning_rate);
  object.set("momentum", momentum.rate());
  if (!momentum.schedule().type.empty()) object.set("momentumISchedule", momentum.schedule());
  return object;
}
TrainingObject rms_prop(const TrainingRate& learning_rate, double rms_decay, double epsilon) {
  return std::move(with_rate("RmsProp", learning_rate).set("rmsDecay", rms_decay).set("epsilon", epsilon));
}
TrainingObject ada_grad(const TrainingRate& learning_rate, double epsilon) {
  return std::move(with_rate("AdaGrad", learning_rate).set("epsilon", epsilon));
}
TrainingObject ada_delta(double rho, double epsilon) {
  return std::move(made("AdaDelta").set("rho", rho).set("epsilon", epsilon));
}
TrainingObject sgd(const TrainingRate& learning_rate) { return with_rate("Sgd", learning_rate); }
TrainingObject no_op() { return made("NoOp"); }

}  // namespace updaters

namespace schedules {

TrainingObject fixed(double value) { return std::move(made("FixedSchedule").set("value", value)); }
TrainingObject step(ScheduleType type, double initial_value, double decay_rate, double step) {
  TrainingObject object = scheduled("StepSchedule", type);
  return std::move(object.set("initialValue", initial_value).set("decayRate", decay_rate).set("step", step));
}
TrainingObject exponential(ScheduleType type, double initial_value, double gamma) {
  TrainingObject object = scheduled("ExponentialSchedule", type);
  return std::move(object.set("initialValue", initial_value).set("gamma", gamma));
}
TrainingObject inverse(ScheduleType type, double initial_value, double gamma, double power) {
  TrainingObject object = scheduled("InverseSchedule", type);
  return std::move(object.set("initialValue", initial_value).set("gamma", gamma).set("power", power));
}
TrainingObject poly(ScheduleType type, double initial_value, double power, std::int32_t max_iter) {
  TrainingObject object = scheduled("PolySchedule", type);
  return std::move(object.set("initialValue", initial_value).set("power", power).set("maxIter", max_iter));
}
TrainingObject sigmoid(ScheduleType type, double initial_value, double gamma, std::int32_t step_size) {
  TrainingObject object = scheduled("SigmoidSchedule", type);
  return std::move(object.set("initialValue", initial_value).set("gamma", gamma).set("stepSize", step_size));
}
TrainingObject map(ScheduleType type, std::map<std::int64_t, TrainingNumber> values) {
  TrainingObject object = scheduled("MapSchedule", type);
  object.values = std::move(values);
  return object;
}
TrainingObject cycle(ScheduleType type, double initial_learning_rate, double max_learning_rate,
                     std::int32_t cycle_length, std::int32_t annealing_length, double annealing_decay) {
  TrainingObject object = scheduled("CycleSchedule", type);
  object.set("initialLearningRate", initial_learning_rate).set("maxLearningRate", max_learning_rate);
  object.set("cycleLength", cycle_length).set("annealingLength", annealing_length);
  object.set("annealingDecay", annealing_decay);
  // Java derives these values. With a step of 0, Java never uses the increment.
  const std::int64_t step = (std::int64_t{cycle_length} - annealing_length) / 2;
  object.set("stepSize", step);
  object.set("increment", step == 0 ? 0.0 : (max_learning_rate - initial_learning_rate) / static_cast<double>(step));
  return object;
}
TrainingObject ramp(TrainingObject base, std::int32_t num_iter) {
  return std::move(made("RampSchedule").set("baseSchedule", std::move(base)).set("numIter", num_iter));
}

}  // namespace schedules

namespace regularizations {

TrainingObject l1(const TrainingRate& coefficient) {
  return std::move(made("L1Regularization").set("l1", as_schedule(coefficient)));
}
TrainingObject l2(const TrainingRate& coefficient) {
  return std::move(made("L2Regularization").set("l2", as_schedule(coefficient)));
}
TrainingObject weight_decay(const TrainingRate& coefficient, bool apply_learning_rate) {
  return std::move(made("WeightDecay").set("coeff", as_schedule(coefficient)).set("applyLR", apply_learning_rate));
}

}  // namespace regularizations

}  // namespace stele::inline v0
