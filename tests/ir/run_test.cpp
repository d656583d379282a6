// Imported models compute what the originals do: the interpreter of the tests runs them, onnxruntime ran the originals.
#include <stele/export.hpp>
#include <stele/import.hpp>
#include <stele/recorders/onnx.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>

#include "support/golden_run.hpp"
#include "support/models.hpp"
#include "support/temp_dir.hpp"

namespace run_test {

using namespace stele_test;
using namespace stele_test::interpreter;
using stele::Checkpoint;

TEST_CASE("import: models compute what onnxruntime computes, also when they were saved") {
  const TempDir dir;
  std::size_t models = 0;
  for (const std::string& name : names_in(test_data("onnx"))) {
    const std::filesystem::path path = std::filesystem::path(test_data("onnx")) / name;
    if (name.rfind("run_", 0) != 0 || path.extension() != ".onnx") continue;
    CAPTURE(name);
    const std::string golden = std::filesystem::path(path).replace_extension(".safetensors").string();
    const Checkpoint model = good(stele::import_onnx(path.string()));
    check_golden(model, golden);
    const stele::SameDiffRecorder<> recorder;
    good(recorder.save(model, dir / "model.fb"));
    check_golden(good(recorder.open_checkpoint(dir / "model.fb")), golden);
    ++models;
  }
  CHECK(models == 15);
}

TEST_CASE("import: idioms of one or a few nodes compute what onnxruntime computes, also when they were saved") {
  const TempDir dir;
  const std::string folder = test_data("onnx") + "/idioms/";
  std::size_t models = 0;
  for (const std::string& name : names_in(folder)) {
    if (!name.ends_with(".onnx")) continue;
    CAPTURE(name);
    ++models;
    const Checkpoint model = good(stele::import_onnx(folder + name));
    if (name == "lp_pool_3d.onnx") continue;  // avgpool3dnew: DL4J alone runs it
    std::string golden = folder + name.substr(0, name.size() - 5);
    if (!std::filesystem::exists(golden + ".safetensors"))
      golden.resize(golden.size() - std::string_view("_open").size());
    golden += ".safetensors";
    check_golden(model, golden);
    const stele::SameDiffRecorder<> recorder;
    good(recorder.save(model, dir / "model.fb"));
    const Checkpoint saved = good(recorder.open_checkpoint(dir / "model.fb"));
    check_golden(saved, golden);
    // Written as ONNX again, with the ranks of all inputs.
    stele::Report losses = good(stele::export_onnx(saved, dir / "model.onnx"));
    for (std::size_t i = 0; i < losses.size(); ++i)
      CHECK_MESSAGE(losses[i].detail.find("rank") == std::string::npos, losses[i].path);
    check_golden(good(stele::import_onnx(dir / "model.onnx")), golden);
  }
  CHECK(models == 229);
}

TEST_CASE("import: operators that DL4J computes otherwise give what onnxruntime gives") {
  for (const char* file : {"/operators_11.onnx", "/operators_21.onnx"}) {
    CAPTURE(file);
    const stele::Snapshot golden = good(stele::OnnxRecorder<>().open(test_data("onnx") + file));
    Arrays inputs, expected;
    for (std::size_t i = 0; i < golden.leaf_count(); ++i) {
      const stele::LeafView leaf = golden.leaf(i);
      const std::string name = leaf.path();
      if (name.starts_with("value ")) inputs.emplace(name.substr(6), read_array(leaf));
      if (name.starts_with("want ")) expected.emplace(name.substr(5), read_array(leaf));
    }
    const Arrays found = run_graph(good(stele::import_onnx(test_data("onnx") + file)), std::move(inputs));
    CHECK(expected.size() > 90);
    for (const auto& output : expected) {
      CAPTURE(output.first);
      const Array &want = output.second, &got = found.at(output.first);
      REQUIRE(got.shape == want.shape);
      for (std::size_t i = 0; i < want.values.size(); ++i) {
        CAPTURE(i);
        const double a = want.values[i], b = got.values[i];
        const bool same = a == b || (std::isnan(a) && std::isnan(b));
        CHECK_MESSAGE((same || std::abs(a - b) <= 1e-5 * std::abs(a) + 4e-7), a, " ", b);
      }
    }
  }
}

}  // namespace run_test
