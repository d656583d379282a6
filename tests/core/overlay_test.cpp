// Loads of a part, and of several files into one module.
#include <stele/transform.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

using namespace stele_test;
using stele::Errc;
using stele::LoadOptions;
using stele::Report;
using stele::Snapshot;

namespace stele_test {
namespace {

using Floats = std::vector<float>;

struct Layer {
  Floats weight{1, 2};
  std::optional<Floats> bias;
  double rate = 0.5;
  STELE_MODULE(Layer, weight, bias, rate)
};
struct Model {
  Layer encoder, decoder;
  std::vector<Layer> layers = std::vector<Layer>(2);
};
/// The fields that are trained on top of a Model, at the same paths.
struct DeltaLayer {
  Floats weight;
};
struct Delta {
  DeltaLayer encoder{{10, 20}};
  std::vector<Layer> layers = std::vector<Layer>(2);
  Delta() {
    layers[1].bias = Floats{30};
    layers[1].rate = 0.25;
  }
  STELE_MODULE(Delta, encoder, layers)
};
struct Encoder {
  Layer encoder;
};
struct Decoder {
  Layer decoder;
};
struct Layers {
  std::vector<Layer> layers = std::vector<Layer>(2);
};

struct Tied {
  std::shared_ptr<Floats> embedding = std::make_shared<Floats>(Floats{1, 2});
  std::shared_ptr<Floats> head = embedding;
  std::shared_ptr<Layer> first = std::make_shared<Layer>();
  std::shared_ptr<Layer> second = first;
};
struct Head {
  Floats head{5, 6};
};
struct Second {
  DeltaLayer second{{7, 8}};
};
struct Both {
  Floats embedding{5, 6}, head{7, 8};
};
struct Apart {
  Floats embedding{1}, head{2};
};
struct TiedHead {
  std::shared_ptr<Floats> embedding = std::make_shared<Floats>(Floats{1, 2});
  std::shared_ptr<Floats> head = embedding;
};

template <class M>
Snapshot file_of(const AnyRecorder& recorder, const M& module, const stele::SaveOptions& options = {}) {
  return good(recorder.open(stele::own_bytes(good(saved(recorder, module, options)))));
}
template <class... S>
stele::Result<Snapshot> overlaid(const S&... snapshots) {
  const Snapshot all[] = {snapshots...};
  return overlay(all);
}

}  // namespace

STELE_TEST_EACH_RECORDER("overlay: a base file and what changed of it") {
  const Snapshot base = file_of(recorder, Model{}, {.metadata = {{"name", "base"}, {"data", "all"}}});
  const Snapshot delta = file_of(recorder, Delta{}, {.metadata = {{"name", "tuned"}}});
  const Snapshot both = good(overlaid(base, delta));
  CHECK(both.metadata().at("name") == "tuned");
  CHECK(both.metadata().at("data") == "all");

  Report report;
  const Model fresh = good(stele::load<Model>(both, {.report = &report}));
  const auto check = [](const Model& m) {
    CHECK(m.encoder.weight == Floats{10, 20});
    CHECK(m.encoder.rate == 0.5);
    CHECK(m.decoder.weight == Floats{1, 2});
    CHECK(!m.layers[0].bias);
    REQUIRE(m.layers[1].bias);
    CHECK(*m.layers[1].bias == Floats{30});
    CHECK(m.layers[1].rate == 0.25);
  };
  check(fresh);
  CHECK(report.count(Report::What::missing) == 0);
  Model live;
  live.layers[1].bias = Floats{0};
  good(stele::load_into(live, both));
  check(live);
  check(good(stele::load<Model>(file_of(recorder, both))));  // it can be saved, too

  // The first wins nothing, one alone is itself, none is nothing.
  CHECK(good(stele::load<Model>(good(overlaid(delta, base)))).encoder.weight == Floats{1, 2});
  CHECK(image(good(stele::load<Model>(good(overlaid(base))))) == image(Model{}));
  CHECK(good(stele::overlay({})).leaf_count() == 0);
}

STELE_TEST_EACH_RECORDER("overlay: ties stay") {
  const Snapshot base = file_of(recorder, Tied{});
  // Any name of a tied tensor stands for it.
  const Tied m = good(stele::load<Tied>(good(overlaid(base, file_of(recorder, Head{}), file_of(recorder, Second{})))));
  CHECK(*m.embedding == Floats{5, 6});
  CHECK(m.head == m.embedding);
  CHECK(m.first->weight == Floats{7, 8});
  CHECK(m.first == m.second);
  // The same ties in both.
  Tied other;
  *other.embedding = {8, 9};
  const Tied same = good(stele::load<Tied>(good(overlaid(base, file_of(recorder, other)))));
  CHECK(*same.head == Floats{8, 9});
  CHECK(same.head == same.embedding);
  CHECK(same.first == same.second);

  const stele::Error two = bad(overlaid(base, file_of(recorder, Both{})));
  CHECK(two.code() == Errc::invalid_argument);
  CHECK(Paths{std::string(two.path()), std::string(two.found())} == Paths{"head", "embedding"});
  const stele::Error apart = bad(overlaid(file_of(recorder, Apart{}), file_of(recorder, TiedHead{})));
  CHECK(apart.code() == Errc::invalid_argument);
  CHECK(apart.path() == "head");
  CHECK(apart.found() == "embedding");
}

STELE_TEST_EACH_RECORDER("overlay: several files into one module") {
  Encoder encoder;
  encoder.encoder.weight = {3, 4};
  Layers layers;
  layers.layers[1].weight = {5, 6};
  const Snapshot files[] = {file_of(recorder, encoder), file_of(recorder, Decoder{}), file_of(recorder, layers)};
  const Model m = good(stele::load<Model>(good(merge(files))));
  CHECK(m.encoder.weight == Floats{3, 4});
  CHECK(m.decoder.weight == Floats{1, 2});
  CHECK(m.layers[1].weight == Floats{5, 6});

  // One after the other into a module that lives: each leaves the rest as it is.
  LoadOptions options;
  options.allow_missing = {"*"};
  Model live;
  for (const Snapshot& file : files) good(stele::load_into(live, file, options));
  CHECK(live.encoder.weight == Floats{3, 4});
  CHECK(live.layers[1].weight == Floats{5, 6});
}

STELE_TEST_EACH_RECORDER("overlay: what may be missing keeps the module's own") {
  Encoder encoder;
  encoder.encoder.weight = {3, 4};
  const stele::Bytes file = good(saved(recorder, encoder));
  LoadOptions options;
  options.allow_missing = {"decoder.*", "layers", "layers.*"};
  Model live;
  live.decoder.weight = {8};
  live.layers[1].weight = {9};
  Report report;
  good(recorder.load_into(live, file, reporting(options, report)));
  CHECK(live.encoder.weight == Floats{3, 4});
  CHECK(live.decoder.weight == Floats{8});
  CHECK(live.layers[1].weight == Floats{9});
  const Paths missing = report.paths(Report::What::missing);
  CHECK(missing.front() == "decoder.weight");
  CHECK(report.paths(Report::What::applied) == Paths{"encoder.rate", "encoder.weight"});
  Report fresh;
  const Model made = good(recorder.load<Model>(file, reporting(options, fresh)));
  CHECK(made.decoder.weight == Floats{1, 2});  // as the constructor made it

  options.allow_missing = {"decoder.weight"};
  const stele::Error e = bad(recorder.load_into(live, file, options));
  CHECK(e.code() == Errc::missing);
  CHECK(e.path() == "decoder.rate");
}

}  // namespace stele_test
