// Imported models compute what the originals do: the interpreter of the tests runs them, onnxruntime ran the originals.
#include <stele/import.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "support/golden_run.hpp"
#include "support/models.hpp"
#include "support/temp_dir.hpp"

using namespace stele_test;
using namespace stele_test::interpreter;
using stele::Checkpoint;

TEST_CASE("import: models compute what onnxruntime computes, also when they were saved") {
  const TempDir dir;
  std::size_t models = 0;
  for (const std::string& name : names_in(test_data() + "/onnx")) {
    const std::filesystem::path path = std::filesystem::path(test_data()) / "onnx" / name;
    if (name.rfind("run_", 0) != 0 || path.extension() != ".onnx") continue;
    CAPTURE(name);
    const std::string golden = std::filesystem::path(path).replace_extension(".safetensors").string();
    const Checkpoint model = good(stele::import_onnx(path.string()));
    check_golden(model, golden);
    const stele::SameDiffRecorder<> recorder;
    good(recorder.record(model, dir / "model.fb"));
    check_golden(good(recorder.open_checkpoint(dir / "model.fb")), golden);
    ++models;
  }
  CHECK(models == 12);
}
