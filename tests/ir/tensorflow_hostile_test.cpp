// Import of TensorFlow's graphs that are damaged or made to do harm: each gives an error, in bounded memory and time.
#include <stele/export.hpp>
#include <stele/import.hpp>
#include <stele/sink.hpp>

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "support/child.hpp"
#include "support/models.hpp"
#include "support/sanitizers.hpp"
#include "support/tensorflow_bytes.hpp"

namespace tensorflow_hostile_test {

using namespace stele_test;
using namespace stele_test::tensorflow;
using stele::Checkpoint;
using stele::Errc;
using stele::Error;

namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// Returns the code of the import's error, in a process that has `most` more bytes of address space than now.
std::string code_within(std::uint64_t most, const std::string& file, const stele::ImportOptions& options = {}) {
  return in_child([&]() -> std::string {
    if (!sanitizers) {
      const std::uint64_t all = address_space() + most;
      const rlimit limit{all, all};
      if (::setrlimit(RLIMIT_AS, &limit) != 0) return "no limit";
    }
    const auto result = import_of(file, options);
    return result ? "none" : std::string(stele::name(result.error().code()));
  });
}
constexpr std::uint64_t mebibyte = 1 << 20;

/// Imports what may be damaged. An error is one of the input.
bool survives(const std::string& file) {
  const auto result = import_of(file);
  if (!result) {
    const Errc code = result.error().code();
    CHECK_MESSAGE((code != Errc::user_exception && code != Errc::out_of_memory), result.error().to_string());
    CHECK_FALSE(result.error().message().empty());
    return false;
  }
  CHECK(result->graph->order().has_value());
  return true;
}

/// A graph with a bit of everything.
const std::string& small_graph() {
  static const std::string graph =
      placeholder("x", {-1, 4}) + constant("w", tensor(f32, {4, 2}, bytes(5, fixed32(1.5F) + fixed32(2.0F)))) +
      node("m", "MatMul", {"x", "w"}, flag("transpose_b", false) + type("T", f32)) +
      node("shape", "Shape", {"m"}, type("out_type", i64)) + constant("axis", scalar(-1)) +
      node("s", "Split", {"axis", "m"}, integer("num_split", 2)) + call("c", "f", {"s:1"}) +
      node("y", "ConcatV2", {"s", "c", "axis"}, integer("N", 2) + type("Tidx", i32)) +
      node("r", "Reshape", {"y", "shape", "^m"}) +
      function("f", {"i"}, {{"o", "r:activations:0"}}, inner("r", "LeakyRelu", {"i"}, real("alpha", 0.5F)));
  return graph;
}
const std::string& small_saved_model() {
  static const std::string model =
      saved_model(meta_graph(small_graph(), signature("serving_default", {{"x", "x:0"}}, {{"o", "r:0"}})));
  return model;
}

std::string number_of(std::size_t i) { return std::to_string(i); }

/// A chain of n nodes, the last first.
std::string chain(std::size_t n) {
  std::string file;
  for (std::size_t i = n; i > 0; --i) file += node("n" + number_of(i), "Relu", {i == 1 ? "x" : "n" + number_of(i - 1)});
  return file + placeholder("x");
}
double seconds(const std::function<void()>& f) {
  const std::clock_t begin = std::clock();
  f();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

}  // namespace

TEST_CASE("import: TensorFlow's graphs that are cut off anywhere") {
  for (const std::string* file : {&small_graph(), &small_saved_model()}) {
    REQUIRE(survives(*file));
    std::size_t good_ones = 0;
    for (std::size_t size = 0; size < file->size(); ++size) good_ones += survives(file->substr(0, size)) ? 1 : 0;
    CHECK(good_ones < 20);  // those that end with a node; a function's nodes are read at the end
  }
}

TEST_CASE("import: TensorFlow's graphs with bits that are wrong") {
  std::mt19937 random(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same each time
  for (const std::string* file : {&small_graph(), &small_saved_model()}) {
    for (std::size_t bit = 0; bit < 8 * file->size(); ++bit) {
      std::string damaged = *file;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
      survives(damaged);
    }
    for (int i = 0; i < 3000; ++i) {
      std::string damaged = *file;
      for (auto k = random() % 6 + 1; k > 0; --k) damaged[random() % damaged.size()] = static_cast<char>(random());
      survives(damaged);
    }
  }
}

TEST_CASE("import: cycles in TensorFlow's graphs") {
  const std::string x = placeholder("x");
  const auto outputs = stele::ImportOptions{.outputs = {"y"}};
  const Error self = bad(import_of(x + node("y", "AddV2", {"x", "y"}), outputs));
  CHECK(self.code() == Errc::malformed);
  CHECK(self.path() == "y (AddV2)");
  CHECK(bad(import_of(x + node("y", "AddV2", {"x", "z"}) + node("z", "Relu", {"y"}), outputs)).code() ==
        Errc::malformed);
  CHECK(bad(import_of(node("y", "Identity", {"z"}) + node("z", "Identity", {"y"}), outputs)).code() == Errc::malformed);
  const std::string body = inner("r", "Relu", {"s:y:0"}) + inner("s", "Tanh", {"r:activations:0"});
  const Error inside = bad(import_of(x + call("y", "f", {"x"}) + function("f", {"i"}, {{"o", "s:y:0"}}, body)));
  CHECK(inside.code() == Errc::malformed);
  CHECK(contains(inside.path(), "y/"));
}

TEST_CASE("import: TensorFlow's functions that call themselves or each other without end") {
  const std::string x = placeholder("x");
  const auto calls = [](const std::string& name, const std::string& callee) {
    return function(name, {"i"}, {{"o", "c:output:0"}}, inner_call("c", callee, {"i"}));
  };
  const Error self = bad(import_of(x + call("y", "f", {"x"}) + calls("f", "f")));
  CHECK(self.code() == Errc::limit);
  CHECK(self.found() == "f");
  CHECK(bad(import_of(x + call("y", "f", {"x"}) + calls("f", "g") + calls("g", "f"))).code() == Errc::limit);
  // Of which each calls the next twice.
  std::string tree = x + call("y", "f0", {"x"});
  for (int i = 0; i < 40; ++i) {
    const std::string next = "f" + number_of(static_cast<std::size_t>(i) + 1);
    tree += function("f" + number_of(static_cast<std::size_t>(i)), {"i"}, {{"o", "d:output:0"}},
                     inner_call("c", next, {"i"}) + inner_call("d", next, {"c:output:0"}));
  }
  CHECK(code_within(256 * mebibyte, tree) == "limit");
  // Few levels with many calls each, and none that does anything.
  std::string wide = x + call("y", "g0", {"x"});
  for (std::size_t level = 0; level < 20; ++level) {
    std::string body;
    for (std::size_t i = 0; i < 50; ++i)
      body += inner_call("c" + number_of(i), "g" + number_of(level + 1),
                         {i == 0 ? "i" : "c" + number_of(i - 1) + ":output:0"});
    wide += function("g" + number_of(level), {"i"}, {{"o", "c49:output:0"}}, body);
  }
  wide += function("g20", {"i"}, {{"o", "i"}}, "");
  CHECK(code_within(256 * mebibyte, wide) == "limit");
}

TEST_CASE("import: names in TensorFlow's graphs that do not exist, or twice") {
  const std::string x = placeholder("x");
  const Error missing = bad(import_of(x + node("y", "Relu", {"nothing:1"})));
  CHECK(missing.code() == Errc::malformed);
  CHECK(missing.path() == "y (Relu)");
  CHECK(missing.found() == "nothing");
  CHECK(bad(import_of(x + node("y", "Relu", {""}))).code() == Errc::malformed);
  CHECK(bad(import_of(x + node("y", "Relu", {":"}))).code() == Errc::malformed);
  CHECK(bad(import_of(x + node("y", "Relu", {"x:"}))).code() != Errc::none);
  CHECK(bad(import_of(x + node("y", "Relu", {"x:-1"}))).code() != Errc::none);
  const Error twice = bad(import_of(x + node("y", "Relu", {"x"}) + node("y", "Tanh", {"x"})));
  CHECK(twice.code() == Errc::duplicate);
  CHECK(twice.path() == "y");
  CHECK(bad(import_of(x + node("", "Relu", {"x"}), {.outputs = {"y"}})).code() == Errc::missing);
}

TEST_CASE("import: numbers in TensorFlow's graphs that are too large") {
  const std::string x = placeholder("x");
  const auto reads = [&](const std::string& tensor_name) {
    return import_of(x + node("s", "Relu", {"x"}) + node("y", "Relu", {tensor_name}));
  };
  CHECK(bad(reads("s:4294967295")).code() == Errc::limit);
  CHECK(bad(reads("s:18446744073709551615")).code() == Errc::limit);
  CHECK(bad(reads("s:18446744073709551616")).code() == Errc::malformed);
  CHECK(bad(reads("x:4294967295")).code() == Errc::malformed);
  std::string many = x;
  for (std::size_t i = 0; i < 100; ++i) {
    many += node("s" + number_of(i), "Relu", {"x"}) + node("y" + number_of(i), "Relu", {"s" + number_of(i) + ":65535"});
  }
  CHECK(code_within(256 * mebibyte, many) == "limit");

  constexpr std::int64_t huge = std::int64_t{1} << 62;
  survives(placeholder("x", {huge, huge}) + node("y", "Relu", {"x"}));
  survives(placeholder("x", {huge, huge, huge}) + node("s", "Shape", {"x"}) + node("p", "Prod", {"s", "a"}) +
           constant("a", tensor(Ints{0})) + node("t", "Size", {"x"}) + node("y", "AddV2", {"p", "t"}));
  survives(placeholder("x", {huge, 4}) + placeholder("z", {huge, 4}) + constant("a", scalar(0)) +
           node("y", "ConcatV2", {"x", "z", "a"}, integer("N", 2)));
  survives(x + constant("n", scalar(huge, i64)) + constant("v", scalar(1)) + node("y", "Fill", {"n", "v"}));
  survives(x + constant("n", tensor(Ints{huge, huge}, i64)) + node("y", "Reshape", {"x", "n"}));
  survives(x + constant("n", tensor(Ints{huge}, i64)) + node("y", "Tile", {"x", "n"}));
  survives(x + constant("a", scalar(huge, i64)) + node("y", "ExpandDims", {"x", "a"}));
  survives(constant("a", scalar(0)) + constant("b", scalar(2147483647)) + constant("c", scalar(1)) +
           node("y", "Range", {"a", "b", "c"}));
  survives(x + constant("a", scalar(0)) + node("y", "Split", {"a", "x"}, integer("num_split", huge)));
  survives(x + node("y", "Unpack", {"x"}, integer("num", huge)));
  survives(x + node("y", "Pack", {"x"}, integer("N", huge)));
  // Rank beyond DL4J's.
  CHECK_FALSE(survives(placeholder("x", Ints(33, 1)) + node("y", "Relu", {"x"})));
  CHECK_FALSE(survives(placeholder("x", Ints(100000, 1)) + node("y", "Relu", {"x"})));
}

TEST_CASE("import: a constant of TensorFlow's graph that stands for more elements than there is memory") {
  const std::string huge = tensor(i8, {std::int64_t{1} << 40}, bytes(7, varint(7)));
  const std::string file = placeholder("x", {2}, i8) + constant("c", huge) + node("y", "AddV2", {"x", "c"});
  CHECK(code_within(256 * mebibyte, file) != "out_of_memory");
  const Checkpoint model = good(import_of(constant("c", huge), {.outputs = {"c"}}));
  std::byte last{};
  good(model.parameters.find("c")->read((std::uint64_t{1} << 40) - 1, {&last, 1}));
  CHECK(last == std::byte{7});
  // Neither a chain of shapes nor an export reads all of it.
  CHECK(code_within(256 * mebibyte, constant("c", huge) + node("y", "Cast", {"c"}, type("DstT", i32))) == "none");
}

TEST_CASE("import: lengths in TensorFlow's graphs that lie") {
  CHECK_FALSE(survives(""));
  CHECK_FALSE(survives("x"));
  for (const std::uint64_t length : {std::uint64_t{1} << 20, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    CHECK_FALSE(survives(varint(1 << 3 | 2) + varint(length)));
    CHECK_FALSE(survives(varint(1 << 3 | 2) + varint(length) + small_graph()));
    CHECK_FALSE(survives(placeholder("x") + bytes(1, bytes(1, "y") + varint(2 << 3 | 2) + varint(length))));
    CHECK_FALSE(survives(number(1, 1) + varint(2 << 3 | 2) + varint(length) + small_graph()));
    CHECK_FALSE(survives(constant("c", number(1, f32) + varint(4 << 3 | 2) + varint(length))));
  }
  CHECK_FALSE(survives(std::string(20, '\xff')));
  CHECK_FALSE(survives(number(1, 5)));
  CHECK_FALSE(survives(bytes(1, "") + bytes(1, "")));  // two nodes without a name
  // Numbers in the place of messages.
  for (const unsigned field : {1U, 2U}) CHECK_FALSE(survives(placeholder("x") + number(field, 1)));
  for (const unsigned field : {1U, 2U, 3U, 5U}) {
    survives(placeholder("x") + bytes(1, bytes(1, "y") + bytes(2, "Relu") + number(field, 1)));
  }
}

TEST_CASE("import: TensorFlow's graphs of many nodes in linear time") {
  // A chain is deep: no node's inputs are on the machine's stack.
  const auto time_of = [](const std::string& file, std::size_t operations_of) {
    return seconds([&] { CHECK(good(import_of(file)).graph->operations.size() == operations_of); });
  };
  constexpr std::size_t most = sanitizers ? 10000 : 100000;
  const std::string aliases = [] {
    std::string file = placeholder("x");
    for (std::size_t i = 0; i < most; ++i) {
      file += node("n" + number_of(i), "Identity", {i == 0 ? "x" : "n" + number_of(i - 1)});
    }
    return file + node("y", "Relu", {"n" + number_of(most - 1)});
  }();
  time_of(aliases, 1);
  const double large = time_of(chain(most), most);
  MESSAGE("a chain: " << large * 1e6 / static_cast<double>(most) << " us a node");
  CHECK(code_within(512 * mebibyte, chain(most)) == "none");
}

TEST_CASE("import: many functions, inputs and calls in TensorFlow's graphs") {
  std::string functions, calls, used = placeholder("x");
  for (std::size_t i = 0; i < 100000; ++i) functions += function("f" + number_of(i), {"i"}, {{"o", "i"}}, "");
  const double unused = seconds([&] { good(import_of(used + node("y", "Relu", {"x"}) + functions)); });
  MESSAGE("100000 functions: " << unused << " s");
  // A function of many inputs, all of which its nodes read.
  constexpr std::size_t n = sanitizers ? 2000 : 20000;
  Names inputs, arguments(n, "x");
  std::string body;
  for (std::size_t i = 0; i < n; ++i) {
    inputs.push_back("i" + number_of(i));
    body += inner("r" + number_of(i), "AddV2", {i == 0 ? "i0" : "r" + number_of(i - 1) + ":z:0", inputs.back()});
  }
  const std::string wide =
      used + call("y", "f", arguments) + function("f", inputs, {{"o", "r" + number_of(n - 1) + ":z:0"}}, body);
  const double time = seconds([&] { CHECK(good(import_of(wide)).graph->operations.size() == n + 1); });
  MESSAGE("a function of many inputs: " << time << " s");
  // A node with many inputs, all of one node; one with many attributes.
  survives(used + node("y", "AddN", Names(100000, "x"), integer("N", 100000)));
  std::string attributes;
  for (std::size_t i = 0; i < 100000; ++i) attributes += integer("a" + number_of(i), 1);
  CHECK_FALSE(survives(used + node("y", "Relu", {"x"}, attributes)));
  survives(used + node("y", "Foo", {"x"}, attributes));
}

TEST_CASE("import: errors about many of TensorFlow's nodes are short") {
  std::string file = placeholder("x");
  for (std::size_t i = 0; i < 10000; ++i) file += node("n" + number_of(i) + std::string(100, 'n'), "Foo", {"x"});
  const Error error = bad(import_of(file));
  CHECK(error.code() == Errc::unsupported);
  CHECK(error.to_string().size() < 100000);
}

}  // namespace tensorflow_hostile_test
