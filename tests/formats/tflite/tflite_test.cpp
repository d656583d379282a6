// Models of TensorFlow Lite: those that TensorFlow wrote, and damaged ones.
#include <doctest/doctest.h>

#include <stele/quantize.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/read_only.hpp>
#include <stele/recover.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "stele/detail/little_endian.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace tflite_test {

namespace {

using namespace stele;
using namespace stele_test;

/// Returns the bytes of a golden file, which stay.
const std::string& golden(const std::string& name) {
  static std::map<std::string, std::string> files;
  std::string& file = files[name];
  if (file.empty()) file = read_text(test_data("tflite") + "/" + name + ".tflite");
  return file;
}
Snapshot opened(const std::string& file) { return good(TfliteRecorder<>().open(bytes_of(file))); }

/// Returns the numbers of a tensor, dequantized if it is quantized.
std::vector<float> numbers(const Snapshot& snapshot, std::string_view path) {
  PrecisionSpec f32;
  f32.floating = DType::f32;
  const Snapshot all = with_precision(snapshot, f32);
  const LeafView leaf = *all.find(path);
  REQUIRE(leaf.dtype() == DType::f32);
  std::vector<float> out(leaf.size());
  REQUIRE(leaf.read(0, std::as_writable_bytes(std::span(out))));
  return out;
}
template <class T>
std::vector<T> elements(const Snapshot& snapshot, std::string_view path) {
  const LeafView leaf = *snapshot.find(path);
  std::vector<T> out(leaf.byte_size() / sizeof(T));
  REQUIRE(leaf.read(0, std::as_writable_bytes(std::span(out))));
  return out;
}

/// A source that is neither in memory nor mapped, as one over a network.
class Remote final : public Source {
 public:
  explicit Remote(std::string bytes) : Source("remote"), bytes_(std::move(bytes)) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) return Error(Errc::truncated, "outside");
    std::copy_n(reinterpret_cast<const std::byte*>(bytes_.data()) + offset, out.size(), out.data());
    return {};
  }

 private:
  std::string bytes_;
};

/// Reads everything that can be read.
void read_all(const Snapshot& snapshot, std::uint64_t size) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) total += snapshot.leaf(i).byte_size();
  CHECK(total <= 16 * size + (std::uint64_t{1} << 20));
  if (total > (std::uint64_t{1} << 24)) return;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) static_cast<void>(content(snapshot.leaf(i)));
}

}  // namespace

TEST_CASE("tflite: constants of a model, by content") {
  const Snapshot snapshot = good(stele::open(test_data("tflite") + "/float.tflite"));
  CHECK(snapshot.leaf_count() == 9);
  CHECK(snapshot.find("sequential_1/wide_1/MatMul")->shape().size() == 2);
  CHECK(snapshot.find("arith.constant")->dtype() == DType::i32);
  CHECK(snapshot.metadata().at("min_runtime_version") == "1.5.0");
  CHECK(snapshot.metadata().at("description") == "MLIR Converted.");
  CHECK(snapshot.notes() ==
        std::vector<std::string>{"the metadata CONVERSION_METADATA are not text, and are not read"});
  const auto kernel = numbers(snapshot, "sequential_1/conv_1/convolution");
  CHECK(kernel[0] == -50.F / 64 * 0.5F);
  CHECK(opened(golden("float16")).find("sequential_1/wide_1/MatMul")->dtype() == DType::f16);
}

TEST_CASE("tflite: quantized tensors are integers with their scales") {
  const Snapshot snapshot = opened(golden("int8"));
  const LeafView kernel = *snapshot.find("sequential_1/conv_1/convolution");
  CHECK(kernel.dtype() == DType::i8);
  const Value& note = kernel.annotations()->at(std::string(quantization_key));
  CHECK(*note.find("axis")->as_i64() == 0);
  CHECK(note.find("scale")->as_list()->size() == 3);
  CHECK(*snapshot.find("sequential_1/last_1/BiasAdd")->annotations()->at("quantization").find("bits")->as_i64() == 32);
  // The weights of the depthwise convolution have a scale for each index of the last axis.
  const LeafView depthwise = *snapshot.find("sequential_1/depthwise_1/depthwise");
  CHECK(*depthwise.annotations()->at("quantization").find("axis")->as_i64() == 3);
  const Snapshot floats = opened(golden("float"));
  for (const char* name : {"sequential_1/conv_1/convolution", "sequential_1/depthwise_1/depthwise",
                           "sequential_1/wide_1/MatMul", "sequential_1/last_1/MatMul"}) {
    CAPTURE(name);
    const auto expected = numbers(floats, name), found = numbers(snapshot, name);
    REQUIRE(expected.size() == found.size());
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(std::abs(expected[i] - found[i]) < 0.01F);
  }
  CHECK(good(dequantize(snapshot)).find("sequential_1/last_1/BiasAdd")->dtype() == DType::f32);
}

TEST_CASE("tflite: every type, ties and names") {
  const Snapshot snapshot = opened(golden("types"));
  const std::pair<const char*, DType> types[] = {
      {"float32", DType::f32}, {"float16", DType::f16},  {"int32", DType::i32},       {"uint8", DType::u8},
      {"int64", DType::i64},   {"bool", DType::boolean}, {"int16", DType::i16},       {"complex64", DType::c64},
      {"int8", DType::i8},     {"float64", DType::f64},  {"complex128", DType::c128}, {"uint64", DType::u64},
      {"uint32", DType::u32},  {"uint16", DType::u16},   {"bfloat16", DType::bf16},   {"int4", DType::i8},
      {"uint4", DType::u8},    {"int2", DType::i8},      {"same_bytes", DType::i32},  {"int16#1", DType::i16},
      {"bool#1", DType::i8},
  };
  for (const auto& known : types) {
    CAPTURE(known.first);
    REQUIRE(snapshot.find(known.first));
    CHECK(snapshot.find(known.first)->dtype() == known.second);
  }
  CHECK(numbers(snapshot, "bfloat16") == std::vector<float>{1, 2});
  CHECK(elements<std::int8_t>(snapshot, "int4") == std::vector<std::int8_t>{0, 1, 2, 3, -2, -1, 7, -8, 5});
  CHECK(*snapshot.find("int4")->annotations()->at("tflite.dtype").as_string() == "int4");
  CHECK(numbers(snapshot, "int4")[8] == 2.5F);
  CHECK(numbers(snapshot, "int4_rows") == std::vector<float>{0, 0.5F, 1, 6, -4, -2});
  CHECK(elements<std::uint8_t>(snapshot, "uint4") == std::vector<std::uint8_t>{15, 1, 2});
  CHECK(elements<std::int8_t>(snapshot, "int2") == std::vector<std::int8_t>{0, 1, -2, -1, -2});
  std::int8_t part[2] = {};
  REQUIRE(snapshot.find("int2")->read(3, std::as_writable_bytes(std::span(part))));
  CHECK((part[0] == -1 && part[1] == -2));
  CHECK(numbers(snapshot, "uint8_zero") == std::vector<float>{-32, 0, 0.5F, 31.75F});
  CHECK(numbers(snapshot, "middle") == std::vector<float>{0, 1, 2, 4, 8, 12, 6, 7, 14, 16, 32, 36});
  CHECK(numbers(snapshot, "scalar") == std::vector<float>{2.5F});
  CHECK(snapshot.find("scalar")->shape().empty());
  CHECK(numbers(snapshot, "tensor.29") == std::vector<float>{7});
  CHECK(unreadable_reason(*snapshot.find("string")) == "a tensor of strings");
  CHECK(unreadable_reason(*snapshot.find("sparse")) == "a sparse tensor");
  CHECK(unreadable_reason(*snapshot.find("short")) == "a tensor of 16 bytes with data of 4");
  CHECK_FALSE(snapshot.find("input"));
  const auto tied = std::find_if(snapshot.nodes().begin(), snapshot.nodes().end(),
                                 [](const Node& n) { return n.kind == NodeKind::alias; });
  REQUIRE(tied != snapshot.nodes().end());
  CHECK(snapshot.find("tied")->path() == "float32");
  const Value& blocks = snapshot.find("blocks")->annotations()->at("quantization");
  CHECK(*blocks.find("scheme")->as_string() == "blockwise");
  CHECK(*blocks.find("scales")->as_string() == "float16");
  CHECK(*blocks.find("block_size")->as_i64() == 4);
  CHECK(code_of(dequantize(snapshot, {"blocks"})) == Errc::unsupported);
}

TEST_CASE("tflite: subgraphs, and data after the FlatBuffer") {
  const Snapshot graphs = opened(golden("subgraphs"));
  CHECK(numbers(graphs, "while_body/while/mul/y").size() == 4);
  CHECK(graphs.find("add")->shape().size() == 1);
  CHECK(graphs.find("repeat/arith.constant"));
  const std::string file = golden("large");
  const Snapshot large = opened(file);
  CHECK(large.find("w")->location()->offset == file.size() - 24);
  CHECK(numbers(large, "w")[0] == -50.F / 64);
  const TfliteRecorder<> recorder;
  CHECK(code_of(recorder.open(bytes_of(file.substr(0, file.size() - 1)))) == Errc::malformed);
}

TEST_CASE("tflite: a source that is not in memory") {
  for (const char* name : {"types", "int8", "subgraphs"}) {
    CAPTURE(name);
    const std::string file = golden(name);
    const Snapshot remote = good(TfliteRecorder<>().open(SourcePtr(std::make_shared<Remote>(file))));
    const Snapshot here = opened(file);
    REQUIRE(remote.leaf_count() == here.leaf_count());
    for (std::size_t i = 0; i < here.leaf_count(); ++i) {
      CHECK(remote.leaf(i).path() == here.leaf(i).path());
      CHECK(good(content(remote.leaf(i))) == good(content(here.leaf(i))));
    }
  }
}

TEST_CASE("tflite: is only read") {
  CHECK(code_of(stele::save(Tensor<float>({2}), "/none/m.tflite")) == Errc::unsupported);
  const TempDir dir;
  const Report report = good(stele::save(opened(golden("int8")), dir / "m.stele"));
  CHECK(report.count(Report::What::lost) == 1);
  CHECK(report.to_string().find("the graph") != std::string::npos);
}

TEST_CASE("tflite hostile: every truncation and every changed byte") {
  const TfliteRecorder<> recorder;
  for (const char* name : {"types", "large", "subgraphs"}) {
    const std::string file = golden(name);
    for (std::size_t n = 0; n < file.size(); ++n) {
      const auto cut = recorder.open(bytes_of(std::string_view(file).substr(0, n)));
      if (cut) read_all(*cut, n);
    }
    std::string damaged = file;
    for (std::size_t i = 0; i < file.size(); ++i) {
      for (const unsigned flip : {0x01U, 0x80U, 0xffU}) {
        damaged[i] = static_cast<char>(static_cast<unsigned char>(file[i]) ^ flip);
        const auto changed = recorder.open(bytes_of(damaged));
        if (changed) read_all(*changed, file.size());
      }
      damaged[i] = file[i];
    }
  }
}

namespace {

/// Puts the tables of a model together: `tensors` tensors, all the same table, with a name of `name` bytes.
std::string shared_tables(std::uint32_t tensors, std::uint32_t name) {
  std::string out;
  const auto put = [&](auto number) {
    std::byte bytes[sizeof number];
    detail::store_le(bytes, number);
    out.append(reinterpret_cast<const char*>(bytes), sizeof bytes);
  };
  const auto fix = [&](std::size_t at) {
    std::byte bytes[4];
    detail::store_le(bytes, static_cast<std::uint32_t>(out.size() - at));
    out.replace(at, 4, reinterpret_cast<const char*>(bytes), 4);
  };
  const auto u16s = [&](std::initializer_list<int> numbers) {
    for (const int n : numbers) put(static_cast<std::uint16_t>(n));
  };
  put(std::uint32_t{0});
  out += "TFL3";
  // vtables: model (version, subgraphs, buffers), subgraph (tensors), tensor (type, buffer, name), buffer (data)
  u16s({14, 16, 4, 0, 8, 0, 12});
  const std::size_t graph_vtable = out.size();
  u16s({6, 8, 4});
  const std::size_t tensor_vtable = out.size();
  u16s({12, 16, 0, 4, 8, 12});
  const std::size_t buffer_vtable = out.size();
  u16s({6, 8, 4});
  const auto table = [&](std::size_t vtable) { put(static_cast<std::int32_t>(out.size() - vtable)); };
  fix(0);
  table(8);
  put(std::uint32_t{3});
  const std::size_t graphs = out.size();
  put(std::uint32_t{0});
  const std::size_t buffers = out.size();
  put(std::uint32_t{0});
  fix(graphs);
  put(std::uint32_t{1});
  put(std::uint32_t{4});
  table(graph_vtable);
  const std::size_t all = out.size();
  put(std::uint32_t{0});
  fix(all);
  put(tensors);
  const std::size_t end = out.size() + std::size_t{4} * tensors;
  for (std::uint32_t i = 0; i < tensors; ++i) put(static_cast<std::uint32_t>(end - out.size()));
  table(tensor_vtable);
  put(std::uint32_t{9});  // int8
  put(std::uint32_t{1});
  const std::size_t text = out.size();
  put(std::uint32_t{0});
  fix(text);
  put(name);
  out.append(name, 'n');
  fix(buffers);
  put(std::uint32_t{2});
  put(std::uint32_t{8});
  put(std::uint32_t{4});
  table(buffer_vtable);
  const std::size_t data = out.size();
  put(std::uint32_t{0});
  fix(data);
  put(std::uint32_t{1});
  out += 'x';
  return out;
}

}  // namespace

TEST_CASE("tflite hostile: shared tables, lies and loops") {
  const TfliteRecorder<> recorder;
  const std::string same = shared_tables(2, 3);
  const Snapshot two = opened(same);
  CHECK(two.leaf_count() == 1);
  CHECK(two.find("nnn#1"));
  CHECK(code_of(recorder.open(bytes_of(shared_tables(50'000, 60'000)))) == Errc::limit);
  CHECK(recorder.open(bytes_of(shared_tables(20'000, 2))));
  CHECK(code_of(recorder.open(bytes_of(shared_tables(1, 70'000)))) == Errc::malformed);
  std::string file = shared_tables(1, 1);
  file[20] = 0;  // the model has no buffers
  CHECK(code_of(recorder.open(bytes_of(file))) == Errc::malformed);
  CHECK(code_of(recorder.open(bytes_of(std::string("\0\0\0\0TFL3", 8)))) == Errc::malformed);
  CHECK(code_of(recorder.open(bytes_of("TFL"))) == Errc::truncated);
  CHECK(code_of(recorder.open(bytes_of("12345678"))) == Errc::bad_magic);
}

}  // namespace tflite_test
