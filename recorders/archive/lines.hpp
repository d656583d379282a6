// The text files of an archive: tags.txt, params.txt, updater.txt.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stele/result.hpp"

namespace stele::inline v0::detail::archive {

/// Returns true for a valid tag, which can name a folder on any system (ArchiveOptions::tag).
bool valid_tag(std::string_view tag) noexcept;
/// Returns true if two tags are equal except for case.
bool same_tag(std::string_view a, std::string_view b) noexcept;
/// Folds case: returns the same string for tags that differ only in case.
std::string folded(std::string_view tag);

/// Returns the tags, oldest first. Errors: malformed (an invalid tag, no tags), duplicate.
Result<std::vector<std::string>> parse_tags(std::string_view text);
std::string tags_text(std::span<const std::string> tags);

/// A reference to an array in params/ or updater/ of `tag`, or of the line's own tag if `tag` is empty.
struct Reference {
  std::string tag;
  std::uint32_t number = 0;
  friend bool operator==(const Reference&, const Reference&) = default;
};

/// One line of params.txt or updater.txt.
struct Line {
  std::string name;
  std::vector<Reference> arrays;
  std::vector<std::string> keys;  // keys of the columns, if the line has any
  std::string kind;               // rest of a line that a later version wrote ("MAP"); such lines are kept but not read
};

/// Parses params.txt or updater.txt. Errors: malformed, duplicate (names), limit (more than `memory` bytes).
Result<std::vector<Line>> parse_lines(std::string_view text, std::uint64_t memory);
std::string lines_text(std::span<const Line> lines);

}  // namespace stele::inline v0::detail::archive
