// Export of graphs as ONNX models: what is refused, what is reported, bounds.
#include <stele/export.hpp>
#include <stele/import.hpp>
#include <stele/recorders/onnx.hpp>
#include <stele/sink.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <ctime>
#include <initializer_list>
#include <string>
#include <vector>

#include "ir/onnx/kernels.hpp"
#include "support/golden_run.hpp"
#include "support/models.hpp"
#include "support/temp_dir.hpp"
#include "support/tensorflow_bytes.hpp"

namespace export_test {

using namespace stele_test;
using namespace stele_test::tensorflow;
using stele::Checkpoint;
using stele::Errc;
using stele::Error;
using stele::ExportOptions;
using stele::Report;

namespace {

using Paths = std::vector<std::string>;

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

struct Exported {
  std::vector<std::byte> bytes;
  Report report;
};
stele::Result<Exported> exported(const Checkpoint& model, const ExportOptions& options = {}) {
  stele::BufferSink sink;
  auto report = stele::export_onnx(model, sink, options);
  if (!report) return report.error();
  const stele::Bytes all = sink.take();
  return Exported{{all.span().begin(), all.span().end()}, *std::move(report)};
}
Checkpoint again(const Checkpoint& model, const ExportOptions& options = {}) {
  return good(stele::import_onnx(good(exported(model, options)).bytes));
}

/// y = relu(x + w), with a parameter.
Checkpoint small() {
  return good(import_of(placeholder("x", {-1, 2}) + constant("w", tensor(std::vector<float>{1, 2})) +
                        node("sum", "AddV2", {"x", "w"}) + node("y", "Relu", {"sum"})));
}

std::vector<double> run_small(const Checkpoint& model, const std::string& output) {
  interpreter::Arrays inputs;
  inputs["x"] = {{1, 2}, {-5, 3}};
  return interpreter::run_graph(model, inputs).at(output).values;
}

}  // namespace

TEST_CASE("export: a graph, twice the same bytes") {
  const Checkpoint model = small();
  const Exported first = good(exported(model)), second = good(exported(model));
  CHECK(first.bytes == second.bytes);
  CHECK(first.report.size() == 0);
  const Checkpoint back = again(model);
  CHECK(operations(back) == "add(x w -> sum)\nrelu(sum -> y)\n");
  CHECK(run_small(back, "y") == std::vector<double>{0, 5});
  CHECK(back.graph->outputs == Paths{"y"});
  CHECK(back.graph->find_variable("x")->shape == Ints{-1, 2});
  // To a file, which is the same.
  const TempDir dir;
  good(stele::export_onnx(model, dir / "model.onnx"));
  const std::string written = read_text(dir / "model.onnx");
  const auto view = bytes_of(written);
  CHECK(std::vector<std::byte>(view.begin(), view.end()) == first.bytes);
  for (const char* name : {"run_cnn_open.pb", "run_bert_tiny_einsum_open.pb"}) {
    const Checkpoint golden = good(stele::import_tensorflow(test_data("tensorflow") + "/" + name));
    CHECK(good(exported(golden)).bytes == good(exported(golden)).bytes);
  }
}

TEST_CASE("export: versions of ONNX's operators") {
  const Checkpoint model = small();
  for (const std::int64_t opset : {13, 14, 15, 16, 17, 18, 19, 20, 21, 22}) good(exported(model, {.opset = opset}));
  for (const std::int64_t opset :
       {std::int64_t{12}, std::int64_t{23}, std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    const Error error = bad(exported(model, {.opset = opset}));
    CHECK(error.code() == Errc::invalid_argument);
    CHECK(error.found() == std::to_string(opset));
    CHECK(error.expected() == "13 to 22");
  }
  CHECK(bad(exported(Checkpoint{})).code() == Errc::missing);
}

TEST_CASE("export: graphs that are wrong") {
  const auto changed = [](auto change) {
    Checkpoint model = small();
    change(*model.graph);
    return bad(exported(model)).code();
  };
  CHECK(changed([](stele::Graph& g) { g.operations[0].inputs[0] = "y"; }) == Errc::malformed);        // a cycle
  CHECK(changed([](stele::Graph& g) { g.operations[0].inputs[0] = "nothing"; }) == Errc::malformed);  // no variable
  CHECK(changed([](stele::Graph& g) { g.operations[1].inputs = {}; }) != Errc::none);
  CHECK(changed([](stele::Graph& g) { g.operations[1].outputs[0] = "sum"; }) == Errc::malformed);  // made twice
  CHECK(changed([](stele::Graph& g) { g.operations[1].outputs[0] = "w"; }) != Errc::none);
  CHECK(changed([](stele::Graph& g) { g.operations[1].outputs[0] = "x"; }) != Errc::none);
  CHECK(changed([](stele::Graph& g) { g.variables.push_back(g.variables[0]); }) != Errc::none);
  CHECK(changed([](stele::Graph& g) { g.outputs = {"nothing"}; }) == Errc::missing);
  CHECK(changed([](stele::Graph& g) { g.outputs = {""}; }) == Errc::missing);
  CHECK(changed([](stele::Graph& g) { g.outputs = {"y", "nothing"}; }) == Errc::missing);
  CHECK(changed([](stele::Graph& g) {
          g.operations[0].inputs[1] = "gone";
          g.variables.emplace_back().name = "gone";
        }) == Errc::malformed);  // a parameter without elements
  CHECK(bad(exported(small(), {.outputs = {"nothing"}})).code() != Errc::none);
}

TEST_CASE("export: all operations without a rule are in one error") {
  Checkpoint model = small();
  model.graph->operations[0].op_name = "nothing_like_it";
  model.graph->operations[1].op_name = "neither_this";
  const Error error = bad(exported(model));
  CHECK(error.code() == Errc::unsupported);
  CHECK(contains(error.found(), "sum (nothing_like_it)"));
  CHECK(contains(error.found(), "y (neither_this)"));
  CHECK(contains(error.to_string(), "ExportOptions::mappings"));
}

TEST_CASE("export: outputs that no operation makes") {
  Checkpoint model = small();
  model.graph->outputs = {"y", "x", "w"};
  const Exported file = good(exported(model));
  CHECK(file.report.paths(Report::What::lost) == Paths{"w"});
  const Checkpoint back = good(stele::import_onnx(file.bytes));
  CHECK(back.graph->outputs == Paths{"y", "x", "w"});
  CHECK(run_small(back, "y") == std::vector<double>{0, 5});
  CHECK(run_small(back, "w") == std::vector<double>{1, 2});
  // One output twice is one.
  model.graph->outputs = {"y", "y", "w", "w"};
  CHECK(again(model).graph->outputs == Paths{"y", "w"});
  // Without outputs: what no operation reads.
  model.graph->outputs.clear();
  CHECK(again(model).graph->outputs == Paths{"y"});
  CHECK(again(small(), {.outputs = {"sum"}}).graph->outputs == Paths{"sum"});
}

TEST_CASE("export: dtypes") {
  const auto with = [](stele::DType dtype) {
    Checkpoint model = small();
    for (stele::GraphVariable& variable : model.graph->variables) {
      if (variable.name != "w") variable.dtype = dtype;
    }
    for (stele::GraphOperation& operation : model.graph->operations) operation.output_dtypes = {dtype};
    return exported(model);
  };
  good(with(stele::DType::f64));
  CHECK(bad(with(stele::DType::none)).code() == Errc::unsupported);  // a rule needs it
  Checkpoint copied = good(import_of(placeholder("x"), {.outputs = {"x"}}));
  copied.graph->variables.at(0).dtype = stele::DType::none;
  const Error none = bad(exported(copied));
  CHECK(none.code() == Errc::missing);
  CHECK(none.path() == "x");
  // Parameters that ONNX does not have.
  for (const std::uint64_t dtype : {f64, i64, u8, boolean}) {
    const Checkpoint model = good(import_of(constant("c", tensor(dtype, {2}, "")), {.outputs = {"c"}}));
    CHECK(again(model).parameters.leaf_count() == 1);
  }
}

TEST_CASE("export: the table of what onnxruntime runs") {
  using namespace stele::detail::ir;
  using enum stele::DType;
  struct Case {
    const char* op;
    std::int64_t opset;
    Operands given, runs;
    bool exact = true;
  };
  for (const Case& c :
       std::initializer_list<Case>{{"Sin", 13, {{f32}, {f32}}, {{f32}, {f32}}},
                                   {"Sin", 22, {{f64}, {f64}}, {{f64}, {f64}}},
                                   {"Asinh", 17, {{f64}, {f64}}, {{f32}, {f32}}, false},
                                   {"Asinh", 17, {{f16}, {f16}}, {{f16}, {f16}}},
                                   {"Celu", 17, {{f16}, {f16}}, {{f32}, {f32}}},
                                   {"Where", 17, {{boolean, boolean, boolean}, {boolean}}, {{boolean, u8, u8}, {u8}}},
                                   {"Where", 17, {{boolean, u64, u64}, {u64}}, {{boolean, i64, i64}, {i64}}, false},
                                   {"Add", 13, {{i8, i8}, {i8}}, {{i32, i32}, {i32}}},
                                   {"Add", 14, {{i8, i8}, {i8}}, {{i8, i8}, {i8}}},
                                   {"Max", 13, {{u16, u16, u16}, {u16}}, {{u32, u32, u32}, {u32}}},
                                   {"OneHot", 13, {{i32, i32, i32}, {i32}}, {{i64, i64, i64}, {i64}}},
                                   {"Reshape", 19, {{bf16, i32}, {bf16}}, {{bf16, i64}, {bf16}}},
                                   {"Cast", 19, {{boolean}, {bf16}}, {{boolean}, {bf16}}},
                                   {"Less", 13, {{bf16, bf16}, {boolean}}, {{f32, f32}, {boolean}}},
                                   {"Add", 17, {{f64, f32}, {f64}}, {{f64, f64}, {f64}}},
                                   {"Add", 17, {{f32, f64}, {f32}}, {{f64, f64}, {f64}}},
                                   {"Less", 13, {{none, none}, {boolean}}, {{none, none}, {boolean}}},
                                   {"Softmax", 13, {{bf16}, {bf16}}, {{f32}, {f32}}}}) {
    CAPTURE(c.op);
    const auto found = runnable(c.op, c.opset, c.given);
    REQUIRE(found);
    CHECK(found->operands == c.runs);
    CHECK(found->exact == c.exact);
  }
  CHECK_FALSE(runnable("NoSuchOperator", 17, {{f32}, {f32}}));
  CHECK_FALSE(runnable("BitwiseNot", 17, {{i32}, {i32}}));   // since 18
  CHECK_FALSE(runnable("Not", 17, {{f32}, {boolean}}));      // only bools
  CHECK_FALSE(runnable("Gather", 17, {{f32, f32}, {f32}}));  // no indices
  CHECK_FALSE(runnable("Concat", 17, {{f32, i64}, {f32}}));  // not one dtype
}

TEST_CASE("export: dtypes that onnxruntime does not run are cast") {
  const auto one = [](const char* op, stele::DType dtype) {
    Checkpoint model = good(import_of(placeholder("x", {2}) + node("y", op, {"x"})));
    for (stele::GraphVariable& variable : model.graph->variables) variable.dtype = dtype;
    for (stele::GraphOperation& operation : model.graph->operations) operation.output_dtypes = {dtype};
    return model;
  };
  struct Case {
    const char* op;
    stele::DType dtype;
    const char* operations;
    Paths lost;
  };
  using enum stele::DType;
  for (const Case& c :
       std::initializer_list<Case>{{"Atan", f32, "atan(x -> y)\n", {}},
                                   {"Atan", f64, "cast(x -> x/f32)\natan(x/f32 -> y/f32)\ncast(y/f32 -> y)\n", {"y"}},
                                   {"Sin", f64, "sin(x -> y)\n", {}},
                                   {"Tan", bf16, "cast(x -> x/f32)\ntan(x/f32 -> y/f32)\ncast(y/f32 -> y)\n", {}}}) {
    CAPTURE(c.op);
    const Exported file = good(exported(one(c.op, c.dtype)));
    CHECK(operations(good(stele::import_onnx(file.bytes))) == c.operations);
    CHECK(file.report.paths(Report::What::lost) == c.lost);
  }
}

TEST_CASE("export: asinh of 64-bit floats is not computed in 32 bits") {
  Checkpoint model = good(import_of(placeholder("x", {9}) + node("y", "Asinh", {"x"})));
  for (stele::GraphVariable& variable : model.graph->variables) variable.dtype = stele::DType::f64;
  for (stele::GraphOperation& operation : model.graph->operations) operation.output_dtypes = {stele::DType::f64};
  const Exported file = good(exported(model));
  CHECK(file.report.size() == 0);
  interpreter::Arrays inputs;
  inputs["x"] = {{9}, {0, 1e-300, -1e-20, 1e-9, 0.5, -3, 9.9e7, 1.1e8, -1e300}};
  const auto found = interpreter::run_graph(good(stele::import_onnx(file.bytes)), inputs).at("y").values;
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i] == doctest::Approx(std::asinh(inputs["x"].values[i])).epsilon(1e-6));
  }
}

TEST_CASE("export: an extent of 0 in the shape of a Reshape is not a copy") {
  for (const bool constant_shape : {true, false}) {
    CAPTURE(constant_shape);
    const Checkpoint model = good(import_of(
        placeholder("x", {0, 3}) + (constant_shape ? constant("s", tensor(Ints{3, 0})) : placeholder("s", {2}, i64)) +
        node("y", "Reshape", {"x", "s"})));
    const Exported file = good(exported(model));
    const std::string text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
    CHECK(contains(text, "allowzero"));
    if (constant_shape) CHECK(bad(exported(model, {.opset = 13})).code() == Errc::unsupported);
  }
}

TEST_CASE("export: a report of what ONNX does not have") {
  Checkpoint model = good(import_of(placeholder("x", {-1, 2}) + constant("w", tensor(std::vector<float>{1, 2})) +
                                    node("y", "AddV2", {"x", "w"}) + node("z", "Mul", {"x", "v"}) +
                                    constant("v", tensor(std::vector<float>{3, 4}))));
  model.graph->outputs = {"y"};
  model.graph->loss_variables = {"y"};
  model.training.emplace();
  model.optimizer.set_snapshot("M", model.parameters);
  model.graph->operations[0].control_dependencies = {model.graph->operations[1].name};
  const Exported file = good(exported(model));
  CHECK(file.report.paths(Report::What::unused) == Paths{"v"});
  const Paths lost = file.report.paths(Report::What::lost);
  CHECK(std::count(lost.begin(), lost.end(), "y") == 2);
  CHECK(std::count(lost.begin(), lost.end(), "") == 2);  // the training configuration, the optimizer state
  CHECK(operations(good(stele::import_onnx(file.bytes))) == "add(x w -> y)\n");
}

TEST_CASE("export: elements in a second file") {
  const TempDir dir;
  const std::string many(40000, 'e');
  const Checkpoint model = good(import_of(
      placeholder("x", {10000}) + constant("w", tensor(f32, {10000}, content(many))) + node("y", "AddV2", {"x", "w"})));
  good(stele::export_onnx(model, dir / "model.onnx", {.external = "model.bin"}));
  CHECK(dir.names() == Paths{"model.bin", "model.onnx"});
  CHECK(std::filesystem::file_size(dir / "model.onnx") < 1000);
  CHECK(std::filesystem::file_size(dir / "model.bin") >= many.size());
  const Checkpoint back = good(stele::import_onnx(dir / "model.onnx"));
  std::string read(many.size(), '\0');
  good(back.parameters.find("w")->read(0, std::as_writable_bytes(std::span(read))));
  CHECK(read == many);
  // Not to a sink alone, and not outside of the folder.
  for (const char* name : {"../model.bin", "/tmp/model.bin", "model.onnx"}) {
    CHECK(bad(stele::export_onnx(model, dir / "model.onnx", {.external = name})).code() != Errc::none);
  }
  // 2^40 elements do not fit into one file.
  const Checkpoint huge =
      good(import_of(constant("c", tensor(i8, {std::int64_t{1} << 40}, bytes(7, varint(7)))), {.outputs = {"c"}}));
  const Error error = bad(exported(huge));
  CAPTURE(error.to_string());
  CHECK(error.code() == Errc::not_representable);
}

TEST_CASE("export: names") {
  // Names that the rules would make, empty names of operations, names with any characters.
  Checkpoint model = good(import_of(
      placeholder("x", {2, 3}) + constant("p", tensor(Ints{1, 0})) + node("constant", "Transpose", {"x", "p"}) +
      node("constant_1", "Softmax", {"constant"}) + node("constant/value", "Relu6", {"constant_1"}) +
      node("\xc3\xa4 / b\n", "LeakyRelu", {"constant/value"})));
  for (stele::GraphOperation& operation : model.graph->operations) operation.name = "n";
  for (std::size_t i = 0; i < model.graph->operations.size(); ++i) {
    model.graph->operations[i].name = i == 0 ? "n" : "n_" + std::to_string(i);
  }
  interpreter::Arrays inputs;
  inputs["x"] = {{2, 3}, {1, 2, 3, 4, 5, 6}};
  const Checkpoint back = again(model);
  const std::string output = "\xc3\xa4 / b\n";
  CHECK(back.graph->outputs == Paths{output});
  const auto expected = interpreter::run_graph(model, inputs), found = interpreter::run_graph(back, inputs);
  CHECK(interpreter::difference(expected.at(output), found.at(output)) < 1e-6);
}

TEST_CASE("export: an attribute that depends on an open extent") {
  // Split by a number that the shape of the input tells.
  const Checkpoint open = good(import_of(placeholder("x", {-1, 4}) + constant("a", tensor(Ints{-1})) +
                                         node("y", "Mean", {"x", "a"}) + node("z", "Shape", {"y"})));
  CHECK(again(open).graph->outputs == Paths{"z"});
}

TEST_CASE("export: many operations in linear time") {
  const auto time_of = [](std::size_t n) {
    std::string file = placeholder("x");
    for (std::size_t i = 0; i < n; ++i) {
      const std::string number_text = std::to_string(i);
      file += constant("w" + number_text, tensor(std::vector<float>{1, 2})) +
              node("n" + number_text, "AddV2", {i == 0 ? "x" : "n" + std::to_string(i - 1), "w" + number_text});
    }
    const Checkpoint model = good(import_of(file));
    const std::clock_t begin = std::clock();
    const Exported result = good(exported(model));
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    CHECK(result.report.size() == 0);
    return seconds;
  };
  const double much = time_of(10000);
  MESSAGE("export of 10000 operations: " << much * 100 << " us each");
}

}  // namespace export_test
