// Nodes of constants that the import computes: onnxruntime computed the same ones
// (tests/formats/onnx/interop/make_golden_operators.py).
#include <stele/import.hpp>
#include <stele/recorders/onnx.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/engine/fold.hpp"
#include "ir/onnx/graph.hpp"
#include "support/models.hpp"
#include "support/onnx_bytes.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace fold_test {

using namespace stele_test;
using namespace stele_test::onnx;
using stele::Checkpoint;
using stele::DType;
using stele::LeafView;
namespace ir = stele::detail::ir;
using Attributes = std::map<std::string, ir::ExpressionValue>;

namespace {

std::string fold_file(int opset) { return test_data("onnx") + "/fold_" + std::to_string(opset) + ".onnx"; }

/// Returns the difference of two numbers, in steps of 32-bit floats of their size.
double steps_between(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  return std::abs(a - b) / (std::abs(a) * 0x1p-24);
}

/// Returns what is wrong with a leaf.
std::string difference(const LeafView& expected, const LeafView& found, bool exact) {
  if (expected.dtype() != found.dtype()) return "another dtype";
  if (!std::equal(expected.shape().begin(), expected.shape().end(), found.shape().begin(), found.shape().end()))
    return "another shape";
  const auto numbers = [](const LeafView& leaf) {
    const ir::Constant constant = *good(ir::constant_of(leaf));
    return std::visit([](const auto& list) { return std::vector<long double>(list.begin(), list.end()); },
                      constant.elements);
  };
  const auto a = numbers(expected), b = numbers(found);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = exact ? a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))
                            : steps_between(static_cast<double>(a[i]), static_cast<double>(b[i])) <= 2;
    if (!same) return "element " + std::to_string(i) + " is " + std::to_string(b[i]) + ", not " + std::to_string(a[i]);
  }
  return {};
}

/// Computes a node whose inputs are all [1].
ir::Folded computed(const ir::FoldOperator& op, const Attributes& attributes, std::size_t inputs) {
  ir::TensorInfo input{.dtype = DType::i64, .shape = ir::Ints{1}};
  input.constant = ir::of_ints({1});
  ir::FoldNode node;
  node.op = op.name;
  node.attributes = &attributes;
  node.inputs.assign(inputs, &input);
  return good(ir::folded(node));
}

}  // namespace

TEST_CASE("fold: every operator and attribute computes what onnxruntime computes") {
  std::set<std::pair<std::string, std::string>> covered;
  for (const int opset : {9, 21}) {
    CAPTURE(opset);
    const Checkpoint model = good(stele::import_onnx(fold_file(opset)));
    const stele::Snapshot file = good(stele::OnnxRecorder<>().open(fold_file(opset)));
    CHECK(model.graph->operations.empty());
    for (const std::string& output : model.graph->outputs) {
      CAPTURE(output);
      const auto expected = file.find("want " + output), found = model.parameters.find(output);
      REQUIRE(expected);
      REQUIRE(found);
      CHECK(difference(*expected, *found, !output.starts_with("Pow.")) == "");
    }
    const ir::model::Graph graph = good(ir::read_onnx(good(stele::Input(fold_file(opset)).open("", {})), {}));
    for (const ir::model::Node& node : graph.nodes) {
      covered.emplace(node.op, "");
      for (const auto& attribute : node.attributes) covered.emplace(node.op, attribute.name);
    }
  }
  for (const ir::FoldOperator& op : ir::fold_operators()) {
    for (const ir::FoldAttribute& attribute : op.attributes) {
      CAPTURE(op.name);
      CAPTURE(attribute.name);
      CHECK(covered.contains({std::string(op.name), std::string(attribute.name)}));
    }
  }
}

TEST_CASE("fold: an attribute that an operator does not have is not ignored") {
  for (const ir::FoldOperator& op : ir::fold_operators()) {
    CAPTURE(op.name);
    CHECK(!computed(op, {{"broadcast", std::int64_t{1}}}, op.min_inputs));
    for (const ir::FoldAttribute& attribute : op.attributes) {
      if (attribute.name.empty()) continue;
      CAPTURE(attribute.name);
      const std::string name(attribute.name);
      CHECK(!computed(op, {{name, std::string("text")}}, op.min_inputs));
      CHECK(!computed(op, {{name, 0.5}}, op.min_inputs));
      if (attribute.input != 0) CHECK(!computed(op, {{name, ir::Ints{0}}}, attribute.input + 1));  // is an input, too
    }
  }
}

TEST_CASE("fold: what is large is left to DL4J") {
  // A Reshape of 5000 elements, and the Size of 1,000,000.
  std::string large = bytes(1, "value_ints");
  for (std::uint64_t i = 0; i < 5000; ++i) large += number(8, i);
  const std::string graph = floats(11, "x", {1000, 1000}) + integers("shape", {50, 100}) +
                            node("Constant", {}, "list", bytes(5, large + number(20, 7))) +
                            node("Reshape", {"list", "shape"}, "table") + node("Size", {"x"}, "count") +
                            floats(12, "table", {50, 100}) + floats(12, "count", {});
  const std::string file = model(graph);
  const auto view = bytes_of(file);
  const Checkpoint imported = good(stele::import_onnx(std::vector<std::byte>(view.begin(), view.end())));
  REQUIRE(imported.graph->operations.size() == 1);
  CHECK(imported.graph->operations[0].op_name == "reshape");
  std::int64_t count = 0;
  good(imported.parameters.find("count")->read(0, std::as_writable_bytes(std::span(&count, 1))));
  CHECK(count == 1000000);
}

}  // namespace fold_test
