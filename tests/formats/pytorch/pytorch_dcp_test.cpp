// Folders of torch.distributed.checkpoint that PyTorch wrote.
#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "pytorch_dcp_support.hpp"

namespace stele_test::pytorch_dcp_test {

using namespace dcp;

namespace {

struct Expected {
  DType dtype;
  std::vector<Extent> shape;
};
using Tensors = std::map<std::string, Expected>;

/// Element k of a tensor is k % 251; k % 2 of bools; the scalar is 3.
std::string elements(DType dtype, std::uint64_t count, bool scalar) {
  std::string bytes;
  for (std::uint64_t k = 0; k < count; ++k) {
    const auto number = static_cast<std::int64_t>(scalar ? 3 : dtype == DType::boolean ? k % 2 : k % 251);
    std::byte element[16];
    const auto* from = reinterpret_cast<const std::byte*>(&number);
    REQUIRE(convert(DType::i64, from, dtype, element, 1, {.allow_kind_change = true}).status == ConvertStatus::ok);
    bytes.append(reinterpret_cast<const char*>(element), element_size(dtype));
  }
  return bytes;
}

void check_tensors(const Snapshot& opened, const Tensors& wanted) {
  CHECK(opened.leaf_count() == wanted.size());
  for (const auto& item : wanted) {
    const std::string& path = item.first;  // a structured binding cannot be captured
    const Expected& tensor = item.second;
    CAPTURE(path);
    const auto leaf = opened.find(path);
    REQUIRE(leaf);
    CHECK(leaf->dtype() == tensor.dtype);
    CHECK(std::vector<Extent>(leaf->shape().begin(), leaf->shape().end()) == tensor.shape);
    if (tensor.dtype == DType::c64) continue;
    const std::string all = elements(tensor.dtype, leaf->size(), path.ends_with("scalar"));
    CHECK(good(content(*leaf)) == all);
    if (leaf->size() < 3) continue;
    const std::size_t size = element_size(tensor.dtype);
    std::string some(2 * size, '\0');
    good(leaf->read(size, std::as_writable_bytes(std::span(some))));
    CHECK(some == all.substr(size, 2 * size));
  }
}

const Value* value_at(const Snapshot& snapshot, std::string_view path) {
  for (const Node& node : snapshot.nodes()) {
    if (node.kind == NodeKind::value && std::string_view(node.name, node.name_size) == path)
      return &snapshot.value(node);
  }
  return nullptr;
}

std::vector<float> floats(const Snapshot& snapshot, const std::string& path) {
  const auto leaf = snapshot.find(path);
  REQUIRE(leaf);
  REQUIRE(leaf->dtype() == DType::f32);
  const std::string bytes = good(content(*leaf));
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

struct FourModel {
  stele::Tensor<float, 2> rows, square;
  std::vector<float> replicated;
  std::vector<std::int64_t> plain;
  STELE_MODULE(FourModel, rows, square, replicated, plain)
};
struct Four {
  FourModel model;
  std::int64_t epoch = 0;
  STELE_MODULE(Four, model, epoch)
};

}  // namespace

TEST_CASE("pytorch dcp: chunks of processes are whole tensors") {
  const Tensors tensors = {
      {"all.rows", {DType::f32, {10, 3}}},    {"all.rows.all", {DType::f32, {7, 2}}},
      {"all.columns", {DType::f32, {3, 9}}},  {"all.grid", {DType::bf16, {5, 6}}},
      {"all.cube", {DType::i64, {2, 3, 5}}},  {"all.few", {DType::f16, {1, 4}}},
      {"all.whole", {DType::f64, {2, 2}}},    {"all.mask", {DType::boolean, {8}}},
      {"all.scalar", {DType::f32, {}}},       {"all.none", {DType::f32, {0, 2}}},
      {"all.turned", {DType::f32, {6, 4}}},   {"all.complex", {DType::c64, {3}}},
      {"all.eight", {DType::f8_e4m3fn, {5}}}, {"all.options.weight", {DType::f32, {2}}},
  };
  const Snapshot opened = good(recorder.open(dcp_golden("dcp_mesh")));
  check_tensors(opened, tensors);
  CHECK(opened.flat());
  CHECK(numbers_of<float>(good(content(*opened.find("all.complex")))) == std::vector<float>{0, 0, 1, 0, 2, 0});
  REQUIRE(value_at(opened, "all.options.__class__") != nullptr);
  CHECK(*value_at(opened, "all.options.__class__") == Value("argparse.Namespace"));
  CHECK(*value_at(opened, "all.options.rate") == Value(0.5));
  CHECK(*value_at(opened, "all.list.0") == Value(std::int64_t{1}));
  CHECK(*value_at(opened, "all.list.1") == Value("two"));
  CHECK(*value_at(opened, "all.list.2.three") == Value(Value::List{Value(4.5), Value()}));
  // By content, without the recorder's name.
  check_tensors(good(open(dcp_golden("dcp_mesh"))), tensors);
  CHECK(good(format_of_content(*good(open_folder(dcp_golden("dcp_mesh")))))->name() == "pytorch");
  CHECK(good(recorder.verify(dcp_golden("dcp_mesh"))).empty());
  // What it contains, in one file.
  const auto file = good(saved(BinaryRecorder<>(), opened));
  check_tensors(good(open(file.span())), tensors);
}

TEST_CASE("pytorch dcp: modules load from folders") {
  const Four four = good(load<Four>(dcp_golden("dcp4")));
  CHECK(four.epoch == 3);
  CHECK(four.model.rows.shape() == Shape{5, 3});
  CHECK(four.model.rows.data()[14] == 2);
  CHECK(four.model.square.shape() == Shape{4, 6});
  CHECK(four.model.replicated == std::vector<float>{1, 2, 3});
  CHECK(four.model.plain.size() == 2);
  // A part of the names.
  const auto part = good(PytorchRecorder<>(PytorchFormat({.part = "model"})).load<FourModel>(dcp_golden("dcp4")));
  CHECK(part.replicated == std::vector<float>{1, 2, 3});
}

TEST_CASE("pytorch dcp: lists and values of one process") {
  const Snapshot one = good(open(dcp_golden("dcp1")));
  CHECK(one.leaf_count() == 6);
  CHECK(floats(one, "model.fc1.weight") == std::vector<float>{2, 3, 4, 5, 6, 7});
  CHECK(floats(one, "list.0") == std::vector<float>{1, 2});
  CHECK(to_string(one.find("empty")->shape()) == "[0, 3]");
  CHECK(*value_at(one, "list.1.a") == Value(std::int64_t{1}));
  CHECK(*value_at(one, "none") == Value());
  CHECK(*value_at(one, "config.rate") == Value(0.5));
  CHECK(*value_at(one, "config.name") == Value("net"));
}

TEST_CASE("pytorch dcp: an optimizer's state has the parameters' names") {
  const Snapshot adam = good(open(dcp_golden("dcp_adam")));
  for (int k = 0; k < 6; ++k) {
    CHECK(floats(adam, "model.0.weight")[static_cast<std::size_t>(k)] == doctest::Approx(k - 0.5));
  }
  CHECK(floats(adam, "optimizer.state.0.weight.step") == std::vector<float>{2});
  for (const float x : floats(adam, "optimizer.state.1.weight.exp_avg")) CHECK(x == doctest::Approx(0.19));
  CHECK(floats(adam, "optimizer.state.1.bias.exp_avg_sq")[0] == doctest::Approx(0.001999));
  CHECK(*value_at(adam, "optimizer.param_groups.0.lr") == Value(0.25));
  CHECK(value_at(adam, "optimizer.param_groups.0.params")->as_list()->size() == 4);
}

TEST_CASE("pytorch dcp: metadata of each process") {
  const Tensors tensors = {{"rows", {DType::f32, {5, 2}}},
                           {"whole", {DType::f32, {3}}},
                           {"plain", {DType::i64, {3}}},
                           {"own.0", {DType::i32, {2}}},
                           {"own.1", {DType::i32, {2}}}};
  const Snapshot opened = good(open(dcp_golden("dcp_ranks")));
  check_tensors(opened, tensors);
  CHECK(*value_at(opened, "rank") == Value(std::int64_t{0}));
  // Without one of them, rows are missing.
  const Error error = bad(recorder.open(source_of(copied("dcp_ranks", "__1.metadata"))));
  CHECK(error.code() == Errc::malformed);
  CHECK(error.path() == "rows");
  CHECK(error.hint() == "the metadata of a process may be missing");
  CHECK(code_of(recorder.open(source_of(copied("dcp_ranks", "__0.metadata")))) == Errc::malformed);
}

TEST_CASE("pytorch dcp: files that are missing or short") {
  for (const std::string folder : {"dcp1", "dcp4", "dcp_mesh", "dcp_ranks"}) {
    for (const auto& entry : std::filesystem::directory_iterator(dcp_golden(folder))) {
      const std::string name = entry.path().filename().string();
      if (!name.ends_with(".distcp")) continue;
      CAPTURE(name);
      const auto lacking = copied(folder, name);
      CHECK(code_of(open(source_of(lacking))) == Errc::not_found);
      std::string text = read_text(entry.path().string());
      text.resize(text.size() / 2);
      put_file(*lacking, name, text);
      CHECK(code_of(open(source_of(lacking))) == Errc::truncated);
      put_file(*lacking, name, "");
      CHECK(code_of(open(source_of(lacking))) == Errc::truncated);
    }
  }
  CHECK(code_of(recorder.open(source_of(copied("dcp4", ".metadata")))) == Errc::not_found);
  CHECK(code_of(open(source_of(copied("dcp4", ".metadata")))) == Errc::bad_magic);
  // A file of that name that is no pickle.
  const auto workspace = memory_bundle();
  put_file(*workspace, ".metadata", "a text");
  CHECK_FALSE(PytorchFormat().recognises_folder(*workspace));
}

TEST_CASE("pytorch dcp: chunks are checked") {
  const auto folder = copied("dcp4");
  std::string file = read_text(dcp_golden("dcp4") + "/__0_0.distcp");
  // The first rows are 2, 3, 4 and 5, 6, 7.
  const std::string row{"\0\0\0\x40\0\0\x40\x40\0\0\x80\x40", 12};
  const std::size_t at = file.find(row);
  REQUIRE(at != std::string::npos);
  file[at] = 1;
  put_file(*folder, "__0_0.distcp", file);
  const Snapshot opened = good(open(source_of(folder)));
  const Error error = bad(content(*opened.find("model.rows")));
  CHECK(error.code() == Errc::checksum);
  CHECK(error.path() == "model.rows");
  CHECK(error.offset() == at);
  CHECK(error.file().ends_with("__0_0.distcp"));
  CHECK(content(*opened.find("model.replicated")).has_value());
  CHECK(code_of(recorder.verify(source_of(folder))) == Errc::checksum);
  const PytorchRecorder<> lax(PytorchFormat({.ignore_checksums = true}));
  CHECK(content(*good(lax.open(source_of(folder))).find("model.rows")).has_value());
}

TEST_SUITE_BEGIN("concurrency");

TEST_CASE("pytorch dcp: threads open the chunks of a tensor once") {
  const Snapshot opened = good(open(dcp_golden("dcp_mesh")));
  std::vector<std::string> found(4);
  std::vector<std::thread> threads;
  for (std::string& text : found) {
    threads.emplace_back([&opened, &text] {
      for (std::size_t i = 0; i < opened.leaf_count(); ++i) {
        const auto bytes = content(opened.leaf(i));
        text += bytes ? *bytes : "error";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : found) CHECK(text == found[0]);
  CHECK(found[0].find("error") == std::string::npos);
}

TEST_SUITE_END();

TEST_CASE("pytorch dcp: more files than stay open") {
  // Copies of one chunk, each in a file of its own.
  TempDir dir;
  Metadata metadata;
  TensorItem item{"w", "float32", {2 * 100, 3}};
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::string name = "__" + std::to_string(i) + "_0.distcp";
    write_text(dir / name, read_text(dcp_golden("tensor.pt")));
    item.chunks.push_back({{2 * i, 0}, {2, 3}});
    metadata.places.push_back({"w", Extents{2 * i, 0}, name, 0, chunk_size()});
  }
  metadata.tensors.push_back(item);
  write_text(dir / ".metadata", metadata.pickled());
  const Snapshot opened = good(open(dir.path()));
  std::string wanted;
  for (int i = 0; i < 100; ++i) wanted += chunk_elements();
  CHECK(good(content(opened.leaf(0))) == wanted);
  std::string some(8, '\0');
  good(opened.leaf(0).read(24 * 99 + 16, std::as_writable_bytes(std::span(some))));
  CHECK(some == chunk_elements().substr(16));
}

}  // namespace stele_test::pytorch_dcp_test
