// Imported models compute what the originals do: the interpreter of the tests runs them, onnxruntime ran the originals.
#include <stele/import.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include "support/interpreter.hpp"
#include "support/models.hpp"
#include "support/temp_dir.hpp"

using namespace stele_test;
using namespace stele_test::interpreter;
using stele::Checkpoint;

namespace {

/// Returns the tensors of a file whose names begin with `prefix`, without it.
Arrays arrays_in(const std::string& path, const std::string& prefix) {
  const stele::Snapshot file = good(stele::SafetensorsRecorder<>().open(path));
  Arrays arrays;
  for (const stele::Node& node : file.nodes()) {
    if (node.kind != stele::NodeKind::tensor) continue;
    const std::string name(node.name, node.name_size);
    if (name.rfind(prefix, 0) == 0) arrays.emplace(name.substr(prefix.size()), read_array(file.leaf(node.index)));
  }
  return arrays;
}

/// Returns the largest difference relative to the largest magnitude.
double difference(const Array& expected, const Array& found) {
  double largest = 1e-30, worst = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    largest = std::max(largest, std::abs(expected.values[i]));
    const double apart = std::abs(expected.values[i] - found.values[i]);
    worst = std::isnan(apart) ? apart : std::max(worst, apart);
    if (std::isnan(worst)) break;
  }
  return worst / largest;
}

void check(const Checkpoint& model, const std::string& golden) {
  const Arrays expected = arrays_in(golden, "out.");
  const Arrays found = run_graph(model, arrays_in(golden, "in."));
  CHECK(expected.size() == model.graph->outputs.size());
  for (const auto& output : expected) {
    CAPTURE(output.first);
    REQUIRE(found.count(output.first) == 1);
    REQUIRE(found.at(output.first).shape == output.second.shape);
    CHECK(difference(output.second, found.at(output.first)) <= 1e-5);
  }
}

}  // namespace

TEST_CASE("import: models compute what onnxruntime computes, also when they were saved") {
  const TempDir dir;
  std::size_t models = 0;
  for (const std::string& name : names_in(test_data() + "/onnx")) {
    const std::filesystem::path path = std::filesystem::path(test_data()) / "onnx" / name;
    if (name.rfind("run_", 0) != 0 || path.extension() != ".onnx") continue;
    CAPTURE(name);
    const std::string golden = std::filesystem::path(path).replace_extension(".safetensors").string();
    const Checkpoint model = good(stele::import_onnx(path.string()));
    check(model, golden);
    const stele::SameDiffRecorder<> recorder;
    good(recorder.record(model, dir / "model.fb"));
    check(good(recorder.open_checkpoint(dir / "model.fb")), golden);
    ++models;
  }
  CHECK(models == 12);
}
