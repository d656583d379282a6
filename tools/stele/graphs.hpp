// Models of other programs as graphs. Needs the component ir; without it, the command reports its absence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <stele/checkpoint.hpp>
#include <stele/report.hpp>

#include "model.hpp"

namespace stele::command {

/// The choice of what to import.
struct GraphChoice {
  std::vector<std::string> shapes{};   // NAME=1,3,?
  std::vector<std::string> outputs{};  // tensors
  std::string signature{};             // signature of a SavedModel; empty: serving_default
  std::string mappings{};              // a file of rules that go before stele's
  std::string tag{};                   // tag of an archive; empty: the newest
};

/// Returns true if files of the format have graphs of DL4J.
bool holds_graphs(const Format& format);
/// Returns true if the model has a graph of another program: an ONNX file, or the folder of a SavedModel.
bool has_foreign_graph(const Model& model);
/// Opens a model of ONNX or TensorFlow, or of DL4J, with its graph. Errors: unsupported (the command has no component
/// ir), missing (a graph), those of import_onnx() and import_tensorflow().
Result<Checkpoint> open_graph(const std::string& path, const GraphChoice& choice, Report& report, unsigned threads);
/// Writes a graph as an ONNX model with this version of its operators. Errors: those of export_onnx().
Result<Report> write_onnx(const Checkpoint& model, const std::string& path, std::int64_t opset,
                          const SaveOptions& save);

}  // namespace stele::command
