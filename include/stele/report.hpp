// Report: the result of a load or save, name by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "stele/config.hpp"

namespace stele::inline v0 {

/// The rows of a load describe each name of the module and of the file. The rows of a save describe the parts that the
/// format cannot store. The rows of a verification describe the parts that could not be checked.
///
/// A report is bounded, because the paths in a file of a megabyte can be a thousand times longer than the file. Rows
/// after max_rows or max_text_bytes are counted but not kept; a path or detail longer than max_part_bytes is kept with
/// an ellipsis in the middle.
class STELE_EXPORT Report {
 public:
  static constexpr std::size_t max_rows = 1'000'000;
  static constexpr std::size_t max_text_bytes = std::size_t{16} << 20;
  static constexpr std::size_t max_part_bytes = 1024;

  enum class What : std::uint8_t {
    applied,     // written to the module as stored in the file
    converted,   // written at another dtype; detail: "f16 -> f32", with "lossy" if bits were dropped
    missing,     // needed by the module, but not in the file (and allowed)
    unused,      // in the file, but not used by the module (and allowed)
    mismatched,  // in the file, but with another kind, shape or dtype; detail: expected and found
    defaulted,   // missing, so it kept its constructed value: a keep_default field, a number of a plain aggregate
    tied,        // one of several names of a shared object; the object was loaded under another name
    copied,      // requested as a view, but had to be copied; detail: reason
    lost,        // on save, not supported by the format; detail: the part that is lost
    overflowed,  // on load or save, numbers became infinite, as allowed; detail: their number
    suggested,   // a failed load: a missing name may match an unused one, or vice versa; detail: the matching name
    // on save, floats became integers; detail: range and error. Also a copied part of a weight that is not decoded;
    // detail: its scheme
    quantized,
    unchecked,  // on verification, no checksum covers a part of the file; path: the part, detail: its content
    constant,  // on save, a constant (number, string, …) of a plain aggregate, which the format cannot store; one row
               // per class
    written,   // on save, a file in addition to the named file: a shard, constants
    kept,      // on save, the tensor has another dtype than the one asked for; detail: the reason
  };
  struct Row {
    What what;
    std::string_view path;
    std::string_view detail;
  };

  // Not inline, because each call of a recorder would compile them.
  Report();
  Report(const Report&);
  Report(Report&&) noexcept;
  Report& operator=(const Report&);
  Report& operator=(Report&&) noexcept;
  ~Report();

  void add(What what, std::string_view path, std::string_view detail = {});
  /// Removes all rows. A load or save adds its rows to those of the report that it is given.
  void clear() noexcept;
  /// Returns the number of kept rows.
  std::size_t size() const noexcept { return rows_.size(); }
  bool empty() const noexcept { return rows_.empty(); }
  /// Returns row i, in the order of events. Its strings are valid until the Report changes. `i` must be less than
  /// size() (not checked).
  Row operator[](std::size_t i) const noexcept;
  /// Returns the number of rows of one kind, including those that are not kept.
  std::size_t count(What what) const noexcept { return counts_[static_cast<std::size_t>(what)]; }
  /// Returns the paths of the kept rows of one kind.
  std::vector<std::string> paths(What what) const;
  /// Formats one line for each kept row except applied ones; "and N more" for rows that are not kept; then a line of
  /// counts. Characters that control a terminal are escaped.
  std::string to_string() const;

 private:
  static constexpr std::size_t max_kinds = 16;  // includes spare space for more values of What
  struct Entry {
    std::uint32_t begin;  // offset in text_
    std::uint16_t path, detail;
    What what;
  };
  std::vector<Entry> rows_;
  std::string text_;
  std::size_t counts_[max_kinds] = {};
};

/// Writes to_string().
STELE_EXPORT std::ostream& operator<<(std::ostream& to, const Report& report);

/// Returns "applied", "converted", …
STELE_EXPORT std::string_view name(Report::What what) noexcept;

}  // namespace stele::inline v0
