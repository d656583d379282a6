// NNEF graphs, labels and archives that are damaged, wrong, or made to take long.
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

#include "nnef_support.hpp"
#include "support/sanitizers.hpp"

namespace nnef_graph_hostile_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace stele_test::nnef;

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

}  // namespace

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
  // A shape that is no list of numbers is an expression, which is not evaluated.
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
  constexpr std::size_t depth = 1'000'000;  // the square of which no test would finish
  for (const char c : {'(', '[', '{', ')', ']', '}'}) {
    const std::string many(depth, c);
    static_cast<void>(open_graph(variable("w") + "y = f(" + many + ");"));
    static_cast<void>(open_graph("w = variable(shape = " + many + ", label = 'w');"));
    static_cast<void>(open_graph("w = variable(label = 'w', x = " + many + ");"));
    static_cast<void>(open_quant("\"q\": linear_quantize(min = " + many + ");"));
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
  // An entry of no tensor is ignored, as by NNEF's readers. A label is no name.
  CHECK(good(open_quant("\"other\": a(); \"w\": b();")).leaf(0).annotations() == nullptr);
  const Snapshot arrays = good(open_quant("'q': zero_point_linear_quantize(scale = [[1.0], [2.0]], bits = 8);"));
  REQUIRE(arrays.leaf(0).annotations() != nullptr);
  CHECK(arrays.leaf(0).annotations()->contains("nnef.quantization"));
  CHECK_FALSE(arrays.leaf(0).annotations()->contains("quantization"));
}

TEST_CASE("nnef: many variables") {
  constexpr std::size_t n = sanitizers ? 10'000 : 100'000;
  for (const bool same : {false, true}) {
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
    CHECK(good(folders.open(bundle_source(bundle))).leaf_count() == (same ? 1 : n));
  }
}

TEST_CASE("nnef: archives that lie") {
  const NnefRecorder<> archives(NnefFormat({.container = NnefContainer::tgz}));
  const std::string tar = read_text(test_data("nnef") + "/model.nnef.tar");
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
  const std::string tgz = read_text(test_data("nnef") + "/model.nnef.tgz");
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

}  // namespace nnef_graph_hostile_test
