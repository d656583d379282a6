// Import of ONNX models: expressions, rules, whole models.
#include <stele/import.hpp>
#include <stele/recorders/samediff.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "ir/rules/mapping.hpp"
#include "support/models.hpp"
#include "support/onnx_bytes.hpp"
#include "support/recorders.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_dir.hpp"

namespace import_test {

using namespace stele_test;
using stele::Checkpoint;
using stele::Errc;
using stele::GraphOperation;
using stele::import_onnx;
using stele::MappingSet;
using stele::OperatorDescriptor;
using stele::OperatorSet;
namespace ir = stele::detail::ir;
using namespace stele_test::onnx;
using namespace std::string_literals;

namespace {

class Names final : public ir::Scope {
 public:
  stele::Result<const ir::ExpressionValue*> find(std::string_view name) const override {
    if (name == "list") return &list;
    if (name == "open") return &open;
    return stele::Error(Errc::missing, "there is no such name").path(name);
  }
  stele::Result<std::optional<ir::ExpressionValue>> call(std::string_view,
                                                         std::span<const ir::ExpressionValue>) const override {
    return std::optional<ir::ExpressionValue>();
  }

 private:
  ir::ExpressionValue list = std::vector<std::int64_t>{3, 4, 5};
  ir::ExpressionValue open = ir::OpenInts{std::nullopt, 4};
};

std::string evaluated(std::string_view text) {
  const auto expression = ir::parse_expression(text);
  if (!expression) return "malformed";
  const auto value = expression->evaluate(Names());
  return value ? ir::to_text(*value) : std::string(stele::name(value.error().code()));
}

stele::Result<Checkpoint> imported(const std::string& file, const stele::ImportOptions& options = {}) {
  const auto view = bytes_of(file);
  return import_onnx(std::vector<std::byte>(view.begin(), view.end()), options);
}

std::string text_of(const GraphOperation& operation) {
  std::string text = operation.op_name + "(";
  for (const std::string& input : operation.inputs) text += input + " ";
  for (const auto& [name, value] : operation.ints) text += std::to_string(value) + " ";
  return text + "-> " + operation.outputs.at(0) + ")";
}

}  // namespace

TEST_CASE("import: expressions") {
  const std::map<std::string, std::string> rows = {
      {"1 + 2 * 3", "7"},
      {"(1 + 2) * -3", "-9"},
      {"7 / 2", "3"},
      {"-7 / 2", "-4"},
      {"-7 % 3", "2"},
      {"1.5 * 2", "3"},
      {"1e-05", "1e-05"},
      {"list[0] + list[-1]", "8"},
      {"list[1:]", "[4, 5]"},
      {"list[:1]", "[3]"},
      {"list * 2 + [1, 1, 1]", "[7, 9, 11]"},
      {"[] * 2", "[]"},
      {"open * 2", "[?, 8]"},
      {"open == list", "unknown"},
      {"opened(open)", "[-1, 4]"},
      {"opened(join(open, open))", "unknown"},
      {"known(open)", "false"},
      {"none else 4", "4"},
      {"given(none)", "false"},
      {"size(list) == 3 ? 'three' : 'other'", "'three'"},
      {"false && list[9] == 1", "false"},
      {"true || list[9] == 1", "true"},
      {"!(1 < 2)", "false"},
      {"product(list)", "60"},
      {"max(4, list)", "[4, 4, 5]"},
      {"reversed(range(0, 3))", "[2, 1, 0]"},
      {"axes([-1, 0], 3)", "[2, 0]"},
      {"with(list, [1], 9)", "[3, 9, 5]"},
      {"without(list, [0, 2])", "[4]"},
      {"inserted(list, [0, 4])", "[1, 3, 4, 5, 1]"},
      {"picked(list, [2, 0])", "[5, 3]"},
      {"pairs([1, 2, 3, 4])", "[1, 3, 2, 4]"},
      {"solved([2, -1], 12)", "[2, 6]"},
      {"copied([0, 7], list)", "[3, 7]"},
      {"bits([0, 3])", "9"},
      {"slice_shape(list, [0, 2], [2, -1], [-100, 100], [-1, 1])", "[3, 4, 1]"},
      {"slice_shape(open, [0, 1], [0, 1], [2147483647, 3], [1, 1])", "[?, 2]"},
      {"broadcast([3, 1], [4])", "[3, 4]"},
      {"broadcast(open, [1, 4])", "[?, 4]"},
      {"join(1, [2, 3])", "[1, 2, 3]"},
      {"join(1, 2.5)", "[1, 2.5]"},
      {"[i * i for i in 4]", "[0, 1, 4, 9]"},
      {"[[i, 9] for i in 2]", "[0, 9, 1, 9]"},
      {"[list[i] > 3 ? i : [] for i in size(list)]", "[1, 2]"},
      {"[open[i] * 2 for i in 2]", "[?, 8]"},
      {"[i for i in 0]", "[]"},
      {"[i for i in open[0]]", "unknown"},
      {"[unknown, 1]", "[?, 1]"},
      {"list[open[0]:]", "unknown"},
      {"list[:-1]", "[3, 4]"},
      {"max([1, 5, 2])", "5"},
      {"min([1.5, 0.5])", "0.5"},
      {"max(open)", "?"},
      {"max([1, 5], [4, 2])", "[4, 5]"},
      {"min(open, 3)", "[?, 3]"},
      {"sorted([2, 0, 1])", "[0, 1, 2]"},
      {"terms('ij, jk -> ik')", "['ij', 'jk', 'ik']"},
      {"labels('a...b', 4)", "['a', '2', '1', 'b']"},
      {"index('ab.c', '.')", "2"},
      {"resize_positions([4, 2, 0.5, 0, 0, -0.75, 0, 0], ['nearest', 'asymmetric', 'floor'])", "[0, 2]"},
      {"resize_positions([2, 4, 2, 0, 0, -0.75, 0, 0], ['linear', 'half_pixel', 'floor'])", "[0, 0, 0, 1, 0, 1, 1, 1]"},
      {"resize_weights([2, 4, 2, 0, 0, -0.75, 0, 0], ['linear', 'half_pixel', 'floor'])",
       "[0.25, 0.75, 0.75, 0.25, 0.25, 0.75, 0.75, 0.25]"},
      {"resize_weights([4, 1, 0.25, 0, 0, -0.75, 0, 1], ['linear', 'half_pixel', 'floor'])",
       "[0.03125, 0.09375, 0.15625, 0.21875, 0.21875, 0.15625, 0.09375, 0.03125]"},
      {"[i for i in 5000]", "limit"},
      {"resize_positions([4, 100000, 0.5, 0, 0, -0.75, 0, 0], ['nearest', 'asymmetric', 'floor'])", "limit"},
      {"resize_positions([4, 2, 0.5, 0, 0, -0.75, 0, 0], ['nearest', 'other', 'floor'])", "invalid_argument"},
      {"labels('ab', 3)", "invalid_argument"},
      {"max([])", "invalid_argument"},
      {"[i for i 3]", "malformed"},
      {"broadcast([3], [4])", "shape_mismatch"},
      {"axes(3, 3)", "invalid_argument"},
      {"list[3]", "invalid_argument"},
      {"1 / 0", "invalid_argument"},
      {"9223372036854775807 + 1", "invalid_argument"},
      {"filled(100000, 1)", "limit"},
      {"list + [1, 2]", "invalid_argument"},
      {"nothing", "missing"},
      {"nothing(1)", "missing"},
      {"", "malformed"},
      {"1 +", "malformed"},
      {"(1", "malformed"},
      {"[1, 2", "malformed"},
      {"'open", "malformed"},
      {"1 2", "malformed"},
      {"99999999999999999999", "malformed"},
      {std::string(1000, '('), "malformed"},
      {std::string(1000, '-') + "1", "malformed"},
  };
  for (const auto& row : rows) CHECK_MESSAGE(evaluated(row.first) == row.second, row.first);
}

TEST_CASE("import: expressions are bounded") {
  const auto repeated = [](std::string_view first, std::string_view part, std::size_t count,
                           std::string_view last = "") {
    std::string text(first);
    for (std::size_t i = 0; i < count; ++i) text += part;
    return text + std::string(last);
  };
  constexpr std::size_t million = 1000000;
  for (const std::string& text :
       {repeated("1", "+1", million), repeated("list", "[0]", million), repeated("list", "[0:]", million),
        repeated("", "-", million, "1"), repeated("", "!", million, "true"), repeated("", "(", million),
        repeated("", "true?", million, "1"), repeated("1", " else 1", million), repeated("[1", ",1", million, "]"),
        repeated("join(1", ",1", million, ")"), repeated("", "[", million), repeated("", "max(", million),
        repeated(repeated("", "(", 60) + "1", repeated("", "+1", 100) + ")", 60)}) {
    CAPTURE(text.substr(0, 12));
    CHECK(bad(ir::parse_expression(text)).code() == Errc::limit);
    CHECK(bad(ir::parse_step("y = abs(input: " + text + ")")).code() == Errc::limit);
    CHECK(bad(ir::parse_step("y = abs(input: x) if " + text)).code() == Errc::limit);
  }
  CHECK(evaluated(repeated("1", "+1", 999)) == "1000");
}

TEST_CASE("import: the rules name operators and arguments that exist") {
  MappingSet rules = MappingSet::onnx();
  CHECK(rules.size() > 100);
  CHECK(MappingSet::tensorflow().size() > 200);
  SUBCASE("of ONNX") {}
  SUBCASE("of TensorFlow") { rules = MappingSet::tensorflow(); }
  const auto has = [](const OperatorDescriptor& op, const std::string& name) {
    return std::any_of(op.arguments.begin(), op.arguments.end(), [&](const auto& a) { return a.name == name; });
  };
  for (const MappingSet::Operator& o : rules.operators()) {
    const ir::Declaration* const declaration = rules.find(o.domain, o.name, o.since);
    REQUIRE(declaration != nullptr);
    CHECK(declaration->since == o.since);
    if (!declaration->op_name.empty()) {
      const OperatorDescriptor* const op = OperatorSet::nd4j().find(declaration->op_name);
      REQUIRE_MESSAGE(op != nullptr, declaration->op_name);
      for (const ir::Rule& rule : declaration->rules) {
        for (const auto& pair : rule.names) CHECK_MESSAGE(has(*op, pair.first), o.name << ": " << pair.first);
      }
    }
    for (const ir::Step& step : declaration->steps) {
      if (step.op_name == "same") continue;
      const OperatorDescriptor* const op = OperatorSet::nd4j().find(step.op_name);
      REQUIRE_MESSAGE(op != nullptr, o.name << ": " << step.op_name);
      for (const auto& argument : step.arguments) {
        CHECK_MESSAGE(has(*op, argument.name), o.name << ": " << step.op_name << '.' << argument.name);
      }
    }
  }
}

TEST_CASE("import: versions, and rules of a user") {
  const MappingSet& all = MappingSet::onnx();
  CHECK(all.find("", "Softmax", 12)->since == 1);
  CHECK(all.find("", "Softmax", 13)->since == 13);
  CHECK(all.find("", "Softmax", 22)->since == 13);
  CHECK(all.find("", "Gelu", 19) == nullptr);
  CHECK(all.find("com.microsoft", "Gelu", 1) != nullptr);
  CHECK(all.find("", "Nothing", 22) == nullptr);

  const std::string graph =
      floats(11, "x", {2, 3}) + node("Twice", {"x"}, "y", bytes(7, "mine")) + floats(12, "y", {2, 3});
  const std::string file = model(graph, 17, bytes(8, bytes(1, "mine") + number(2, 4)));
  CHECK(bad(imported(file)).code() == Errc::unsupported);
  MappingSet rules = all;
  const auto add = [&](const std::string& text) { return MappingSet::open(bytes_of(text)); };
  rules.add(
      good(add("mappings { inputFrameworkOpName: 'Twice' domain: 'mine' sinceVersion: 2 untilVersion: 4 input: 'X' "
               "output: 'Y' step: 'Y = add(input: X, y: X)' shape: 'Y = shape(X)' }")));
  const Checkpoint twice = good(imported(file, {.mappings = &rules}));
  CHECK(text_of(twice.graph->operations.at(0)) == "add(x x -> y)");
  CHECK(twice.graph->find_variable("y")->shape == std::vector<std::int64_t>{2, 3});
  rules.add(
      good(add("mappings { inputFrameworkOpName: 'Twice' domain: 'mine' sinceVersion: 3 untilVersion: 3 input: 'X' "
               "output: 'Y' step: 'Y = sub(input: X, y: X)' }")));
  CHECK(bad(imported(file, {.mappings = &rules})).code() == Errc::unsupported);

  CHECK(bad(add("mappings { inputFrameworkOpName: 'A' }")).code() == Errc::malformed);
  CHECK(bad(add("mappings { inputFrameworkOpName: 'A' step: 'y = ' }")).code() == Errc::malformed);
  CHECK(bad(add("mappings { inputFrameworkOpName: 'A' opName: 'add' define: 'no' }")).code() == Errc::malformed);
  CHECK(bad(add("mappings { inputFrameworkOpName: 'A' opName: 'add' rule { ruleName: 'no' } }")).code() ==
        Errc::unsupported);
  CHECK(bad(add("mappings { inputFrameworkOpName: 'A' opName: 'add' } mappings { inputFrameworkOpName: 'A' opName: "
                "'add' }"))
            .code() == Errc::duplicate);
  CHECK(bad(add("nonsense")).code() == Errc::malformed);
}

TEST_CASE("import: a network") {
  stele::Report report;
  const Checkpoint mlp = good(import_onnx(test_data("onnx") + "/mlp.onnx", {.report = &report}));
  CHECK(report.paths(stele::Report::What::unused) == std::vector<std::string>{"shape"});  // names with dots are found
  std::string text;
  for (const GraphOperation& operation : mlp.graph->operations) text += text_of(operation) + '\n';
  CAPTURE(text);
  CHECK(text.find("matmul(") != text.npos);
  CHECK(text.find("relu(") != text.npos);
  CHECK(mlp.parameters.find("net.0.weight")->dtype() == stele::DType::f32);
  CHECK(mlp.graph->find_variable("net.0.weight")->kind == stele::VariableKind::variable);
  CHECK(good(mlp.graph->order()).size() == mlp.graph->operations.size());

  const TempDir dir;
  const stele::SameDiffRecorder<> recorder;
  good(recorder.save(mlp, dir / "mlp.fb"));
  const Checkpoint again = good(recorder.open_checkpoint(dir / "mlp.fb"));
  CHECK(again.graph->operations.size() == mlp.graph->operations.size());
  CHECK(again.parameters.leaf_count() == mlp.parameters.leaf_count());
}

TEST_CASE("import: chains of shapes are computed") {
  // Reshape(x, Concat(Unsqueeze(Gather(Shape(x), 0)), -1)), as exporters write Flatten.
  const auto constant = [](const std::string& output, std::int64_t value, bool list) {
    const std::string tensor =
        (list ? number(1, 1) : "") + number(2, 7) + bytes(7, varint(static_cast<std::uint64_t>(value)));
    return node("Constant", {}, output, bytes(5, bytes(1, "value") + bytes(5, tensor) + number(20, 4)));
  };
  const std::string axis = bytes(5, bytes(1, "axis") + number(3, 0) + number(20, 2));
  const std::string graph =
      floats(11, "x", {2, 3, 4}) + constant("zero", 0, false) + constant("zeros", 0, true) +
      constant("rest", -1, true) + node("Shape", {"x"}, "shape") + node("Gather", {"shape", "zero"}, "batch", axis) +
      node("Unsqueeze", {"batch", "zeros"}, "batches") + node("Concat", {"batches", "rest"}, "target", axis) +
      node("Reshape", {"x", "target"}, "y") + floats(12, "y", {2, 12});
  const Checkpoint flat = good(imported(model(graph)));
  REQUIRE(flat.graph->operations.size() == 1);
  CHECK(flat.graph->operations[0].op_name == "reshape");
  CHECK(flat.graph->find_variable("y")->shape == std::vector<std::int64_t>{2, 12});

  // The shape of the input can be given instead.
  const std::string open = floats(11, "x", {2, 3, 4});
  CHECK(bad(imported(model(graph), {.shapes = {{"x", {5, 3, 4}}}})).code() == Errc::shape_mismatch);
  CHECK(bad(imported(model(graph), {.shapes = {{"none", {5}}}})).code() == Errc::invalid_argument);
}

TEST_CASE("import: a chain of shapes with an open extent is computed as far as it is known") {
  // Reshape(x, Concat(Gather(Shape(x), [0]), [-1, 2])) of [?, 3, 4]: the second extent is not known, but the rank is.
  const std::string graph = floats(11, "x", {-1, 3, 4}) + integers("zero", {0}) + integers("rest", {-1, 2}) +
                            node("Shape", {"x"}, "shape") +
                            node("Gather", {"shape", "zero"}, "batch", attribute("axis", std::int64_t{0})) +
                            node("Concat", {"batch", "rest"}, "target", attribute("axis", std::int64_t{0})) +
                            node("Reshape", {"x", "target"}, "y") + node("Relu", {"y"}, "z") + floats(12, "z", {});
  const Checkpoint open = good(imported(model(graph)));
  CHECK(open.graph->find_variable("z")->shape == std::vector<std::int64_t>{-1, -1, 2});
  // With one extent left, DL4J computes it, and the chain is dropped.
  const std::string whole = floats(11, "x", {-1, 3, 4}) + integers("zero", {0}) + integers("rest", {12}) +
                            node("Shape", {"x"}, "shape") +
                            node("Gather", {"shape", "zero"}, "batch", attribute("axis", std::int64_t{0})) +
                            node("Concat", {"batch", "rest"}, "target", attribute("axis", std::int64_t{0})) +
                            node("Reshape", {"x", "target"}, "y") + floats(12, "y", {-1, 12});
  const Checkpoint flat = good(imported(model(whole)));
  REQUIRE(flat.graph->operations.size() == 1);
  CHECK(flat.parameters.leaf_count() == 1);
  CHECK(flat.graph->find_variable("y")->shape == std::vector<std::int64_t>{-1, 12});
  // A comparison of an extent that is not known is not computed.
  const std::string compared = floats(11, "x", {-1, 3}) + integers("one", {1}) + node("Shape", {"x"}, "shape") +
                               node("Greater", {"shape", "one"}, "large") + floats(12, "large", {2});
  CHECK(good(imported(model(compared))).graph->operations.size() == 2);
}

TEST_CASE("import: a report tells which initializers the graph does not have") {
  const std::string graph = floats(11, "x", {2, 3}) + integers("target", {3, 2}) + integers("idle", {1}) +
                            node("Reshape", {"x", "target"}, "y") + floats(12, "y", {3, 2});
  stele::Report report;
  const Checkpoint reshaped = good(imported(model(graph), {.report = &report}));
  CHECK(report.size() == 2);
  CHECK(report.paths(stele::Report::What::unused) == std::vector<std::string>{"target", "idle"});
  CHECK(report[0].detail == "no operation needs it at run time");
  CHECK(report[1].detail == "no node reads it");
}

TEST_CASE("import: constants that rules make are bounded") {
  // Each Resize gathers 60000 elements of an axis.
  const std::string axis = integers("sizes", {60000});
  std::string graph = floats(11, "x", {2}) + axis;
  for (int i = 0; i < 100; ++i) {
    const std::string name = "y" + std::to_string(i);
    graph += node("Resize", {"x", "", "", "sizes"}, name) + floats(12, name, {60000});
  }
  CHECK(bad(imported(model(graph))).code() == Errc::limit);
  const std::string many_axes =
      floats(11, "x", {2}) + axis +
      node("Resize", {"x", "", "", "sizes"}, "y", attribute("axes", std::vector<std::int64_t>(1000, 0))) +
      floats(12, "y", {2});
  CHECK(bad(imported(model(many_axes))).code() == Errc::unsupported);
}

TEST_CASE("import: a rule computes elements of its outputs") {
  const MappingSet rules = good(MappingSet::open(bytes_of(
      "mappings { inputFrameworkOpName: 'Own' sinceVersion: 1 input: 'X' output: 'Y...' step: 'Y[2] = split(a: X, "
      "numSplit: 2, dimensions: 0)' elements: 'Y[i] = [integers(X)[i] + 1]' shape: 'Y[i] = [1]' dtype: 'Y[i] = 6' }")));
  const auto own = [&](const std::string& given) {
    const std::string graph = floats(11, "x", {2}) + integers("w", {7, 8}) + node("Own", {given}, "a", bytes(2, "b")) +
                              floats(12, "a", {1}) + floats(12, "b", {1});
    return good(imported(model(graph), {.mappings = &rules}));
  };
  const Checkpoint known = own("w");
  CHECK(known.graph->operations.empty());
  REQUIRE(known.parameters.leaf_count() == 2);
  const stele::LeafView last = known.parameters.leaf(1);
  CHECK(last.path() == "b");
  CHECK(last.dtype() == stele::DType::i32);
  std::vector<std::byte> element(4);
  REQUIRE(last.read(0, element));
  CHECK(element[0] == std::byte{9});
  CHECK(own("x").graph->operations.size() == 1);  // not of integers
}

TEST_CASE("import: operations of a rule have names of their own") {
  // Two nodes whose names differ by "_1", of which each becomes several operations.
  const auto named = [](const std::string& name, const std::string& from, const std::string& to) {
    return bytes(1, bytes(1, from) + bytes(2, to) + bytes(3, name) + bytes(4, "HardSwish"));
  };
  const std::string graph = floats(11, "x", {2}) + named("n", "x", "y") + named("n_1", "y", "z") + floats(12, "z", {2});
  const Checkpoint both = good(imported(model(graph)));
  std::vector<std::string> names;
  for (const GraphOperation& operation : both.graph->operations) names.push_back(operation.name);
  std::sort(names.begin(), names.end());
  CHECK(names.size() == 8);
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
}

TEST_CASE("import: a scalar of a higher rank lifts the other operand") {
  const std::string graph =
      floats(11, "x", {3}) + floats(11, "one", {1, 1}) + node("Add", {"x", "one"}, "y") + floats(12, "y", {1, 3});
  const Checkpoint sum = good(imported(model(graph)));
  REQUIRE(sum.graph->operations.size() == 2);
  CHECK(sum.graph->operations[0].op_name == "reshape");
}

TEST_CASE("import: rules repeat steps within bounds") {
  const auto rules = [](const std::string& steps) {
    MappingSet set = MappingSet::onnx();
    set.add(good(MappingSet::open(
        bytes_of("mappings { inputFrameworkOpName: 'Twice' sinceVersion: 1 input: 'X' output: 'Y' attribute: 'n' " +
                 steps + " }"))));
    return set;
  };
  const auto twice = [](std::int64_t n) {
    return model(floats(11, "x", {2}) + node("Twice", {"x"}, "y", attribute("n", n)) + floats(12, "y", {2}));
  };
  // Both steps run in each pass.
  const MappingSet chain = rules(
      "step: 'a = neg(input: i == 0 ? X : b[i - 1]) for i in n' step: 'b = abs(input: a[i]) for i in n' "
      "step: 'Y = same(input: b[n - 1])'");
  const Checkpoint four = good(imported(twice(2), {.mappings = &chain}));
  std::string text;
  for (const GraphOperation& operation : four.graph->operations) text += operation.op_name + ' ';
  CHECK(text == "neg abs neg abs ");
  CHECK(four.graph->operations.back().outputs == std::vector<std::string>{"y"});
  CHECK(bad(imported(twice(2000), {.mappings = &chain})).code() == Errc::unsupported);
  CHECK(bad(imported(twice(0), {.mappings = &chain})).code() == Errc::invalid_argument);
  // Many operations of a small file.
  std::string many = floats(11, "x", {2});
  for (int i = 0; i < 100; ++i)
    many += node("Twice", {"x"}, "y" + std::to_string(i), attribute("n", std::int64_t{1000}));
  CHECK(bad(imported(model(many + floats(12, "y0", {2})), {.mappings = &chain})).code() == Errc::limit);
}

TEST_CASE("import: what is not supported is told at once") {
  const std::string graph = floats(11, "x", {2}) + node("Foo", {"x"}, "a") + node("Relu", {"a"}, "b") +
                            node("Bar", {"b"}, "c") + floats(12, "c", {2});
  const stele::Error error = bad(imported(model(graph)));
  CHECK(error.code() == Errc::unsupported);
  for (const char* part : {"the Foo (Foo, version 17)", "the Bar (Bar, version 17)"}) {
    CHECK(std::string(error.found()).find(part) != std::string::npos);
  }
  CHECK(std::string(error.found()).find("Relu") == std::string::npos);
}

TEST_CASE("import: graphs that are wrong") {
  const std::string x = floats(11, "x", {2}), y = floats(12, "y", {2});
  CHECK(bad(imported(model(x + node("Relu", {"z"}, "y") + y))).code() == Errc::malformed);
  const std::string deep = floats(11, "d", std::vector<std::int64_t>(33, 1));
  CHECK(bad(imported(model(deep + node("Relu", {"d"}, "y") + y))).code() == Errc::unsupported);
  CHECK(bad(imported(model(x + node("Relu", {"b"}, "a") + node("Relu", {"a"}, "b") + y))).code() == Errc::malformed);
  CHECK(bad(imported(model(x + node("Relu", {"x"}, "x") + y))).code() == Errc::duplicate);
  CHECK(bad(imported(model(x + node("Relu", {"x"}, "y") + node("Relu", {"x"}, "y") + y))).code() == Errc::duplicate);
  CHECK(bad(imported(model(x + node("Relu", {}, "y") + y))).code() == Errc::missing);
  CHECK(bad(imported(model(x + y))).code() == Errc::malformed);
  CHECK(bad(imported(model(x + node("Relu", {"x"}, "y", bytes(7, "else")) + y))).code() == Errc::malformed);
  CHECK(bad(imported(model(x + node("Relu", {"x"}, "y", bytes(5, bytes(1, "surprise") + number(3, 1))) + y))).code() ==
        Errc::unsupported);
  const std::string wide = floats(11, "v", {3});
  CHECK(bad(imported(model(x + wide + node("Add", {"x", "v"}, "y") + y))).code() == Errc::shape_mismatch);
  // A function that calls itself.
  const std::string body = bytes(7, bytes(1, "i") + bytes(2, "o") + bytes(4, "f") + bytes(7, "d"));
  const std::string function = bytes(25, bytes(1, "f") + bytes(4, "i") + bytes(5, "o") + body + bytes(10, "d"));
  CHECK(bad(imported(model(x + node("f", {"x"}, "y", bytes(7, "d")) + y, 17, function))).code() == Errc::limit);
}

TEST_CASE("import: functions are expanded") {
  const auto inner = [](const std::string& op, const std::string& from, const std::string& to) {
    return bytes(7, bytes(1, from) + bytes(2, to) + bytes(4, op));
  };
  const std::string function =
      bytes(25, bytes(1, "f") + bytes(4, "i") + bytes(5, "o") + inner("Relu", "i", "m") + inner("Sigmoid", "m", "o") +
                    bytes(9, bytes(1, "") + number(2, 17)) + bytes(10, "d"));
  const std::string graph = floats(11, "x", {2}) + node("f", {"x"}, "m", bytes(7, "d")) +
                            node("f", {"m"}, "y", bytes(7, "d")) + floats(12, "y", {2});
  const Checkpoint twice = good(imported(model(graph, 17, function)));
  std::string text;
  for (const GraphOperation& operation : twice.graph->operations) text += text_of(operation) + '\n';
  CHECK(twice.graph->operations.size() == 4);
  CHECK_MESSAGE(good(twice.graph->order()).size() == 4, text);
}

TEST_CASE("import: models of the onnx package") {
  const std::string folder = test_data("onnx") + "/package/";
  std::vector<std::string> refused;
  std::size_t all = 0;
  for (const std::string& name : names_in(folder)) {
    CAPTURE(name);
    const auto result = import_onnx(folder + name);
    ++all;
    if (!result) {
      CHECK_MESSAGE(result.error().code() == Errc::unsupported, result.error().to_string());
      refused.push_back(name);
      continue;
    }
    CHECK(good(result->graph->order()).size() == result->graph->operations.size());
    CHECK(!result->graph->outputs.empty());
  }
  CHECK(all == 48);
  std::sort(refused.begin(), refused.end());
  // They take a list of integers as an input of the model.
  CHECK(refused == std::vector<std::string>{"test_constant_pad.onnx", "test_edge_pad.onnx", "test_slice.onnx",
                                            "test_slice_neg_steps.onnx", "test_split_variable_parts_1d_opset18.onnx",
                                            "test_squeeze_negative_axes.onnx", "test_unsqueeze_two_axes.onnx"});
}

TEST_CASE("import: a stride that libnd4j cannot hold needs the extent") {
  const std::int64_t far = std::int64_t{1} << 62, end = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t step : {far, -far}) {
    for (const std::int64_t extent : {-1, 7}) {
      CAPTURE(step);
      CAPTURE(extent);
      const std::string graph = floats(11, "x", {extent}) + integers("s", {step > 0 ? 0 : -1}) +
                                integers("e", {step > 0 ? end : -end}) + integers("a", {0}) + integers("t", {step}) +
                                node("Slice", {"x", "s", "e", "a", "t"}, "y") + floats(12, "y", {-1});
      const auto result = imported(model(graph));
      if (extent < 0) {
        CHECK(bad(result).to_string().find("ImportOptions::shapes (open: x [?])") != std::string::npos);
      } else {
        CHECK(good(result).graph->find_variable("y")->shape == std::vector<std::int64_t>{1});
      }
    }
  }
}

TEST_CASE("import: a refused string names the node and the reason") {
  const auto message = [](const std::string& graph) {
    return bad(imported(model(floats(11, "x", {2}) + graph + floats(12, "y", {2})))).to_string();
  };
  const std::string strings = number(1, 1) + number(2, 8) + bytes(6, "text");  // a TensorProto
  const std::string use = node("Equal", {"words", "words"}, "y");
  const std::string tensor = bytes(5, bytes(1, "value") + bytes(5, strings) + number(20, 4));
  for (const std::string& graph :
       {node("Constant", {}, "words", tensor) + use,
        node("Constant", {}, "words", attribute("value_strings", std::vector<std::string>{"text"})) + use,
        use + bytes(5, strings + bytes(8, "words"))}) {
    const std::string text = message(graph);
    CAPTURE(text);
    CHECK((text.find("the Constant (Constant, version 17)") != std::string::npos ||
           text.find("the Equal (Equal, version 17)") != std::string::npos));
    CHECK(text.find("are not numbers") != std::string::npos);
    CHECK(text.find("found strings") != std::string::npos);
  }
}

TEST_CASE("import: a refusal over open extents names them and the option") {
  const std::string graph = floats(11, "x", {-1, 3}) + integers("s", {-1}) + integers("e", {-5}) + integers("a", {0}) +
                            node("Slice", {"x", "s", "e", "a", "s"}, "y") + floats(12, "y", {-1, 3});
  const stele::Error error = bad(imported(model(graph)));
  CHECK(error.code() == Errc::unsupported);
  const auto has = [](std::string_view text, std::string_view part) { return text.find(part) != text.npos; };
  CHECK_MESSAGE(has(error.found(), "it needs extents that the model leaves open, found x [?, 3]"), error.to_string());
  CHECK_MESSAGE(has(error.hint(), "ImportOptions::shapes (open: x [?, 3])"), error.to_string());
  CHECK(!has(error.hint(), "mappings"));
  CHECK(!has(error.to_string(), "given("));
  good(imported(model(graph), {.shapes = {{"x", {4, 3}}}}));
  // With another node that no extent helps, both remedies.
  const std::string both = graph + node("Foo", {"y"}, "z");
  const stele::Error two = bad(imported(model(both)));
  CHECK(has(two.hint(), "ImportOptions::shapes"));
  CHECK(has(two.hint(), "ImportOptions::mappings"));
}

TEST_CASE("import: a rule that makes no tensor for an output is to blame") {
  MappingSet rules = MappingSet::onnx();
  rules.add(good(MappingSet::open(bytes_of(
      "mappings { inputFrameworkOpName: 'Half' sinceVersion: 1 input: 'X' output: 'Y' attribute: 'n = 0' step: 'Y = "
      "neg(input: X) if n == 1' }"))));
  const std::string x = floats(11, "x", {2}), y = floats(12, "z", {2});
  const stele::Error error =
      bad(imported(model(x + node("Half", {"x"}, "y") + node("Relu", {"y"}, "z") + y), {.mappings = &rules}));
  CHECK(error.code() == Errc::malformed);
  CHECK_MESSAGE(error.message() == "the mapping rule has no step that makes an output here", error.to_string());
  CHECK(error.path() == "the Half (Half): Y");
}

TEST_CASE("import: integers that libnd4j would cut") {
  const std::int64_t far = std::int64_t{1} << 40;
  const std::string graph = floats(11, "x", {1, 1, 8, 8}) +
                            node("MaxPool", {"x"}, "y",
                                 attribute("kernel_shape", std::vector<std::int64_t>{1, 1}) +
                                     attribute("strides", std::vector<std::int64_t>{far, 1})) +
                            floats(12, "y", {1, 1, 1, 8});
  const stele::Error error = bad(imported(model(graph)));
  CHECK(error.code() == Errc::unsupported);
  CHECK_MESSAGE(error.to_string().find("32-bit") != std::string::npos, error.to_string());
  CHECK(error.to_string().find(std::to_string(far)) != std::string::npos);
}

TEST_CASE("import: nodes in any order") {
  const std::string x = floats(11, "x", {2}), y = floats(12, "y", {2});
  const Checkpoint sorted =
      good(imported(model(x + node("Neg", {"b"}, "y") + node("Relu", {"a"}, "b") + node("Abs", {"x"}, "a") + y)));
  std::string text;
  for (const GraphOperation& operation : sorted.graph->operations) text += operation.op_name + ' ';
  CHECK(text == "abs relu neg ");
  std::string chain = x;  // 20,000 nodes backwards: the order takes linear time and no stack
  const auto name = [](int i) { return i == 0 ? "x"s : i == 20000 ? "y"s : "t" + std::to_string(i); };
  for (int i = 20000; i > 0; --i) chain += node("Relu", {name(i - 1)}, name(i));
  CHECK(good(imported(model(chain + y))).graph->operations.size() == 20000);
}

TEST_CASE("import: the lowest integer is no unknown extent") {
  const std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  CHECK(evaluated("[-9223372036854775807 - 1, 3] + 1") == "[-9223372036854775807, 4]");
  CHECK(evaluated("known(-9223372036854775807 - 1)") == "true");
  CHECK(evaluated("open[0] ? 1 : 2") == "unknown");
  CHECK(evaluated("open[1:]") == "[4]");
  CHECK(evaluated("known(open[1:])") == "true");
  // Slice(x, -1, lowest, step -1), as torch.flip is exported.
  const std::string graph = floats(11, "x", {5, 3}) + integers("s", {-1}) + integers("e", {lowest}) +
                            integers("a", {0}) + node("Slice", {"x", "s", "e", "a", "s"}, "y") +
                            floats(12, "y", {5, 3});
  CHECK(good(imported(model(graph))).graph->find_variable("y")->shape == std::vector<std::int64_t>{5, 3});
}

TEST_CASE("import: Einsums that are written as simpler ones") {
  const auto operations = [](const std::string& equation, std::size_t operands, std::vector<std::int64_t> shape) {
    std::string graph;
    std::string inputs;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < operands; ++i) {
      names.push_back("x" + std::to_string(i));
      graph += floats(11, names.back(), shape);
    }
    return imported(model(graph + node("Einsum", names, "y", attribute("equation", equation)) + floats(12, "y", {})));
  };
  CHECK(good(operations("ij,jk,kl->il", 3, {2, 2})).graph->find_variable("y")->shape ==
        std::vector<std::int64_t>{2, 2});
  CHECK(good(operations("ii", 1, {3, 3})).graph->find_variable("y")->shape == std::vector<std::int64_t>{});
  CHECK(bad(operations("ij,jk->ik", 3, {2, 2})).code() == Errc::unsupported);  // another number of operands
  CHECK(bad(operations("ij->ii", 1, {2, 2})).code() == Errc::unsupported);
  CHECK(bad(operations("ij->k", 1, {2, 2})).code() == Errc::unsupported);
  // Nodes of very many operands stay as they are.
  std::string wide = "a", all = floats(11, "x", {2});
  std::vector<std::string> same(20000, "x");
  for (std::size_t i = 1; i < same.size(); ++i) wide += ",a";
  for (int i = 0; i < 3; ++i) all += node("Einsum", same, "y" + std::to_string(i), attribute("equation", wide));
  if (!sanitizers) {  // they take minutes
    CHECK(bad(imported(model(all + floats(12, "y2", {})))).code() == Errc::unsupported);
  }
  for (const char* text :
       {"", "->", ",", ",,,", "...", "....", "i...j...", "->->", "i,,j", "i->j", "ii,ii,ii", "..i.."}) {
    CAPTURE(text);
    const auto result = operations(text, 3, {2, 2});
    if (result) good(result->graph->order());
  }
}

TEST_CASE("import: constants and functions that would grow without bound") {
  // 3000 constants of a million elements each: DL4J fills them.
  const std::string million = number(1, 2) + number(2, 7) + bytes(7, varint(1000) + varint(1000));
  std::string graph =
      floats(11, "x", {2}) + node("Constant", {}, "n", bytes(5, bytes(1, "value") + bytes(5, million) + number(20, 4)));
  for (int i = 0; i < 3000; ++i) {
    const std::string name = "c" + std::to_string(i);
    graph += node("ConstantOfShape", {"n"}, name) + floats(12, name, {1000, 1000});
  }
  const Checkpoint filled = good(imported(model(graph + node("Relu", {"x"}, "y") + floats(12, "y", {2}))));
  CHECK(filled.graph->operations.size() == 3001);
  CHECK(filled.parameters.leaf_count() == 1);

  // Functions of 10 calls of the next, 8 deep.
  std::string functions;
  for (int depth = 0; depth < 8; ++depth) {
    std::string body;
    for (int i = 0; i < 10; ++i) {
      const std::string from = i == 0 ? "i" : "t" + std::to_string(i), to = i == 9 ? "o" : "t" + std::to_string(i + 1);
      const bool last = depth == 7;
      body += bytes(7, bytes(1, from) + bytes(2, to) + bytes(4, last ? "Relu" : "f" + std::to_string(depth + 1)) +
                           (last ? "" : bytes(7, "d")));
    }
    functions += bytes(25, bytes(1, "f" + std::to_string(depth)) + bytes(4, "i") + bytes(5, "o") + body +
                               bytes(9, bytes(1, "") + number(2, 17)) + bytes(10, "d"));
  }
  const std::string calls = floats(11, "x", {2}) + node("f0", {"x"}, "y", bytes(7, "d")) + floats(12, "y", {2});
  CHECK(bad(imported(model(calls, 17, functions))).code() == Errc::limit);
}

TEST_CASE("import: names of the model are not taken for the rules' own tensors") {
  // Gemm makes "the Gemm/product", and its beta a "constant"; both are names of the model, too.
  const std::string beta = bytes(5, bytes(1, "beta") + varint(2 << 3 | 5) + "\0\0\0\x40"s + number(20, 1));
  const std::string graph = floats(11, "a", {2, 2}) + floats(11, "c", {2, 2}) +
                            node("Gemm", {"a", "a", "c"}, "g", beta) + node("Relu", {"g"}, "the Gemm/product") +
                            node("Relu", {"the Gemm/product"}, "constant") + floats(12, "constant", {2, 2});
  const Checkpoint both = good(imported(model(graph)));
  CHECK(both.graph->operations.size() == 5);
  CHECK(both.graph->outputs == std::vector<std::string>{"constant"});
  CHECK(good(both.graph->order()).size() == 5);

  const std::string weight = bytes(5, number(1, 1) + number(2, 1) + bytes(8, "w") + bytes(9, "1234"));
  const std::string twice = floats(11, "x", {1}) + weight + node("Relu", {"x"}, "w") + floats(12, "w", {1});
  CHECK(bad(imported(model(twice))).code() == Errc::duplicate);
}

TEST_CASE("import: a function with many inputs that is called many times") {
  std::string inputs, calls;
  for (int i = 0; i < 2000; ++i) inputs += bytes(4, "i" + std::to_string(i));
  for (int i = 0; i < 2000; ++i) calls += node("f", {"x"}, "y" + std::to_string(i), bytes(7, "d"));
  const std::string function =
      bytes(25, bytes(1, "f") + inputs + bytes(5, "o") + bytes(7, bytes(1, "i0") + bytes(2, "o") + bytes(4, "Relu")) +
                    bytes(9, bytes(1, "") + number(2, 17)) + bytes(10, "d"));
  const std::string graph = floats(11, "x", {2}) + calls + floats(12, "y1", {2});
  CHECK(bad(imported(model(graph, 17, function))).code() == Errc::limit);
}

TEST_CASE("import: a constant that does not fit its dtype") {
  // alpha of LeakyRelu on integers.
  const std::string integers = bytes(11, bytes(1, "x") + bytes(2, bytes(1, number(1, 7))));
  const std::string graph = integers + node("LeakyRelu", {"x"}, "y") + floats(12, "y", {2});
  CHECK(bad(imported(model(graph))).code() == Errc::out_of_range);
}

}  // namespace import_test
