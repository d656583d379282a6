// Numbers of plain aggregates are constants: a save says so once for each class, and so does the summary.
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

using namespace stele_test;
using stele::Report;

namespace {

enum class Activation { relu, tanh };
struct Settings {
  int stride = 1;
};
struct Layer {
  Vec weight;
  Activation activation = Activation::relu;
  float dropout = 0.1F;
  std::string comment{};
  Settings settings{};
};
struct Net {
  std::vector<Layer> layers;
  std::map<std::string, Layer> more;
  double epsilon = 1e-6;
  int seed = 3;
};
struct Listed {
  Vec weight;
  int steps = 0;  // a value
  int other = 0;  // not listed
  STELE_MODULE(Listed, weight, steps)
};

Net net() {
  Net n;
  n.layers = {{vec({1})}, {vec({2})}};
  n.more["a.b"] = {vec({3})};
  return n;
}
const std::vector<std::string> constants = {"epsilon", "layers.0.activation", "layers.0.dropout", "layers.0.comment",
                                            "layers.0.settings.stride"};

}  // namespace

template <>
struct stele::attributes<Net> {
  static constexpr stele::Attribute list[] = {stele::attr::skip("seed")};  // asked for: no row
};

TEST_SUITE_BEGIN("constants");

STELE_TEST_EACH_RECORDER("a save reports the constants of each plain aggregate once") {
  stele::BufferSink sink;
  const Report report = good(recorder.record(net(), sink));
  CHECK(report.paths(Report::What::constant) == constants);
  CHECK(report.count(Report::What::lost) == 0);

  stele::SaveOptions dry = quick();
  dry.dry_run = true;
  stele::BufferSink nothing;
  CHECK(good(recorder.record(net(), nothing, dry)).paths(Report::What::constant) == constants);

  const stele::Bytes bytes = sink.take();
  Net loaded;
  loaded.layers = net().layers;
  loaded.more = net().more;
  loaded.layers[0].dropout = 7;
  CHECK(good(recorder.load_into(loaded, bytes)).count(Report::What::constant) == 0);  // of a save
  CHECK(loaded.layers[0].dropout == 7);

  stele::BufferSink values;
  CHECK(good(recorder.record(Listed(), values)).count(Report::What::constant) == 0);
}

TEST_CASE("constants: the row's text, and the summary's line") {
  stele::BufferSink sink;
  const Report report = good(stele::BytesRecorder<>{}.record(Layer{vec({1, 2})}, sink));
  CHECK(report.to_string() ==
        "constant activation: a constant of a plain aggregate: not recorded\n"
        "constant dropout: a constant of a plain aggregate: not recorded\n"
        "constant comment: a constant of a plain aggregate: not recorded\n"
        "constant settings.stride: a constant of a plain aggregate: not recorded\n"
        "4 constant\n");
  CHECK(name(Report::What::constant) == "constant");
  CHECK(stele::summary(Layer{vec({1, 2})}) ==
        "weight  f32 [2]  2\n"
        "activation  a constant of a plain aggregate: not recorded\n"
        "dropout  a constant of a plain aggregate: not recorded\n"
        "comment  a constant of a plain aggregate: not recorded\n"
        "settings.stride  a constant of a plain aggregate: not recorded\n"
        "1 tensors, 2 parameters, 8 bytes\n");
}

TEST_SUITE_END();
