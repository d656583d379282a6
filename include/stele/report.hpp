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
///
/// A report is bounded, since a file of a megabyte can name a thousand times its size in paths. Rows beyond max_rows or
/// max_text_bytes are counted and not kept; a longer path or detail than max_part_bytes is kept with an ellipsis in its
/// middle.
class STELE_EXPORT Report {
 public:
  static constexpr std::size_t max_rows = 1'000'000;
  static constexpr std::size_t max_text_bytes = std::size_t{16} << 20;
  static constexpr std::size_t max_part_bytes = 1024;

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
  /// Number of rows that are kept.
  std::size_t size() const noexcept { return rows_.size(); }
  bool empty() const noexcept { return rows_.empty(); }
  /// Row i, in the order of events; its texts live as long as the Report is not changed. `i` is less than size(); not
  /// checked.
  Row operator[](std::size_t i) const noexcept;
  /// Number of rows of one kind, with those that are not kept.
  std::size_t count(What what) const noexcept { return counts_[static_cast<std::size_t>(what)]; }
  /// Paths of the kept rows of one kind.
  std::vector<std::string> paths(What what) const;
  /// One line a row, without the applied ones; "and N more" for those that are not kept; then a line of counts.
  std::string to_string() const;

 private:
  static constexpr std::size_t max_kinds = 16;  // room for more values of What
  struct Entry {
    std::uint32_t begin;  // in text_
    std::uint16_t path, detail;
    What what;
  };
  std::vector<Entry> rows_;
  std::string text_;
  std::size_t counts_[max_kinds] = {};
};

/// "applied", "converted", …
STELE_EXPORT std::string_view name(Report::What what) noexcept;

}  // namespace v0
}  // namespace stele
