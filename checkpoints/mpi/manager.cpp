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
  std::unique_ptr<steps::Place> own_place;         // null in process 0, which uses the place of `root`
  std::size_t deltas = 0;                          // ManagerOptions::deltas; used in process 0

  /// Catches the policy's signals, except in process 0, in which `root` catches them.
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

  /// Checks the options, in process 0.
  Status check_deltas() const {
    if (deltas == 0) return {};
    if (deltas > steps::max_deltas) return v0::detail::too_many_deltas(deltas);
    const bool quantized = options.precision.quantized_bits != 0 || !options.precision.block_rules.empty();
    if (options.files == 0 && !quantized) return {};
    return Error(Errc::invalid_argument,
                 quantized ? "quantized steps cannot be deltas" : "steps in files of whole tensors cannot be deltas");
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
    std::vector<std::int64_t> later;  // deltas of an older step of this number
    STELE_TRY(on_root([&]() -> Status {
      if (checkpoint.graph && !options.save.allow_loss) {
        return Error(Errc::not_representable, "distributed steps cannot store a graph");
      }
      std::uint64_t bytes = global_bytes(checkpoint.parameters, options.precision);
      for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) bytes += global_bytes(arrays, {});
      STELE_TRY_ASSIGN(made, root->begin_step(step, signal, bytes, values));
      if (!options.save.dry_run) later = root->deltas_of(step);
      return {};
    }));
    STELE_TRY(make_whole(later));
    STELE_TRY_ASSIGN(const Chain base, base_of(step));
    const steps::Manifest fresh = made.manifest;
    std::unique_ptr<steps::Share> share;
    SavedStep saved;
    auto written = write_parts(made, checkpoint, base.empty() ? nullptr : &base, share, saved.report);
    if (!written && !base.empty() && !exchange.broken() && written.error().code() != Errc::cancelled) {
      // The base may be damaged; a whole step does not need it. Other errors occur again in the save.
      share.reset();
      made = {fresh, nullptr};
      saved.report = Report();
      written = write_parts(made, checkpoint, nullptr, share, saved.report);
    }
    STELE_TRY(std::move(written));
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
    // From here on the step may become visible, even if process 0 ends before it answers.
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
      STELE_TRY_ASSIGN(Chain chain, next(numbers, skipped));
      if (chain.empty()) break;
      Status verified = check(chain, options.verify_files ? std::optional(steps::Check::unchanged) : std::nullopt);
      const steps::Manifest& candidate = chain.front();
      if (!verified) {
        if (not_skipped(verified.error())) return std::move(verified).error();
        if (root != nullptr) root->note_broken(candidate.info.step);
        skipped.push_back({candidate.info.step, std::move(verified).error()});
        continue;
      }
      STELE_TRY(load(chain, targets));
      OpenedStep opened{candidate.info, {}, std::move(skipped)};
      const auto& ranks = candidate.ranks;
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

  /// Creates the step, and writes its parts. `base`: the steps for deltas; null: writes whole parts.
  Status write_parts(v0::detail::ManagerState::NewStep& made, const Checkpoint& checkpoint, const Chain* base,
                     std::unique_ptr<steps::Share>& share, Report& report) {
    std::vector<std::string> folders;
    for (std::size_t i = 0; i <= checkpoint.optimizer.kinds().size(); ++i) folders.push_back(part_folder(i));
    STELE_TRY(create(made, folders, share));
    if (checkpoint.graph) report.add(Report::What::lost, "", "the graph");
    STELE_TRY(write(made, {}, checkpoint.parameters, options.precision, share.get(), base, report));
    for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) {
      STELE_TRY(write(made, key, arrays, {}, share.get(), base, report));
    }
    return {};
  }

  /// Creates a step, and the folders of its parts. On a dry run, `share` remains null.
  Status create(v0::detail::ManagerState::NewStep& made, const std::vector<std::string>& folders,
                std::unique_ptr<steps::Share>& share) {
    std::string message;
    STELE_TRY(on_root([&]() -> Status {
      STELE_TRY(root->create(made));
      if (made.sink == nullptr) return {};
      const std::string shared = place().share(*made.sink, made.manifest);
      add_number(message, static_cast<std::uint64_t>(made.manifest.info.step));
      add_text(message, shared);
      share = place().join(made.manifest.info.step, shared, options.save.file.durability);
      for (const std::string& folder : folders) {  // created before several processes write files into them
        if (!share->folder().empty()) STELE_TRY(v0::detail::os::make_folder(share->folder() + "/" + folder));
      }
      return {};
    }));
    STELE_TRY(exchange.broadcast(message));
    if (message.empty() || exchange.is_root()) return {};
    Unpacker in(message);
    const auto step = static_cast<std::int64_t>(in.number());
    share = place().join(step, std::string(in.text()), options.save.file.durability);
    return {};
  }

  /// Writes the parameters, or the state with a key. `base`: the steps for deltas; null: writes whole parts.
  Status write(v0::detail::ManagerState::NewStep& made, const std::string& key, const Snapshot& snapshot,
               PrecisionSpec precision, steps::Share* share, const Chain* base, Report& report) {
    const std::string name = part_folder(key.empty() ? 0 : made.manifest.optimizer.size() + 1);
    key.empty() ? static_cast<void>(made.manifest.parameters = name)
                : static_cast<void>(made.manifest.optimizer.emplace_back(key, name));
    std::optional<PartShards> old;
    if (base != nullptr && !part_of(base->front(), key).empty()) old.emplace(place(), *base, key, options.load);
    STELE_TRY_ASSIGN(const PartFiles files, write_part(exchange, snapshot, precision, options,
                                                       {share, name + "/", old ? &*old : nullptr}, report));
    auto& all = made.manifest.files;
    all.insert(all.end(), files.begin(), files.end());
    for (const auto& file : files) {
      if (file.name.ends_with(v0::detail::shards::delta_suffix)) {
        made.manifest.info.base = base->front().info.step;
        made.manifest.info.deltas = base->front().info.deltas + 1;
      }
    }
    return {};
  }

  /// Sends process 0's step and its base steps to all processes. The result is empty if `step` is nullopt or cannot be
  /// read.
  Result<Chain> chain_of(const std::optional<std::int64_t>& step, Status& why) {
    std::string message;
    STELE_TRY(on_root([&]() -> Status {
      if (!step) return {};
      std::string texts;
      auto read = v0::detail::guarded([&]() -> Status {
        STELE_TRY(root->manifest(*step, steps::Check::sizes));  // and those below
        for (std::optional<std::int64_t> at = step; at;) {
          STELE_TRY_ASSIGN(const steps::Manifest manifest, place().manifest(*at, steps::Check::sizes));
          STELE_TRY_ASSIGN(const std::string text, steps::to_text(manifest));
          add_text(texts, text);
          at = manifest.info.base;
        }
        return {};
      });
      if (read) message = std::move(texts);
      why = std::move(read);
      return {};
    }));
    STELE_TRY(exchange.broadcast(message));
    Chain chain;
    for (Unpacker in(message); !in.empty();) {
      STELE_TRY_ASSIGN(chain.emplace_back(), steps::parse_manifest(in.text()));
    }
    return chain;
  }

  /// Returns the step that can be the base of a new step; empty if there is none.
  Result<Chain> base_of(std::int64_t step) {
    std::optional<std::int64_t> base;
    bool trusted = false;
    STELE_TRY(on_root([&]() -> Status {
      base = root->base_of(step, deltas);
      trusted = base && root->trusts(*base);
      return {};
    }));
    Status ignored;
    STELE_TRY_ASSIGN(Chain chain, chain_of(base, ignored));
    if (chain.empty()) return chain;
    STELE_TRY_ASSIGN(const std::uint64_t known, exchange.first_of(trusted ? 1 : 0));
    // Damage of a step would spread to the deltas of it.
    auto good = check(chain, known != 0 ? std::nullopt : std::optional(steps::Check::contents));
    if (!good && exchange.broken()) return std::move(good).error();
    return good ? std::move(chain) : Chain();
  }

  /// Checks this process's share of the files. Prepares the manifests for PartShards. nullopt: checks no files.
  Status check(Chain& chain, std::optional<steps::Check> how) {
    return exchange.agree(v0::detail::guarded([&]() -> Status {
      std::size_t number = 0;
      for (steps::Manifest& manifest : chain) {
        STELE_TRY(place().adopt(manifest));
        if (!how) continue;
        steps::Manifest share = manifest;
        std::erase_if(share.files, [&](const auto&) {
          return number++ % static_cast<std::size_t>(exchange.size()) != static_cast<std::size_t>(exchange.rank());
        });
        STELE_TRY(place().check(share, *how));
      }
      return {};
    }));
  }

  /// Makes steps that are deltas whole. Each process writes some of the files.
  Status make_whole(std::vector<std::int64_t> numbers) {
    std::string message;
    for (const std::int64_t number : numbers) add_number(message, static_cast<std::uint64_t>(number));
    STELE_TRY(exchange.broadcast(message));
    for (Unpacker in(message); !in.empty();) {
      Status why;
      STELE_TRY_ASSIGN(Chain chain, chain_of(static_cast<std::int64_t>(in.number()), why));
      STELE_TRY(exchange.agree(!why && steps::is_of_machine(why.error()) ? std::move(why) : Status()));
      if (chain.empty()) continue;  // already listed as broken
      if (auto good = check(chain, steps::Check::contents); !good) {
        if (exchange.broken() || steps::is_of_machine(good.error())) return good;
        continue;
      }
      STELE_TRY(make_whole(chain));
    }
    return {};
  }

  Status make_whole(const Chain& chain) {
    const steps::Manifest& old = chain.front();
    v0::detail::ManagerState::NewStep made;
    made.manifest = old;
    made.manifest.files.clear();
    std::vector<std::string> keys{{}}, folders{old.parameters};
    for (const auto& [key, folder] : old.optimizer) {
      keys.push_back(key);
      folders.push_back(folder);
    }
    std::unique_ptr<steps::Share> share;
    STELE_TRY(create(made, folders, share));
    for (const std::string& key : keys) {
      const PartShards part(place(), chain, key, options.load);
      STELE_TRY_ASSIGN(const PartFiles files,
                       write_whole_part(exchange, part, options, {share.get(), part_of(old, key) + "/"}));
      made.manifest.files.insert(made.manifest.files.end(), files.begin(), files.end());
    }
    share->keep(true);
    auto committed = on_root([&]() -> Status {
      std::sort(made.manifest.files.begin(), made.manifest.files.end(),
                [](const auto& a, const auto& b) { return a.name < b.name; });
      return root->commit_again(std::move(made), std::nullopt);
    });
    if (!committed && committed.error().code() == Errc::exists) share->keep(false);
    return committed;
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

  /// Returns the newest remaining step, and adds the steps that were skipped before it. Returns an empty chain if no
  /// step remains.
  Result<Chain> next(std::vector<std::int64_t>& numbers, std::vector<BrokenStep>& skipped) {
    for (;;) {
      std::uint64_t step = 0;  // plus 1
      if (!numbers.empty()) {
        step = static_cast<std::uint64_t>(numbers.back()) + 1;
        numbers.pop_back();
      }
      STELE_TRY_ASSIGN(step, exchange.first_of(step));  // the step of process 0; other processes have no step
      if (step == 0) return Chain();
      const auto number = static_cast<std::int64_t>(step - 1);
      Status why;
      STELE_TRY_ASSIGN(Chain chain, chain_of(number, why));
      if (!chain.empty()) return chain;
      why = exchange.agree(std::move(why));
      if (why) return Chain();
      if (not_skipped(why.error())) return std::move(why).error();
      skipped.push_back({number, std::move(why).error()});
    }
  }

  Status load(const Chain& chain, const std::vector<Target>& targets) {
    std::vector<OpenedBoxes> opened(targets.size());
    std::vector<LoadOptions> checked(targets.size());
    STELE_TRY(exchange.agree(v0::detail::guarded([&]() -> Status {
      for (std::size_t i = 0; i < targets.size(); ++i) {
        const Target& target = targets[i];
        if (part_of(chain.front(), target.key).empty()) {
          return Error(Errc::not_found, "the step has no optimizer state of this kind").path(target.key);
        }
        const PartShards part(place(), chain, target.key, options.load);
        STELE_TRY_ASSIGN(SourcePtr source, part.folder());
        STELE_TRY_ASSIGN(opened[i], open_boxes(Input(std::move(source)), target.live, options.load, &part));
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

  v0::detail::CaughtSignals signals_;  // unused in process 0, in which `root` has the signals
  int signal_ = 0;                     // the signal that had arrived in some process at the last due()
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
      state->deltas = std::exchange(manager.deltas, 0);
      STELE_TRY(state->check_deltas());
      if (manager.compact) {
        return Error(Errc::invalid_argument, "deltas of steps of several processes cannot be joined");
      }
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
