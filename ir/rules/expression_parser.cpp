// Parses expressions and steps.
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "ir/rules/expression.hpp"

namespace stele::inline v0::detail::ir {

namespace {

constexpr int max_depth = 64;
/// Maximum number of operands and operators of an expression: bounds the stack, because evaluation and destruction
/// recurse along chains of operators.
constexpr std::size_t max_parts = 2000;

bool is_letter(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) { skip_spaces(); }

  Result<Expression> whole_expression() {
    STELE_TRY_ASSIGN(Expression e, expression());
    if (at_ != text_.size()) return bad("unexpected text after the expression");
    return e;
  }

  Result<Step> whole_step() {
    Step step;
    do {
      Step::Output& output = step.outputs.emplace_back();
      STELE_TRY_ASSIGN(output.name, name());
      if (take("[")) {
        STELE_TRY_ASSIGN(Expression count, expression());
        output.count = std::move(count);
        STELE_TRY(expect("]"));
      }
    } while (take(","));
    STELE_TRY(expect("="));
    STELE_TRY_ASSIGN(step.op_name, name());
    STELE_TRY(expect("("));
    while (!take(")")) {
      if (!step.arguments.empty()) STELE_TRY(expect(","));
      Step::Argument& argument = step.arguments.emplace_back();
      STELE_TRY_ASSIGN(argument.name, name());
      STELE_TRY(expect(":"));
      STELE_TRY_ASSIGN(argument.value, expression());
    }
    if (take_word("for")) {
      STELE_TRY_ASSIGN(step.variable, name());
      if (!take_word("in")) return bad("expected \"in\"");
      STELE_TRY_ASSIGN(Expression repeats, expression());
      step.repeats = std::move(repeats);
    }
    if (take_word("if")) {
      STELE_TRY_ASSIGN(Expression condition, expression());
      step.condition = std::move(condition);
    }
    if (at_ != text_.size()) return bad("unexpected text after the step");
    return step;
  }

 private:
  Error bad(std::string_view message) const {
    return Error(Errc::malformed, message).found(text_.substr(at_, 20)).offset(at_);
  }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool take(std::string_view token) {
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    skip_spaces();
    return true;
  }
  bool take_word(std::string_view word) {
    const std::size_t end = at_ + word.size();
    if (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end]))) return false;
    return take(word);
  }
  Status expect(std::string_view token) {
    if (take(token)) return {};
    return bad("expected \"" + std::string(token) + "\"");
  }
  Result<std::string> name() {
    std::size_t end = at_;
    while (end < text_.size() && (is_letter(text_[end]) || (end != at_ && is_digit(text_[end])))) ++end;
    if (end == at_) return bad("expected a name");
    std::string found(text_.substr(at_, end - at_));
    at_ = end;
    skip_spaces();
    return found;
  }

  Status count_part() {
    if (++parts_ <= max_parts) return {};
    return Error(Errc::limit, "the expression is too long")
        .expected("at most " + std::to_string(max_parts) + " operands and operators")
        .offset(at_);
  }

  Result<Expression> expression() {
    if (depth_ == max_depth) return Error(Errc::limit, "the expression is nested more than 64 deep").offset(at_);
    ++depth_;
    auto e = choice();
    --depth_;
    return e;
  }

  Result<Expression> choice() {
    STELE_TRY_ASSIGN(Expression condition, binary(0));
    if (take_word("else")) return binary_of("else", std::move(condition), expression());
    if (!take("?")) return condition;
    STELE_TRY_ASSIGN(Expression first, expression());
    STELE_TRY(expect(":"));
    STELE_TRY_ASSIGN(Expression second, expression());
    Expression e{.kind = Expression::Kind::choice};
    e.operands = {std::move(condition), std::move(first), std::move(second)};
    return e;
  }

  static Result<Expression> binary_of(std::string_view op, Expression&& left, Result<Expression>&& right) {
    if (!right) return std::move(right).error();
    Expression e{.kind = Expression::Kind::binary, .text = std::string(op)};
    e.operands.push_back(std::move(left));
    e.operands.push_back(*std::move(right));
    return e;
  }

  Result<Expression> binary(std::size_t level) {
    static constexpr std::array<std::array<std::string_view, 6>, 5> levels = {{
        {"||"},
        {"&&"},
        {"==", "!=", "<=", ">=", "<", ">"},
        {"+", "-"},
        {"*", "/", "%"},
    }};
    if (level == levels.size()) return unary();
    STELE_TRY_ASSIGN(Expression left, binary(level + 1));
    for (;;) {
      const auto op = std::find_if(levels[level].begin(), levels[level].end(),
                                   [&](std::string_view o) { return !o.empty() && take(o); });
      if (op == levels[level].end()) return left;
      STELE_TRY(count_part());
      STELE_TRY_ASSIGN(left, binary_of(*op, std::move(left), binary(level + 1)));
    }
  }

  Result<Expression> unary() {
    for (const std::string_view op : {"!", "-"}) {
      if (text_.substr(at_, 2) == "!=" || !take(op)) continue;
      if (depth_ == max_depth) return Error(Errc::limit, "the expression is nested more than 64 deep").offset(at_);
      ++depth_;
      auto operand = unary();
      --depth_;
      if (!operand) return operand;
      Expression e{.kind = Expression::Kind::unary, .text = std::string(op)};
      e.operands.push_back(*std::move(operand));
      return e;
    }
    return postfix();
  }

  Result<Expression> postfix() {
    STELE_TRY_ASSIGN(Expression e, primary());
    while (take("[")) {
      STELE_TRY(count_part());
      const Expression none;
      Expression outer{.kind = Expression::Kind::index};
      outer.operands.push_back(std::move(e));
      if (text_.substr(at_, 1) == ":") {
        outer.operands.push_back(none);
      } else {
        STELE_TRY_ASSIGN(Expression first, expression());
        outer.operands.push_back(std::move(first));
      }
      if (take(":")) {
        outer.kind = Expression::Kind::slice;
        if (text_.substr(at_, 1) == "]") {
          outer.operands.push_back(none);
        } else {
          STELE_TRY_ASSIGN(Expression last, expression());
          outer.operands.push_back(std::move(last));
        }
      }
      STELE_TRY(expect("]"));
      e = std::move(outer);
    }
    return e;
  }

  static Expression constant(ExpressionValue value) { return Expression{.constant = std::move(value)}; }

  Result<Expression> primary() {
    if (at_ == text_.size()) return bad("the expression ends early");
    STELE_TRY(count_part());
    if (take("(")) {
      STELE_TRY_ASSIGN(Expression e, expression());
      STELE_TRY(expect(")"));
      return e;
    }
    if (take("[")) {
      Expression e{.kind = Expression::Kind::list};
      while (!take("]")) {
        if (e.operands.size() == 1 && take_word("for")) {
          e.kind = Expression::Kind::each;
          STELE_TRY_ASSIGN(e.text, name());
          if (!take_word("in")) return bad("expected \"in\"");
          STELE_TRY_ASSIGN(Expression count, expression());
          e.operands.push_back(std::move(count));
          STELE_TRY(expect("]"));
          return e;
        }
        if (!e.operands.empty()) STELE_TRY(expect(","));
        STELE_TRY_ASSIGN(Expression element, expression());
        e.operands.push_back(std::move(element));
      }
      return e;
    }
    if (text_[at_] == '\'') {
      const std::size_t end = text_.find('\'', at_ + 1);
      if (end == std::string_view::npos) return bad("the string does not end");
      std::string string(text_.substr(at_ + 1, end - at_ - 1));
      at_ = end + 1;
      skip_spaces();
      return constant(std::move(string));
    }
    if (is_digit(text_[at_])) return number();
    STELE_TRY_ASSIGN(std::string word, name());
    if (word == "true" || word == "false") return constant(word == "true");
    if (word == "none") return constant({});
    if (word == "unknown") return constant(Unknown());
    if (word == "infinity") return constant(std::numeric_limits<double>::infinity());
    Expression e{.kind = Expression::Kind::name, .text = std::move(word)};
    if (!take("(")) return e;
    e.kind = Expression::Kind::call;
    while (!take(")")) {
      if (!e.operands.empty()) STELE_TRY(expect(","));
      STELE_TRY_ASSIGN(Expression operand, expression());
      e.operands.push_back(std::move(operand));
    }
    return e;
  }

  Result<Expression> number() {
    std::size_t end = at_;
    bool real = false;
    while (end < text_.size()) {
      const char c = text_[end];
      const bool exponent = c == 'e' && end + 1 < text_.size() && (is_digit(text_[end + 1]) || text_[end + 1] == '-');
      if (!is_digit(c) && c != '.' && !exponent) break;
      real = real || c == '.' || exponent;
      end += exponent ? 2 : 1;
    }
    const char* const first = text_.data() + at_;
    const char* const last = text_.data() + end;
    std::int64_t integer = 0;
    double number = 0;
    const auto [stop, error] = real ? std::from_chars(first, last, number) : std::from_chars(first, last, integer);
    if (error != std::errc() || stop != last) return bad("the number is malformed or too large");
    at_ = end;
    skip_spaces();
    return real ? constant(number) : constant(integer);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::size_t parts_ = 0;
};

}  // namespace

Result<Expression> parse_expression(std::string_view text) { return Parser(text).whole_expression(); }
Result<Step> parse_step(std::string_view text) { return Parser(text).whole_step(); }

}  // namespace stele::inline v0::detail::ir
