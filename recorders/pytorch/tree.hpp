// From a file's objects to a flat Snapshot.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "file.hpp"

namespace stele::inline v0::detail::pytorch {

// Properties of a file for the writer (Snapshot::origin), as JSON.
inline constexpr const char* containers_origin = "pytorch.containers";  // path -> kind of container
inline constexpr const char* metadata_origin = "pytorch.metadata";      // path -> the `_metadata` of the state_dict
inline constexpr const char* groups_origin = "pytorch.param_groups";    // of the optimizer

/// The name of a file's only tensor, if it is no dict.
inline constexpr std::string_view bare_name = "tensor";

/// Kinds of containers in `containers_origin`.
namespace container {
inline constexpr char dict = 'd', ordered_dict = 'o', list = 'l', tuple = 't', tuple_value = 'v', bare = 'x';
inline constexpr char integer_keys = 'i';  // after the kind of a dict
}  // namespace container

/// The annotation with a tensor's class in Python.
inline constexpr std::string_view class_annotation = "pytorch.class";

/// The key of an object's class in Python.
inline constexpr std::string_view class_key = "__class__";

/// Returns what follows a name that `earlier` objects or keys before have, too: " (2)".
inline std::string later_name(std::size_t earlier) { return " (" + std::to_string(earlier + 1) + ')'; }

/// Returns the object at a path of keys joined by dots; the root for "". Appends the objects on the way to it to `way`.
/// Errors: not_found.
Result<pickle::Ref> find_part(const pickle::Objects& objects, std::string_view path,
                              std::vector<pickle::Ref>* way = nullptr);

/// Returns the Snapshot of `part`, in the byte order of files. Errors: those of Format::open.
Result<Snapshot> build(File& file, pickle::Ref part, IndexBudget& memory);

/// Returns an object without tensors as a Value. Errors: limit (nested too deep, or too large).
Result<Value> to_value(File& file, pickle::Ref object, IndexBudget& memory);

/// Returns a name of Python: "collections.OrderedDict"; without "builtins.".
std::string global_name(const pickle::Objects& objects, pickle::Ref global);

/// Returns the key of a dict as the segment of a path: a string, or a number's digits; else a text like Python's.
/// `exact`: false if the text alone does not tell the key.
std::string key_text(const pickle::Objects& objects, pickle::Ref key, bool& exact);

}  // namespace stele::inline v0::detail::pytorch
