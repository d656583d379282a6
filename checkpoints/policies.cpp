#include "stele/checkpoints/policies.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ranking.hpp"

namespace stele::inline v0 {
namespace detail {

double metric_of(const StepInfo& step, const std::string& metric) {
  const auto found = step.metrics.find(metric);
  return found != step.metrics.end() ? found->second : std::numeric_limits<double>::quiet_NaN();
}

std::vector<std::size_t> ranked(std::span<const StepInfo> steps, const std::string& metric, Better better) {
  std::vector<std::size_t> order(steps.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;  // newest first; the sort is stable
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const double x = metric_of(steps[a], metric);
    const double y = metric_of(steps[b], metric);
    if (std::isnan(x) || std::isnan(y)) return !std::isnan(x) && std::isnan(y);
    return better == Better::lower ? x < y : x > y;
  });
  return order;
}

}  // namespace detail

KeepPolicy::KeepPolicy(Select select) : select_(std::move(select)) {}

std::vector<bool> KeepPolicy::operator()(std::span<const StepInfo> steps) const {
  std::vector<bool> kept(steps.size());
  if (select_) select_(steps, kept);
  kept.resize(steps.size());
  if (!kept.empty()) kept.back() = true;
  return kept;
}

KeepPolicy operator|(KeepPolicy a, KeepPolicy b) {
  return KeepPolicy(
      [a = std::move(a.select_), b = std::move(b.select_)](std::span<const StepInfo> steps, std::vector<bool>& kept) {
        a(steps, kept);
        b(steps, kept);
      });
}

namespace keep {

KeepPolicy all() {
  return KeepPolicy([](std::span<const StepInfo> steps, std::vector<bool>& kept) { kept.assign(steps.size(), true); });
}

KeepPolicy latest(std::size_t count) {
  return KeepPolicy([count](std::span<const StepInfo> steps, std::vector<bool>& kept) {
    for (std::size_t i = steps.size() - std::min(count, steps.size()); i < steps.size(); ++i) kept[i] = true;
  });
}

KeepPolicy best(std::size_t count, std::string metric, Better better) {
  return KeepPolicy(
      [count, better, metric = std::move(metric)](std::span<const StepInfo> steps, std::vector<bool>& kept) {
        const std::vector<std::size_t> order = detail::ranked(steps, metric, better);
        for (std::size_t i = 0; i < std::min(count, order.size()); ++i) kept[order[i]] = true;
      });
}

KeepPolicy every_steps(std::int64_t steps) {
  return matching([steps](const StepInfo& info) { return steps > 0 && info.step % steps == 0; });
}

KeepPolicy every_seconds(double seconds) {
  return KeepPolicy([seconds](std::span<const StepInfo> steps, std::vector<bool>& kept) {
    std::optional<std::int64_t> last;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      // Keeps a step whose time is before the last kept one: the clock was set back.
      const double since = last ? static_cast<double>(steps[i].time_ms) - static_cast<double>(*last) : -1;
      if (since >= 0 && since < seconds * 1000) continue;
      kept[i] = true;
      last = steps[i].time_ms;
    }
  });
}

KeepPolicy matching(std::function<bool(const StepInfo&)> predicate) {
  return KeepPolicy([predicate = std::move(predicate)](std::span<const StepInfo> steps, std::vector<bool>& kept) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (predicate(steps[i])) kept[i] = true;
    }
  });
}

}  // namespace keep

SavePolicy::SavePolicy(Decide decide, std::vector<int> signals)
    : decide_(std::move(decide)), signals_(std::move(signals)) {}

SavePolicy operator|(const SavePolicy& a, const SavePolicy& b) {
  std::vector<int> signals = a.signals_;
  signals.insert(signals.end(), b.signals_.begin(), b.signals_.end());
  return SavePolicy([a, b](const SaveMoment& moment) { return a(moment) || b(moment); }, std::move(signals));
}

namespace save_when {

SavePolicy every_steps(std::int64_t steps) {
  return SavePolicy([steps](const SaveMoment& moment) { return steps > 0 && moment.step % steps == 0; });
}

SavePolicy every_seconds(double seconds) {
  return SavePolicy([seconds](const SaveMoment& moment) { return moment.seconds >= seconds; });
}

SavePolicy on_signal(std::initializer_list<int> signals) {
  return SavePolicy(
      [all = std::vector<int>(signals)](const SaveMoment& moment) {
        return std::find(all.begin(), all.end(), moment.signal) != all.end();
      },
      signals);
}

}  // namespace save_when

}  // namespace stele::inline v0
