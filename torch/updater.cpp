#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "stele/record.hpp"
#include "stele/torch.hpp"

namespace stele {
inline namespace v0 {
namespace torch {
namespace {

namespace optim = ::torch::optim;
using optim::OptimizerOptions;

constexpr double no_limit = std::numeric_limits<double>::infinity();

/// Copies options to an updater.
class Writer {
 public:
  TrainingObject updater;

  void type(std::string_view name) { updater.type = name; }
  /// Sets the type that a flag of the options decides.
  void type(std::string_view name, std::string_view if_set, bool& flag) { updater.type = flag ? if_set : name; }
  /// Sets a number that DL4J's updater has, too.
  void number(std::string_view name, double& value, double /*limit*/ = no_limit) { updater.set(name, value); }
  /// Sets a number that only PyTorch has, unless it is PyTorch's default.
  void extra(std::string_view name, double& value, double preset, bool always = false) {
    if (always || value != preset) updater.set(name, value);
  }
  void flag(std::string_view name, bool& value) {
    if (value) updater.set(name, true);
  }
};

/// Copies an updater to options with PyTorch's defaults, and finds what the options do not have.
class Reader {
 public:
  explicit Reader(const TrainingObject& updater) : updater_(updater) {
    // First, because the number of a schedule is NaN.
    for (const auto& member : updater_.objects) unknown(member.first);
  }

  void type(std::string_view name) {
    if (updater_.type != name) other_type(name);
  }
  void type(std::string_view name, std::string_view if_set, bool& flag) {
    flag = updater_.type == if_set;
    if (!flag && updater_.type != name) other_type(std::string(name).append(" or ").append(if_set));
  }
  void number(std::string_view name, double& value, double limit = no_limit) {
    known_.push_back(name);
    const TrainingNumber* const number = updater_.number(name);
    if (number == nullptr) return;
    value = number->value();
    if (value >= 0 && value < limit) return;
    fail(Error(Errc::out_of_range, "PyTorch does not accept a number of the updater")
             .path(name)
             .expected(limit == no_limit ? "a number from 0 on" : "a number from 0 to 1, without 1")
             .found(std::to_string(value)));
  }
  void extra(std::string_view name, double& value, double preset, bool /*always*/ = false) {
    value = preset;
    number(name, value);
  }
  void flag(std::string_view name, bool& value) {
    known_.push_back(name);
    const bool* const flag = updater_.flag(name);
    value = flag != nullptr && *flag;
  }

  /// Returns the first error; an unknown member is one.
  Status finish() {
    for (const auto& member : updater_.numbers) expect_known(member.first);
    for (const auto& member : updater_.flags) expect_known(member.first);
    for (const auto& member : updater_.texts) unknown(member.first);
    for (const TrainingRaw& member : updater_.other) {
      if (member.json != "null") unknown(member.name);
    }
    return std::move(status_);
  }

 private:
  void fail(Error error) {
    if (status_) status_ = std::move(error);
  }
  void other_type(std::string_view expected) {
    fail(Error(Errc::invalid_argument, "the updater is not that of the optimizer's class")
             .expected(expected)
             .found(updater_.type));
  }
  void expect_known(std::string_view name) {
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) unknown(name);
  }
  void unknown(std::string_view name) {
    fail(Error(Errc::unsupported, "libtorch's optimizer has no such setting").path(name));
  }

  const TrainingObject& updater_;
  std::vector<std::string_view> known_;
  Status status_{};
};

// The settings of each class, for a Writer or a Reader, in the order of Python. The numbers are PyTorch's defaults.

template <class Visitor>
void visit(Visitor& v, optim::SGDOptions& o) {
  v.type("Sgd", "Nesterovs", o.nesterov());
  v.number("learningRate", o.lr());
  v.extra("momentum", o.momentum(), o.nesterov() ? 0.9 : 0, o.nesterov());
  v.extra("dampening", o.dampening(), 0);
  v.extra("weightDecay", o.weight_decay(), 0);
}

template <class Visitor, class Options>
void visit_adam(Visitor& v, Options& o) {
  v.number("learningRate", o.lr());
  v.number("beta1", std::get<0>(o.betas()), 1);
  v.number("beta2", std::get<1>(o.betas()), 1);
  v.number("epsilon", o.eps());
}

template <class Visitor>
void visit(Visitor& v, optim::AdamOptions& o) {
  v.type("Adam", "AMSGrad", o.amsgrad());
  visit_adam(v, o);
  v.extra("weightDecay", o.weight_decay(), 0);
}

template <class Visitor>
void visit(Visitor& v, optim::AdamWOptions& o) {
  v.type("AdamW");
  visit_adam(v, o);
  v.number("weightDecay", o.weight_decay());
  v.flag("amsgrad", o.amsgrad());
}

/// Reads the settings of Adam for AdamW: in files of older versions of PyTorch, both have the same.
void visit_as_adam(Reader& v, optim::AdamWOptions& o) {
  v.type("Adam", "AMSGrad", o.amsgrad());
  visit_adam(v, o);
  v.extra("weightDecay", o.weight_decay(), 0);
}

template <class Visitor>
void visit(Visitor& v, optim::RMSpropOptions& o) {
  v.type("RmsProp");
  v.number("learningRate", o.lr());
  v.extra("momentum", o.momentum(), 0);
  v.number("rmsDecay", o.alpha());
  v.number("epsilon", o.eps());
  v.flag("centered", o.centered());
  v.extra("weightDecay", o.weight_decay(), 0);
}

template <class Visitor>
void visit(Visitor& v, optim::AdagradOptions& o) {
  v.type("AdaGrad");
  v.number("learningRate", o.lr());
  v.extra("learningRateDecay", o.lr_decay(), 0);
  v.number("epsilon", o.eps());
  v.extra("weightDecay", o.weight_decay(), 0);
  v.extra("initialAccumulatorValue", o.initial_accumulator_value(), 0);
}

/// The default learning rate of SGD in Python; libtorch has none.
constexpr double sgd_rate = 1e-3;

/// Calls `f` with new options of the optimizer's class, and PyTorch's defaults.
template <class F>
auto with_options(const optim::Optimizer& optimizer, F&& f) -> decltype(f(optim::AdamOptions())) {
  if (dynamic_cast<const optim::SGD*>(&optimizer) != nullptr) return f(optim::SGDOptions(sgd_rate));
  if (dynamic_cast<const optim::Adam*>(&optimizer) != nullptr) return f(optim::AdamOptions());
  if (dynamic_cast<const optim::AdamW*>(&optimizer) != nullptr) return f(optim::AdamWOptions());
  if (dynamic_cast<const optim::RMSprop*>(&optimizer) != nullptr) return f(optim::RMSpropOptions());
  if (dynamic_cast<const optim::Adagrad*>(&optimizer) != nullptr) return f(optim::AdagradOptions());
  return Error(Errc::unsupported, "the class of the optimizer is not supported")
      .expected("torch::optim::SGD, Adam, AdamW, RMSprop or Adagrad");
}

/// Writes the settings of the updater to options with PyTorch's defaults.
template <class Options>
Status read(const TrainingObject& updater, Options& options) {
  Reader reader(updater);
  if constexpr (std::is_same_v<Options, optim::AdamWOptions>) {
    updater.type == "AdamW" ? visit(reader, options) : visit_as_adam(reader, options);
  } else {
    visit(reader, options);
  }
  STELE_TRY(reader.finish());
  if constexpr (std::is_same_v<Options, optim::SGDOptions>) {
    if (options.nesterov() && (options.momentum() == 0 || options.dampening() != 0)) {
      return Error(Errc::out_of_range, "Nesterov momentum needs a momentum and no dampening").path("momentum");
    }
  }
  return {};
}

}  // namespace

Result<TrainingObject> updater_of(const optim::Optimizer& optimizer) {
  return detail::guarded([&]() -> Result<TrainingObject> {
    const auto& groups = optimizer.param_groups();
    const OptimizerOptions& from =
        groups.empty() || !groups.front().has_options() ? optimizer.defaults() : groups.front().options();
    return with_options(optimizer, [&](auto options) -> Result<TrainingObject> {
      options = static_cast<const decltype(options)&>(from);
      Writer writer;
      visit(writer, options);
      return std::move(writer.updater);
    });
  });
}

Status set_updater(optim::Optimizer& optimizer, const TrainingObject& updater) {
  return detail::guarded([&]() -> Status {
    return with_options(optimizer, [&](auto options) -> Status {
      STELE_TRY(read(updater, options));
      using Options = decltype(options);
      for (optim::OptimizerParamGroup& group : optimizer.param_groups()) {
        static_cast<Options&>(group.options()) = options;
      }
      static_cast<Options&>(optimizer.defaults()) = options;
      return {};
    });
  });
}

}  // namespace torch
}  // namespace v0
}  // namespace stele
