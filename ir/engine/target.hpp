// A graph that rules make: the names and constants of its tensors, and their known shapes and dtypes. The derived class
// defines the operations: DL4J's or ONNX's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/engine/tensors.hpp"
#include "stele/operators.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::ir {

/// An operation, as a step of a rule specifies it.
struct StepOperation {
  std::string_view op;
  std::vector<std::pair<std::string, ExpressionValue>> arguments{};
  std::vector<std::vector<std::string>> outputs{};  // names of tensors, for each output of the operator
  std::string name{};
};

class Target {
 public:
  Target(Snapshot tensors, std::uint64_t max_operations)
      : tensors_(std::move(tensors)), max_operations_(max_operations) {}
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  virtual ~Target() = default;

  /// Returns the known properties of a tensor, or nullptr if it does not exist.
  const TensorInfo* find(const std::string& name) const;
  /// Lists at most eight of the named tensors whose shapes are not fully known, with the shapes.
  std::string list_open(const std::vector<std::string>& names) const;
  /// Registers a tensor. Errors: duplicate, unsupported.
  Status add(const std::string& name, TensorInfo info);
  /// Registers a tensor of the model whose elements are a leaf of the snapshot. A small tensor becomes a constant.
  Status add_leaf(const std::string& name, const LeafView& leaf);
  /// Registers a constant under the given name. Errors: duplicate.
  Status add_constant(const std::string& name, Constant constant);
  /// Registers a constant under a new name, and returns the name. Errors: limit (more than 2^21 elements in the rules'
  /// constants).
  Result<std::string> constant(Constant constant);
  /// Counts elements that are computed at import. Returns false once the total exceeds the limit.
  bool spend(std::size_t elements) noexcept;
  /// Reserves a name of the model, so that fresh() does not return it.
  void reserve(const std::string& name) { reserved_.insert(name); }
  /// Returns an unused name, and reserves it.
  std::string fresh(const std::string& base);
  /// Sets the dtype and shape of a tensor, if they are known.
  void refine(const std::string& name, DType dtype, std::optional<std::vector<std::int64_t>> shape);
  /// Sets the elements of a tensor that are known.
  void refine(const std::string& name, Constant partial);

  /// Adds an operation. Adds its inputs to the graph if they are constants or leaves that are not in the graph yet.
  /// Errors: malformed (an operator that does not exist, an input that no operation produces), duplicate, limit (more
  /// operations than `max_operations`), and those of its arguments.
  virtual Status emit(const StepOperation& step) = 0;
  /// Returns the name of the operator that copies its input. The input is named "input".
  virtual std::string_view copy_operator() const noexcept = 0;
  /// Renames an output of the last operation. Returns false if the last operation did not produce this tensor.
  virtual bool rename(const std::string& from, const std::string& to) = 0;
  /// Returns the version of the graph's ONNX operators, which rules read as `opset`; 0 for a graph of DL4J operators.
  virtual std::int64_t opset() const noexcept { return 0; }
  /// Returns the DL4J operator with the given name, for rules of DL4J's kinds. Errors: malformed, unsupported (the
  /// graph has other operators).
  virtual Result<const OperatorDescriptor*> descriptor_of(std::string_view name) const;
  /// Adds an operation of a DL4J operator. Errors: those of ordered() and of the other overload.
  virtual Status emit(const OperatorDescriptor& descriptor, const NamedArguments& arguments, const std::string& node);

 protected:
  struct Tensor {
    TensorInfo info;
    std::uint32_t leaf = no_index;
    bool made = false;  // true if the tensor is part of the graph
  };
  /// Checks that the graph supports the tensor. Errors: unsupported (a dtype, a rank).
  virtual Status check(const TensorInfo& info) const = 0;
  /// Adds a constant or a leaf to the graph.
  virtual void take(const std::string& name, const Tensor& tensor) = 0;

  /// Adds an input of an operation to the graph, if it is not in the graph yet.
  Status use(const std::string& name);
  /// Checks that another operation may be added. Errors: limit.
  Status count_operation(std::size_t operations) const;
  /// Returns a snapshot of the named constants and leaves, in the order of the names.
  Result<Snapshot> snapshot(const std::vector<std::string>& names);
  /// Returns a unique name for an operation.
  std::string unique_operation(const std::string& name);
  void move_known(const std::string& from, const std::string& to);

  Snapshot tensors_;
  std::uint64_t max_operations_;
  std::size_t constant_elements_ = 0, work_ = 0;
  std::unordered_map<std::string, Tensor> known_;
  std::vector<std::string> order_;  // names of the constants and leaves in the graph
  std::unordered_set<std::string> reserved_;
  std::unordered_map<std::string, std::uint64_t> operation_names_;  // by name: the number of the last duplicate
  std::unordered_map<std::string, std::uint64_t> next_;             // by base name: the next number for fresh()
};

}  // namespace stele::inline v0::detail::ir
