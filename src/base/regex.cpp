#include "base/regex.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace stele::inline v0::detail::regex {
namespace {

constexpr std::size_t max_expression = 4096;    // bytes
constexpr std::size_t max_instructions = 4096;  // bounds the time for a character
constexpr int max_depth = 32;                   // nested groups: bounds the stack
constexpr unsigned max_count = 1000;            // maximum count of a repetition
constexpr std::size_t other = 128;              // the place of all characters beyond ASCII in a set

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_word(unsigned char c) {
  return is_letter(static_cast<char>(c)) || is_digit(static_cast<char>(c)) || c == '_' || c >= other;
}

}  // namespace

/// Compiles each construct to a piece of a program whose end is the match. Moving joins pieces.
class Regex::Compiler {
 public:
  Compiler(std::string_view text, std::vector<Set>& sets) : rest_(text), sets_(sets) {}

  std::optional<Program> run() {
    Program all = alternatives(0);
    if (!rest_.empty() || !good_) return std::nullopt;
    return all;
  }

 private:
  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  Program fail() {
    good_ = false;
    return {};
  }
  void append(Program& to, const Program& piece) {
    if (to.size() + piece.size() > max_instructions) good_ = false;
    if (good_) to.insert(to.end(), piece.begin(), piece.end());
  }
  static Instruction split(std::size_t first, std::size_t second) {
    return {Op::split, static_cast<std::int32_t>(first), static_cast<std::int32_t>(second)};
  }
  static Instruction jump(std::int32_t by) { return {Op::split, by, by}; }

  Program alternatives(int depth) {
    if (depth > max_depth) return fail();
    std::vector<Program> all;
    do {
      all.push_back(sequence(depth));
    } while (good_ && take('|'));
    Program joined = std::move(all.back());
    for (std::size_t i = all.size() - 1; good_ && i-- > 0;) {  // this alternative, or the later ones
      Program both{split(1, all[i].size() + 2)};
      append(both, all[i]);
      both.push_back(jump(static_cast<std::int32_t>(joined.size()) + 1));
      append(both, joined);
      joined = std::move(both);
    }
    return joined;
  }

  Program sequence(int depth) {
    Program all;
    while (good_ && !rest_.empty() && rest_.front() != '|' && rest_.front() != ')') append(all, repeated(depth));
    return all;
  }

  Program repeated(int depth) {
    const std::optional<Program> assertion = border();
    Program one = assertion ? *assertion : atom(depth);
    if (!good_ || rest_.empty()) return one;
    unsigned min = 1, max = 1;
    bool without_end = false;
    const char sign = rest_.front();
    if (sign != '*' && sign != '+' && sign != '?' && sign != '{') return one;
    rest_.remove_prefix(1);
    if (sign == '{') {
      if (!count(min)) return fail();
      max = min;
      if (take(',') && !count(max)) without_end = true;
      if (!take('}') || (!without_end && max < min)) return fail();
    } else {
      min = sign == '+' ? 1 : 0;
      without_end = sign != '?';
    }
    take('?');  // lazy: the set of matches does not change
    const bool twice = rest_.starts_with('*') || rest_.starts_with('+') || rest_.starts_with('?') ||
                       rest_.starts_with('{');  // possessive, or an error
    if (twice || assertion) return fail();
    Program all;
    for (unsigned i = 0; good_ && i < min; ++i) append(all, one);
    for (unsigned i = min; good_ && !without_end && i < max; ++i) {
      append(all, {split(1, one.size() + 1)});
      append(all, one);
    }
    if (good_ && without_end) {
      append(all, {split(1, one.size() + 2)});
      append(all, one);
      append(all, {jump(-static_cast<std::int32_t>(one.size()) - 1)});
    }
    return all;
  }

  bool count(unsigned& number) {
    if (rest_.empty() || !is_digit(rest_.front())) return false;
    for (number = 0; !rest_.empty() && is_digit(rest_.front()); rest_.remove_prefix(1)) {
      number = number * 10 + static_cast<unsigned>(rest_.front() - '0');
      if (number > max_count) return good_ = false;
    }
    return true;
  }

  /// Parses an assertion, which matches a position between characters.
  std::optional<Program> border() {
    const auto of = [&](Op op, std::size_t size) {
      rest_.remove_prefix(size);
      return Program{{op, 1, 1}};
    };
    if (rest_.starts_with('^')) return of(Op::begin, 1);
    if (rest_.starts_with('$')) return of(Op::end, 1);
    if (rest_.starts_with("\\A")) return of(Op::begin, 2);
    if (rest_.starts_with("\\Z")) return of(Op::end, 2);
    if (rest_.starts_with("\\b")) return of(Op::word_border, 2);
    if (rest_.starts_with("\\B")) return of(Op::no_word_border, 2);
    return std::nullopt;
  }

  Program atom(int depth) {
    Set set;
    if (take('(')) {
      if (rest_.starts_with("?:")) {
        rest_.remove_prefix(2);
      } else if (rest_.starts_with('?') || rest_.starts_with('*')) {
        return fail();
      }
      Program inner = alternatives(depth + 1);
      return take(')') ? inner : fail();
    }
    if (take('[')) {
      if (!characters(set)) return fail();
    } else if (take('.')) {
      set.set();
      set.reset('\n');
    } else if (!character(set, "*+?{}])")) {
      return fail();
    }
    sets_.push_back(set);
    return {{Op::characters, static_cast<std::int32_t>(sets_.size() - 1), 1}};
  }

  /// Takes a literal or an escape. Returns the literal; -1 for a class, and -2 for an error.
  int literal(Set& set, std::string_view special) {
    if (rest_.empty()) return -2;
    const char c = rest_.front();
    rest_.remove_prefix(1);
    if (static_cast<unsigned char>(c) >= other || special.find(c) != special.npos) return -2;
    if (c != '\\') return c;
    if (rest_.empty()) return -2;
    const char escaped = rest_.front();
    rest_.remove_prefix(1);
    if (static_cast<unsigned char>(escaped) >= other) return -2;
    if (!is_letter(escaped) && !is_digit(escaped)) return escaped;
    if (escaped == 'n') return '\n';
    if (escaped == 't') return '\t';
    const char lower = static_cast<char>(escaped | 0x20);
    if (lower != 'd' && lower != 'w' && lower != 's') return -2;
    for (unsigned i = 0; i <= other; ++i) {
      const char ascii = static_cast<char>(i);
      const bool has = lower == 'w'   ? is_word(static_cast<unsigned char>(i))
                       : lower == 'd' ? i < other && is_digit(ascii)
                                      : ascii == ' ' || (ascii >= '\t' && ascii <= '\r');
      if (has != (escaped != lower)) set.set(i);
    }
    return -1;
  }
  bool character(Set& set, std::string_view special) {
    const int c = literal(set, special);
    if (c >= 0) set.set(static_cast<std::size_t>(c));
    return c > -2;
  }

  /// Parses a set in brackets, after the opening bracket.
  bool characters(Set& set) {
    const bool inverted = take('^');
    for (bool first = true; first || !take(']'); first = false) {
      if (rest_.starts_with('[')) return false;  // a class of POSIX in PCRE, a set in a later Python
      const int from = literal(set, "");
      if (from == -2) return false;
      if (!rest_.starts_with('-') || rest_.starts_with("-]")) {
        if (from >= 0) set.set(static_cast<std::size_t>(from));
        continue;
      }
      rest_.remove_prefix(1);
      const int to = literal(set, "[");
      if (from < 0 || to < from) return false;
      for (int c = from; c <= to; ++c) set.set(static_cast<std::size_t>(c));
    }
    if (inverted) set.flip();
    return true;
  }

  std::string_view rest_;
  std::vector<Set>& sets_;
  bool good_ = true;
};

std::optional<Regex> Regex::compile(std::string_view expression) {
  if (expression.size() > max_expression) return std::nullopt;
  Regex made;
  auto program = Compiler(expression, made.sets_).run();
  if (!program) return std::nullopt;
  made.program_ = *std::move(program);
  return made;
}

bool Regex::run(std::string_view text, bool anywhere) const {
  std::string shorter;  // a byte for each character
  const auto follows = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80; };
  if (std::any_of(text.begin(), text.end(), follows)) {
    std::remove_copy_if(text.begin(), text.end(), std::back_inserter(shorter), follows);
    text = shorter;
  }
  const std::size_t end = program_.size();
  std::vector<std::uint32_t> active, next, waiting;
  std::vector<std::size_t> seen(end + 1, text.npos);  // the last place at which an instruction was reached
  /// Adds an instruction and those that follow it without a character.
  const auto add = [&](std::vector<std::uint32_t>& to, std::size_t from, std::size_t at) {
    const auto word = [&](std::size_t i) { return i < text.size() && is_word(static_cast<unsigned char>(text[i])); };
    waiting.push_back(static_cast<std::uint32_t>(from));
    while (!waiting.empty()) {
      const std::uint32_t i = waiting.back();
      waiting.pop_back();
      if (seen[i] == at) continue;
      seen[i] = at;
      if (i == end || program_[i].op == Op::characters) {
        to.push_back(i);
        continue;
      }
      const Instruction& in = program_[i];
      const bool border = word(at) != (at > 0 && word(at - 1));
      const bool passes = in.op == Op::split || (in.op == Op::begin && at == 0) ||
                          (in.op == Op::end && at == text.size()) || (in.op == Op::word_border && border) ||
                          (in.op == Op::no_word_border && !border);
      if (!passes) continue;
      waiting.push_back(i + static_cast<std::uint32_t>(in.second));
      waiting.push_back(i + static_cast<std::uint32_t>(in.first));
    }
  };
  const auto ended = [&] { return std::find(active.begin(), active.end(), end) != active.end(); };
  add(active, 0, 0);
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (ended()) return true;
    if (active.empty() && !anywhere) return false;
    const auto c = static_cast<unsigned char>(text[at]);
    next.clear();
    for (const std::uint32_t i : active) {
      const Set& set = sets_[static_cast<std::size_t>(program_[i].first)];
      if (set.test(std::min<std::size_t>(c, other))) add(next, i + 1, at + 1);
    }
    if (anywhere) add(next, 0, at + 1);
    std::swap(active, next);
  }
  return ended();
}

}  // namespace stele::inline v0::detail::regex
