// Names and functions of a declaration's expressions while it runs on a node, and the arguments that they make.
#pragma once

#include <string>
#include <unordered_map>

#include "ir/builder.hpp"
#include "ir/mapping.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace ir {

/// Returns the error of a node that a rule does not cover.
inline Error not_covered(std::string_view message) { return Error(Errc::unsupported, message); }

class NodeScope final : public Scope {
 public:
  NodeScope(const Declaration& declaration, GraphBuilder& to) : declaration_(declaration), to_(to) {}

  void set(const std::string& name, ExpressionValue value) { names_[name] = std::move(value); }
  /// Appends to a list of tensors, in place.
  void append(const std::string& list, TensorName tensor) {
    ExpressionValue& value = names_[list];
    if (!std::holds_alternative<Tensors>(value)) value = Tensors();
    std::get<Tensors>(value).push_back(std::move(tensor));
  }
  Result<const ExpressionValue*> find(std::string_view name) const override;
  Result<std::optional<ExpressionValue>> call(std::string_view function,
                                              std::span<const ExpressionValue> operands) const override;
  /// Calls a function of one operand, which exists.
  Result<ExpressionValue> call(std::string_view function, const ExpressionValue& operand) const;

 private:
  Result<std::optional<ExpressionValue>> joined_extent(std::span<const ExpressionValue> operands) const;
  Result<ExpressionValue> broadcast(const ExpressionValue& operand) const;
  Result<std::optional<ExpressionValue>> make_constant(std::span<const ExpressionValue> operands) const;

  const Declaration& declaration_;
  GraphBuilder& to_;
  mutable std::unordered_map<std::string, ExpressionValue> names_;  // definitions are added when they are used
};

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

/// Adds the arguments that a rule of one of DL4J's kinds makes. Errors: unsupported, those of expressions.
Status run_rule(const Rule& rule, const NodeScope& scope, ArgumentList& list);

}  // namespace ir
}  // namespace detail
}  // namespace v0
}  // namespace stele
