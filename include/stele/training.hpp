// TrainingConfig: the state of a training loop without arrays and graph, as DL4J's SameDiff writes it: updater,
// schedules, regularization, names of inputs and labels, counts. Contains only values, no training loop.
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

namespace stele::inline v0 {

namespace detail {
template <class T>
concept TrainingInteger = std::integral<T> && !std::same_as<T, bool>;
template <class T>
concept TrainingScalar = std::integral<T> || std::floating_point<T>;
}  // namespace detail

/// A number of a configuration. An integer remains one, because DL4J's text distinguishes `1` and `1.0`. NaN equals
/// NaN.
class TrainingNumber {
 public:
  /// Makes a double; NaN and the infinities are allowed, and are the strings "NaN", "Infinity", "-Infinity" in JSON.
  TrainingNumber(double number = 0) noexcept : number_(number) {}  // NOLINT(google-explicit-constructor)
  /// Makes an integer; a number that does not fit std::int64_t becomes a double.
  template <detail::TrainingInteger T>
  TrainingNumber(T integer) noexcept  // NOLINT(google-explicit-constructor)
      : number_(static_cast<double>(integer)),
        is_integer_(std::signed_integral<T> || static_cast<std::uint64_t>(integer) <= INT64_MAX) {
    if (is_integer_) integer_ = static_cast<std::int64_t>(integer);
  }

  /// Returns the number; an integer beyond 2^53 is rounded.
  double value() const noexcept { return number_; }
  /// Returns the exact integer, or nullopt if the text had a fraction or an exponent.
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

/// A member that is not part of the class; its value is kept as JSON text.
struct TrainingRaw {
  std::string name;  ///< decoded
  std::string json;  ///< one JSON value; invalid JSON is written as null

  friend bool operator==(const TrainingRaw&, const TrainingRaw&) = default;
};

/// An updater, a schedule or a regularization: an object whose "@class" is a Java class name. stele never looks up or
/// executes the class. Members are grouped by kind; each name occurs once.
struct STELE_EXPORT TrainingObject {
  /// The class name without its package: "Adam", "StepSchedule", "L2Regularization". Empty: no object (null in JSON).
  std::string type{};
  /// The full name, if it differs from the DL4J 1.0.0-M2.1 name for `type`; else empty. Ignored unless it ends in
  /// `type`.
  std::string class_name{};
  std::vector<std::pair<std::string, TrainingNumber>> numbers{};  ///< learningRate, beta1, initialValue, …
  std::vector<std::pair<std::string, bool>> flags{};              ///< applyLR
  std::vector<std::pair<std::string, std::string>> texts{};       ///< scheduleType: "ITERATION" or "EPOCH"
  /// learningRateSchedule, l1, l2, coeff, baseSchedule, …
  std::vector<std::pair<std::string, TrainingObject>> objects{};
  std::map<std::int64_t, TrainingNumber> values{};  ///< for a MapSchedule: the first count of each value, and the value
  std::vector<TrainingRaw> other{};                 ///< all other members: null, arrays, objects without "@class"

  /// Parses such an object. Errors: those of TrainingConfig::parse().
  static Result<TrainingObject> parse(std::string_view json);
  /// Returns the object as DL4J writes it; invalid UTF-8 in strings is replaced by U+FFFD.
  std::string json() const;

  /// Returns the number with that name, or nullptr.
  const TrainingNumber* number(std::string_view name) const noexcept;
  /// Returns the flag with that name, or nullptr.
  const bool* flag(std::string_view name) const noexcept;
  /// Returns the string with that name, or nullptr.
  const std::string* text(std::string_view name) const noexcept;
  /// Returns the object with that name, or nullptr.
  const TrainingObject* object(std::string_view name) const noexcept;

  /// Sets an existing member, or adds one; removes a member with the same name but another kind.
  TrainingObject& set(std::string_view name, TrainingNumber number);
  /// Sets a string.
  TrainingObject& set(std::string_view name, std::string text);
  /// Sets a string.
  TrainingObject& set(std::string_view name, const char* text) { return set(name, std::string(text)); }
  /// Sets an object.
  TrainingObject& set(std::string_view name, TrainingObject object);
  /// Sets a flag or a number.
  template <detail::TrainingScalar T>
  TrainingObject& set(std::string_view name, T value) {
    if constexpr (std::same_as<T, bool>) {
      return set_flag(name, value);
    } else {
      return set(name, TrainingNumber(value));
    }
  }
  /// Removes the member with that name, of any kind.
  void erase(std::string_view name);

  // Not defaulted: that would instantiate std::pair<std::string, TrainingObject> while the class is incomplete.
  friend STELE_EXPORT bool operator==(const TrainingObject&, const TrainingObject&);

 private:
  TrainingObject& set_flag(std::string_view name, bool flag);
};

/// The text from which a configuration was parsed. Always compares equal, because it is not part of a configuration's
/// value.
struct TrainingText {
  std::shared_ptr<const std::string> text;  ///< null if the configuration has none

  friend bool operator==(const TrainingText&, const TrainingText&) noexcept { return true; }
};

/// SameDiff's training configuration. A null mapping differs from an empty one.
struct STELE_EXPORT TrainingConfig {
  /// Names of placeholders, in the order of a data set's arrays.
  using Names = std::optional<std::vector<std::string>>;

  TrainingObject updater{};                      ///< Adam, Sgd, …; none if its type is empty
  std::vector<TrainingObject> regularization{};  ///< applies to all parameters
  bool minimize = true;                          ///< true: the loss is minimized; false: maximized
  Names data_set_feature_mapping{};              ///< placeholders of the features
  Names data_set_label_mapping{};                ///< placeholders of the labels
  Names data_set_feature_mask_mapping{};         ///< placeholders of the features' masks
  Names data_set_label_mask_mapping{};           ///< placeholders of the labels' masks
  Names loss_variables{};                        ///< null: the graph contains them
  /// Number of completed updates, which Adam's correction and schedules use. DL4J stores it, like the epochs, as an
  /// int.
  std::int64_t iteration_count = 0;
  std::int64_t epoch_count = 0;      ///< number of completed epochs
  std::vector<TrainingRaw> other{};  ///< initialLossDataType, trainEvaluations, …, and members of later versions
  TrainingText source{};             ///< set by parse()

  /// Parses the JSON of DL4J. Strict. Keeps unknown members. Errors, with the offset: malformed (invalid JSON, or a
  /// known member of another kind), duplicate (a repeated name, in known members), limit (objects nested deeper than 16
  /// levels, an object of more than 1024 members, or a text that would take more memory than twice its size and 16
  /// MiB).
  static Result<TrainingConfig> parse(std::string_view json);
  /// Returns JSON that DL4J 1.0.0-M2.1 reads. If nothing has changed since parse(), returns the parsed text. After a
  /// change, known members are in DL4J's order, followed by the other members unchanged. (DL4J 1.0.0-M2.1 also writes a
  /// RampSchedule, but cannot read it.) Invalid UTF-8 in strings is replaced by U+FFFD.
  std::string json() const;

  friend bool operator==(const TrainingConfig&, const TrainingConfig&) = default;
};

/// Returns the names of the arrays that an updater stores for each parameter, in the order of files that store no
/// names: {"M", "V"} for Adam. Empty for Sgd and NoOp, which store none; nullopt for an updater that stele does not
/// know. Accepts names with or without the package.
STELE_EXPORT std::optional<std::span<const std::string_view>> updater_state_keys(std::string_view updater) noexcept;

/// The unit in which a schedule counts its steps.
enum class ScheduleType : std::uint8_t { iteration, epoch };

/// Computes a schedule's value like valueAt(iteration, epoch) of ND4J 1.0.0-M2.1, in org.nd4j.linalg.schedule:
/// FixedSchedule, StepSchedule, ExponentialSchedule, InverseSchedule, PolySchedule, SigmoidSchedule, MapSchedule,
/// CycleSchedule, RampSchedule. PolySchedule rises until maxIter, as in ND4J: initialValue * (1 + i / maxIter) ^ power.
/// Counts begin at 0. Errors: unsupported (another class), missing (a parameter), malformed (an invalid parameter),
/// invalid_argument (a count below 0), limit (RampSchedules more than 16 deep).
STELE_EXPORT Result<double> value_at(const TrainingObject& schedule, std::int64_t iteration, std::int64_t epoch);

/// Returns the updater's learning rate: its schedule at these counts, or its learningRate. NaN for the updaters of DL4J
/// without a learning rate (AdaDelta, NoOp). Errors: those of value_at(), and missing if any other updater has neither.
STELE_EXPORT Result<double> learning_rate(const TrainingObject& updater, std::int64_t iteration, std::int64_t epoch);
/// Returns the learning rate at the configuration's own counts, that is, for the next update.
STELE_EXPORT Result<double> learning_rate(const TrainingConfig& config);

/// A constant rate, or a schedule.
class TrainingRate {
 public:
  /// Makes a constant rate.
  TrainingRate(double rate) : rate_(rate) {}  // NOLINT(google-explicit-constructor)
  /// Makes a schedule.
  TrainingRate(TrainingObject schedule) : schedule_(std::move(schedule)) {}  // NOLINT(google-explicit-constructor)

  /// Returns the rate; NaN if there is a schedule.
  double rate() const noexcept { return rate_; }
  /// Returns the schedule; its type is empty if there is none.
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

/// The schedules of org.nd4j.linalg.schedule; i is the iteration or the epoch, depending on the type.
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
/// MapSchedule: the value of the greatest key that is at most i; there must be a key 0.
STELE_EXPORT TrainingObject map(ScheduleType type, std::map<std::int64_t, TrainingNumber> values);
/// CycleSchedule: in each cycle, rises from the initial rate to the maximum, falls again, then anneals.
STELE_EXPORT TrainingObject cycle(ScheduleType type, double initial_learning_rate, double max_learning_rate,
                                  std::int32_t cycle_length, std::int32_t annealing_length, double annealing_decay);
/// RampSchedule: rises to `base` over the first num_iter iterations. DL4J 1.0.0-M2.1 cannot read it.
STELE_EXPORT TrainingObject ramp(TrainingObject base, std::int32_t num_iter);

}  // namespace schedules

/// The regularizations of org.nd4j.linalg.learning.regularization; DL4J stores a number as a FixedSchedule.
namespace regularizations {

/// L1Regularization.
STELE_EXPORT TrainingObject l1(const TrainingRate& coefficient);
/// L2Regularization.
STELE_EXPORT TrainingObject l2(const TrainingRate& coefficient);
/// WeightDecay; `apply_learning_rate`: multiplies the coefficient by the learning rate.
STELE_EXPORT TrainingObject weight_decay(const TrainingRate& coefficient, bool apply_learning_rate);

}  // namespace regularizations

}  // namespace stele::inline v0
