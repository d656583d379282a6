// Files of older versions of classes, loaded into today's: attributes.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/evolution_loads.hpp"

namespace stele_test {

// ---- names ----------------------------------------------------------------------------------------------------------

namespace {

struct Layer {
  Floats scale;   // another order
  Floats weight;  // was w
  std::optional<Floats> bias;
};
struct Names {
  std::vector<Layer> blocks;
  Tensor<float, 2> weight;  // still kernel in files
  Floats bias;              // was shift
  std::optional<Floats> added;
};
struct Bare {
  std::vector<Layer> blocks;
  Tensor<float, 2> kernel;
  Floats bias;
};
struct WithDefault {
  std::vector<Layer> blocks;
  Tensor<float, 2> kernel;
  Floats shift, gone;
  Floats extra{9};
};

}  // namespace
}  // namespace stele_test

template <>
struct stele::attributes<stele_test::Layer> {
  static constexpr stele::Attribute list[] = {stele::attr::version(2)};
  static std::string_view migrate(std::uint32_t from, std::string_view field) {
    return from < 2 && field == "weight" ? "w" : "";
  }
};
template <>
struct stele::attributes<stele_test::Names> {
  static constexpr stele::Attribute list[] = {stele::attr::rename("weight", "kernel"),
                                              stele::attr::alias("bias", "shift")};
};
template <>
struct stele::attributes<stele_test::WithDefault> {
  static constexpr stele::Attribute list[] = {stele::attr::keep_default("extra")};
};

namespace stele_test {

STELE_TEST_EACH_RECORDER("evolution: fields renamed, reordered, added, removed") {
  LoadOptions options;
  options.allow_unused = {"gone"};
  in_every_way<Names>(recorder, old_path(recorder, "names"), options, [](const Names& m) {
    REQUIRE(m.blocks.size() == 2);
    CHECK(m.blocks[0].weight == Floats{8, 9});
    CHECK(m.blocks[1].scale == Floats{13});
    CHECK(!m.blocks[1].bias);
    CHECK(m.weight(1, 0) == 3);
    CHECK(m.bias == Floats{5, 6});
    CHECK(!m.added);
  });

  const stele::Error removed = refused<Names>(recorder, "names");
  CHECK(removed.code() == Errc::unused);
  CHECK(removed.path() == "gone");
  const stele::Error renamed = refused<Bare>(recorder, "names", options);
  CHECK(renamed.code() == Errc::missing);
  CHECK(renamed.path() == "bias");

  Report report;
  const WithDefault m = good(recorder.load<WithDefault>(old_path(recorder, "names"), {.report = &report}));
  CHECK(m.extra == Floats{9});
  CHECK(report.paths(Report::What::defaulted) == Paths{"extra"});
}

// ---- kinds ----------------------------------------------------------------------------------------------------------

namespace {

struct First {
  Floats a;
};
struct Second {
  Floats b;
};
struct Third {
  Floats c;
};
struct Kinds {
  float rate = 0;
  std::int16_t number = 0;
  std::variant<Third, Second, First> choice;  // one more, another order
  std::map<std::string, Floats> now_map;
  std::array<First, 2> now_array;
  std::vector<std::int8_t> now_narrow;
  Tensor<stele::float16, 1> now_half;
  Tensor<double, 1> now_double;
  std::unique_ptr<Floats> now_pointer;
  std::optional<Floats> now_optional;
  Floats now_plain;
  STELE_MODULE(Kinds, rate, number, choice, now_map, now_array, now_narrow, now_half, now_double, now_pointer,
               now_optional, now_plain)
};
struct Narrower {
  std::int8_t number = 0;
  std::vector<std::int8_t> now_narrow;
  Tensor<std::int32_t, 1> now_double;
  STELE_MODULE(Narrower, number, now_narrow, now_double)
};
struct OtherChoice {
  std::variant<First, Third> choice;
};

}  // namespace

STELE_TEST_EACH_RECORDER("evolution: kinds, precision, alternatives, order") {
  in_every_way<Kinds>(recorder, old_path(recorder, "kinds"), {}, [](const Kinds& m) {
    CHECK(m.rate == 0.25F);
    CHECK(m.number == 42);
    CHECK(std::get<Second>(m.choice).b == Floats{2, 3});
    CHECK(m.now_map.at("right") == Floats{5});
    CHECK(m.now_map.size() == 2);
    CHECK(m.now_array[1].a == Floats{7});
    CHECK(m.now_narrow == std::vector<std::int8_t>{-5, 100});
    CHECK(static_cast<float>(m.now_half[0]) == 0.5F);
    CHECK(m.now_double[1] == static_cast<double>(0.1F));
    CHECK(*m.now_pointer == Floats{4});
    CHECK(*m.now_optional == Floats{3});
    CHECK(m.now_plain == Floats{1, 2});
  });
  Report report;
  good(recorder.load<Kinds>(old_path(recorder, "kinds"), {.report = &report}));
  CHECK(report.paths(Report::What::converted).size() == 3);

  LoadOptions options;
  options.allow_unused = {"*"};
  const stele::Error number = refused<Narrower>(recorder, "kinds", options);
  CHECK(number.code() == Errc::dtype_mismatch);
  CHECK(number.path() == "now_double");
  CHECK(number.expected() == "i32");
  CHECK(number.found() == "f32");
  const stele::Error choice = refused<OtherChoice>(recorder, "kinds", options);
  CHECK(choice.code() == Errc::kind_mismatch);
  CHECK(choice.path() == "choice");
  CHECK(choice.expected() == "First or Third");
}

// ---- was_one --------------------------------------------------------------------------------------------------------

namespace {

struct One {
  std::vector<First> layer;
  std::optional<std::deque<Second>> maybe;
  Floats rate;
  std::vector<std::int16_t> steps;
  std::array<std::array<float, 1>, 1> scalar{};
  std::vector<std::string> name;
  Floats square;
  Tensor<bool, 1> flag;
  STELE_MODULE(One, layer, maybe, rate, steps, scalar, name, square, flag)
};
struct Strict {
  std::vector<First> layer;
  Floats rate;
  Floats square;
  STELE_MODULE(Strict, layer, rate, square)
};
struct StrictTensors {
  First layer;
  Floats rate;
  STELE_MODULE(StrictTensors, layer, rate)
};
struct StrictRank {
  First layer;
  Floats square;
};
struct TooNarrow {
  std::vector<std::int8_t> steps;
  Floats name;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::was_one("steps"), stele::attr::was_one("name")};
  STELE_MODULE(TooNarrow, steps, name)
};
struct ThreeOfThem {
  std::array<First, 3> layer;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::was_one("layer")};
};

}  // namespace
}  // namespace stele_test

template <>
struct stele::attributes<stele_test::One> {
  static constexpr stele::Attribute list[] = {stele::attr::was_one("layer"),  stele::attr::was_one("maybe"),
                                              stele::attr::was_one("rate"),   stele::attr::was_one("steps"),
                                              stele::attr::was_one("scalar"), stele::attr::was_one("name"),
                                              stele::attr::was_one("square"), stele::attr::was_one("flag")};
};

namespace stele_test {

STELE_TEST_EACH_RECORDER("evolution: one became a list") {
  const auto check = [](const One& m) {
    REQUIRE(m.layer.size() == 1);
    CHECK(m.layer[0].a == Floats{1, 2});
    REQUIRE(m.maybe);
    REQUIRE(m.maybe->size() == 1);
    CHECK(m.maybe->front().b == Floats{2, 3});
    CHECK(m.rate == Floats{0.5F});
    CHECK(m.steps == std::vector<std::int16_t>{300});
    CHECK(m.scalar[0][0] == 1.5F);
    CHECK(m.name == std::vector<std::string>{"adam"});
    CHECK(m.square == Floats{2.5F});
    REQUIRE(m.flag.size() == 1);
    CHECK(m.flag[0]);
  };
  in_every_way<One>(recorder, old_path(recorder, "one"), {}, check);
  // Today's files have a list, which is read as one.
  One two = good(recorder.load<One>(old_path(recorder, "one")));
  in_every_way<One>(recorder, good(saved(recorder, two)), {}, check);
  two.layer.push_back(First{{9}});
  two.rate = {1, 2, 3};
  const One back = good(recorder.load<One>(good(saved(recorder, two))));
  CHECK(back.layer[1].a == Floats{9});
  CHECK(back.rate == Floats{1, 2, 3});
  // The leaf of a record has the module's rank.
  const auto record = good(recorder.load<stele::Record<One>>(old_path(recorder, "one")));
  CHECK(stele::to_string(record.square.shape()) == "[1]");
  CHECK(good(record.rate.load()) == Floats{0.5F});
}

STELE_TEST_EACH_RECORDER("evolution: one is no list unless the class says so") {
  LoadOptions options;
  options.allow_unused = {"*"};
  const bool nested = can(recorder).nesting;
  const stele::Error list = refused<Strict>(recorder, "one", options);
  CHECK(list.path() == (nested ? "layer" : "rate"));  // names alone: a list of none
  CHECK(list.code() == Errc::kind_mismatch);
  CHECK(list.expected() == (nested ? "list" : "tensor"));
  CHECK(list.found() == (nested ? "module" : "value"));
  const stele::Error value = refused<StrictTensors>(recorder, "one", options);
  CHECK(value.code() == Errc::kind_mismatch);
  CHECK(value.path() == "rate");
  CHECK(value.expected() == "tensor");
  CHECK(value.found() == "value");
  const stele::Error rank = refused<StrictRank>(recorder, "one", options);
  CHECK(rank.code() == Errc::shape_mismatch);
  CHECK(rank.path() == "square");
  CHECK(rank.expected() == "rank 1");
  CHECK(rank.found() == "rank 2 [1, 1]");

  const stele::Error narrow = refused<TooNarrow>(recorder, "one", options);
  CHECK(narrow.path() == "name");  // a text is no number
  CHECK(narrow.code() == Errc::kind_mismatch);
  const stele::Error three = refused<ThreeOfThem>(recorder, "one", options);
  CHECK(three.code() == (nested ? Errc::shape_mismatch : Errc::missing));
  CHECK(three.path() == (nested ? "layer" : "layer.1.a"));
}

namespace {

struct Before {
  std::int64_t steps = 300;
  STELE_MODULE(Before, steps)
};
struct Now {
  std::vector<std::int8_t> steps;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::was_one("steps")};
  STELE_MODULE(Now, steps)
};
struct Floating {
  Floats steps;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::was_one("steps")};
  STELE_MODULE(Floating, steps)
};

}  // namespace

TEST_CASE("evolution: a number that became a tensor must fit") {
  const Before before;
  const Snapshot file = good(stele::snapshot_of(before));
  const stele::Error e = bad(stele::load<Now>(file));
  CHECK(e.code() == Errc::out_of_range);
  CHECK(e.path() == "steps");
  CHECK(bad(stele::load<Floating>(file)).code() == Errc::dtype_mismatch);
  LoadOptions options;
  options.convert.allow_kind_change = true;
  CHECK(good(stele::load<Floating>(file, options)).steps == Floats{300});
}

// ---- moved ----------------------------------------------------------------------------------------------------------

namespace {

struct Encoder {
  Floats weight;  // was outside
  First layer;    // was outside
};
struct Sub {
  Floats a;
  Floats w;  // was outside
};
struct Item {
  std::unique_ptr<Sub> sub;
};
struct Moved {
  Encoder encoder;
  Floats scale;  // was in encoder
  Second inner;  // was in encoder
  std::vector<Item> items;
};
struct Holder {
  Floats weight;
};
/// A list became one of its elements.
struct OneItem {
  std::unique_ptr<Item> item;
};
/// Everything that moved has moved into what older files do not have.
struct IntoNew {
  std::optional<Holder> first;
  std::shared_ptr<Holder> second;
  std::unique_ptr<Holder> none;
};

}  // namespace
}  // namespace stele_test

template <>
struct stele::attributes<stele_test::Moved> {
  static constexpr stele::Attribute list[] = {
      stele::attr::moved("encoder.weight", "weight"), stele::attr::moved("encoder.layer", "layer"),
      stele::attr::moved("scale", "encoder.scale"), stele::attr::moved("inner", "encoder.inner")};
};
template <>
struct stele::attributes<stele_test::Item> {
  static constexpr stele::Attribute list[] = {stele::attr::moved("sub.w", "w")};
};
template <>
struct stele::attributes<stele_test::OneItem> {
  static constexpr stele::Attribute list[] = {stele::attr::moved("item", "items.1")};
};
template <>
struct stele::attributes<stele_test::IntoNew> {
  static constexpr stele::Attribute list[] = {stele::attr::moved("first.weight", "weight"),
                                              stele::attr::moved("second.weight", "encoder.scale")};
};

namespace stele_test {

STELE_TEST_EACH_RECORDER("evolution: fields and modules moved into and out of others") {
  const auto check = [](const Moved& m) {
    CHECK(m.encoder.weight == Floats{3, 4});
    CHECK(m.encoder.layer.a == Floats{5});
    CHECK(m.scale == Floats{1});
    CHECK(m.inner.b == Floats{2, 3});
    REQUIRE(m.items.size() == 2);
    CHECK(m.items[0].sub->w == Floats{6});
    CHECK(m.items[1].sub->w == Floats{8});
    CHECK(m.items[1].sub->a == Floats{9});
  };
  in_every_way<Moved>(recorder, old_path(recorder, "moved"), {}, check);
  const Moved now = good(recorder.load<Moved>(old_path(recorder, "moved")));
  in_every_way<Moved>(recorder, good(saved(recorder, now)), {}, check);

  LoadOptions options;
  options.allow_unused = {"*"};
  in_every_way<IntoNew>(recorder, old_path(recorder, "moved"), options, [](const IntoNew& m) {
    REQUIRE(m.first);
    CHECK(m.first->weight == Floats{3, 4});
    REQUIRE(m.second);
    CHECK(m.second->weight == Floats{1});
    CHECK(!m.none);
  });
  in_every_way<OneItem>(recorder, old_path(recorder, "moved"), options, [](const OneItem& m) {
    REQUIRE(m.item);
    CHECK(m.item->sub->w == Floats{8});
  });
  const stele::Error e = refused<Holder>(recorder, "names", options);
  CHECK(e.code() == Errc::missing);
  CHECK(e.path() == "weight");
}

}  // namespace stele_test
