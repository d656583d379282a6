// The description of an open model that `stele inspect --json` prints and the viewer shows.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <stele/value.hpp>

#include "facts/names.hpp"
#include "facts/statistics.hpp"

namespace stele::facts {

/// Receives the members of a JSON object, one by one, so that long lists are not kept in memory.
class Members {
 public:
  virtual ~Members() = default;
  Members() = default;
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;
  virtual void member(std::string_view key, const Value& value) = 0;
  virtual void begin_list(std::string_view key) = 0;
  virtual void item(const Value& value) = 0;
  virtual void end_list() = 0;
};

/// Returns a number as a JSON value; null if it is not finite.
Value number(double d);
inline Value number(std::uint64_t u) { return Value(u); }
/// Returns the parts of an error as a map. `reworded` replaces the text of a part; it may be empty.
Value to_value(const Error& error,
               const std::function<std::string(std::string_view key, std::string_view text)>& reworded = {});
/// Returns the statistics as a map.
Value to_value(const Statistics& statistics);

/// Returns the dtype, or the scheme of a weight that has several parts.
std::string dtype_text(const LeafView& leaf);
/// Returns the number of bytes in the file.
std::uint64_t bytes_of(const LeafView& leaf);

struct Totals {
  std::uint64_t tensors = 0, elements = 0, bytes = 0;
  void add(const LeafView& leaf);
};
struct Sums {
  Totals all;
  std::map<std::string, Totals> by_dtype, by_module;
};
/// Adds up the tensors; a tied one counts once.
Sums sums_of(const Snapshot& snapshot, const std::vector<Named>& names);

/// The contents of a file except tensors: lines of a header, or members of a document.
using MoreFacts = std::vector<std::pair<std::string, std::string>>;

struct Description {
  std::string_view format;
  const Snapshot& snapshot;
  const std::vector<Named>& names;
  const std::vector<Statistics>& statistics;  // of each name, or empty
  const Sums& sums;
  const MoreFacts& more;
};
void describe(const Description& model, Members& out);

}  // namespace stele::facts
