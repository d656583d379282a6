// Exports graphs as ONNX models, by mapping rules in data files. Component `ir`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stele/checkpoint.hpp"
#include "stele/import.hpp"
#include "stele/operators.hpp"
#include "stele/options.hpp"
#include "stele/report.hpp"
#include "stele/result.hpp"
#include "stele/sink.hpp"

namespace stele::inline v0 {

struct ExportOptions {
  /// The version of ONNX's operators: 13 to 22.
  std::int64_t opset = 17;
  /// The same option as OnnxOptions::external: the name of a second file for the elements of larger tensors. Without
  /// it, a model has at most 2^31 - 1 bytes.
  std::string external{};
  /// The variables that become outputs; the export contains only what they need. Empty: the graph's outputs, and all of
  /// its placeholders. A trained graph has its losses as outputs, for which ONNX has no operators.
  std::vector<std::string> outputs{};
  /// nullptr: MappingSet::to_onnx() and OperatorSet::nd4j().
  const MappingSet* mappings = nullptr;
  const OperatorSet* operators = nullptr;
  SaveOptions save{};
};

/// Writes a graph of DL4J's operators, with its parameters, as an ONNX model. Converts each operation to nodes by its
/// declaration, or else by inverting the import rule that produces it. Parameters become initializers, bit for bit. The
/// report has a row for each part that ONNX does not have (loss variables, control dependencies) and for each parameter
/// that no output needs. Errors: unsupported (lists all operations that no rule covers, in one message), malformed,
/// missing (a graph; the dtype of an output), not_representable, invalid_argument (the version), those of
/// OnnxRecorder::save().
STELE_EXPORT Result<Report> export_onnx(const Checkpoint& model, const std::string& path,
                                        const ExportOptions& options = {});
STELE_EXPORT Result<Report> export_onnx(const Checkpoint& model, Sink& sink, const ExportOptions& options = {});

}  // namespace stele::inline v0
