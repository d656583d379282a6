// ONNX: tensors that are not initializers of the graph: in Constant nodes, other operators, subgraphs, functions and
// training; read under documented names, and replaced by saves into the model.
#include <stele/recorders/any.hpp>
#include <stele/recorders/onnx.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/onnx_bytes.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace stele_test::onnx_nodes_test {
namespace {

using namespace std::string_literals;
using stele::DType;
using stele::Errc;
using stele::OnnxFormat;
using stele::OnnxRecorder;
using stele::Snapshot;

stele::Result<Snapshot> opened(const std::string& file) {
  const auto all = bytes_of(file);
  return OnnxRecorder<>{}.open(std::vector<std::byte>(all.begin(), all.end()));
}

std::string floats_of(const std::vector<float>& values) {
  std::string out(4 * values.size(), '\0');
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

/// The fields of a TensorProto of 32-bit floats.
std::string tensor(const std::string& name, const std::vector<float>& values) {
  return number(1, values.size()) + number(2, 1) + bytes(8, name) + bytes(12, "about it") + bytes(9, floats_of(values));
}

/// A node whose fields come in this order: output, name, operator, attributes.
std::string node(const std::string& output, const std::string& op, const std::string& attributes,
                 const std::string& more = {}) {
  return bytes(1, bytes(2, output) + bytes(3, "node of " + output) + bytes(4, op) + attributes + more);
}
/// An attribute with these fields.
std::string attribute(const std::string& name, const std::string& fields) { return bytes(5, bytes(1, name) + fields); }
std::string constant(const std::string& output, const std::vector<float>& values) {
  return node(output, "Constant", attribute("value", bytes(5, tensor("inside", values)) + number(20, 4)));
}

/// Returns the tensors of a file: name -> dtype, shape and 32-bit floats or 64-bit integers.
std::map<std::string, std::string> tensors_of(const Snapshot& file) {
  std::map<std::string, std::string> out;
  for (std::size_t i = 0; i < file.leaf_count(); ++i) {
    const stele::LeafView leaf = file.leaf(i);
    std::string& text = out[leaf.path()];
    text = std::string(stele::name(leaf.dtype())) + stele::to_string(leaf.shape());
    const std::string elements = good(content(leaf));
    for (std::size_t at = 0; at < elements.size();) {
      if (leaf.dtype() == DType::f32) {
        float f = 0;
        std::memcpy(&f, elements.data() + at, sizeof f);
        text += " " + std::to_string(static_cast<int>(f));
        at += sizeof f;
      } else {
        std::int64_t n = 0;
        std::memcpy(&n, elements.data() + at, sizeof n);
        text += " " + std::to_string(n);
        at += sizeof n;
      }
    }
  }
  return out;
}

using Tensors = std::map<std::string, std::string>;

/// A model with tensors in every place.
std::string model_with_all() {
  const std::string loop =
      node("looped", "Loop", attribute("body", bytes(6, constant("deep", {5}) + bytes(5, tensor("w", {6})))));
  const std::string branches =
      attribute("then_branch", bytes(6, constant("c", {3}) + bytes(5, tensor("w", {4})) + loop)) +
      attribute("else_branch",
                bytes(6, constant("c", {7}) + node("d", "Constant", attribute("value_int", number(3, 8)))));
  const std::string four_floats = bytes(7, floats_of({8, 9})) + varint(7 << 3 | 5) + floats_of({10});
  const std::string graph =
      bytes(5, tensor("first", {1})) + constant("w", {1, 2}) + node("chosen", "If", branches) +
      node("list", "Constant", attribute("value_floats", four_floats + number(20, 6))) +
      node("one", "Constant", attribute("value_float", varint(2 << 3 | 5) + floats_of({11}) + number(20, 1))) +
      node("ints", "Constant", attribute("value_ints", number(8, 12) + bytes(8, varint(~0ULL)) + number(20, 7))) +
      node("int", "Constant", attribute("value_int", number(20, 2)), bytes(7, "ai.onnx")) +
      node("filled", "ConstantOfShape", attribute("value", bytes(5, tensor("", {13})))) +
      node("tree", "Trees",
           attribute("weights", bytes(10, tensor("a", {14})) + bytes(10, tensor("", {15}))) +
               attribute("value_floats", bytes(7, floats_of({99}))) + attribute("value_int", number(3, 99))) +
      node("own", "Constant", attribute("value_int", number(3, 99)), bytes(7, "mine")) +
      // Fields in another order, and a node without an output.
      bytes(1,
            bytes(5, bytes(5, tensor("inside", {16})) + bytes(1, "value")) + bytes(4, "Constant") + bytes(2, "late")) +
      bytes(1, bytes(4, "Send") + bytes(3, "sender") + bytes(5, bytes(5, tensor("", {17})) + bytes(1, "what"))) +
      bytes(5, tensor("last", {18}));
  const std::string function =
      bytes(25, bytes(7, bytes(2, "c") + bytes(4, "Constant") + attribute("value", bytes(5, tensor("", {19})))) +
                    bytes(11, bytes(1, "scale") + bytes(5, tensor("", {20}))) + bytes(1, "Norm") + bytes(10, "mine"));
  const std::string training =
      bytes(20, bytes(1, bytes(5, tensor("rate", {21})))) + bytes(20, bytes(2, bytes(5, tensor("rate", {22}))));
  return number(1, 8) + bytes(14, bytes(1, "note") + bytes(2, "old")) + bytes(7, graph) + training + function +
         bytes(14, bytes(1, "kept") + bytes(2, "it"));
}

const Tensors& all_tensors() {
  static const Tensors tensors = {{"first", "f32[1] 1"},
                                  {"w", "f32[2] 1 2"},
                                  {"chosen.then_branch.c", "f32[1] 3"},
                                  {"chosen.then_branch.w", "f32[1] 4"},
                                  {"chosen.then_branch.looped.body.deep", "f32[1] 5"},
                                  {"chosen.then_branch.looped.body.w", "f32[1] 6"},
                                  {"chosen.else_branch.c", "f32[1] 7"},
                                  {"chosen.else_branch.d", "i64[] 8"},
                                  {"list", "f32[3] 8 9 10"},
                                  {"one", "f32[] 11"},
                                  {"ints", "i64[2] 12 -1"},
                                  {"int", "i64[] 0"},
                                  {"filled.value", "f32[1] 13"},
                                  {"tree.weights.0", "f32[1] 14"},
                                  {"tree.weights.1", "f32[1] 15"},
                                  {"late", "f32[1] 16"},
                                  {"sender.what", "f32[1] 17"},
                                  {"last", "f32[1] 18"},
                                  {"training_info.0.initialization.rate", "f32[1] 21"},
                                  {"training_info.1.algorithm.rate", "f32[1] 22"},
                                  {"mine.Norm.c", "f32[1] 19"},
                                  {"mine.Norm.scale", "f32[1] 20"}};
  return tensors;
}

}  // namespace

TEST_CASE("onnx nodes: tensors of nodes, subgraphs, functions and training are read") {
  CHECK(tensors_of(good(opened(model_with_all()))) == all_tensors());
  // A name that is made twice, or no name.
  CHECK(bad(opened(number(1, 8) + bytes(7, constant("w", {1}) + bytes(5, tensor("w", {1}))))).code() ==
        Errc::duplicate);
  CHECK(bad(opened(number(1, 8) + bytes(7, node("y", "If", attribute("a", bytes(6, bytes(5, tensor("", {1}))))))))
            .code() == Errc::malformed);
}

TEST_CASE("onnx nodes: a save replaces one tensor after the other, and all") {
  const TempDir dir;
  write_text(dir / "m.onnx", model_with_all());
  const OnnxRecorder<> into(OnnxFormat({.model = dir / "m.onnx"}));
  stele::SaveOptions options = quick();
  options.metadata = {{"note", "new"}};
  Tensors everything;
  stele::SnapshotBuilder all;
  all.begin(stele::NodeKind::module, "");
  all.set_flat();
  const std::string fives = floats_of({5, 5, 5, 5, 5, 5});
  const std::vector<std::int64_t> sixes(3, 6);
  const Snapshot before = good(stele::open(dir / "m.onnx"));
  for (const auto& tensor : all_tensors()) {
    const std::string &name = tensor.first, &text = tensor.second;
    CAPTURE(name);
    const stele::LeafView leaf = *before.find(name);
    const bool ints = leaf.dtype() == DType::i64;
    const stele::Provider provider{&memory_ops, ints ? static_cast<const void*>(sixes.data()) : fives.data(), 0};
    std::string changed = text.substr(0, text.find(']') + 1);
    for (std::size_t i = 0; i < leaf.size(); ++i) changed += ints ? " 6" : " 5";
    everything[name] = changed;
    stele::SnapshotBuilder one;
    one.begin(stele::NodeKind::module, "");
    one.set_flat();
    for (stele::SnapshotBuilder* const builder : {&one, &all}) {
      builder->tensor(builder->intern(name), leaf.dtype(), leaf.shape(), leaf.byte_size(), provider);
    }
    good(into.save(one.finish(), dir / "n.onnx", options));
    Tensors expected = all_tensors();
    expected[name] = changed;
    const Snapshot saved = good(stele::open(dir / "n.onnx"));
    CHECK(tensors_of(saved) == expected);
    CHECK(saved.metadata() == std::map<std::string, std::string>{{"note", "new"}, {"kept", "it"}});
  }
  good(into.save(all.finish(), dir / "n.onnx", options));
  CHECK(tensors_of(good(stele::open(dir / "n.onnx"))) == everything);
  const std::string text = read_text(dir / "n.onnx");
  for (const char* kept : {"node of chosen", "Loop", "inside", "about it", "value_floats"}) {
    CAPTURE(kept);  // the last one is the setting of another operator
    CHECK(text.find(kept) != std::string::npos);
  }
  // Nothing of the module: the same bytes.
  good(into.save(Snapshot(), dir / "n.onnx", quick()));
  CHECK(read_text(dir / "n.onnx") == model_with_all());
}

TEST_CASE("onnx nodes: a Constant of another dtype or shape is not replaced") {
  const TempDir dir;
  write_text(dir / "m.onnx", model_with_all());
  const OnnxRecorder<> into(OnnxFormat({.model = dir / "m.onnx"}));
  struct Wider {
    std::vector<double> list;
  };
  CHECK(bad(into.save(Wider{{1, 2, 3}}, dir / "n.onnx", quick())).code() == Errc::dtype_mismatch);
  struct Longer {
    std::vector<float> list;
  };
  CHECK(bad(into.save(Longer{{1, 2, 3, 4}}, dir / "n.onnx", quick())).code() == Errc::shape_mismatch);
}

TEST_CASE("onnx nodes: hostile models") {
  // Numbers that are cut, and messages that nest too deep.
  CHECK(
      bad(opened(number(1, 8) + bytes(7, node("y", "Constant", attribute("value_floats", bytes(7, "123")))))).code() ==
      Errc::malformed);
  std::string deep = constant("c", {1});
  for (int i = 0; i < 40; ++i) deep = bytes(1, bytes(5, bytes(6, deep)));
  CHECK(bad(opened(number(1, 8) + bytes(7, deep))).code() == Errc::limit);
  // One long name of a node before many short ones.
  std::string many;
  for (int i = 0; i < 20'000; ++i) many += bytes(5, number(1, 0) + number(2, 1) + bytes(8, std::to_string(i)));
  const std::string graph = node(std::string(60'000, 'y'), "If", attribute("a", bytes(6, many)));
  CHECK(bad(opened(number(1, 8) + bytes(7, graph))).code() == Errc::limit);
  CHECK(good(opened(number(1, 8) + bytes(7, node("y", "If", attribute("a", bytes(6, many)))))).leaf_count() == 20'000);
}

}  // namespace stele_test::onnx_nodes_test
