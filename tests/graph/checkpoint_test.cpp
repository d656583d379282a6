// Optimizer state as modules, graphs and their order, names of operations.
#include "stele/checkpoint.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>

#include "support/models.hpp"
#include "support/recorders.hpp"

namespace checkpoint_test {

namespace {

using namespace stele;
using namespace stele_test;
using Names = std::vector<std::string>;
using Order = std::vector<std::size_t>;

/// A graph of operations "name: inputs > outputs"; its variables are all that are named.
Graph graph(const std::vector<std::tuple<std::string, Names, Names>>& operations, const Names& more = {}) {
  Graph g;
  const auto add = [&](const std::string& name) {
    if (g.find_variable(name) != nullptr) return;
    GraphVariable v;
    v.name = name;
    g.variables.push_back(v);
  };
  for (const auto& [name, inputs, outputs] : operations) {
    GraphOperation op;
    op.name = name;
    op.inputs = inputs;
    op.outputs = outputs;
    g.operations.push_back(op);
    for (const std::string& v : inputs) add(v);
    for (const std::string& v : outputs) add(v);
  }
  for (const std::string& v : more) add(v);
  return g;
}

struct Layer {
  Tensor<float, 1> w, b;
  int steps = 0;
  STELE_MODULE(Layer, w, b, steps)
};
Layer layer(float n) { return {vec({n, n + 1}), vec({n + 2}), 3}; }

struct TiedMoments {
  Param<Tensor<float, 1>> w;
  std::shared_ptr<Tensor<float, 1>> first, second;
  std::shared_ptr<Layer> layer, same_layer;
  std::shared_ptr<int> steps, same_steps;
  STELE_MODULE(TiedMoments, w, first, second, layer, same_layer, steps, same_steps)
};

}  // namespace

TEST_CASE("checkpoint: a kind of optimizer state is saved and opened as any Snapshot") {
  TiedMoments m;
  m.w = {vec({1, 2}), ParamId::from_u64(7)};
  m.first = m.second = std::make_shared<Tensor<float, 1>>(vec({3}));
  m.layer = m.same_layer = std::make_shared<Layer>(layer(4));
  m.steps = m.same_steps = std::make_shared<int>(5);
  OptimizerState state;
  good(state.set("M", m));
  const Snapshot& arrays = *state.find("M");
  REQUIRE(arrays.leaf_count() == 4);  // each tie once
  CHECK(outline(arrays) ==
        "tensor w\ntensor first\ntensor layer.w\ntensor layer.b\nalias second\nmodule layer\nalias same_layer\n");
  CHECK(arrays.leaf(0).id() == ParamId::from_u64(7));

  for (const Snapshot& from : {arrays, good(BinaryRecorder<>().open(good(saved(BytesRecorder<>(), arrays))))}) {
    CHECK(image(from) == image(arrays));
    OptimizerState opened;
    opened.set_snapshot("M", from);
    TiedMoments live;
    live.w = {vec({0, 0}), ParamId::from_u64(8)};
    live.first = live.second = std::make_shared<Tensor<float, 1>>(vec({0}));
    live.layer = live.same_layer = std::make_shared<Layer>(layer(0));
    live.steps = live.same_steps = std::make_shared<int>(9);
    good(opened.load_into("M", live));
    CHECK((*live.second)[0] == 3);
    CHECK(live.same_layer->b[0] == 6);
    CHECK(*live.same_steps == 9);
  }
}

TEST_CASE("checkpoint: annotations of optimizer state stay") {
  SnapshotBuilder builder;
  builder.begin(NodeKind::module, "");
  static const float number = 1;
  static constexpr LeafOps ops{.view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
  builder.tensor("t", DType::f32, std::vector<Extent>{1}, 4, {&ops, &number, 0});
  builder.annotate("scheme", Value("a"));
  builder.value("v", Value(2.0));
  OptimizerState state;
  state.set_snapshot("M", builder.finish());
  const Snapshot& arrays = *state.find("M");
  REQUIRE(arrays.leaf_count() == 1);
  REQUIRE(arrays.leaf(0).annotations() != nullptr);
  CHECK(*arrays.leaf(0).annotations()->at("scheme").as_string() == "a");
  CHECK(outline(arrays) == "tensor t\n");
}

TEST_CASE("checkpoint: kinds of optimizer state") {
  OptimizerState state;
  CHECK(state.empty());
  CHECK(state.find("M") == nullptr);
  const Layer m = layer(1), v = layer(10), other = layer(20);
  good(state.set("V", v));
  good(state.set("M", m));
  CHECK_FALSE(state.empty());
  CHECK(state.kinds()[0].first == "V");  // as they were set
  CHECK(state.kinds()[1].first == "M");
  good(state.set("V", other));
  CHECK(state.kinds().size() == 2);
  CHECK(state.kinds()[0].first == "V");
  REQUIRE(state.find("V") != nullptr);
  CHECK(good(content(state.find("V")->find("w").value())) == std::string(text_of(std::as_bytes(other.w.span()))));
  CHECK(state.find("v") == nullptr);

  // Into a module; what is no tensor stays.
  Layer live = layer(0);
  live.steps = 9;
  Report report;
  good(state.load_into("M", live, {.report = &report}));
  CHECK(live.w[1] == 2);
  CHECK(live.b[0] == 3);
  CHECK(live.steps == 9);
  CHECK(report.count(Report::What::applied) == 2);
  const Error none = bad(state.load_into("X", live));
  CHECK(none.code() == Errc::not_found);
  CHECK(none.path() == "X");
  // Nothing of it changes where something is of another shape.
  Layer larger{vec({0, 0, 0}), vec({0}), 0};
  CHECK_FALSE(state.load_into("M", larger).has_value());
  CHECK(larger.b[0] == 0);
}

TEST_CASE("graph: names") {
  const Graph g = graph({{"op", {"a"}, {"b"}}});
  CHECK(g.find_variable("a") == &g.variables[0]);
  CHECK(g.find_variable("op") == nullptr);
  CHECK(g.find_operation("op") == &g.operations[0]);
  CHECK(g.find_operation("") == nullptr);
  CHECK(Graph() == Graph());
  CHECK(g == Graph(g));
  CHECK_FALSE(g == Graph());
}

TEST_CASE("graph: an order of operations") {
  CHECK(good(Graph().order()).empty());
  CHECK(good(graph({{"c", {"y"}, {"z"}}, {"b", {"x"}, {"y"}}, {"a", {}, {"x"}}}).order()) == Order{2, 1, 0});
  // A diamond; two outputs; an input used twice.
  CHECK(good(graph({{"join", {"l", "r"}, {"o"}},
                    {"left", {"x"}, {"l"}},
                    {"right", {"x2", "x2"}, {"r"}},
                    {"top", {}, {"x", "x2"}}})
                 .order()) == Order{3, 1, 2, 0});
  // Operations that are not connected keep their place.
  CHECK(good(graph({{"a", {}, {}}, {"b", {}, {"v"}}, {"c", {}, {}}}).order()) == Order{0, 1, 2});
  // Control dependencies of operations and of variables; one that does not exist has no effect.
  Graph g = graph({{"last", {}, {}}, {"first", {}, {"v"}}, {"middle", {}, {}}});
  g.operations[0].control_dependencies = {"middle", "nobody"};
  g.operations[2].var_control_dependencies = {"v"};
  CHECK(good(g.order()) == Order{1, 2, 0});
}

TEST_CASE("graph: loops are entered once") {
  CHECK(good(graph({{"self", {"v"}, {"v"}}}).order()) == Order{0});
  // enter, merge, switch, body, next: as DL4J writes a while loop.
  const Graph loop = graph({{"merge", {"entered", "next"}, {"merged"}},
                            {"exit", {"off"}, {"out"}},
                            {"body", {"on"}, {"done"}},
                            {"next", {"done"}, {"next"}},
                            {"switch", {"merged"}, {"off", "on"}},
                            {"enter", {"in"}, {"entered"}}});
  const Order order = good(loop.order());
  CHECK(Order(order.begin(), order.end()).size() == 6);
  const auto place = [&](std::size_t op) { return std::find(order.begin(), order.end(), op) - order.begin(); };
  CHECK(place(5) < place(0));
  CHECK(place(4) < place(1));
  CHECK(place(4) < place(2));
  CHECK(place(2) < place(3));
  Graph ring = graph({{"a", {}, {}}, {"b", {}, {}}});
  ring.operations[0].control_dependencies = {"b"};
  ring.operations[1].control_dependencies = {"a"};
  CHECK(good(ring.order()) == Order{1, 0});
}

TEST_CASE("graph: what has no order") {
  const auto error = [](const Graph& g) { return bad(g.order()); };
  Graph g = graph({{"a", {"x"}, {"y"}}});
  g.operations[0].inputs = {"gone"};
  CHECK(error(g).code() == Errc::malformed);
  CHECK(error(g).path() == "gone");
  CHECK(error(g).found() == "operation a");
  g.operations[0].inputs = {};
  g.operations[0].outputs = {"lost"};
  CHECK(error(g).path() == "lost");
  g.operations[0].outputs = {};
  g.operations[0].var_control_dependencies = {"never"};
  CHECK(error(g).path() == "never");
  CHECK(error(graph({{"a", {}, {"x"}}, {"b", {}, {"x"}}})).path() == "x");
  CHECK(error(graph({{"a", {}, {"x", "x"}}})).path() == "x");
  const Error twice = error(graph({{"a", {}, {}}, {"a", {}, {}}}));
  CHECK(twice.code() == Errc::duplicate);
  CHECK(twice.path() == "a");
  Graph same = graph({{"a", {"x"}, {}}});
  same.variables.push_back(same.variables[0]);
  CHECK(error(same).code() == Errc::duplicate);
}

TEST_CASE("graph: a chain of a hundred thousand operations") {
  constexpr std::size_t n = 100000;
  Graph g;
  g.variables.resize(n + 1);
  g.operations.resize(n);
  for (std::size_t i = 0; i <= n; ++i) g.variables[i].name = "v" + std::to_string(i);
  // The last one stands first, so that all of it is under way at once.
  for (std::size_t i = 0; i < n; ++i) {
    GraphOperation& op = g.operations[n - 1 - i];
    op.name = "o" + std::to_string(i);
    op.inputs = {g.variables[i].name};
    op.outputs = {g.variables[i + 1].name};
  }
  const Order order = good(g.order());
  REQUIRE(order.size() == n);
  CHECK(order.front() == n - 1);
  CHECK(order.back() == 0);
  CHECK(std::is_sorted(order.rbegin(), order.rend()));
}

TEST_CASE("graph: hashes of operations' names") {
  // Hashes from libnd4j's own test, and from files that DL4J wrote.
  const std::map<std::string, std::int64_t> known = {
      {"Conv2D", -1637140380760460323},    {"switch", -1988317239813741487}, {"conv2d", 7325441780195652299},
      {"matmul", -273014250715117663},     {"add", -5176033361941572836},    {"softmax", -7532944577593734819},
      {"batchnorm", -786897392139953973},  {"gather", 815645875345456061},   {"reshape", -299234276746112594},
      {"layer_norm", 7807402651421255526}, {"concat", 1715560391506571477}};
  for (const auto& one : known) {
    CAPTURE(one.first);
    CHECK(operation_hash(one.first) == one.second);
  }
  CHECK(operation_hash("") != operation_hash(std::string_view("\0", 1)));
  CHECK(operation_hash("\xff") != operation_hash("\x7f"));
}

}  // namespace checkpoint_test
