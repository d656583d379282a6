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

/// An open extent of a shape, or an element that is computed from one, in lists of plain integers.
inline constexpr std::int64_t unknown_extent = std::numeric_limits<std::int64_t>::min();
/// An integer that the model leaves open. Arithmetic with it gives Unknown.
struct Unknown {
  friend bool operator==(Unknown, Unknown) = default;
};

/// The name of a tensor of the model or of a step. Empty for an input that is not given.
struct TensorName {
  std::string name;
  friend bool operator==(const TensorName&, const TensorName&) = default;
};

using Ints = std::vector<std::int64_t>;
using Reals = std::vector<double>;
using Tensors = std::vector<TensorName>;
/// A list of integers, at least one of which is unknown.
using OpenInts = std::vector<std::optional<std::int64_t>>;
/// The value of an expression. std::monostate: unknown or not given. Lists have at most max_list elements.
using ExpressionValue =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, TensorName, std::vector<std::int64_t>,
                 std::vector<double>, std::vector<std::string>, std::vector<TensorName>, Unknown, OpenInts>;

inline constexpr std::size_t max_list = 1 << 16;
inline constexpr std::size_t max_each = 4096;  // maximum n of `[... for i in n]`

inline bool known(const ExpressionValue& value) noexcept { return !std::holds_alternative<std::monostate>(value); }
/// Returns true for an unknown integer, and for a list that contains one.
inline bool open(const ExpressionValue& value) noexcept {
  return std::holds_alternative<Unknown>(value) || std::holds_alternative<OpenInts>(value);
}
/// Return a value for an integer, for a list, and for plain integers with unknown_extent.
ExpressionValue value_of(std::optional<std::int64_t> integer);
ExpressionValue value_of(OpenInts list);
ExpressionValue value_of_extents(const Ints& extents);
/// Returns a list as plain integers with unknown_extent, or nullopt if the value is not a list of integers.
std::optional<Ints> extents_of(const ExpressionValue& value);
bool is_list(const ExpressionValue& value) noexcept;
/// Returns the value as text, for messages.
std::string to_text(const ExpressionValue& value);
/// Returns an element of a list. A negative position counts from the end. The element is unknown if the list or the
/// position is unknown. Errors: invalid_argument (not a list, or no such element).
Result<ExpressionValue> element(const ExpressionValue& list, const ExpressionValue& at);

/// Provides the values of an expression's names and functions.
class Scope {
 public:
  virtual ~Scope() = default;
  /// Returns the value of a name, valid until the next call. Errors: missing (the name is not defined).
  virtual Result<const ExpressionValue*> find(std::string_view name) const = 0;
  /// Returns the value of a function of tensors (docs/import.md), or nullopt if no such function exists.
  virtual Result<std::optional<ExpressionValue>> call(std::string_view function,
                                                      std::span<const ExpressionValue> operands) const = 0;
};

/// A parsed expression.
struct Expression {
  /// each: the list of the values of operands[0] for a variable from 0 to operands[1] - 1.
  enum class Kind : std::uint8_t { constant, name, list, each, index, slice, unary, binary, choice, call };
  Kind kind = Kind::constant;
  ExpressionValue constant{};
  std::string text{};  // the name, the variable, the operator or the function
  std::vector<Expression> operands{};

  /// Returns the value. Errors: missing (a name), invalid_argument (operands that do not fit the operator or function,
  /// an index outside its list, overflow, division by 0), limit (a list that is too long).
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
  std::string variable{};  // the variable of `for`; empty if the step has no loop
  std::optional<Expression> repeats{};
  std::optional<Expression> condition{};  // the step is skipped unless the condition is true
};

/// Parse an expression or a step. Errors: malformed. The error's offset is the column.
Result<Expression> parse_expression(std::string_view text);
Result<Step> parse_step(std::string_view text);

}  // namespace stele::inline v0::detail::ir
