// Imports models of other frameworks as DL4J's graphs, by mapping rules in data files. Component `ir`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "stele/checkpoint.hpp"
#include "stele/input.hpp"
#include "stele/operators.hpp"
#include "stele/options.hpp"
#include "stele/report.hpp"
#include "stele/result.hpp"

namespace stele::inline v0 {

namespace detail::ir {
struct Declaration;
}

using AttributeValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                                    std::vector<double>, std::vector<std::string>>;

/// A node of a framework's graph. Omitted inputs have an empty name.
struct FrameworkNode {
  std::string name, op, domain;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, AttributeValue> attributes;
  friend bool operator==(const FrameworkNode&, const FrameworkNode&) = default;
};

/// Mapping rules that convert each operator of a framework to operators of DL4J. docs/import.md specifies the text.
class STELE_EXPORT MappingSet {
 public:
  MappingSet();
  MappingSet(const MappingSet&);
  MappingSet(MappingSet&&) noexcept;
  MappingSet& operator=(const MappingSet&);
  MappingSet& operator=(MappingSet&&) noexcept;
  ~MappingSet();

  /// Return stele's rules for a framework.
  static const MappingSet& onnx();
  static const MappingSet& tensorflow();
  /// Returns the rules that convert DL4J's operators to operators of ONNX; versions are ONNX's.
  static const MappingSet& to_onnx();
  /// Reads rules in protobuf's text format: a MappingDefinitionSet of ir/proto/mapper.proto. Errors: malformed,
  /// duplicate, limit (more than 1 MiB), those of Input::open().
  static Result<MappingSet> open(const Input& input);

  /// Adds rules. A rule for the same operator, domain and first version replaces the existing one.
  void add(const MappingSet& rules);
  /// Returns the number of declarations.
  std::size_t size() const noexcept { return declarations_.size(); }
  /// A declaration applies to the versions from `since` on, up to the operator's next declaration.
  struct Operator {
    std::string domain, name;
    std::int64_t since = 0, until = 0;
    friend bool operator==(const Operator&, const Operator&) = default;
  };
  /// Returns the operators with declarations, sorted.
  std::vector<Operator> operators() const;

  /// Inverts rules: returns the node that becomes exactly this operation, in a model with this version of the
  /// operator's domain. Errors: missing (the operator does not exist), unsupported (no rule produces exactly this
  /// operation with these arguments), those of named().
  Result<FrameworkNode> inverted(const GraphOperation& operation, std::int64_t version,
                                 const OperatorSet& operators = OperatorSet::nd4j()) const;

  /// Returns the declaration with the greatest first version that applies to an operator of a model with this version
  /// of the operator's domain; nullptr if no declaration applies.
  const detail::ir::Declaration* find(const std::string& domain, const std::string& name,
                                      std::int64_t version) const noexcept;

 private:
  static MappingSet built_in(std::span<const unsigned char> encoded);

  std::vector<std::shared_ptr<const detail::ir::Declaration>> declarations_;  // sorted
};

struct ImportOptions {
  LoadOptions load{};
  /// nullptr: stele's rules for the framework, and OperatorSet::nd4j().
  const MappingSet* mappings = nullptr;
  const OperatorSet* operators = nullptr;
  /// Shapes of inputs that replace the model's shapes. If they replace extents that the model leaves open (-1), the
  /// import can compute more shapes.
  std::map<std::string, std::vector<std::int64_t>> shapes{};
  /// The tensors that become outputs of the graph; empty: the model's outputs. A TensorFlow graph outside a SavedModel
  /// does not name outputs; its outputs are the nodes that no other node reads.
  std::vector<std::string> outputs{};
  /// The function of a SavedModel to import.
  std::string signature = "serving_default";
  /// The import adds a row for each initializer that is not in the result, because no output needs it or the import
  /// computed with it. Documentation strings and names of extents are not part of a graph, and have no rows.
  Report* report = nullptr;
};

/// Reads an ONNX model as a graph that DL4J runs. Its tensors are the parameters, lazy like those of OnnxRecorder; a
/// SameDiffRecorder or an ArchiveRecorder saves the result. Computes everything that depends only on constants and
/// known shapes. Errors: unsupported (lists all nodes without a rule, and those that their rule does not cover, in one
/// message), malformed, shape_mismatch, limit, those of OnnxRecorder::open().
STELE_EXPORT Result<Checkpoint> import_onnx(const Input& model, const ImportOptions& options = {});

/// Reads a TensorFlow graph as a graph that DL4J runs: a GraphDef whose variables are constants (frozen), or the folder
/// of a SavedModel, whose variables are read from its checkpoint, lazily. Tensors keep TensorFlow's names of nodes; the
/// second and further outputs of a node are `name:1` and so on. Calls of functions are expanded. Errors: those of
/// import_onnx(), and missing (a signature, an output, the value of a variable). Control flow is unsupported.
STELE_EXPORT Result<Checkpoint> import_tensorflow(const Input& model, const ImportOptions& options = {});

}  // namespace stele::inline v0
