#include "ir/rules/expression.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "ir/rules/operands.hpp"

namespace stele::inline v0::detail::ir {

namespace {

using Value = ExpressionValue;

std::optional<bool> truth_of(const Value& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b;
  if (const auto* i = std::get_if<std::int64_t>(&value)) return *i != 0;
  return std::nullopt;
}

template <class T>
Result<Value> elementwise(char op, const std::vector<T>& a, const std::vector<T>& b, bool list) {
  std::vector<T> out;
  const std::size_t count = a.size() == 1 ? b.size() : a.size();
  for (std::size_t i = 0; i < count; ++i) {
    STELE_TRY_ASSIGN(const T element, arithmetic(op, a[a.size() == 1 ? 0 : i], b[b.size() == 1 ? 0 : i]));
    out.push_back(element);
  }
  if constexpr (std::is_same_v<T, double>) {
    return list ? Value(std::move(out)) : Value(out.front());
  } else {
    return list ? value_of(std::move(out)) : value_of(out.front());
  }
}

Result<Value> compute(std::string_view op, const Value& a, const Value& b) {
  if (!known(a) || !known(b)) return Value();
  if (op == "+") {
    if (const auto* x = std::get_if<std::string>(&a), *y = std::get_if<std::string>(&b); x && y) return Value(*x + *y);
  }
  const bool list = is_list(a) || is_list(b);
  const auto x = open_list_of(a), y = open_list_of(b);
  const auto fits = [&](std::size_t m, std::size_t n) { return m == n || m == 1 || n == 1; };
  if (x && y) {
    if (!fits(x->size(), y->size())) return bad_operands(op, a, b);
    return elementwise(op[0], *x, *y, list);
  }
  if (open(a) || open(b)) return Value();  // one operand has reals
  const auto u = list_of<double>(a), v = list_of<double>(b);
  if (u && v && fits(u->size(), v->size())) return elementwise(op[0], *u, *v, list);
  return bad_operands(op, a, b);
}

Result<Value> compare(std::string_view op, const Value& a, const Value& b) {
  if (!known(a) || !known(b) || open(a) || open(b)) return Value();
  const bool equality = op == "==" || op == "!=";
  if (const auto x = list_of<std::int64_t>(a), y = list_of<std::int64_t>(b); x && y) {
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

/// Returns a part of a list. A bound that is not given is a null pointer.
Result<Value> sliced(const Value& list, const Value* from, const Value* to) {
  if (!known(list)) return Value();
  for (const Value* bound : {from, to}) {
    if (bound != nullptr && (!known(*bound) || open(*bound))) return Value();
  }
  return std::visit(
      [&]<class T>(const T& elements) -> Result<Value> {
        if constexpr (requires { elements.size(); } && !std::is_same_v<T, std::string>) {
          const auto count = static_cast<std::int64_t>(elements.size());
          const auto place = [&](const Value* at, std::int64_t otherwise) {
            const auto* number = at != nullptr ? std::get_if<std::int64_t>(at) : nullptr;
            const std::int64_t i = number == nullptr ? otherwise : *number < 0 ? *number + count : *number;
            return std::clamp<std::int64_t>(i, 0, count);
          };
          const std::int64_t first = place(from, 0), last = std::max(first, place(to, count));
          T part(elements.begin() + first, elements.begin() + last);
          if constexpr (std::is_same_v<T, OpenInts>) return value_of(std::move(part));
          if constexpr (!std::is_same_v<T, OpenInts>) return Value(std::move(part));
        }
        return bad_operands("[:]", list);
      },
      list);
}

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
    if (e.text == "tensor") return Value(tensor != nullptr && !tensor->name.empty());
    if (e.text == "known") return Value(known(values[0]) && !open(values[0]));
  }
  STELE_TRY_ASSIGN(std::optional<Value> of_tensors, scope.call(e.text, values));
  if (of_tensors) return *std::move(of_tensors);
  return call_function(e.text, values);
}

/// A scope with one additional name.
class WithVariable final : public Scope {
 public:
  WithVariable(const Scope& outer, const std::string& name) : outer_(outer), name_(name) {}

  void set(std::int64_t value) { value_ = value; }
  Result<const Value*> find(std::string_view name) const override {
    return name == name_ ? Result<const Value*>(&value_) : outer_.find(name);
  }
  Result<std::optional<Value>> call(std::string_view function, std::span<const Value> operands) const override {
    return outer_.call(function, operands);
  }

 private:
  const Scope& outer_;
  const std::string& name_;
  Value value_ = std::int64_t{0};
};

Result<Value> each(const Expression& e, const Scope& scope) {
  STELE_TRY_ASSIGN(const Value count, e.operands[1].evaluate(scope));
  if (!known(count) || open(count)) return Value();
  const auto* n = std::get_if<std::int64_t>(&count);
  if (n == nullptr) return bad_operands("for", count);
  if (*n > static_cast<std::int64_t>(max_each)) {
    return Error(Errc::limit, "a list expression has too many elements").expected("at most 4096").found(to_text(count));
  }
  WithVariable inner(scope, e.text);
  std::vector<Value> values;
  for (std::int64_t i = 0; i < *n; ++i) {
    inner.set(i);
    STELE_TRY_ASSIGN(Value value, e.operands[0].evaluate(inner));
    values.push_back(std::move(value));
  }
  if (values.empty()) return Value(Ints{});
  return joined(values);
}

/// Returns false for an omitted bound of a slice, which is stored as an unknown constant.
bool given(const Expression& bound) { return bound.kind != Expression::Kind::constant || known(bound.constant); }

Result<Value> logical(const Expression& e, const Value& left, const Scope& scope) {
  const bool stops = e.text == "||";  // the value at which evaluation stops
  const auto first = truth_of(left);
  if (first == stops) return Value(stops);
  STELE_TRY_ASSIGN(const Value right, e.operands[1].evaluate(scope));
  const auto second = truth_of(right);
  if (second == stops) return Value(stops);
  if (first && second) return Value(*second);
  return Value();
}

}  // namespace

Error bad_operands(std::string_view what, const Value& a, const Value& b) {
  Error error(Errc::invalid_argument, "the operands do not fit");
  return std::move(error).path(what).found(known(b) ? to_text(a) + ", " + to_text(b) : to_text(a));
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

Result<std::optional<std::int64_t>> arithmetic(char op, std::optional<std::int64_t> left,
                                               std::optional<std::int64_t> right) {
  if (!left || !right) return std::optional<std::int64_t>();
  const std::int64_t a = *left, b = *right;
  std::int64_t result = 0;
  bool overflow = false;
  if (op == '+') overflow = __builtin_add_overflow(a, b, &result);
  if (op == '-') overflow = __builtin_sub_overflow(a, b, &result);
  if (op == '*') overflow = __builtin_mul_overflow(a, b, &result);
  if (op == '/' || op == '%') {
    if (b == 0) return Error(Errc::invalid_argument, "an expression divides by 0");
    overflow = b == -1 && a == std::numeric_limits<std::int64_t>::min();
    // Rounds down, as computations of extents do.
    const std::int64_t rest = overflow ? 0 : a % b;
    const bool down = rest != 0 && (rest < 0) != (b < 0);
    if (!overflow) result = op == '/' ? a / b - (down ? 1 : 0) : rest + (down ? b : 0);
  }
  if (overflow) return Error(Errc::invalid_argument, "an expression overflows 64 bits");
  return std::optional(result);
}

Value value_of(std::optional<std::int64_t> integer) { return integer ? Value(*integer) : Value(Unknown()); }
Value value_of(OpenInts list) {
  if (std::find(list.begin(), list.end(), std::nullopt) != list.end()) return Value(std::move(list));
  Ints known;
  for (const auto& e : list) known.push_back(*e);
  return Value(std::move(known));
}
Value value_of_extents(const Ints& extents) {
  OpenInts list;
  for (const std::int64_t e : extents) list.push_back(e == unknown_extent ? std::nullopt : std::optional(e));
  return value_of(std::move(list));
}
std::optional<Ints> extents_of(const Value& value) {
  if (const auto* ints = std::get_if<Ints>(&value)) return *ints;
  const auto* list = std::get_if<OpenInts>(&value);
  if (list == nullptr) return std::nullopt;
  Ints extents;
  for (const auto& e : *list) extents.push_back(e.value_or(unknown_extent));
  return extents;
}
std::optional<OpenInts> open_list_of(const Value& value) {
  if (std::holds_alternative<Unknown>(value)) return OpenInts{std::nullopt};
  if (const auto* list = std::get_if<OpenInts>(&value)) return *list;
  if (const auto list = list_of<std::int64_t>(value)) return OpenInts(list->begin(), list->end());
  return std::nullopt;
}

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
  if (std::any_of(parts.begin(), parts.end(), open)) {
    OpenInts list;
    for (const Value& part : parts) {
      const auto more = open_list_of(part);
      if (!more) return Value();  // numbers with an unknown number among them
      list.insert(list.end(), more->begin(), more->end());
      if (list.size() > max_list) return Error(Errc::limit, "a list has more than 65536 elements");
    }
    return value_of(std::move(list));
  }
  if (auto ints = all(std::int64_t())) return Value(*std::move(ints));
  if (auto reals = all(double())) return Value(*std::move(reals));
  if (auto strings = all(std::string())) return Value(*std::move(strings));
  if (auto tensors = all(TensorName())) return Value(*std::move(tensors));
  if (total > max_list) return Error(Errc::limit, "a list has more than 65536 elements");
  return Error(Errc::invalid_argument, "the elements of a list have different types").found(to_text(parts.front()));
}

bool is_list(const Value& value) noexcept {
  return std::visit(
      []<class T>(const T&) {
        return requires(const T& v) { v.begin(); }
        &&!std::is_same_v<T, std::string>;
      },
      value);
}

Result<Value> element(const Value& list, const Value& at) {
  if (!known(list) || !known(at) || open(at)) return Value();
  const auto* number = std::get_if<std::int64_t>(&at);
  return std::visit(
      [&]<class T>(const T& elements) -> Result<Value> {
        if constexpr (requires { elements.size(); } && !std::is_same_v<T, std::string>) {
          if (number != nullptr) {
            const auto count = static_cast<std::int64_t>(elements.size());
            const std::int64_t i = *number < 0 ? *number + count : *number;
            const auto k = static_cast<std::size_t>(i);
            if constexpr (std::is_same_v<T, OpenInts>) {
              if (i >= 0 && i < count) return value_of(elements[k]);
            } else {
              if (i >= 0 && i < count) return Value(elements[k]);
            }
          }
        }
        return Error(Errc::invalid_argument, "an index is outside its list")
            .found(to_text(list) + "[" + to_text(at) + "]");
      },
      list);
}

std::string to_text(const Value& value) {
  const auto element_value = []<class T>(const T& e) {
    if constexpr (std::is_same_v<T, std::optional<std::int64_t>>) return value_of(e);
    if constexpr (!std::is_same_v<T, std::optional<std::int64_t>>) return Value(e);
  };
  return std::visit(
      [&]<class T>(const T& v) -> std::string {
        if constexpr (std::is_same_v<T, std::monostate>) {
          return "unknown";
        } else if constexpr (std::is_same_v<T, bool>) {
          return v ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::int64_t>) {
          return std::to_string(v);
        } else if constexpr (std::is_same_v<T, Unknown>) {
          return "?";
        } else if constexpr (std::is_same_v<T, double>) {
          std::array<char, 32> text;
          return {text.data(), std::to_chars(text.data(), text.data() + text.size(), v).ptr};
        } else if constexpr (std::is_same_v<T, std::string>) {
          return "'" + v.substr(0, 80) + "'";
        } else if constexpr (std::is_same_v<T, TensorName>) {
          return v.name.substr(0, 80);
        } else {
          std::string text = "[";
          for (std::size_t i = 0; i < v.size() && i < 16; ++i)
            text += (i != 0 ? ", " : "") + to_text(element_value(v[i]));
          return text + (v.size() > 16 ? ", …]" : "]");
        }
      },
      value);
}

Result<Value> Expression::evaluate(const Scope& scope) const {
  switch (kind) {
    case Kind::constant:
      return constant;
    case Kind::name: {
      STELE_TRY_ASSIGN(const Value* const value, scope.find(text));
      return *value;
    }
    case Kind::index: {
      STELE_TRY_ASSIGN(const Value at, operands[1].evaluate(scope));
      if (operands[0].kind == Kind::name) {  // avoids a copy of the list
        STELE_TRY_ASSIGN(const Value* const list, scope.find(operands[0].text));
        return element(*list, at);
      }
      STELE_TRY_ASSIGN(const Value list, operands[0].evaluate(scope));
      return element(list, at);
    }
    case Kind::call:
      return call(*this, scope);
    case Kind::each:
      return each(*this, scope);
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
    case Kind::slice: {
      STELE_TRY_ASSIGN(const Value from, operands[1].evaluate(scope));
      STELE_TRY_ASSIGN(const Value to, operands[2].evaluate(scope));
      const auto bound = [&](std::size_t i, const Value& value) { return given(operands[i]) ? &value : nullptr; };
      return sliced(first, bound(1, from), bound(2, to));
    }
    case Kind::unary: {
      if (!known(first)) return first;
      if (text == "-") return compute("*", first, Value(std::int64_t{-1}));
      if (open(first)) return Value();
      const auto truth = truth_of(first);
      if (!truth) return bad_operands(text, first);
      return Value(!*truth);
    }
    case Kind::choice: {
      const auto truth = truth_of(first);
      if (!known(first)) return first;
      if (open(first)) return Value();
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

}  // namespace stele::inline v0::detail::ir
