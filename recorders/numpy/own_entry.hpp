// The entry `__stele__.npy` of a .npz file: what NumPy has no place for, as JSON in an array of bytes.
// docs/formats/numpy.md describes the text.
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
/// Begins the names of entries whose tensors have paths that a zip file cannot store as names.
inline constexpr std::string_view own_folder = "__stele__/";

struct OwnEntry {
  std::map<std::string, std::string> metadata;            // with the flat extras, under their key
  std::map<std::string, std::string, std::less<>> names;  // entry without ".npy" -> path
  std::map<std::string, DType, std::less<>> dtypes;       // of arrays without a type, by entry without ".npy"
  bool empty() const noexcept { return metadata.empty() && names.empty() && dtypes.empty(); }
};

/// Returns the text.
std::string to_text(const OwnEntry& own);
/// Parses a text. Errors: malformed, duplicate, unsupported (of a later version), limit.
Result<OwnEntry> parse_own_entry(std::string_view text, IndexBudget& memory);

}  // namespace stele::inline v0::detail::numpy
