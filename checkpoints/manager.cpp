#include "stele/checkpoints/manager.hpp"

#include <cmath>
#include <utility>

#include "ranking.hpp"
#include "state.hpp"

namespace stele::inline v0 {

void detail::EndManager::operator()(ManagerState* state) const noexcept {
  // The threads that used its locks do not exist in a forked process: it can neither join nor destroy them.
  if (state->forked()) return state->release_signals();
  delete state;
}

CheckpointManager::CheckpointManager(State state) noexcept : state_(std::move(state)) {}
CheckpointManager::CheckpointManager(CheckpointManager&&) noexcept = default;
CheckpointManager& CheckpointManager::operator=(CheckpointManager&&) noexcept = default;
CheckpointManager::~CheckpointManager() = default;

Error CheckpointManager::two_formats(const std::string& folder) {
  return Error(Errc::invalid_argument, "the recorder has a format and a precision")
      .file(folder)
      .hint("set ManagerOptions::parts.format and precision only without a recorder");
}

Result<CheckpointManager> CheckpointManager::open(const std::string& folder, ManagerOptions options) {
  return detail::guarded([&]() -> Result<CheckpointManager> {
    const FormatChoice format = std::exchange(options.parts.format, {});
    const PrecisionSpec precision = std::exchange(options.parts.precision, {});
    State state(new detail::ManagerState(folder, format.shared(), precision, std::move(options)));
    STELE_TRY(state->start());
    return CheckpointManager(std::move(state));
  });
}

bool CheckpointManager::due(std::int64_t step) const { return state_->due(step, state_->signals().pending()); }
bool CheckpointManager::signalled(int signal) const noexcept { return state_->signals().arrived(signal); }
const LoadOptions& CheckpointManager::load_options() const noexcept { return state_->options().load; }

Result<SavedStep> CheckpointManager::save(std::int64_t step, const Checkpoint& checkpoint, const StepValues& values) {
  return detail::guarded([&] { return state_->save(step, checkpoint, values); });
}

Status CheckpointManager::save_async(std::int64_t step, const Checkpoint& checkpoint, const StepValues& values) {
  return detail::guarded([&] { return state_->save_async(step, checkpoint, values); });
}

Result<std::vector<SavedStep>> CheckpointManager::wait() {
  return detail::guarded([&] { return state_->wait(); });
}

Result<std::vector<StepInfo>> CheckpointManager::steps(std::vector<BrokenStep>* broken) const {
  return detail::guarded([&] { return state_->list(broken); });
}

Result<std::optional<StepInfo>> CheckpointManager::latest() const {
  STELE_TRY_ASSIGN(std::vector<StepInfo> all, steps());
  return all.empty() ? std::optional<StepInfo>() : std::optional<StepInfo>(std::move(all.back()));
}

Result<std::optional<StepInfo>> CheckpointManager::best(const std::string& metric, Better better) const {
  STELE_TRY_ASSIGN(std::vector<StepInfo> all, steps());
  const std::vector<std::size_t> order = detail::ranked(all, metric, better);
  if (order.empty() || std::isnan(detail::metric_of(all[order.front()], metric))) return std::optional<StepInfo>();
  return std::optional<StepInfo>(std::move(all[order.front()]));
}

Status CheckpointManager::verify(std::int64_t step) const {
  return detail::guarded([&]() -> Status {
    STELE_TRY(state_->manifest(step, detail::steps::Check::contents));
    return {};
  });
}

Status CheckpointManager::remove(std::int64_t step) {
  return detail::guarded([&]() -> Status { return state_->remove(step); });
}

Result<OpenedStep> CheckpointManager::open_step(std::int64_t step) const {
  return detail::guarded([&]() -> Result<OpenedStep> {
    STELE_TRY_ASSIGN(const detail::steps::Manifest manifest, state_->manifest(step, detail::steps::Check::unchanged));
    return state_->open(manifest);
  });
}

Result<std::optional<OpenedStep>> CheckpointManager::open_latest() const {
  return detail::guarded([&]() -> Result<std::optional<OpenedStep>> {
    STELE_TRY_ASSIGN(const std::vector<std::int64_t> numbers, state_->numbers());
    std::vector<BrokenStep> skipped;
    for (std::size_t i = numbers.size(); i-- > 0;) {
      auto manifest = state_->manifest(numbers[i], detail::steps::Check::unchanged);
      if (!manifest) {
        // These errors do not mark the step as broken: resuming an older step would lose the newer ones.
        const Error& error = manifest.error();
        if (error.code() == Errc::unsupported || detail::steps::is_of_machine(error)) return error;
        state_->note_broken(numbers[i]);
        skipped.push_back({numbers[i], std::move(manifest).error()});
        continue;
      }
      STELE_TRY_ASSIGN(OpenedStep opened, state_->open(*manifest));
      opened.skipped = std::move(skipped);
      return std::optional<OpenedStep>(std::move(opened));
    }
    if (skipped.empty()) return std::optional<OpenedStep>();
    return Error(Errc::checksum, "no step of the folder verifies; the newest: " + skipped.front().error.to_string())
        .file(state_->folder());
  });
}

}  // namespace stele::inline v0
