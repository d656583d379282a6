// The names and functions that a declaration's expressions use for one node, and the arguments that rules make from
// them.
#pragma once

#include <string>
#include <unordered_map>

#include "ir/engine/arguments.hpp"
#include "ir/engine/target.hpp"
#include "ir/rules/mapping.hpp"

namespace stele::inline v0::detail::ir {

class NodeScope final : public Scope {
 public:
  NodeScope(const Declaration& declaration, Target& to) : declaration_(declaration), to_(to) {}

  void set(const std::string& name, ExpressionValue value) { names_[name] = std::move(value); }
  /// Appends to a list of tensors in place.
  void append(const std::string& list, TensorName tensor) {
    ExpressionValue& value = names_[list];
    if (!std::holds_alternative<Tensors>(value)) value = Tensors();
    std::get<Tensors>(value).push_back(std::move(tensor));
  }
  Result<const ExpressionValue*> find(std::string_view name) const override;
  Result<std::optional<ExpressionValue>> call(std::string_view function,
                                              std::span<const ExpressionValue> operands) const override;
  /// Calls a function that has one operand. The function must exist.
  Result<ExpressionValue> call(std::string_view function, const ExpressionValue& operand) const;

 private:
  Result<std::optional<ExpressionValue>> joined_extent(std::span<const ExpressionValue> operands) const;
  Result<ExpressionValue> broadcast(const ExpressionValue& operand) const;
  Result<std::optional<ExpressionValue>> make_constant(std::span<const ExpressionValue> operands) const;

  const Declaration& declaration_;
  Target& to_;
  mutable std::unordered_map<std::string, ExpressionValue> names_;  // definitions are added at their first use
};

/// Adds the arguments that a rule in DL4J's syntax specifies. Errors: unsupported, and those of expressions.
Status run_rule(const Rule& rule, const NodeScope& scope, ArgumentList& list);

}  // namespace stele::inline v0::detail::ir
