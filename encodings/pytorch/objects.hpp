// The objects of a file that are no tensors: their names and keys, and Values of them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "file.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::pytorch {

/// The key of an object's class in Python.
inline constexpr std::string_view class_key = "__class__";

/// Returns what follows a name that `earlier` objects or keys before have, too: " (2)".
inline std::string later_name(std::size_t earlier) { return " (" + std::to_string(earlier + 1) + ')'; }

/// Returns the object at a path of keys joined by dots; the root for "". Appends the objects on the way to it to `way`.
/// Errors: not_found.
Result<pickle::Ref> find_part(const pickle::Objects& objects, std::string_view path,
                              std::vector<pickle::Ref>* way = nullptr);

/// Returns an object without tensors as a Value. Errors: limit (nested too deep, or too large).
Result<Value> to_value(File& file, pickle::Ref object, IndexBudget& memory);

/// Returns a name of Python: "collections.OrderedDict"; without "builtins.".
std::string global_name(const pickle::Objects& objects, pickle::Ref global);

/// Returns the key of a dict as the segment of a path: a string, or a number's digits; else a text like Python's.
/// `exact`: false if the text alone does not tell the key.
std::string key_text(const pickle::Objects& objects, pickle::Ref key, bool& exact);

}  // namespace stele::inline v0::detail::pytorch
