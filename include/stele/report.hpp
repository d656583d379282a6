// Report: what a load or save did, name by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stele/config.hpp"

namespace stele {
inline namespace v0 {

/// Rows of a load: what became of each name of the module and of the file. Rows of a save: what the format lost. Rows
/// of a verification: what could not be checked.
class STELE_EXPORT Report {
 public:
  enum class What : std::uint8_t {
    applied,     // written to the module as it was in the file
    converted,   // written at another dtype; detail: "f16 -> f32", with "lossy" where bits were dropped
    missing,     // wanted by the module, not in the file (and allowed)
    unused,      // in the file, not wanted by the module (and allowed)
    mismatched,  // there, but of another kind, shape or dtype; detail: expected and found
    defaulted,   // missing, kept what the constructor gave (stele::keep_default)
    tied,        // one of several names of a shared object; another one was used
    copied,      // asked for as a view, had to be copied; detail: why
    lost,        // a save: the format cannot hold it; detail: what
    overflowed,  // numbers became infinite, as allowed; detail: how many
    suggested,   // a load that failed: a missing name may be one that is unused, or the other way round; detail: which
    quantized,   // a save: floats became integers; detail: range and error
    unchecked,   // a verification: a part of the file that no checksum covers; path: which, detail: what is in it
    constant,    // a save: a number, text or the like in a plain aggregate, which is not recorded; once for each class
  };
  struct Row {
    What what;
    std::string_view path;
    std::string_view detail;
  };

  void add(What what, std::string_view path, std::string_view detail = {});
  std::size_t size() const noexcept { return rows_.size(); }
  bool empty() const noexcept { return rows_.empty(); }
  /// Row i, in the order of events; its texts live as long as the Report is not changed. `i` is less than size(); not
  /// checked.
  Row operator[](std::size_t i) const noexcept;
  std::size_t count(What what) const noexcept;
  /// Paths of all rows of one kind.
  std::vector<std::string> paths(What what) const;
  /// One line a row, without the applied ones; then a line of counts.
  std::string to_string() const;

 private:
  struct Entry {
    std::uint32_t begin, path, detail;
    What what;
  };
  std::vector<Entry> rows_;
  std::string text_;
};

/// "applied", "converted", …
STELE_EXPORT std::string_view name(Report::What what) noexcept;

}  // namespace v0
}  // namespace stele
