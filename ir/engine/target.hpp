// A graph that rules make: what is known of its tensors, their names, and constants. What an operation is, DL4J's or
// ONNX's, is up to the derived class.
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

/// An operation as a step of a rule tells it.
struct StepOperation {
  std::string_view op;
  std::vector<std::pair<std::string, ExpressionValue>> arguments{};
  std::vector<std::vector<std::string>> outputs{};  // names of tensors, by output of the operator
  std::string name{};
};

class Target {
 public:
  Target(Snapshot tensors, std::uint64_t max_operations)
      : tensors_(std::move(tensors)), max_operations_(max_operations) {}
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  virtual ~Target() = default;

  /// Returns what is known of a tensor; nullptr: there is none.
  const TensorInfo* find(const std::string& name) const;
  /// Lists those of these tensors whose shapes are not known in full, with the shapes: at most eight.
  std::string list_open(const std::vector<std::string>& names) const;
  /// Makes a tensor known. Errors: duplicate, unsupported.
  Status add(const std::string& name, TensorInfo info);
  /// Makes a tensor of the model known, whose elements are a leaf of the snapshot. Small ones are constants.
  Status add_leaf(const std::string& name, const LeafView& leaf);
  /// Makes a constant known under a name. Errors: duplicate.
  Status add_constant(const std::string& name, Constant constant);
  /// Makes a constant under a name of its own, which it returns. Errors: limit (the rules' constants have more than
  /// 2^21 elements).
  Result<std::string> constant(Constant constant);
  /// Counts work of computing elements at import. Returns false from the one that is too much on.
  bool spend(std::size_t elements) noexcept;
  /// Keeps a name of the model from fresh().
  void reserve(const std::string& name) { reserved_.insert(name); }
  /// Returns a name that nothing else has, and reserves it.
  std::string fresh(const std::string& base);
  /// Sets what is known of a tensor that an operation made.
  void refine(const std::string& name, DType dtype, std::optional<std::vector<std::int64_t>> shape);
  /// Sets what is known of the elements.
  void refine(const std::string& name, Constant partial);

  /// Adds an operation. Its inputs become part of the graph, if they are constants or leaves that are not yet. Errors:
  /// malformed (an operator that does not exist, an input that nothing makes), those of its arguments, duplicate,
  /// limit (more operations than `max_operations`).
  virtual Status emit(const StepOperation& step) = 0;
  /// Returns the operator that copies its input, which is named "input".
  virtual std::string_view copy_operator() const noexcept = 0;
  /// Renames what the last operation made. Returns false if it did not make this tensor.
  virtual bool rename(const std::string& from, const std::string& to) = 0;
  /// Returns the version of ONNX's operators that the graph has, which rules see as `opset`; 0: it has DL4J's.
  virtual std::int64_t opset() const noexcept { return 0; }
  /// Returns DL4J's operator of that name, for rules of DL4J's kinds. Errors: malformed, unsupported (the graph has
  /// other operators).
  virtual Result<const OperatorDescriptor*> descriptor_of(std::string_view name) const;
  /// Adds an operation of such an operator. Errors: those of ordered(), and of the other.
  virtual Status emit(const OperatorDescriptor& descriptor, const NamedArguments& arguments, const std::string& node);

 protected:
  struct Tensor {
    TensorInfo info;
    std::uint32_t leaf = no_index;
    bool made = false;  // it is part of the graph
  };
  /// Errors: unsupported (a dtype, a rank).
  virtual Status check(const TensorInfo& info) const = 0;
  /// Puts a constant or a leaf into the graph.
  virtual void take(const std::string& name, const Tensor& tensor) = 0;

  /// Makes an input of an operation part of the graph.
  Status use(const std::string& name);
  /// Counts an operation.
  Status count_operation(std::size_t operations) const;
  /// Puts the constants and leaves in the graph into a snapshot, in that order.
  Result<Snapshot> snapshot(const std::vector<std::string>& names);
  /// Returns the snapshot's name of an operation.
  std::string unique_operation(const std::string& name);
  void move_known(const std::string& from, const std::string& to);

  Snapshot tensors_;
  std::uint64_t max_operations_;
  std::size_t constant_elements_ = 0, work_ = 0;
  std::unordered_map<std::string, Tensor> known_;
  std::vector<std::string> order_;  // of the constants and leaves in the graph
  std::unordered_set<std::string> reserved_;
  std::unordered_map<std::string, std::uint64_t> operation_names_;  // with the next number for each
  std::unordered_map<std::string, std::uint64_t> next_;             // number for a name
};

}  // namespace stele::inline v0::detail::ir
