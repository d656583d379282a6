// ND4J's schedules.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "classes.hpp"
#include "stele/training.hpp"

namespace stele::inline v0 {
namespace {

using namespace detail::training;

// The parameters of a schedule, and the count that the schedule depends on.
class Parameters {
 public:
  Parameters(const TrainingObject& schedule, std::int64_t iteration, std::int64_t epoch)
      : schedule_(schedule), iteration_(iteration), epoch_(epoch) {}

  Result<double> number(std::string_view name) const {
    if (const TrainingNumber* const found = schedule_.number(name)) return found->value();
    return missing(name, "a number");
  }
  // Returns a parameter of Java's type int that is at least `min`.
  Result<std::int64_t> whole(std::string_view name, std::int64_t min = std::numeric_limits<std::int32_t>::min()) const {
    const TrainingNumber* const found = schedule_.number(name);
    if (found == nullptr) return missing(name, "an integer");
    const auto integer = found->integer();
    if (!integer || *integer < min || *integer > std::numeric_limits<std::int32_t>::max()) {
      return Error(Errc::malformed, "a parameter of " + schedule_.type + " is invalid")
          .path(std::string(name))
          .expected("an integer from " + std::to_string(min) + " to 2147483647")
          .found(java_text(found->value()));
    }
    return *integer;
  }
  Result<std::int64_t> count() const {
    const std::string* const type = schedule_.text("scheduleType");
    if (type == nullptr) return missing("scheduleType", "ITERATION or EPOCH");
    if (*type == "ITERATION") return iteration_;
    if (*type == "EPOCH") return epoch_;
    return Error(Errc::malformed, "a parameter of " + schedule_.type + " is invalid")
        .path("scheduleType")
        .expected("ITERATION or EPOCH")
        .found(*type);
  }
  Error missing(std::string_view name, const char* expected) const {
    return Error(Errc::missing, schedule_.type + " lacks a parameter").path(std::string(name)).expected(expected);
  }

 private:
  const TrainingObject& schedule_;
  std::int64_t iteration_, epoch_;
};

Result<double> cycle(const TrainingObject& schedule, const Parameters& given) {
  STELE_TRY_ASSIGN(const std::int64_t count, given.count());
  STELE_TRY_ASSIGN(const double initial, given.number("initialLearningRate"));
  STELE_TRY_ASSIGN(const double greatest, given.number("maxLearningRate"));
  STELE_TRY_ASSIGN(const std::int64_t length, given.whole("cycleLength", 1));
  STELE_TRY_ASSIGN(const std::int64_t annealing, given.whole("annealingLength"));
  STELE_TRY_ASSIGN(const double decay, given.number("annealingDecay"));
  // Java derives these values, but Jackson sets them from the JSON if the JSON contains them.
  std::int64_t step = (length - annealing) / 2;
  if (schedule.number("stepSize") != nullptr) {
    STELE_TRY_ASSIGN(step, given.whole("stepSize"));
  }
  const TrainingNumber* const stated = schedule.number("increment");
  const double increment = stated != nullptr ? stated->value() : (greatest - initial) / static_cast<double>(step);
  const std::int64_t at = count % length;
  if (at < step) return initial + increment * static_cast<double>(at);
  if (at < 2 * step) return greatest - increment * static_cast<double>(at - step);
  return initial * std::pow(decay, static_cast<double>(annealing - (length - at)));
}

Result<double> value_of(const TrainingObject& schedule, std::int64_t iteration, std::int64_t epoch, unsigned depth) {
  const Parameters given(schedule, iteration, epoch);
  const std::string& type = schedule.type;
  if (type == "FixedSchedule") return given.number("value");
  if (type == "CycleSchedule") return cycle(schedule, given);
  if (type == "RampSchedule") {
    const TrainingObject* const inner = schedule.object("baseSchedule");
    if (inner == nullptr) return given.missing("baseSchedule", "a schedule");
    if (depth >= max_depth) return Error(Errc::limit, "schedules nest too deep").expected("at most 16 levels");
    STELE_TRY_ASSIGN(const std::int64_t rise, given.whole("numIter"));
    STELE_TRY_ASSIGN(const double base, value_of(*inner, iteration, epoch, depth + 1));
    if (iteration >= rise - 1) return base;
    return static_cast<double>(iteration + 1) / static_cast<double>(rise) * base;
  }
  if (type == "MapSchedule") {
    STELE_TRY_ASSIGN(const std::int64_t at, given.count());
    const auto after = schedule.values.upper_bound(at);
    if (after == schedule.values.begin()) return given.missing(kValues, "a value for count 0");
    return std::prev(after)->second.value();
  }
  const bool step = type == "StepSchedule", exponential = type == "ExponentialSchedule";
  const bool inverse = type == "InverseSchedule", poly = type == "PolySchedule";
  if (!step && !exponential && !inverse && !poly && type != "SigmoidSchedule") {
    return Error(Errc::unsupported, "the schedule's class is unknown").found(class_name(schedule));
  }
  STELE_TRY_ASSIGN(const std::int64_t count, given.count());
  STELE_TRY_ASSIGN(const double initial, given.number("initialValue"));
  const auto at = static_cast<double>(count);
  if (step) {
    STELE_TRY_ASSIGN(const double decay, given.number("decayRate"));
    STELE_TRY_ASSIGN(const double width, given.number("step"));
    return initial * std::pow(decay, std::floor(at / width));
  }
  if (poly) {
    STELE_TRY_ASSIGN(const double power, given.number("power"));
    STELE_TRY_ASSIGN(const std::int64_t max_iter, given.whole("maxIter"));
    if (count >= max_iter) return 0.0;
    return initial * std::pow(1 + at / static_cast<double>(max_iter), power);
  }
  STELE_TRY_ASSIGN(const double gamma, given.number("gamma"));
  if (exponential) return initial * std::pow(gamma, at);
  if (inverse) {
    STELE_TRY_ASSIGN(const double power, given.number("power"));
    return initial / std::pow(1 + gamma * at, power);
  }
  STELE_TRY_ASSIGN(const std::int64_t middle, given.whole("stepSize"));
  return initial / (1.0 + std::exp(-gamma * static_cast<double>(count - middle)));
}

}  // namespace

Result<double> value_at(const TrainingObject& schedule, std::int64_t iteration, std::int64_t epoch) {
  if (iteration < 0 || epoch < 0) {
    return Error(Errc::invalid_argument, "the iteration or epoch count is negative")
        .expected("0 or more")
        .found(std::to_string(std::min(iteration, epoch)));
  }
  return value_of(schedule, iteration, epoch, 1);
}

Result<double> learning_rate(const TrainingObject& updater, std::int64_t iteration, std::int64_t epoch) {
  if (const TrainingObject* const schedule = updater.object(kRateSchedule))
    return value_at(*schedule, iteration, epoch);
  if (const TrainingNumber* const rate = updater.number(kRate)) return rate->value();
  if (updater.type == "AdaDelta" || updater.type == "NoOp") return std::numeric_limits<double>::quiet_NaN();
  return Error(Errc::missing, updater.type.empty() ? "there is no updater" : updater.type + " lacks a parameter")
      .path(std::string(kRate))
      .expected("a number, or a learningRateSchedule");
}

Result<double> learning_rate(const TrainingConfig& config) {
  return learning_rate(config.updater, config.iteration_count, config.epoch_count);
}

}  // namespace stele::inline v0
