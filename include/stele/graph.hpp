// Graph: a computation graph as data, as in SameDiff files and archives. stele saves and loads graphs, but does not run
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/dtype.hpp"
#include "stele/result.hpp"

namespace stele::inline v0 {

/// A small array in a graph: an operation's scalar or property. `bytes` are row-major and little-endian; if the dtype
/// is `string`, `strings` contains the elements instead.
struct GraphArray {
  DType dtype = DType::none;
  std::vector<std::uint64_t> shape;
  std::vector<std::byte> bytes;
  std::vector<std::string> strings;
  friend bool operator==(const GraphArray&, const GraphArray&) = default;
};

/// The kind of a variable. Files store these numbers (libnd4j's VarType).
enum class VariableKind : std::int8_t { variable = 0, constant = 1, array = 2, placeholder = 3, sequence = 4 };

/// A value in a graph. Its array, if there is one, is the parameter tensor with the same name.
struct GraphVariable {
  std::string name;
  VariableKind kind = VariableKind::array;
  DType dtype = DType::none;  // none: unknown
  /// nullopt: unknown; -1: an unknown extent. If it has no axes but the tensor's shape is [0], the array is ND4J's
  /// empty scalar.
  std::optional<std::vector<std::int64_t>> shape;
  std::vector<std::string> control_dependencies;         // operations that come before it
  std::vector<std::string> control_dependency_of;        // operations that come after it
  std::vector<std::string> control_dependencies_of_var;  // variables that come before it
  friend bool operator==(const GraphVariable&, const GraphVariable&) = default;
};

/// The family of an operation. Files store these numbers (libnd4j's OpType).
enum class OpFamily : std::int8_t {
  transform_float = 0,
  transform_same = 1,
  transform_bool = 2,
  transform_strict = 3,
  transform_any = 4,
  reduce_float = 5,
  reduce_same = 6,
  reduce_long = 7,
  reduce_bool = 8,
  index_reduce = 9,
  scalar = 10,
  scalar_bool = 11,
  broadcast = 12,
  broadcast_bool = 13,
  pairwise = 14,
  pairwise_bool = 15,
  reduce_3 = 16,
  summary_stats = 17,
  shape = 18,
  aggregation = 19,
  random = 20,
  custom = 21,
  graph = 22,
  variable = 40,
  boolean = 60,
  logic = 119,
};

/// A property of an operation, as DL4J stores it: the name of a Java field, and a value in one of the lists.
struct GraphProperty {
  std::string name;
  std::vector<std::int32_t> ints;
  std::vector<std::int64_t> longs;
  std::vector<double> doubles;
  std::vector<GraphArray> arrays;
  std::vector<bool> bools;
  std::vector<std::string> strings;
  std::vector<std::int32_t> shape;  // if not empty, the value is an array of this shape
  friend bool operator==(const GraphProperty&, const GraphProperty&) = default;
};

/// Arguments in the order of their positions; names may be empty.
template <class T>
using GraphArguments = std::vector<std::pair<std::string, T>>;

struct GraphOperation {
  std::string name;
  std::string op_name;
  OpFamily family = OpFamily::custom;
  /// For a legacy operation, its number in the family. For a custom operation, its hash; 0 means the hash of `op_name`.
  std::int64_t number = 0;
  std::vector<std::string> inputs;   // names of variables
  std::vector<std::string> outputs;  // names of variables
  GraphArguments<std::int64_t> ints;
  GraphArguments<double> doubles;
  GraphArguments<bool> bools;
  GraphArguments<DType> dtypes;
  GraphArguments<std::string> strings;
  std::vector<std::int32_t> dimensions;  // axes of reductions; 2147483647: all axes
  std::optional<GraphArray> scalar;      // for the family `scalar`
  std::vector<GraphProperty> properties;
  std::vector<DType> output_dtypes;
  std::vector<std::string> control_dependencies;      // operations that come before it
  std::vector<std::string> var_control_dependencies;  // variables that come before it
  std::vector<std::string> control_dependency_of;     // operations that come after it
  friend bool operator==(const GraphOperation&, const GraphOperation&) = default;
};

/// Variables and operations, which refer to each other by name. Operations may be in any order.
struct STELE_EXPORT Graph {
  std::vector<GraphVariable> variables;
  std::vector<GraphOperation> operations;
  std::vector<std::string> loss_variables;
  std::vector<std::string> outputs;
  std::vector<std::pair<std::string, Graph>> sub_graphs;

  /// Returns the variable or operation with that name, or nullptr. Takes linear time.
  const GraphVariable* find_variable(std::string_view name) const noexcept;
  const GraphOperation* find_operation(std::string_view name) const noexcept;
  /// Returns the indices of the operations in an order in which each comes after its dependencies and the operations
  /// that produce its inputs; a loop is entered once. Errors: malformed (a variable that does not exist or that two
  /// operations produce; a duplicate name).
  Result<std::vector<std::size_t>> order() const;

  // Not defaulted in the class: clang 14 examines a pair that contains a Graph before Graph is complete.
  Graph();
  Graph(const Graph&);
  Graph(Graph&&) noexcept;
  Graph& operator=(const Graph&);
  Graph& operator=(Graph&&) noexcept;
  ~Graph();
  friend STELE_EXPORT bool operator==(const Graph& a, const Graph& b);
};

/// Returns libnd4j's hash of a custom operation's name, as stored in files (ops/declarable/impl/OpRegistrator.cpp,
/// helpers/impl/OpTracker; docs/formats/samediff.md).
STELE_EXPORT std::int64_t operation_hash(std::string_view op_name) noexcept;

}  // namespace stele::inline v0
