#include "ir/expression.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

namespace stele {
inline namespace v0 {
namespace detail {
namespace ir {

namespace {

using Value = ExpressionValue;
using Ints = std::vector<std::int64_t>;
using Reals = std::vector<double>;

// Parsing.

constexpr int max_depth = 64;

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
        output.count.push_back(std::move(count));
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
      step.repeats.push_back(std::move(repeats));
    }
    if (take_word("if")) {
      STELE_TRY_ASSIGN(Expression condition, expression());
      step.condition.push_back(std::move(condition));
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
    for (int count = 0;; ++count) {
      const auto op = std::find_if(levels[level].begin(), levels[level].end(),
                                   [&](std::string_view o) { return !o.empty() && take(o); });
      if (op == levels[level].end()) return left;
      if (count == 1000) return Error(Errc::limit, "the expression has more than 1000 operators").offset(at_);
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

  static Expression constant(Value value) { return Expression{.constant = std::move(value)}; }

  Result<Expression> primary() {
    if (at_ == text_.size()) return bad("the expression ends early");
    if (take("(")) {
      STELE_TRY_ASSIGN(Expression e, expression());
      STELE_TRY(expect(")"));
      return e;
    }
    if (take("[")) {
      Expression e{.kind = Expression::Kind::list};
      while (!take("]")) {
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
};

// Evaluation.

Error bad_operands(std::string_view what, const Value& a, const Value& b = {}) {
  Error error(Errc::invalid_argument, "the operands do not fit");
  return std::move(error).path(what).found(known(b) ? to_text(a) + ", " + to_text(b) : to_text(a));
}

std::optional<bool> truth_of(const Value& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b;
  if (const auto* i = std::get_if<std::int64_t>(&value)) return *i != 0;
  return std::nullopt;
}

Result<std::int64_t> arithmetic(char op, std::int64_t a, std::int64_t b) {
  if (a == unknown_extent || b == unknown_extent) return unknown_extent;
  std::int64_t result = 0;
  bool overflow = false;
  if (op == '+') overflow = __builtin_add_overflow(a, b, &result);
  if (op == '-') overflow = __builtin_sub_overflow(a, b, &result);
  if (op == '*') overflow = __builtin_mul_overflow(a, b, &result);
  if (op == '/' || op == '%') {
    if (b == 0) return Error(Errc::invalid_argument, "an expression divides by 0");
    overflow = b == -1 && a == std::numeric_limits<std::int64_t>::min();
    // Rounds down, as extents are computed.
    const std::int64_t rest = overflow ? 0 : a % b;
    const bool down = rest != 0 && (rest < 0) != (b < 0);
    if (!overflow) result = op == '/' ? a / b - (down ? 1 : 0) : rest + (down ? b : 0);
  }
  if (overflow || result == unknown_extent) return Error(Errc::invalid_argument, "an expression overflows 64 bits");
  return result;
}

Result<double> arithmetic(char op, double a, double b) {
  switch (op) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '/':
      return a / b;
    default:
      return a - b * std::floor(a / b);
  }
}

template <class T>
std::optional<std::vector<T>> list_of(const Value& value) {
  if (const auto* list = std::get_if<std::vector<T>>(&value)) return *list;
  if (const auto* one = std::get_if<T>(&value)) return std::vector<T>{*one};
  if constexpr (std::is_same_v<T, double>) {
    if (const auto ints = list_of<std::int64_t>(value)) return Reals(ints->begin(), ints->end());
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    if (const auto* b = std::get_if<bool>(&value)) return Ints{*b ? 1 : 0};
    // An empty list has any type.
    if (const auto* list = std::get_if<Reals>(&value); list != nullptr && list->empty()) return Ints{};
  }
  return std::nullopt;
}

bool is_list(const Value& value) noexcept { return value.index() >= 6; }

template <class T>
Result<Value> elementwise(char op, const std::vector<T>& a, const std::vector<T>& b, bool list) {
  std::vector<T> out;
  const std::size_t count = a.size() == 1 ? b.size() : a.size();
  for (std::size_t i = 0; i < count; ++i) {
    STELE_TRY_ASSIGN(const T element, arithmetic(op, a[a.size() == 1 ? 0 : i], b[b.size() == 1 ? 0 : i]));
    out.push_back(element);
  }
  if (list) return Value(std::move(out));
  return Value(out.front());
}

Result<Value> compute(std::string_view op, const Value& a, const Value& b) {
  if (!known(a) || !known(b)) return Value();
  if (op == "+") {
    if (const auto* x = std::get_if<std::string>(&a), *y = std::get_if<std::string>(&b); x && y) return Value(*x + *y);
  }
  const bool list = is_list(a) || is_list(b);
  const auto x = list_of<std::int64_t>(a), y = list_of<std::int64_t>(b);
  const auto fits = [&](std::size_t m, std::size_t n) { return m == n || ((m == 1 || n == 1) && m != 0 && n != 0); };
  if (x && y) {
    if (!fits(x->size(), y->size())) return bad_operands(op, a, b);
    return elementwise(op[0], *x, *y, list);
  }
  const auto u = list_of<double>(a), v = list_of<double>(b);
  if (u && v && fits(u->size(), v->size())) return elementwise(op[0], *u, *v, list);
  return bad_operands(op, a, b);
}

Result<Value> compare(std::string_view op, const Value& a, const Value& b) {
  if (!known(a) || !known(b)) return Value();
  const bool equality = op == "==" || op == "!=";
  if (const auto x = list_of<std::int64_t>(a), y = list_of<std::int64_t>(b); x && y) {
    // An unknown extent makes the answer unknown.
    if (std::find(x->begin(), x->end(), unknown_extent) != x->end()) return Value();
    if (std::find(y->begin(), y->end(), unknown_extent) != y->end()) return Value();
    if (equality) return Value((*x == *y) == (op == "=="));
  } else if (equality && a.index() == b.index()) {
    return Value((a == b) == (op == "=="));
  }
  const auto u = list_of<double>(a), v = list_of<double>(b);
  if (!u || !v || u->size() != 1 || v->size() != 1) return bad_operands(op, a, b);
  const double x = u->front(), y = v->front();
  if (equality) return Value((x == y) == (op == "=="));
  if (op == "<") return Value(x < y);
  if (op == ">") return Value(x > y);
  return Value(op == "<=" ? x <= y : x >= y);
}

Result<Value> indexed(const Value& list, const Value& at) {
  if (!known(list) || !known(at)) return Value();
  const auto* number = std::get_if<std::int64_t>(&at);
  return std::visit(
      [&]<class T>(const T& elements) -> Result<Value> {
        if constexpr (requires { elements.size(); } && !std::is_same_v<T, std::string>) {
          if (number != nullptr) {
            const auto count = static_cast<std::int64_t>(elements.size());
            const std::int64_t i = *number < 0 ? *number + count : *number;
            if (i >= 0 && i < count) return Value(elements[static_cast<std::size_t>(i)]);
          }
        }
        return Error(Errc::invalid_argument, "an index is outside its list")
            .found(to_text(list) + "[" + to_text(at) + "]");
      },
      list);
}

Result<Value> sliced(const Value& list, const Value& from, const Value& to) {
  if (!known(list)) return Value();
  return std::visit(
      [&]<class T>(const T& elements) -> Result<Value> {
        if constexpr (requires { elements.size(); } && !std::is_same_v<T, std::string>) {
          const auto count = static_cast<std::int64_t>(elements.size());
          const auto place = [&](const Value& at, std::int64_t otherwise) {
            const auto* number = std::get_if<std::int64_t>(&at);
            const std::int64_t i = number == nullptr ? otherwise : *number < 0 ? *number + count : *number;
            return std::clamp<std::int64_t>(i, 0, count);
          };
          const std::int64_t first = place(from, 0), last = std::max(first, place(to, count));
          return Value(T(elements.begin() + first, elements.begin() + last));
        }
        return bad_operands("[:]", list);
      },
      list);
}

/// Returns the elements as one list. Integers become doubles beside doubles.
Result<Value> joined(const std::vector<Value>& parts) {
  if (std::any_of(parts.begin(), parts.end(), [](const Value& v) { return !known(v); })) return Value();
  std::size_t total = 0;
  const auto all = [&]<class T>(T) -> std::optional<std::vector<T>> {
    std::vector<T> out;
    for (const Value& part : parts) {
      auto more = list_of<T>(part);
      if (!more) return std::nullopt;
      out.insert(out.end(), more->begin(), more->end());
      total = std::max(total, out.size());
      if (total > max_list) return std::nullopt;
    }
    return out;
  };
  if (auto ints = all(std::int64_t())) return Value(*std::move(ints));
  if (auto reals = all(double())) return Value(*std::move(reals));
  if (auto strings = all(std::string())) return Value(*std::move(strings));
  if (auto tensors = all(TensorName())) return Value(*std::move(tensors));
  if (total > max_list) return Error(Errc::limit, "a list has more than 65536 elements");
  return Error(Errc::invalid_argument, "the elements of a list have different types").found(to_text(parts.front()));
}

/// The functions of plain values. Each gets its operands, all known.
struct Function {
  std::string_view name;
  std::size_t operands;
  Result<Value> (*call)(const std::vector<Value>&);
};

Result<Ints> ints(const Value& value) {
  if (auto list = list_of<std::int64_t>(value)) return *std::move(list);
  return bad_operands("an integer is expected", value);
}
Result<std::int64_t> integer(const Value& value) {
  if (const auto* i = std::get_if<std::int64_t>(&value)) return *i;
  if (const auto* b = std::get_if<bool>(&value)) return *b ? 1 : 0;
  return bad_operands("an integer is expected", value);
}
Result<std::size_t> list_size(const Value& value) {
  STELE_TRY_ASSIGN(const std::int64_t n, integer(value));
  if (n >= 0 && static_cast<std::uint64_t>(n) <= max_list) return static_cast<std::size_t>(n);
  return Error(Errc::limit, "a list has fewer than 0 or more than 65536 elements").found(std::to_string(n));
}

Result<Value> call_size(const std::vector<Value>& v) {
  return std::visit(
      [&]<class T>(const T& elements) -> Result<Value> {
        if constexpr (requires { elements.size(); }) return Value(static_cast<std::int64_t>(elements.size()));
        return bad_operands("size", v[0]);
      },
      v[0]);
}

template <class Take>
Result<Value> folded(const Value& list, std::int64_t start, Take take) {
  STELE_TRY_ASSIGN(const Ints elements, ints(list));
  std::int64_t result = start;
  for (const std::int64_t e : elements) {
    STELE_TRY_ASSIGN(result, take(result, e));
  }
  return Value(result);
}
Result<Value> call_sum(const std::vector<Value>& v) {
  return folded(v[0], 0, [](std::int64_t a, std::int64_t b) { return arithmetic('+', a, b); });
}
Result<Value> call_product(const std::vector<Value>& v) {
  return folded(v[0], 1, [](std::int64_t a, std::int64_t b) -> Result<std::int64_t> {
    return a == 0 || b == 0 ? 0 : arithmetic('*', a, b);
  });
}
template <bool greater>
Result<Value> extreme(const std::vector<Value>& v) {
  if (const auto a = list_of<std::int64_t>(v[0]), b = list_of<std::int64_t>(v[1]); a && b && a->size() == 1) {
    Ints out;
    for (const std::int64_t e : *b) {
      const bool unknown = e == unknown_extent || a->front() == unknown_extent;
      out.push_back(unknown ? unknown_extent : greater ? std::max(a->front(), e) : std::min(a->front(), e));
    }
    if (is_list(v[1])) return Value(std::move(out));
    if (out.size() == 1) return Value(out.front());
  }
  return bad_operands(greater ? "max" : "min", v[0], v[1]);
}
Result<Value> call_filled(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(const std::size_t n, list_size(v[0]));
  if (const auto* i = std::get_if<std::int64_t>(&v[1])) return Value(Ints(n, *i));
  if (const auto* d = std::get_if<double>(&v[1])) return Value(Reals(n, *d));
  return bad_operands("filled", v[1]);
}
Result<Value> call_range(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(const std::int64_t from, integer(v[0]));
  STELE_TRY_ASSIGN(const std::int64_t to, integer(v[1]));
  if (to > from && static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from) > max_list) {
    return Error(Errc::limit, "a list has more than 65536 elements");
  }
  Ints out;
  for (std::int64_t i = from; i < to; ++i) out.push_back(i);
  return Value(std::move(out));
}
Result<Value> call_reversed(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(Ints out, ints(v[0]));
  std::reverse(out.begin(), out.end());
  return Value(std::move(out));
}
/// axes(list, rank): negative axes count from the end.
Result<Value> call_axes(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(Ints out, ints(v[0]));
  STELE_TRY_ASSIGN(const std::int64_t rank, integer(v[1]));
  for (std::int64_t& axis : out) {
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) {
      return Error(Errc::invalid_argument, "an axis is outside the tensor's rank")
          .found(to_text(v[0]))
          .expected(to_text(v[1]));
    }
  }
  if (!is_list(v[0])) return Value(out.front());
  return Value(std::move(out));
}
/// without(list, axes), with(list, axes, value): extents of reductions.
Result<Value> call_without(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(const Ints list, ints(v[0]));
  STELE_TRY_ASSIGN(const Ints axes, ints(v[1]));
  Ints out;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(i)) == axes.end()) out.push_back(list[i]);
  }
  return Value(std::move(out));
}
Result<Value> call_with(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(Ints list, ints(v[0]));
  STELE_TRY_ASSIGN(const Ints axes, ints(v[1]));
  STELE_TRY_ASSIGN(const Ints values, ints(v[2]));
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const std::int64_t axis = axes[k];
    if (axis < 0 || static_cast<std::size_t>(axis) >= list.size() || (values.size() != 1 && k >= values.size())) {
      return bad_operands("with", v[0], v[1]);
    }
    list[static_cast<std::size_t>(axis)] = values[values.size() == 1 ? 0 : k];
  }
  return Value(std::move(list));
}
/// inserted(list, axes): extents of 1 at these axes of the result.
Result<Value> call_inserted(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(Ints list, ints(v[0]));
  STELE_TRY_ASSIGN(Ints axes, ints(v[1]));
  std::sort(axes.begin(), axes.end());
  for (const std::int64_t axis : axes) {
    if (axis < 0 || static_cast<std::size_t>(axis) > list.size()) return bad_operands("inserted", v[0], v[1]);
    list.insert(list.begin() + axis, 1);
  }
  return Value(std::move(list));
}
/// picked(list, positions).
Result<Value> call_picked(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(const Ints list, ints(v[0]));
  STELE_TRY_ASSIGN(const Ints positions, ints(v[1]));
  Ints out;
  for (const std::int64_t i : positions) {
    if (i < 0 || static_cast<std::size_t>(i) >= list.size()) return bad_operands("picked", v[0], v[1]);
    out.push_back(list[static_cast<std::size_t>(i)]);
  }
  return Value(std::move(out));
}
/// pairs(list): [b0, b1, e0, e1] becomes [b0, e0, b1, e1].
Result<Value> call_pairs(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(const Ints list, ints(v[0]));
  if (list.size() % 2 != 0) return bad_operands("pairs", v[0]);
  Ints out;
  for (std::size_t i = 0; i < list.size() / 2; ++i) {
    out.push_back(list[i]);
    out.push_back(list[i + list.size() / 2]);
  }
  return Value(std::move(out));
}
/// opened(shape): an extent that is not known becomes -1; unknown if there are two.
Result<Value> call_opened(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(Ints out, ints(v[0]));
  std::size_t open = 0;
  for (std::int64_t& e : out) {
    if (e != unknown_extent && e != -1) continue;
    e = -1;
    ++open;
  }
  return open > 1 ? Value() : Value(std::move(out));
}
/// copied(shape, from): a 0 becomes the extent of `from` at that axis.
Result<Value> call_copied(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(Ints out, ints(v[0]));
  STELE_TRY_ASSIGN(const Ints from, ints(v[1]));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] != 0) continue;
    if (i >= from.size()) return bad_operands("copied", v[0], v[1]);
    out[i] = from[i];
  }
  return Value(std::move(out));
}
/// solved(shape, count): -1 becomes the extent that gives this number of elements.
Result<Value> call_solved(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(Ints out, ints(v[0]));
  STELE_TRY_ASSIGN(const std::int64_t count, integer(v[1]));
  const auto open = std::find(out.begin(), out.end(), -1);
  if (open == out.end()) return Value(std::move(out));
  *open = 1;
  STELE_TRY_ASSIGN(const Value others, call_product({Value(out)}));
  const std::int64_t product = std::get<std::int64_t>(others);
  const bool known_product = count != unknown_extent && product != unknown_extent && product != 0;
  *open = known_product ? count / product : unknown_extent;
  return Value(std::move(out));
}
/// bits(positions): a mask.
Result<Value> call_bits(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(const Ints positions, ints(v[0]));
  std::int64_t mask = 0;
  for (const std::int64_t p : positions) {
    if (p < 0 || p > 62) return bad_operands("bits", v[0]);
    mask |= std::int64_t{1} << p;
  }
  return Value(mask);
}

/// One axis of a slice of ONNX, as a slice with a positive step of the axis or its reverse.
struct SliceAxis {
  std::int64_t begin = 0, end = 0, step = 1;
  std::int64_t extent = unknown_extent;  // of the result
  bool open_end = true;                  // the end is that of the axis
  bool reversed = false;
};

/// nullopt: it depends on the extent, which is not known.
std::optional<SliceAxis> slice_axis(std::int64_t extent, std::int64_t begin, std::int64_t end, std::int64_t step) {
  SliceAxis to{.begin = begin, .end = end, .step = std::abs(step), .reversed = step < 0};
  constexpr std::int64_t far = std::numeric_limits<std::int32_t>::max();
  if (extent == unknown_extent) {
    to.open_end = step > 0 ? end >= far : end <= -far;
    if (step < 0 && !((begin == -1 || begin >= far) && to.open_end)) return std::nullopt;
    if (step < 0) to.begin = 0;
    const bool same_side = (begin < 0) == (end < 0);
    if (step == 1 && begin < 0 && end < 0 && same_side && !to.open_end)
      to.extent = std::max<std::int64_t>(0, end - begin);
    return to;
  }
  const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? extent : extent - 1;
  const auto place = [&](std::int64_t p) {
    return std::clamp(p < 0 ? std::max(p, -extent - 1) + extent : p, low, high);
  };
  to.begin = place(begin);
  to.end = place(end);
  if (step < 0) {
    to.begin = extent - 1 - to.begin;
    to.end = extent - 1 - to.end;
  }
  to.open_end = to.end == extent;
  to.extent = to.end <= to.begin ? 0 : (to.end - to.begin + to.step - 1) / to.step;
  return to;
}

/// Operands: shape, axes, starts, ends, steps. Returns one entry for each axis of the tensor.
Result<std::optional<std::vector<SliceAxis>>> slice_axes(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(const Ints shape, ints(v[0]));
  STELE_TRY_ASSIGN(const Ints axes, ints(v[1]));
  STELE_TRY_ASSIGN(const Ints starts, ints(v[2]));
  STELE_TRY_ASSIGN(const Ints ends, ints(v[3]));
  STELE_TRY_ASSIGN(const Ints steps, ints(v[4]));
  if (starts.size() != axes.size() || ends.size() != axes.size() || steps.size() != axes.size()) {
    return Error(Errc::invalid_argument, "the lists of a slice differ in length");
  }
  std::vector<SliceAxis> all(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) all[i].extent = shape[i];
  for (std::size_t k = 0; k < axes.size(); ++k) {
    if (axes[k] < 0 || static_cast<std::size_t>(axes[k]) >= shape.size() || steps[k] == 0 ||
        steps[k] == unknown_extent) {
      return bad_operands("slice", v[1], v[4]);
    }
    const auto axis = static_cast<std::size_t>(axes[k]);
    const auto one = slice_axis(shape[axis], starts[k], ends[k], steps[k]);
    if (!one) return std::optional<std::vector<SliceAxis>>();
    all[axis] = *one;
  }
  return std::optional(std::move(all));
}
template <class Take>
Result<Value> sliced_axes(const std::vector<Value>& v, Take take) {
  STELE_TRY_ASSIGN(const auto axes, slice_axes(v));
  if (!axes) return Value();
  Ints out;
  for (std::size_t i = 0; i < axes->size(); ++i) take(out, (*axes)[i], static_cast<std::int64_t>(i));
  return Value(std::move(out));
}
Result<Value> call_slice_begin(const std::vector<Value>& v) {
  return sliced_axes(v, [](Ints& out, const SliceAxis& a, std::int64_t) { out.push_back(a.begin); });
}
Result<Value> call_slice_end(const std::vector<Value>& v) {
  return sliced_axes(v, [](Ints& out, const SliceAxis& a, std::int64_t) { out.push_back(a.open_end ? 0 : a.end); });
}
Result<Value> call_slice_steps(const std::vector<Value>& v) {
  return sliced_axes(v, [](Ints& out, const SliceAxis& a, std::int64_t) { out.push_back(a.step); });
}
Result<Value> call_slice_open(const std::vector<Value>& v) {
  return sliced_axes(v, [](Ints& out, const SliceAxis& a, std::int64_t i) {
    if (a.open_end) out.push_back(i);
  });
}
Result<Value> call_slice_reversed(const std::vector<Value>& v) {
  return sliced_axes(v, [](Ints& out, const SliceAxis& a, std::int64_t i) {
    if (a.reversed) out.push_back(i);
  });
}
Result<Value> call_slice_shape(const std::vector<Value>& v) {
  return sliced_axes(v, [](Ints& out, const SliceAxis& a, std::int64_t) { out.push_back(a.extent); });
}

/// index(list, value): the position of the value; -1: the list does not have it.
Result<Value> call_index(const std::vector<Value>& v) {
  return std::visit(
      [&]<class T>(const T& elements) -> Result<Value> {
        if constexpr (requires { elements.begin(); } && !std::is_same_v<T, std::string>) {
          const auto found =
              std::find_if(elements.begin(), elements.end(), [&](const auto& e) { return Value(e) == v[1]; });
          return Value(found == elements.end() ? std::int64_t{-1} : std::int64_t{found - elements.begin()});
        }
        return bad_operands("index", v[0], v[1]);
      },
      v[0]);
}
Result<Value> call_int(const std::vector<Value>& v) {
  if (const auto* d = std::get_if<double>(&v[0])) {
    if (!(std::abs(*d) < 9e18)) return bad_operands("int", v[0]);
    return Value(static_cast<std::int64_t>(*d));
  }
  STELE_TRY_ASSIGN(const std::int64_t i, integer(v[0]));
  return Value(i);
}
Result<Value> call_float(const std::vector<Value>& v) {
  if (const auto reals = list_of<double>(v[0]); reals && reals->size() == 1) return Value(reals->front());
  return bad_operands("float", v[0]);
}
Result<Value> call_sqrt(const std::vector<Value>& v) {
  if (const auto reals = list_of<double>(v[0]); reals && reals->size() == 1) return Value(std::sqrt(reals->front()));
  return bad_operands("sqrt", v[0]);
}
/// broadcast(a, b): the shape of an elementwise operation.
Result<Value> call_broadcast(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(Ints a, ints(v[0]));
  STELE_TRY_ASSIGN(Ints b, ints(v[1]));
  if (a.size() < b.size()) std::swap(a, b);
  b.insert(b.begin(), a.size() - b.size(), 1);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || b[i] == 1) continue;
    if (a[i] == 1) {
      a[i] = b[i];
    } else if (a[i] == unknown_extent || b[i] == unknown_extent) {
      a[i] = a[i] == unknown_extent ? b[i] : a[i];  // the other is 1 or the same
    } else {
      return Error(Errc::shape_mismatch, "two shapes do not broadcast").expected(to_text(v[0])).found(to_text(v[1]));
    }
  }
  return Value(std::move(a));
}

constexpr std::array<Function, 29> functions = {{
    {"size", 1, call_size},
    {"sum", 1, call_sum},
    {"product", 1, call_product},
    {"max", 2, extreme<true>},
    {"min", 2, extreme<false>},
    {"filled", 2, call_filled},
    {"range", 2, call_range},
    {"reversed", 1, call_reversed},
    {"axes", 2, call_axes},
    {"without", 2, call_without},
    {"with", 3, call_with},
    {"inserted", 2, call_inserted},
    {"picked", 2, call_picked},
    {"pairs", 1, call_pairs},
    {"opened", 1, call_opened},
    {"copied", 2, call_copied},
    {"solved", 2, call_solved},
    {"bits", 1, call_bits},
    {"slice_begin", 5, call_slice_begin},
    {"slice_end", 5, call_slice_end},
    {"slice_steps", 5, call_slice_steps},
    {"slice_open", 5, call_slice_open},
    {"slice_reversed", 5, call_slice_reversed},
    {"slice_shape", 5, call_slice_shape},
    {"index", 2, call_index},
    {"int", 1, call_int},
    {"float", 1, call_float},
    {"sqrt", 1, call_sqrt},
    {"broadcast", 2, call_broadcast},
}};

Result<Value> call(const Expression& e, const Scope& scope) {
  std::vector<Value> values;
  for (const Expression& operand : e.operands) {
    STELE_TRY_ASSIGN(Value value, operand.evaluate(scope));
    values.push_back(std::move(value));
  }
  if (e.text == "join") return joined(values);
  if (values.size() == 1) {
    const auto* tensor = std::get_if<TensorName>(&values[0]);
    if (e.text == "given") return Value(known(values[0]) && (tensor == nullptr || !tensor->name.empty()));
    if (e.text == "known") {
      const auto* list = std::get_if<Ints>(&values[0]);
      const bool unknown = list != nullptr && std::find(list->begin(), list->end(), unknown_extent) != list->end();
      return Value(known(values[0]) && !unknown && values[0] != Value(unknown_extent));
    }
  }
  STELE_TRY_ASSIGN(std::optional<Value> of_tensors, scope.call(e.text, values));
  if (of_tensors) return *std::move(of_tensors);
  const auto found =
      std::find_if(functions.begin(), functions.end(), [&](const Function& f) { return f.name == e.text; });
  if (found == functions.end() || found->name.empty() || found->operands != values.size()) {
    return Error(Errc::missing, "there is no such function")
        .path(e.text)
        .found(std::to_string(values.size()) + " operands");
  }
  if (std::any_of(values.begin(), values.end(), [](const Value& v) { return !known(v); })) return Value();
  return found->call(values);
}

Result<Value> logical(const Expression& e, const Value& left, const Scope& scope) {
  const bool stops = e.text == "||";  // on this value
  const auto first = truth_of(left);
  if (first == stops) return Value(stops);
  STELE_TRY_ASSIGN(const Value right, e.operands[1].evaluate(scope));
  const auto second = truth_of(right);
  if (second == stops) return Value(stops);
  if (first && second) return Value(*second);
  return Value();
}

}  // namespace

std::string to_text(const Value& value) {
  return std::visit(
      []<class T>(const T& v) -> std::string {
        if constexpr (std::is_same_v<T, std::monostate>) {
          return "unknown";
        } else if constexpr (std::is_same_v<T, bool>) {
          return v ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::int64_t>) {
          return v == unknown_extent ? "?" : std::to_string(v);
        } else if constexpr (std::is_same_v<T, double>) {
          std::array<char, 32> text;
          return {text.data(), std::to_chars(text.data(), text.data() + text.size(), v).ptr};
        } else if constexpr (std::is_same_v<T, std::string>) {
          return "'" + v.substr(0, 80) + "'";
        } else if constexpr (std::is_same_v<T, TensorName>) {
          return v.name.substr(0, 80);
        } else {
          std::string text = "[";
          for (std::size_t i = 0; i < v.size() && i < 16; ++i) text += (i != 0 ? ", " : "") + to_text(Value(v[i]));
          return text + (v.size() > 16 ? ", …]" : "]");
        }
      },
      value);
}

Result<Value> Expression::evaluate(const Scope& scope) const {
  switch (kind) {
    case Kind::constant:
      return constant;
    case Kind::name:
      return scope.value_of(text);
    case Kind::call:
      return call(*this, scope);
    case Kind::list: {
      std::vector<Value> values;
      for (const Expression& operand : operands) {
        STELE_TRY_ASSIGN(Value value, operand.evaluate(scope));
        values.push_back(std::move(value));
      }
      if (values.empty()) return Value(Ints{});
      return joined(values);
    }
    default:
      break;
  }
  STELE_TRY_ASSIGN(Value first, operands[0].evaluate(scope));
  switch (kind) {
    case Kind::index: {
      STELE_TRY_ASSIGN(const Value at, operands[1].evaluate(scope));
      return indexed(first, at);
    }
    case Kind::slice: {
      STELE_TRY_ASSIGN(const Value from, operands[1].evaluate(scope));
      STELE_TRY_ASSIGN(const Value to, operands[2].evaluate(scope));
      return sliced(first, from, to);
    }
    case Kind::unary: {
      if (!known(first)) return first;
      if (text == "-") return compute("*", first, Value(std::int64_t{-1}));
      const auto truth = truth_of(first);
      if (!truth) return bad_operands(text, first);
      return Value(!*truth);
    }
    case Kind::choice: {
      const auto truth = truth_of(first);
      if (!known(first)) return first;
      if (!truth) return bad_operands("?", first);
      return operands[*truth ? 1 : 2].evaluate(scope);
    }
    default:
      break;
  }
  if (text == "else") {
    const auto* tensor = std::get_if<TensorName>(&first);
    if (known(first) && (tensor == nullptr || !tensor->name.empty())) return first;
    return operands[1].evaluate(scope);
  }
  if (text == "||" || text == "&&") return logical(*this, first, scope);
  STELE_TRY_ASSIGN(const Value second, operands[1].evaluate(scope));
  const bool comparison = text == "==" || text == "!=" || text[0] == '<' || text[0] == '>';
  return comparison ? compare(text, first, second) : compute(text, first, second);
}

Result<Expression> parse_expression(std::string_view text) { return Parser(text).whole_expression(); }
Result<Step> parse_step(std::string_view text) { return Parser(text).whole_step(); }

}  // namespace ir
}  // namespace detail
}  // namespace v0
}  // namespace stele
