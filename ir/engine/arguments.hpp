// Arguments of DL4J's operators from the values of expressions.
#pragma once

#include <string>
#include <string_view>

#include "ir/rules/expression.hpp"
#include "stele/operators.hpp"

namespace stele::inline v0::detail::ir {

/// Returns the error of a node that a rule does not cover.
inline Error not_covered(std::string_view message) { return Error(Errc::unsupported, message); }
/// Something that a rule needs depends on what the model does not tell.
inline Error not_known() { return not_covered("the rule needs what the model does not tell"); }
/// The message in place of it where inputs have open extents.
inline constexpr std::string_view needs_extents = "it needs extents that the model leaves open";

/// Adds each argument under the type that its value has.
class ArgumentList {
 public:
  explicit ArgumentList(const OperatorDescriptor& descriptor) : descriptor_(descriptor) {}

  const OperatorDescriptor& descriptor() const noexcept { return descriptor_; }
  bool has(ArgumentType type, const std::string& name) const { return descriptor_.find(type, name) != nullptr; }
  /// Adds the value; nothing if it is unknown. Errors: unsupported (an extent that is not known).
  Status add(const std::string& name, const ExpressionValue& value);

  NamedArguments arguments;

 private:
  Status add_integers(const std::string& name, const Ints& list);

  const OperatorDescriptor& descriptor_;
};

}  // namespace stele::inline v0::detail::ir
