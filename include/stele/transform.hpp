// Snapshot -> Snapshot: choosing, renaming, joining and reshaping parameters. Nothing is read or copied before the
// result is saved or loaded.
//
// What changes names gives a flat Snapshot (names are whole paths), which loads and saves like any other; nest() makes
// a tree of it. Ties stay: the first name that remains owns the tensor, the others follow it.
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

namespace stele {
inline namespace v0 {

struct Filter {
  /// Patterns (stele/pattern.hpp) of what stays; none: everything.
  std::vector<std::string> include{};
  /// Patterns of what goes, of the included.
  std::vector<std::string> exclude{};
  /// Asked last, where it is set. `leaf` is null for what is no tensor.
  std::function<bool(std::string_view path, const LeafView* leaf)> keep{};
};

/// The parameters that the filter lets through. Errors: not_found (an `include` that matches nothing).
STELE_EXPORT Result<Snapshot> filter(const Snapshot& snapshot, const Filter& by);

/// A regular expression (https://github.com/google/re2/wiki/Syntax) and what stands for each match in a path; `\1` to
/// `\9` are its groups, `\0` the whole match.
struct Rename {
  std::string pattern;
  std::string replacement;
};

/// Renames by each rule in turn. Errors: invalid_argument (a pattern or replacement that is none), duplicate (two
/// parameters that would have one name).
STELE_EXPORT Result<Snapshot> rename(const Snapshot& snapshot, std::span<const Rename> rules);
inline Result<Snapshot> rename(const Snapshot& snapshot, const std::vector<Rename>& rules) {
  return rename(snapshot, std::span<const Rename>(rules));
}

/// What is below `path`, with its names from there: part(file, "encoder") has `weight` for `encoder.weight`. Errors:
/// not_found.
STELE_EXPORT Result<Snapshot> part(const Snapshot& snapshot, std::string_view path);
/// The opposite: everything below `path`.
STELE_EXPORT Result<Snapshot> with_prefix(const Snapshot& snapshot, std::string_view path);
/// All of several. Errors: duplicate (a name or metadata key with different texts in two of them).
STELE_EXPORT Result<Snapshot> merge(std::span<const Snapshot> snapshots);
/// All of several, where a tensor or value of a later one takes the place of what an earlier one has at its path;
/// metadata likewise. Versions of classes are those of the first that says one. Ties stay as they are: what replaces
/// one name of a tied tensor replaces it under all. Errors: invalid_argument (two names of one tied tensor are replaced
/// by different ones, or a later one ties what an earlier one has apart).
STELE_EXPORT Result<Snapshot> overlay(std::span<const Snapshot> snapshots);
/// The same with whole paths as names.
STELE_EXPORT Result<Snapshot> flatten(const Snapshot& snapshot);
/// The same as a tree: a dot is a level, and what has only numbers below it is a list. Errors: malformed (a path
/// with a wrong escape, a tensor that has something below it, ties that hold each other), limit (nested too deep).
STELE_EXPORT Result<Snapshot> nest(const Snapshot& snapshot);

/// Permutes the axes of the tensors that match: axis `i` of the result is axis `axes[i]`; none: all reversed, which
/// transposes a matrix. Errors: invalid_argument (no permutation of a tensor's axes), unsupported (packed dtypes),
/// not_found (nothing matches).
STELE_EXPORT Result<Snapshot> transpose(const Snapshot& snapshot, std::string_view pattern,
                                        std::span<const std::size_t> axes = {});

/// A part of a tensor along an axis.
struct Part {
  std::string path;
  Extent extent;
};
/// Replaces the tensor at `path` by parts of it along `axis`, in order. Errors: not_found, invalid_argument (no such
/// axis), shape_mismatch (the extents are not the axis's in all), unsupported (packed dtypes), duplicate. Ids and
/// annotations do not go with it; a tied tensor is an invalid_argument.
STELE_EXPORT Result<Snapshot> split(const Snapshot& snapshot, std::string_view path, std::size_t axis,
                                    std::span<const Part> parts);
/// Replaces the tensors at `paths` by one at `path`, joined along `axis`. Errors: as split(), dtype_mismatch.
STELE_EXPORT Result<Snapshot> concatenate(const Snapshot& snapshot, std::span<const std::string> paths,
                                          std::size_t axis, std::string_view path);

/// A precision for the tensors that match.
struct PrecisionRule {
  std::string pattern;
  PrecisionSpec precision;
};
/// Stores each tensor at the precision of the first rule that matches it; others stay as they are.
STELE_EXPORT Snapshot with_precision(const Snapshot& snapshot, std::span<const PrecisionRule> rules,
                                     ConvertRules convert = {});

}  // namespace v0
}  // namespace stele
