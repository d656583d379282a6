// The differences of two models.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "facts/compare.hpp"
#include "facts/describe.hpp"
#include "facts/names.hpp"

namespace stele::facts {

/// A tie, a plain value, a metadata string, a typed property or a part of a checkpoint that two files do not share.
struct OtherDifference {
  std::string kind;  // "tie", "plain value", "metadata", "property", "checkpoint", "optimizer"
  std::string name;
  std::string a, b;  // as text; empty: not in this file
};

/// Compares two files. With patterns, compares only ties and plain values that match one. A number differs as in
/// compare_leaves().
std::vector<OtherDifference> other_differences(const Snapshot& a, const std::vector<Named>& names_a, const Snapshot& b,
                                               const std::vector<Named>& names_b,
                                               const std::vector<std::string>& patterns, double atol, double rtol);

/// Gives the tensor of a file that stores one without a name (.npy) the name of the only tensor of the other file.
void pair_unnamed(std::string_view format_a, std::vector<Named>& names_a, std::string_view format_b,
                  std::vector<Named>& names_b);

struct DifferenceOptions {
  double atol = 0, rtol = 0;
  bool ignore_dtype = false;
  bool tensors = false;             // without ties, values and metadata
  std::vector<std::string> only{};  // patterns of names
  Loop loop = in_order;
  Advance advance{};
};

enum class DifferenceKind : std::uint8_t { only_a, only_b, shape, other, values, dtype };

struct Difference {
  DifferenceKind kind;
  std::string name;
  std::string a, b;  // dtype and shape, or the text of a value
  std::optional<Comparison> numbers{};
  std::string other{};  // the kind of an OtherDifference

  std::string kind_name() const;
};

struct Differences {
  std::vector<Difference> rows;   // structure first, then the largest difference
  std::uint64_t tensors = 0;      // that both have
  std::uint64_t equal = 0;        // different tensors within the tolerance
  std::uint64_t other_dtype = 0;  // different tensors with another dtype
  std::uint64_t others = 0;       // OtherDifferences
};

/// A model to compare.
struct Side {
  std::string_view format;
  const Snapshot& snapshot;
};

/// Compares two models. `more`: differences that the caller has found. Errors: not_found (no name matches), io,
/// checksum, cancelled.
Result<Differences> differences(const DifferenceOptions& options, const Side& a, const Side& b,
                                std::vector<OtherDifference> more = {});
void describe(const Differences& found, Members& out);

}  // namespace stele::facts
