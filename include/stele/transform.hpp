// Snapshot -> Snapshot: chooses, renames, joins and reshapes parameters. Data is read and copied only when the result
// is saved or loaded.
//
// Functions that change names return a flat Snapshot (names are whole paths), which loads and saves like any other;
// nest() turns it into a tree. Ties are kept: the first remaining name owns the tensor, and its other names refer to
// it.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stele/pattern.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0 {

struct Filter {
  /// Patterns (stele/pattern.hpp) of the parameters to keep; if empty, keeps all.
  std::vector<std::string> include{};
  /// Patterns of the included parameters to drop.
  std::vector<std::string> exclude{};
  /// Optional filter, applied last. `leaf` is null for a node that is not a tensor.
  std::function<bool(std::string_view path, const LeafView* leaf)> keep{};
};

/// Keeps the parameters that match the filter. Errors: not_found (an `include` that matches nothing).
STELE_EXPORT Result<Snapshot> filter(const Snapshot& snapshot, const Filter& by);

/// A regular expression (https://github.com/google/re2/wiki/Syntax) and the replacement for each match in a path. In
/// the replacement, `\1` to `\9` are the groups and `\0` is the whole match.
struct Rename {
  std::string pattern;
  std::string replacement;
};

/// Applies the rules in order. Errors: invalid_argument (an invalid pattern or replacement), duplicate (two parameters
/// with the same new name).
STELE_EXPORT Result<Snapshot> rename(const Snapshot& snapshot, std::span<const Rename> rules);
inline Result<Snapshot> rename(const Snapshot& snapshot, const std::vector<Rename>& rules) {
  return rename(snapshot, std::span<const Rename>(rules));
}

/// Returns the part below `path`, with names relative to it: part(file, "encoder") has `weight` for `encoder.weight`.
/// Errors: not_found.
STELE_EXPORT Result<Snapshot> part(const Snapshot& snapshot, std::string_view path);
/// Moves everything below `path`; the inverse of part().
STELE_EXPORT Result<Snapshot> with_prefix(const Snapshot& snapshot, std::string_view path);
/// Combines several Snapshots. Errors: duplicate (a name in two Snapshots, or a metadata key or property with different
/// values).
STELE_EXPORT Result<Snapshot> merge(std::span<const Snapshot> snapshots);
/// Combines several Snapshots; a tensor, value, metadata string or property of a later Snapshot replaces an earlier one
/// with the same path or key. The version of a class is the first one stored. Ties are kept: replacing one name of a
/// tied tensor replaces it under all names. Errors: invalid_argument (two names of a tied tensor are replaced by
/// different tensors, or a later Snapshot ties tensors that an earlier one stores separately).
STELE_EXPORT Result<Snapshot> overlay(std::span<const Snapshot> snapshots);
/// Makes a Snapshot flat: its names become whole paths.
STELE_EXPORT Result<Snapshot> flatten(const Snapshot& snapshot);
/// Turns a Snapshot into a tree: a dot begins a level, and a node with only numbers below it is a list. Errors:
/// malformed (a path with a wrong escape, a tensor with nodes below it, ties that contain each other), limit (nested
/// too deeply).
STELE_EXPORT Result<Snapshot> nest(const Snapshot& snapshot);

/// Permutes the axes of the matching tensors: axis `i` of the result is axis `axes[i]`. If `axes` is empty, reverses
/// all axes, which transposes a matrix. Errors: invalid_argument (not a permutation of a tensor's axes), unsupported
/// (packed dtypes), not_found (no tensor matches).
STELE_EXPORT Result<Snapshot> transpose(const Snapshot& snapshot, std::string_view pattern,
                                        std::span<const std::size_t> axes = {});

/// Gives the matching tensors another shape with the same number of elements, which remain in row-major order. Errors:
/// shape_mismatch (a different number of elements), unsupported (a packed or block dtype, a quantization along an
/// axis), not_found (no tensor matches).
STELE_EXPORT Result<Snapshot> reshape(const Snapshot& snapshot, std::string_view pattern,
                                      std::span<const Extent> shape);

/// A part of a tensor along an axis.
struct Part {
  std::string path;
  Extent extent;
};
/// Replaces the tensor at `path` by parts of it along `axis`, in order. Drops ids and annotations. Errors: not_found,
/// invalid_argument (the axis does not exist, a tied tensor), shape_mismatch (the extents do not add up to the extent
/// of the axis), unsupported (packed dtypes), duplicate.
STELE_EXPORT Result<Snapshot> split(const Snapshot& snapshot, std::string_view path, std::size_t axis,
                                    std::span<const Part> parts);
/// Replaces the tensors at `paths` by one tensor at `path`, joined along `axis`. Errors: those of split(),
/// dtype_mismatch.
STELE_EXPORT Result<Snapshot> concatenate(const Snapshot& snapshot, std::span<const std::string> paths,
                                          std::size_t axis, std::string_view path);

/// A precision for the matching tensors.
struct PrecisionRule {
  std::string pattern;
  PrecisionSpec precision;
};
/// Stores each tensor at the precision of the first rule that matches it; other tensors are unchanged.
STELE_EXPORT Snapshot with_precision(const Snapshot& snapshot, std::span<const PrecisionRule> rules,
                                     ConvertRules convert = {});

}  // namespace stele::inline v0
