// Builds a flat Snapshot from a file's objects.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "file.hpp"

namespace stele::inline v0::detail::pytorch {

// Properties of a file for the writer (Snapshot::origin), as JSON.
inline constexpr const char* containers_origin = "pytorch.containers";  // path -> kind of container
inline constexpr const char* metadata_origin = "pytorch.metadata";      // path -> the `_metadata` of the state_dict
inline constexpr const char* groups_origin = "pytorch.param_groups";    // the optimizer's groups

/// The name of a file's only tensor if the file is not a dict.
inline constexpr std::string_view bare_name = "tensor";

/// Kinds of containers in `containers_origin`.
namespace container {
inline constexpr char dict = 'd', ordered_dict = 'o', list = 'l', tuple = 't', tuple_value = 'v', bare = 'x';
inline constexpr char integer_keys = 'i';  // suffix of the kind of a dict
}  // namespace container

/// The annotation with a tensor's class in Python.
inline constexpr std::string_view class_annotation = "pytorch.class";

/// Returns the Snapshot of `part`, in the byte order of files. Errors: those of Format::open.
Result<Snapshot> build(File& file, pickle::Ref part, IndexBudget& memory);

}  // namespace stele::inline v0::detail::pytorch
