// The entry `__stele__.npy` of a .npz file: data that NumPy cannot store, as JSON in an array of bytes.
// docs/formats/numpy.md describes the JSON.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/limits.hpp"
#include "stele/dtype.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail::numpy {

inline constexpr std::string_view ending = ".npy";
inline constexpr std::string_view own_entry = "__stele__.npy";
/// Prefix of the entry names of tensors whose paths cannot be names in a zip file.
inline constexpr std::string_view own_folder = "__stele__/";

struct OwnEntry {
  std::map<std::string, std::string> metadata;            // includes the flat extras, under their key
  std::map<std::string, std::string, std::less<>> names;  // entry without ".npy" -> path
  std::map<std::string, DType, std::less<>> dtypes;       // arrays without a type: entry without ".npy" -> dtype
  bool empty() const noexcept { return metadata.empty() && names.empty() && dtypes.empty(); }
};

/// Returns the JSON.
std::string to_text(const OwnEntry& own);
/// Parses JSON. Errors: malformed, duplicate, unsupported (JSON of a later version), limit.
Result<OwnEntry> parse_own_entry(std::string_view text, IndexBudget& memory);

}  // namespace stele::inline v0::detail::numpy
