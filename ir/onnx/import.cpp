#include "ir/dl4j/importer.hpp"
#include "ir/onnx/graph.hpp"
#include "ir/onnx/rewrite.hpp"

namespace stele::inline v0 {

Result<Checkpoint> import_onnx(const Input& model, const ImportOptions& options) {
  return detail::guarded([&]() -> Result<Checkpoint> {
    STELE_TRY_ASSIGN(SourcePtr source, model.open("", options.load));
    const std::uint64_t bytes = source->size();
    auto graph = detail::ir::read_onnx(std::move(source), options.load);
    if (!graph) return std::move(graph).error();
    detail::ir::rewrite(*graph, bytes);
    if (!options.outputs.empty()) graph->outputs.clear();
    for (const std::string& name : options.outputs) graph->outputs.push_back({.name = name, .shape = {}});
    auto imported = detail::ir::import_graph(*std::move(graph), MappingSet::onnx(), options, bytes);
    if (!imported && imported.error().file().empty()) return std::move(imported).error().file(model.name());
    return imported;
  });
}

}  // namespace stele::inline v0
