// Reads XML 1.0 in memory, element by element.
#include "xml.hpp"

#include <algorithm>
#include <charconv>

#include "json/json.hpp"

namespace stele::inline v0::detail::xml {
namespace {

constexpr std::string_view spaces = " \t\r\n";

bool is_space(char c) noexcept { return spaces.find(c) != spaces.npos; }

bool begins_name(char c) noexcept {
  const auto b = static_cast<unsigned char>(c);
  return (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || b == '_' || b == ':' || b >= 0x80;
}
bool continues_name(char c) noexcept { return begins_name(c) || (c >= '0' && c <= '9') || c == '-' || c == '.'; }

/// Appends a character as UTF-8. Returns false if XML does not have it.
bool append_character(std::uint32_t c, std::string& to) {
  const bool surrogate = c >= 0xd800 && c < 0xe000;
  if (c > 0x10ffff || surrogate || c == 0xfffe || c == 0xffff || (c < 0x20 && c != '\t' && c != '\n' && c != '\r')) {
    return false;
  }
  const auto put = [&](std::uint32_t byte) { to += static_cast<char>(byte); };
  const auto rest = [&](unsigned shift) { put(0x80 | ((c >> shift) & 0x3f)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6), rest(0);
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12), rest(6), rest(0);
  } else {
    put(0xf0 | c >> 18), rest(12), rest(6), rest(0);
  }
  return true;
}

/// Appends the character of a reference, without `&` and `;`.
bool append_reference(std::string_view reference, std::string& to) {
  struct Entity {
    std::string_view name;
    char character;
  };
  static constexpr Entity entities[] = {{"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}};
  for (const Entity& entity : entities) {
    if (entity.name == reference) return to += entity.character, true;
  }
  if (!reference.starts_with('#')) return false;
  reference.remove_prefix(1);
  const bool hexadecimal = reference.starts_with('x');
  if (hexadecimal) reference.remove_prefix(1);
  std::uint32_t c = 0;
  const char* const end = reference.data() + reference.size();
  const auto parsed = std::from_chars(reference.data(), end, c, hexadecimal ? 16 : 10);
  return parsed.ec == std::errc() && parsed.ptr == end && append_character(c, to);
}

}  // namespace

std::optional<std::size_t> append_text(std::string_view raw, std::string& to) {
  for (std::size_t at = 0; at < raw.size(); ++at) {
    const char c = raw[at];
    if (c != '&') {
      // The end of a line is one character (XML 1.0, 2.11).
      if (c == '\r' && at + 1 < raw.size() && raw[at + 1] == '\n') continue;
      to += is_space(c) ? ' ' : c;
      continue;
    }
    constexpr std::size_t max_reference = 16;  // bytes; bounds the search
    const std::size_t end = raw.substr(at + 1, max_reference).find(';');
    if (end == raw.npos || !append_reference(raw.substr(at + 1, end), to)) return at;
    at += end + 1;
  }
  return std::nullopt;
}

Error Reader::bad(const char* message, std::size_t at) const { return Error(Errc::malformed, message).offset(at); }

void Reader::skip_space() noexcept {
  while (at_ < in_.size() && is_space(in_[at_])) ++at_;
}

Status Reader::skip_past(std::string_view end, const char* what) {
  const std::size_t found = in_.find(end, at_);
  if (found == in_.npos) return bad(what, at_);
  at_ = found + end.size();
  return {};
}

std::string_view Reader::take_name() noexcept {
  const std::size_t begin = at_;
  if (at_ < in_.size() && begins_name(in_[at_])) {
    while (at_ < in_.size() && continues_name(in_[at_])) ++at_;
  }
  return in_.substr(begin, at_ - begin);
}

/// Checks the encoding, and skips the XML declaration.
Status Reader::declaration() {
  started_ = true;
  if (starts("\xef\xbb\xbf")) at_ += 3;
  if (!json::valid_utf8(in_)) return Error(Errc::malformed, "the document is not UTF-8");
  if (const std::size_t zero = in_.find('\0'); zero != in_.npos) return bad("the document has a zero byte", zero);
  if (!starts("<?xml") || at_ + 5 >= in_.size() || !is_space(in_[at_ + 5])) return {};
  const std::size_t begin = at_;
  STELE_TRY(skip_past("?>", "the XML declaration does not end"));
  std::string declared(in_.substr(begin, at_ - begin));
  std::transform(declared.begin(), declared.end(), declared.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (declared.find("encoding") == declared.npos || declared.find("utf-8") != declared.npos ||
      declared.find("us-ascii") != declared.npos) {
    return {};
  }
  return Error(Errc::unsupported, "the document declares an encoding other than UTF-8").offset(begin);
}

/// Skips text, comments, CDATA sections and processing instructions up to the next tag.
Status Reader::text() {
  std::string ignored;
  while (at_ < in_.size()) {
    const std::size_t begin = at_;
    if (starts("<!--")) {
      at_ += 4;
      STELE_TRY(skip_past("-->", "a comment does not end"));
    } else if (starts("<?")) {
      STELE_TRY(skip_past("?>", "a processing instruction does not end"));
    } else if (starts("<![CDATA[") && !open_.empty()) {
      STELE_TRY(skip_past("]]>", "a CDATA section does not end"));
    } else if (starts("<!")) {
      return bad("document types are not accepted", begin);
    } else if (in_[at_] == '<') {
      return {};
    } else {
      at_ = std::min(in_.find('<', at_), in_.size());
      const std::string_view raw = in_.substr(begin, at_ - begin);
      if (open_.empty() && raw.find_first_not_of(spaces) != raw.npos) {
        return bad("the document has text outside its root element", begin);
      }
      for (std::size_t at = raw.find('&'); at != raw.npos; at = raw.find('&', at + 1)) {
        ignored.clear();
        const std::size_t end = raw.find(';', at);
        if (end == raw.npos || append_text(raw.substr(at, end + 1 - at), ignored)) {
          return bad("the reference is not one of XML's five entities or a character", begin + at);
        }
      }
    }
  }
  return {};
}

Status Reader::begin_tag() {
  ++at_;
  name_ = take_name();
  if (name_.empty()) return bad("a tag has no name", tag_);
  attributes_.clear();
  for (;;) {
    const std::size_t before = at_;
    skip_space();
    if (at_ == in_.size()) return bad("a tag does not end", tag_);
    empty_ = starts("/>");
    if (empty_ || in_[at_] == '>') break;
    const std::size_t begin = at_;
    const std::string_view name = take_name();
    if (name.empty() || before == begin) return bad("a tag has an invalid attribute", begin);
    skip_space();
    if (!starts("=")) return bad("an attribute has no value", begin);
    ++at_;
    skip_space();
    if (!starts("\"") && !starts("'")) return bad("an attribute's value is not quoted", at_);
    const std::size_t end = in_.find(in_[at_], at_ + 1);
    if (end == in_.npos) return bad("an attribute's value does not end", at_);
    const std::string_view value = in_.substr(at_ + 1, end - at_ - 1);
    if (const std::size_t tag = value.find('<'); tag != value.npos) {
      return bad("an attribute's value contains '<'", at_ + 1 + tag);
    }
    if (find(name) != nullptr) return bad("an attribute occurs twice in its tag", begin);
    if (attributes_.size() == max_attributes) {
      return Error(Errc::limit, "a tag has too many attributes")
          .offset(tag_)
          .expected("at most " + std::to_string(max_attributes));
    }
    attributes_.push_back({name, value, at_ + 1});
    at_ = end + 1;
  }
  at_ += empty_ ? 2 : 1;
  if (open_.size() == max_depth) {
    return Error(Errc::limit, "the elements of the document nest too deep")
        .offset(tag_)
        .expected("at most " + std::to_string(max_depth) + " levels");
  }
  open_.push_back(name_);
  depth_ = open_.size();
  root_ = true;
  return {};
}

Status Reader::end_tag() {
  at_ += 2;
  name_ = take_name();
  skip_space();
  if (!starts(">")) return bad("a tag does not end", tag_);
  ++at_;
  if (open_.empty() || open_.back() != name_) {
    return bad("a tag ends an element that is not open", tag_)
        .expected(open_.empty() ? "no tag" : "</" + std::string(open_.back().substr(0, 100)) + ">")
        .found("</" + std::string(name_.substr(0, 100)) + ">");
  }
  return {};
}

Result<Event> Reader::next() {
  if (!started_) STELE_TRY(declaration());
  if (ended_) {
    open_.pop_back();
    ended_ = false;
    depth_ = open_.size();
  }
  if (empty_) {
    empty_ = false;
    ended_ = true;
    return Event::end;
  }
  STELE_TRY(text());
  tag_ = at_;
  if (at_ == in_.size()) {
    if (open_.empty() && root_) return Event::finish;
    return bad(root_ ? "the document ends inside an element" : "the document has no element", at_);
  }
  if (starts("</")) {
    STELE_TRY(end_tag());
    ended_ = true;
    return Event::end;
  }
  if (open_.empty() && root_) return bad("the document has a second root element", at_);
  STELE_TRY(begin_tag());
  return Event::begin;
}

const Attribute* Reader::find(std::string_view name) const noexcept {
  const auto found =
      std::find_if(attributes_.begin(), attributes_.end(), [&](const Attribute& a) { return a.name == name; });
  return found != attributes_.end() ? &*found : nullptr;
}

Result<std::optional<std::string>> Reader::attribute(std::string_view name) const {
  const Attribute* const found = find(name);
  if (found == nullptr) return std::optional<std::string>();
  std::string text;
  if (const auto wrong = append_text(found->raw, text)) {
    return bad("the reference is not one of XML's five entities or a character",
               static_cast<std::size_t>(found->offset) + *wrong);
  }
  return std::optional(std::move(text));
}

}  // namespace stele::inline v0::detail::xml
