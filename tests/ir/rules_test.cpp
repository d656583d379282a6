// DL4J's kinds of mapping rules: by a user's rules for an operator of their own, and backwards.
#include <stele/import.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/onnx_bytes.hpp"
#include "support/recorders.hpp"

namespace rules_test {

using namespace stele_test;
using namespace stele_test::onnx;
using stele::Checkpoint;
using stele::Errc;
using stele::FrameworkNode;
using stele::GraphOperation;
using stele::import_onnx;
using stele::MappingSet;

namespace {

/// An operator "Own" of ONNX that is `op` of DL4J, by a rule.
MappingSet own(const std::string& op, const std::string& rules, const std::string& attributes, bool second = false) {
  const std::string list = attributes.empty() ? "" : "attribute: \"" + attributes + "\" ";
  return good(MappingSet::open(
      bytes_of("mappings { inputFrameworkOpName: 'Own' opName: '" + op + "' sinceVersion: 1 input: 'X' " +
               (second ? "input: 'W?' " : "") + "output: 'Y' " + list +
               "rule { ruleName: 'ndarraymapping' inputToOutput { key: 'input' value: 'X' } } " + rules + " }")));
}

std::string rule(const std::string& kind, const std::string& ours, const std::string& framework,
                 const std::string& constants = {}) {
  return "rule { ruleName: '" + kind + "' inputToOutput { key: '" + ours + "' value: '" + framework + "' } " +
         (constants.empty() ? "" : "transformerArgs { key: '" + ours + "' " + constants + "}") + "} ";
}
std::string integer(int value) {
  return "transformerArgs { int64Value: " + std::to_string(value) + " argType: INT64 } ";
}
std::string text(const std::string& value) {
  return "transformerArgs { stringValue: '" + value + "' argType: STRING } ";
}

std::string own_model(const std::string& attributes, bool second = false) {
  return model(
      floats(11, "x", {2, 3}) + integers("w", {7, 8, 9}) +
      node("Own", second ? std::vector<std::string>{"x", "w"} : std::vector<std::string>{"x"}, "y", attributes) +
      floats(12, "y", {2, 3}));
}

stele::Result<Checkpoint> imported(const std::string& file, const MappingSet& rules) {
  const auto view = bytes_of(file);
  return import_onnx(std::vector<std::byte>(view.begin(), view.end()), {.mappings = &rules});
}

std::string arguments_of(const GraphOperation& operation) {
  std::string out;
  for (const auto& [name, value] : operation.ints) out += 'i' + std::to_string(value) + ' ';
  for (const auto& [name, value] : operation.doubles) out += 't' + std::to_string(value).substr(0, 4) + ' ';
  for (const auto& [name, value] : operation.bools) out += value ? "b1 " : "b0 ";
  return out + std::to_string(operation.inputs.size());
}

std::string run(const MappingSet& rules, const std::string& attributes, bool second = false) {
  const auto result = imported(own_model(attributes, second), rules);
  if (!result) return std::string(stele::name(result.error().code()));
  return arguments_of(result->graph->operations.at(0));
}

constexpr std::int64_t one = 1, five = 5;

}  // namespace

TEST_CASE("rules: each of DL4J's kinds") {
  const auto axis = [](const std::string& kind, const std::string& from, const std::string& constants = {}) {
    return own("softmax", rule(kind, "dimension", from, constants), from);
  };
  CHECK(run(axis("valuemapping", "a"), attribute("a", one)) == "i1 1");
  CHECK(run(axis("valuemapping", "a"), attribute("a", std::vector<std::int64_t>{1})) == "unsupported");
  CHECK(run(axis("listattributevaluelookuptoindex", "a", integer(1)),
            attribute("a", std::vector<std::int64_t>{4, 5})) == "i5 1");
  CHECK(run(axis("listattributevaluelookuptoindex", "a", integer(2)),
            attribute("a", std::vector<std::int64_t>{4, 5})) == "invalid_argument");
  CHECK(run(own("softmax", rule("listattributevaluelookuptoindex", "dimension", "a", integer(0) + integer(9)),
                "a = none"),
            "") == "i9 1");
  CHECK(run(axis("stringtoindex", "a", text("u") + text("v")), attribute("a", std::string("v"))) == "i1 1");
  CHECK(run(axis("stringtoindex", "a", text("u") + text("v")), attribute("a", std::string("w"))) == "i-1 1");
  CHECK(run(axis("datatypetoint", "a"), attribute("a", std::int64_t{1})) == "i5 1");  // float32
  CHECK(run(axis("datatypetoint", "a"), attribute("a", std::int64_t{99})) == "unsupported");
  CHECK(run(axis("sizethresholdarrayint", "a", integer(2) + integer(3) + text("0")),
            attribute("a", std::vector<std::int64_t>{4, 5, 6})) == "i6 1");
  CHECK(run(axis("sizethresholdarrayint", "a", integer(2) + integer(3) + text("0")),
            attribute("a", std::vector<std::int64_t>{4, 5})) == "i4 1");
  CHECK(run(own("softmax",
                "rule { ruleName: 'mapstringtoindex' inputToOutput { key: 'dimension' value: 'a' } transformerArgs { "
                "key: "
                "'index' transformerArgs { int64Value: 1 argType: INT64 } } transformerArgs { key: 'dimension' "
                "transformerArgs { name: 'Tanh' int64Value: 3 argType: INT64 } transformerArgs { name: 'Relu' "
                "int64Value: 4 "
                "argType: INT64 } } }",
                "a"),
            attribute("a", std::vector<std::string>{"Tanh", "Relu"})) == "i4 1");
  const MappingSet conditional = good(MappingSet::open(bytes_of(
      "mappings { inputFrameworkOpName: 'Own' opName: 'softmax' sinceVersion: 1 input: 'X' output: 'Y' attribute: 'a' "
      "attribute: 'list' rule { ruleName: 'ndarraymapping' inputToOutput { key: 'input' value: 'X' } } " +
      rule("conditionalfieldvalueintindex", "dimension", "a", text("NHWC") + integer(1) + integer(0) + text("list")) +
      " }")));
  const std::string list = attribute("list", std::vector<std::int64_t>{7, 8});
  CHECK(run(conditional, attribute("a", std::string("NHWC")) + list) == "i8 1");
  CHECK(run(conditional, attribute("a", std::string("NCHW")) + list) == "i7 1");

  // Bools, and numbers of both types.
  const auto keep = [](const std::string& kind, const std::string& constants = {}) {
    return own("top_k", rule(kind, "needSort", "a", constants), "a");
  };
  CHECK(run(keep("stringequals", text("yes")), attribute("a", std::string("yes"))) == "b1 1");
  CHECK(run(keep("stringequals", text("yes")), attribute("a", std::string("no"))) == "b0 1");
  CHECK(run(keep("stringnotequalsadapterrule", text("yes")), attribute("a", std::string("no"))) == "b1 1");
  CHECK(run(keep("stringcontains", text("the whole")), attribute("a", std::string("whole"))) == "b1 1");
  CHECK(run(keep("stringcontains", text("the whole")), attribute("a", std::string("part"))) == "b0 1");
  CHECK(run(keep("invertbooleannumber"), attribute("a", five)) == "b1 1");
  CHECK(run(keep("booleantonumber"), attribute("a", std::int64_t{0})) == "b0 1");
  CHECK(run(keep("invertbooleannumber"), attribute("a", std::string("text"))) == "unsupported");
  CHECK(run(own("matrix_band_part",
                "rule { ruleName: 'argdescriptorconstant' transformerArgs { key: 'value' transformerArgs { name: "
                "'minLower' int64Value: 5 argType: INT64 } transformerArgs { name: 'maxUpper' int64Value: 6 argType: "
                "INT64 } } }",
                ""),
            "") == "i5 i6 1");

  // Lists.
  CHECK(run(own("squeeze", rule("listnumbertolistnumber", "_a", "a"), "a"),
            attribute("a", std::vector<std::int64_t>{0, 1})) == "i0 i1 1");
  CHECK(run(own("reshape", rule("listnumbertondarray", "shape", "a"), "a"),
            attribute("a", std::vector<std::int64_t>{3, 2})) == "2");
  CHECK(run(own("squeeze", rule("flattendims", "_a", "a", integer(1)), "a"),
            attribute("a", std::vector<std::int64_t>{2, 3, 4})) == "i2 i12 1");

  // Inputs that are constants.
  const auto from_w = [](const std::string& op, const std::string& kind, const std::string& ours,
                         const std::string& constants = {}) {
    return own(op, rule(kind, ours, "W", constants), "", true);
  };
  CHECK(run(from_w("squeeze", "ndarraytointattributevalue", "_a"), "", true) == "i7 i8 i9 1");
  CHECK(run(from_w("softmax", "ndarrayinputtonumericalattribute", "dimension"), "", true) == "i7 1");
  CHECK(run(from_w("softmax", "ndarrayextractscalarvalue", "dimension", integer(2)), "", true) == "i9 1");
  CHECK(run(from_w("softmax", "ndarraysizeat", "dimension", integer(0)), "", true) == "i3 1");
  CHECK(run(from_w("softmax", "conditionalfieldvalueintindexndarray", "dimension",
                   text("x") + integer(0) + integer(1) + text("W")),
            "", true) == "i8 1");
  CHECK(run(own("concat", rule("multiinputindex", "input", "W"), "", true), "", true) == "2");

  const auto unknown = [](const std::string& kind) {
    return MappingSet::open(
        bytes_of("mappings { inputFrameworkOpName: 'Own' opName: 'softmax' input: 'X' output: 'Y' " +
                 rule(kind, "dimension", "a") + " }"));
  };
  CHECK(bad(unknown("convertinputstringtondarray")).code() == Errc::unsupported);
}

TEST_CASE("rules: indexOverrides exchange inputs") {
  const MappingSet rules = good(MappingSet::open(bytes_of(
      "mappings { inputFrameworkOpName: 'Own' opName: 'subtract' sinceVersion: 1 input: 'X' input: 'W?' output: 'Y' "
      "indexOverrides { key: 0 value: 1 } rule { ruleName: 'ndarraymapping' inputToOutput { key: 'input' value: 'X' } "
      "inputToOutput { key: 'y' value: 'W' } } }")));
  const Checkpoint turned = good(imported(own_model("", true), rules));
  CHECK(turned.graph->operations.at(0).inputs == std::vector<std::string>{"w", "x"});
  const FrameworkNode node = good(rules.inverted(turned.graph->operations.at(0), 17));
  CHECK(node.inputs == std::vector<std::string>{"x", "w"});
}

TEST_CASE("rules: backwards") {
  const auto back = [](const MappingSet& rules, const std::string& attributes) {
    const Checkpoint there = good(imported(own_model(attributes), rules));
    return good(rules.inverted(there.graph->operations.at(0), 17)).attributes;
  };
  using Attributes = std::map<std::string, stele::AttributeValue>;
  const auto is = [](const stele::AttributeValue& value) { return Attributes{{"a", value}}; };
  const auto softmax = [](const std::string& kind, const std::string& constants = {}) {
    return own("softmax", rule(kind, "dimension", "a", constants), "a");
  };
  const auto keep = [](const std::string& kind, const std::string& constants, const std::string& attribute) {
    return own("top_k", rule(kind, "needSort", "a", constants), attribute);
  };
  const std::vector<std::int64_t> list = {4, 5};
  CHECK(back(softmax("valuemapping"), attribute("a", five)) == is(five));
  CHECK(back(softmax("stringtoindex", text("u") + text("v")), attribute("a", std::string("v"))) ==
        is(std::string("v")));
  CHECK(back(softmax("datatypetoint"), attribute("a", one)) == is(one));
  CHECK(back(own("squeeze", rule("listnumbertolistnumber", "_a", "a"), "a"), attribute("a", list)) == is(list));
  CHECK(back(own("avgpool2d",
                 rule("listattributevaluelookuptoindex", "kH", "a", integer(0)) +
                     rule("listattributevaluelookuptoindex", "kW", "a", integer(1)) +
                     "rule { ruleName: 'argdescriptorconstant' transformerArgs { key: 'value' transformerArgs { name: "
                     "'sH' "
                     "int64Value: 1 argType: INT64 } transformerArgs { name: 'sW' int64Value: 1 argType: INT64 } "
                     "transformerArgs { name: 'pH' argType: INT64 } transformerArgs { name: 'pW' argType: INT64 } "
                     "transformerArgs { name: 'dH' int64Value: 1 argType: INT64 } transformerArgs { name: 'dW' "
                     "int64Value: 1 "
                     "argType: INT64 } transformerArgs { name: 'isSameMode' argType: INT64 } } }",
                 "a"),
             attribute("a", list)) == is(list));
  CHECK(back(keep("stringequals", text("yes"), "a"), attribute("a", std::string("yes"))) == is(std::string("yes")));
  CHECK(back(keep("stringequals", text("yes"), "a = 'no'"), attribute("a", std::string("no"))) == Attributes());
  CHECK(back(keep("invertbooleannumber", "", "a"), attribute("a", one)) == is(one));

  // An operation from which the rules cannot tell the node is an error.
  const auto refused = [](const MappingSet& rules, const std::string& attributes) {
    const Checkpoint there = good(imported(own_model(attributes), rules));
    return bad(rules.inverted(there.graph->operations.at(0), 17)).code() == Errc::unsupported;
  };
  CHECK(refused(keep("stringequals", text("yes"), "a"), attribute("a", std::string("no"))));
  CHECK(refused(keep("stringcontains", text("yes"), "a"), attribute("a", std::string("y"))));
  const Checkpoint there = good(imported(own_model(attribute("a", five)), softmax("valuemapping")));
  CHECK(bad(own("softmax", "", "").inverted(there.graph->operations.at(0), 17)).code() == Errc::unsupported);
  CHECK(bad(own("tanh", "", "").inverted(there.graph->operations.at(0), 17)).code() == Errc::unsupported);
  GraphOperation none = there.graph->operations.at(0);
  none.op_name = "nothing";
  CHECK(bad(softmax("valuemapping").inverted(none, 17)).code() == Errc::missing);
}

TEST_CASE("rules: ONNX's operators of one operation and back") {
  const MappingSet& rules = MappingSet::onnx();
  const auto back = [&](const std::string& op, const std::string& attributes, const std::vector<std::string>& inputs) {
    const std::string file = model(floats(11, "x", {2, 3}) + floats(11, "z", {2, 3}) +
                                   node(op, inputs, "y", attributes) + floats(12, "y", {2, 3}));
    const Checkpoint there = good(imported(file, rules));
    REQUIRE(there.graph->operations.size() == 1);
    return good(rules.inverted(there.graph->operations.at(0), 17));
  };
  for (const char* op : {"Sigmoid", "Tanh", "Exp", "Relu", "Erf", "Abs", "Sqrt", "Floor", "Ceil", "Identity"}) {
    CAPTURE(op);
    const FrameworkNode node = back(op, "", {"x"});
    CHECK(node.op == op);
    CHECK(node.inputs == std::vector<std::string>{"x"});
    CHECK(node.outputs == std::vector<std::string>{"y"});
    CHECK(node.attributes.empty());
  }
  for (const char* op : {"Add", "Sub", "Mul", "Div"}) {
    CAPTURE(op);
    const FrameworkNode node = back(op, "", {"x", "z"});
    CHECK(node.op == op);
    CHECK(node.inputs == std::vector<std::string>{"x", "z"});
  }
  const FrameworkNode leaky = back("LeakyRelu", attribute("alpha", 0.25F), {"x"});
  CHECK(leaky.op == "LeakyRelu");
  CHECK(leaky.attributes.at("alpha") == stele::AttributeValue(0.25));
}

}  // namespace rules_test
