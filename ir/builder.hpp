// Builds a graph from operations with named arguments, and its parameters from tensors of the model and constants.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/tensors.hpp"
#include "stele/checkpoint.hpp"
#include "stele/operators.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace ir {

/// Returns an operation with the arguments of its operator, as ordered() makes it: GraphBuilder::emit() moves those of
/// legacy operators to where DL4J's files have them. Errors: malformed (a scalar without a value).
Result<GraphOperation> plain_arguments(GraphOperation operation, const OperatorDescriptor& descriptor);

class GraphBuilder {
 public:
  GraphBuilder(const OperatorSet& operators, Snapshot tensors, std::uint64_t max_operations)
      : operators_(operators), tensors_(std::move(tensors)), max_operations_(max_operations) {}

  const OperatorSet& operators() const noexcept { return operators_; }

  /// Returns what is known of a tensor; nullptr: there is none.
  const TensorInfo* find(const std::string& name) const;
  /// Makes a tensor known. Errors: duplicate.
  Status add(const std::string& name, TensorInfo info);
  /// Makes a tensor of the model known, whose elements are a leaf of the snapshot. Small ones are constants.
  Status add_leaf(const std::string& name, LeafView leaf);
  /// Makes an input of the graph.
  Status add_input(const std::string& name, TensorInfo info);
  /// Makes a constant under a name of its own, which it returns. Errors: limit (the rules' constants have more than
  /// 2^21 elements).
  Result<std::string> constant(Constant constant);
  /// Keeps a name of the model from fresh().
  void reserve(const std::string& name) { reserved_.insert(name); }
  /// Returns a name that nothing else has, and reserves it.
  std::string fresh(const std::string& base);
  /// Adds an operation. Its inputs become variables of the graph, if they are constants or leaves that are not yet.
  /// Errors: those of ordered(), malformed (an input that nothing makes), duplicate, out_of_range (a scalar), limit
  /// (more operations than `max_operations`).
  Status emit(const OperatorDescriptor& descriptor, const NamedArguments& arguments, const std::string& node);
  /// Renames what the last operation made. Returns false if it did not make this tensor.
  bool rename(const std::string& from, const std::string& to);
  /// Makes a tensor an output of the graph.
  Status output(const std::string& name);
  /// Sets what is known of a tensor that an operation made.
  void refine(const std::string& name, DType dtype, std::optional<std::vector<std::int64_t>> shape);
  /// Sets what is known of the elements.
  void refine(const std::string& name, Constant partial);

  /// Returns the graph and its parameters.
  Result<Checkpoint> finish();

 private:
  struct Tensor {
    TensorInfo info;
    std::uint32_t leaf = no_index;
    bool made = false;  // it is a variable of the graph
  };
  Status use(const std::string& name);
  Result<NamedArguments> lifted(const OperatorDescriptor& descriptor, NamedArguments arguments,
                                const std::string& node);
  void drop_unused();
  Status make_legacy(GraphOperation& operation, const OperatorDescriptor& descriptor) const;

  const OperatorSet& operators_;
  Snapshot tensors_;
  std::uint64_t max_operations_;
  std::size_t constant_elements_ = 0;
  std::unordered_map<std::string, Tensor> known_;
  std::vector<std::string> order_;  // of the variables
  Graph graph_;
  std::unordered_set<std::string> reserved_;
  std::unordered_map<std::string, std::uint64_t> operation_names_;  // with the next number for each
  std::unordered_map<std::string, std::uint64_t> next_;             // number for a name
};

}  // namespace ir
}  // namespace detail
}  // namespace v0
}  // namespace stele
