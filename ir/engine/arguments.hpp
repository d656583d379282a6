// Converts the values of expressions to arguments of DL4J's operators.
#pragma once

#include <string>
#include <string_view>

#include "ir/rules/expression.hpp"
#include "stele/operators.hpp"

namespace stele::inline v0::detail::ir {

/// Returns the error for a node that a rule does not cover.
inline Error not_covered(std::string_view message) { return Error(Errc::unsupported, message); }
/// Returns the error for a rule that needs a value which the model does not declare.
inline Error not_known() { return not_covered("the rule needs a value that the model does not declare"); }
/// Replaces the message of not_known() if inputs have open extents.
inline constexpr std::string_view needs_extents = "it needs extents that the model leaves open";

/// Collects arguments, each under the type of its value.
class ArgumentList {
 public:
  explicit ArgumentList(const OperatorDescriptor& descriptor) : descriptor_(descriptor) {}

  const OperatorDescriptor& descriptor() const noexcept { return descriptor_; }
  bool has(ArgumentType type, const std::string& name) const { return descriptor_.find(type, name) != nullptr; }
  /// Adds the value. Adds nothing if the value is unknown. Errors: unsupported (an unknown extent).
  Status add(const std::string& name, const ExpressionValue& value);

  NamedArguments arguments;

 private:
  Status add_integers(const std::string& name, const Ints& list);

  const OperatorDescriptor& descriptor_;
};

}  // namespace stele::inline v0::detail::ir
