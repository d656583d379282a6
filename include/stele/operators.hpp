// Operators of DL4J's graphs (libnd4j): names, types and order of their arguments. Component `ir`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stele/graph.hpp"
#include "stele/input.hpp"
#include "stele/result.hpp"

namespace stele::inline v0 {

/// The type of an argument. Each type has separate positions, those of a list in GraphOperation: inputs, outputs, ints
/// (DL4J's iArgs), doubles (tArgs), bools (bArgs), dtypes (dArgs), strings.
enum class ArgumentType : std::uint8_t { input, output, integer, real, boolean, dtype, string };

/// Returns "input", "output", "integer", "real", "boolean", "dtype" or "string".
STELE_EXPORT std::string_view name(ArgumentType type) noexcept;

struct ArgumentDescriptor {
  std::string name;
  ArgumentType type = ArgumentType::input;
  bool optional = false;
  /// The argument takes one or more consecutive values.
  bool repeated = false;
  /// The value of an optional integer, real or boolean argument that is omitted although a later argument is given.
  std::variant<std::monostate, std::int64_t, double, bool> default_value{};
  /// The name of the integer or boolean argument that is nonzero if this input or output is present. An absent one has
  /// no position. Empty if the argument does not exist.
  std::string present_if{};
  friend bool operator==(const ArgumentDescriptor&, const ArgumentDescriptor&) = default;
};

/// How libnd4j declares an operator: the macro, as stored in DL4J's files (OpDeclarationType).
enum class OperatorDeclaration : std::uint8_t {
  custom = 0,
  boolean = 1,
  list = 2,
  logic = 3,
  op = 4,
  divergent = 6,
  configurable = 7,
  reduction = 8,
  broadcastable = 9,
  broadcastable_bool = 10,
  legacy = 11,
  platform = 12,
};

struct STELE_EXPORT OperatorDescriptor {
  std::string name;
  OperatorDeclaration declaration = OperatorDeclaration::custom;
  /// The version of the operator set that added the operator; 0: all versions contain it.
  std::int64_t since_version = 0;
  bool deprecated = false;
  /// The operator's family in DL4J's files: a legacy operator has a number in a family.
  OpFamily family = OpFamily::custom;
  std::int64_t number = 0;
  /// Sorted by type, and by position within each type.
  std::vector<ArgumentDescriptor> arguments;

  /// Returns the argument with that type and name, or nullptr.
  const ArgumentDescriptor* find(ArgumentType type, std::string_view name) const noexcept;
  friend bool operator==(const OperatorDescriptor&, const OperatorDescriptor&) = default;
};

/// Operators by name.
class STELE_EXPORT OperatorSet {
 public:
  OperatorSet() = default;
  /// Returns the operators of libnd4j: the 705 of January 2021 (docs/generated/operators.md).
  static const OperatorSet& nd4j();
  /// Reads descriptors in protobuf's text format: an OpDescriptorList of ir/proto/op.proto, or DL4J's
  /// nd4j-op-def.pbtxt. Errors: malformed, duplicate, limit (more than 1 MiB), those of Input::open().
  static Result<OperatorSet> open(const Input& input);

  /// Adds operators. An operator replaces an existing one with the same name.
  void add(const OperatorSet& operators);
  /// Returns the operator with that name, or nullptr.
  const OperatorDescriptor* find(std::string_view name) const noexcept;
  /// Returns all operators, sorted by name.
  std::span<const OperatorDescriptor> all() const noexcept { return operators_; }
  /// Returns the text that open() reads. `for_dl4j`: without defaults and versions, which DL4J refuses in text.
  std::string to_text(bool for_dl4j = false) const;

 private:
  std::vector<OperatorDescriptor> operators_;
};

/// The arguments of an operation by name. Arguments of one type may be in any order; the values of a repeated argument
/// are consecutive. Inputs and outputs are names of variables.
struct NamedArguments {
  GraphArguments<std::string> inputs, outputs;
  GraphArguments<std::int64_t> ints;
  GraphArguments<double> doubles;
  GraphArguments<bool> bools;
  GraphArguments<DType> dtypes;
  GraphArguments<std::string> strings;
  std::vector<std::int32_t> dimensions;  // axes of legacy reductions, as in GraphOperation
  std::optional<GraphArray> scalar;      // for the family `scalar`, as in GraphOperation
  friend bool operator==(const NamedArguments&, const NamedArguments&) = default;
};

/// Returns an operation with the arguments in the order of their positions. An omitted optional argument before a
/// specified argument gets its default. Errors, whose path is operator.argument: invalid_argument (the operator does
/// not have the argument, or its present_if excludes it), kind_mismatch (it has another type), duplicate, missing (a
/// required argument, or an omitted argument without a default before a given one).
STELE_EXPORT Result<GraphOperation> ordered(const OperatorDescriptor& descriptor, const NamedArguments& arguments);

/// Returns the operation's arguments under the descriptor's names, which replace their own names. A repeated argument
/// takes all values that no later argument needs. A legacy operation with a scalar needs no real argument. ordered()
/// inverts this function: it returns the same positions. Errors: missing, invalid_argument (more arguments than the
/// operator has, or another operator).
STELE_EXPORT Result<NamedArguments> named(const OperatorDescriptor& descriptor, const GraphOperation& operation);

}  // namespace stele::inline v0
