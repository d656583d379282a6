// Reads the parts of a checkpoint: the model's parameters and the optimizer's state.
#include "checkpoint.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "base/patterns.hpp"
#include "json/json.hpp"
#include "objects.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/precision/convert.hpp"
#include "tensors.hpp"
#include "training/pytorch_settings.hpp"
#include "tree.hpp"
#include "values.hpp"

namespace stele::inline v0::detail::pytorch {
namespace {

using pickle::Kind;
using pickle::no_ref;
using pickle::Ref;

/// A part of the file.
struct Part {
  Ref object = no_ref;
  std::string path{};
  std::vector<Ref> way{};  // the containers around the part, from the root on
};

/// Finds the parts of a checkpoint by their structure, if the options do not name them.
class Parts {
 public:
  Parts(const File& file, const Tensors& tensors) : objects_(file.objects), tensors_(tensors) {}

  /// Returns the part at a path. Errors: not_found.
  Result<Part> at(const std::string& path) const {
    Part part{no_ref, path};
    STELE_TRY_ASSIGN(part.object, find_part(objects_, path, &part.way));
    return part;
  }

  /// Returns true if an object is the state of an optimizer.
  bool is_optimizer(Ref r) const {
    return objects_.is(r, Kind::dict) && objects_.is(objects_.find(r, "state"), Kind::dict) &&
           objects_.is(objects_.find(r, "param_groups"), Kind::list);
  }

  /// Returns the only optimizer of the root's entries, or no_ref. Errors: invalid_argument (several).
  Result<Part> optimizer() const {
    Found found;
    std::vector<bool> seen(objects_.size());
    each_entry(seen, [&](Ref key, Ref value) {
      if (is_optimizer(value)) add(found, {value, text_of(key), {objects_.root()}});
      if (!objects_.is(value, Kind::list)) return;
      const auto items = objects_.items(value);  // Lightning's `optimizer_states`
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (!is_new(seen, items[i]) || !is_optimizer(items[i])) continue;
        add(found, {items[i], text_of(key) + '.' + std::to_string(i), {objects_.root(), value}});
      }
    });
    if (found.size() > 1) return several(found, "optimizers", "PytorchOptions::optimizer");
    return found.empty() ? Part() : std::move(found[0]);
  }

  /// Returns the only state_dict of the root's entries, or the root. Errors: invalid_argument (several), not_found.
  Result<Part> model() const {
    const Ref root = objects_.root();
    if (!objects_.is(root, Kind::dict)) return Part{root};
    if (is_optimizer(root)) return Error(Errc::not_found, "the file is the state of an optimizer, without a model");
    const auto optimizer = this->optimizer();
    // If the root has an optimizer, its direct tensors are other parts of a checkpoint: a random generator's state, a
    // loss.
    if (optimizer && optimizer->object == no_ref && has_direct_tensor(root)) return Part{root};
    Found direct, other;
    std::vector<bool> seen(objects_.size());
    each_entry(seen, [&](Ref key, Ref value) {
      if (is_optimizer(value)) return;
      if (objects_.is(value, Kind::dict) && has_direct_tensor(value)) {
        add(direct, {value, text_of(key), {root}});
      } else if (objects_.is(value, Kind::dict) || objects_.is(value, Kind::object)) {
        add(other, {value, text_of(key), {root}});
      }
    });
    if (direct.empty()) std::swap(direct, other);
    if (direct.size() > 1) return several(direct, "state_dicts", "PytorchOptions::part");
    if (direct.empty()) return Error(Errc::not_found, "the file has no state_dict").hint("set PytorchOptions::part");
    return std::move(direct[0]);
  }

 private:
  using Found = std::vector<Part>;
  static constexpr std::size_t max_named = 8;  // in a message

  std::string text_of(Ref key) const {
    bool exact = true;
    return key_text(objects_, key, exact);
  }
  static void add(Found& to, Part part) {
    if (to.size() < max_named) to.push_back(std::move(part));
  }
  static bool is_new(std::vector<bool>& seen, Ref r) {
    const bool fresh = !seen[r];
    seen[r] = true;
    return fresh;
  }
  /// Calls `function` with the entries of the root; if several entries share a value, only with the first.
  template <class F>
  void each_entry(std::vector<bool>& seen, F function) const {
    const Ref root = objects_.root();
    if (!objects_.is(root, Kind::dict)) return;
    const auto items = objects_.items(root);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (is_new(seen, items[i + 1])) function(items[i], items[i + 1]);
    }
  }
  bool has_direct_tensor(Ref dict) const {
    const auto items = objects_.items(dict);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (tensors_.form(items[i + 1]) != Tensors::Form::other) return true;
    }
    return false;
  }
  static Error several(const Found& found, const char* what, const char* option) {
    std::string names;
    for (const Part& part : found) names += (names.empty() ? "" : ", ") + part.path.substr(0, 200);
    return Error(Errc::invalid_argument, "the file has several parts of one kind")
        .expected("one of the " + std::string(what))
        .found(names)
        .hint("set " + std::string(option));
  }

  const pickle::Objects& objects_;
  const Tensors& tensors_;
};

/// Reads the state of an optimizer.
class StateReader {
 public:
  StateReader(File& file, const Snapshot& parameters, const PytorchOptions& options, IndexBudget& memory)
      : file_(file),
        objects_(file.objects),
        parameters_(parameters),
        options_(options),
        memory_(memory),
        tensors_(file, memory) {}

  /// Reads the groups: settings, and the names of the parameters by their numbers.
  Status read_groups(Ref groups) {
    for (const Ref group : objects_.items(groups)) {
      // Many groups may be one large dict.
      if (objects_.is(group, Kind::dict) && !memory_.take(4 * objects_.items(group).size())) {
        return index_error("the optimizer's groups need too much memory");
      }
      const Ref params = objects_.is(group, Kind::dict) ? objects_.find(group, "params") : no_ref;
      if (!objects_.is(params, Kind::list)) return Error(Errc::malformed, "a group of the optimizer has no parameters");
      const Ref names = objects_.find(group, "param_names");
      const auto given = objects_.is(names, Kind::list) ? objects_.items(names) : std::span<const Ref>();
      const auto items = objects_.items(params);
      for (std::size_t i = 0; i < items.size(); ++i) {
        bool exact = true;
        const bool named = given.size() == items.size() && objects_.is(given[i], Kind::string);
        std::string id = key_text(objects_, items[i], exact);
        // Both may be strings that many parameters share.
        if (!memory_.take(200 + 2 * id.size() + (named ? objects_.text(given[i]).size() : 0))) {
          return index_error("the optimizer's state needs too much memory");
        }
        ids_.push_back(std::move(id));
        names_.push_back(named                                 ? std::string(objects_.text(given[i]))
                         : objects_.is(items[i], Kind::string) ? ids_.back()
                                                               : std::string());
      }
    }
    const bool all = std::none_of(names_.begin(), names_.end(), [](const std::string& name) { return name.empty(); });
    // The option specifies an order. If the file has the same names in another order, the file's order applies.
    const auto sorted = [](std::vector<std::string> names) {
      std::sort(names.begin(), names.end());
      return names;
    };
    if (all && (options_.parameters.empty() || sorted(names_) == sorted(options_.parameters))) return {};
    return name_by_order(objects_.items(groups).size());
  }

  /// Returns the groups' settings, with the names of the parameters in `params`. Omits settings that are Python objects
  /// and lists them in `left_out`, below `path`.
  Result<Value> settings(Ref groups, const std::string& path, Report& left_out) {
    Value::List all;
    std::size_t next = 0;
    for (const Ref group : objects_.items(groups)) {
      STELE_TRY_ASSIGN(Value settings, to_value(file_, group, memory_));
      const auto items = objects_.items(group);
      Value::Map kept;
      for (std::size_t i = 0; i < settings.as_map()->size(); ++i) {
        auto& [key, value] = (*settings.as_map())[i];
        if (key == "param_names") continue;  // names_ has them, or they are malformed
        std::string why;
        if (key == "params") {
          Value::List names(objects_.items(objects_.find(group, "params")).size());
          for (Value& name : names) name = Value(names_[next++]);
          value = Value(std::move(names));
        } else {
          STELE_TRY(replace_numbers(value, items[2 * i + 1]));
          why = obstacle(value);
        }
        if (!why.empty()) {
          std::string setting = path + ".param_groups." + std::to_string(all.size());
          left_out.add(Report::What::lost, setting.append(".").append(key), why);
        } else {
          kept.emplace_back(std::move(key), std::move(value));
        }
      }
      all.emplace_back(std::move(kept));
    }
    return Value(std::move(all));
  }

  Result<OptimizerState> run(Ref state) {
    std::map<std::string, std::size_t> by_id;
    for (std::size_t i = 0; i < ids_.size(); ++i) by_id.emplace(ids_[i], i);
    const auto items = objects_.items(state);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      bool exact = true;
      const std::string id = key_text(objects_, items[i], exact);
      if (!memory_.take(id.size())) return index_error("the optimizer's state needs too much memory");
      const auto found = by_id.find(id);
      if (found == by_id.end())
        return Error(Errc::malformed, "the optimizer has state for a parameter that is in none of its groups")
            .found(id);
      STELE_TRY(add_parameter(names_[found->second], items[i + 1]));
    }
    OptimizerState made;
    for (auto& [kind, builder] : kinds_) {
      if (auto sorted = sort_names(builder); !sorted) {
        return Error(Errc::duplicate, "a parameter has one kind of state twice")
            .path(std::string(sorted.error().path()).append(": ").append(kind));
      }
      builder.set_capacity(std::max<std::uint64_t>(file_.storages->bytes(), 1));
      builder.keep(file_.storages);
      STELE_TRY_ASSIGN(Snapshot arrays, in_host_order(builder.finish()));
      made.set_snapshot(kind, std::move(arrays));
    }
    return made;
  }

  /// Returns the largest `step`, which is the number of updates.
  std::int64_t steps() const noexcept { return steps_; }

 private:
  /// Replaces tensors of one element by numbers: learning rates and betas may be tensors.
  Status replace_numbers(Value& value, Ref object) {
    if (tensors_.form(object) == Tensors::Form::dense) {
      STELE_TRY_ASSIGN(const Dense dense, tensors_.dense(object));
      return dense.quantization.is_null() ? replace_number(value, dense.view) : Status();
    }
    Value::List* const list = value.as_list();
    if (list == nullptr || !(objects_.is(object, Kind::list) || objects_.is(object, Kind::tuple))) return {};
    const auto items = objects_.items(object);
    for (std::size_t i = 0; i < list->size(); ++i) STELE_TRY(replace_numbers((*list)[i], items[i]));
    return {};
  }
  static Status replace_number(Value& value, const View& view) {
    const DType dtype = view.type->dtype;
    const std::uint64_t size = leaf_bytes(view);
    if (view.shape.element_count() != 1 || size > sizeof(double)) return {};
    std::byte bytes[sizeof(double)];
    ReadContext context;
    STELE_TRY(Gathered(view).fill(0, std::span(bytes).first(static_cast<std::size_t>(size)), context));
    if constexpr (std::endian::native == std::endian::big) std::reverse(bytes, bytes + size);
    const auto read = [&]<class T>(T number) {
      const auto outcome = convert(dtype, bytes, dtype_of_v<T>, reinterpret_cast<std::byte*>(&number), 1);
      if (outcome.status == ConvertStatus::ok) value = Value(number);
      return outcome.status == ConvertStatus::ok;
    };
    static_cast<void>(read(double()) || read(std::int64_t()) || read(bool()));
    return {};
  }

  /// Names the parameters by the order of the model's tensors.
  Status name_by_order(std::size_t groups) {
    std::vector<std::string> names = options_.parameters;
    if (names.empty() && groups > 1) {
      return Error(Errc::invalid_argument, "the optimizer's groups have no parameter names")
          .hint("set PytorchOptions::parameters, in the order of the groups");
    }
    if (names.empty()) {
      const LeafPaths paths(*parameters_.data());
      const Patterns buffers(options_.buffers);
      for (std::size_t i = 0; i < parameters_.leaf_count(); ++i) {
        const bool parameter = can_be_parameter(parameters_.leaf(i).dtype());
        if (parameter && !buffers.match(paths[i])) names.emplace_back(paths[i]);
      }
    }
    if (names.size() != ids_.size()) {
      return Error(Errc::invalid_argument, "the model has another number of parameters than the optimizer")
          .expected(std::to_string(ids_.size()))
          .found(std::to_string(names.size()))
          .hint("set PytorchOptions::parameters, or PytorchOptions::buffers");
    }
    names_ = std::move(names);
    by_order_ = true;
    return {};
  }

  Status add_parameter(const std::string& name, Ref state) {
    if (!objects_.is(state, Kind::dict))
      return Error(Errc::malformed, "the state of a parameter is not a dict").path(name);
    const auto items = objects_.items(state);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      bool exact = true;
      const std::string kind = key_text(objects_, items[i], exact);
      if (auto status = add(name, kind, items[i + 1]); !status) {
        Error error = std::move(status).error();
        return error.path().empty() ? std::move(error).path(std::string(name).append(": ").append(kind))
                                    : std::move(error);
      }
    }
    return {};
  }

  Status add(const std::string& name, const std::string& kind, Ref value) {
    if (!memory_.take(512 + name.size() + kind.size())) {
      return index_error("the optimizer's state needs too much memory");
    }
    if (objects_.is(value, Kind::none)) return {};  // SGD's buffer before the first step
    const auto [known, fresh] = kind_numbers_.try_emplace(kind, kinds_.size());
    if (fresh) kinds_.emplace_back(kind, SnapshotBuilder());
    SnapshotBuilder& to = kinds_[known->second].second;
    if (fresh) to.set_flat();
    View view;
    const bool number = objects_.is(value, Kind::integer) || objects_.is(value, Kind::real);
    if (number) {
      STELE_TRY_ASSIGN(view, scalar(value));
    } else if (tensors_.form(value) == Tensors::Form::dense) {
      STELE_TRY_ASSIGN(const Dense dense, tensors_.dense(value));
      view = dense.view;
    } else {
      return Error(Errc::unsupported, "the state of a parameter is neither a tensor nor a number");
    }
    if (kind == "step") STELE_TRY(count_step(view));
    STELE_TRY(check_shape(name, view));
    const Provider provider = is_plain(view) ? plain_provider(view) : gathered_provider(file_.storages->add(view));
    to.tensor(to.intern(name), view.type->dtype, leaf_shape(view).span(), leaf_bytes(view), provider);
    return {};
  }

  /// Returns a number as a tensor, which is the form that newer versions of PyTorch store: f32, or f64 if f32 is
  /// inexact.
  Result<View> scalar(Ref value) {
    const double number =
        objects_.is(value, Kind::real) ? objects_.real(value) : static_cast<double>(objects_.integer(value));
    const bool exact = static_cast<double>(static_cast<float>(number)) == number;
    std::vector<std::byte> bytes(exact ? 4 : 8);
    if (exact) {
      store_le(bytes.data(), std::bit_cast<std::uint32_t>(static_cast<float>(number)));
    } else {
      store_le(bytes.data(), std::bit_cast<std::uint64_t>(number));
    }
    Storage& storage = file_.storages->add();
    storage.size = bytes.size();
    storage.source = own_bytes(std::move(bytes), file_.name);
    View view;
    view.storage = &storage;
    view.type = type_of_name(exact ? "float32" : "float64");
    return view;
  }

  Status count_step(const View& view) {
    if (view.shape.rank() != 0 || view.type->dtype != DType::f32) return {};
    std::byte bytes[4];
    ReadContext context;
    STELE_TRY(Gathered(view).fill(0, bytes, context));
    const float step = std::bit_cast<float>(load_le<std::uint32_t>(bytes));
    if (step >= 0 && step < 9.0e18F) steps_ = std::max(steps_, static_cast<std::int64_t>(step));
    return {};
  }

  /// Checks names that were assigned by order: state must have the shape of its parameter, or be a number.
  Status check_shape(const std::string& name, const View& view) {
    if (!by_order_ || view.shape.rank() == 0) return {};
    if (shapes_.empty()) {
      const LeafPaths paths(*parameters_.data());
      for (std::size_t i = 0; i < parameters_.leaf_count(); ++i) shapes_.emplace(std::string(paths[i]), i);
    }
    const auto found = shapes_.find(name);
    if (found == shapes_.end())
      return Error(Errc::invalid_argument, "the model has no such parameter")
          .path(name)
          .hint("set PytorchOptions::part");
    const auto expected = parameters_.leaf(found->second).shape();
    if (std::equal(expected.begin(), expected.end(), view.shape.begin(), view.shape.end())) return {};
    return Error(Errc::invalid_argument, "the optimizer's state does not have the shape of its parameter")
        .path(name)
        .expected(to_string(expected))
        .found(to_string(view.shape.span()))
        .hint("set PytorchOptions::parameters, or PytorchOptions::buffers");
  }

  File& file_;
  const pickle::Objects& objects_;
  const Snapshot& parameters_;
  const PytorchOptions& options_;
  IndexBudget& memory_;
  Tensors tensors_;
  std::vector<std::string> ids_, names_;  // the parameters' ids and names, in the order of the groups
  std::deque<std::pair<std::string, SnapshotBuilder>> kinds_;  // in the order of the file
  std::map<std::string, std::size_t> kind_numbers_;
  std::map<std::string, std::size_t> shapes_;
  std::int64_t steps_ = 0;
  bool by_order_ = false;
};

/// Returns an integer of the root, or nullopt.
std::optional<std::int64_t> count_of(const pickle::Objects& objects, std::string_view key) {
  const Ref value = objects.is(objects.root(), Kind::dict) ? objects.find(objects.root(), key) : no_ref;
  return objects.is(value, Kind::integer) ? std::optional(objects.integer(value)) : std::nullopt;
}

/// Reads the configuration that stele wrote, or derives one from the first group; nullopt if the file has neither.
Result<std::optional<TrainingConfig>> training_of(const pickle::Objects& objects, const Value& groups,
                                                  std::int64_t steps, IndexBudget& memory) {
  const Ref text = objects.is(objects.root(), Kind::dict) ? objects.find(objects.root(), "training_config") : no_ref;
  if (objects.is(text, Kind::string)) {
    if (!memory.take(2 * objects.text(text).size()))
      return index_error("the training configuration needs too much memory");
    STELE_TRY_ASSIGN(TrainingConfig config, TrainingConfig::parse(objects.text(text)));
    return std::optional(std::move(config));
  }
  if (groups.as_list() == nullptr) return std::optional<TrainingConfig>();
  TrainingConfig config;
  if (!groups.as_list()->empty()) config.updater = updater_of(groups.as_list()->front());
  config.epoch_count = count_of(objects, "epoch").value_or(0);
  config.iteration_count =
      std::max({steps, count_of(objects, "iteration").value_or(0), count_of(objects, "global_step").value_or(0)});
  return std::optional(std::move(config));
}

/// Lists the entries of a file that its checkpoint lacks.
class LeftOut {
 public:
  LeftOut(const pickle::Objects& objects, const Part& model, const Part& optimizer, Checkpoint& to, IndexBudget& memory)
      : objects_(objects), training_(to.training), rows_(to.left_out), memory_(memory) {
    for (const Part* part : {&model, &optimizer}) {
      if (part->object == no_ref) continue;
      unseen_.emplace(part->object, part == &model ? Use::whole : Use::optimizer);
      for (const Ref r : part->way) unseen_.emplace(r, Use::around);
    }
  }

  /// Lists the entries of a container around the parts, or of the optimizer.
  Status list(Ref in, const std::string& path) {
    const auto found = unseen_.find(in);
    const Use use = found->second;
    unseen_.erase(found);  // another name of the same object is left out
    if (use == Use::whole) return {};
    const bool dict = objects_.is(in, Kind::dict) || objects_.is(in, Kind::object);
    const auto items = objects_.is(in, Kind::object) ? objects_.entries(in) : objects_.items(in);
    for (std::size_t i = 0; i < items.size(); i += dict ? 2 : 1) {
      const Ref value = items[dict ? i + 1 : i];
      // Many objects may share a long key.
      if (dict && objects_.is(items[i], Kind::string) && !memory_.take(objects_.text(items[i]).size())) {
        return index_error("the file's objects need too much memory");
      }
      bool exact = true;
      const std::string key = dict ? key_text(objects_, items[i], exact) : std::to_string(i);
      if (use == Use::optimizer ? key == "state" || key == "param_groups"
                                : in == objects_.root() && is_count(key, value))
        continue;
      const std::string name = path.empty() ? key : std::string(path).append(".").append(key);
      if (use == Use::around && unseen_.contains(value)) {
        STELE_TRY(list(value, name));
      } else {
        rows_.add(Report::What::lost, name, "not part of the checkpoint");
      }
    }
    return {};
  }

 private:
  enum class Use : std::uint8_t { around, whole, optimizer };

  /// Returns true if the training configuration contains this entry of the root.
  bool is_count(const std::string& key, Ref value) const {
    if (!training_) return false;
    if (key == "training_config") return objects_.is(value, Kind::string);
    const bool iteration = key == "iteration" || key == "global_step";
    if ((!iteration && key != "epoch") || !objects_.is(value, Kind::integer)) return false;
    return objects_.integer(value) == (iteration ? training_->iteration_count : training_->epoch_count);
  }

  const pickle::Objects& objects_;
  const std::optional<TrainingConfig>& training_;
  Report& rows_;
  IndexBudget& memory_;
  std::map<Ref, Use> unseen_;
};

/// Returns the snapshot with the optimizer's groups as a property of its origin.
Result<Snapshot> with_groups(const Snapshot& parameters, const Value& groups) {
  std::string text;
  json::Writer out(text);
  STELE_TRY(json::write_value(out, groups));
  auto data = derived_data(parameters);
  data->origin.emplace(groups_origin, std::move(text));
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

}  // namespace

Result<Checkpoint> checkpoint_of(File& file, const PytorchOptions& options, IndexBudget& memory) {
  const Tensors tensors(file, memory);
  const Parts parts(file, tensors);
  STELE_TRY_ASSIGN(const Part model, options.part.empty() ? parts.model() : parts.at(options.part));
  STELE_TRY_ASSIGN(const Part optimizer, options.optimizer.empty() ? parts.optimizer() : parts.at(options.optimizer));
  Checkpoint made;
  STELE_TRY_ASSIGN(made.parameters, build(file, model.object, memory));
  Value groups;
  std::int64_t steps = 0;
  if (optimizer.object != no_ref) {
    if (!parts.is_optimizer(optimizer.object)) {
      return Error(Errc::malformed, "the part is not the state of an optimizer").path(optimizer.path);
    }
    StateReader reader(file, made.parameters, options, memory);
    const Ref list = file.objects.find(optimizer.object, "param_groups");
    STELE_TRY(reader.read_groups(list));
    STELE_TRY_ASSIGN(groups, reader.settings(list, optimizer.path, made.left_out));
    STELE_TRY_ASSIGN(made.optimizer, reader.run(file.objects.find(optimizer.object, "state")));
    steps = reader.steps();
    STELE_TRY_ASSIGN(made.parameters, with_groups(made.parameters, groups));
  }
  STELE_TRY_ASSIGN(made.training, training_of(file.objects, groups, steps, memory));
  STELE_TRY(LeftOut(file.objects, model, optimizer, made, memory).list(file.objects.root(), {}));
  STELE_TRY_ASSIGN(made.parameters, in_host_order(std::move(made.parameters)));
  return made;
}

}  // namespace stele::inline v0::detail::pytorch
