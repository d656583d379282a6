// Pointers to a base: older and foreign files, other formats.
#include <stele/recorders/burn.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/recorders/stele_writer.hpp>

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/hash.hpp"
#include "core/derived_models.hpp"

namespace derived_files_test {

using namespace derived_models;

// ---- older and foreign files ----------------------------------------------------------------------------------------

namespace {

/// A NewGraph from before the classes of a Block were listed.
struct OldGraph {
  std::vector<Mat> unrelated;
  std::unique_ptr<Undeclared> first;
  std::vector<std::shared_ptr<Undeclared>> blocks;
};
struct NewGraph {
  std::vector<Mat> unrelated;
  std::unique_ptr<Block> first;
  std::vector<std::shared_ptr<Block>> blocks;
};

}  // namespace

STELE_TEST_EACH_RECORDER("derived: a file from before the declaration") {
  OldGraph old;
  old.first = std::make_unique<Undeclared>(1.0F);
  old.blocks.push_back(std::make_shared<Undeclared>(2.0F));
  old.blocks.push_back(old.blocks[0]);
  const stele::Bytes bytes = good(saved(recorder, old));
  const NewGraph fresh = good(recorder.load<NewGraph>(bytes));
  CHECK((*fresh.first->w)[0] == 1);
  CHECK((*fresh.blocks.at(0)->w)[0] == 2);
  CHECK(fresh.blocks[0] == fresh.blocks.at(1));
  NewGraph target;
  target.first = std::make_unique<Block>(8.0F);
  target.blocks = {std::make_shared<Block>(9.0F), std::make_shared<Block>(9.0F)};
  good(recorder.load_into(target, bytes));
  CHECK((*target.first->w)[0] == 1);
  // Such a file has a Block.
  target.first = std::make_unique<Wide>(8.0F);
  CHECK(bad(recorder.load_into(target, bytes)).path() == "first.Block");
}

STELE_TEST_EACH_RECORDER("derived: a listed class that has changed") {
  struct OldLong {
    stele::Tensor<double, 1> older;
  };
  struct OldFile {
    std::vector<std::map<std::string, OldLong>> own;
  };
  struct Now {
    std::vector<std::unique_ptr<Part>> own;
  };
  OldFile file;
  file.own.resize(1);
  file.own[0]["Long"].older = stele::Tensor<double, 1>::filled({1}, 9);
  const stele::Bytes bytes = good(saved(recorder, file));
  CHECK(good(recorder.load<Now>(bytes)).own.at(0)->sum() == 9);
}

STELE_TEST_EACH_RECORDER("derived: a class that the file has and the list has not") {
  struct Other {
    Vec scale = vec({1});
  };
  struct File {
    std::vector<std::variant<Other>> layers;
  };
  File file;
  file.layers.emplace_back();
  const stele::Bytes bytes = good(saved(recorder, file));
  const stele::Error e = bad(recorder.load<Short>(bytes));
  CHECK(e.code() == Errc::kind_mismatch);
  CHECK(e.path() == "layers.0");
  CHECK(e.expected() == "Dense or Dropout or Stack");
  CHECK(e.found() == "Other");

  struct Two {
    std::map<std::string, Other> first;
  };
  struct OneOf {
    std::unique_ptr<Layer> first;
  };
  Two two;
  two.first["Dense"];
  two.first["Stack"];
  const stele::Bytes both = good(saved(recorder, two));
  CHECK(bad(recorder.load<OneOf>(both)).code() == Errc::kind_mismatch);
}

// ---- other formats --------------------------------------------------------------------------------------------------

TEST_CASE("derived: Burn's encodings") {
  using stele::BurnEncoding;
  for (const BurnEncoding encoding : {BurnEncoding::mpk, BurnEncoding::bin, BurnEncoding::json}) {
    CAPTURE(static_cast<int>(encoding));
    const stele::BurnRecorder<> recorder(stele::BurnFormat({.encoding = encoding}));
    const Tensors m = tensors(1);
    const stele::Bytes bytes = good(saved(recorder, m));
    const Tensors back = good(recorder.load<Tensors>(bytes));
    REQUIRE(back.layers.size() == 2);
    CHECK(back.layers[0]->kind() == "dense");
    CHECK(back.layers[1]->kind() == "stack");
    CHECK((*static_cast<Dense&>(*back.head).weight)(0, 0) == 3);
    Tensors target = tensors(9);
    good(recorder.load_into(target, bytes));
    CHECK((*static_cast<Dense&>(*target.head).weight)(0, 0) == 3);
    if (encoding == BurnEncoding::bin) continue;
    stele::SaveOptions lossy;
    lossy.allow_loss = true;  // ties are written under each name
    Graph g = graph(1);
    g.blocks.pop_back();
    const stele::Bytes written = good(saved(recorder, g, lossy));
    Graph tied = graph(30);
    tied.blocks.pop_back();
    good(recorder.load_into(tied, written));
    CHECK((*tied.both->w)[0] == 1);
    CHECK(tied.tagged == tied.both);
  }
}

TEST_CASE("derived: Burn's modules without parameters") {
  using stele::BurnEncoding;
  struct Own {
    std::vector<std::unique_ptr<Part>> own;
  };
  Own m;
  m.own.push_back(std::make_unique<Relu>());
  m.own.push_back(std::make_unique<Sized<float>>(2.0F));
  m.own.push_back(std::make_unique<Relu>());
  for (const BurnEncoding encoding : {BurnEncoding::mpk, BurnEncoding::bin, BurnEncoding::json}) {
    CAPTURE(static_cast<int>(encoding));
    const stele::BurnRecorder<> recorder(stele::BurnFormat({.encoding = encoding}));
    const stele::Bytes bytes = good(saved(recorder, m));
    const Own back = good(recorder.load<Own>(bytes));
    REQUIRE(back.own.size() == 3);
    CHECK(back.own[0]->sum() == -1);
    CHECK(back.own[1]->sum() == 2);
    CHECK(back.own[2]->sum() == -1);
  }
}

TEST_CASE("derived: SameDiff's names") {
  const TempDir folder;
  for (const char* name : {"m.fb", "m.sdz"}) {
    CAPTURE(name);
    const std::string path = folder / name;
    good(stele::SameDiffRecorder<>{}.save(net(1), path));
    CHECK(image(good(stele::SameDiffRecorder<>{}.load<Net>(path))) == image(net(1)));
    Net target = net(5);
    good(stele::SameDiffRecorder<>{}.load_into(target, path));
    CHECK(image(target) == image(net(1)));
  }
}

TEST_CASE("derived: from one format to the next") {
  const TempDir folder;
  const auto path = [&](std::size_t i, const char* extension) { return folder / (std::to_string(i) + extension); };
  const char* extensions[] = {".stele", ".safetensors", ".json", ".bpk", ".zip", ".stele"};
  good(stele::save(graph(1), path(0, ".stele")));
  good(stele::save(net(1), path(10, ".stele")));
  for (std::size_t i = 1; i < std::size(extensions); ++i) {
    CAPTURE(extensions[i]);
    for (const std::size_t first : {0U, 10U}) {
      good(stele::save(good(stele::open(path(first + i - 1, extensions[i - 1]))), path(first + i, extensions[i])));
    }
    const Graph g = good(stele::load<Graph>(path(i, extensions[i])));
    check_tied(g);
    CHECK(image(g) == image(graph(1)));
    CHECK(image(good(stele::load<Net>(path(10 + i, extensions[i])))) == image(net(1)));
  }
}

TEST_CASE("derived: the writer without a heap writes the same bytes") {
  const Tensors m = tensors(1);
  alignas(8) std::byte memory[16384];
  std::size_t size = 0;
  REQUIRE(stele::write_to(m, memory, size, stele::detail::hash64).code == Errc::none);
  CHECK(text_of(std::span(memory, size)) == text_of(good(stele::BytesRecorder<>{}.save(m)).span()));
  Tensors other = tensors(1);
  other.head = std::make_unique<Unlisted>(1.0F);
  CHECK(stele::write_to(other, memory, size, stele::detail::hash64).code == Errc::kind_mismatch);
}

TEST_CASE("derived: a class that no list names, and a base that is no module") {
  const Net m = net(1);
  const Layer& layer = *m.head;
  CHECK(bad(stele::snapshot_of(layer)).path().empty());
  CHECK(outline(m.head) == "module Dense\ntensor Dense.scale\ntensor Dense.weight\ntensor Dense.bias\n");
  std::unique_ptr<Layer> target;
  good(stele::load_into(target, good(stele::snapshot_of(m.head)), rebuilding));
  CHECK(target->kind() == "dense");
}

}  // namespace derived_files_test
