// The steps of a distributed run: process 0 has the manager's state, and all processes read and write.
#include <algorithm>
#include <utility>

#include "checkpoints/state.hpp"
#include "exchange.hpp"
#include "io/files.hpp"
#include "json/json.hpp"
#include "packing.hpp"
#include "part.hpp"
#include "snapshot/module_leaf.hpp"
#include "stele/input.hpp"
#include "stele/recorders/safetensors.hpp"

namespace stele::inline v0::mpi {
namespace detail {
namespace {

namespace json = v0::detail::json;
namespace steps = v0::detail::steps;

/// Returns the size of the whole tensors in bytes.
std::uint64_t global_bytes(const Snapshot& snapshot, PrecisionSpec precision) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const auto place = v0::detail::place_of(leaf);
    const std::uint64_t count = place ? place->global.element_count().value_or(0) : leaf.size();
    bytes += count * element_size(precision.apply(leaf.dtype()));
  }
  return bytes;
}

Result<Value> value_of(std::string_view text) {
  json::Reader in(text);
  Value value;
  STELE_TRY(json::read_value(in, value, json::kMaxValueBytesPerByte * text.size() + 1024));
  return value;
}

/// Returns true for errors after which resume() tries no older step, because this step may be intact.
bool not_skipped(const Error& error) {
  return error.code() == Errc::timed_out || error.code() == Errc::unsupported || steps::is_of_machine(error);
}

}  // namespace

class Manager {
 public:
  explicit Manager(Options made) : options(std::move(made)), exchange(options.timeout_seconds) {}

  Options options;
  Exchange exchange;
  std::unique_ptr<v0::detail::ManagerState> root;  // null in all processes but process 0
  std::unique_ptr<steps::Place> own_place;         // null in process 0, which has that of `root`

  /// Catches the policy's signals, except in process 0, where `root` catches them.
  Status catch_signals(const SavePolicy& policy) { return signals_.start(policy.signals()); }
  Result<bool> due(std::int64_t step) {
    STELE_TRY_ASSIGN(const std::uint64_t signal, exchange.first_of(static_cast<std::uint64_t>(own().pending())));
    signal_ = static_cast<int>(signal);
    STELE_TRY_ASSIGN(const std::uint64_t decision,
                     exchange.first_of(exchange.is_root() && root->due(step, signal_) ? 1 : 0));
    return decision != 0;
  }
  Result<bool> signalled(int signal) {
    STELE_TRY_ASSIGN(const std::uint64_t arrived, exchange.first_of(own().arrived(signal) ? 1 : 0));
    return arrived != 0;
  }

  /// Runs `work` in process 0; all processes get its error.
  template <class Work>
  Status on_root(const Work& work) {
    return exchange.agree(exchange.is_root() ? v0::detail::guarded(work) : Status());
  }

  Result<SavedStep> save(std::int64_t step, const Result<Checkpoint>& made_checkpoint, const StepValues& values) {
    STELE_TRY(exchange.agree(made_checkpoint ? Status() : Status(made_checkpoint.error())));
    const Checkpoint& checkpoint = *made_checkpoint;
    STELE_TRY(check_call(step, checkpoint));
    // Each process marks its signals as answered if the step is on disk.
    v0::detail::ManagerState::Begun begun;
    root != nullptr ? static_cast<void>(begun = root->begin(step)) : static_cast<void>(begun.answer = signals_.begin());
    auto saved = v0::detail::guarded(
        [&] { return write_step(step, begun.answer.signal != 0 ? begun.answer.signal : signal_, checkpoint, values); });
    root != nullptr ? root->end(begun, saved.has_value())
                    : signals_.end(begun.answer, saved.has_value() && !options.save.dry_run);
    if (saved) signal_ = 0;
    return saved;
  }

  Result<SavedStep> write_step(std::int64_t step, int signal, const Checkpoint& checkpoint, const StepValues& values) {
    v0::detail::ManagerState::NewStep made;
    std::string shared;
    STELE_TRY(on_root([&]() -> Status {
      if (checkpoint.graph && !options.save.allow_loss) {
        return Error(Errc::not_representable, "distributed steps cannot store a graph");
      }
      std::uint64_t bytes = global_bytes(checkpoint.parameters, options.precision);
      for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) bytes += global_bytes(arrays, {});
      STELE_TRY_ASSIGN(made, root->begin_step(step, signal, bytes, values));
      if (made.sink != nullptr) shared = place().share(*made.sink, made.manifest);
      return {};
    }));
    STELE_TRY(exchange.broadcast(shared));
    std::unique_ptr<steps::Share> share;
    if (!shared.empty()) share = place().join(step, shared, options.save.file.durability);
    STELE_TRY(on_root([&]() -> Status {  // before several processes create files in them
      for (std::size_t i = 0; share != nullptr && !share->folder().empty() && i <= checkpoint.optimizer.kinds().size();
           ++i) {
        STELE_TRY(v0::detail::os::make_folder(share->folder() + "/" + part_folder(i)));
      }
      return {};
    }));
    SavedStep saved;
    if (checkpoint.graph) saved.report.add(Report::What::lost, "", "the graph");
    STELE_TRY(write(made, 0, checkpoint.parameters, options.precision, share.get(), saved.report));
    made.manifest.parameters = part_folder(0);
    for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) {
      const std::size_t number = made.manifest.optimizer.size() + 1;
      made.manifest.optimizer.emplace_back(key, part_folder(number));
      STELE_TRY(write(made, number, arrays, {}, share.get(), saved.report));
    }
    if (checkpoint.training) made.manifest.training = checkpoint.training->json();
    STELE_TRY(gather_states(values.state, made.manifest));
    std::string manifest;
    STELE_TRY(on_root([&]() -> Status {
      std::sort(made.manifest.files.begin(), made.manifest.files.end(),
                [](const auto& a, const auto& b) { return a.name < b.name; });
      if (made.sink != nullptr) {
        STELE_TRY_ASSIGN(manifest, steps::to_text(made.manifest));
      }
      return {};
    }));
    // From here on the step may become visible, also if process 0 ends before it answers.
    if (share != nullptr) share->keep(true);
    auto committed = on_root([&]() -> Status {
      STELE_TRY_ASSIGN(SavedStep done, root->commit_step(std::move(made), std::move(saved.report)));
      saved = std::move(done);
      return {};
    });
    if (!committed && committed.error().code() == Errc::exists && share != nullptr) share->keep(false);
    STELE_TRY(std::move(committed));
    STELE_TRY(exchange.broadcast(manifest));
    saved.info.step = step;  // a dry run has no manifest
    if (!exchange.is_root() && !manifest.empty()) {
      STELE_TRY_ASSIGN(steps::Manifest read, steps::parse_manifest(manifest));
      saved.info = std::move(read.info);
    }
    return saved;
  }

  Result<std::optional<OpenedStep>> resume(Status status, const std::vector<Target>& targets) {
    STELE_TRY(exchange.agree(std::move(status)));
    std::vector<std::int64_t> numbers;
    STELE_TRY(on_root([&]() -> Status {
      STELE_TRY_ASSIGN(numbers, root->numbers());
      return {};
    }));
    std::vector<BrokenStep> skipped;
    for (;;) {
      STELE_TRY_ASSIGN(std::optional<steps::Manifest> candidate, next(numbers, skipped));
      if (!candidate) break;
      Status verified = verify(*candidate);
      if (!verified) {
        if (not_skipped(verified.error())) return std::move(verified).error();
        if (root != nullptr) root->note_broken(candidate->info.step);
        skipped.push_back({candidate->info.step, std::move(verified).error()});
        continue;
      }
      STELE_TRY(load(*candidate, targets));
      OpenedStep opened{candidate->info, {}, std::move(skipped)};
      const auto& ranks = candidate->ranks;
      const auto mine = static_cast<std::size_t>(exchange.rank());
      if (mine < ranks.size()) opened.info.state = ranks[mine];
      return std::optional<OpenedStep>(std::move(opened));
    }
    if (skipped.empty()) return std::optional<OpenedStep>();
    return Error(Errc::checksum, "no step of the folder verifies; the newest: " + skipped.front().error.to_string());
  }

 private:
  const steps::Place& place() const noexcept { return root != nullptr ? root->place() : *own_place; }
  const v0::detail::CaughtSignals& own() const noexcept { return root != nullptr ? root->signals() : signals_; }

  /// Checks that all processes save the same step with the same kinds of state, because each kind is exchanged
  /// separately afterwards.
  Status check_call(std::int64_t step, const Checkpoint& checkpoint) {
    std::string call = "step " + std::to_string(step);
    for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) call += ", \"" + key + "\"";
    std::string of_root = exchange.is_root() ? call : std::string();
    STELE_TRY(exchange.broadcast(of_root));
    Status status;
    if (call != of_root) {
      status = Error(Errc::invalid_argument, "the processes save different steps or kinds of state")
                   .expected(of_root)
                   .found(call);
    }
    return exchange.agree(std::move(status));
  }

  static std::string part_folder(std::size_t number) {
    return number == 0 ? "parameters" : "optimizer-" + std::to_string(number - 1);
  }

  Status write(v0::detail::ManagerState::NewStep& made, std::size_t number, const Snapshot& snapshot,
               PrecisionSpec precision, steps::Share* share, Report& report) {
    STELE_TRY_ASSIGN(const PartFiles files,
                     write_part(exchange, snapshot, precision, options, {share, part_folder(number) + "/"}, report));
    auto& all = made.manifest.files;
    all.insert(all.end(), files.begin(), files.end());
    return {};
  }

  /// Keeps the states of all processes, unless they are all equal.
  Status gather_states(const Value::Map& state, steps::Manifest& manifest) {
    auto text = to_json(Value(state));
    STELE_TRY(exchange.agree(text ? Status() : Status(text.error())));
    STELE_TRY_ASSIGN(const std::vector<std::string> all, exchange.gather(*text));
    const bool equal = std::all_of(all.begin(), all.end(), [&](const std::string& one) { return one == all.front(); });
    for (std::size_t i = 0; i < all.size() && !equal; ++i) {
      STELE_TRY_ASSIGN(manifest.ranks.emplace_back(), value_of(all[i]));
    }
    return {};
  }

  /// Sends all processes the manifest of the newest remaining step, and the steps that were skipped before it. Returns
  /// nullopt if no step remains.
  Result<std::optional<steps::Manifest>> next(std::vector<std::int64_t>& numbers, std::vector<BrokenStep>& skipped) {
    std::string message, bad;
    STELE_TRY(on_root([&]() -> Status {
      for (; !numbers.empty() && message.empty(); numbers.pop_back()) {
        auto manifest = root->manifest(numbers.back(), steps::Check::sizes);
        if (!manifest) {
          if (not_skipped(manifest.error())) return std::move(manifest).error();
          add_number(bad, static_cast<std::uint64_t>(numbers.back()));
          add_error(bad, manifest.error());
          continue;
        }
        STELE_TRY_ASSIGN(message, steps::to_text(*manifest));
      }
      return {};
    }));
    STELE_TRY(exchange.broadcast(bad));
    STELE_TRY(exchange.broadcast(message));
    for (Unpacker in(bad); !in.empty();) {
      const auto step = static_cast<std::int64_t>(in.number());
      skipped.push_back({step, read_error(in, {})});
    }
    if (message.empty()) return std::optional<steps::Manifest>();
    STELE_TRY_ASSIGN(steps::Manifest manifest, steps::parse_manifest(message));
    return std::optional<steps::Manifest>(std::move(manifest));
  }

  /// Checks this process's share of the files. Prepares the manifest for loading.
  Status verify(steps::Manifest& candidate) {
    return exchange.agree(v0::detail::guarded([&]() -> Status {
      STELE_TRY(place().adopt(candidate));
      if (!options.verify_files) return {};
      steps::Manifest share = candidate;
      share.files.clear();
      for (auto i = static_cast<std::size_t>(exchange.rank()); i < candidate.files.size();
           i += static_cast<std::size_t>(exchange.size())) {
        share.files.push_back(candidate.files[i]);
      }
      return place().check(share, steps::Check::unchanged);
    }));
  }

  Status load(const steps::Manifest& manifest, const std::vector<Target>& targets) {
    std::vector<OpenedBoxes> opened(targets.size());
    std::vector<LoadOptions> checked(targets.size());
    STELE_TRY(exchange.agree(v0::detail::guarded([&]() -> Status {
      for (std::size_t i = 0; i < targets.size(); ++i) {
        const Target& target = targets[i];
        std::string part = manifest.parameters;
        if (!target.key.empty()) {
          const auto kind = std::find_if(manifest.optimizer.begin(), manifest.optimizer.end(),
                                         [&](const auto& one) { return one.first == target.key; });
          if (kind == manifest.optimizer.end()) {
            return Error(Errc::not_found, "the step has no optimizer state of this kind").path(target.key);
          }
          part = kind->second;
        }
        STELE_TRY_ASSIGN(SourcePtr source, place().part(manifest, part, false));
        STELE_TRY_ASSIGN(opened[i], open_boxes(Input(std::move(source)), target.live, options.load));
        STELE_TRY(target.check(target, opened[i].snapshot, options.load));
        STELE_TRY_ASSIGN(checked[i], verify_boxes(opened[i], target.live, options.load, options.verify_files));
      }
      return {};
    })));
    Status loaded;
    bool changed = false;
    for (std::size_t i = 0; i < targets.size() && loaded; ++i) {
      loaded = targets[i].load(targets[i], opened[i].snapshot, checked[i]);
      changed = changed || loaded;
    }
    loaded = exchange.agree(std::move(loaded));
    if (!loaded && changed) return std::move(loaded).error().partially_applied(true);
    return loaded;
  }

  v0::detail::CaughtSignals signals_;  // unused in process 0, where `root` has the signals
  int signal_ = 0;                     // had arrived in some process at the last due()
};

}  // namespace detail

CheckpointManager::CheckpointManager(std::unique_ptr<detail::Manager> state) noexcept : state_(std::move(state)) {}
CheckpointManager::CheckpointManager(CheckpointManager&&) noexcept = default;
CheckpointManager& CheckpointManager::operator=(CheckpointManager&&) noexcept = default;
CheckpointManager::~CheckpointManager() = default;

Result<CheckpointManager> CheckpointManager::open(const std::string& folder, MPI_Comm comm, ManagerOptions manager,
                                                  Options options) {
  return v0::detail::guarded([&]() -> Result<CheckpointManager> {
    auto state = std::make_unique<detail::Manager>(std::move(options));
    STELE_TRY(state->exchange.start(comm));
    STELE_TRY(state->on_root([&]() -> Status {
      manager.parts = state->options.save;
      state->root = std::make_unique<v0::detail::ManagerState>(folder, std::make_shared<ShardedSafetensorsFormat>(),
                                                               state->options.precision, std::move(manager));
      return state->root->start();
    }));
    std::string place = state->root != nullptr ? state->root->folder() : std::string();
    STELE_TRY(state->exchange.broadcast(place));
    STELE_TRY(state->exchange.agree(v0::detail::guarded([&]() -> Status {
      if (state->root != nullptr) return {};
      STELE_TRY_ASSIGN(state->own_place, v0::detail::steps::place_at(place));
      return state->catch_signals(manager.save);
    })));
    return CheckpointManager(std::move(state));
  });
}

Result<bool> CheckpointManager::due(std::int64_t step) {
  return v0::detail::guarded([&] { return state_->due(step); });
}

Result<bool> CheckpointManager::signalled(int signal) {
  return v0::detail::guarded([&] { return state_->signalled(signal); });
}

Result<SavedStep> CheckpointManager::save(std::int64_t step, const Result<Checkpoint>& checkpoint,
                                          const StepValues& values) {
  return v0::detail::guarded([&] { return state_->save(step, checkpoint, values); });
}

Result<std::optional<OpenedStep>> CheckpointManager::resume(Status status, std::vector<detail::Target> targets) {
  return v0::detail::guarded([&] { return state_->resume(std::move(status), targets); });
}

}  // namespace stele::inline v0::mpi
