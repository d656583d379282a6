// Objects that Burn's named records cannot distinguish (a value that is a map, an alternative without parameters)
// survive conversion through other formats.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "snapshot/flat.hpp"
#include "stele/recorders/any.hpp"
#include "stele/transform.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace stele;
using namespace stele_test;

using Vec = Tensor<float, 1>;

struct Relu {};
struct Lin {
  Vec w;
};
using Layer = std::variant<Relu, Lin>;
using Nested = std::variant<Layer, Lin>;

/// Nulls, empty lists and a mixed list beside tensors.
struct Beside {
  Vec w{{1}, {1}};
  Value null;
  Value list{Value::List()};
  std::optional<Vec> none;
  std::vector<Vec> rows;
  Relu constant;
  std::tuple<Vec, Value, std::optional<Vec>, Value> mixed{Vec({1}, {2}), Value(), std::nullopt, Value(Value::Map())};
  STELE_MODULE(Beside, w, null, list, none, rows, constant, mixed)
};
struct Tree {
  Vec w{{1}, {1}};
  Value null;
  Beside beside;
  Value config;
  Value list;
  Value empty;
  std::vector<Layer> layers;
  Layer alone;
  std::optional<Nested> deep;
  std::vector<std::optional<Lin>> gaps;
  STELE_MODULE(Tree, w, null, beside, config, list, empty, layers, alone, deep, gaps)
};

/// All that a map can be confused with.
Tree tree() {
  Tree t;
  const auto number = [](std::int64_t n) { return Value(n); };
  t.config = Value(Value::Map{{"lr", Value(0.5)},
                              {"steps", Value(Value::List{number(1), Value(), Value("a")})},
                              {"a.b", Value(Value::Map{{"on", Value(true)}, {"none", Value()}})},
                              {"nothing", Value(Value::Map{})},
                              {"nobody", Value(Value::List{})}});
  t.list = Value(Value::List{});
  for (std::int64_t i = 0; i < 12; ++i) {  // more than ten: the order of numbers is not that of text
    t.list = Value([&] {
      Value::List longer = *t.list.as_list();
      longer.push_back(number(i));
      return longer;
    }());
  }
  t.empty = Value(Value::Map{{"x", Value()}, {"y", Value()}});
  t.layers = {Relu{}, Lin{Vec({1}, {4})}, Relu{}};
  t.alone = Relu{};
  t.deep = Nested(Layer(Relu{}));
  t.gaps = {std::nullopt, Lin{Vec({1}, {5})}, std::nullopt};
  return t;
}

struct Steps {
  Lin first{Vec({1}, {3})};
  Layer alone = Relu{};
};
struct Given {
  Lin w{Vec({1}, {3})};
};
struct Wrong {  // the same names, of another kind
  Value w;
  STELE_MODULE(Wrong, w)
};

/// Flat files say what is null or empty behind the rest of a map.
Value sorted(const Value& value) {
  if (const Value::List* list = value.as_list()) {
    Value::List elements;
    for (const Value& element : *list) elements.push_back(sorted(element));
    return Value(std::move(elements));
  }
  const Value::Map* map = value.as_map();
  if (map == nullptr) return value;
  Value::Map entries;
  for (const auto& [key, entry] : *map) entries.emplace_back(key, sorted(entry));
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return Value(std::move(entries));
}

std::string image(Tree t) {
  for (Value* value : {&t.config, &t.list, &t.empty}) *value = sorted(*value);
  const Bytes bytes = BytesRecorder<>().save(t).value();
  return std::string(text_of(bytes.span()));
}

}  // namespace

template <>
struct stele::attributes<Layer> {
  static constexpr stele::Attribute list[] = {stele::attr::alternative(0, "Relu"), stele::attr::alternative(1, "Lin")};
};
template <>
struct stele::attributes<Nested> {
  static constexpr stele::Attribute list[] = {stele::attr::alternative(0, "Layer"),
                                              stele::attr::alternative(1, "Plain")};
};

TEST_CASE("burn: a record goes through every format that holds values, and its class loads from there") {
  const Tree original = tree();
  const std::string wanted = image(original);
  for (const char* from : {"burn-mpk", "burn-mpk.gz", "burn-json", "burn-json.gz"}) {
    CAPTURE(std::string(from));
    const TempDir dir;
    const std::string source = dir / ("source" + std::string(find_format(from)->extension()));
    REQUIRE(detail::save_object(*find_format(from), {}, {detail::module_info<Tree>(), &original}, source, quick()));
    const Snapshot opened = stele::open(source).value();
    for (const Format* format : formats()) {
      CAPTURE(format->name());
      if (!format->writes() || !format->capabilities().values || format->name().starts_with("burn-bin")) continue;
      const std::string copy = dir / ("copy" + std::string(format->extension()));
      const auto report = detail::save_object(*format, {}, {nullptr, &opened}, copy, quick());
      REQUIRE_MESSAGE(report, why(report));
      CHECK_MESSAGE(report->count(Report::What::lost) == 0, report->to_string());
      const auto back = stele::load<Tree>(copy);
      CHECK_MESSAGE(back, why(back));
      if (back) CHECK(image(*back) == wanted);
      // And once more, from there.
      const std::string again = dir / "again.safetensors";
      REQUIRE(stele::save(stele::open(copy).value(), again, quick()));
      const auto last = stele::load<Tree>(again);
      CHECK_MESSAGE(last, why(last));
      if (last) CHECK(image(*last) == wanted);
    }
    // Names that were changed and changed back.
    const Snapshot renamed = rename(opened, {{"w", "v"}}).value();
    const std::string path = dir / "renamed.safetensors";
    REQUIRE(stele::save(rename(renamed, {{"v", "w"}}).value(), path, quick()));
    const auto back = stele::load<Tree>(path);
    CHECK_MESSAGE(back, why(back));
    if (back) CHECK(image(*back) == wanted);
  }
}

TEST_CASE("burn: where a format holds tensors alone, the report names what was there without any") {
  const Steps steps;
  const TempDir dir;
  for (const char* extension : {".mpk", ".json.gz"}) {
    const std::string source = dir / ("steps" + std::string(extension));
    REQUIRE(detail::save_object(*find_format(extension[1] == 'm' ? "burn-mpk" : "burn-json.gz"), {},
                                {detail::module_info<Steps>(), &steps}, source, quick()));
    const Snapshot opened = stele::open(source).value();
    for (const char* name : {"paddle", "nnef-tgz"}) {
      CAPTURE(name);
      const auto report = detail::save_object(*find_format(name), {}, {nullptr, &opened}, dir / "copy", quick());
      REQUIRE_MESSAGE(report, why(report));
      CHECK(report->paths(Report::What::lost) == std::vector<std::string>{"alone.Relu"});
    }
  }
}

TEST_CASE("burn: a value is put together from values alone") {
  for (const char* name : {"burn-mpk", "safetensors"}) {
    CAPTURE(name);
    BufferSink sink;
    const Given given;
    REQUIRE(detail::save_object(*find_format(name), {}, {detail::module_info<Given>(), &given}, sink, quick()));
    const Bytes bytes = sink.take();
    const auto loaded = stele::load<Wrong>(bytes);
    CHECK(!loaded);
  }
}
