// Import of TensorFlow's SavedModels: signatures, graphs by tag, variables from the checkpoint.
#include <stele/import.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "support/interpreter.hpp"
#include "support/models.hpp"
#include "support/temp_dir.hpp"
#include "support/tensor_bundle.hpp"
#include "support/tensorflow_bytes.hpp"

namespace tensorflow_saved_model_test {

using namespace stele_test;
using namespace stele_test::tensorflow;
using stele::Checkpoint;
using stele::Errc;
using stele::Error;
using stele::ImportOptions;

namespace {

using Paths = std::vector<std::string>;

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// A SavedModel in memory. The checkpoint has "key/a" and "key/b", of two floats each.
stele::SourcePtr folder(const std::string& graph, bool variables = true) {
  const auto bundle = stele::memory_bundle();
  const auto put = [&](const std::string& name, const std::string& content_of) {
    const auto sink = good(bundle->create(name));
    good(sink->write(bytes_of(content_of)));
    good(sink->commit());
  };
  put("saved_model.pb", graph);
  tensor_bundle::Files files;
  files.add("key/a", f32, {2}, fixed32(1.0F) + fixed32(2.0F));
  files.add("key/b", f32, {2}, fixed32(3.0F) + fixed32(4.0F));
  if (variables) {
    put("variables/variables.index", files.index());
    put("variables/variables.data-00000-of-00001", files.shards[0]);
  }
  return stele::bundle_source(bundle);
}

const std::string& head() {
  static const std::string variables_of =
      placeholder("x") + node("a", "VarHandleOp", {}, type("dtype", f32) + extents("shape", {2})) +
      node("b", "VarHandleOp", {}, type("dtype", f32) + extents("shape", {2})) + node("y", "AddV2", {"x", "read_a"}) +
      node("read_a", "ReadVariableOp", {"a"}) + node("z", "Sub", {"y", "read_b"}) +
      node("read_b", "ReadVariableOp", {"b"});
  return variables_of;
}

/// The function that restores the variables; `keys` are those of the checkpoint.
std::string restoring(const Names& keys, const Names& slices = {"", ""}) {
  const std::string body = inner("names", "Const", {}, value(strings(keys))) +
                           inner("slices", "Const", {}, value(strings(slices))) +
                           inner("restore", "RestoreV2", {"prefix", "names:output:0", "slices:output:0"}) +
                           inner("id", "Identity", {"restore:tensors:1"}) +
                           inner("one", "AssignVariableOp", {"first", "restore:tensors:0"}) +
                           inner("two", "AssignVariableOp", {"second", "id:output:0"});
  return node("prefix", "Placeholder", {}, type("dtype", tensorflow::string)) +
         node("restorer", "StatefulPartitionedCall", {"prefix", "a", "b"}, function_name("f", "restore_f")) +
         function("restore_f", {"prefix", "first", "second"}, {{"done", "prefix"}}, body);
}

std::string with_signatures(const std::string& graph) {
  const std::string signatures = signature("serving_default", {{"in", "x:0"}}, {{"out", "z:0"}}) +
                                 signature("other", {{"in", "x:0"}}, {{"out", "y:0"}}) + restored_by("restorer");
  return saved_model(meta_graph(graph, signatures));
}

std::vector<double> elements(const Checkpoint& model, const std::string& name) {
  const auto leaf = model.parameters.find(name);
  REQUIRE_MESSAGE(leaf.has_value(), name);
  return interpreter::read_array(*leaf).values;
}

}  // namespace

TEST_CASE("import: a SavedModel's variables are those of its checkpoint") {
  const std::string graph = with_signatures(head() + restoring({"key/a", "key/b"}));
  stele::Report report;
  const Checkpoint model = good(stele::import_tensorflow(folder(graph), {.report = &report}));
  CHECK(operations(model) == "add(x a -> y)\nsubtract(y b -> z)\n");
  CHECK(elements(model, "a") == std::vector<double>{1, 2});
  CHECK(elements(model, "b") == std::vector<double>{3, 4});
  CHECK(report.size() == 0);
  CHECK(model.graph->find_variable("a")->kind == stele::VariableKind::variable);

  // On a disk, by the folder and by the file.
  const TempDir dir;
  std::filesystem::create_directories(dir / "m/variables");
  write_text(dir / "m/saved_model.pb", graph);
  tensor_bundle::Files files;
  files.add("key/a", f32, {2}, fixed32(5.0F) + fixed32(6.0F));
  files.add("key/b", f32, {2}, fixed32(7.0F) + fixed32(8.0F));
  write_text(dir / "m/variables/variables.index", files.index());
  write_text(dir / "m/variables/variables.data-00000-of-00001", files.shards[0]);
  CHECK(elements(good(stele::import_tensorflow(dir / "m")), "a") == std::vector<double>{5, 6});
  CHECK(elements(good(stele::import_tensorflow(dir / "m/saved_model.pb")), "b") == std::vector<double>{7, 8});
}

TEST_CASE("import: the signature of a SavedModel") {
  const std::string graph = with_signatures(head() + restoring({"key/a", "key/b"}));
  const auto imported = [&](const ImportOptions& options) { return stele::import_tensorflow(folder(graph), options); };
  CHECK(good(imported({})).graph->outputs == Paths{"z"});
  const Checkpoint other = good(imported({.outputs = {}, .signature = "other"}));
  CHECK(other.graph->outputs == Paths{"y"});
  CHECK(operations(other) == "add(x a -> y)\n");
  const Error missing = bad(imported({.signature = "nothing"}));
  CHECK(missing.code() == Errc::missing);
  CHECK(missing.path() == "nothing");
  CHECK(contains(missing.found(), "other"));
  CHECK(contains(missing.found(), "serving_default"));
  // Outputs replace it.
  CHECK(good(imported({.outputs = {"y"}, .signature = "nothing"})).graph->outputs == Paths{"y"});
  // An input that no output needs stays; without outputs, and with names that do not exist.
  const auto with = [&](const std::string& signatures) {
    return stele::import_tensorflow(folder(saved_model(meta_graph(head() + placeholder("idle"), signatures))));
  };
  const Checkpoint idle = good(with(signature("serving_default", {{"i", "idle:0"}, {"x", "x:0"}}, {{"x", "x:0"}})));
  CHECK(idle.graph->variables.size() == 2);
  CHECK(bad(with(signature("serving_default", {{"x", "x:0"}}, {}))).code() == Errc::missing);
  CHECK(bad(with(signature("serving_default", {{"x", "x:0"}}, {{"o", "nothing:0"}}))).code() == Errc::missing);
  CHECK(bad(with(signature("serving_default", {{"x", "nothing:0"}}, {{"o", "x:0"}}))).code() == Errc::missing);
  CHECK(bad(with("")).code() == Errc::missing);
  // Two keys of one tensor.
  const Checkpoint twice = good(with(signature("serving_default", {}, {{"o", "x:0"}, {"p", "x:0"}})));
  CHECK(twice.graph->outputs == Paths{"x"});
}

TEST_CASE("import: a SavedModel with several graphs") {
  const auto graph = [](const std::string& op, const Names& tags) {
    return meta_graph(placeholder("x") + node("y", op, {"x"}), signature("serving_default", {}, {{"o", "y:0"}}), tags);
  };
  const auto first_operation = [](const std::string& graphs) {
    return good(stele::import_tensorflow(folder(saved_model(graphs), false))).graph->operations.at(0).op_name;
  };
  CHECK(first_operation(graph("Relu", {"train"}) + graph("Tanh", {"gpu", "serve"})) == "tanh");
  CHECK(first_operation(graph("Relu", {"train"}) + graph("Tanh", {"eval"})) == "relu");
  CHECK(first_operation(graph("Relu", {"serve"}) + graph("Tanh", {"serve", "tpu"})) == "relu");
  CHECK(bad(stele::import_tensorflow(folder(saved_model(""), false))).code() == Errc::malformed);
  // The parts of a graph that is in the file twice are one graph.
  const std::string nodes = placeholder("x") + node("y", "Relu", {"x"});
  std::string more;
  for (int i = 0; i < 100; ++i) more += node("n" + std::to_string(i), "Relu", {"y"});
  const std::string parted =
      bytes(2, bytes(2, nodes) + bytes(2, more) + signature("serving_default", {}, {{"o", "n7:0"}}));
  CHECK(good(stele::import_tensorflow(folder(saved_model(parted), false))).graph->operations.size() == 2);
  const std::string doubled = bytes(2, bytes(2, nodes + more) + bytes(2, nodes + more));
  CHECK(bad(stele::import_tensorflow(folder(saved_model(doubled), false))).code() == Errc::duplicate);
}

TEST_CASE("import: variables that TensorFlow 1 assigns in the graph") {
  const std::string restore =
      constant("names", strings({"key/b", "key/a"})) + constant("slices", strings({"", ""})) +
      constant("file", strings({"model"})) + node("restore", "RestoreV2", {"file", "names", "slices"}) +
      node("assign_a", "Assign", {"a", "restore:1"}) + node("assign_b", "Assign", {"b", "restore"}) +
      node("restore_all", "NoOp", {"^assign_a", "^assign_b"});
  const std::string variables_of =
      placeholder("x") + node("a", "VariableV2", {}, type("dtype", f32) + extents("shape", {2})) +
      node("b", "VariableV2", {}, type("dtype", f32) + extents("shape", {2})) + node("a/read", "Identity", {"a"}) +
      node("y", "AddV2", {"x", "a/read"}) + node("z", "Sub", {"y", "b"});
  const std::string graph = saved_model(meta_graph(
      variables_of + restore, signature("serving_default", {}, {{"o", "z:0"}}) + restored_by("restore_all")));
  const Checkpoint model = good(stele::import_tensorflow(folder(graph)));
  CHECK(operations(model) == "add(x a -> y)\nsubtract(y b -> z)\n");
  CHECK(elements(model, "a") == std::vector<double>{1, 2});
  CHECK(elements(model, "b") == std::vector<double>{3, 4});
}

TEST_CASE("import: variables that a SavedModel's checkpoint does not have") {
  const auto of = [](const std::string& more, bool variables = true) {
    return bad(stele::import_tensorflow(folder(with_signatures(head() + more), variables)));
  };
  const Error key = of(restoring({"key/a", "key/other"}));
  CHECK(key.code() == Errc::unsupported);
  CHECK(contains(key.found(), "b (VarHandleOp)"));
  CHECK_FALSE(contains(key.found(), "a (VarHandleOp)"));
  CHECK(contains(of("").found(), "a (VarHandleOp)"));  // nothing restores them
  // No checkpoint: the model without variables is good, the other is not.
  const Error none = of(restoring({"key/a", "key/b"}), false);
  CAPTURE(none.to_string());
  CHECK(none.code() == Errc::not_found);
  const std::string plain = saved_model(
      meta_graph(placeholder("x") + node("y", "Relu", {"x"}), signature("serving_default", {}, {{"o", "y:0"}})));
  good(stele::import_tensorflow(folder(plain, false)));
  // As bytes there is no folder.
  CHECK(bad(import_of(with_signatures(head() + restoring({"key/a", "key/b"})))).code() != Errc::none);
  good(import_of(plain));
  // Names that are no strings, or fewer than RestoreV2 has outputs.
  CHECK(of(restoring({"key/a"})).code() == Errc::unsupported);
  CHECK(of(restoring({"key/a", "key/b"}, {"", "nonsense"})).code() == Errc::unsupported);
}

TEST_CASE("import: a SavedModel's names of variables that repeat take no memory of their own") {
  // One string of 1 MiB stands for 2^20 elements, or for more than there are.
  for (const std::int64_t count : {std::int64_t{1} << 20, std::int64_t{1} << 59, (std::int64_t{1} << 59) + 1}) {
    const std::string names = tensor(tensorflow::string, {count}, bytes(8, std::string(1 << 20, 'k')));
    const std::string body = inner("names", "Const", {}, value(names)) +
                             inner("restore", "RestoreV2", {"prefix", "names:output:0", "names:output:0"}) +
                             inner("one", "AssignVariableOp", {"first", "restore:tensors:0"});
    const std::string more = node("prefix", "Placeholder", {}, type("dtype", tensorflow::string)) +
                             node("restorer", "StatefulPartitionedCall", {"prefix", "a"}, function_name("f", "f")) +
                             function("f", {"prefix", "first"}, {{"done", "prefix"}}, body);
    CHECK(bad(stele::import_tensorflow(folder(with_signatures(head() + more)))).code() == Errc::limit);
  }
}

}  // namespace tensorflow_saved_model_test
