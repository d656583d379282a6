// Builds a graph of ONNX's operators. Their signatures, and shapes of what they make, are those of the rules that
// import them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/engine/engine.hpp"
#include "ir/engine/target.hpp"
#include "stele/import.hpp"

namespace stele::inline v0::detail::ir {

class OnnxBuilder final : public Target {
 public:
  OnnxBuilder(std::int64_t opset, Snapshot tensors, std::uint64_t max_operations)
      : Target(std::move(tensors), max_operations), opset_(opset) {}

  std::int64_t opset() const noexcept override { return opset_; }
  /// Makes an input of the graph known.
  Status add_input(const std::string& name, TensorInfo info);
  using Target::emit;
  Status emit(const StepOperation& step) override;
  /// Adds a node. Errors: those of the other.
  Status emit(ModelNode node);
  std::string_view copy_operator() const noexcept override { return "Identity"; }
  bool rename(const std::string& from, const std::string& to) override;

  /// Makes a constant or leaf a tensor that a node makes. Returns the name that the constant or leaf gets.
  std::string publish(const std::string& name);
  /// Casts a tensor that nodes made to another dtype, under its name.
  Status cast(const std::string& name, DType dtype);
  /// Drops nodes that none of the outputs needs.
  void drop_unused(const std::vector<std::string>& outputs);
  const std::vector<ModelNode>& nodes() const noexcept { return nodes_; }
  /// Returns the initializers.
  Result<Snapshot> initializers() { return snapshot(order_); }

 private:
  Status check(const TensorInfo& info) const override;
  void take(const std::string&, const Tensor&) override {}
  Result<const Declaration*> declaration_of(std::string_view op) const;
  DType dtype_of_output(const ModelNode& node, std::size_t output) const;

  std::int64_t opset_;
  std::vector<ModelNode> nodes_, first_;  // first_: before all others
};

}  // namespace stele::inline v0::detail::ir
