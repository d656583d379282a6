// Regular expressions in the configurations of other programs, which name layers. The time of a match is linear in the
// expression and in the text, so a file cannot make it long.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace stele::inline v0::detail::regex {

/// The part of the syntax of Python's `re` and of PCRE that both have and read the same way: literals, `.`, sets with
/// ranges, groups, alternatives, `*`, `+`, `?`, `{m,n}` and their lazy forms, `^`, `$`, `\A`, `\Z`, `\b`, `\B` and the
/// classes `\d`, `\w`, `\s`. Lookaround, back-references, flags and characters other than ASCII are not of it.
class Regex {
 public:
  /// Returns nullopt for an expression with unsupported syntax, or one that is too large.
  static std::optional<Regex> compile(std::string_view expression);

  /// Returns true if the expression matches at the beginning of a text, perhaps a part of it: Python's `re.match`.
  bool matches_beginning(std::string_view text) const { return run(text, false); }
  /// Returns true if the expression matches a part of a text: Python's `re.search`.
  bool matches_part(std::string_view text) const { return run(text, true); }
  /// The number of steps of a match is at most this for each character.
  std::size_t size() const noexcept { return program_.size() + 1; }

 private:
  enum class Op : std::uint8_t { characters, split, begin, end, word_border, no_word_border };
  struct Instruction {
    Op op;
    std::int32_t first = 1, second = 1;  // the next instructions, relative; of `characters`: first is the set
  };
  /// The ASCII characters of a set, and true if it has all other characters.
  using Set = std::bitset<129>;
  using Program = std::vector<Instruction>;
  class Compiler;

  bool run(std::string_view text, bool anywhere) const;

  Program program_;  // the end of the program is the match
  std::vector<Set> sets_;
};

}  // namespace stele::inline v0::detail::regex
