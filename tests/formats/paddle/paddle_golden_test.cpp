// Paddle: files and programs that Paddle wrote.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "paddle_support.hpp"
#include "support/golden_text.hpp"

namespace stele_test::paddle_golden_test {

using namespace paddle;
using stele::Errc;
using stele::PaddleOrder;
using stele::Snapshot;
using stele::Value;

namespace {

/// A tensor as tests/formats/paddle/interop/paddle_files.py describes it.
struct Fact {
  std::string name, dtype, shape, hex;
  std::vector<std::string> lod;
};

std::vector<Fact> facts(const std::string& name) {
  std::vector<Fact> list;
  std::ifstream in(paddle_golden(name + ".txt"));
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    Fact fact;
    std::string quoted;
    words >> quoted >> fact.dtype >> fact.shape >> fact.hex;
    for (std::size_t i = 0; i < quoted.size(); ++i) {
      if (quoted[i] != '%') {
        fact.name += quoted[i];
        continue;
      }
      fact.name += static_cast<char>(std::stoi(quoted.substr(i + 1, 2), nullptr, 16));
      i += 2;
    }
    for (std::string level; words >> level;) fact.lod.push_back(level);
    list.push_back(std::move(fact));
  }
  return list;
}

/// The annotation, as the facts have it.
std::vector<std::string> lod_of(const stele::LeafView& leaf) {
  std::vector<std::string> levels;
  if (leaf.annotations() == nullptr) return levels;
  for (const Value& level : *leaf.annotations()->at("paddle.lod").as_list()) {
    std::string& text = levels.emplace_back();
    for (const Value& n : *level.as_list()) text += (text.empty() ? "" : ",") + std::to_string(*n.as_i64());
  }
  return levels;
}

void check_facts(const Snapshot& snapshot, const std::vector<Fact>& wanted, bool named) {
  REQUIRE(!wanted.empty());
  REQUIRE(snapshot.leaf_count() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const stele::LeafView leaf = good(snapshot.checked_leaf(i));
    CAPTURE(wanted[i].name);
    CHECK(leaf.path() == (named ? wanted[i].name : std::to_string(i)));
    CHECK(stele::name(leaf.dtype()) == wanted[i].dtype);
    CHECK(shape_text(leaf.shape(), "scalar") == wanted[i].shape);
    CHECK(hex(in_file_order(good(content(leaf)), leaf.dtype())) == wanted[i].hex);
    CHECK(lod_of(leaf) == wanted[i].lod);
  }
}

}  // namespace

TEST_CASE("paddle: golden files with their programs") {
  for (const char* name : {"lenet", "lenet_old", "ernie_f32", "ernie_f16", "ernie_bf16", "ernie_i8", "adam", "adam_old",
                           "blocks", "buffers", "buffers_old", "readable", "dtypes_old", "names"}) {
    CAPTURE(name);
    const std::string path = paddle_golden(name) + ".pdiparams";
    const Snapshot snapshot = good(plain.open(path));
    check_facts(snapshot, facts(name), true);
    CHECK(file_of(plain, snapshot) == read_text(path));
    good(plain.verify(path));
    // The program, read alone.
    const std::string beside =
        paddle_golden(name) + (std::filesystem::exists(paddle_golden(name) + ".json") ? ".json" : ".pdmodel");
    const std::vector<PaddleVariable> program = good(stele::paddle_program(beside));
    CHECK(program.size() == snapshot.leaf_count());
    CHECK(file_of(by({.program = program}), snapshot) == read_text(path));
    // By .stele, which keeps all of it.
    const stele::Bytes between = good(saved(stele::BinaryRecorder<>(), snapshot));
    CHECK(file_of(plain, good(stele::BinaryRecorder<>().open(between))) == read_text(path));
  }
}

TEST_CASE("paddle: golden files without a program") {
  for (const char* name : {"dtypes", "shapes", "lod", "one"}) {
    CAPTURE(name);
    const std::string path = paddle_golden(name) + ".pdiparams";
    const std::vector<Fact> wanted = facts(name);
    const Snapshot counted = good(counting.open(path));
    check_facts(counted, wanted, false);
    // They stand in no order of names, so that of the layout counts.
    const PaddleRecorder<> declared = by({.order = PaddleOrder::declared});
    LoadOptions options;
    options.layout.emplace();
    for (const Fact& fact : wanted) options.layout->tensors.push_back({fact.name});
    const Snapshot named = good(declared.open(path, options));
    check_facts(named, wanted, true);
    CHECK(file_of(declared, named) == read_text(path));
    CHECK(file_of(by({.names = PaddleNames::counter, .order = PaddleOrder::declared}), counted) == read_text(path));
    CHECK(code_of(plain.open(path)) == Errc::needs_layout);
  }
  for (const char* name : {"single_bf16", "single_f32", "single_f8", "single_lod", "single_scalar"}) {
    CAPTURE(name);
    const std::string path = paddle_golden(name) + ".pdtensor";
    const Snapshot snapshot = good(counting.open(path));
    check_facts(snapshot, facts(name), false);
    CHECK(file_of(plain, snapshot) == read_text(path));
  }
  CHECK(code_of(counting.open(paddle_golden("selected_rows.bin"))) == Errc::malformed);  // another kind of record
}

TEST_CASE("paddle: records with levels of detail are recognized, and not taken for Darknet's version 0.1") {
  const auto format_of = [](std::string content) {
    const auto format = stele::format_of_content(*own(std::move(content)));
    return format ? std::string((*format)->name()) : std::string();
  };
  for (const char* name : {"lod.pdiparams", "single_lod.pdtensor"}) {
    CHECK(format_of(read_text(paddle_golden(name))) == "paddle");
  }
  const auto levels = [](const std::vector<std::vector<std::uint64_t>>& lod) {
    const std::uint64_t rows = lod.back().back();
    return paddle_record(5, {static_cast<std::int64_t>(rows)}, std::string(4 * rows, 'x'), lod);
  };
  std::vector<std::uint64_t> many(200);  // beyond the bytes that a format looks at
  std::iota(many.begin(), many.end(), 0);
  CHECK(format_of(levels({{0, 3}})) == "paddle");
  CHECK(format_of(levels({{0, 1, 2}, {0, 1, 3}})) == "paddle");
  CHECK(format_of(levels({{0, 0}})) == "paddle");
  CHECK(format_of(levels({many})) == "paddle");
  // Version 0.1 of Darknet: the number of images, and biases of 0.
  const auto darknet = [](std::uint32_t images, std::vector<float> weights) {
    const std::uint32_t header[] = {0, 1, 0, images};
    return std::string(reinterpret_cast<const char*>(header), sizeof header) +
           std::string(reinterpret_cast<const char*>(weights.data()), 4 * weights.size());
  };
  CHECK(format_of(darknet(24, {0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0})) == "darknet");
  CHECK(format_of(darknet(24, {1, 2, 3, 4, 5, 6, 7, 8, 9})) == "darknet");
  CHECK(format_of(darknet(16, std::vector<float>(2000))) == "darknet");
  CHECK(format_of(darknet(32000, std::vector<float>(20000))) == "darknet");
}

TEST_CASE("paddle: golden folders") {
  for (const char* name : {"lenet_folder", "lenet_separate", "nested_folder"}) {
    CAPTURE(name);
    const std::vector<Fact> wanted = facts(name);
    const PaddleRecorder<> folders = by({.folder = true});
    const Snapshot snapshot = good(plain.open(paddle_golden(name)));
    check_facts(snapshot, wanted, true);
    check_facts(good(folders.open(paddle_golden(name))), wanted, true);
    good(folders.verify(paddle_golden(name)));
    const auto bundle = stele::memory_bundle();
    good(folders.save(snapshot, *stele::bundle_sink(bundle)));
    const auto files = files_in(*bundle);
    CHECK(files.size() == wanted.size());
    for (const auto& file : files) {
      CAPTURE(file.first);
      CHECK(file.second == read_text(paddle_golden(name) + "/" + file.first));
    }
    // Without the program, its files are what there is.
    check_facts(good(plain.open(stele::bundle_source(bundle))), wanted, true);
    // And what it says is not what another one says.
    CHECK(PaddleFormat({.folder = true}).recognises_folder(*good(stele::open_folder(paddle_golden(name)))->bundle()));
    CHECK(PaddleFormat({.folder = true}).recognises_folder(*bundle));
    CHECK(!PaddleFormat().recognises_folder(*bundle));
  }
  const std::string path = paddle_golden("lenet_params/__params__");
  const Snapshot combined = good(plain.open(path));
  check_facts(combined, facts("lenet_params"), true);
  CHECK(file_of(plain, combined) == read_text(path));
  CHECK(good(stele::paddle_program(paddle_golden("lenet_params/__model__"))).size() == combined.leaf_count());
}

TEST_CASE("paddle: programs as they are") {
  const auto dtypes = good(stele::paddle_program(paddle_golden("dtypes_old.pdmodel")));
  const auto e5m2 = std::find_if(dtypes.begin(), dtypes.end(), [](const auto& v) { return v.name == "f8_e5m2"; });
  REQUIRE(e5m2 != dtypes.end());
  CHECK(*e5m2 == PaddleVariable{"f8_e5m2", DType::f8_e5m2, {-1, 3}});
  // The attribute `persistable` may stand before or behind the name and the result.
  const auto adam = good(stele::paddle_program(paddle_golden("adam.json")));
  CHECK(adam == good(stele::paddle_program(paddle_golden("adam_old.pdmodel"))));
  CHECK(adam[0] == PaddleVariable{"learning_rate_0", DType::f32, {}});
}

TEST_CASE("paddle: tensors by their number") {
  const Snapshot s = good(counting.open(paddle_golden("shapes.pdiparams")));
  CHECK(good(s.checked_leaf(2)).path() == "2");
  CHECK(stele::to_string(good(s.checked_leaf(3)).shape()) == "[2, 0, 3]");
  CHECK(code_of(s.checked_leaf(s.leaf_count())) == Errc::not_found);
}

}  // namespace stele_test::paddle_golden_test
