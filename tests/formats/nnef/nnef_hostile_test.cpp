// NNEF files that are damaged, that lie, that are made to take long or much.
#include <stele/bundle.hpp>
#include <stele/recorders/nnef.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

std::string u32(std::uint32_t value) {
  std::string text;
  for (int k = 0; k < 4; ++k) text += static_cast<char>(value >> 8 * k & 0xff);
  return text;
}

struct File {
  std::uint32_t bits = 32;
  std::uint32_t code = 0;
  std::vector<std::uint32_t> extents{2};
  std::uint32_t length = 8;
  std::string data = std::string(8, '\0');
  std::string version = "\1\0"s;
  std::string parameters{};

  std::string make() const {
    std::string text = "\x4e\xef" + version + u32(length) + u32(static_cast<std::uint32_t>(extents.size()));
    for (const std::uint32_t e : extents) text += u32(e);
    text.resize(44);
    text += u32(bits) + u32(code) + parameters;
    text.resize(128);
    return text + data;
  }
};

const NnefRecorder<> tensors(NnefFormat({.container = NnefContainer::tensor}));
const NnefRecorder<> folders;

/// Opens a tensor file and reads all of it: the error, or what was read.
Result<std::string> read(const std::string& file) {
  STELE_TRY_ASSIGN(const Snapshot opened, tensors.open(bytes_of(file)));
  REQUIRE(opened.leaf_count() == 1);
  STELE_TRY_ASSIGN(std::string bytes, content(opened.leaf(0)));
  CHECK(bytes.size() == opened.leaf(0).byte_size());
  return bytes;
}
Result<std::string> read(const File& file) { return read(file.make()); }
DType dtype_of(const File& file) { return good(tensors.open(bytes_of(file.make()))).leaf(0).dtype(); }

void put(Bundle& bundle, const std::string& name, std::string_view text) {
  const auto sink = good(bundle.create(name));
  good(sink->write(bytes_of(text)));
  good(sink->commit());
}

using Files = std::map<std::string, std::string>;
Result<Snapshot> open_files(const Files& files) {
  const auto bundle = memory_bundle();
  for (const auto& [name, text] : files) put(*bundle, name, text);
  return folders.open(bundle_source(bundle));
}
/// A graph of these statements, beside w.dat and others of shape [2].
Result<Snapshot> open_graph(const std::string& statements, const std::string& quant = {}) {
  const std::string file = File{}.make();
  Files files{{"graph.nnef", "version 1.0;\ngraph g(x) -> (y) {\n" + statements + "\n}\n"},
              {"w.dat", file},
              {"W2.dat", file},
              {"below/w.dat", file}};
  if (!quant.empty()) files.emplace("graph.quant", quant);
  return open_files(files);
}
Result<Snapshot> open_quant(const std::string& quant) {
  return open_graph("q = variable<scalar>(shape = [2], label = 'w');", quant);
}
std::string variable(const std::string& label) { return "w = variable<scalar>(shape = [2], label = '" + label + "');"; }

template <class F>
double seconds(F f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("nnef: files that a reference reader ends by, or takes wrongly") {
  CHECK(dtype_of({.bits = 16, .length = 4, .data = "\0\x3c\0\xbc"s}) == DType::f16);
  CHECK(read(File{.bits = 16, .length = 4, .data = "\0\x3c\0\xbc"s}).has_value());
  const auto four = read(File{.bits = 4, .code = 4, .length = 1, .data = "\x7f"});
  REQUIRE(four);
  CHECK(*four == "\x07\xff");
  CHECK(code_of(read(File{.bits = 0, .extents = {65535, 65535, 4}, .length = 0, .data = ""})) == Errc::unsupported);
  CHECK(code_of(read(File{.bits = 0, .extents = {0}, .length = 0, .data = ""})) == Errc::unsupported);
  CHECK(code_of(read(File{.extents = {1U << 31, 1U << 31, 4}, .length = 0, .data = ""})) == Errc::malformed);
  CHECK(code_of(read(File{.extents = {1U << 31, 1U << 31}, .length = 0, .data = ""})) == Errc::malformed);
  CHECK(code_of(read(File{.bits = 1, .code = 5, .extents = {1U << 31, 1U << 31, 2}, .length = 0, .data = ""})) ==
        Errc::malformed);
  CHECK(code_of(read(File{.extents = {1U << 30, 1}, .length = 0, .data = ""})) == Errc::malformed);
  // Codes of the first years, by the letter.
  CHECK(dtype_of({.bits = 8, .code = 0x10, .length = 2, .data = "ab"}) == DType::u8);
  CHECK(dtype_of({.bits = 8, .code = 0x11, .length = 2, .data = "ab"}) == DType::u8);
  CHECK(dtype_of({.bits = 8, .code = 0x100, .length = 2, .data = "ab"}) == DType::i8);
  CHECK(dtype_of({.bits = 1, .code = 0x101, .length = 1, .data = "\x80"}) == DType::boolean);
  CHECK(dtype_of({.bits = 8, .code = 1, .length = 2, .data = "ab", .parameters = u32(1)}) == DType::i8);
  CHECK(dtype_of({.bits = 8, .code = 1, .length = 2, .data = "ab"}) == DType::u8);
  CHECK(dtype_of({.bits = 8, .code = 2, .length = 2, .data = "ab"}) == DType::u8);
  CHECK(dtype_of({.bits = 8, .code = 3, .length = 2, .data = "ab"}) == DType::i8);
  for (const std::uint32_t code : {6U, 7U, 0xfU, 0x12U, 0x102U, 0xffffU}) {
    CHECK(code_of(read(File{.bits = 8, .code = code, .length = 2, .data = "ab"})) == Errc::unsupported);
  }
  // Four bytes too many: of an old writer where they come first and are zero.
  CHECK(code_of(read(File{.data = std::string(8, 'x') + "\0\0\0\0"s})) == Errc::malformed);
  CHECK(good(read(File{.data = "\0\0\0\0abcdefgh"s})) == in_file_order("abcdefgh", DType::f32));
  CHECK(code_of(read(File{.data = "\0\0\1\0abcdefgh"s})) == Errc::malformed);
  CHECK(code_of(read(File{.data = std::string(9, '\0')})) == Errc::malformed);
  CHECK(code_of(read(File{.data = std::string(16, '\0')})) == Errc::malformed);
  CHECK(code_of(read(File{.data = std::string(7, '\0')})) == Errc::truncated);
  CHECK(code_of(read(File{.length = 0xffffffff})) == Errc::truncated);
  CHECK(code_of(read(File{.length = 4, .data = "abcd"})) == Errc::malformed);
  CHECK(good(read(File{.extents = {}, .length = 4, .data = "\0\0\0\0"s})).size() == 4);
  CHECK(good(read(File{.extents = {0}, .length = 0, .data = ""})).empty());
  // Elements that cannot be counted, though there are none.
  CHECK(code_of(read(File{.extents = {1U << 31, 0, 1U << 31, 1U << 31}, .length = 0, .data = ""})) == Errc::malformed);
  CHECK(dtype_of({.code = 0x54520000}) == DType::opaque);
  CHECK(code_of(read(File{.version = "\1\1"s})) == Errc::unsupported);
  CHECK(code_of(read(File{.version = "\2\0"s})) == Errc::unsupported);
  CHECK(code_of(read(File{.version = "\0\0"s})) == Errc::unsupported);
}

TEST_CASE("nnef: headers that lie") {
  for (const std::uint32_t bits : {65U, 128U, 0x80000000U, 0xffffffffU, 0U}) {
    for (const std::uint32_t code : {0U, 1U, 2U, 3U, 4U, 5U}) {
      CHECK(code_of(read(File{.bits = bits, .code = code})) == Errc::unsupported);
    }
  }
  for (const std::uint32_t bits : {1U, 4U, 8U, 24U, 63U}) {
    CHECK(code_of(read(File{.bits = bits, .code = 0, .length = (2 * bits + 7) / 8})) != Errc::none);
  }
  CHECK(code_of(read(File{.bits = 2, .code = 5, .length = 1, .data = "a"})) == Errc::unsupported);
  CHECK(code_of(read(File{.bits = 16, .code = 5, .length = 4, .data = "abcd"})) == Errc::unsupported);

  std::string nine = File{}.make();
  nine.replace(8, 4, u32(9));
  CHECK(code_of(read(nine)) == Errc::malformed);
  nine.replace(8, 4, u32(0xffffffff));
  CHECK(code_of(read(nine)) == Errc::malformed);
  for (std::size_t i = 1; i < 8; ++i) {
    std::string more = File{}.make();
    more.replace(12 + 4 * i, 4, u32(1));
    CHECK(code_of(read(more)) == Errc::malformed);
    CHECK(tensors.open(bytes_of(more)).error().offset() == 12 + 4 * i);
  }
  // All widths of integers: the length must fit.
  for (std::uint32_t bits = 1; bits <= 64; ++bits) {
    const std::uint32_t length = (3 * bits + 7) / 8;
    const auto with = [&](std::uint32_t n) {
      return code_of(read(File{
          .bits = bits, .code = bits % 2 != 0 ? 1U : 4U, .extents = {3}, .length = n, .data = std::string(n, 'x')}));
    };
    CHECK(with(length) == Errc::none);
    CHECK(with(length + 1) == Errc::malformed);
    CHECK(with(length - 1) == Errc::malformed);
  }
  CHECK(code_of(read("")) == Errc::bad_magic);
  CHECK(code_of(read("N")) == Errc::bad_magic);
  CHECK(code_of(read("\x4e\xee\1\0"s + std::string(200, '\0'))) == Errc::bad_magic);
}

TEST_CASE("nnef: items of a vendor with any extents") {
  File file{.bits = 0, .code = 0x10007, .extents = {1U << 31, 1U << 31, 3}, .length = 3, .data = "abc"};
  const std::string made = file.make();
  const Snapshot opened = good(tensors.open(bytes_of(made)));
  CHECK(good(content(opened.leaf(0))) == "abc");
  CHECK(text_of(good(saved(tensors, opened)).span()) == made);
  const auto binary = good(saved(BinaryRecorder<>(), opened));
  CHECK(good(content(good(BinaryRecorder<>().open(binary)).leaf(0))) == "abc");
  CHECK_FALSE(tensors.load<Tensor<std::uint8_t>>(bytes_of(file.make())).has_value());
  LoadOptions options;
  options.dequantize = true;
  CHECK(tensors.open(bytes_of(file.make()), options).has_value());
  // Those that no u64 counts are refused, as everywhere.
  file.extents[2] = 4;
  CHECK(code_of(read(file)) == Errc::malformed);
  file.extents[0] = 0;
  CHECK(good(read(file)) == "abc");
}

TEST_CASE("nnef: files of 2017") {
  const auto file = [](std::uint32_t header, const std::vector<std::uint32_t>& extents, int type, int bits,
                       const std::string& text, const std::string& data) {
    std::string made = "\x4e\xef\1\0"s + u32(header) + u32(static_cast<std::uint32_t>(extents.size()));
    for (const std::uint32_t e : extents) made += u32(e);
    made += static_cast<char>(type);
    made += static_cast<char>(bits);
    made += u32(static_cast<std::uint32_t>(text.size())).substr(0, 2);
    return made + text + data;
  };
  CHECK(good(read(file(20, {2}, 3, 8, "", "ab"))) == "ab");
  CHECK(good(read(file(16, {}, 2, 8, "", "a"))) == "a");
  CHECK(good(read(file(48, {1, 1, 1, 1, 1, 1, 1, 2}, 2, 8, "", "ab"))) == "ab");
  CHECK(good(read(file(20 + 6, {2}, 1, 8, "mine()", "ab"))) == "ab");
  // As long as a header and what its length says, by chance.
  for (const std::uint32_t header : {16U, 20U, 24U, 48U}) {
    std::vector<std::uint32_t> extents((header - 16) / 4, 1);
    if (extents.empty()) continue;
    for (const std::uint32_t n : {127U, 128U, 129U, 132U}) {
      extents.back() = n;
      const std::string data(n, '\0');
      CAPTURE(header);
      CAPTURE(n);
      CHECK(good(read(file(header, extents, 3, 8, "", data))) == data);
    }
  }
  for (const std::uint32_t header : {0U, 16U, 19U, 21U, 24U, 22U, 128U, 0xffffffffU}) {
    CHECK(code_of(read(file(header, {2}, 3, 8, "", "ab"))) != Errc::none);
  }
  CHECK_FALSE(read(file(20, {3}, 3, 8, "", "ab")));
  CHECK_FALSE(read(file(20, {2}, 4, 8, "", "ab")));
  CHECK_FALSE(read(file(20, {2}, 3, 0, "", "ab")));
  CHECK_FALSE(read(file(20, {2}, 3, 65, "", "ab")));
  CHECK_FALSE(read(file(20, {2}, 0, 8, "", "ab")));
  CHECK_FALSE(read(file(16 + 36, {1, 1, 1, 1, 1, 1, 1, 1, 2}, 3, 8, "", "ab")));
  CHECK_FALSE(read(file(28, {1U << 31, 1U << 31, 4}, 3, 8, "", "")));
  // Texts are as they are; what is no quantization stays a text.
  for (const std::string& text : {"("s, "linear_quantize("s, "\"'"s, std::string(65535, '('), "\0\1"s,
                                  "quantize_linear(min = -1.0, max = 1.0, bits = 8"s}) {
    CHECK(good(read(file(20 + static_cast<std::uint32_t>(text.size()), {2}, 1, 8, text, "ab"))) == "ab");
  }
}

TEST_CASE("nnef: every truncation and every flipped bit of tensor files") {
  const std::string files[] = {
      File{.data = "abcdefgh"}.make(),
      File{.bits = 3, .code = 2, .extents = {2, 3}, .length = 3, .data = "abc"}.make(),
      File{.bits = 1, .code = 5, .extents = {1, 2, 1, 1, 1, 1, 1, 5}, .length = 2, .data = "ab"}.make(),
      File{.code = 0x10000, .data = "abcdefgh"}.make(),
      read_text(test_data() + "/nnef/by_hand/provisional_quantized_4.dat"),
      read_text(test_data() + "/nnef/provisional/f64-2x1x2.dat"),
      read_text(test_data() + "/nnef/by_hand/four_bytes_more.dat"),
      read_text(test_data() + "/nnef/by_hand/logarithmic_0x11_8_signed.dat"),
  };
  LoadOptions dequantized;
  dequantized.dequantize = true;
  for (const std::string& file : files) {
    REQUIRE(read(file).has_value());
    for (std::size_t size = 0; size < file.size(); ++size) {
      if (size == file.size() - 4 && size == 152) continue;  // the four bytes that were too many
      if (read(file.substr(0, size))) FAIL_CHECK(size << " bytes of " << file.size() << " are enough");
    }
    std::string damaged = file;
    for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
      // What is read is never more than the file says: a byte is at most eight bools.
      if (const auto bytes = read(damaged)) CHECK(bytes->size() <= 8 * file.size());
      if (const auto opened = tensors.open(bytes_of(damaged), dequantized)) {
        static_cast<void>(content(opened->leaf(0)));
      }
      damaged[bit / 8] = file[bit / 8];
    }
  }
}

// ---- texts ----------------------------------------------------------------------------------------------------------

TEST_CASE("nnef: graphs that are cut or wrong") {
  CHECK(good(open_graph(variable("w"))).leaf_count() == 1);
  const std::string whole = "version 1.0; graph g(x) -> (w) { w = variable<scalar>(shape = [2], label = 'w'); }";
  std::size_t refused = 0;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto r = open_files({{"graph.nnef", whole.substr(0, size)}, {"w.dat", File{}.make()}});
    refused += !r;
  }
  CHECK(refused > 40);
  for (const char* const text : {"", "version", "version 1.0", "1.0;", "\xef\xbb\xbfversion 1.0;"}) {
    CAPTURE(text);
    const auto r = open_files({{"graph.nnef", text}});
    CHECK((!r || r->leaf_count() == 0));
  }
  CHECK(code_of(open_files({{"graph.nnef", ""}})) == Errc::malformed);
  CHECK(code_of(open_files({{"graph.nnef", "\xef\xbb\xbfversion 1.0;"}})) == Errc::malformed);
  CHECK(code_of(open_files({{"graph.nnef", "version one;"}})) == Errc::malformed);
  CHECK(code_of(open_files({{"graph.nnef", "version 2.0;"}})) == Errc::unsupported);
  for (const std::string& statement : {
           "w = variable<scalar>(shape = [2], label = 'w"s,
           "w = variable<scalar>(shape = [2], label = \"w');"s,
           "w = variable<scalar>(shape = [2, label = 'w');"s,
           "w = variable<scalar>(shape = [2], label = 'w'"s,
           "w = variable<scalar>(shape = [2], label = 'w',,);"s,
           "w = variable<scalar(shape = [2], label = 'w');"s,
           "w = variable([2], 'w');"s,
           "w = variable<scalar>(shape = [2], label = w);"s,
           "w = variable<scalar>(shape = [2], label = '');"s,
           "w = variable<scalar>(shape = [2], label = [['w']]);"s,
           "w = variable<scalar>(shape = [2]);"s,
           "w = variable<scalar>();"s,
           "w = variable<scalar>(shape = [1,1,1,1,1,1,1,1,2], label = 'w');"s,
           "t = 'never ends"s,
       }) {
    CAPTURE(statement);
    CHECK(code_of(open_graph(statement)) == Errc::malformed);
  }
  const auto r = open_graph("w = variable<scalar>(shape = [2]);");
  REQUIRE_FALSE(r);
  CHECK(r.error().file() == "graph.nnef");
}

TEST_CASE("nnef: shapes of the graph and of the files") {
  const auto shaped = [](const std::string& shape) {
    return code_of(open_graph("w = variable<scalar>(shape = " + shape + ", label = 'w');"));
  };
  CHECK(shaped("[2]") == Errc::none);
  CHECK(shaped("[ 2 ]") == Errc::none);
  CHECK(shaped("[2, 1]") == Errc::shape_mismatch);
  CHECK(shaped("[]") == Errc::shape_mismatch);
  CHECK(shaped("[3]") == Errc::shape_mismatch);
  CHECK(shaped("[18446744073709551615]") == Errc::shape_mismatch);
  // What is no list of numbers is an expression, which nobody computes.
  for (const char* const shape : {"[-2]", "[1 + 1]", "[99999999999999999999]", "[2.0]", "[2,]", "other", "[[2]]"}) {
    CAPTURE(shape);
    CHECK(shaped(shape) == Errc::none);
  }
  CHECK(code_of(open_graph(variable("w") + "v = variable(shape = [2, 1], label = 'w');")) == Errc::shape_mismatch);
  CHECK(good(open_graph(variable("w") + "v = variable(shape = [2], label = 'w');")).leaf_count() == 1);
}

TEST_CASE("nnef: labels that lead elsewhere") {
  const TempDir dir;
  const std::string folder = dir / "m.nnef";
  std::filesystem::create_directory(folder);
  write_text(dir / "secret.dat", File{}.make());
  write_text(folder + "/w.dat", File{}.make());
  for (const std::string& label :
       {"../secret"s, "/../secret"s, "."s, ".."s, "a/../../secret"s, "./w"s, "//w"s, "w/"s, "a//w"s, "..\\secret"s,
        "a\\w"s, "w\0x"s, dir / "secret", "/" + (dir / "secret"), "/"s}) {
    CAPTURE(label);
    write_text(folder + "/graph.nnef", "version 1.0; graph g(x) -> (w) { " + variable(label) + " }");
    const auto r = folders.open(folder);
    REQUIRE_FALSE(r);
    CHECK((code_of(r) == Errc::malformed || code_of(r) == Errc::not_found));
    if (label.find("../") != std::string::npos) CHECK(code_of(r) == Errc::malformed);
  }
  CHECK(good(open_graph(variable("/w"))).leaf(0).path() == "w");
  CHECK(code_of(open_graph(variable("no/such"))) == Errc::not_found);
  CHECK(open_graph(variable("no/such")).error().path() == "no.such");
  CHECK(code_of(open_graph(variable(std::string(100000, 'a')))) == Errc::not_found);
  std::string deep;
  for (int i = 0; i < 70; ++i) deep += "a/";
  CHECK_FALSE(open_graph(variable(deep + "w")));
  // Capitals alone.
  CHECK(code_of(open_graph(variable("W2") + variable("w2"))) == Errc::duplicate);
  CHECK(code_of(open_files({{"w.dat", File{}.make()}, {"W.dat", File{}.make()}})) == Errc::duplicate);
  CHECK(code_of(open_files({{"graph.nnef/x.dat", File{}.make()}})) != Errc::none);
}

TEST_CASE("nnef: a folder is taken by its graph, and by its files without one") {
  CHECK(good(open_files({{"w.dat", File{}.make()}, {"b/.dat", File{}.make()}, {".dat", ""}, {"x.dat.bak", "?"}}))
            .leaf_count() == 2);
  CHECK(code_of(open_files({{"w.dat", "?"}})) == Errc::bad_magic);
  CHECK(open_files({{"w.dat", "?"}}).error().path() == "w");
  CHECK(
      good(open_files({{"w.dat", "?"}, {"graph.nnef", "version 1.0; graph g(x) -> (x) { x = external(shape = []); }"}}))
          .leaf_count() == 0);
}

TEST_CASE("nnef: brackets without end") {
  constexpr std::size_t depth = 1'000'000;
  for (const char c : {'(', '[', '{', ')', ']', '}'}) {
    const std::string many(depth, c);
    CHECK(seconds([&] {
            static_cast<void>(open_graph(variable("w") + "y = f(" + many + ");"));
            static_cast<void>(open_graph("w = variable(shape = " + many + ", label = 'w');"));
            static_cast<void>(open_graph("w = variable(label = 'w', x = " + many + ");"));
            static_cast<void>(open_quant("\"q\": linear_quantize(min = " + many + ");"));
          }) < (sanitizers ? 60 : 10));
  }
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += "variable(x = ";
  CHECK(code_of(open_graph(nested)) == Errc::malformed);
  std::string in_shape;
  for (int i = 0; i < 100000; ++i) in_shape += "variable(shape = [";
  CHECK(code_of(open_graph(in_shape)) == Errc::malformed);
}

TEST_CASE("nnef: graph.quant that is wrong") {
  const auto quant = [](const std::string& text) { return code_of(open_quant(text)); };
  CHECK(quant("\"q\": linear_quantize(min = -1.0, max = 1.0, bits = 8);") == Errc::none);
  CHECK(quant("# nothing\n") == Errc::none);
  CHECK(quant("\"q\": a(); \"q\": b();") == Errc::duplicate);
  for (const std::string text : {"q: a();", "\"q\" a();", "\"q\": ;", "\"q\": a;", "\"q\": a(;", "\"q\": a(b);",
                                 "\"q\": a(1 = 2);", "\"q\": a()", "\"q\": a(b = 1; c = 2);", "\"q: a();",
                                 "\"q\": a(b = 'x);", ";", "version 1.0;", "\"q\": a(b = 1)) ;"}) {
    CAPTURE(text);
    const auto r = open_quant(text);
    CHECK(code_of(r) == Errc::malformed);
    if (!r) CHECK(r.error().file() == "graph.quant");
  }
  // Of no tensor: NNEF's readers pass over it. A label is no name.
  CHECK(good(open_quant("\"other\": a(); \"w\": b();")).leaf(0).annotations() == nullptr);
  const Snapshot arrays = good(open_quant("'q': zero_point_linear_quantize(scale = [[1.0], [2.0]], bits = 8);"));
  REQUIRE(arrays.leaf(0).annotations() != nullptr);
  CHECK(arrays.leaf(0).annotations()->contains("nnef.quantization"));
  CHECK_FALSE(arrays.leaf(0).annotations()->contains("quantization"));
}

TEST_CASE("nnef: many variables") {
  constexpr std::size_t most = sanitizers ? 10'000 : 100'000;
  const auto time = [](std::size_t n, bool same) {
    const auto bundle = memory_bundle();
    const std::string file = File{}.make();
    std::string graph = "version 1.0; graph g(x) -> (y) {";
    std::string quant;
    for (std::size_t i = 0; i < n; ++i) {
      const std::string number = std::to_string(i);
      const std::string label = same ? "w" : "w/" + number;
      if (!same || i == 0) put(*bundle, label + ".dat", file);
      graph.append("v").append(number).append(" = variable<scalar>(shape = [2], label = '").append(label).append("');");
      quant.append("\"v").append(number).append("\": a(b = [1.0, 2.0]);\n");
    }
    put(*bundle, "graph.nnef", graph + "}");
    put(*bundle, "graph.quant", quant);
    return seconds([&] { CHECK(good(folders.open(bundle_source(bundle))).leaf_count() == (same ? 1 : n)); });
  };
  for (const bool same : {false, true}) {
    const double some = time(most / 10, same);
    const double all = time(most, same);
    CHECK(all < 40 * some + 1.0);
    CHECK(all < 20);
  }
}

TEST_CASE("nnef: archives that lie") {
  const NnefRecorder<> archives(NnefFormat({.container = NnefContainer::tgz}));
  const std::string tar = read_text(test_data() + "/nnef/model.nnef.tar");
  REQUIRE(archives.open(bytes_of(tar)).has_value());
  // A member whose name leads elsewhere: the checksum made right.
  std::string evil = tar;
  const std::size_t at = evil.find("conv1/bias.dat");
  REQUIRE(at != std::string::npos);
  REQUIRE(at % 512 == 0);
  evil.replace(at, 14, "../..//bias.da");
  unsigned sum = 8 * ' ';
  for (std::size_t i = 0; i < 512; ++i) sum += i < 148 || i >= 156 ? static_cast<unsigned char>(evil[at + i]) : 0U;
  char digits[8];
  std::snprintf(digits, sizeof digits, "%06o", sum);
  evil.replace(at + 148, 7, digits, 7);
  CHECK_FALSE(archives.open(bytes_of(evil)).has_value());
  const std::string tgz = read_text(test_data() + "/nnef/model.nnef.tgz");
  for (std::size_t size = 0; size < tgz.size(); size += sanitizers ? 97 : 13) {
    CHECK_FALSE(archives.open(bytes_of(tgz.substr(0, size))).has_value());
  }
  std::string damaged = tgz;
  for (std::size_t bit = 0; bit < 8 * tgz.size(); bit += sanitizers ? 331 : 17) {
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    if (const auto opened = archives.open(bytes_of(damaged))) {
      for (std::size_t i = 0; i < opened->leaf_count(); ++i) static_cast<void>(content(opened->leaf(i)));
    }
    damaged[bit / 8] = tgz[bit / 8];
  }
}

TEST_CASE("nnef: files of another writer") {
  const char* const shared = std::getenv("STELE_SHARED");
  const std::string folder = (shared != nullptr ? shared : test_data() + "/../../../shared") + "/fixtures/nnef/"s;
  if (!std::filesystem::exists(folder)) {
    MESSAGE("left out: there is no shared folder");
    return;
  }
  const struct {
    const char* name;
    DType dtype;
    std::vector<Extent> shape;
    bool quantized;
  } facts[] = {{"export-scan-state__h0", DType::f32, {1, 4}, false},
               {"gru-epilogue__Y.Rb_all", DType::f32, {1, 12}, false},
               {"gru-epilogue__Y.extracted.Y.Xt_WT.prop_axis.a.input_1", DType::f32, {12, 5}, false},
               {"scatter-nd-block__indices.0", DType::i64, {2, 3, 3, 3}, true},
               {"submodel__nnet2__output_bias", DType::f32, {2}, false},
               {"variable-in-fragment__weights", DType::u8, {2, 1, 3}, false}};
  for (const auto& fact : facts) {
    CAPTURE(fact.name);
    const std::string path = folder + fact.name + ".dat";
    const Snapshot opened = good(folders.open(path));
    const LeafView leaf = opened.leaf(0);
    CHECK(leaf.dtype() == fact.dtype);
    CHECK(std::vector(leaf.shape().begin(), leaf.shape().end()) == fact.shape);
    CHECK((leaf.annotations() != nullptr && leaf.annotations()->contains("nnef.quantized")) == fact.quantized);
    CHECK(text_of(good(saved(tensors, opened)).span()) == read_text(path));
  }
  CHECK(good(folders.open(folder)).leaf_count() == std::size(facts));
}
