// Builds a graph of ONNX operators that onnxruntime runs. The rules that import these operators provide their
// signatures and the shapes of their outputs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
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
  /// Registers an input of the graph.
  Status add_input(const std::string& name, TensorInfo info);
  using Target::emit;
  Status emit(const StepOperation& step) override;
  /// Adds a node, with casts around it if onnxruntime runs the operator only on other dtypes. Errors: those of the
  /// other overload, unsupported (onnxruntime does not run the operator).
  Status emit(ModelNode node);
  std::string_view copy_operator() const noexcept override { return "Identity"; }
  bool rename(const std::string& from, const std::string& to) override;

  /// Makes a constant or leaf the output of a node that copies it. Returns the new name of the constant or leaf.
  std::string publish(const std::string& name);
  /// Casts a tensor that a node produces to another dtype. The result keeps the tensor's name.
  Status cast(const std::string& name, DType dtype);
  /// Drops nodes that no output needs.
  void drop_unused(const std::vector<std::string>& outputs);
  const std::vector<ModelNode>& nodes() const noexcept { return nodes_; }
  /// Returns, for the nodes whose casts may lose digits, the names of the nodes and the dtypes.
  std::vector<std::pair<std::string, std::string>> inexact() const;
  /// Returns the initializers.
  Result<Snapshot> initializers() { return snapshot(order_); }

 private:
  Status check(const TensorInfo& info) const override;
  void take(const std::string&, const Tensor&) override {}
  Result<const Declaration*> declaration_of(std::string_view op) const;
  DType dtype_of_output(const ModelNode& node, std::size_t output) const;
  DType dtype_of(const std::string& name) const;
  /// Appends a node whose inputs and outputs are known.
  Status append(ModelNode node);
  void append_cast(const std::string& from, const std::string& to);

  std::int64_t opset_;
  std::vector<ModelNode> nodes_, first_;                  // first_: nodes before all other nodes
  std::unordered_map<std::string, std::string> inexact_;  // by the name of a node
};

}  // namespace stele::inline v0::detail::ir
