#include "base/similar.hpp"

#include <algorithm>
#include <numeric>

namespace stele::inline v0::detail {

namespace {

/// Returns the number of edits (insert, delete, replace) between `a` and `b`, at most `limit`.
std::size_t distance(std::string_view a, std::string_view b, std::size_t limit, std::vector<std::size_t>& row) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() >= limit) return limit;
  row.resize(a.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t j = 1; j <= b.size(); ++j) {
    std::size_t diagonal = row[0];
    std::size_t min_edits = row[0] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
      const std::size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[i];
      row[i] = std::min({row[i] + 1, row[i - 1] + 1, replace});
      min_edits = std::min(min_edits, row[i]);
    }
    if (min_edits >= limit) return limit;
  }
  return std::min(row[a.size()], limit);
}

}  // namespace

std::string_view most_similar(std::string_view name, const std::vector<std::string>& candidates) {
  if (name.size() > max_compared_bytes) return {};
  std::string_view best;
  std::size_t limit = name.size() / 3 + 2;  // names that differ in more than a third are not similar
  std::vector<std::size_t> row;
  for (std::size_t i = 0; i < std::min(candidates.size(), max_compared_names); ++i) {
    if (candidates[i].size() > max_compared_bytes) continue;
    const std::size_t d = distance(name, candidates[i], limit, row);
    if (d < limit) {
      limit = d;
      best = candidates[i];
    }
  }
  return best;
}

}  // namespace stele::inline v0::detail
