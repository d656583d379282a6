#include "state.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

#include "base/parallel.hpp"
#include "base/threads.hpp"
#include "io/os/os.hpp"
#include "parts.hpp"
#include "snapshot/device_leaves.hpp"
#include "stele/config.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

using steps::max_deltas;

namespace {
Error lacks_base(const StepInfo& step, const std::string& why) {
  return Error(Errc::checksum, "the step is a delta of one that cannot be read: " + why).file(step.folder);
}
}  // namespace

Error too_many_deltas(std::size_t deltas) {
  return Error(Errc::invalid_argument, "too many steps in a row would be deltas")
      .expected("at most " + std::to_string(max_deltas))
      .found(std::to_string(deltas));
}

ManagerState::ManagerState(std::string folder, std::shared_ptr<const Format> format, PrecisionSpec precision,
                           ManagerOptions options)
    : folder_(std::move(folder)),
      format_(std::move(format)),
      precision_(precision),
      options_(std::move(options)),
      memory_(options_.staging_bytes, options_.parts.transfer) {
  while (folder_.size() > 1 && folder_.ends_with('/')) folder_.pop_back();
}

ManagerState::~ManagerState() {
  if (thread_.started()) {
    {
      const Lock lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  if (error_) std::fprintf(stderr, "stele: a background save failed: %s\n", error_->to_string().c_str());
}

Status ManagerState::start() {
  if (folder_.empty()) return Error(Errc::invalid_argument, "the path is empty");
  STELE_TRY(steps::check_format(format_.get(), precision_, options_.load));
  if (options_.deltas != 0) STELE_TRY(check_deltas());
  STELE_TRY_ASSIGN(place_, steps::place_at(folder_));
  STELE_TRY(place_->start(options_.parts.dry_run));
  STELE_TRY(refresh());
  if (!known_.empty()) last_step_ = known_.back().step;
  return signals_.start(options_.save.signals());
}

Status ManagerState::check_deltas() const {
  if (options_.deltas > max_deltas) return too_many_deltas(options_.deltas);
  if (!steps::stores_deltas(*format_)) {
    return Error(Errc::invalid_argument, "the format stores no deltas of steps")
        .found(format_->name())
        .hint("open the manager with a CompressedRecorder");
  }
  if (precision_.quantized_bits == 0 && precision_.block_rules.empty()) return {};
  return Error(Errc::invalid_argument, "quantized steps cannot be deltas");
}

Status ManagerState::refresh() {
  STELE_TRY_ASSIGN(const bool replaced, place_->replaced());
  if (replaced) known_.clear();
  STELE_TRY_ASSIGN(const std::vector<std::int64_t> all, numbers());
  std::vector<StepInfo> found;
  for (const std::int64_t step : all) {
    if (const auto at = find(step); at != known_.end() && at->step == step) {
      found.push_back(*at);
    } else if (auto read = manifest(step, steps::Check::sizes)) {
      found.push_back(std::move(read->info));
    } else if (steps::is_of_machine(read.error())) {
      return std::move(read).error();
    }
  }
  known_ = std::move(found);
  return {};
}

Result<steps::Manifest> ManagerState::manifest(std::int64_t step, steps::Check check) const {
  STELE_TRY_ASSIGN(steps::Manifest found, place_->manifest(step, check));
  std::size_t depth = 0;
  for (auto base = found.info.base; base;) {
    auto of_base = ++depth <= max_deltas ? place_->manifest(*base, check)
                                         : Result<steps::Manifest>(Error(Errc::limit, "too many deltas on each other"));
    if (!of_base) {
      if (steps::is_of_machine(of_base.error())) return std::move(of_base).error();
      return lacks_base(found.info, of_base.error().to_string());
    }
    base = of_base->info.base;
  }
  return found;
}

Result<std::vector<StepInfo>> ManagerState::list(std::vector<BrokenStep>* broken) const {
  STELE_TRY_ASSIGN(const std::vector<std::int64_t> all, numbers());
  std::vector<StepInfo> found;
  for (const std::int64_t step : all) {  // a base is before its deltas
    auto read = place_->manifest(step, steps::Check::sizes);
    if (read && read->info.base) {
      const auto at = std::lower_bound(found.begin(), found.end(), *read->info.base,
                                       [](const StepInfo& info, std::int64_t number) { return info.step < number; });
      if (at == found.end() || at->step != *read->info.base) {
        read = lacks_base(read->info, "step " + std::to_string(*read->info.base));
      }
    }
    if (read) {
      found.push_back(std::move(read->info));
    } else if (steps::is_of_machine(read.error())) {
      return std::move(read).error();
    } else if (broken != nullptr) {
      broken->push_back({step, std::move(read).error()});
    }
  }
  return found;
}

bool ManagerState::due(std::int64_t step, int signal) const {
  std::optional<Lock> lock;
  if (!forked()) lock.emplace(mutex_);  // a thread that does not exist in this process may hold it
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - last_time_;
  const auto last_step = last_step_;
  lock.reset();
  return options_.save({step, last_step, since.count(), signal});
}

bool ManagerState::forked() const noexcept {
  const std::uint64_t process = process_.load();
  return process != 0 && process != os::process_id();
}

Status ManagerState::check_process() const {
  if (!forked()) return {};
  return Error(Errc::invalid_argument, "the manager of another process, which was forked, saves no steps")
      .file(folder_)
      .hint("open a manager in the new process, after the other has ended its saves");
}

ManagerState::Begun ManagerState::begin(std::int64_t step) {
  const Lock lock(mutex_);
  last_time_ = std::chrono::steady_clock::now();
  return {signals_.begin(), step, std::exchange(last_step_, step)};
}

void ManagerState::end(const Begun& begun, bool saved) {
  const bool answered = saved && !options_.parts.dry_run;
  signals_.end(begun.answer, answered);
  const Lock lock(mutex_);
  if (answered) last_step_ = begun.step;
  if (!answered && last_step_ == begun.step) last_step_ = begun.last_step;
}

// ---- saving

Result<SavedStep> ManagerState::save(std::int64_t step, const Checkpoint& checkpoint, const StepValues& values) {
  STELE_TRY(idle());
  return finish(begin(step), checkpoint, values);
}

Result<SavedStep> ManagerState::finish(const Begun& begun, const Checkpoint& checkpoint, const StepValues& values) {
  const Lock turn(saving_);
  auto saved = guarded([&]() -> Result<SavedStep> {
    // Deltas read the tensors before a format does.
    Checkpoint readable{{}, checkpoint.graph, checkpoint.training, {}, checkpoint.left_out};
    STELE_TRY_ASSIGN(readable.parameters, read_through(checkpoint.parameters, options_.parts.transfer));
    for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) {
      STELE_TRY_ASSIGN(Snapshot kind, read_through(arrays, options_.parts.transfer));
      readable.optimizer.set_snapshot(key, std::move(kind));
    }
    return write(begun.step, begun.answer.signal, readable, values);
  });
  end(begun, saved.has_value());
  return saved;
}

Status ManagerState::save_async(std::int64_t step, const Checkpoint& checkpoint, const StepValues& values) {
  STELE_TRY(check_process());
  {
    const Lock lock(mutex_);
    STELE_TRY(take_error());
  }
  const std::uint64_t bytes = steps::staging_size(checkpoint);
  if (!memory_.admits(bytes) || options_.parts.dry_run || !start_thread()) {
    STELE_TRY_ASSIGN(SavedStep saved, save(step, checkpoint, values));
    const Lock lock(mutex_);
    saved_.push_back(std::move(saved));
    return {};
  }
  Task task;
  task.values = values;
  task.begun = begin(step);
  auto added = guarded([&]() -> Status {
    STELE_TRY_ASSIGN(task.block, memory_.take(bytes));
    STELE_TRY_ASSIGN(task.checkpoint,
                     steps::staged(checkpoint, task.block.span(), workers_of(options_.parts), options_.parts.transfer));
    const Lock lock(mutex_);
    tasks_.push_back(std::move(task));
    return {};
  });
  if (added) {
    changed_.notify_all();
  } else {
    task.checkpoint = {};
    memory_.give_back(std::move(task.block));
    end(task.begun, false);
  }
  return added;
}

bool ManagerState::start_thread() noexcept {
  const Lock lock(mutex_);
  if (thread_.started()) return true;
  thread_ = Thread([this] { work(); });
  if (thread_.started()) process_ = os::process_id();
  return thread_.started();
}

void ManagerState::work() {
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    working_ = true;
    lock.unlock();
    auto saved = finish(task.begun, task.checkpoint, task.values);
    task.checkpoint = {};
    memory_.give_back(std::move(task.block));
    lock.lock();
    working_ = false;
    if (saved) {
      auto noted = guarded([&]() -> Status {
        saved_.push_back(*std::move(saved));
        return {};
      });
      if (!noted && !error_) error_ = std::move(noted).error();
    } else if (!error_) {
      error_ = std::move(saved).error();
    }
    changed_.notify_all();
  }
}

Status ManagerState::idle() {
  STELE_TRY(check_process());
  Lock lock(mutex_);
  changed_.wait(lock, [&] { return tasks_.empty() && !working_; });
  return take_error();
}

Status ManagerState::take_error() {
  if (!error_) return {};
  Error error = *std::move(error_);
  error_.reset();
  return error;
}

Result<std::vector<SavedStep>> ManagerState::wait() {
  STELE_TRY(idle());
  const Lock lock(mutex_);
  return std::exchange(saved_, {});
}

Status ManagerState::check_budget(std::int64_t step, std::uint64_t bytes) const {
  if (options_.max_bytes == 0) return {};
  std::uint64_t all = bytes;
  for (const StepInfo& info : known_) all += info.step != step ? info.bytes : 0;
  if (all <= options_.max_bytes) return {};
  return Error(Errc::no_space, "the step would exceed the budget of the folder")
      .file(folder_)
      .expected("at most " + std::to_string(options_.max_bytes) + " bytes")
      .found(std::to_string(all))
      .hint("keep fewer steps, or raise ManagerOptions::max_bytes");
}

Result<ManagerState::NewStep> ManagerState::begin_step(std::int64_t step, int signal, std::uint64_t bytes,
                                                       const StepValues& values) {
  if (step < 0) return Error(Errc::invalid_argument, "the step is negative").found(std::to_string(step));
  STELE_TRY(refresh());
  STELE_TRY(check_budget(step, bytes));
  STELE_TRY(place_->check_space(bytes, options_.spare_bytes));
  using std::chrono::milliseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  NewStep made;
  made.manifest.info = {.step = step,
                        .folder = path(step),
                        .metrics = values.metrics,
                        .time_ms = std::chrono::duration_cast<milliseconds>(now).count(),
                        .library = "stele " STELE_VERSION_STRING,
                        .format = std::string(format_->name()),
                        .signal = signal,
                        .state = Value(values.state)};
  return made;
}

Status ManagerState::create(NewStep& made) {
  if (options_.parts.dry_run) return {};
  STELE_TRY_ASSIGN(made.sink, place_->create(made.manifest.info.step, options_.parts.file.durability));
  return {};
}

Result<SavedStep> ManagerState::commit_step(NewStep step, Report report) {
  SavedStep saved;
  saved.report = std::move(report);
  StepInfo& info = step.manifest.info;
  if (step.sink != nullptr) {
    for (const steps::ManifestFile& file : step.manifest.files) info.bytes += file.bytes;
    STELE_TRY(place_->commit(*step.sink, step.manifest));
    const auto at = find(info.step);
    at != known_.end() && at->step == info.step ? static_cast<void>(*at = info)
                                                : static_cast<void>(known_.insert(at, info));
    trusted_ = info.step;
  }
  saved.info = std::move(info);
  if (step.sink != nullptr) apply_policy(saved);
  return saved;
}

Result<SavedStep> ManagerState::write(std::int64_t step, int signal, const Checkpoint& checkpoint,
                                      const StepValues& values) {
  const Checkpoint sized{with_precision(checkpoint.parameters, precision_), {}, {}, checkpoint.optimizer};
  STELE_TRY_ASSIGN(NewStep made, begin_step(step, signal, steps::byte_size(sized), values));
  // Also without the option for deltas: older steps may be deltas of the replaced step.
  if (!options_.parts.dry_run) STELE_TRY(detach(step));
  STELE_TRY(create(made));
  const auto bundle = made.sink != nullptr ? made.sink->bundle() : nullptr;
  const auto base = base_for(step);
  if (base) {
    made.manifest.info.base = base->info.step;
    made.manifest.info.deltas = base->info.deltas + 1;
  }
  auto written = steps::write_parts(*format_, precision_, checkpoint, bundle.get(), path(step), options_.parts,
                                    made.manifest, base ? &base->checkpoint : nullptr);
  if (!written && base && written.error().code() != Errc::cancelled) {
    // The base may be damaged; a whole step does not need it. Other errors occur again in the save.
    made.sink.reset();
    STELE_TRY_ASSIGN(made, begin_step(step, signal, steps::byte_size(sized), values));
    STELE_TRY(create(made));
    const auto whole = made.sink->bundle();
    written =
        steps::write_parts(*format_, precision_, checkpoint, whole.get(), path(step), options_.parts, made.manifest);
  }
  STELE_TRY_ASSIGN(Report report, std::move(written));
  if (bundle != nullptr) {
    STELE_TRY(place_->list(*made.sink, made.manifest));
  }
  return commit_step(std::move(made), std::move(report));
}

std::optional<std::int64_t> ManagerState::base_of(std::int64_t step, std::size_t deltas) const {
  if (deltas == 0 || options_.parts.dry_run) return std::nullopt;
  const StepInfo* newest = nullptr;
  {
    const Lock lock(mutex_);
    for (const StepInfo& info : known_) {
      if (info.step < step && broken_.count(info.step) == 0) newest = &info;
    }
  }
  if (newest == nullptr || newest->format != format_->name()) return std::nullopt;
  return newest->deltas < deltas ? std::optional(newest->step) : std::nullopt;
}

std::optional<OpenedStep> ManagerState::base_for(std::int64_t step) const {
  const auto base = base_of(step, options_.deltas);
  if (!base) return std::nullopt;
  auto opened = guarded([&]() -> Result<OpenedStep> {
    // Damage of a step would spread to those that are built upon it.
    STELE_TRY_ASSIGN(const steps::Manifest found,
                     manifest(*base, trusts(*base) ? steps::Check::sizes : steps::Check::contents));
    return open(found);
  });
  return opened ? std::optional(*std::move(opened)) : std::nullopt;
}

std::vector<std::int64_t> ManagerState::deltas_of(std::int64_t step) const {
  std::vector<std::int64_t> found;
  for (const StepInfo& info : known_) {
    if (info.base == step) found.push_back(info.step);
  }
  return found;
}

Status ManagerState::detach(std::int64_t step) {
  for (const std::int64_t number : deltas_of(step)) {
    auto old = manifest(number, steps::Check::contents);
    if (!old) {
      if (steps::is_of_machine(old.error())) return std::move(old).error();
      continue;  // already listed as broken
    }
    STELE_TRY_ASSIGN(const OpenedStep opened, open(*old));
    STELE_TRY(rewrite(*std::move(old), opened.checkpoint, std::nullopt));
  }
  return {};
}

Status ManagerState::bypass(std::int64_t step, std::span<const std::int64_t> later) {
  STELE_TRY_ASSIGN(const steps::Manifest first, manifest(step, steps::Check::contents));
  STELE_TRY_ASSIGN(const Checkpoint older, steps::open_parts(*format_, *place_, first, options_.load));
  for (const std::int64_t number : later) {
    STELE_TRY_ASSIGN(steps::Manifest second, manifest(number, steps::Check::contents));
    STELE_TRY_ASSIGN(const Checkpoint newer, steps::open_parts(*format_, *place_, second, options_.load));
    STELE_TRY_ASSIGN(const Checkpoint both, steps::joined(older, newer, options_.load));
    STELE_TRY(rewrite(std::move(second), both, first.info.base));
  }
  return {};
}

Status ManagerState::rewrite(steps::Manifest manifest, const Checkpoint& parts, std::optional<std::int64_t> base) {
  const std::int64_t step = manifest.info.step;
  NewStep made{std::move(manifest), nullptr};
  made.manifest.info.format = format_->name();
  made.manifest.optimizer.clear();
  STELE_TRY_ASSIGN(made.sink, place_->create(step, options_.parts.file.durability));
  SaveOptions as_it_is = options_.parts;
  as_it_is.metadata.clear();
  STELE_TRY(steps::write_parts(*format_, {}, parts, made.sink->bundle().get(), path(step), as_it_is, made.manifest));
  STELE_TRY(place_->list(*made.sink, made.manifest));
  return commit_again(std::move(made), base);
}

Status ManagerState::commit_again(NewStep made, std::optional<std::int64_t> base) {
  StepInfo& info = made.manifest.info;
  info.base = base;
  if (!base) info.deltas = 0;
  info.bytes = 0;
  for (const steps::ManifestFile& file : made.manifest.files) info.bytes += file.bytes;
  STELE_TRY(place_->commit(*made.sink, made.manifest));
  if (const auto at = find(info.step); at != known_.end() && at->step == info.step) *at = info;
  return {};
}

void ManagerState::note_broken(std::int64_t step) {
  if (forked()) return;  // no save follows
  const Lock lock(mutex_);
  broken_.insert(step);
}

void ManagerState::apply_policy(SavedStep& saved) {
  {
    const Lock lock(mutex_);
    broken_.erase(saved.info.step);
    std::erase_if(known_, [&](const StepInfo& info) { return broken_.count(info.step) != 0; });
  }
  auto kept = guarded([&]() -> Result<std::vector<bool>> { return options_.keep(known_); });
  if (!kept) {
    saved.not_removed = std::move(kept).error();
    return;
  }
  // From the newest to the oldest, so that a chain of steps that are not kept becomes one delta.
  for (std::size_t i = known_.size(); i-- > 0;) {
    // Keeps the step just saved even if the folder has later steps from a run that restarted before them.
    if (known_[i].step == saved.info.step) (*kept)[i] = true;
    std::vector<std::int64_t> later;
    for (std::size_t j = i + 1; j < known_.size(); ++j) {
      if ((*kept)[j] && known_[j].base == known_[i].step) later.push_back(known_[j].step);
    }
    if ((*kept)[i] || later.empty()) continue;
    if (options_.compact && known_[i].base && bypass(known_[i].step, later)) continue;
    (*kept)[i] = true;  // its deltas need it
  }
  std::vector<std::int64_t> unwanted;  // the newest first, so that no step is removed before the deltas of it
  for (std::size_t i = known_.size(); i-- > 0;) {
    if (!(*kept)[i]) unwanted.push_back(known_[i].step);
  }
  for (const std::int64_t step : unwanted) {
    auto removed = place_->check_removable(step);
    if (removed) removed = drop(step);
    if (removed) {
      saved.removed.insert(saved.removed.begin(), step);
    } else if (!saved.not_removed) {
      Error error = std::move(removed).error();
      saved.not_removed = error.file().empty() ? std::move(error).file(path(step)) : std::move(error);
    }
  }
}

std::vector<StepInfo>::iterator ManagerState::find(std::int64_t step) {
  return std::lower_bound(known_.begin(), known_.end(), step,
                          [](const StepInfo& info, std::int64_t number) { return info.step < number; });
}

Status ManagerState::remove(std::int64_t step) {
  STELE_TRY(idle());
  const Lock turn(saving_);
  STELE_TRY(refresh());
  STELE_TRY(detach(step));
  return drop(step);
}

Status ManagerState::drop(std::int64_t step) {
  STELE_TRY(place_->remove(step));
  if (const auto at = find(step); at != known_.end() && at->step == step) known_.erase(at);
  return {};
}

Result<Checkpoint> ManagerState::open_checkpoint(const steps::Manifest& manifest, std::size_t depth) const {
  const Format* format = manifest.info.format == format_->name() ? format_.get() : nullptr;
  for (const Format* older : options_.older_formats) {
    if (format == nullptr && older->name() == manifest.info.format) format = older;
  }
  if (format == nullptr) {
    return Error(Errc::unsupported, "the step was saved in another format")
        .file(manifest.info.folder)
        .expected(format_->name())
        .found(manifest.info.format)
        .hint("set ManagerOptions::older_formats");
  }
  std::optional<Checkpoint> base;
  if (manifest.info.base) {
    if (depth > max_deltas) return Error(Errc::limit, "too many deltas on each other").file(manifest.info.folder);
    STELE_TRY_ASSIGN(const steps::Manifest of_base, place_->manifest(*manifest.info.base, steps::Check::sizes));
    STELE_TRY_ASSIGN(base, open_checkpoint(of_base, depth + 1));
  }
  return steps::open_parts(*format, *place_, manifest, options_.load, base ? &*base : nullptr);
}

Result<OpenedStep> ManagerState::open(const steps::Manifest& manifest) const {
  OpenedStep opened{manifest.info, {}, {}};
  STELE_TRY_ASSIGN(opened.checkpoint, open_checkpoint(manifest));
  return opened;
}

}  // namespace stele::inline v0::detail
