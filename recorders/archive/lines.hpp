// The texts of an archive: tags.txt, params.txt, updater.txt.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stele/result.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace archive {

/// Whether this can be a tag, and so the name of a folder anywhere (ArchiveOptions::tag).
bool valid_tag(std::string_view tag) noexcept;
/// Whether two tags are the same: upper and lower case are.
bool same_tag(std::string_view a, std::string_view b) noexcept;
/// Equal for tags that are the same.
std::string folded(std::string_view tag);

/// The tags, oldest first. Errors: malformed (a tag that is none, no tag at all), duplicate.
Result<std::vector<std::string>> parse_tags(std::string_view text);
std::string tags_text(std::span<const std::string> tags);

/// An array in params/ or updater/ of a tag; of the line's own where `tag` is empty.
struct Reference {
  std::string tag;
  std::uint32_t number = 0;
  friend bool operator==(const Reference&, const Reference&) = default;
};

/// One line of params.txt or updater.txt.
struct Line {
  std::string name;
  std::vector<Reference> arrays;
  std::vector<std::string> keys;  // of the columns, where they say any
  std::string kind;               // what a later version writes behind them ("MAP"); such a line is kept, not read
};

/// Errors: malformed, duplicate (of names), limit (more than `memory` bytes).
Result<std::vector<Line>> parse_lines(std::string_view text, std::uint64_t memory);
std::string lines_text(std::span<const Line> lines);

}  // namespace archive
}  // namespace detail
}  // namespace v0
}  // namespace stele
