// Reads the text files of an archive: tags.txt, params.txt, updater.txt.
#include "lines.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/hex.hpp"
#include "base/name_order.hpp"
#include "base/reserved_names.hpp"
#include "json/json.hpp"

namespace stele::inline v0::detail::archive {
namespace {

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
constexpr bool is_letter(char c) noexcept { return lower(c) >= 'a' && lower(c) <= 'z'; }

Error bad(Errc code, const char* text, std::size_t offset, std::string_view found) {
  return Error(code, text).offset(offset).found(std::string(found.substr(0, 200)));
}

constexpr std::string_view mark = "\xef\xbb\xbf";

/// Calls `visit(line, offset)` for each line that is not blank. Lines may end in \r\n. Skips a byte order mark.
template <class Visit>
Status each_line(std::string_view text, Visit visit) {
  for (std::size_t at = text.starts_with(mark) ? mark.size() : 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    while (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") != line.npos) STELE_TRY(visit(line, at));
    at = end + 1;
  }
  return {};
}

/// Encodes a name as one word.
std::string coded(std::string_view name) {
  if (name.empty()) return "%";
  std::string text;
  // A reader would take a mark at the beginning of the file for the file's byte order mark, so it is encoded.
  std::size_t marked = name.starts_with(mark) ? mark.size() : 0;
  for (const char c : name) {
    const auto b = static_cast<unsigned char>(c);
    if (b <= 0x20 || b == 0x7f || c == '%' || marked != 0) {
      marked -= marked != 0 ? 1 : 0;
      text += detail::percent_encoded(c);
    } else {
      text += c;
    }
  }
  return text;
}

bool decode(std::string_view word, std::string& name) {
  if (word == "%") return true;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '%') {
      name += word[i];
      continue;
    }
    const auto byte = detail::from_hex(word.substr(i + 1, 2), 2);
    if (!byte) return false;
    name += static_cast<char>(*byte);
    i += 2;
  }
  return true;
}

bool parse_number(std::string_view word, std::uint32_t& number) {
  if (word.empty() || (word[0] == '0' && word.size() > 1)) return false;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

bool parse_reference(std::string_view word, Reference& out) {
  const std::size_t slash = word.find('/');
  if (slash != word.npos) {
    out.tag = word.substr(0, slash);
    if (!valid_tag(out.tag)) return false;
    word.remove_prefix(slash + 1);
  }
  return parse_number(word, out.number);
}

}  // namespace

bool valid_tag(std::string_view tag) noexcept {
  if (tag.empty() || tag.size() > 128 || tag.ends_with('.')) return false;
  for (const char c : tag) {
    if (!is_letter(c) && !is_digit(c) && c != '.' && c != '_' && c != '-') return false;
  }
  // A tag that consists of digits would look like the number of an array.
  if (std::all_of(tag.begin(), tag.end(), is_digit)) return false;
  if (detail::is_reserved(tag)) return false;  // so that an archive can be unpacked on Windows
  return !same_tag(tag, "tags.txt");           // a folder cannot have the name of a file next to it
}

bool same_tag(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::string folded(std::string_view tag) {
  std::string text(tag);
  std::transform(text.begin(), text.end(), text.begin(), lower);
  return text;
}

Result<std::vector<std::string>> parse_tags(std::string_view text) {
  std::vector<std::string> tags;
  STELE_TRY(each_line(text, [&](std::string_view line, std::size_t offset) -> Status {
    if (!valid_tag(line)) return bad(Errc::malformed, "a line of tags.txt is not a valid tag", offset, line);
    tags.emplace_back(line);
    return {};
  }));
  if (tags.empty()) return Error(Errc::malformed, "tags.txt contains no tag");
  std::vector<std::string> sorted;
  sorted.reserve(tags.size());
  for (const std::string& t : tags) sorted.push_back(folded(t));
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return Error(Errc::duplicate, "a tag occurs twice (case is ignored)").found(*twice);
  }
  return tags;
}

std::string tags_text(std::span<const std::string> tags) {
  std::string text;
  for (const std::string& t : tags) text += t + '\n';
  return text;
}

Result<std::vector<Line>> parse_lines(std::string_view text, std::uint64_t memory) {
  std::vector<Line> lines;
  const auto spend = [&](std::uint64_t bytes) {
    const bool enough = bytes <= memory;
    memory -= enough ? bytes : memory;
    return enough;
  };
  STELE_TRY(each_line(text, [&](std::string_view line, std::size_t offset) -> Status {
    const auto limit = [&]() -> Error {
      return bad(Errc::limit, "the lines take more memory than a file of this size may use", offset, line);
    };
    // A vector that grows briefly holds three times its elements.
    if (!spend(3 * sizeof(Line) + 2 * line.size() + 64)) return limit();
    Line& out = lines.emplace_back();
    const auto malformed = [&](const char* why) -> Error { return bad(Errc::malformed, why, offset, line); };
    std::size_t at = 0;
    const auto next_word = [&] {
      at = std::min(line.find_first_not_of(" \t", at), line.size());
      const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
      const std::string_view word = line.substr(at, end - at);
      at = end;
      return word;
    };
    if (line[0] == ' ' || line[0] == '\t') return malformed("the line starts with a blank");
    if (!decode(next_word(), out.name)) return malformed("the name has a % without two hexadecimal digits");
    if (!json::valid_utf8(out.name)) return malformed("the name is not valid UTF-8");
    for (std::string_view word = next_word(); !word.empty(); word = next_word()) {
      if (!spend(3 * (sizeof(Reference) + sizeof(std::string)) + word.size() + 64)) return limit();
      Reference reference;
      const std::size_t equals = word.find('=');
      const bool named = equals != word.npos && equals != 0;
      if (parse_reference(named ? word.substr(equals + 1) : word, reference)) {
        if (named != !out.keys.empty() && !out.arrays.empty()) return malformed("only some of the columns have names");
        if (named) out.keys.emplace_back(word.substr(0, equals));
        out.arrays.push_back(std::move(reference));
        continue;
      }
      if (out.arrays.empty()) return malformed("no array number follows the name");
      if (std::all_of(word.begin() + static_cast<std::ptrdiff_t>(word.find('/') + 1), word.end(), is_digit)) {
        return malformed("the array number is invalid");
      }
      // A later version added the rest of the line, which is kept unchanged.
      const std::size_t begin = static_cast<std::size_t>(word.data() - line.data());
      out.kind = line.substr(begin);
      break;
    }
    return {};
  }));
  const auto order = order_by_name(static_cast<std::uint32_t>(lines.size()),
                                   [&](std::uint32_t i) { return std::string_view(lines[i].name); });
  const auto twice = std::adjacent_find(
      order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return lines[a].name == lines[b].name; });
  if (twice != order.end()) return Error(Errc::duplicate, "two lines have the same name").path(lines[*twice].name);
  return lines;
}

std::string lines_text(std::span<const Line> lines) {
  std::string text;
  for (const Line& line : lines) {
    text += coded(line.name);
    for (std::size_t i = 0; i < line.arrays.size(); ++i) {
      const Reference& r = line.arrays[i];
      text += ' ';
      if (!line.keys.empty()) text += line.keys[i] + '=';
      if (!r.tag.empty()) text += r.tag + '/';
      text += std::to_string(r.number);
    }
    if (!line.kind.empty()) text += ' ' + line.kind;
    text += '\n';
  }
  return text;
}

}  // namespace stele::inline v0::detail::archive
