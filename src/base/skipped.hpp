// Lists data that a reader skips, as a part for SnapshotData::left_out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/shortened.hpp"

namespace stele::inline v0::detail {

/// Adds the parts that another file leaves out, each once. Adds a bounded number, so that many files take linear time.
inline void add_left_out(std::vector<std::string>& to, const std::vector<std::string>& from) {
  constexpr std::size_t max_parts = 64;
  for (const std::string& part : from) {
    if (to.size() > max_parts || std::find(to.begin(), to.end(), part) != to.end()) continue;
    to.push_back(to.size() < max_parts ? part : "other parts of the files");
  }
}

/// The first names of skipped data, each once. Takes a bounded amount of memory, like the row of a report.
class Skipped {
 public:
  void add(std::string_view name) {
    std::string text = shortened(name, max_name_bytes);
    if (std::find(names_.begin(), names_.end(), text) != names_.end()) return;
    if (names_.size() > max_names) return;
    names_.push_back(names_.size() < max_names ? std::move(text) : "…");
  }
  /// Adds the part "<what>: <names>", if there are names.
  void leave_out(std::vector<std::string>& parts, std::string_view what) const {
    if (names_.empty()) return;
    std::string part(what);
    for (const std::string& name : names_) part.append(&name == names_.data() ? ": " : ", ").append(name);
    parts.push_back(std::move(part));
  }

 private:
  // 16 names of 60 bytes fit the detail of a row (Report::max_part_bytes).
  static constexpr std::size_t max_names = 16, max_name_bytes = 60;
  std::vector<std::string> names_;
};

}  // namespace stele::inline v0::detail
