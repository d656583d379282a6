// Graph: a computation graph as data, as SameDiff files and archives hold it. stele saves and loads it; it runs none.
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

namespace stele {
inline namespace v0 {

/// A small array inside a graph: an operation's scalar or property. `bytes` are row-major and little-endian; of the
/// dtype `string`, `strings` has the elements instead.
struct GraphArray {
  DType dtype = DType::none;
  std::vector<std::uint64_t> shape;
  std::vector<std::byte> bytes;
  std::vector<std::string> strings;
  friend bool operator==(const GraphArray&, const GraphArray&) = default;
};

/// The numbers are those of the files (libnd4j's VarType).
enum class VariableKind : std::int8_t { variable = 0, constant = 1, array = 2, placeholder = 3, sequence = 4 };

/// A value that flows in a graph. Its array, where it has one, is a tensor of the same name among the parameters.
struct GraphVariable {
  std::string name;
  VariableKind kind = VariableKind::array;
  DType dtype = DType::none;  // none: not known
  /// Absent: not known; -1: an extent that is not known. Of no axes, while the tensor's shape is [0]: ND4J's empty
  /// scalar.
  std::optional<std::vector<std::int64_t>> shape;
  std::vector<std::string> control_dependencies;         // operations that come before it
  std::vector<std::string> control_dependency_of;        // operations that it comes before
  std::vector<std::string> control_dependencies_of_var;  // variables that it comes before
  friend bool operator==(const GraphVariable&, const GraphVariable&) = default;
};

/// The family of an operation: the numbers are those of the files (libnd4j's OpType).
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

/// A property of an operation as DL4J keeps them, by the name of a Java field; one of the lists is filled.
struct GraphProperty {
  std::string name;
  std::vector<std::int32_t> ints;
  std::vector<std::int64_t> longs;
  std::vector<double> doubles;
  std::vector<GraphArray> arrays;
  std::vector<bool> bools;
  std::vector<std::string> strings;
  std::vector<std::int32_t> shape;  // not empty: the value is an array of this shape
  friend bool operator==(const GraphProperty&, const GraphProperty&) = default;
};

/// Arguments in the order of their positions; a name may be empty.
template <class T>
using GraphArguments = std::vector<std::pair<std::string, T>>;

struct GraphOperation {
  std::string name;
  std::string op_name;
  OpFamily family = OpFamily::custom;
  /// Of a legacy operation its number in the family; of a custom one its hash, or 0: that of `op_name`.
  std::int64_t number = 0;
  std::vector<std::string> inputs;   // names of variables
  std::vector<std::string> outputs;  // likewise
  GraphArguments<std::int64_t> ints;
  GraphArguments<double> doubles;
  GraphArguments<bool> bools;
  GraphArguments<DType> dtypes;
  GraphArguments<std::string> strings;
  std::vector<std::int32_t> dimensions;  // of reductions; 2147483647: all
  std::optional<GraphArray> scalar;      // of the family `scalar`
  std::vector<GraphProperty> properties;
  std::vector<DType> output_dtypes;
  std::vector<std::string> control_dependencies;      // operations that come before it
  std::vector<std::string> var_control_dependencies;  // variables that come before it
  std::vector<std::string> control_dependency_of;     // operations that it comes before
  friend bool operator==(const GraphOperation&, const GraphOperation&) = default;
};

/// Variables and operations; what refers to another says its name. Operations need not be sorted.
struct STELE_EXPORT Graph {
  std::vector<GraphVariable> variables;
  std::vector<GraphOperation> operations;
  std::vector<std::string> loss_variables;
  std::vector<std::string> outputs;
  std::vector<std::pair<std::string, Graph>> sub_graphs;

  /// nullptr where there is none of that name. A walk over all.
  const GraphVariable* find_variable(std::string_view name) const noexcept;
  const GraphOperation* find_operation(std::string_view name) const noexcept;
  /// The numbers of the operations in an order in which each comes behind those that make its inputs and those that it
  /// depends on; a loop is entered once. Errors: malformed (a variable that does not exist, or made twice; a name given
  /// twice).
  Result<std::vector<std::size_t>> order() const;

  // Declared: clang 14 asks what a pair with a Graph can do before it knows Graph.
  Graph();
  Graph(const Graph&);
  Graph(Graph&&) noexcept;
  Graph& operator=(const Graph&);
  Graph& operator=(Graph&&) noexcept;
  ~Graph();
  friend bool operator==(const Graph& a, const Graph& b);
};

inline Graph::Graph() = default;
inline Graph::Graph(const Graph&) = default;
inline Graph::Graph(Graph&&) noexcept = default;
inline Graph& Graph::operator=(const Graph&) = default;
inline Graph& Graph::operator=(Graph&&) noexcept = default;
inline Graph::~Graph() = default;
inline bool operator==(const Graph& a, const Graph& b) {
  return a.variables == b.variables && a.operations == b.operations && a.loss_variables == b.loss_variables &&
         a.outputs == b.outputs && a.sub_graphs == b.sub_graphs;
}

/// libnd4j's hash of a custom operation's name, as files keep it (ops/declarable/impl/OpRegistrator.cpp, helpers/
/// impl/OpTracker; docs/formats/samediff.md).
STELE_EXPORT std::int64_t operation_hash(std::string_view op_name) noexcept;

}  // namespace v0
}  // namespace stele
