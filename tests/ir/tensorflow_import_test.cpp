// Import of TensorFlow's graphs: names, order, outputs, attributes, what a report has, what is refused.
#include <stele/import.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/tensorflow_bytes.hpp"

namespace tensorflow_import_test {

using namespace stele_test;
using namespace stele_test::tensorflow;
using stele::Checkpoint;
using stele::Errc;
using stele::Error;
using stele::Report;

namespace {

using Paths = std::vector<std::string>;

/// Returns the declared shape of a variable.
Ints shape_in(const Checkpoint& model, const std::string& name) {
  const stele::GraphVariable* const variable = model.graph->find_variable(name);
  REQUIRE_MESSAGE(variable != nullptr, name);
  REQUIRE_MESSAGE(variable->shape.has_value(), name);
  return *variable->shape;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("import: TensorFlow's nodes in any order") {
  const std::string x = placeholder("x"), y = node("y", "Relu", {"x"}), z = node("z", "AddV2", {"y", "x"}),
                    w = node("w", "Tanh", {"z"});
  for (const std::string& file : {x + y + z + w, w + z + y + x, z + w + x + y}) {
    const Checkpoint model = good(import_of(file));
    CHECK(operations(model) == "relu(x -> y)\nadd(y x -> z)\ntanh(z -> w)\n");
    CHECK(model.graph->outputs == Paths{"w"});
    CHECK(shape_in(model, "w") == Ints{2});
  }
}

TEST_CASE("import: TensorFlow's inputs keep the order of the file") {
  const Checkpoint model = good(import_of(placeholder("b") + placeholder("a") + node("y", "Sub", {"a", "b:0"})));
  REQUIRE(model.graph->variables.size() == 3);
  CHECK(model.graph->variables[0].name == "b");
  CHECK(model.graph->variables[1].name == "a");
  CHECK(operations(model) == "subtract(a b -> y)\n");
}

TEST_CASE("import: control inputs of TensorFlow") {
  // An assert, a print and a no-op in front of a node; a control input of a constant.
  Report report;
  const std::string file = placeholder("x") + constant("limit", tensor(std::vector<float>{1})) +
                           node("less", "Less", {"x", "limit"}) + node("check", "Assert", {"less", "x"}) +
                           node("log", "PrintV2", {"x"}) + node("group", "NoOp", {"^check", "^log"}) +
                           node("y", "Relu", {"x", "^group"});
  const Checkpoint model = good(import_of(file, {.report = &report}));
  CHECK(operations(model) == "relu(x -> y)\n");
  Paths unused = report.paths(Report::What::unused);
  std::sort(unused.begin(), unused.end());
  CHECK(unused == Paths{"check", "limit", "log"});
  CHECK(report.size() == 3);
  // A cycle of control inputs alone is none; a node that does not exist is not read.
  const std::string odd = placeholder("x") + node("y", "Relu", {"x", "^y", "^nothing"});
  CHECK(good(import_of(odd, {.outputs = {"y"}})).graph->operations.size() == 1);
}

TEST_CASE("import: outputs of TensorFlow's nodes") {
  const std::string axis = constant("axis", scalar(0));
  const std::string split = node("s", "Split", {"axis", "x"}, integer("num_split", 2));
  const std::string file = placeholder("x", {4}) + axis + split + node("y", "Relu", {"s:1"});
  const Checkpoint model = good(import_of(file));
  REQUIRE(model.graph->operations.size() == 2);
  CHECK(model.graph->operations[0].outputs.size() == 2);
  CHECK(model.graph->operations[0].outputs[1] == "s:1");
  CHECK(shape_in(model, "y") == Ints{2});

  const Checkpoint both = good(import_of(file, {.outputs = {"s:1", "s:0"}}));
  CHECK(both.graph->outputs == Paths{"s:1", "s"});
  CHECK(operations(both) == "split(x -> s s:1)\n");
  CHECK(bad(import_of(file, {.outputs = {"s:2"}})).code() != Errc::none);
  CHECK(bad(import_of(file, {.outputs = {"nothing"}})).code() == Errc::missing);
  CHECK(bad(import_of(file, {.outputs = {"nothing"}})).path() == "nothing");
  CHECK(bad(import_of(file, {.outputs = {""}})).code() == Errc::missing);
  CHECK(bad(import_of(file, {.outputs = {"^y"}})).code() == Errc::missing);
  // No node is left for the result.
  const Error none = bad(import_of(placeholder("x") + node("n", "NoOp", {"^x"})));
  CHECK(none.code() == Errc::missing);
  CHECK(contains(none.to_string(), "ImportOptions::outputs"));
}

TEST_CASE("import: an output that is named twice") {
  const std::string file = placeholder("x") + node("y", "Relu", {"x"});
  CHECK(good(import_of(file, {.outputs = {"y", "y:0"}})).graph->outputs == Paths{"y"});
}

TEST_CASE("import: outputs of TensorFlow's graphs that no operation makes") {
  const std::string file = placeholder("x") + constant("c", tensor(std::vector<float>{1, 2})) +
                           node("same", "Identity", {"x"}) + node("copy", "Identity", {"c"}) +
                           node("y", "AddV2", {"same", "copy"});
  const Checkpoint input = good(import_of(file, {.outputs = {"x"}}));
  CHECK(input.graph->outputs == Paths{"x"});
  CHECK(input.graph->operations.empty());
  const Checkpoint fixed = good(import_of(file, {.outputs = {"c"}}));
  CHECK(fixed.graph->outputs == Paths{"c"});
  CHECK(fixed.parameters.find("c")->dtype() == stele::DType::f32);
  const Checkpoint named = good(import_of(file, {.outputs = {"copy", "same", "y"}}));
  CHECK(named.graph->outputs == Paths{"copy", "same", "y"});
  CHECK(operations(named) == "identity(c -> copy)\nidentity(x -> same)\nadd(x c -> y)\n");
}

TEST_CASE("import: tensors that stand for others in TensorFlow's graphs") {
  const std::string file = placeholder("x") + placeholder("z") + node("a", "Identity", {"x"}) +
                           node("b", "StopGradient", {"a"}) + node("c", "IdentityN", {"b", "z"}) +
                           node("d", "CheckNumerics", {"c:1"}, text("message", "bad")) +
                           node("e", "Snapshot", {"c", "^d"}) + node("y", "Sub", {"e", "d"});
  CHECK(operations(good(import_of(file))) == "subtract(x z -> y)\n");
  CHECK(bad(import_of(placeholder("x") + node("c", "IdentityN", {"x"}) + node("y", "Relu", {"c:1"}))).code() ==
        Errc::malformed);
  // A placeholder with a default is the default.
  const std::string given = constant("c", tensor(std::vector<float>{1, 2})) +
                            node("p", "PlaceholderWithDefault", {"c"}, extents("shape", {2})) + placeholder("x") +
                            node("y", "AddV2", {"x", "p"});
  CHECK(operations(good(import_of(given))) == "add(x c -> y)\n");
}

TEST_CASE("import: the outputs of ONNX models can be chosen") {
  const std::string graph = onnx::floats(11, "x", {2}) + onnx::node("Relu", {"x"}, "a") +
                            onnx::node("Tanh", {"a"}, "b") + onnx::floats(12, "b", {2});
  const std::string file = onnx::model(graph);
  const auto imported = [&](const Paths& outputs) {
    const auto view = bytes_of(file);
    return stele::import_onnx(std::vector<std::byte>(view.begin(), view.end()), {.outputs = outputs});
  };
  CHECK(operations(good(imported({}))) == "relu(x -> a)\ntanh(a -> b)\n");
  const Checkpoint part = good(imported({"a"}));
  CHECK(operations(part) == "relu(x -> a)\n");
  CHECK(part.graph->outputs == Paths{"a"});
  CHECK(good(imported({"b", "a"})).graph->outputs == Paths{"b", "a"});
  CHECK(bad(imported({"c"})).code() == Errc::missing);
}

TEST_CASE("import: shapes for TensorFlow's inputs") {
  const std::string file =
      placeholder("x", {-1, 3}) + node("y", "Relu", {"x"}) + node("shape", "Shape", {"x"}) + node("n", "Relu", {"x"});
  CHECK(shape_in(good(import_of(file, {.outputs = {"y"}})), "y") == Ints{-1, 3});
  CHECK(shape_in(good(import_of(file, {.shapes = {{"x", {5, 3}}}, .outputs = {"y"}})), "y") == Ints{5, 3});
  CHECK(bad(import_of(file, {.shapes = {{"x", {5, 4}}}})).code() == Errc::shape_mismatch);
  CHECK(bad(import_of(file, {.shapes = {{"z", {5, 4}}}})).code() == Errc::invalid_argument);
  // Without an extent that is open, the shape is a constant.
  const Checkpoint fixed = good(import_of(file, {.shapes = {{"x", {5, 3}}}, .outputs = {"shape"}}));
  CHECK(fixed.graph->operations.empty());
  CHECK(fixed.parameters.find("shape")->dtype() == stele::DType::i32);
  // An unknown rank; no attribute with a shape at all.
  const std::string open =
      node("x", "Placeholder", {}, type("dtype", f32) + attribute("shape", bytes(7, number(3, 1))));
  CHECK_FALSE(good(import_of(open + node("y", "Relu", {"x"}))).graph->find_variable("x")->shape.has_value());
  const std::string untold = node("x", "Placeholder", {}, type("dtype", f32));
  CHECK_FALSE(good(import_of(untold + node("y", "Relu", {"x"}))).graph->find_variable("x")->shape.has_value());
  CHECK(bad(import_of(node("x", "Placeholder", {}) + node("y", "Relu", {"x"}))).code() == Errc::unsupported);
  CHECK(bad(import_of(placeholder("x", {2}, string) + node("y", "Relu", {"x"}))).code() == Errc::unsupported);
}

TEST_CASE("import: attributes of TensorFlow's nodes") {
  const std::string x = placeholder("x");
  const auto relu = [&](const std::string& attributes) { return import_of(x + node("y", "Relu", {"x"}, attributes)); };
  good(relu(type("T", f32)));                  // a dtype that the inputs tell
  good(relu(types("Tinputs", {f32, f32})));    // a list of dtypes
  good(relu(text("_output_shapes", "hint")));  // a hint of a compiler
  good(relu(extents("_output_shapes", {2})));
  const Error unknown = bad(relu(integer("surprise", 1)));
  CHECK(unknown.code() == Errc::unsupported);
  CHECK(contains(unknown.to_string(), "surprise"));
  CHECK(contains(unknown.to_string(), "y (Relu)"));
  for (const std::string& attributes : {text("surprise", "s"), flag("surprise", false), real("surprise", 1),
                                        list("surprise", {1, 2}), extents("surprise", {1})}) {
    CHECK(bad(relu(attributes)).code() == Errc::unsupported);
  }
  // A required one is missing.
  CHECK(bad(import_of(placeholder("x", {1, 4, 4, 1}) + node("y", "MaxPool", {"x"}))).code() == Errc::missing);
  const std::string pool = list("ksize", {1, 2, 2, 1}) + list("strides", {1, 2, 2, 1}) + text("padding", "VALID");
  CHECK(shape_in(good(import_of(placeholder("x", {1, 4, 4, 1}) + node("y", "MaxPool", {"x"}, pool))), "y") ==
        Ints{1, 2, 2, 1});
}

TEST_CASE("import: all of TensorFlow's nodes without a rule are in one error") {
  const std::string file = placeholder("x") + node("a", "Foo", {"x"}) + node("b", "Relu", {"a"}) +
                           node("c", "Bar", {"b", "a:1"}) + constant("s", strings({"text"})) +
                           node("d", "Baz", {"s", "c"}) + node("idle", "Qux", {"x"});
  const Error error = bad(import_of(file, {.outputs = {"d"}}));
  CHECK(error.code() == Errc::unsupported);
  for (const char* part : {"a (Foo)", "c (Bar)", "d (Baz)", "s (Const)"})
    CHECK_MESSAGE(contains(error.found(), part), part);
  CHECK_FALSE(contains(error.found(), "Qux"));
  CHECK(contains(error.to_string(), "ImportOptions::mappings"));
}

TEST_CASE("import: control flow of TensorFlow is refused by name") {
  const std::string x = placeholder("x"), p = placeholder("p", {}, boolean);
  // Of TensorFlow 1: a loop is a cycle.
  const std::string loop = node("enter", "Enter", {"x"}) + node("merge", "Merge", {"enter", "next"}) +
                           node("cond", "LoopCond", {"p"}) + node("switch", "Switch", {"merge", "cond"}) +
                           node("body", "Relu", {"switch:1"}) + node("next", "NextIteration", {"body"}) +
                           node("exit", "Exit", {"switch"}) + node("y", "Relu", {"exit"});
  const Error first = bad(import_of(x + p + loop));
  CHECK(first.code() == Errc::unsupported);
  CHECK(contains(first.to_string(), "control flow"));
  CHECK(contains(first.to_string(), "(Exit)"));
  // Of TensorFlow 2.
  const std::string branch = function("f", {"i"}, {{"o", "r:activations:0"}}, inner("r", "Relu", {"i"}));
  for (const char* op : {"If", "StatelessIf", "While", "StatelessWhile", "Case"}) {
    const std::string structured =
        node("if", op, {"p", "x"}, function_name("then_branch", "f") + function_name("else_branch", "f"));
    const Error second = bad(import_of(x + p + structured + branch + node("y", "Relu", {"if"})));
    CHECK(second.code() == Errc::unsupported);
    CHECK(contains(second.to_string(), std::string("if (") + op + ')'));
  }
}

TEST_CASE("import: variables of TensorFlow's graphs that are not frozen") {
  for (const char* op : {"VarHandleOp", "VariableV2", "Variable"}) {
    const std::string file = placeholder("x") + node("v", op, {}, type("dtype", f32) + extents("shape", {2})) +
                             node("read", "ReadVariableOp", {"v"}) + node("y", "AddV2", {"x", "read"});
    const Error error = bad(import_of(file));
    CHECK(error.code() == Errc::unsupported);
    CHECK(contains(error.to_string(), "v ("));
    CHECK(contains(error.to_string(), "freeze"));
  }
}

TEST_CASE("import: a report tells which constants of TensorFlow's graph the result does not have") {
  Report report;
  const std::string file = placeholder("x", {2, 3}) + constant("target", tensor(Ints{3, 2})) +
                           constant("idle", tensor(Ints{1})) + node("v", "VarHandleOp", {}) +
                           node("y", "Reshape", {"x", "target"});
  const Checkpoint model = good(import_of(file, {.report = &report}));
  CHECK(operations(model).starts_with("reshape(x "));
  CHECK(report.paths(Report::What::unused) == Paths{"idle", "v", "target"});
}

TEST_CASE("import: chains of shapes in TensorFlow's graphs are computed") {
  const std::string slice = integer("shrink_axis_mask", 1);
  const std::string chain =
      node("shape", "Shape", {"x"}) + constant("zero", tensor(Ints{0})) + constant("one", tensor(Ints{1})) +
      constant("rest", scalar(-1)) + node("batch", "StridedSlice", {"shape", "zero", "one", "one"}, slice) +
      node("target", "Pack", {"batch", "rest"}, integer("N", 2)) + node("y", "Reshape", {"x", "target"});
  const Checkpoint fixed = good(import_of(placeholder("x", {2, 3, 4}) + chain));
  CHECK(fixed.graph->operations.size() == 1);
  CHECK(shape_in(fixed, "y") == Ints{2, 12});
  // With an open batch, the elements are known as far as the result needs them: what is left runs in DL4J.
  const Checkpoint open = good(import_of(placeholder("x", {-1, 3, 4}) + chain));
  CHECK(shape_in(open, "y").size() == 2);
  // With both known but for one extent, the reshape has -1 in its place.
  const std::string known =
      node("shape", "Shape", {"x"}) + constant("zero", tensor(Ints{0})) + constant("one", tensor(Ints{1})) +
      constant("rest", scalar(12)) + node("batch", "StridedSlice", {"shape", "zero", "one", "one"}, slice) +
      node("target", "Pack", {"batch", "rest"}, integer("N", 2)) + node("y", "Reshape", {"x", "target"});
  const Checkpoint partial = good(import_of(placeholder("x", {-1, 3, 4}) + known));
  CHECK(operations(partial) == "reshape(x constant -> y)\n");
  CHECK(shape_in(partial, "y") == Ints{-1, 12});
}

TEST_CASE("import: elements that rules compute are bounded") {
  // Each Range and Fill tells 64 elements at most; chains of ConcatV2 double a list.
  std::string file = placeholder("x") + constant("axis", scalar(0)) + constant("c0", tensor(Ints(64, 1)));
  for (int i = 0; i < 30; ++i) {
    const std::string from = "c" + std::to_string(i);
    file += node("c" + std::to_string(i + 1), "ConcatV2", {from, from, "axis"}, integer("N", 2));
  }
  const Checkpoint doubled = good(import_of(file + node("y", "Rank", {"c30"}), {.outputs = {"c30"}}));
  CHECK(doubled.graph->operations.size() >= 20);
  CHECK(shape_in(doubled, "c30") == Ints{std::int64_t{64} << 30});
}

TEST_CASE("import: an input that follows a list of inputs") {
  const std::string file = placeholder("a", {2, 3}) + placeholder("b", {2, 1}) + constant("axis", scalar(-1)) +
                           node("y", "ConcatV2", {"a", "b", "axis"}, integer("N", 2)) + node("z", "Relu", {"y"});
  const Checkpoint model = good(import_of(file));
  CHECK(operations(model).starts_with("concat(a b -> y)\n"));
  CHECK(shape_in(model, "z") == Ints{2, 4});
  CHECK(bad(import_of(placeholder("a") + node("y", "ConcatV2", {"a"}, integer("N", 0)))).code() != Errc::none);
  CHECK(bad(import_of(placeholder("a") + node("y", "ConcatV2", {}, integer("N", 0)))).code() == Errc::missing);
}

TEST_CASE("import: bools are cast around operators of libnd4j that take none") {
  const std::string x = placeholder("x", {2, 3}, boolean);
  const Checkpoint parts =
      good(import_of(x + node("y", "Unpack", {"x"}, integer("num", 2)), {.outputs = {"y", "y:1"}}));
  CHECK(operations(parts) ==
        "cast(x -> x/bytes)\nunstack(x/bytes -> y/bytes y:1/bytes)\ncast(y/bytes -> y)\ncast(y:1/bytes -> y:1)\n");
  CHECK(parts.graph->find_variable("y:1")->dtype == stele::DType::boolean);
  CHECK(parts.graph->find_variable("y:1/bytes")->dtype == stele::DType::i8);
}

}  // namespace tensorflow_import_test
