// Core ML: models of coremltools, values by hand, and damaged files.
#include <stele/bundle.hpp>
#include <stele/composite.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/read_only.hpp>
#include <stele/recover.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/onnx_bytes.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace coreml_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

std::string golden(const std::string& name) { return test_data("coreml") + "/" + name; }
const std::string inside = "/Data/com.apple.CoreML/";

std::vector<float> floats_of(const Snapshot& snapshot, const std::string& name) {
  const auto leaf = snapshot.find(name);
  REQUIRE_MESSAGE(leaf.has_value(), name);
  REQUIRE(leaf->dtype() == DType::f32);
  const std::string bytes = good(content(*leaf));
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

/// Returns the weights that the golden files have (coreml_files.py).
std::vector<float> weight() {
  std::vector<float> w(64 * 32);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i * 7 % 31) / 8 - 1;
  return w;
}
float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

void put(Bundle& bundle, const char* name, std::string_view content) {
  const auto file = good(bundle.create(name));
  good(file->write(bytes_of(content)));
  good(file->commit());
}
Result<Snapshot> opened(std::string_view model, std::string_view weights) {
  const auto bundle = memory_bundle();
  put(*bundle, "m.mlmodel", model);
  put(*bundle, "weights/weight.bin", weights);
  STELE_TRY_ASSIGN(SourcePtr source, bundle->open("m.mlmodel"));
  return CoremlRecorder<>().open(std::move(source));
}

// ---- messages by hand

std::string tensor_type(unsigned dtype, const std::vector<unsigned>& shape) {
  std::string type = number(1, dtype) + number(2, shape.size());
  for (const unsigned extent : shape) type += bytes(3, bytes(1, number(1, extent)));
  return bytes(2, bytes(1, type));
}
std::string immediate(const std::string& value) { return bytes(3, bytes(1, value)); }
std::string in_blob(std::uint64_t offset, const std::string& path = "@model_path/weights/weight.bin") {
  return bytes(5, bytes(1, path) + number(2, offset));
}
std::string constant(const std::string& name, const std::string& value, const std::string& type = "const",
                     const std::string& key = "val") {
  return bytes(3, bytes(1, type) + bytes(3, bytes(1, name)) + bytes(5, bytes(1, key) + bytes(2, value)));
}
std::string function(const std::string& name, const std::string& operations) {
  return bytes(2, bytes(1, name) + bytes(2, bytes(3, bytes(1, "CoreML8") + bytes(2, operations))));
}
std::string model_of(const std::string& functions) {
  return number(1, 9) + bytes(2, "") + bytes(502, number(1, 1) + functions);
}
std::string model_with(const std::string& operations) { return model_of(function("main", operations)); }

std::string u32(std::uint32_t n) { return std::string{char(n), char(n >> 8), char(n >> 16), char(n >> 24)}; }
std::string u64(std::uint64_t n) {
  return u32(static_cast<std::uint32_t>(n)) + u32(static_cast<std::uint32_t>(n >> 32));
}
/// Returns a file of one blob of 4 bytes.
std::string weights_of(std::uint32_t type, std::uint64_t size = 4, std::uint64_t offset = 128,
                       std::uint64_t padding = 0) {
  return u32(1) + u32(2) + std::string(56, '\0') + "\xef\xbe\xad\xde" + u32(type) + u64(size) + u64(offset) +
         u64(padding) + std::string(32, '\0') + "abcd";
}

}  // namespace

TEST_CASE("coreml: an ML program, its model alone, its weights alone") {
  const std::string package = golden("net.mlpackage");
  const Snapshot all = good(stele::open(package)), model = good(stele::open(package + inside + "model.mlmodel"));
  CHECK(all.leaf_count() == model.leaf_count());
  const Snapshot both[] = {all, model};
  for (const Snapshot& s : both) {
    CHECK(floats_of(s, "fc_weight") == weight());
    CHECK(s.find("fc_weight")->shape()[0] == 64);
    CHECK(floats_of(s, "fc_bias")[63] == 63);
    CHECK(s.find("conv_weight")->shape().size() == 4);
    CHECK(floats_of(s, "floor") == std::vector<float>{1.5F});
    // Settings of operations are constants, too: integers, and strings as values.
    CHECK(s.find("conv_strides_0")->dtype() == DType::i32);
  }
  std::vector<float> part(2);
  good(all.find("fc_weight")->read(8, std::as_writable_bytes(std::span(part))));
  CHECK(part == std::vector<float>{weight()[2], weight()[3]});
  const Snapshot blobs = good(stele::open(package + inside + "weights/weight.bin"));
  CHECK(blobs.leaf_count() == 3);
  CHECK(floats_of(blobs, "0") == weight());
  const TempDir dir;
  std::filesystem::copy_file(package + inside + "model.mlmodel", dir / "m.mlmodel");
  CHECK(code_of(stele::open(dir / "m.mlmodel")) == Errc::not_found);
  CHECK(code_of(CoremlRecorder<>().open(bytes_of(read_text(dir / "m.mlmodel")))) == Errc::unsupported);
  CHECK(code_of(stele::save(all, dir / "m.mlpackage")) == Errc::unsupported);
  std::filesystem::create_directory(dir / "p.mlpackage");
  write_text(dir / "p.mlpackage/Manifest.json", "{}");
  CHECK(code_of(CoremlRecorder<>().open(dir / "p.mlpackage")) == Errc::malformed);
  CHECK(code_of(stele::open(dir / "p.mlpackage")) == Errc::bad_magic);
}

TEST_CASE("coreml: compressed weights") {
  for (const auto* name : {"affine", "shift", "int4"}) {
    CAPTURE(name);
    const Snapshot all = good(stele::open(golden(name + ".mlpackage"s)));
    REQUIRE(all.find("fc_weight"));
    REQUIRE(composite(*all.find("fc_weight")));
    CHECK(composite(*all.find("fc_weight"))->parts.size() == (name == "int4"s ? 2 : 3));
    const float step = name == "int4"s ? 0.21F : 0.012F;
    CHECK(largest_difference(floats_of(all, "fc_weight"), weight()) < step);
    REQUIRE(all.find("conv_weight"));
    CHECK(composite(*all.find("conv_weight")).has_value() == (name != "int4"s));
    CHECK(floats_of(all, "fc_bias")[63] == 63);
  }
  const Snapshot table = good(stele::open(golden("lut.mlpackage")));
  CHECK(table.find("fc_weight_palettized.indices")->byte_size() == 1024);
  CHECK(table.find("fc_weight_palettized.lut")->size() == 16);
  CHECK(table.find("fc_weight_palettized.shape")->dtype() == DType::u32);
  const Snapshot three = good(stele::open(golden("lut3.mlpackage")));
  CHECK(unreadable_reason(*three.find("fc_weight_palettized.indices")) == "elements of the type u3");
  const Snapshot sparse = good(stele::open(golden("sparse.mlpackage")));
  CHECK(unreadable_reason(*sparse.find("fc_weight_sparsified.mask")) == "elements of the type u1");
  CHECK(sparse.find("fc_weight_sparsified.nonzero_data")->dtype() == DType::f32);
}

TEST_CASE("coreml: neural networks") {
  const Snapshot all = good(stele::open(golden("network.mlmodel")));
  CHECK(all.leaf_count() == 6);
  CHECK(floats_of(all, "fc.weights") == weight());
  CHECK(floats_of(all, "norm.variance")[0] == 3);
  const Snapshot half = good(stele::open(golden("network16.mlmodel")));
  CHECK(half.find("fc.weights")->dtype() == DType::f16);
  CHECK(half.find("fc.weights")->size() == 64 * 32);
  // Preprocessing, the second field of a network, is no layer.
  const auto layer = [](const std::string& name) { return bytes(1, name) + bytes(140, bytes(20, bytes(2, "half"))); };
  const Snapshot one = good(opened(
      number(1, 9) + bytes(2, "") + bytes(500, bytes(1, layer("fc")) + bytes(2, layer("no")) + number(1, 7)), ""));
  REQUIRE(one.leaf_count() == 1);
  CHECK(one.leaf(0).path() == "fc.weights");
}

TEST_CASE("coreml: values by hand") {
  const std::string two = u32(0x3f800000) + u32(0x40000000);
  const Snapshot all = good(opened(
      model_with(constant("floats", tensor_type(11, {2}) + immediate(bytes(1, bytes(1, two)))) +
                 constant("ints",
                          tensor_type(23, {2}) + immediate(bytes(2, bytes(1, varint(5) + varint(~std::uint64_t{0}))))) +
                 constant("bools", tensor_type(1, {}) + immediate(bytes(3, bytes(1, varint(1))))) +
                 constant("longs", tensor_type(24, {1}) + immediate(bytes(5, bytes(1, varint(1ULL << 40))))) +
                 constant("halves", tensor_type(10, {2}) + immediate(bytes(7, bytes(1, "abcd")))) +
                 constant("text", tensor_type(2, {}) + immediate(bytes(4, bytes(1, "valid")))) +
                 constant("empty", tensor_type(11, {0}) + immediate(bytes(1, ""))) +
                 constant("twice", tensor_type(3, {})) + constant("twice", tensor_type(11, {1}) + in_blob(64)) +
                 constant("short", tensor_type(11, {2}) + in_blob(64)) +
                 constant("three", tensor_type(39, {2}) + in_blob(64)) +
                 constant("other", tensor_type(11, {1}) + in_blob(64, "/etc/passwd")) +
                 constant("cast", tensor_type(11, {1}) + in_blob(64), "constexpr_cast", "source_val") +
                 constant("unknown", bytes(2, bytes(1, number(1, 11) + bytes(3, bytes(2, "")))) + in_blob(64))),
      weights_of(2)));
  CHECK(floats_of(all, "floats") == std::vector<float>{1, 2});
  CHECK(good(content(*all.find("ints"))) == in_file_order(u32(5) + u32(~0U), DType::i32));
  CHECK(good(content(*all.find("bools"))) == "\1");
  CHECK(good(content(*all.find("longs"))) == in_file_order(u64(1ULL << 40), DType::i64));
  CHECK(all.find("halves")->dtype() == DType::f16);
  CHECK_FALSE(all.find("text"));
  CHECK(all.find("empty")->byte_size() == 0);
  CHECK(good(content(*all.find("empty"))).empty());
  CHECK(unreadable_reason(*all.find("twice")) == "elements of the type number 3");
  CHECK(good(content(*all.find("twice#2"))) == in_file_order("abcd", DType::f32));
  CHECK(unreadable_reason(*all.find("short")) == "4 bytes for a tensor of 8");
  CHECK(unreadable_reason(*all.find("three")) == "elements of the type u3");
  CHECK(unreadable_reason(*all.find("other")) == "elements in a file with another kind of path");
  REQUIRE(all.find("cast"));
  CHECK(all.find("cast")->dtype() == DType::f32);
  CHECK(unreadable_reason(*all.find("unknown")) == "a tensor of unknown shape");
  // Several functions.
  const std::string one = constant("w", tensor_type(11, {1}) + in_blob(64));
  const Snapshot functions = good(opened(model_of(function("a", one) + function("b", one)), weights_of(2)));
  CHECK(functions.find("a.w"));
  CHECK(functions.find("b.w"));
  // Blobs alone.
  CHECK(good(CoremlRecorder<>().open(bytes_of(weights_of(8, 4, 128, 4)))).leaf(0).size() == 7);
  CHECK(unreadable_reason(good(CoremlRecorder<>().open(bytes_of(weights_of(9)))).leaf(0)) == "elements of the type u1");
  CHECK(unreadable_reason(good(CoremlRecorder<>().open(bytes_of(weights_of(99)))).leaf(0)) ==
        "elements of the type number 99");
}

TEST_CASE("coreml: models that are refused") {
  const auto with = [](std::uint64_t offset, const std::string& weights) {
    return code_of(opened(model_with(constant("w", tensor_type(11, {1}) + in_blob(offset))), weights));
  };
  CHECK(with(64, weights_of(2)) == Errc::none);
  CHECK(with(0, weights_of(2)) == Errc::malformed);
  CHECK(with(65, weights_of(2)) == Errc::malformed);
  CHECK(with(128, weights_of(2)) == Errc::malformed);
  CHECK(with(~std::uint64_t{0} - 63, weights_of(2)) == Errc::malformed);
  CHECK(with(64, weights_of(2, 5)) == Errc::malformed);
  CHECK(with(64, weights_of(2, 4, ~std::uint64_t{0})) == Errc::malformed);
  CHECK(with(64, weights_of(2, ~std::uint64_t{0}, 128)) == Errc::malformed);
  CHECK(code_of(opened(model_with(constant("w", tensor_type(11, {1}) + in_blob(64, "@model_path/../../x"))), "")) ==
        Errc::invalid_argument);
  CHECK(code_of(opened(model_with(constant("w", tensor_type(11, {1}) + in_blob(64, "@model_path/none"))), "")) ==
        Errc::not_found);
  CHECK(code_of(opened(number(1, 9), "")) == Errc::malformed);
  std::string described = number(1, 9) + bytes(2, bytes(1, bytes(1, "x")));
  CHECK(code_of(stele::open(bytes_of(described))) == Errc::malformed);
  described.pop_back();
  CHECK(code_of(stele::open(bytes_of(described))) == Errc::bad_magic);
  CHECK(code_of(opened(number(1, 9) + bytes(200, ""), "")) == Errc::unsupported);
  CHECK(code_of(opened(number(1, 9) + bytes(302, ""), "")) == Errc::unsupported);
  std::string deep;
  for (int i = 0; i < 40; ++i) deep = bytes(3, bytes(1, "cond") + bytes(4, deep));
  CHECK(code_of(opened(model_with(deep), "")) == Errc::limit);
  const CoremlRecorder<> recorder;
  CHECK(code_of(recorder.open(bytes_of(weights_of(2, 4, 64)))) == Errc::malformed);
  std::string many = weights_of(2);
  many[3] = '\x7f';
  CHECK(code_of(recorder.open(bytes_of(many))) == Errc::malformed);
}

TEST_CASE("coreml: damaged files are errors, or open") {
  const std::string package = golden("shift.mlpackage") + inside;
  const std::string model = read_text(package + "model.mlmodel"), weights = read_text(package + "weights/weight.bin");
  const auto check = [&](const std::string& of, const std::string& blobs) {
    const auto result = opened(of, blobs);
    if (!result) {
      CHECK(result.error().code() != Errc::out_of_memory);
      return;
    }
    for (std::size_t i = 0; i < result->leaf_count(); ++i) static_cast<void>(content(result->leaf(i)));
  };
  CHECK(opened(model, weights));
  for (std::size_t n = 0; n < model.size(); ++n) {
    std::string damaged = model;
    damaged[n] = static_cast<char>(damaged[n] ^ (n % 2 == 0 ? 0x81 : 0x04));
    check(damaged, weights);
    if (n % 3 == 0) check(model.substr(0, n), weights);
  }
  for (std::size_t n = 0; n < 256; ++n) {
    std::string damaged = weights;
    damaged[n] = static_cast<char>(damaged[n] ^ 0x81);
    check(model, damaged);
    static_cast<void>(CoremlRecorder<>().open(bytes_of(damaged)));
  }
  for (std::size_t n = 0; n < weights.size(); n += 16) {
    check(model, weights.substr(0, n));
    static_cast<void>(CoremlRecorder<>().open(bytes_of(weights.substr(0, n))));
  }
  const std::string network = read_text(golden("network16.mlmodel"));
  for (std::size_t n = 0; n < network.size(); n += 5) {
    std::string damaged = network;
    damaged[n] = static_cast<char>(damaged[n] ^ 0x81);
    check(damaged, "");
    check(network.substr(0, n), "");
  }
}

}  // namespace coreml_test
