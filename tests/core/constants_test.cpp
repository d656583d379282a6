// Numbers of plain aggregates are values that a file may lack; where the format has no place for them, a save says so.
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
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

Net net() {
  Net n;
  n.layers = {{vec({1})}, {vec({2})}};
  n.more["a.b"] = {vec({3})};
  return n;
}
const std::vector<std::string> constants = {"epsilon", "layers.0.activation", "layers.0.dropout", "layers.0.comment",
                                            "layers.0.settings.stride"};
/// Layer before it had values.
struct Bare {
  Vec weight;
};
struct BareNet {
  std::vector<Bare> layers;
  std::map<std::string, Bare> more;
};
/// Containers of values and mixed ones.
struct Mixed {
  Vec weight;
  std::vector<std::string> names;
  std::map<std::string, int> counts;
  std::optional<double> rate;
  std::array<std::string, 2> texts;
  std::pair<Vec, int> pair;
  std::variant<Vec, bool> either;
  stele::Value any;
};
struct OnlyNumbers {
  int width = 1;
  bool wide = false;
};

}  // namespace

template <>
struct stele::attributes<Net> {
  static constexpr stele::Attribute list[] = {stele::attr::skip("seed")};  // asked for: no row
};

TEST_SUITE_BEGIN("constants");

STELE_TEST_EACH_RECORDER(
    "numbers, enums and strings of plain aggregates are values, where files have a place for them") {
  Net saved = net();
  saved.layers[0].activation = Activation::tanh;
  saved.layers[0].dropout = 0.5F;
  saved.layers[1].comment = "second";
  saved.more["a.b"].settings.stride = 4;
  saved.epsilon = 1e-3;
  saved.seed = 9;
  stele::BufferSink sink;
  const Report report = good(recorder.save(saved, sink));
  const bool kept = can(recorder).values && !can(recorder).constants;
  CHECK(report.paths(Report::What::constant) == (kept ? std::vector<std::string>() : constants));
  CHECK(report.count(Report::What::lost) == 0);

  stele::SaveOptions dry = quick();
  dry.dry_run = true;
  stele::BufferSink nothing;
  const Report planned = good(recorder.save(saved, nothing, dry));
  CHECK(planned.count(Report::What::constant) == report.count(Report::What::constant));

  const stele::Bytes bytes = sink.take();
  Net loaded;
  loaded.layers = net().layers;
  loaded.more = net().more;
  loaded.layers[0].dropout = 7;
  Report of_load;
  good(recorder.load_into(loaded, bytes, {.report = &of_load}));
  CHECK(of_load.count(Report::What::defaulted) == (kept ? 0 : 13));
  CHECK(loaded.seed == 3);
  CHECK(loaded.layers[0].activation == (kept ? Activation::tanh : Activation::relu));
  CHECK(loaded.layers[0].dropout == (kept ? 0.5F : 7));
  CHECK(loaded.layers[1].comment == (kept ? "second" : ""));
  CHECK(loaded.more["a.b"].settings.stride == (kept ? 4 : 1));
  CHECK(loaded.epsilon == (kept ? 1e-3 : 1e-6));
}

STELE_TEST_EACH_RECORDER("a file without the values of a plain aggregate keeps those of the constructor") {
  BareNet old;
  old.layers = {{vec({1})}, {vec({2})}};
  old.more["a.b"] = {vec({3})};
  stele::BufferSink sink;
  good(recorder.save(old, sink));
  Net loaded = net();
  Report report;
  good(recorder.load_into(loaded, sink.take(), {.report = &report}));
  CHECK(report.count(Report::What::defaulted) == 13);
  CHECK(loaded.epsilon == 1e-6);
  CHECK(loaded.layers[1].weight.value[0] == 2);
}

TEST_CASE("constants: containers of values, and a class of numbers alone") {
  Mixed saved;
  saved.weight = vec({1});
  saved.names = {"a", ""};
  saved.counts = {{"x", 1}, {"y", -2}};
  saved.rate = 0.25;
  saved.texts = {"b", "c"};
  saved.pair = {vec({2}), 5};
  saved.either = true;
  saved.any = stele::Value("free");
  const auto check = [&](auto recorder) {
    stele::BufferSink sink;
    good(recorder.save(saved, sink));
    const Mixed loaded = good(recorder.template load<Mixed>(sink.take()));
    CHECK(loaded.names == saved.names);
    CHECK(loaded.counts == saved.counts);
    CHECK(loaded.rate == saved.rate);
    CHECK(loaded.texts == saved.texts);
    CHECK(loaded.pair.second == 5);
    CHECK(std::get<bool>(loaded.either));
    CHECK(loaded.any == saved.any);
  };
  check(stele::BytesRecorder<>());
  check(stele::SafetensorsRecorder<>());
  check(stele::JsonRecorder<>());

  stele::BufferSink sink;
  good(stele::BytesRecorder<>().save(OnlyNumbers{3, true}, sink));
  const auto numbers = good(stele::BytesRecorder<>().load<OnlyNumbers>(sink.take()));
  CHECK(numbers.width == 3);
  CHECK(numbers.wide);
}

TEST_CASE("constants: a tensor of the name in a file is another thing") {
  struct Norm {
    Vec weight;
    std::int64_t num_batches_tracked = 0;
  };
  struct FileOfOthers {
    Vec weight;
    stele::Tensor<std::int64_t, 0> num_batches_tracked;
  };
  FileOfOthers other{vec({1}), {}};
  other.num_batches_tracked = stele::Tensor<std::int64_t, 0>({}, {7});
  stele::BufferSink sink;
  good(stele::SafetensorsRecorder<>().save(other, sink));
  stele::LoadOptions options = stele::LoadOptions();
  options.allow_unused = {"*"};
  Norm norm;
  Report report;
  good(stele::SafetensorsRecorder<>().load_into(norm, sink.take(), reporting(options, report)));
  CHECK(report.paths(Report::What::defaulted) == std::vector<std::string>{"num_batches_tracked"});
  CHECK(report.paths(Report::What::unused) == std::vector<std::string>{"num_batches_tracked"});
  CHECK(norm.num_batches_tracked == 0);
}

TEST_CASE("temporaries: what is read of a temporary Result or Snapshot outlives it") {
  stele::SaveOptions options = quick();
  options.metadata = {{"epoch", "3"}};
  stele::BufferSink sink;
  good(stele::BytesRecorder<>().save(Bare{vec({1, 2})}, sink, options));
  const stele::Bytes bytes = sink.take();
  const auto open = [&] { return stele::BytesRecorder<>().open(bytes); };
  const stele::LeafView first = open().value().leaf(0);
  const auto found = open().value().find("weight").value();
  const auto checked = open().value().checked_leaf(0).value();
  const auto& metadata = open().value().metadata();
  CHECK(first.size() == 2);
  CHECK(found.path() == "weight");
  CHECK(checked.dtype() == stele::DType::f32);
  CHECK(metadata.at("epoch") == "3");
  CHECK(open().value().checked_leaf(1).error().code() == stele::Errc::not_found);

  const auto steps = [] { return stele::Result<std::vector<std::string>>({std::string(40, 'a'), "b"}); };
  std::string all;
  for (const std::string& step : steps().value()) all += step;
  CHECK(all == std::string(40, 'a') + "b");
}

TEST_CASE("constants: names below that of a number are another thing") {
  struct Model {
    Vec weight;
    int head = 2;
  };
  struct FileOfOthers {
    Vec weight;
    Bare head;
  };
  stele::LoadOptions options;
  options.allow_unused = {"*"};
  const auto check = [&](auto recorder) {
    stele::BufferSink sink;
    good(recorder.save(FileOfOthers{vec({1}), {vec({2})}}, sink));
    Model model;
    Report report;
    good(recorder.load_into(model, sink.take(), reporting(options, report)));
    CHECK(report.paths(Report::What::defaulted) == std::vector<std::string>{"head"});
    CHECK(report.paths(Report::What::unused) == std::vector<std::string>{"head.weight"});
    CHECK(model.head == 2);
    CHECK(model.weight.value[0] == 1);
  };
  check(stele::BytesRecorder<>());
  check(stele::SafetensorsRecorder<>());
}

TEST_SUITE_END();
