// TrainingConfig: what a training loop must know to go on, as DL4J's SameDiff writes it: updater, schedules,
// regularization, names of inputs and labels, counts. Values only: no loop, no arrays, nothing of a graph.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/config.hpp"
#include "stele/result.hpp"

namespace stele {
inline namespace v0 {

namespace detail {
template <class T>
concept TrainingInteger = std::integral<T> && !std::same_as<T, bool>;
template <class T>
concept TrainingScalar = std::integral<T> || std::floating_point<T>;
}  // namespace detail

/// A number of a configuration; an integer stays one, as `1` and `1.0` are two things in DL4J's text. NaN equals NaN.
class TrainingNumber {
 public:
  /// A double; NaN and the infinities are allowed, and are the strings "NaN", "Infinity", "-Infinity" in JSON.
  TrainingNumber(double number = 0) noexcept : number_(number) {}  // NOLINT(google-explicit-constructor)
  /// An integer; one that is no std::int64_t becomes a double.
  template <detail::TrainingInteger T>
  TrainingNumber(T integer) noexcept  // NOLINT(google-explicit-constructor)
      : number_(static_cast<double>(integer)),
        is_integer_(std::signed_integral<T> || static_cast<std::uint64_t>(integer) <= INT64_MAX) {
    if (is_integer_) integer_ = static_cast<std::int64_t>(integer);
  }

  /// The number; an integer beyond 2^53 is rounded.
  double value() const noexcept { return number_; }
  /// The integer, exactly; nothing where the text had a fraction or an exponent.
  std::optional<std::int64_t> integer() const noexcept {
    return is_integer_ ? std::optional<std::int64_t>(integer_) : std::nullopt;
  }

  friend bool operator==(const TrainingNumber& a, const TrainingNumber& b) noexcept {
    const bool nans = a.number_ != a.number_ && b.number_ != b.number_;
    return a.is_integer_ == b.is_integer_ && a.integer_ == b.integer_ &&
           (nans || std::bit_cast<std::uint64_t>(a.number_) == std::bit_cast<std::uint64_t>(b.number_));
  }

 private:
  double number_;
  std::int64_t integer_ = 0;
  bool is_integer_ = false;
};

/// A member that stele does not understand: its value is kept as the JSON text that it had.
struct TrainingRaw {
  std::string name;  ///< decoded
  std::string json;  ///< one JSON value; what is not JSON is written as null

  friend bool operator==(const TrainingRaw&, const TrainingRaw&) = default;
};

/// An updater, a schedule or a regularization: an object whose "@class" names a Java class. Nothing is ever looked up
/// or run by that name. Members stand by kind, each name once.
struct STELE_EXPORT TrainingObject {
  /// The class without its package: "Adam", "StepSchedule", "L2Regularization". Empty: no object (null in JSON).
  std::string type{};
  /// The full name where it is another than that of DL4J 1.0.0-M2.1, which `type` stands for; empty otherwise. It
  /// counts only while it ends in `type`.
  std::string class_name{};
  std::vector<std::pair<std::string, TrainingNumber>> numbers{};  ///< learningRate, beta1, initialValue, …
  std::vector<std::pair<std::string, bool>> flags{};              ///< applyLR
  std::vector<std::pair<std::string, std::string>> texts{};       ///< scheduleType: "ITERATION" or "EPOCH"
  /// learningRateSchedule, l1, l2, coeff, baseSchedule, …
  std::vector<std::pair<std::string, TrainingObject>> objects{};
  std::map<std::int64_t, TrainingNumber> values{};  ///< of a MapSchedule: from which count on, which value
  std::vector<TrainingRaw> other{};                 ///< all else: null, arrays, objects without "@class"

  /// Reads one such object. Errors: those of TrainingConfig::parse().
  static Result<TrainingObject> parse(std::string_view json);
  /// The object as DL4J writes it; strings that are not UTF-8 get U+FFFD for what is wrong.
  std::string json() const;

  /// The member of that name and kind; nullptr when there is none.
  const TrainingNumber* number(std::string_view name) const noexcept;
  /// As number(): a flag.
  const bool* flag(std::string_view name) const noexcept;
  /// As number(): a text.
  const std::string* text(std::string_view name) const noexcept;
  /// As number(): an object.
  const TrainingObject* object(std::string_view name) const noexcept;

  /// Sets a member in its place, or a new one; a member of that name and another kind goes.
  TrainingObject& set(std::string_view name, TrainingNumber number);
  /// As above: a text.
  TrainingObject& set(std::string_view name, std::string text);
  /// As above: a text.
  TrainingObject& set(std::string_view name, const char* text) { return set(name, std::string(text)); }
  /// As above: an object.
  TrainingObject& set(std::string_view name, TrainingObject object);
  /// As above: a flag or a number.
  template <detail::TrainingScalar T>
  TrainingObject& set(std::string_view name, T value) {
    if constexpr (std::same_as<T, bool>) {
      return set_flag(name, value);
    } else {
      return set(name, TrainingNumber(value));
    }
  }
  /// Removes the member of that name, of whatever kind.
  void erase(std::string_view name);

  friend bool operator==(const TrainingObject&, const TrainingObject&) = default;

 private:
  TrainingObject& set_flag(std::string_view name, bool flag);
};

/// The text that a configuration was read from. Two are always equal: it is no part of a configuration's value.
struct TrainingText {
  std::shared_ptr<const std::string> text;  ///< null: none

  friend bool operator==(const TrainingText&, const TrainingText&) noexcept { return true; }
};

/// SameDiff's training configuration. A mapping that is null and one that is empty are two things.
struct STELE_EXPORT TrainingConfig {
  /// Names of placeholders, in the order of a data set's arrays.
  using Names = std::optional<std::vector<std::string>>;

  TrainingObject updater{};                      ///< Adam, Sgd, …; none while its type is empty
  std::vector<TrainingObject> regularization{};  ///< of all parameters
  bool minimize = true;                          ///< the loss; false: it is maximized
  Names data_set_feature_mapping{};              ///< where the features go
  Names data_set_label_mapping{};                ///< where the labels go
  Names data_set_feature_mask_mapping{};         ///< where the features' masks go
  Names data_set_label_mask_mapping{};           ///< where the labels' masks go
  Names loss_variables{};                        ///< may be null: then the graph says them
  /// Updates that are done: Adam's correction and schedules go by it. An int in DL4J, as are the epochs.
  std::int64_t iteration_count = 0;
  std::int64_t epoch_count = 0;      ///< epochs that are done
  std::vector<TrainingRaw> other{};  ///< initialLossDataType, trainEvaluations, …, and what later versions add
  TrainingText source{};             ///< set by parse()

  /// Reads the JSON of DL4J. Strict: malformed for what is not JSON, or a known member of another kind; duplicate for a
  /// name that stands twice (in what is understood); limit for objects nested deeper than 16, an object of more than
  /// 1024 members, or a text that would take more memory than twice its size and 16 MiB. Members that are not known
  /// are kept. Errors say the offset.
  static Result<TrainingConfig> parse(std::string_view json);
  /// JSON that DL4J 1.0.0-M2.1 reads. The very text that was parsed, as long as nothing has changed since; after a
  /// change known members stand in DL4J's order, the others behind them, as they were. (A RampSchedule is written by
  /// DL4J 1.0.0-M2.1, too, but it cannot read its own.) Strings that are not UTF-8 get U+FFFD for what is wrong.
  std::string json() const;

  friend bool operator==(const TrainingConfig&, const TrainingConfig&) = default;
};

/// Names of the arrays that an updater keeps for each parameter, in the order of files that name none: {"M", "V"} for
/// Adam. Empty for Sgd and NoOp, which keep none; nothing for an updater that stele does not know. With or without
/// the package's name.
STELE_EXPORT std::optional<std::span<const std::string_view>> updater_state_keys(std::string_view updater) noexcept;

/// What counts the steps of a schedule.
enum class ScheduleType : std::uint8_t { iteration, epoch };

/// A schedule's value, as valueAt(iteration, epoch) of ND4J 1.0.0-M2.1 has it, in org.nd4j.linalg.schedule:
/// FixedSchedule, StepSchedule, ExponentialSchedule, InverseSchedule, PolySchedule, SigmoidSchedule, MapSchedule,
/// CycleSchedule, RampSchedule. PolySchedule rises until maxIter, as it does there: initialValue * (1 + i / maxIter) ^
/// power. Counts begin at 0. Errors: unsupported (another class), missing (a parameter), malformed (a parameter that
/// makes no sense), invalid_argument (a count below 0), limit (RampSchedules more than 16 deep).
STELE_EXPORT Result<double> value_at(const TrainingObject& schedule, std::int64_t iteration, std::int64_t epoch);

/// The updater's learning rate: its schedule at these counts, or its learningRate. NaN for the updaters of DL4J that
/// have none (AdaDelta, NoOp). Errors: those of value_at(), and missing where another updater has neither.
STELE_EXPORT Result<double> learning_rate(const TrainingObject& updater, std::int64_t iteration, std::int64_t epoch);
/// The learning rate at the configuration's own counts: of the update that comes next.
STELE_EXPORT Result<double> learning_rate(const TrainingConfig& config);

/// A rate that stays, or a schedule.
class TrainingRate {
 public:
  /// A rate that stays.
  TrainingRate(double rate) : rate_(rate) {}  // NOLINT(google-explicit-constructor)
  /// A schedule.
  TrainingRate(TrainingObject schedule) : schedule_(std::move(schedule)) {}  // NOLINT(google-explicit-constructor)

  /// The rate; NaN where there is a schedule.
  double rate() const noexcept { return rate_; }
  /// The schedule; its type is empty where there is none.
  const TrainingObject& schedule() const noexcept { return schedule_; }

 private:
  double rate_ = std::bit_cast<double>(std::uint64_t{0x7ff8000000000000u});
  TrainingObject schedule_;
};

/// The updaters of org.nd4j.linalg.learning.config, with DL4J's defaults.
namespace updaters {

/// Adam; state M, V.
STELE_EXPORT TrainingObject adam(const TrainingRate& learning_rate = 1e-3, double beta1 = 0.9, double beta2 = 0.999,
                                 double epsilon = 1e-8);
/// AMSGrad; state M, V, V_HAT.
STELE_EXPORT TrainingObject ams_grad(const TrainingRate& learning_rate = 1e-3, double beta1 = 0.9, double beta2 = 0.999,
                                     double epsilon = 1e-8);
/// Nadam; state M, V.
STELE_EXPORT TrainingObject nadam(const TrainingRate& learning_rate = 1e-3, double beta1 = 0.9, double beta2 = 0.999,
                                  double epsilon = 1e-8);
/// AdaMax; state M, V.
STELE_EXPORT TrainingObject ada_max(const TrainingRate& learning_rate = 1e-3, double beta1 = 0.9, double beta2 = 0.999,
                                    double epsilon = 1e-8);
/// AdaBelief; state M, S.
STELE_EXPORT TrainingObject ada_belief(const TrainingRate& learning_rate = 1e-3, double beta1 = 0.9,
                                       double beta2 = 0.999, double epsilon = 1e-14);
/// Nesterovs; state V.
STELE_EXPORT TrainingObject nesterovs(const TrainingRate& learning_rate = 0.1, const TrainingRate& momentum = 0.9);
/// RmsProp; state G.
STELE_EXPORT TrainingObject rms_prop(const TrainingRate& learning_rate = 0.1, double rms_decay = 0.95,
                                     double epsilon = 1e-8);
/// AdaGrad; state grad.
STELE_EXPORT TrainingObject ada_grad(const TrainingRate& learning_rate = 0.1, double epsilon = 1e-6);
/// AdaDelta; state msg, msdx.
STELE_EXPORT TrainingObject ada_delta(double rho = 0.95, double epsilon = 1e-6);
/// Sgd; no state.
STELE_EXPORT TrainingObject sgd(const TrainingRate& learning_rate = 1e-3);
/// NoOp; no state.
STELE_EXPORT TrainingObject no_op();

}  // namespace updaters

/// The schedules of org.nd4j.linalg.schedule; i is the iteration or the epoch, as the type says.
namespace schedules {

/// FixedSchedule: always `value`.
STELE_EXPORT TrainingObject fixed(double value);
/// StepSchedule: initial_value * decay_rate ^ floor(i / step).
STELE_EXPORT TrainingObject step(ScheduleType type, double initial_value, double decay_rate, double step);
/// ExponentialSchedule: initial_value * gamma ^ i.
STELE_EXPORT TrainingObject exponential(ScheduleType type, double initial_value, double gamma);
/// InverseSchedule: initial_value / (1 + gamma * i) ^ power.
STELE_EXPORT TrainingObject inverse(ScheduleType type, double initial_value, double gamma, double power);
/// PolySchedule: initial_value * (1 + i / max_iter) ^ power, and 0 from max_iter on.
STELE_EXPORT TrainingObject poly(ScheduleType type, double initial_value, double power, std::int32_t max_iter);
/// SigmoidSchedule: initial_value / (1 + exp(-gamma * (i - step_size))).
STELE_EXPORT TrainingObject sigmoid(ScheduleType type, double initial_value, double gamma, std::int32_t step_size);
/// MapSchedule: the value of the greatest key up to i; there must be a key 0.
STELE_EXPORT TrainingObject map(ScheduleType type, std::map<std::int64_t, TrainingNumber> values);
/// CycleSchedule: up from the initial rate to the greatest, down again, then annealing, in each cycle.
STELE_EXPORT TrainingObject cycle(ScheduleType type, double initial_learning_rate, double max_learning_rate,
                                  std::int32_t cycle_length, std::int32_t annealing_length, double annealing_decay);
/// RampSchedule: rises to `base` over the first num_iter iterations. DL4J 1.0.0-M2.1 cannot read it.
STELE_EXPORT TrainingObject ramp(TrainingObject base, std::int32_t num_iter);

}  // namespace schedules

/// The regularizations of org.nd4j.linalg.learning.regularization; a number is a FixedSchedule there.
namespace regularizations {

/// L1Regularization.
STELE_EXPORT TrainingObject l1(const TrainingRate& coefficient);
/// L2Regularization.
STELE_EXPORT TrainingObject l2(const TrainingRate& coefficient);
/// WeightDecay; `apply_learning_rate`: the coefficient is multiplied by the learning rate.
STELE_EXPORT TrainingObject weight_decay(const TrainingRate& coefficient, bool apply_learning_rate);

}  // namespace regularizations

}  // namespace v0
}  // namespace stele
