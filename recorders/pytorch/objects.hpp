// Names, keys and Values of a file's objects that are not tensors.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "file.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::pytorch {

/// The key under which a Value stores the name of an object's Python class.
inline constexpr std::string_view class_key = "__class__";

/// Returns the suffix of a name that `earlier` previous objects or keys also have: " (2)".
inline std::string later_name(std::size_t earlier) { return " (" + std::to_string(earlier + 1) + ')'; }

/// Returns the object at a path of keys joined by dots; the root for "". Appends the objects along the path to `way`.
/// Errors: not_found.
Result<pickle::Ref> find_part(const pickle::Objects& objects, std::string_view path,
                              std::vector<pickle::Ref>* way = nullptr);

/// Converts an object without tensors to a Value. Errors: limit (nested too deeply, or too large).
Result<Value> to_value(File& file, pickle::Ref object, IndexBudget& memory);

/// Returns a Python name: "collections.OrderedDict"; without the prefix "builtins.".
std::string global_name(const pickle::Objects& objects, pickle::Ref global);

/// Returns a dict's key as a path segment: a string, a number's digits, or else a string like Python's. Sets `exact` to
/// false if the text alone does not identify the key.
std::string key_text(const pickle::Objects& objects, pickle::Ref key, bool& exact);

}  // namespace stele::inline v0::detail::pytorch
