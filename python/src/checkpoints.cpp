// CheckpointManager.
#include <stele/checkpoints/manager.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/binary.hpp>

#include "bindings.hpp"
#include "io/urls.hpp"

namespace stele::python {

namespace {

nb::dict to_python_info(const StepInfo& info) {
  nb::dict dict;
  dict["step"] = info.step;
  dict["folder"] = text(info.folder);
  nb::dict metrics;
  for (const auto& [name, value] : info.metrics) metrics[text(name)] = value;
  dict["metrics"] = metrics;
  dict["time_ms"] = info.time_ms;
  dict["library"] = text(info.library);
  dict["format"] = text(info.format);
  dict["signal"] = info.signal;
  dict["bytes"] = info.bytes;
  dict["base"] = info.base ? nb::cast(*info.base) : nb::none();
  dict["deltas"] = info.deltas;
  dict["state"] = to_python(info.state);
  return dict;
}

nb::tuple to_python_saved(const SavedStep& saved) {
  return nb::make_tuple(to_python_info(saved.info), to_python(saved.report), saved.removed,
                        saved.not_removed ? to_python(*saved.not_removed) : nb::object(nb::none()));
}

/// Returns [(step, message)].
nb::list to_python_broken(const std::vector<BrokenStep>& steps) {
  nb::list list;
  for (const BrokenStep& broken : steps) list.append(nb::make_tuple(broken.step, text(broken.error.to_string())));
  return list;
}

/// Returns the policy of {"all": True, "latest": 3, "best": (2, "loss", "lower"), "every_steps": 1000}.
KeepPolicy keep_of(const nb::dict& rules) {
  std::optional<KeepPolicy> policy;
  const auto add = [&](KeepPolicy p) { policy = policy ? std::move(*policy) | std::move(p) : std::move(p); };
  for (const auto& [key, value] : rules) {
    const auto name = nb::cast<std::string>(key);
    if (name == "latest") add(keep::latest(nb::cast<std::size_t>(value)));
    if (name == "every_steps") add(keep::every_steps(nb::cast<std::int64_t>(value)));
    if (name == "every_seconds") add(keep::every_seconds(nb::cast<double>(value)));
    if (name == "best") {
      const auto best = nb::cast<nb::tuple>(value);
      add(keep::best(nb::cast<std::size_t>(best[0]), nb::cast<std::string>(best[1]),
                     nb::cast<std::string>(best[2]) == "higher" ? Better::higher : Better::lower));
    }
  }
  return policy ? *std::move(policy) : keep::all();
}

class Manager {
 public:
  Manager(const nb::str& name, const std::string& format, const nb::dict& keep, std::int64_t every,
          std::uint64_t max_bytes, std::size_t deltas, bool compact) {
    const std::string folder = string_of(name);
    ManagerOptions options;
    const Format* const chosen = find_format(format);
    if (chosen == nullptr) throw nb::value_error(("no format has the name " + format).c_str());
    options.parts.format = chosen;
    options.keep = keep_of(keep);
    options.save = save_when::every_steps(every);
    options.max_bytes = max_bytes;
    options.deltas = deltas;
    options.compact = compact;
    if (deltas != 0 && format == "stele") options.parts.format = CompressedSteleFormat();
    options.older_formats = formats();
    if (detail::is_url(folder)) watch_urls();
    manager_.emplace(unwrap(interruptible([&] { return CheckpointManager::open(folder, std::move(options)); })));
  }
  bool due(std::int64_t step) const { return manager_->due(step); }
  nb::tuple save(std::int64_t step, const Model& model, const nb::dict& optimizer, const nb::dict& metrics,
                 const nb::dict& state) {
    const Checkpoint checkpoint = checkpoint_of(model, optimizer);
    const StepValues values = values_of(metrics, state);
    return to_python_saved(unwrap(interruptible([&] { return manager_->save(step, checkpoint, values); })));
  }
  void save_async(std::int64_t step, const Model& model, const nb::dict& optimizer, const nb::dict& metrics,
                  const nb::dict& state) {
    const Checkpoint checkpoint = checkpoint_of(model, optimizer);
    const StepValues values = values_of(metrics, state);
    unwrap(without_gil([&] { return manager_->save_async(step, checkpoint, values); }));
  }
  nb::list wait() {
    nb::list all;
    for (const SavedStep& saved : unwrap(without_gil([&] { return manager_->wait(); })))
      all.append(to_python_saved(saved));
    return all;
  }
  nb::list steps() const {
    nb::list all;
    for (const StepInfo& info : unwrap(interruptible([&] { return manager_->steps(); })))
      all.append(to_python_info(info));
    return all;
  }
  nb::list broken() const {
    std::vector<BrokenStep> all;
    unwrap(interruptible([&] { return manager_->steps(&all); }));
    return to_python_broken(all);
  }
  nb::object best(const std::string& metric, const std::string& better) const {
    const auto found = unwrap(
        interruptible([&] { return manager_->best(metric, better == "higher" ? Better::higher : Better::lower); }));
    return found ? nb::object(to_python_info(*found)) : nb::object(nb::none());
  }
  void verify(std::int64_t step) const {
    unwrap(interruptible([&] { return manager_->verify(step); }));
  }
  void remove(std::int64_t step) {
    unwrap(interruptible([&] { return manager_->remove(step); }));
  }
  /// Returns the members of OpenedStep by their names in Python; None if there is no step.
  nb::object open(std::optional<std::int64_t> step) const {
    const auto opened = unwrap(interruptible([&]() -> Result<std::optional<OpenedStep>> {
      if (!step) return manager_->open_latest();
      STELE_TRY_ASSIGN(OpenedStep one, manager_->open_step(*step));
      return std::optional<OpenedStep>(std::move(one));
    }));
    if (!opened) return nb::none();
    const Format* const format = find_format(opened->info.format);
    const std::shared_ptr<const Format> shared(std::shared_ptr<const Format>(), format);
    nb::dict optimizer;
    for (const auto& [kind, arrays] : opened->checkpoint.optimizer.kinds()) {
      optimizer[text(kind)] = Model(arrays, shared);
    }
    nb::dict dict;
    dict["info"] = to_python_info(opened->info);
    dict["model"] = Model(opened->checkpoint.parameters, shared);
    dict["optimizer"] = optimizer;
    dict["skipped"] = to_python_broken(opened->skipped);
    dict["training"] = to_python_training(opened->checkpoint);
    dict["has_graph"] = opened->checkpoint.graph.has_value();
    dict["left_out"] = to_python(opened->checkpoint.left_out);
    return dict;
  }

 private:
  static StepValues values_of(const nb::dict& metrics, const nb::dict& state) {
    StepValues values;
    for (const auto& [name, value] : metrics)
      values.metrics.emplace(nb::cast<std::string>(name), nb::cast<double>(value));
    const Value map = to_value(state);
    values.state = *map.as_map();
    return values;
  }

  std::optional<CheckpointManager> manager_;
};

}  // namespace

void bind_checkpoints(nb::module_& module) {
  nb::class_<Manager>(module, "Manager")
      .def(nb::init<const nb::str&, const std::string&, const nb::dict&, std::int64_t, std::uint64_t, std::size_t,
                    bool>(),
           nb::arg("folder"), nb::arg("format"), nb::arg("keep"), nb::arg("every"), nb::arg("max_bytes"),
           nb::arg("deltas"), nb::arg("compact"))
      .def("due", &Manager::due, nb::arg("step"))
      .def("save", &Manager::save, nb::arg("step"), nb::arg("model"), nb::arg("optimizer"), nb::arg("metrics"),
           nb::arg("state"))
      .def("save_async", &Manager::save_async, nb::arg("step"), nb::arg("model"), nb::arg("optimizer"),
           nb::arg("metrics"), nb::arg("state"))
      .def("wait", &Manager::wait)
      .def("steps", &Manager::steps)
      .def("broken", &Manager::broken)
      .def("best", &Manager::best, nb::arg("metric"), nb::arg("better"))
      .def("verify", &Manager::verify, nb::arg("step"))
      .def("remove", &Manager::remove, nb::arg("step"))
      .def("open", &Manager::open, nb::arg("step").none());
}

}  // namespace stele::python
