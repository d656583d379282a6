// The settings of an optimizer in PyTorch (a dict of `param_groups`) and in a training configuration (an updater). One
// table of PyTorch's optimizers serves both directions.
#pragma once

#include <optional>
#include <string_view>

#include "stele/training.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::pytorch {

/// Returns the updater with the settings of a group, recognized by its keys: Adam, AdamW, AMSGrad, Nadam, AdaMax,
/// AdaGrad, AdaDelta, RmsProp, Sgd, Nesterovs. Always sets members that DL4J has. Sets other members (weightDecay,
/// amsgrad, momentum of Sgd and RmsProp, dampening, centered, maximize, …) only if they differ from PyTorch's defaults.
/// The type is empty for the keys of any other optimizer.
TrainingObject updater_of(const Value& group);

/// Returns the settings in the order in which PyTorch 2.15's optimizer writes them, without `params`. Settings that the
/// updater does not have get PyTorch's defaults. Rates and momenta with a schedule have their values at the
/// configuration's counts. Returns null for an updater that PyTorch does not have. Errors: those of learning_rate().
Result<Value> group_of(const TrainingConfig& config);

/// Returns the name of an updater's member that its PyTorch optimizer does not have: a schedule, a string, an unknown
/// number or flag. Ignores members that are null.
std::optional<std::string_view> unknown_member(const TrainingObject& updater);

/// Returns an f64 or i64 as a double, or nullopt for other kinds.
std::optional<double> number_of(const Value& value);

/// Returns true for settings that are tuples in Python, such as `betas`.
bool is_tuple(std::string_view setting) noexcept;

}  // namespace stele::inline v0::detail::pytorch
