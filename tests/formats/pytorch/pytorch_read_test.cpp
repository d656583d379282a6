// Files that PyTorch wrote: data/README.md. The test pytorch:golden compares every element of most; here
// are those that PyTorch loads only with the program that made them, checkpoints, options and lazy reads.
#include <doctest/doctest.h>
#include <stele/quantize.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/stele.hpp>
#include <stele/training.hpp>
#include <stele/transform.hpp>
#include <stele/value.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace pytorch_read_test {

namespace {

using namespace stele;
using namespace stele_test;

std::string golden(const std::string& name) { return test_data("pytorch") + "/" + name; }

Snapshot opened(const std::string& name, PytorchOptions options = {}) {
  auto snapshot = PytorchRecorder<>(PytorchFormat(std::move(options))).open(golden(name));
  REQUIRE_MESSAGE(snapshot, why(snapshot));
  return *std::move(snapshot);
}

std::vector<std::string> names(const Snapshot& snapshot) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) all.push_back(snapshot.leaf(i).path());
  return all;
}

std::vector<float> floats(const Snapshot& snapshot, std::string_view path) {
  const auto leaf = snapshot.find(path);
  REQUIRE(leaf);
  REQUIRE(leaf->dtype() == DType::f32);
  const auto bytes = content(*leaf);
  REQUIRE_MESSAGE(bytes, why(bytes));
  std::vector<float> numbers(bytes->size() / sizeof(float));
  std::memcpy(numbers.data(), bytes->data(), bytes->size());
  return numbers;
}

/// The elements that the script gives a tensor of that name.
std::vector<float> elements(std::string_view name, std::size_t count) {
  const int sum = std::accumulate(name.begin(), name.end(), 0, [](int s, char c) { return s + c; });
  std::vector<float> all;
  for (std::size_t k = 0; k < count; ++k) all.push_back(static_cast<float>(static_cast<int>(k % 7) - 2 + sum % 5));
  return all;
}

struct Linear {
  Tensor<float, 2> weight;
  std::optional<std::vector<float>> bias;
};
struct Net {
  Linear fc1, fc2;
};

}  // namespace

TEST_SUITE_BEGIN("pytorch");

TEST_CASE("pytorch reads: a module as its state_dict") {
  for (const char* file : {"module.pt", "module_113.pt"}) {
    const Snapshot net = opened(file);
    CHECK(names(net) == names(opened("net.pt")));
    CHECK(floats(net, "head.2.weight") == elements("head.2.weight", 8));
    CHECK(net.origin().empty());
  }
  for (const char* file : {"legacy_module.pt", "legacy_module_113.pt"}) {
    const Snapshot net = opened(file);
    CHECK(names(net) == std::vector<std::string>{"weight", "steps", "child.weight", "child.steps"});
    CHECK(floats(net, "child.weight").size() == 6);
  }
}

TEST_CASE("pytorch reads: exported programs") {
  const Snapshot net = opened("export.pt2");
  CHECK(names(net) == std::vector<std::string>{"fc1.weight", "fc1.bias", "fc2.weight"});
  CHECK(floats(net, "fc1.weight") == elements("fc1.weight", 6));
  CHECK(opened("export.pt2", {.part = "fc1"}).find("bias"));
  CHECK(code_of(PytorchRecorder<>(PytorchFormat({.part = "fc3"})).open(golden("export.pt2"))) == Errc::not_found);
}

TEST_CASE("pytorch reads: archives of libtorch") {
  for (const std::string version : {"", "_113"}) {
    const Snapshot net = opened("libtorch_module" + version + ".pt");
    CHECK(floats(net, "first.weight") == std::vector<float>{0, 1, 2, 3, 4, 5});
    CHECK(net.find("norm.num_batches_tracked"));
    CHECK(names(opened("libtorch_list" + version + ".pt")) == std::vector<std::string>{"0", "1"});
    // Those of an optimizer keep their settings, whose names are addresses.
    const Snapshot adam = opened("libtorch_adam" + version + ".pt");
    std::size_t moments = 0;
    for (const std::string& name : names(adam)) moments += name.ends_with(".exp_avg") ? 1 : 0;
    CHECK(moments == 5);
  }
}

TEST_CASE("pytorch reads: into a class, by the front door") {
  for (const char* file : {"linear.pt", "linear_113.pt", "legacy.pt", "export.pt2"}) {
    const auto net = load<Net>(golden(file));
    REQUIRE_MESSAGE(net, why(net));
    CHECK(net->fc1.weight.shape()[0] == 3);
    CHECK(*net->fc1.bias == elements("fc1.bias", 3));
    CHECK(!net->fc2.bias);
  }
}

TEST_CASE("pytorch reads: the parts of checkpoints") {
  for (const char* file : {"adam.pt", "adam_113.pt", "legacy_adam.pt", "lightning.pt", "lightning_113.pt"}) {
    CAPTURE(file);
    const PytorchRecorder<> recorder;
    const auto checkpoint = recorder.open_checkpoint(golden(file));
    REQUIRE_MESSAGE(checkpoint, why(checkpoint));
    CHECK(names(checkpoint->parameters) == std::vector<std::string>{"fc1.weight", "fc1.bias", "fc2.weight"});
    const Snapshot* moments = checkpoint->optimizer.find("exp_avg");
    REQUIRE(moments != nullptr);
    CHECK(names(*moments) == names(checkpoint->parameters));
    CHECK(floats(*moments, "fc1.bias").size() == 3);
    CHECK(floats(*checkpoint->optimizer.find("step"), "fc2.weight") == std::vector<float>{3});
    REQUIRE(checkpoint->training);
    CHECK(checkpoint->training->updater.type == "Adam");
    CHECK(checkpoint->training->iteration_count >= 3);
    const auto net = load<Net>(checkpoint->parameters);
    CHECK_MESSAGE(net, why(net));
  }
  CHECK(opened("adam.pt", {.part = "model_state_dict"}).find("fc1.weight"));
  CHECK(floats(opened("adam.pt", {.part = "optimizer_state_dict.state.1"}), "exp_avg").size() == 3);
  CHECK(code_of(PytorchRecorder<>(PytorchFormat({.part = "model"})).open(golden("adam.pt"))) == Errc::not_found);
  const auto wrong =
      PytorchRecorder<>(PytorchFormat({.parameters = {"fc1.weight"}})).open_checkpoint(golden("adam.pt"));
  CHECK(code_of(wrong) == Errc::invalid_argument);
  const auto swapped = PytorchRecorder<>(PytorchFormat({.parameters = {"fc1.bias", "fc1.weight", "fc2.weight"}}))
                           .open_checkpoint(golden("adam.pt"));
  CHECK(code_of(swapped) == Errc::invalid_argument);  // the shapes differ
}

TEST_CASE("pytorch reads: a checkpoint comes back whole") {
  const TempDir dir;
  for (const char* file : {"adam.pt", "sgd.pt", "net.pt", "views.pt", "containers.pt"}) {
    CAPTURE(file);
    const Snapshot before = opened(file);
    const PytorchRecorder<> recorder;
    const auto saved = recorder.save(before, dir / "again.pt", quick());
    REQUIRE_MESSAGE(saved, why(saved));
    const auto after = recorder.open(dir / "again.pt");
    REQUIRE_MESSAGE(after, why(after));
    CHECK(after->origin() == before.origin());  // dicts, lists, tuples, integer keys, versions of modules
    REQUIRE(after->leaf_count() == before.leaf_count());
    for (std::size_t i = 0; i < before.leaf_count(); ++i) {
      CHECK(after->leaf(i).path() == before.leaf(i).path());
      CHECK(content(after->leaf(i)).value() == content(before.leaf(i)).value());
    }
  }
}

TEST_CASE("pytorch reads: objects of Python do not hide tensors, and are listed") {
  const Snapshot file = opened("opaque.pt");
  const auto strict = load<Net>(golden("opaque.pt"));
  CHECK_FALSE(strict);
  std::size_t classes = 0;
  for (const Node& node : file.nodes()) {
    if (node.kind == NodeKind::value && file.value(node).find("__class__") != nullptr) ++classes;
  }
  CHECK(classes >= 3);
  // They are never written: losses, or rows.
  BufferSink sink;
  CHECK(code_of(PytorchRecorder<>().save(file, sink)) == Errc::not_representable);
  SaveOptions options = quick();
  options.allow_loss = true;
  BufferSink other;
  const auto report = PytorchRecorder<>().save(file, other, options);
  REQUIRE_MESSAGE(report, why(report));
  CHECK(report->count(Report::What::lost) >= classes);
}

TEST_CASE("pytorch reads: contiguous tensors are views of a mapped file, others are gathered") {
  const auto file = PytorchRecorder<>().open(map_file(golden("views.pt")).value());
  REQUIRE_MESSAGE(file, why(file));
  CHECK(!file->find("base")->view().empty());
  CHECK(!file->find("row")->view().empty());
  CHECK(file->find("transposed")->view().empty());
  const Snapshot read = opened("views.pt");
  for (std::size_t i = 0; i < read.leaf_count(); ++i) {
    const LeafView leaf = read.leaf(i);
    const std::string whole = content(leaf).value();
    CHECK(whole == content(file->leaf(i)).value());
    const std::size_t unit = element_size(leaf.dtype());
    for (std::size_t at = 0; at < whole.size(); at += unit) {  // each element alone
      std::string part(unit, '\0');
      REQUIRE(leaf.read(at, std::as_writable_bytes(std::span(part))));
      CHECK(part == whole.substr(at, unit));
    }
  }
}

TEST_CASE("pytorch reads: quantized tensors as numbers, per tensor and per channel") {
  LoadOptions options;
  options.dequantize = true;
  options.allow_unused = {"*"};
  const Snapshot file = opened("quantized.pt");
  const auto numbers = dequantize(file);
  REQUIRE_MESSAGE(numbers, why(numbers));
  std::size_t quantized = 0;
  for (std::size_t i = 0; i < file.leaf_count(); ++i) {
    if (file.leaf(i).annotations() == nullptr || !file.leaf(i).annotations()->contains("quantization")) continue;
    ++quantized;
    CHECK(numbers->leaf(i).dtype() == DType::f32);
    CHECK(content(numbers->leaf(i)));
  }
  CHECK(quantized >= 5);
}

TEST_SUITE_END();

}  // namespace pytorch_read_test
