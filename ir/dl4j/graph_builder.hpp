// Builds a graph from operations with named arguments, and its parameters from tensors of the model and constants.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "ir/engine/target.hpp"
#include "stele/checkpoint.hpp"
#include "stele/operators.hpp"

namespace stele::inline v0::detail::ir {

/// Returns an operation with the arguments of its operator, in the form of ordered(). Reverses GraphBuilder::emit(),
/// which moves the arguments of legacy operators to the fields where DL4J's files store them. Errors: malformed (a
/// scalar without a value).
Result<GraphOperation> plain_arguments(GraphOperation operation, const OperatorDescriptor& descriptor);

class GraphBuilder final : public Target {
 public:
  GraphBuilder(const OperatorSet& operators, Snapshot tensors, std::uint64_t max_operations)
      : Target(std::move(tensors), max_operations), operators_(operators) {}

  const OperatorSet& operators() const noexcept { return operators_; }

  /// Adds an input of the graph.
  Status add_input(const std::string& name, TensorInfo info);
  Status emit(const StepOperation& step) override;
  Status emit(const OperatorDescriptor& descriptor, const NamedArguments& arguments, const std::string& node) override;
  std::string_view copy_operator() const noexcept override { return "identity"; }
  bool rename(const std::string& from, const std::string& to) override;
  Result<const OperatorDescriptor*> descriptor_of(std::string_view name) const override;
  /// Makes a tensor an output of the graph.
  Status output(const std::string& name);

  /// Returns the graph and its parameters.
  Result<Checkpoint> finish();

 private:
  Status check(const TensorInfo& info) const override;
  void take(const std::string& name, const Tensor& tensor) override;
  Result<NamedArguments> lifted(const OperatorDescriptor& descriptor, NamedArguments arguments,
                                const std::string& node);
  bool moves_bools(const OperatorDescriptor& descriptor, const NamedArguments& arguments) const;
  Status emit_on_bytes(const OperatorDescriptor& descriptor, NamedArguments arguments, const std::string& node);
  Status emit_cast(const std::string& from, const std::string& to, DType dtype, const std::string& node);
  void drop_unused();
  Status make_legacy(GraphOperation& operation, const OperatorDescriptor& descriptor) const;

  const OperatorSet& operators_;
  Graph graph_;
};

}  // namespace stele::inline v0::detail::ir
