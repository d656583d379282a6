#include "json/json.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/hex.hpp"
#include "json/characters.hpp"
#include "json/decimal.hpp"

namespace stele::inline v0::detail::json {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// Parses up to eight digits at `p` into `number` and skips them. Skips nothing if fewer than eight bytes are left.
const char* eight_digits(const char* p, const char* end, std::uint64_t& number) noexcept {
  if (std::endian::native != std::endian::little || end - p < 8) return p;
  std::uint64_t x;
  std::memcpy(&x, p, 8);
  const std::uint64_t digits = x - kOnes * '0';
  const std::uint64_t others = ((x + kOnes * (0x7f - '9')) | digits) & kHighs;  // exact as in find_special
  const int n = std::countr_zero(others) >> 3;
  if (n == 0) return p;
  x = digits << (64 - 8 * n);  // leading zeros; then combines pairs, fours, eight
  x = (x * 10 + (x >> 8)) & 0x00ff00ff00ff00ffu;
  x = (x * 100 + (x >> 16)) & 0x0000ffff0000ffffu;
  number = (x * 10000 + (x >> 32)) & 0xffffffffu;
  return p + n;
}

// Returns the length of the UTF-8 sequence at `p`, which must not be the end, or 0 if it is invalid (Unicode, table
// 3-7).
std::size_t utf8_length(const char* p, const char* end) noexcept {
  const auto byte = [p](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(p[i])); };
  const unsigned c = byte(0);
  if (c < 0x80) return 1;
  const std::size_t n = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
  if (c < 0xc2 || c > 0xf4 || static_cast<std::size_t>(end - p) < n) return 0;
  // The second byte's range excludes overlong forms, surrogates and code points above U+10FFFF.
  const unsigned low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80, high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return n;
}

constexpr std::uint32_t kNoUnit = 0xffffffff;
// Returns the value of the four hex digits at `p`, of either case, or kNoUnit if there are none.
std::uint32_t hex4(const char* p, const char* end) noexcept {
  const auto unit = end - p < 4 ? std::nullopt : from_hex({p, 4}, 4);
  return unit ? static_cast<std::uint32_t>(*unit) : kNoUnit;
}

[[gnu::noinline]] const char* skip_blanks(const char* p, const char* end) noexcept {
  while (p != end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) ++p;
  return p;
}
inline const char* skip_blank(const char* p, const char* end) noexcept {
  return p == end || static_cast<unsigned char>(*p) > ' ' ? p : skip_blanks(p, end);
}

// Decodes the escapes of a string that scan_string has checked.
[[gnu::noinline]] std::string_view decode(std::string_view raw, std::string& out) {
  out.resize(raw.size());
  char* to = out.data();
  const char* p = raw.data();
  const char* const end = p + raw.size();
  const auto put = [&](std::uint32_t byte) { *to++ = static_cast<char>(byte); };
  while (p != end) {
    const void* found = std::memchr(p, '\\', static_cast<std::size_t>(end - p));
    const char* const slash = found == nullptr ? end : static_cast<const char*>(found);
    to = std::copy(p, slash, to);
    if (slash == end) break;
    p = slash + 2;
    if (slash[1] != 'u') {
      *to++ = kEscaped[kLetters.find(slash[1])];
      continue;
    }
    std::uint32_t code = hex4(p, end);
    p += 4;
    if (code >= 0xd800 && code < 0xdc00) {
      code = 0x10000 + ((code - 0xd800) << 10) + (hex4(p + 2, end) - 0xdc00);
      p += 6;
    }
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    constexpr std::uint32_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    put(lead[more] | code >> 6 * more);
    for (int i = more - 1; i >= 0; --i) put(0x80 | (code >> 6 * i & 0x3f));
  }
  out.resize(static_cast<std::size_t>(to - out.data()));
  return out;
}

}  // namespace

bool valid_utf8(std::string_view text) noexcept {
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p != end;) {
    std::uint64_t x = kHighs;
    if (end - p >= 8) std::memcpy(&x, p, 8);
    const std::size_t n = (x & kHighs) == 0 ? 8 : utf8_length(p, end);
    if (n == 0) return false;
    p += n;
  }
  return true;
}

// ---- Reader

bool Reader::fail_at(const char* at, Errc code, const char* expected, const char* message) noexcept {
  if (due_ == Due::failed) return false;
  due_ = Due::failed;
  code_ = code == Errc::malformed && at == end_ ? Errc::truncated : code;
  expected_ = expected;
  message_ = message;
  token_ = at;
  return false;
}

Error Reader::error() const {
  std::string found;
  if (token_ == end_) {
    found = "the end of the text";
  } else {
    for (const char* p = token_; p != end_ && p - token_ < 24; ++p) {
      if (p != token_ && std::strchr(" \t\r\n,:]}", *p) != nullptr && *p != '\0') break;
      const auto c = static_cast<unsigned char>(*p);
      if (c >= 0x20 && c < 0x7f) {
        found.push_back(*p);
      } else {
        found.append("\\x").append(hex(c, 2));
      }
    }
  }
  return Error(code_, message_).expected(expected_).found(found).offset(offset());
}

bool Reader::misused() noexcept {
  return fail_at(p_, Errc::invalid_argument, "", "the JSON reader was called out of order");
}

inline bool Reader::at_value() noexcept {
  if (due_ != Due::value) return misused();
  token_ = p_ = skip_blank(p_, end_);
  return true;
}

Kind Reader::peek() noexcept {
  if (!at_value() || p_ == end_) return Kind::none;
  const char c = *p_;
  if (c == '-' || is_digit(c) || non_finite_size() != 0) return Kind::number;
  constexpr std::string_view first = "{[\"tfn";
  constexpr Kind kinds[] = {Kind::object, Kind::array, Kind::string, Kind::boolean, Kind::boolean, Kind::null};
  const std::size_t i = first.find(c);
  return i < first.size() ? kinds[i] : Kind::none;
}

inline bool Reader::begin(char bracket, const char* expected, Due first, Due later, bool object) noexcept {
  if (!at_value()) return false;
  if (p_ == end_ || *p_ != bracket) return fail(Errc::malformed, expected);
  if (depth_ == options_.max_depth) {
    return fail(Errc::limit, options_.max_depth == kMaxDepth ? "at most 64 levels" : "fewer levels",
                "JSON nests too deep");
  }
  static_assert(kMaxDepth == 64, "the message above");
  ++p_;
  const std::uint64_t bit = std::uint64_t{1} << depth_ % 64;
  std::uint64_t& bits = objects_[depth_++ / 64];
  bits = object ? bits | bit : bits & ~bit;
  due_ = first;
  after_ = later;
  return true;
}

bool Reader::begin_object() noexcept { return begin('{', "an object", Due::first_key, Due::key, true); }
bool Reader::begin_array() noexcept { return begin('[', "an array", Due::first_element, Due::element, false); }

// Ends the container if no key or element follows; otherwise fails.
bool Reader::end_or_fail(const char* p, char bracket, const char* first, const char* later) noexcept {
  const bool opened = due_ == Due::first_key || due_ == Due::first_element;
  if (p == end_ || *p != bracket) return fail_at(p, Errc::malformed, opened ? first : later);
  p_ = p + 1;
  --depth_;
  due_ = after_ = depth_ == 0 ? Due::end : in_object() ? Due::key : Due::element;
  return false;
}

bool Reader::next_element() noexcept {
  const char* const p = skip_blank(p_, end_);
  const bool comma = due_ == Due::element;
  if (!comma && due_ != Due::first_element) return misused();
  if (p == end_ || (comma ? *p != ',' : *p == ']')) return end_or_fail(p, ']', "a value or ]", ", or ]");
  p_ = p + comma;
  due_ = Due::value;
  return true;
}

inline bool Reader::scan_key(std::string_view& raw, unsigned& flags) noexcept {
  const char* p = skip_blank(p_, end_);
  const bool comma = due_ == Due::key;
  if (!comma && due_ != Due::first_key) return misused();
  if (p == end_ || (comma ? *p != ',' : *p == '}')) return end_or_fail(p, '}', "a key or }", ", or }");
  if (comma) p = skip_blank(p + 1, end_);
  token_ = p;
  if (!scan_string(p, raw, flags, "a key")) return false;
  if ((flags & nul) != 0 && !options_.nul_in_names) return fail(Errc::malformed, "a name without U+0000");
  p = skip_blank(p_, end_);
  if (p == end_ || *p != ':') return fail_at(p, Errc::malformed, ":");
  p_ = p + 1;
  due_ = Due::value;
  return true;
}

bool Reader::next_key(std::string_view& key, std::string& scratch) {
  unsigned flags = plain;
  if (!scan_key(key, flags)) return false;
  if (flags != plain) key = decode(key, scratch);
  return true;
}

bool Reader::read_string(std::string_view& out, std::string& scratch) {
  unsigned flags = plain;
  if (!at_value() || !scan_string(p_, out, flags, "a string")) return false;
  if (flags != plain) out = decode(out, scratch);
  return end_value();
}

inline bool Reader::scan_string(const char* p, std::string_view& raw, unsigned& flags, const char* expected) noexcept {
  if (p == end_ || *p != '"') return fail_at(p, Errc::malformed, expected);
  const char* const start = p + 1;
  p = find_special<true>(start, end_);
  if (p == end_ || *p != '"') {
    if (p = scan_rest(p, flags); p == nullptr) return false;
  }
  p_ = p + 1;
  raw = std::string_view(start, static_cast<std::size_t>(p - start));
  return true;
}

// Returns the closing quote of a string with a special byte at `p`, or null after an error.
const char* Reader::scan_rest(const char* p, unsigned& flags) noexcept {
  for (;; p = find_special<true>(p, end_)) {
    if (p == end_) return fail_at(p, Errc::malformed, "a closing quote"), nullptr;
    const auto c = static_cast<unsigned char>(*p);
    if (c == '"') return p;
    if (c == '\\') {
      if (p = scan_escape(p, flags); p == nullptr) return nullptr;
    } else if (c < 0x20) {
      return fail_at(p, Errc::malformed, "control characters as escapes"), nullptr;
    } else {
      do {
        const std::size_t n = utf8_length(p, end_);
        if (n == 0) return fail_at(p, Errc::malformed, "valid UTF-8"), nullptr;
        p += n;
      } while (p != end_ && static_cast<unsigned char>(*p) >= 0x80);
    }
  }
}

// Returns the end of the escape at `p` (for a surrogate, of the pair), or null after an error.
const char* Reader::scan_escape(const char* p, unsigned& flags) noexcept {
  flags |= escaped;
  const char c = end_ - p < 2 ? '\0' : p[1];
  if (kLetters.find(c) != kLetters.npos) return p + 2;
  if (c != 'u') return fail_at(p, Errc::malformed, "an escape sequence of JSON"), nullptr;
  const std::uint32_t unit = hex4(p + 2, end_);
  if (unit == kNoUnit) return fail_at(p, Errc::malformed, "four hex digits after \\u"), nullptr;
  if (unit == 0) flags |= nul;
  if (unit < 0xd800 || unit > 0xdfff) return p + 6;
  const bool more = unit < 0xdc00 && end_ - p >= 12 && p[6] == '\\' && p[7] == 'u';
  const std::uint32_t low = more ? hex4(p + 8, end_) : kNoUnit;
  if (low < 0xdc00 || low > 0xdfff) return fail_at(p, Errc::malformed, "a pair of surrogates"), nullptr;
  return p + 12;
}

// Returns the length of NaN, Infinity or -Infinity at token_, if they are allowed; otherwise 0.
std::size_t Reader::non_finite_size() const noexcept {
  if (!options_.non_finite) return 0;
  const std::string_view rest(token_, static_cast<std::size_t>(end_ - token_));
  for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
    if (rest.starts_with(word)) return word.size();
  }
  return 0;
}

// Scans -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)? from token_ on.
bool Reader::scan_number(bool& integral) noexcept {
  if (const std::size_t size = non_finite_size(); size != 0) {
    p_ = token_ + size;
    integral = false;
    return true;
  }
  const char* p = token_;
  const auto digits = [&] {
    const char* const from = p;
    while (p != end_ && is_digit(*p)) ++p;
    return p != from;
  };
  if (p != end_ && *p == '-') ++p;
  const char* const first = p;
  if (!digits()) return fail_at(p == end_ ? p : token_, Errc::malformed, "a number");
  if (*first == '0' && p - first > 1) return fail(Errc::malformed, "a number without leading zeros");
  integral = !(*first == '0' && first != token_);  // -0 is a double, because an integer would lose its sign
  if (p != end_ && *p == '.') {
    ++p;
    integral = false;
    if (!digits()) return fail_at(p, Errc::malformed, "a digit");
  }
  if (p != end_ && (*p == 'e' || *p == 'E')) {
    ++p;
    integral = false;
    if (p != end_ && (*p == '+' || *p == '-')) ++p;
    if (!digits()) return fail_at(p, Errc::malformed, "a digit");
  }
  p_ = p;
  return true;
}

template <class T>
bool Reader::read_integer(T& out, const char* expected) noexcept {
  bool integral = false;
  if (!at_value() || !scan_number(integral)) return false;
  if (!integral) return fail(Errc::malformed, expected);
  T number = 0;
  if (std::from_chars(token_, p_, number).ec != std::errc()) return fail(Errc::out_of_range, expected);
  out = number;
  return end_value();
}

bool Reader::read_u64(std::uint64_t& out) noexcept {
  if (due_ != Due::value) return misused();
  const char* const start = p_ = skip_blank(p_, end_);
  token_ = start;
  std::uint64_t sum = 0;
  const char* p = eight_digits(start, end_, sum);
  for (; p != end_ && is_digit(*p) && p - start < 19; ++p) sum = sum * 10 + static_cast<std::uint64_t>(*p - '0');
  // Rare and invalid input takes the general path.
  if (p == end_ || (*p != ',' && *p != ']') || p == start || *start == '0') {
    return read_integer(out, "an unsigned integer below 2^64");
  }
  p_ = p;
  out = sum;
  return end_value();
}

bool Reader::read_i64(std::int64_t& out) noexcept { return read_integer(out, "an integer from -2^63 to 2^63-1"); }

// Converts the token from token_ to p_, which scan_number has checked.
bool Reader::to_double(double& out) noexcept {
  if (non_finite_size() != 0) {
    const double infinity = std::numeric_limits<double>::infinity();
    out = *token_ == 'N' ? std::numeric_limits<double>::quiet_NaN() : *token_ == '-' ? -infinity : infinity;
    return end_value();
  }
  double number = 0;
  if (!parse_float({token_, static_cast<std::size_t>(p_ - token_)}, number) || !std::isfinite(number)) {
    return fail(Errc::out_of_range, "a number in the range of a double");
  }
  out = number;
  return end_value();
}

bool Reader::read_double(double& out) noexcept {
  bool integral = false;
  return at_value() && scan_number(integral) && to_double(out);
}

bool Reader::read_number(Value& out) noexcept {
  bool integral = false;
  if (!at_value() || !scan_number(integral)) return false;
  if (!integral) {
    double number = 0;
    if (!to_double(number)) return false;
    out = Value(number);
    return true;
  }
  p_ = token_;
  std::int64_t i = 0;
  std::uint64_t u = 0;
  if (*p_ == '-' ? !read_i64(i) : !read_u64(u)) return false;
  out = i < 0 ? Value(i) : Value(u);
  return true;
}

inline bool Reader::scan_literal(std::string_view word, const char* expected) noexcept {
  for (const char c : word) {
    if (p_ == end_ || *p_ != c) return fail_at(p_ == end_ ? p_ : token_, Errc::malformed, expected);
    ++p_;
  }
  return end_value();
}

bool Reader::read_bool(bool& out) noexcept {
  if (!at_value()) return false;
  const bool yes = p_ != end_ && *p_ == 't';
  if (!scan_literal(yes ? "true" : "false", "true or false")) return false;
  out = yes;
  return true;
}

bool Reader::read_null() noexcept { return at_value() && scan_literal("null", "null"); }

bool Reader::skip_value(std::string_view* raw) noexcept {
  const unsigned outside = depth_;
  Kind kind = peek();
  const char* const start = p_;
  for (;; kind = peek()) {
    std::string_view text;
    unsigned flags = plain;
    bool flag = false;
    const bool read = kind == Kind::object    ? begin_object()
                      : kind == Kind::array   ? begin_array()
                      : kind == Kind::string  ? scan_string(p_, text, flags, "a string") && end_value()
                      : kind == Kind::number  ? scan_number(flag) && end_value()
                      : kind == Kind::boolean ? read_bool(flag)
                      : kind == Kind::null    ? read_null()
                                              : fail(Errc::malformed, "a value");
    if (!read) return false;
    while (ok() && due_ != Due::value && depth_ > outside) {
      static_cast<void>(in_object() ? scan_key(text, flags) : next_element());
    }
    if (!ok()) return false;
    if (depth_ == outside) break;
  }
  if (raw != nullptr) *raw = std::string_view(start, static_cast<std::size_t>(p_ - start));
  return true;
}

bool Reader::finish() noexcept {
  if (due_ != Due::end) return misused();
  p_ = skip_blank(p_, end_);
  return p_ == end_ || fail_at(p_, Errc::malformed, "the end of the text");
}

}  // namespace stele::inline v0::detail::json
