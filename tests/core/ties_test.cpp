// Shared objects: one leaf and aliases, on save, in new modules and in modules that live.
#include <stele/module.hpp>
#include <stele/record.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/snapshot.hpp>
#include <stele/tensor.hpp>

#include <doctest/doctest.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/models.hpp"

namespace ties_test {

using namespace stele_test;
using stele::Errc;
using stele::LoadOptions;
using stele::Report;
using stele::Snapshot;

namespace {

/// The same names, each with a tensor of its own.
struct Apart {
  Vec embedding, middle, head;
  Linear encoder, decoder;
};
Apart apart(float n) {
  return {vec({n, n}), vec({n + 1}), vec({n + 2, n + 2}), Linear(2, 2, n + 3), Linear(2, 2, n + 4)};
}

struct Loop {
  Vec weight;
  std::shared_ptr<Loop> next;
  STELE_MODULE(Loop, weight, next)
};

float first(const std::shared_ptr<Vec>& v) { return (**v)[0]; }

}  // namespace

TEST_CASE("ties: one leaf and aliases, a shared module is one container alias") {
  const TiedLayers t = tied_layers(1);
  CHECK(outline(t) ==
        "tensor embedding\ntensor middle\nalias head\nmodule encoder\ntensor encoder.weight\ntensor encoder.bias\n"
        "alias decoder\n");
  const Snapshot s = snapshot(t);
  CHECK(s.find("head")->view().data() == s.find("embedding")->view().data());
  CHECK(stele::num_params(t) == 2 + 1 + 4 + 2);
}

TEST_CASE("ties: find goes through aliases, nested and flat") {
  const TiedLayers t = tied_layers(1);
  const stele::Bytes nested = good(stele::BytesRecorder<>{}.save(t));
  const stele::Bytes flat = good(stele::MemoryRecorder<stele::SafetensorsFormat>{}.save(t));
  for (const Snapshot& s :
       {snapshot(t), good(stele::BytesRecorder<>{}.open(nested)), good(stele::SafetensorsRecorder<>{}.open(flat))}) {
    CAPTURE(s.flat());
    for (const char* path : {"head", "encoder.weight", "decoder.weight", "decoder.bias"}) {
      CAPTURE(path);
      CHECK(s.find(path).has_value());
    }
    for (const char* path : {"", "decoder", "decoder.", "decoder.weights", ".head", "head.", "head.x", "dec"}) {
      CAPTURE(path);
      CHECK(!s.find(path).has_value());
    }
  }
}

TEST_CASE("ties: come back tied, in every format") {
  const TiedLayers t = tied_layers(1);
  const auto check = [&](const TiedLayers& back) {
    CHECK(back.embedding == back.head);
    CHECK(back.encoder == back.decoder);
    CHECK(image(back) == image(t));
  };
  Report report;
  check(good(stele::load<TiedLayers>(snapshot(t), {.report = &report})));
  CHECK(report.paths(Report::What::tied) == Paths{"head", "decoder"});
  const stele::Bytes bytes = good(stele::BytesRecorder<>{}.save(t));
  check(good(stele::BytesRecorder<>{}.load<TiedLayers>(bytes)));
  stele::BufferSink sink;
  good(stele::SafetensorsRecorder<>{}.save(t, sink));
  const stele::Bytes flat = sink.take();
  check(good(stele::SafetensorsRecorder<>{}.load<TiedLayers>(flat)));
  check(good(stele::from_record(good(stele::record_of(t)))));
  check(good(stele::from_record(good(stele::record_of(tied_layers(1))))));
  TiedLayers in_place = tied_layers(5);
  good(stele::load_into(in_place, snapshot(t), {.report = &report}));
  check(in_place);
}

TEST_CASE("ties: module tied, file not: the first name in the module's order is used") {
  const Apart file = apart(10);
  TiedLayers t = tied_layers(1);
  const TiedLayers before = t;
  Report report;
  LoadOptions options;
  options.allow_unused = {"head", "decoder.*"};
  good(stele::load_into(t, snapshot(file), reporting(options, report)));
  CHECK(t.embedding == before.embedding);
  CHECK(t.head == before.head);
  CHECK(first(t.head) == 10);
  CHECK((*t.decoder->weight)(0, 0) == 13);
  CHECK(report.paths(Report::What::tied) == Paths{"head", "decoder"});
  CHECK(report.paths(Report::What::unused) == Paths{"head", "decoder.weight", "decoder.bias"});
  // A new module has no ties of its own.
  const TiedLayers fresh = good(stele::load<TiedLayers>(snapshot(file)));
  CHECK(fresh.embedding != fresh.head);
  CHECK(first(fresh.head) == 12);
  CHECK((*fresh.decoder->weight)(0, 0) == 14);
}

TEST_CASE("ties: module tied, the file has one of the names") {
  struct Part {
    Vec middle, head;
    Linear decoder;
  };
  const Part file{vec({1}), vec({7, 8}), Linear(2, 2, 9)};
  TiedLayers t = tied_layers(1);
  Report report;
  good(stele::load_into(t, snapshot(file), {.report = &report}));
  CHECK(first(t.embedding) == 7);
  CHECK((*t.encoder->weight)(0, 0) == 9);
  CHECK(t.embedding == t.head);

  struct Nothing {
    Vec middle;
    Linear decoder;
  };
  const Nothing neither{vec({1}), Linear(2, 2, 3)};
  const Image before = image(t);
  const stele::Error e = bad(stele::load_into(t, snapshot(neither)));
  CHECK(e.code() == Errc::missing);
  CHECK(e.path() == "embedding");
  CHECK(image(t) == before);
}

TEST_CASE("ties: module tied, shapes in the file differ") {
  Apart file = apart(10);
  file.head = vec({1, 2, 3});
  TiedLayers t = tied_layers(1);
  const Image before = image(t);
  stele::Error e = bad(stele::load_into(t, snapshot(file)));
  CHECK(e.code() == Errc::shape_mismatch);
  CHECK(e.path() == "head");
  CHECK(image(t) == before);
  file = apart(10);
  file.decoder = Linear(2, 3, 1);
  e = bad(stele::load_into(t, snapshot(file)));
  CHECK(e.code() == Errc::shape_mismatch);
  CHECK(e.path() == "decoder.weight");
  CHECK(image(t) == before);
}

TEST_CASE("ties: file tied, module not: each gets the numbers") {
  Apart a = apart(1);
  good(stele::load_into(a, snapshot(tied_layers(20))));
  CHECK((*a.embedding)[0] == 20);
  CHECK((*a.head)[0] == 20);
  CHECK((*a.decoder.weight)(0, 0) == 20);
  CHECK((*a.decoder.weight).data() != (*a.encoder.weight).data());
  const stele::Bytes bytes = good(stele::BytesRecorder<>{}.save(tied_layers(20)));
  CHECK(image(good(stele::BytesRecorder<>{}.load<Apart>(bytes))) == image(a));
  // One of the names may stay unused: it says nothing new.
  struct Part {
    Vec embedding, middle;
    Linear encoder;
  };
  Report report;
  const TiedLayers t = tied_layers(20);
  const Part p = good(stele::load<Part>(snapshot(t), {.report = &report}));
  CHECK((*p.embedding)[0] == 20);
  CHECK(report.paths(Report::What::tied) == Paths{"head", "decoder"});
  // The other name owns the bytes, the wanted one is the alias.
  struct Other {
    Vec middle, head;
    Linear decoder;
  };
  const Other o = good(stele::load<Other>(snapshot(t)));
  CHECK((*o.head)[0] == 20);
  CHECK((*o.decoder.weight)(0, 0) == 20);
  CHECK(good(stele::BytesRecorder<>{}.load<Other>(bytes)).head->size() == 2);
}

TEST_CASE("ties: what the constructor tied and the file has apart is made apart") {
  struct Constructed {
    std::shared_ptr<Vec> a = std::make_shared<Vec>(vec({1}));
    std::shared_ptr<Vec> b = a;
  };
  struct File {
    Vec a, b;
  };
  const File file{vec({2}), vec({3})};
  const Constructed c = good(stele::load<Constructed>(snapshot(file)));
  CHECK(c.a != c.b);
  CHECK(first(c.a) == 2);
  CHECK(first(c.b) == 3);
}

TEST_CASE("ties: in containers, null and inside one another") {
  struct Model {
    std::vector<std::shared_ptr<Vec>> list;
    std::map<std::string, std::shared_ptr<Vec>> map;
    std::optional<std::shared_ptr<Linear>> maybe;
    std::vector<std::shared_ptr<std::vector<std::shared_ptr<Vec>>>> deep;
  };
  Model m;
  const auto v = std::make_shared<Vec>(vec({1}));
  m.list = {v, nullptr, v, std::make_shared<Vec>(vec({2}))};
  m.map["x"] = m.list[3];
  m.maybe = std::make_shared<Linear>(1, 1, 3.0F);
  const auto inner = std::make_shared<std::vector<std::shared_ptr<Vec>>>(2, v);
  m.deep = {inner, inner};
  const auto check = [](const Model& back) {
    REQUIRE(back.list.size() == 4);
    CHECK(back.list[0] == back.list[2]);
    CHECK(back.list[1] == nullptr);
    CHECK(back.map.at("x") == back.list[3]);
    CHECK(back.deep[0] == back.deep[1]);
    CHECK((*back.deep[0])[1] == back.list[0]);
  };
  const Model back = good(stele::load<Model>(snapshot(m)));
  check(back);
  CHECK(image(back) == image(m));
  const stele::Bytes bytes = good(stele::BytesRecorder<>{}.save(m));
  check(good(stele::BytesRecorder<>{}.load<Model>(bytes)));
  stele::BufferSink sink;
  good(stele::SafetensorsRecorder<>{}.save(m, sink));
  const stele::Bytes flat = sink.take();
  check(good(stele::SafetensorsRecorder<>{}.load<Model>(flat)));
  // Rebuilt in place: the structure of the file, its ties too.
  Model in_place;
  LoadOptions rebuild;
  rebuild.rebuild = true;
  good(stele::load_into(in_place, snapshot(m), rebuild));
  check(in_place);
}

TEST_CASE("ties: a cycle is an error on save") {
  Loop loop;
  loop.weight = vec({1});
  loop.next = std::make_shared<Loop>();
  loop.next->weight = vec({2});
  loop.next->next = loop.next;
  const stele::Error e = bad(stele::snapshot_of(loop));
  CHECK(e.code() == Errc::cycle);
  CHECK(e.path() == "next.next");
  CHECK(bad(stele::record_of(loop)).code() == Errc::cycle);
  CHECK(bad(stele::BytesRecorder<>{}.save(loop)).code() == Errc::cycle);
  CHECK_THROWS_AS(static_cast<void>(stele::num_params(loop)), stele::Exception);
  CHECK(stele::summary(loop).find("cycle") != std::string::npos);
  loop.next->next.reset();  // no leak
}

TEST_CASE("ties: a file whose alias leads back to its own container is refused") {
  // As only a broken or hostile file has it.
  stele::SnapshotBuilder file;
  const Vec leaf = vec({1});
  const Snapshot one = snapshot(leaf);
  const stele::Extent extent[] = {1};
  file.begin(stele::NodeKind::module, "");
  file.tensor("weight", stele::DType::f32, extent, 4, one.leaf(0).provider());
  const std::uint32_t next = file.begin(stele::NodeKind::module, "next");
  file.tensor("weight", stele::DType::f32, extent, 4, one.leaf(0).provider());
  file.alias("next", next);
  file.end();
  const Snapshot s = file.finish();
  const stele::Error e = bad(stele::load<Loop>(s));
  CHECK((e.code() == Errc::cycle || e.code() == Errc::limit));
  Loop in_place;
  in_place.weight = vec({0});
  LoadOptions rebuild;
  rebuild.rebuild = true;
  CHECK_FALSE(stele::load_into(in_place, s, rebuild).has_value());
  CHECK((*in_place.weight)[0] == 0);
}

}  // namespace ties_test
