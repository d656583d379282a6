// Import of TensorFlow's graphs: tensors that are in the graph.
#include <stele/import.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/tensorflow_bytes.hpp"

namespace tensorflow_constants_test {

using namespace stele_test;
using namespace stele_test::tensorflow;
using stele::Checkpoint;
using stele::DType;
using stele::Errc;
using stele::Error;

namespace {

struct Leaf {
  DType dtype = DType::none;
  std::vector<stele::Extent> shape;
  std::string bytes;
};

/// Imports a graph of one constant, and returns it.
Leaf read(const std::string& tensor_bytes) {
  const Checkpoint model = good(import_of(constant("c", tensor_bytes), {.outputs = {"c"}}));
  const auto leaf = model.parameters.find("c");
  REQUIRE(leaf.has_value());
  Leaf read{leaf->dtype(), {leaf->shape().begin(), leaf->shape().end()}, {}};
  read.bytes.resize(static_cast<std::size_t>(leaf->byte_size()));
  good(leaf->read(0, std::as_writable_bytes(std::span(read.bytes))));
  return read;
}
Errc code_of_constant(const std::string& tensor_bytes) {
  const auto result = import_of(constant("c", tensor_bytes), {.outputs = {"c"}});
  return result ? Errc::none : result.error().code();
}

/// A field of which each element is written on its own.
std::string unpacked(unsigned field, const std::vector<std::uint64_t>& values) {
  std::string all;
  for (const std::uint64_t value : values) all += number(field, value);
  return all;
}
std::string packed(unsigned field, const std::vector<std::uint64_t>& values) {
  std::string all;
  for (const std::uint64_t value : values) all += varint(value);
  return bytes(field, all);
}
std::string little(const std::vector<std::uint64_t>& values, int size) {
  std::string all;
  for (const std::uint64_t value : values) {
    for (int i = 0; i < size; ++i) all += static_cast<char>(value >> 8 * i);
  }
  return all;
}
std::string floats(const std::vector<float>& values) {
  std::string all;
  for (const float value : values) all += fixed32(value);
  return all;
}

}  // namespace

TEST_CASE("import: constants of TensorFlow as bytes") {
  const Leaf floats_of = read(tensor(std::vector<float>{1.5F, -2}));
  CHECK(floats_of.dtype == DType::f32);
  CHECK(floats_of.shape == std::vector<stele::Extent>{2});
  CHECK(floats_of.bytes == floats({1.5F, -2}));
  struct Row {
    std::uint64_t code;
    DType dtype;
    int size;
  };
  for (const Row& row : std::vector<Row>{{f64, DType::f64, 8},
                                         {i32, DType::i32, 4},
                                         {u8, DType::u8, 1},
                                         {i16, DType::i16, 2},
                                         {i8, DType::i8, 1},
                                         {i64, DType::i64, 8},
                                         {boolean, DType::boolean, 1},
                                         {bf16, DType::bf16, 2},
                                         {u16, DType::u16, 2},
                                         {f16, DType::f16, 2},
                                         {u32, DType::u32, 4},
                                         {u64, DType::u64, 8}}) {
    CAPTURE(row.code);
    const Leaf leaf = read(tensor(row.code, {2, 1}, content(little({1, 0}, row.size))));
    CHECK(leaf.dtype == row.dtype);
    CHECK(leaf.shape == std::vector<stele::Extent>{2, 1});
    CHECK(leaf.bytes == little({1, 0}, row.size));
  }
  CHECK(read(tensor(f32, {2, 0}, content(""))).bytes.empty());
  CHECK(read(tensor(f32, {}, content(floats({3})))).shape.empty());
}

TEST_CASE("import: constants of TensorFlow as lists") {
  const auto is = [](const std::string& tensor_bytes, const std::string& expected) {
    CHECK(read(tensor_bytes).bytes == expected);
  };
  const std::string three = floats({1, 2, 3});
  is(tensor(f32, {3}, bytes(5, three)), three);
  std::string one_by_one;
  for (const float value : {1.0F, 2.0F, 3.0F}) one_by_one += varint(5 << 3 | 5) + fixed32(value);
  is(tensor(f32, {3}, one_by_one), three);
  is(tensor(f32, {3}, bytes(5, floats({1})) + bytes(5, floats({2, 3}))), three);
  is(tensor(f32, {3}, bytes(5, floats({1})) + varint(5 << 3 | 5) + fixed32(2.0F)), floats({1, 2, 2}));
  is(tensor(f64, {2}, bytes(6, fixed64(7) + fixed64(8))), little({7, 8}, 8));
  is(tensor(f64, {2}, varint(6 << 3 | 1) + fixed64(7) + varint(6 << 3 | 1) + fixed64(8)), little({7, 8}, 8));
  const std::uint64_t minus = ~std::uint64_t{0};
  struct Row {
    std::uint64_t code;
    int size;
  };
  for (const Row& row : {Row{i32, 4}, Row{i16, 2}, Row{i8, 1}, Row{u8, 1}, Row{u16, 2}}) {
    CAPTURE(row.code);
    is(tensor(row.code, {3}, packed(7, {1, minus, 2})), little({1, minus, 2}, row.size));
    is(tensor(row.code, {3}, unpacked(7, {1, minus, 2})), little({1, minus, 2}, row.size));
  }
  is(tensor(i64, {2}, packed(10, {minus, std::uint64_t{1} << 40})), little({minus, std::uint64_t{1} << 40}, 8));
  is(tensor(i64, {2}, unpacked(10, {minus, 5})), little({minus, 5}, 8));
  is(tensor(boolean, {3}, packed(11, {1, 0, 1})), little({1, 0, 1}, 1));
  is(tensor(boolean, {3}, unpacked(11, {1, 0, 1})), little({1, 0, 1}, 1));
  is(tensor(boolean, {2}, packed(11, {2, 256})), little({1, 1}, 1));  // of protobuf, every number but 0 is true
  is(tensor(f16, {2}, packed(13, {0x3c00, 0xc000})), little({0x3c00, 0xc000}, 2));
  is(tensor(bf16, {2}, unpacked(13, {0x3f80, 0x4000})), little({0x3f80, 0x4000}, 2));
  is(tensor(u32, {2}, packed(16, {1, 0xffffffff})), little({1, 0xffffffff}, 4));
  is(tensor(u64, {2}, packed(17, {1, minus})), little({1, minus}, 8));
}

TEST_CASE("import: constants of TensorFlow with fewer values than elements") {
  CHECK(read(tensor(f32, {4}, bytes(5, floats({1, 2})))).bytes == floats({1, 2, 2, 2}));
  CHECK(read(tensor(i32, {2, 2}, packed(7, {7}))).bytes == little({7, 7, 7, 7}, 4));
  CHECK(read(tensor(f64, {2}, "")).bytes == little({0, 0}, 8));
  CHECK(read(tensor(boolean, {3}, packed(11, {1}))).bytes == little({1, 1, 1}, 1));
  CHECK(read(tensor(f32, {0}, "")).bytes.empty());
  // Parts may be read from any element on.
  const Checkpoint model =
      good(import_of(constant("c", tensor(i32, {5}, packed(7, {0x01020304, 0x05060708}))), {.outputs = {"c"}}));
  const std::string whole = little({0x01020304, 0x05060708, 0x05060708, 0x05060708, 0x05060708}, 4);
  for (std::size_t begin = 0; begin < whole.size(); begin += 4) {
    for (std::size_t size = 4; begin + size <= whole.size(); size += 4) {
      std::string part(size, '\0');
      good(model.parameters.find("c")->read(begin, std::as_writable_bytes(std::span(part))));
      CHECK(part == whole.substr(begin, size));
    }
  }
}

TEST_CASE("import: constants of TensorFlow that are wrong") {
  const std::string two = floats({1, 2});
  CHECK(code_of_constant(tensor(f32, {3}, content(two))) == Errc::malformed);
  CHECK(code_of_constant(tensor(f32, {1}, content(two))) == Errc::malformed);
  CHECK(code_of_constant(tensor(f32, {1}, bytes(5, two))) == Errc::malformed);      // more values than elements
  CHECK(code_of_constant(tensor(f32, {2}, bytes(5, "12345"))) == Errc::malformed);  // half a float
  CHECK(code_of_constant(tensor(f32, {2}, packed(7, {1}))) == Errc::malformed);     // values of integers
  CHECK(code_of_constant(tensor(i64, {2}, packed(7, {1}))) == Errc::malformed);
  CHECK(code_of_constant(tensor(f32, {-1}, bytes(5, two))) == Errc::malformed);
  CHECK(code_of_constant(tensor(f32, {std::int64_t{1} << 62, 4}, bytes(5, two))) == Errc::malformed);
  CHECK(code_of_constant(tensor(f32, {std::int64_t{1} << 62}, "")) == Errc::malformed);
  CHECK(code_of_constant(number(1, f32) + number(2, 1)) == Errc::malformed);  // a shape that is a number
  CHECK(code_of_constant(tensor(f32, {2}, varint(5 << 3 | 2) + varint(1000) + two)) == Errc::malformed);
  for (const std::uint64_t code :
       {std::uint64_t{string}, std::uint64_t{resource}, std::uint64_t{0}, std::uint64_t{999}, ~std::uint64_t{0}}) {
    CAPTURE(code);
    CHECK(code_of_constant(tensor(code, {1}, "")) == Errc::unsupported);
  }
  // Without a value; with one of another kind.
  CHECK(bad(import_of(node("c", "Const", {}), {.outputs = {"c"}})).code() == Errc::malformed);
  const Error other = bad(import_of(node("c", "Const", {}, integer("value", 1)), {.outputs = {"c"}}));
  CHECK(other.code() == Errc::malformed);
  CHECK(other.path() == "c (Const)");
  // A tensor that no output needs is not read.
  good(import_of(placeholder("x") + constant("s", strings({"a"})) + node("y", "Relu", {"x"})));
}

TEST_CASE("import: a constant of TensorFlow keeps the file") {
  Checkpoint model;
  {
    const std::string file = placeholder("x") + constant("c", tensor(std::vector<float>{1.5F, 2})) +
                             constant("d", tensor(f32, {2}, bytes(5, floats({4})))) + node("y", "AddV2", {"x", "c"}) +
                             node("z", "AddV2", {"y", "d"});
    model = good(import_of(file));
  }
  std::string read(8, '\0');
  good(model.parameters.find("c")->read(0, std::as_writable_bytes(std::span(read))));
  CHECK(read == floats({1.5F, 2}));
  good(model.parameters.find("d")->read(0, std::as_writable_bytes(std::span(read))));
  CHECK(read == floats({4, 4}));
}

}  // namespace tensorflow_constants_test
