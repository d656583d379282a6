// Files for dl4j.sh: what DL4J wrote, read and written again; and models made here, with what is in them.
//
//   interop_samediff resave FROM TO   every FROM/*.fb as TO/*.fb
//   interop_samediff own TO           a trained model, arrays of every dtype, a model with appended arrays
#include <stele/recorders/archive.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/stele.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "support/dl4j.hpp"

namespace {

using namespace stele;
using stele_test::hex_of;
using stele_test::java_name;
using stele_test::shape_text;

std::string array_line(const char* what, const LeafView& leaf) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(leaf.byte_size()));
  leaf.read(0, bytes).value();
  return std::string(what) + " " + java_name(leaf.dtype()) + " " + shape_text(leaf.shape()) + " " +
         (bytes.empty() ? "-" : hex_of(bytes)) + "\n";
}

void resave(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const auto& file : std::filesystem::directory_iterator(from)) {
    if (file.path().extension() != ".fb") continue;
    const Checkpoint checkpoint = open_samediff(file.path().string()).value();
    SameDiffRecorder<>().save(checkpoint, (to / file.path().filename()).string()).value();
  }
}

struct Dense {
  Tensor<float, 2> weight;
  Tensor<float, 1> bias;
  STELE_MODULE(Dense, weight, bias)
};
struct Net {
  Dense first, second;
  STELE_MODULE(Net, first, second)
};

Dense dense(std::size_t in, std::size_t out, float step) {
  Dense d{Tensor<float, 2>({in, out}), Tensor<float, 1>({out})};
  for (std::size_t i = 0; i < d.weight.size(); ++i) d.weight.data()[i] = std::sin(step * static_cast<float>(i + 1));
  for (std::size_t i = 0; i < d.bias.size(); ++i) d.bias.data()[i] = 0.1F * static_cast<float>(i) - 0.2F;
  return d;
}

GraphVariable variable(std::string name, VariableKind kind, DType dtype,
                       std::optional<std::vector<std::int64_t>> shape = {}) {
  GraphVariable v;
  v.name = std::move(name);
  v.kind = kind;
  v.dtype = dtype;
  v.shape = std::move(shape);
  return v;
}

GraphOperation operation(std::string name, std::string op, std::vector<std::string> inputs, std::string output) {
  GraphOperation o;
  o.name = std::move(name);
  o.op_name = std::move(op);
  o.inputs = std::move(inputs);
  o.outputs = {std::move(output)};
  o.output_dtypes = {DType::f32};
  return o;
}

/// Two layers, the graph built by hand; Adam with its state; what DL4J must compute of it.
void own_model(const std::filesystem::path& to) {
  const Net net{dense(3, 4, 0.7F), dense(4, 2, 0.3F)};
  const Net m{dense(3, 4, 0.01F), dense(4, 2, 0.02F)};
  Net v = net;
  for (Dense* d : {&v.first, &v.second}) {
    for (std::size_t i = 0; i < d->weight.size(); ++i) d->weight.data()[i] *= d->weight.data()[i];
    for (std::size_t i = 0; i < d->bias.size(); ++i) d->bias.data()[i] *= d->bias.data()[i];
  }
  Checkpoint checkpoint{snapshot_of(net).value()};
  Graph graph;
  graph.variables.push_back(variable("in", VariableKind::placeholder, DType::f32, std::vector<std::int64_t>{-1, 3}));
  graph.variables.push_back(variable("label", VariableKind::placeholder, DType::f32, std::vector<std::int64_t>{-1, 2}));
  for (const char* name : {"first.weight", "first.bias", "second.weight", "second.bias"}) {
    graph.variables.push_back(variable(name, VariableKind::variable, DType::f32));
  }
  for (const char* name : {"mm1", "z1", "a1", "mm2", "out"}) {
    graph.variables.push_back(variable(name, VariableKind::array, DType::f32));
  }
  graph.operations.push_back(operation("matmul1", "matmul", {"in", "first.weight"}, "mm1"));
  graph.operations.back().ints = {{"transA", 0}, {"transB", 0}, {"transC", 0}};
  graph.operations.push_back(operation("add1", "add", {"mm1", "first.bias"}, "z1"));
  graph.operations.push_back(operation("tanh1", "tanh", {"z1"}, "a1"));
  graph.operations.back().family = OpFamily::transform_strict;
  graph.operations.back().number = 29;
  graph.operations.push_back(operation("matmul2", "matmul", {"a1", "second.weight"}, "mm2"));
  graph.operations.back().ints = {{"transA", 0}, {"transB", 0}, {"transC", 0}};
  graph.operations.push_back(operation("add2", "add", {"mm2", "second.bias"}, "out"));
  checkpoint.graph = graph;
  TrainingConfig config;
  config.updater = updaters::adam(0.01);
  config.data_set_feature_mapping = {"in"};
  config.data_set_label_mapping = {"label"};
  config.iteration_count = 7;
  config.epoch_count = 2;
  config.other = {{"initialLossDataType", "\"FLOAT\""},
                  {"trainEvaluations", "{}"},
                  {"trainEvaluationLabels", "{}"},
                  {"validationEvaluations", "{}"},
                  {"validationEvaluationLabels", "{}"}};
  checkpoint.training = config;
  checkpoint.optimizer.set("M", m).value();
  checkpoint.optimizer.set("V", v).value();
  SameDiffRecorder<>().save(checkpoint, (to / "own.fb").string()).value();

  std::ofstream text(to / "own.txt");
  const auto facts = [&](const char* what, const Snapshot& snapshot, const char* key) {
    for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
      const LeafView leaf = snapshot.leaf(i);
      text << array_line((std::string(what) + " " + leaf.path() + (key[0] != 0 ? " " : "") + key).c_str(), leaf);
    }
  };
  facts("array", checkpoint.parameters, "");
  facts("state", *checkpoint.optimizer.find("M"), "M");
  facts("state", *checkpoint.optimizer.find("V"), "V");
  const std::vector<float> in = {0.5F, -1, 2, 0.25F, 3, -0.125F};
  std::vector<float> out;
  for (std::size_t row = 0; row < 2; ++row) {
    std::vector<float> x(in.begin() + static_cast<std::ptrdiff_t>(3 * row),
                         in.begin() + static_cast<std::ptrdiff_t>(3 * row + 3));
    for (const Dense* d : {&net.first, &net.second}) {
      std::vector<float> y(d->bias.data(), d->bias.data() + d->bias.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        for (std::size_t k = 0; k < y.size(); ++k) y[k] += x[i] * d->weight.data()[i * y.size() + k];
      }
      if (d == &net.first) {
        for (float& f : y) f = std::tanh(f);
      }
      x = y;
    }
    out.insert(out.end(), x.begin(), x.end());
  }
  std::string json = config.json();
  std::erase(json, '\n');
  text << "config " << json << "\n";
  text << "input in FLOAT 2x3 " << hex_of(std::as_bytes(std::span(in))) << "\n";
  text << "output out 2x2 " << hex_of(std::as_bytes(std::span(out))) << "\n";
}

/// Arrays of archives, one of each dtype that DL4J reads; dl4j.sh takes them out of the zip file.
void arrays(const std::filesystem::path& to) {
  std::ofstream text(to / "arrays.txt");
  std::vector<std::byte> memory(4096);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 37 + i / 11);
  for (std::size_t i = 1; i < memory.size(); i += 2) memory[i] &= std::byte{0x3b};  // no NaN: Java makes them all alike
  for (std::size_t i = 0; i < 64; ++i) memory[i] = static_cast<std::byte>(i % 3 == 0);
  const LeafOps ops{.view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
  SnapshotBuilder builder;
  builder.begin(NodeKind::module, "");
  const std::vector<std::vector<Extent>> shapes = {{}, {5}, {3, 4}, {2, 1, 3}};
  for (const DType dtype : {DType::boolean, DType::f16, DType::bf16, DType::f32, DType::f64, DType::i8, DType::i16,
                            DType::i32, DType::i64, DType::u8, DType::u16}) {
    for (const auto& shape : shapes) {
      const std::uint64_t n = *element_count(shape) * element_size(dtype);
      const std::string name = std::string(stele::name(dtype)) + shape_text(shape);
      builder.tensor(builder.intern(name), dtype, shape, n,
                     {&ops, dtype == DType::boolean ? memory.data() : memory.data() + 64, 0});
    }
  }
  builder.end();
  const Snapshot snapshot = builder.finish();
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i)
    text << array_line(("array " + snapshot.leaf(i).path()).c_str(), snapshot.leaf(i));
  ArchiveRecorder<>().save(snapshot, (to / "arrays.zip").string()).value();
}

struct Large {
  Tensor<float, 1> small{{3}, {1, 2, 3}};
  Tensor<float, 2> a = Tensor<float, 2>({512, 512}), b = Tensor<float, 2>({300, 1000});
  STELE_MODULE(Large, small, a, b)
};

/// Appended arrays: the manifest is for Java's ObjectInputStream.
void large(const std::filesystem::path& to) {
  Large model;
  std::iota(model.a.data(), model.a.data() + model.a.size(), 0.F);
  std::iota(model.b.data(), model.b.data() + model.b.size(), 0.F);
  SameDiffRecorder<>(SameDiffContainer::sdnb).save(model, (to / "large.sdnb").string()).value();
  SameDiffRecorder<>(SameDiffContainer::sdz).save(model, (to / "large.sdz").string()).value();
  SameDiffRecorder<>({.container = SameDiffContainer::sdz, .shard_bytes = 1 << 20})
      .save(model, (to / "shards.sdz").string())
      .value();
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  try {
    if (words.size() == 3 && words[0] == "resave") {
      resave(words[1], words[2]);
    } else if (words.size() == 2 && words[0] == "own") {
      own_model(words[1]);
      arrays(words[1]);
      large(words[1]);
    } else {
      std::fprintf(stderr, "usage: interop_samediff resave FROM TO | own TO\n");
      return 2;
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
