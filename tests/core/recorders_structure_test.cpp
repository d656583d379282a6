// One behaviour, every recorder: ties, values, containers. What a format cannot hold is asked of its capabilities.
#include <doctest/doctest.h>

#include <bit>
#include <limits>
#include <string>
#include <tuple>

#include "core/recorder_models.hpp"

namespace recorders_structure_test {

using namespace recorder_models;
using namespace std::string_literals;

namespace {
struct Ties {
  std::shared_ptr<Floats> a, b;
  std::vector<std::shared_ptr<Layer>> layers;
  std::shared_ptr<std::string> note, same_note;
  std::shared_ptr<std::vector<Floats>> list, same_list;
  STELE_MODULE(Ties, a, b, layers, note, same_note, list, same_list)
};

struct Apart {
  Floats a, b;
  STELE_MODULE(Apart, a, b)
};
}  // namespace

STELE_TEST_EACH_RECORDER("recorders: ties stay ties") {
  if (!can(recorder).aliases || !can(recorder).values) return;
  Ties t;
  t.a = t.b = std::make_shared<Floats>(floats({1, 2}));
  t.layers = {std::make_shared<Layer>(layer(2, 2, 0, true)), std::make_shared<Layer>(layer(2, 2, 0, true))};
  t.layers.push_back(t.layers[0]);
  t.layers.push_back(nullptr);
  t.note = t.same_note = std::make_shared<std::string>("one");
  t.list = t.same_list = std::make_shared<std::vector<Floats>>();
  Report report;
  const Ties after = reloaded(recorder, t, {.report = &report});
  CHECK(after.a == after.b);
  REQUIRE(after.layers.size() == 4);
  CHECK(after.layers[0] == after.layers[2]);
  CHECK(after.layers[0] != after.layers[1]);
  CHECK(after.layers[3] == nullptr);
  CHECK(after.note == after.same_note);
  CHECK(after.list == after.same_list);
  CHECK(report.count(Report::What::tied) >= 4);
  check_same(t, after, can(recorder));
  auto bytes = saved(recorder, t);
  REQUIRE(bytes);
  CHECK(recorder.open(*bytes).value().leaf_count() == 5);  // each shared tensor once
  CHECK(recorder.open(*bytes).value().find("b").has_value());

  SUBCASE("apart in the file, tied in the module") {
    Ties apart = t;
    apart.b = std::make_shared<Floats>(floats({5, 6}));
    auto two = saved(recorder, apart);
    REQUIRE(two);
    Ties live = t;
    live.a = live.b = std::make_shared<Floats>(floats({0, 0}));
    CHECK(code_of(recorder.load_into(live, *two)) == Errc::unused);
    LoadOptions options;
    options.allow_unused = {"b"};
    const auto loaded = recorder.load_into(live, *two, options);
    REQUIRE_MESSAGE(loaded, why(loaded));
    CHECK(live.a == live.b);
    CHECK((*live.a)[0] == 1);  // the first name in the module's order
  }
  SUBCASE("tied in the file, apart in the module") {
    LoadOptions options;
    options.allow_unused = {"*"};
    const auto apart = recorder.load<Apart>(*bytes, options);
    REQUIRE_MESSAGE(apart, why(apart));
    CHECK(apart->a[1] == 2);
    CHECK(apart->b[1] == 2);
  }
}

namespace {
struct Values {
  std::vector<Value> all;
  std::map<std::string, Value> named;
  std::int64_t low = 0;
  std::uint64_t high = 0;
  std::int8_t small = 0;
  float single = 0;
  double real = 0;
  bool flag = false;
  Mood mood = Mood::calm;
  std::string text;
  STELE_MODULE(Values, all, named, low, high, small, single, real, flag, mood, text)
};
}  // namespace

STELE_TEST_EACH_RECORDER("recorders: values keep every bit") {
  if (!can(recorder).values) return;
  Values v;
  const double nan = std::bit_cast<double>(0xfff8000000abcdefULL);
  Value deep(std::int64_t{1});
  for (int i = 0; i < 40; ++i) deep = Value(Value::List{deep});
  v.all = {Value(),
           Value(true),
           Value(std::numeric_limits<std::int64_t>::min()),
           Value(std::numeric_limits<std::uint64_t>::max()),
           Value(-0.0),
           Value(nan),
           Value(std::numeric_limits<double>::infinity()),
           Value(5e-324),
           Value(1.0),
           Value("nul\0in\xff\xfe"s),
           Value(""),
           Value(Value::Bytes{}),
           Value(Value::Bytes(300, std::byte{0xa5})),
           Value(Value::List{}),
           Value(Value::Map{}),
           Value(Value::Map{
               {"z", Value(1.5)}, {"a", Value("b")}, {"", Value()}, {"$bytes", Value("x")}, {"\xff", Value(false)}}),
           deep};
  v.named.emplace("a.b", Value(Value::List{Value("x"), Value(Value::Map{{"k", Value(std::int64_t{-1})}})}));
  v.low = std::numeric_limits<std::int64_t>::min();
  v.high = std::numeric_limits<std::uint64_t>::max();
  v.small = -128;
  v.single = 0.1F;
  v.real = nan;
  v.flag = true;
  v.mood = Mood::brisk;
  v.text = "\0\xf0"s;
  const Values after = reloaded(recorder, v);
  REQUIRE(after.all.size() == v.all.size());
  for (std::size_t i = 0; i < v.all.size(); ++i) CHECK(to_text(after.all[i]) == to_text(v.all[i]));
  CHECK(to_text(after.named.at("a.b")) == to_text(v.named.at("a.b")));
  CHECK(after.low == v.low);
  CHECK(after.high == v.high);
  CHECK(after.small == v.small);
  CHECK(after.single == v.single);
  CHECK(std::bit_cast<std::uint64_t>(after.real) == std::bit_cast<std::uint64_t>(nan));
  CHECK(after.flag);
  CHECK(after.mood == Mood::brisk);
  CHECK(after.text == v.text);
  for (int i = 0; i < 40; ++i) deep = Value(Value::List{deep});
  v.all = {deep};
  CHECK(code_of(saved(recorder, v)) == Errc::limit);
}

namespace {
struct Containers {
  std::optional<std::vector<Floats>> absent, empty, full;
  std::vector<std::optional<Floats>> gaps, no_gaps, only_gaps;
  std::variant<Nothing, Floats, std::map<std::string, Floats>> choice, other;
  std::vector<std::variant<Nothing, Twig>> choices;
  std::map<std::string, Floats> none;
  std::map<std::string, std::vector<Floats>> lists;
  std::map<std::string, std::optional<Nothing>> present;
  std::vector<std::vector<std::vector<Floats>>> nested;
  std::unique_ptr<Nothing> here, gone;
  std::tuple<std::optional<Floats>, std::vector<Nothing>> pair;
  STELE_MODULE(Containers, absent, empty, full, gaps, no_gaps, only_gaps, choice, other, choices, none, lists, present,
               nested, here, gone, pair)
};
}  // namespace

STELE_TEST_EACH_RECORDER("recorders: empty and conditional containers") {
  if (!can(recorder).values) return;
  Containers c;
  c.empty.emplace();
  c.full.emplace(2, floats({1}));
  c.gaps = {std::nullopt, floats({1}), std::nullopt, floats({2}), std::nullopt};
  c.only_gaps = {std::nullopt, std::nullopt};
  c.no_gaps.resize(12, floats({3}));  // ten sorts before two
  c.no_gaps[10] = floats({10});
  c.other = std::map<std::string, Floats>{};
  c.choices = {Nothing{}, Twig{Tensor<float>({1}, {1.F}), {}}, Nothing{}};
  c.lists["empty"];
  c.lists["one"].push_back(floats({}));
  c.lists["10"].push_back(floats({1}));
  c.present["yes"].emplace();
  c.present["no"];
  c.nested = {{}, {{}, {floats({1}), floats({2})}}, {{}}};
  c.here = std::make_unique<Nothing>();
  std::get<1>(c.pair).resize(3);
  const Containers after = reloaded(recorder, c);
  check_same(c, after, can(recorder));
  CHECK(!after.absent);
  REQUIRE(after.empty);
  CHECK(after.empty->empty());
  CHECK(after.full->size() == 2);
  REQUIRE(after.gaps.size() == 5);
  CHECK((*after.gaps[3])[0] == 2);
  CHECK(!after.gaps[4]);
  CHECK(after.only_gaps.size() == 2);
  REQUIRE(after.no_gaps.size() == 12);
  CHECK((*after.no_gaps[10])[0] == 10);
  CHECK(after.choice.index() == 0);
  CHECK(after.other.index() == 2);
  REQUIRE(after.choices.size() == 3);
  CHECK(after.choices[2].index() == 0);
  CHECK(after.lists.at("empty").empty());
  CHECK(after.lists.at("one").at(0).size() == 0);
  CHECK(after.present.at("yes"));
  CHECK(!after.present.at("no"));
  REQUIRE(after.nested.size() == 3);
  CHECK(after.nested[0].empty());
  CHECK(after.nested[1].at(0).empty());
  CHECK(after.nested[2].at(0).empty());
  CHECK(after.here);
  CHECK(!after.gone);
  CHECK(std::get<1>(after.pair).size() == 3);
}

}  // namespace recorders_structure_test
