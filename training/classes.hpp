// The Java classes of updaters, schedules and regularizations, and a lookup of members by name. Shared by the JSON
// reader, the JSON writer and the schedules.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/training.hpp"

namespace stele::inline v0::detail::training {

/// Maximum nesting of objects.
inline constexpr unsigned max_depth = 16;

inline constexpr std::string_view kClass = "@class", kValues = "values", kRate = "learningRate";
inline constexpr std::string_view kRateSchedule = "learningRateSchedule";

/// A class of DL4J 1.0.0-M2.1, with its members in DL4J's order.
struct Known {
  std::string_view type, package, members;
  std::span<const std::string_view> state = {};  // names of an updater's state arrays
};

/// Returns the class, or nullptr for an unknown type.
const Known* known(std::string_view type) noexcept;
/// Returns a class name without its package.
std::string_view simple_name(std::string_view name) noexcept;
/// Returns the full class name of an object.
std::string class_name(const TrainingObject& object);
/// Formats like Double.toString(), but always with the shortest digits: 0.001, 1.0E-4, 1.0E7.
std::string java_text(double number);

/// Returns the member with the given name, or nullptr.
template <class Members>
auto* find(Members& members, std::string_view name) noexcept {
  for (auto& [key, value] : members) {
    if (key == name) return &value;
  }
  return static_cast<decltype(&members.front().second)>(nullptr);
}

}  // namespace stele::inline v0::detail::training
