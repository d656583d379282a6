// Import of TensorFlow's graphs: calls of functions.
#include <stele/import.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/tensorflow_bytes.hpp"

namespace tensorflow_functions_test {

using namespace stele_test;
using namespace stele_test::tensorflow;
using stele::Checkpoint;
using stele::Errc;
using stele::Error;

namespace {

using Paths = std::vector<std::string>;

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("import: calls of TensorFlow's functions") {
  const std::string f = function("f", {"a", "b"}, {{"sum", "s:z:0"}, {"first", "r:activations:0"}},
                                 inner("r", "Relu", {"a"}) + inner("s", "AddV2", {"r:activations:0", "b"}));
  for (const char* op : {"PartitionedCall", "StatefulPartitionedCall"}) {
    const std::string file =
        placeholder("x") + node("c", op, {"x", "x"}, function_name("f", "f")) + f + node("y", "Sub", {"c", "c:1"});
    CHECK(operations(good(import_of(file))) == "relu(x -> c/r)\nadd(c/r x -> c/s)\nsubtract(c/s c/r -> y)\n");
  }
  // A node whose operator is the function; outputs by the number and as the result.
  const std::string direct = placeholder("x") + node("c", "f", {"x", "x"}) + f;
  const Checkpoint model = good(import_of(direct, {.outputs = {"c:1", "c"}}));
  CHECK(model.graph->outputs == Paths{"c:1", "c"});
  CHECK(operations(model) == "relu(x -> c/r)\nadd(c/r x -> c/s)\nidentity(c/r -> c:1)\nidentity(c/s -> c)\n");
  CHECK(bad(import_of(direct, {.outputs = {"c:2"}})).code() == Errc::malformed);
}

TEST_CASE("import: TensorFlow's functions that call functions, with outputs by name") {
  const std::string g = function("g", {"p"}, {{"low", "t:y:0"}, {"high", "r:activations:0"}},
                                 inner("r", "Relu", {"p"}) + inner("t", "Tanh", {"p"}));
  // As a node of its own operator the outputs have names, as a PartitionedCall numbers.
  const std::string direct =
      function("f", {"q"}, {{"o", "d:z:0"}}, inner("c", "g", {"q"}) + inner("d", "Sub", {"c:low:0", "c:high:0"}));
  const std::string called = function("f", {"q"}, {{"o", "d:z:0"}},
                                      inner_call("c", "g", {"q"}) + inner("d", "Sub", {"c:output:0", "c:output:1"}));
  for (const std::string& f : {direct, called}) {
    const std::string file = placeholder("x") + call("a", "f", {"x"}) + call("b", "f", {"a"}) + f + g;
    CHECK(operations(good(import_of(file))) ==
          "tanh(x -> a/c/t)\nrelu(x -> a/c/r)\nsubtract(a/c/t a/c/r -> a/d)\n"
          "tanh(a/d -> b/c/t)\nrelu(a/d -> b/c/r)\nsubtract(b/c/t b/c/r -> b/d)\nidentity(b/d -> b)\n");
  }
}

TEST_CASE("import: names of ports in TensorFlow's functions") {
  // Split has a list of outputs, FusedBatchNormV3 several of one tensor each.
  const std::string f = function("f", {"i"}, {{"o", "d:z:0"}},
                                 inner("axis", "Const", {}, value(scalar(0))) +
                                     inner("s", "Split", {"axis:output:0", "i"}, integer("num_split", 2)) +
                                     inner("d", "Sub", {"s:output:1", "s:output:0"}));
  const Checkpoint model = good(import_of(placeholder("x", {4}) + call("c", "f", {"x"}) + f));
  CHECK(operations(model) == "split(x -> c/s c/s:1)\nsubtract(c/s:1 c/s -> c/d)\nidentity(c/d -> c)\n");
  const auto returning = [](const std::string& tensor_name) {
    return placeholder("x") + call("c", "f", {"x"}) +
           function("f", {"i"}, {{"o", tensor_name}}, inner("r", "Relu", {"i"}));
  };
  good(import_of(returning("r:activations:0")));
  good(import_of(returning("r:activations")));
  good(import_of(returning("i")));
  CHECK(bad(import_of(returning("r:nothing:0"))).code() == Errc::malformed);
  CHECK(bad(import_of(returning("r:activations:x"))).code() == Errc::malformed);
  CHECK(bad(import_of(returning("r:activations:1"))).code() != Errc::none);
  CHECK(bad(import_of(returning("r:activations:18446744073709551615"))).code() == Errc::limit);
  CHECK(bad(import_of(returning("r:activations:18446744073709551616"))).code() == Errc::malformed);
  CHECK(bad(import_of(returning("nothing:z:0"))).code() == Errc::malformed);
  CHECK(bad(import_of(returning("^r"))).code() == Errc::malformed);
  CHECK(bad(import_of(returning(""))).code() == Errc::malformed);
}

TEST_CASE("import: constants in TensorFlow's functions are shared by all calls") {
  const std::string f = function(
      "f", {"i"}, {{"o", "s:z:0"}},
      inner("k", "Const", {}, value(tensor(std::vector<float>{1, 2}))) + inner("s", "AddV2", {"i", "k:output:0"}));
  const std::string file = placeholder("x") + call("a", "f", {"x"}) + call("b", "f", {"a"}) + f;
  const Checkpoint model = good(import_of(file));
  CHECK(operations(model) == "add(x a/k -> a/s)\nadd(a/s a/k -> b/s)\nidentity(b/s -> b)\n");
  CHECK(model.parameters.leaf_count() == 1);
}

TEST_CASE("import: a node with the name of one in a call of TensorFlow's function") {
  const std::string f = function("f", {"i"}, {{"o", "r:activations:0"}}, inner("r", "Relu", {"i"}));
  const std::string file =
      placeholder("x") + call("c", "f", {"x"}) + f + node("c/r", "Tanh", {"x"}) + node("y", "Sub", {"c/r", "c"});
  const Checkpoint model = good(import_of(file));
  CHECK(operations(model) == "tanh(x -> c/r)\nrelu(x -> c/r_1)\nsubtract(c/r c/r_1 -> y)\n");
}

TEST_CASE("import: calls of TensorFlow's functions that are wrong") {
  const std::string x = placeholder("x"), relu = inner("r", "Relu", {"i"});
  const std::string f = function("f", {"i"}, {{"o", "r:activations:0"}}, relu);
  const Error many = bad(import_of(x + call("c", "f", {"x", "x"}) + f));
  CHECK(many.code() == Errc::malformed);
  CHECK(many.expected() == "1");
  CHECK(many.found() == "2");
  CHECK(contains(many.path(), "c (PartitionedCall)"));
  CHECK(bad(import_of(x + call("c", "f", {}) + f)).code() == Errc::malformed);
  const Error none = bad(import_of(x + call("c", "g", {"x"}) + f));
  CHECK(none.code() == Errc::unsupported);
  CHECK(contains(none.found(), "c (PartitionedCall)"));
  CHECK(bad(import_of(x + node("c", "PartitionedCall", {"x"}) + f)).code() == Errc::unsupported);
  // An output that nothing returns; a function with inputs of the graph; two of one name.
  const std::string lost =
      bytes(2, bytes(1, bytes(1, bytes(1, "f") + bytes(2, bytes(1, "i")) + bytes(3, bytes(1, "o")))));
  CHECK(bad(import_of(x + call("c", "f", {"x"}) + lost)).code() == Errc::malformed);
  const std::string own =
      function("f", {"i"}, {{"o", "p:output:0"}}, inner("p", "Placeholder", {}, type("dtype", f32)));
  CHECK(bad(import_of(x + call("c", "f", {"x"}) + own)).code() == Errc::malformed);
  CHECK(bad(import_of(x + call("c", "f", {"x"}) + f + f)).code() == Errc::duplicate);
  const std::string twice = function("f", {"i"}, {{"o", "r:activations:0"}}, relu + relu);
  CHECK(bad(import_of(x + call("c", "f", {"x"}) + twice)).code() == Errc::duplicate);
  // A variable in a function is no variable of the graph.
  const std::string variable = function("f", {"i"}, {{"o", "r:value:0"}},
                                        inner("v", "VarHandleOp", {}) + inner("r", "ReadVariableOp", {"v:resource:0"}));
  CHECK(bad(import_of(x + call("c", "f", {"x"}) + variable)).code() == Errc::unsupported);
}

TEST_CASE("import: what a TensorFlow function does not import is named with the call") {
  const std::string f = function("f", {"i"}, {{"o", "r:y:0"}}, inner("r", "Foo", {"i"}));
  const std::string g = function("g", {"i"}, {{"o", "c:output:0"}}, inner_call("c", "f", {"i"}));
  const Error error = bad(import_of(placeholder("x") + call("a", "g", {"x"}) + f + g));
  CHECK(error.code() == Errc::unsupported);
  CHECK(contains(error.found(), "a/c/r (Foo)"));
}

}  // namespace tensorflow_functions_test
