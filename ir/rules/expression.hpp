// The expressions of mapping rules: arithmetic on a node's attributes and on the shapes and constants of its inputs.
// docs/import.md specifies them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stele/result.hpp"

namespace stele::inline v0::detail::ir {

/// An open extent of a shape, or an element that is computed from one: where those are plain integers.
inline constexpr std::int64_t unknown_extent = std::numeric_limits<std::int64_t>::min();
/// An integer that the model does not tell. Arithmetic with it yields it again.
struct Unknown {
  friend bool operator==(Unknown, Unknown) = default;
};

/// The name of a tensor of the model or of a step; empty: an input that is not given.
struct TensorName {
  std::string name;
  friend bool operator==(const TensorName&, const TensorName&) = default;
};

using Ints = std::vector<std::int64_t>;
using Reals = std::vector<double>;
using Tensors = std::vector<TensorName>;
/// A list of integers of which at least one is not known.
using OpenInts = std::vector<std::optional<std::int64_t>>;
/// The value of an expression. std::monostate: nothing is known or given. Lists have at most max_list elements.
using ExpressionValue =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, TensorName, std::vector<std::int64_t>,
                 std::vector<double>, std::vector<std::string>, std::vector<TensorName>, Unknown, OpenInts>;

inline constexpr std::size_t max_list = 1 << 16;
inline constexpr std::size_t max_each = 4096;  // of `[... for i in n]`

inline bool known(const ExpressionValue& value) noexcept { return !std::holds_alternative<std::monostate>(value); }
/// Returns true for an integer that is not known, and for a list that has one.
inline bool open(const ExpressionValue& value) noexcept {
  return std::holds_alternative<Unknown>(value) || std::holds_alternative<OpenInts>(value);
}
/// Return integers as a value, and as plain integers with unknown_extent; the reverse.
ExpressionValue value_of(std::optional<std::int64_t> integer);
ExpressionValue value_of(OpenInts list);
ExpressionValue value_of_extents(const Ints& extents);
/// nullopt: the value is no list of integers.
std::optional<Ints> extents_of(const ExpressionValue& value);
bool is_list(const ExpressionValue& value) noexcept;
/// Returns the value as text, for messages.
std::string to_text(const ExpressionValue& value);
/// Returns an element; a negative position counts from the end. Unknown if the list or the position is. Errors:
/// invalid_argument (it is no list, or does not have this element).
Result<ExpressionValue> element(const ExpressionValue& list, const ExpressionValue& at);

/// Gives values to the names and functions of an expression.
class Scope {
 public:
  virtual ~Scope() = default;
  /// Returns the value of a name, valid until the next call. Errors: missing (there is none).
  virtual Result<const ExpressionValue*> find(std::string_view name) const = 0;
  /// Returns the value of a function of tensors (docs/import.md); nullopt: there is none of that name.
  virtual Result<std::optional<ExpressionValue>> call(std::string_view function,
                                                      std::span<const ExpressionValue> operands) const = 0;
};

/// A parsed expression.
struct Expression {
  /// each: a list of values of operands[0], for a variable from 0 to operands[1] - 1.
  enum class Kind : std::uint8_t { constant, name, list, each, index, slice, unary, binary, choice, call };
  Kind kind = Kind::constant;
  ExpressionValue constant{};
  std::string text{};  // the name, the variable, the operator or the function
  std::vector<Expression> operands{};

  /// Returns the value. Errors: missing (a name), invalid_argument (operands that the operator or function does not
  /// take, an index outside, overflow, division by 0), limit (a list too long).
  Result<ExpressionValue> evaluate(const Scope& scope) const;
};

/// A step of a composite mapping: `a, b = operator(name: expression, ...) for i in expression if expression`.
struct Step {
  struct Output {
    std::string name;
    std::optional<Expression> count{};  // the output is a list of that many tensors
  };
  struct Argument {
    std::string name;
    Expression value;
  };
  std::vector<Output> outputs;
  std::string op_name;
  std::vector<Argument> arguments;
  std::string variable{};  // of `for`; empty: no loop
  std::optional<Expression> repeats{};
  std::optional<Expression> condition{};  // the step is left out if this is not true
};

/// Errors of both: malformed; the offset is the column.
Result<Expression> parse_expression(std::string_view text);
Result<Step> parse_step(std::string_view text);

}  // namespace stele::inline v0::detail::ir
