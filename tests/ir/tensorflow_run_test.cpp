// Imported TensorFlow models compute what TensorFlow computed, and exported models what they computed before.
#include <stele/export.hpp>
#include <stele/import.hpp>
#include <stele/recorders/onnx.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "support/golden_run.hpp"
#include "support/models.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_dir.hpp"
#include "support/tensorflow_bytes.hpp"

namespace tensorflow_run_test {

using namespace stele_test;
using namespace stele_test::interpreter;
using stele::Checkpoint;
using stele::Errc;
using stele::LeafView;

namespace {

/// A file or folder with a model, and what it computes.
struct Golden {
  std::string model, values;
  double tolerance = 1e-5;

  bool is(const char* part) const { return model.find(part) != std::string::npos; }
  /// Returns the shapes of the inputs that the values are for.
  stele::ImportOptions shapes() const {
    stele::ImportOptions options;
    for (const auto& input : arrays_in(values, "in.")) options.shapes[input.first] = input.second.shape;
    return options;
  }
};

std::vector<Golden> golden_models(const std::string& folder) {
  std::vector<Golden> models;
  const std::filesystem::path root = test_data(folder);
  for (const std::string& name : names_in(root.string())) {
    const std::filesystem::path path = root / name;
    if (!name.starts_with("run_") || path.extension() == ".safetensors") continue;
    const bool folder_model = std::filesystem::is_directory(path);
    const std::string stem = (folder_model ? path : std::filesystem::path(path).replace_extension()).string();
    // The image model normalizes vectors that are nearly zero: TensorFlow's own rounding shows.
    models.push_back({path.string(), stem + ".safetensors", name.starts_with("run_image") ? 1e-4 : 1e-5});
  }
  return models;
}

std::string bytes_in(const LeafView& leaf) {
  std::string bytes(static_cast<std::size_t>(leaf.byte_size()), '\0');
  good(leaf.read(0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

/// Exports a model, imports it again and compares; parameters that are in the file are those of the model.
void check_exported(const Checkpoint& model, const Golden& golden, std::int64_t opset, const std::string& path) {
  const stele::Report report = good(stele::export_onnx(model, path, {.opset = opset}));
  // Rules for Resize must know the extents.
  auto again = stele::import_onnx(path, golden.is("image") ? golden.shapes() : stele::ImportOptions());
  check_golden(good(std::move(again)), golden.values, golden.tolerance);
  const stele::Snapshot file = good(stele::OnnxRecorder<>().open(path));
  const std::vector<std::string> unused = report.paths(stele::Report::What::unused);
  for (std::size_t i = 0; i < model.parameters.leaf_count(); ++i) {
    const LeafView expected = model.parameters.leaf(i);
    CAPTURE(expected.path());
    const auto found = file.find(expected.path());
    if (!found) {
      CHECK(std::find(unused.begin(), unused.end(), expected.path()) != unused.end());
      continue;
    }
    CHECK(found->dtype() == expected.dtype());
    CHECK(std::equal(found->shape().begin(), found->shape().end(), expected.shape().begin(), expected.shape().end()));
    CHECK(bytes_in(*found) == bytes_in(expected));
  }
}

}  // namespace

TEST_CASE("import: TensorFlow's models compute what TensorFlow computes, also when they were saved") {
  const TempDir dir;
  const std::vector<Golden> models = golden_models("tensorflow");
  for (const Golden& golden : models) {
    CAPTURE(golden.model);
    const Checkpoint model = good(stele::import_tensorflow(golden.model));
    check_golden(model, golden.values, golden.tolerance);
    const stele::SameDiffRecorder<> recorder;
    good(recorder.save(model, dir / "model.fb"));
    check_golden(good(recorder.open_checkpoint(dir / "model.fb")), golden.values, golden.tolerance);
  }
  CHECK(models.size() == 7);
}

TEST_CASE("export: models that were imported compute the same as ONNX models") {
  const TempDir dir;
  std::size_t models = 0;
  for (const char* folder : {"onnx", "tensorflow"}) {
    for (const Golden& golden : golden_models(folder)) {
      CAPTURE(golden.model);
      ++models;
      const bool onnx = folder == std::string("onnx");
      const Checkpoint model = good(onnx ? stele::import_onnx(golden.model) : stele::import_tensorflow(golden.model));
      for (const std::int64_t opset :
           sanitizers ? std::vector<std::int64_t>{17} : std::vector<std::int64_t>{13, 17, 22}) {
        CAPTURE(opset);
        check_exported(model, golden, opset, dir / "model.onnx");
      }
    }
  }
  CHECK(models == 22);
}

TEST_CASE("import: TensorFlow's operators at numbers that overflow") {
  namespace tf = stele_test::tensorflow;
  const auto ran = [](const std::string& op, const Array& x, std::uint64_t dtype, const std::string& attributes = {}) {
    const Checkpoint model = good(tf::import_of(tf::placeholder("x", x.shape, dtype) +
                                                tf::node("y", op, {"x"}, tf::type("T", dtype) + attributes)));
    return run_graph(model, {{"x", x}}).at("y").values;
  };
  const auto near = [](const std::vector<double>& found, const std::vector<double>& expected) {
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-6));
  };
  near(ran("Softplus", {{3}, {-1, 89, 1e5}}, tf::f32), {std::log1p(std::exp(-1)), 89, 1e5});
  near(ran("Asinh", {{4}, {-1e5, -2, 2, 1e30}}, tf::f32),
       {std::asinh(-1e5), std::asinh(-2), std::asinh(2), std::asinh(1e30)});
  near(ran("LogSoftmax", {{1, 3}, {0, 1000, 3000}}, tf::f32), {-3000, -2000, 0});
  near(ran("Softmax", {{1, 2}, {-5000, -5000}}, tf::f64), {0.5, 0.5});
  // A maximum of numbers that are all below the lowest 32-bit float.
  const std::string pool = tf::list("ksize", {1, 2, 2, 1}) + tf::list("strides", {1, 1, 1, 1}) +
                           tf::text("padding", "EXPLICIT") + tf::list("explicit_paddings", {0, 0, 0, 1, 0, 1, 0, 0});
  near(ran("MaxPool", {{1, 1, 2, 1}, {-1e300, -2e300}}, tf::f64, pool), {-1e300, -2e300});
}

TEST_CASE("import: TensorFlow's operators keep a NaN that libnd4j drops") {
  namespace tf = stele_test::tensorflow;
  const double nan = std::nan("");
  const auto ran = [&](const std::string& op, const tf::Names& more, Arrays inputs) {
    std::string file = tf::placeholder("x", {3});
    for (const std::string& name : more) file += tf::placeholder(name, inputs.at(name).shape);
    tf::Names names = {"x"};
    names.insert(names.end(), more.begin(), more.end());
    inputs["x"] = {{3}, {nan, -2, 3}};
    const Checkpoint model = good(tf::import_of(file + tf::node("y", op, names, tf::type("T", tf::f32))));
    return run_graph(model, inputs).at("y").values;
  };
  const auto equal = [](const std::vector<double>& found, double second, double third) {
    REQUIRE(found.size() == 3);
    CHECK(std::isnan(found[0]));
    CHECK(found[1] == second);
    CHECK(found[2] == third);
  };
  equal(ran("Sign", {}, {}), -1, 1);
  CHECK(std::isnan(ran("Selu", {}, {})[0]));
  for (const double other : {-7.0, 7.0}) {
    const Arrays y = {{"other", {{3}, {other, nan, other}}}};
    for (const char* op : {"Maximum", "Minimum"}) {
      const std::vector<double> found = ran(op, {"other"}, y);
      CHECK(std::isnan(found[0]));
      CHECK(std::isnan(found[1]));
      CHECK(found[2] == (op == std::string("Maximum") ? std::max(3.0, other) : std::min(3.0, other)));
    }
  }
  equal(ran("ClipByValue", {"low", "high"}, {{"low", {{}, {-1}}}, {"high", {{}, {0.5}}}}), -1, 0.5);
}

TEST_CASE("import: a slice of TensorFlow reverses an axis beside one that is open") {
  namespace tf = stele_test::tensorflow;
  const Array x{{3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
  const auto ran = [&](const tf::Ints& begin, const tf::Ints& end, const tf::Ints& steps, const std::string& masks) {
    const std::string file = tf::placeholder("x", {-1, -1}) + tf::constant("b", tf::tensor(begin)) +
                             tf::constant("e", tf::tensor(end)) + tf::constant("s", tf::tensor(steps)) +
                             tf::node("y", "StridedSlice", {"x", "b", "e", "s"}, masks);
    return run_graph(good(tf::import_of(file)), {{"x", x}}).at("y").values;
  };
  CHECK(ran({1, -1}, {3, 0}, {1, -1}, tf::integer("end_mask", 2)) == std::vector<double>{7, 6, 5, 4, 11, 10, 9, 8});
  CHECK(ran({-9, 0}, {-1, 0}, {1, -3}, tf::integer("begin_mask", 2) + tf::integer("end_mask", 2)) ==
        std::vector<double>{3, 0, 7, 4});
  CHECK(ran({2, -1}, {0, 0}, {1, -2}, tf::integer("end_mask", 2) + tf::integer("shrink_axis_mask", 1)) ==
        std::vector<double>{11, 9});
  CHECK(ran({-1, -1}, {0, 0}, {1, -2}, tf::integer("end_mask", 2) + tf::integer("shrink_axis_mask", 1)) ==
        std::vector<double>{11, 9});
}

}  // namespace tensorflow_run_test
