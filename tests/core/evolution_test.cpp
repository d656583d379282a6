// Files of older versions of classes (tests/data/evolution, written by evolution/write_old.cpp), loaded into today's.
#include <stele/transform.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "evolution/old.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

using namespace stele_test;
using stele::Errc;
using stele::LoadOptions;
using stele::Report;
using stele::Result;
using stele::Snapshot;
using stele::Tensor;

namespace stele_test {
namespace {

using Paths = std::vector<std::string>;
using Floats = std::vector<float>;

template <class R>
std::string old_path(std::string_view group) {
  return test_data() + "/evolution/" + old_file<typename R::format_type>(group);
}

/// Loads M from `from` in each way there is, and shows it to `check`.
template <class M, class R, class Check>
void in_every_way(const stele::Input& from, const LoadOptions& options, Check check) {
  const R recorder;
  Report report;
  M live = good(recorder.template load<M>(from, options, &report));
  check(live);
  good(recorder.load_into(live, from, options));
  check(live);
  LoadOptions rebuild = options;
  rebuild.rebuild = true;
  M empty;
  good(recorder.load_into(empty, from, rebuild));
  check(empty);
  check(good(stele::from_record<M>(good(recorder.template load_record<M>(from, options)))));
  const Snapshot file = good(recorder.open(from, options));
  // A dry run makes no object that could be shared.
  const Report dry = good(stele::dry_run<M>(file, options));
  CHECK(dry.count(Report::What::applied) == report.count(Report::What::applied) + report.count(Report::What::tied));
}

template <class M, class R>
stele::Error refused(std::string_view group, const LoadOptions& options = {}) {
  return bad(R{}.template load<M>(old_path<R>(group), options));
}

template <class T>
Floats numbers(const T& tensor) {
  return Floats(tensor.begin(), tensor.end());
}

}  // namespace

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

TEST_CASE_TEMPLATE("evolution: fields renamed, reordered, added, removed", R, STELE_TEST_RECORDERS) {
  LoadOptions options;
  options.allow_unused = {"gone"};
  in_every_way<Names, R>(old_path<R>("names"), options, [](const Names& m) {
    REQUIRE(m.blocks.size() == 2);
    CHECK(m.blocks[0].weight == Floats{8, 9});
    CHECK(m.blocks[1].scale == Floats{13});
    CHECK(!m.blocks[1].bias);
    CHECK(m.weight(1, 0) == 3);
    CHECK(m.bias == Floats{5, 6});
    CHECK(!m.added);
  });

  const stele::Error removed = refused<Names, R>("names");
  CHECK(removed.code() == Errc::unused);
  CHECK(removed.path() == "gone");
  const stele::Error renamed = refused<Bare, R>("names", options);
  CHECK(renamed.code() == Errc::missing);
  CHECK(renamed.path() == "bias");

  Report report;
  const WithDefault m = good(R{}.template load<WithDefault>(old_path<R>("names"), {}, &report));
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

TEST_CASE_TEMPLATE("evolution: kinds, precision, alternatives, order", R, STELE_TEST_RECORDERS) {
  in_every_way<Kinds, R>(old_path<R>("kinds"), {}, [](const Kinds& m) {
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
  good(R{}.template load<Kinds>(old_path<R>("kinds"), {}, &report));
  CHECK(report.paths(Report::What::converted).size() == 3);

  LoadOptions options;
  options.allow_unused = {"*"};
  const stele::Error number = refused<Narrower, R>("kinds", options);
  CHECK(number.code() == Errc::dtype_mismatch);
  CHECK(number.path() == "now_double");
  CHECK(number.expected() == "i32");
  CHECK(number.found() == "f32");
  const stele::Error choice = refused<OtherChoice, R>("kinds", options);
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

TEST_CASE_TEMPLATE("evolution: one became a list", R, STELE_TEST_RECORDERS) {
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
  in_every_way<One, R>(old_path<R>("one"), {}, check);
  // What is written today is a list, and read as one.
  One two = good(R{}.template load<One>(old_path<R>("one")));
  in_every_way<One, R>(good(saved(R{}, two)), {}, check);
  two.layer.push_back(First{{9}});
  two.rate = {1, 2, 3};
  const One back = good(R{}.template load<One>(good(saved(R{}, two))));
  CHECK(back.layer[1].a == Floats{9});
  CHECK(back.rate == Floats{1, 2, 3});
  // The leaf of a record has the module's rank.
  const auto record = good(R{}.template load_record<One>(old_path<R>("one")));
  CHECK(stele::to_string(record.square.shape()) == "[1]");
  CHECK(good(record.rate.load()) == Floats{0.5F});
}

TEST_CASE_TEMPLATE("evolution: one is no list unless the class says so", R, STELE_TEST_RECORDERS) {
  LoadOptions options;
  options.allow_unused = {"*"};
  const bool nested = can<R>().nesting;
  const stele::Error list = refused<Strict, R>("one", options);
  CHECK(list.path() == (nested ? "layer" : "rate"));  // names alone: a list of none
  CHECK(list.code() == Errc::kind_mismatch);
  CHECK(list.expected() == (nested ? "list" : "tensor"));
  CHECK(list.found() == (nested ? "module" : "value"));
  const stele::Error value = refused<StrictTensors, R>("one", options);
  CHECK(value.code() == Errc::kind_mismatch);
  CHECK(value.path() == "rate");
  CHECK(value.expected() == "tensor");
  CHECK(value.found() == "value");
  const stele::Error rank = refused<StrictRank, R>("one", options);
  CHECK(rank.code() == Errc::shape_mismatch);
  CHECK(rank.path() == "square");
  CHECK(rank.expected() == "rank 1");
  CHECK(rank.found() == "rank 2 [1, 1]");

  const stele::Error narrow = refused<TooNarrow, R>("one", options);
  CHECK(narrow.path() == "name");  // a text is no number
  CHECK(narrow.code() == Errc::kind_mismatch);
  const stele::Error three = refused<ThreeOfThem, R>("one", options);
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
  const stele::Error e = bad(stele::from_snapshot<Now>(file));
  CHECK(e.code() == Errc::out_of_range);
  CHECK(e.path() == "steps");
  CHECK(bad(stele::from_snapshot<Floating>(file)).code() == Errc::dtype_mismatch);
  LoadOptions options;
  options.convert.allow_kind_change = true;
  CHECK(good(stele::from_snapshot<Floating>(file, options)).steps == Floats{300});
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

TEST_CASE_TEMPLATE("evolution: fields and modules moved into and out of others", R, STELE_TEST_RECORDERS) {
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
  in_every_way<Moved, R>(old_path<R>("moved"), {}, check);
  const Moved now = good(R{}.template load<Moved>(old_path<R>("moved")));
  in_every_way<Moved, R>(good(saved(R{}, now)), {}, check);

  LoadOptions options;
  options.allow_unused = {"*"};
  in_every_way<IntoNew, R>(old_path<R>("moved"), options, [](const IntoNew& m) {
    REQUIRE(m.first);
    CHECK(m.first->weight == Floats{3, 4});
    REQUIRE(m.second);
    CHECK(m.second->weight == Floats{1});
    CHECK(!m.none);
  });
  in_every_way<OneItem, R>(old_path<R>("moved"), options, [](const OneItem& m) {
    REQUIRE(m.item);
    CHECK(m.item->sub->w == Floats{8});
  });
  const stele::Error e = refused<Holder, R>("names", options);
  CHECK(e.code() == Errc::missing);
  CHECK(e.path() == "weight");
}

// ---- migrate with the old Snapshot ----------------------------------------------------------------------------------

namespace {

struct Attention {
  Tensor<float, 2> query, key, value;  // were one, qkv
  std::shared_ptr<Floats> norm;
};
struct Hook {
  std::shared_ptr<Floats> embedding, head;
  Floats all;  // was low and high
  std::vector<Attention> list;
  std::map<std::string, Attention> map;
  std::variant<First, Attention> either;
  std::optional<Attention> maybe;
};

int migrations = 0;

}  // namespace
}  // namespace stele_test

template <>
struct stele::attributes<stele_test::Attention> {
  static constexpr stele::Attribute list[] = {stele::attr::version(2)};
  static Result<Snapshot> migrate(std::uint32_t from, const Snapshot& old) {
    CHECK(from == 1);
    ++stele_test::migrations;
    const stele::Part parts[] = {{"query", 2}, {"key", 2}, {"value", 2}};
    return split(old, "qkv", 0, parts);
  }
};
template <>
struct stele::attributes<stele_test::Hook> {
  static constexpr stele::Attribute list[] = {stele::attr::version(3)};
  static Result<Snapshot> migrate(std::uint32_t from, const Snapshot& old) {
    CHECK(from == 1);
    const std::string both[] = {"low", "high"};
    return concatenate(old, both, 0, "all");
  }
};

namespace stele_test {

TEST_CASE_TEMPLATE("evolution: a hook rewrites modules wherever they stand", R, STELE_TEST_RECORDERS) {
  const auto check = [](const Hook& m) {
    CHECK(m.all == Floats{3, 4, 5});
    CHECK(m.embedding == m.head);
    CHECK(*m.head == Floats{1, 2});
    REQUIRE(m.list.size() == 2);
    CHECK(numbers(m.list[0].query) == Floats{0, 1, 2, 3});
    CHECK(numbers(m.list[1].key) == Floats{104, 105, 106, 107});
    CHECK(numbers(m.map.at("a").value) == Floats{208, 209, 210, 211});
    CHECK(numbers(std::get<Attention>(m.either).query) == Floats{300, 301, 302, 303});
    REQUIRE(m.maybe);
    CHECK(numbers(m.maybe->query) == Floats{400, 401, 402, 403});
    // Ties between what is rewritten, and of it and the rest.
    CHECK(m.list[0].norm == m.embedding);
    CHECK(m.list[1].norm == m.embedding);
    CHECK(std::get<Attention>(m.either).norm == m.map.at("a").norm);
    CHECK(*m.maybe->norm == Floats{7});
  };
  migrations = 0;
  const Hook fresh = good(R{}.template load<Hook>(old_path<R>("hook")));
  check(fresh);
  CHECK(migrations == 5);  // one for each module
  in_every_way<Hook, R>(old_path<R>("hook"), {}, check);

  // What is written today is not asked about.
  const int before = migrations;
  in_every_way<Hook, R>(good(saved(R{}, fresh)), {}, check);
  CHECK(migrations == before);
}

namespace {

/// What a hook does, for tests of one.
Result<Snapshot> (*hook)(std::uint32_t, const Snapshot&) = nullptr;

struct Hooked {
  Floats weight, bias;
};
struct HookedOuter {
  Hooked inner;
  Floats other;
};
struct Plain {
  Floats w, bias;
};
struct PlainOuter {
  Plain inner{{1, 2}, {3}};
  Floats other{4};
};

}  // namespace
}  // namespace stele_test

template <>
struct stele::attributes<stele_test::Hooked> {
  static constexpr stele::Attribute list[] = {stele::attr::version(7)};
  static stele::Result<stele::Snapshot> migrate(std::uint32_t from, const stele::Snapshot& old) {
    return stele_test::hook(from, old);
  }
};

namespace stele_test {

TEST_CASE_TEMPLATE("evolution: files that say no version count as version 0", R, STELE_TEST_RECORDERS) {
  hook = [](std::uint32_t from, const Snapshot& old) -> Result<Snapshot> {
    CHECK(from == 0);
    CHECK(old.leaf_count() == 2);
    CHECK(old.find("bias"));
    return rename(old, {{"^w$", "weight"}});
  };
  const auto check = [](const HookedOuter& m) {
    CHECK(m.inner.weight == Floats{1, 2});
    CHECK(m.inner.bias == Floats{3});
    CHECK(m.other == Floats{4});
  };
  in_every_way<HookedOuter, R>(good(saved(R{}, PlainOuter{})), {}, check);
  // As the whole of a file.
  CHECK(good(R{}.template load<Hooked>(good(saved(R{}, Plain{{5}, {6}})))).weight == Floats{5});
}

TEST_CASE_TEMPLATE("evolution: errors of a hook are the load's, with the module's path", R, STELE_TEST_RECORDERS) {
  const stele::Bytes file = good(saved(R{}, PlainOuter{}));
  const auto error = [&](Result<Snapshot> (*does)(std::uint32_t, const Snapshot&)) {
    hook = does;
    HookedOuter live{{{1}, {2}}, {3}};
    const stele::Error in_place = bad(R{}.load_into(live, file));
    CHECK(live.other == Floats{3});
    CHECK(live.inner.bias == Floats{2});
    stele::Error fresh = bad(R{}.template load<HookedOuter>(file));
    CHECK(fresh.code() == in_place.code());
    CHECK(fresh.path() == in_place.path());
    CHECK(bad(R{}.template load_record<HookedOuter>(file)).path() == fresh.path());
    return fresh;
  };
  const stele::Error returned = error(
      [](std::uint32_t, const Snapshot&) -> Result<Snapshot> { return stele::Error(Errc::unsupported, "too old"); });
  CHECK(returned.code() == Errc::unsupported);
  CHECK(returned.path() == "inner");
  const stele::Error inside = error([](std::uint32_t, const Snapshot& old) { return transpose(old, "kernel"); });
  CHECK(inside.code() == Errc::not_found);
  CHECK(inside.path() == "inner.kernel");
  const stele::Error thrown =
      error([](std::uint32_t, const Snapshot&) -> Result<Snapshot> { throw std::runtime_error("no idea"); });
  CHECK(thrown.path() == "inner");
  CHECK(thrown.message().find("no idea") != std::string::npos);
  // What it leaves out is missing, what it leaves over is unused.
  const stele::Error missing = error([](std::uint32_t, const Snapshot& old) {
    return filter(old, {{"bias"}, {}, {}});
  });
  CHECK(missing.code() == Errc::missing);
  CHECK(missing.path() == "inner.weight");
  const stele::Error nothing = error([](std::uint32_t, const Snapshot&) -> Result<Snapshot> { return Snapshot(); });
  CHECK(nothing.code() == Errc::missing);
}

TEST_CASE_TEMPLATE("evolution: a hook builds a snapshot of its own", R, STELE_TEST_RECORDERS) {
  hook = [](std::uint32_t, const Snapshot& old) -> Result<Snapshot> {
    stele::SnapshotBuilder builder;
    builder.begin(stele::NodeKind::module, "");
    for (const char* name : {"w", "bias"}) {
      const auto leaf = old.find(name);
      if (!leaf) return stele::Error(Errc::not_found).path(name);
      builder.tensor(name[0] == 'w' ? "weight" : "bias", leaf->dtype(), leaf->shape(), leaf->byte_size(),
                     leaf->provider());
    }
    builder.keep(old.data());
    return builder.finish();
  };
  in_every_way<HookedOuter, R>(good(saved(R{}, PlainOuter{})), {}, [](const HookedOuter& m) {
    CHECK(m.inner.weight == Floats{1, 2});
  });
}

namespace {

struct TiedModules {
  std::shared_ptr<Hooked> a, b;  // one module, rewritten once
  std::shared_ptr<Floats> weight;
};
struct TiedPlain {
  struct One {
    std::shared_ptr<Floats> w;
    Floats bias{3};
  };
  std::shared_ptr<One> a = std::make_shared<One>();
  std::shared_ptr<One> b = a;
  std::shared_ptr<Floats> weight;
  TiedPlain() { weight = a->w = std::make_shared<Floats>(Floats{1, 2}); }
  STELE_MODULE(TiedPlain, a, b, weight)
};

}  // namespace

TEST_CASE_TEMPLATE("evolution: ties of rewritten modules", R, STELE_TEST_RECORDERS) {
  const stele::Bytes file = good(saved(R{}, TiedPlain()));
  static int calls;
  calls = 0;
  hook = [](std::uint32_t, const Snapshot& old) -> Result<Snapshot> {
    ++calls;
    return rename(old, {{"^w$", "weight"}});
  };
  const TiedModules m = good(R{}.template load<TiedModules>(file));
  CHECK(calls == 1);
  CHECK(m.a == m.b);
  CHECK(m.a->weight == Floats{1, 2});
  CHECK(*m.weight == Floats{1, 2});
  // What a hook changes is no longer what the other name has.
  hook = [](std::uint32_t, const Snapshot& old) -> Result<Snapshot> {
    const stele::Part halves[] = {{"bias", 1}, {"weight", 1}};
    STELE_TRY_ASSIGN(const Snapshot bare, filter(old, {{"w"}, {}, {}}));
    return split(bare, "w", 0, halves);
  };
  const TiedModules changed = good(R{}.template load<TiedModules>(file));
  CHECK(changed.a->weight == Floats{2});
  CHECK(changed.a->bias == Floats{1});
  CHECK(changed.a == changed.b);
  CHECK(*changed.weight == Floats{1, 2});
}

namespace {

struct TwoHooks {
  Floats weight, bias;
};
/// Made by a hook of the other kind, in a list.
class Made {
 public:
  explicit Made(Floats w) : weight(std::move(w)) {}
  static Made from_record(stele::Record<Made>&& record) { return Made(record.weight.load().value()); }
  Floats weight;
  STELE_MODULE(Made, weight)
};
struct Makers {
  std::vector<Made> list;
};
struct OldMade {
  Floats w;
};
struct OldMakers {
  std::vector<OldMade> list{OldMade{{1}}, OldMade{{2, 3}}};
};

}  // namespace
}  // namespace stele_test

template <>
struct stele::attributes<stele_test::TwoHooks> {
  static constexpr stele::Attribute list[] = {stele::attr::version(3)};
  static std::string_view migrate(std::uint32_t, std::string_view field) { return field == "weight" ? "kernel" : ""; }
  static Result<Snapshot> migrate(std::uint32_t, const Snapshot& old) { return rename(old, {{"^w$", "weight"}}); }
};
template <>
struct stele::attributes<stele_test::Made> {
  static constexpr stele::Attribute list[] = {stele::attr::version(1)};
  static Result<Snapshot> migrate(std::uint32_t, const Snapshot& old) { return rename(old, {{"^w$", "weight"}}); }
};

namespace stele_test {

TEST_CASE_TEMPLATE("evolution: hooks of several kinds", R, STELE_TEST_RECORDERS) {
  CHECK(good(R{}.template load<TwoHooks>(good(saved(R{}, Plain{{5}, {6}})))).weight == Floats{5});
  const OldMakers old;
  const Makers m = good(R{}.template load<Makers>(good(saved(R{}, old))));
  REQUIRE(m.list.size() == 2);
  CHECK(m.list[1].weight == Floats{2, 3});
}

TEST_CASE("evolution: damage shows behind a hook too") {
  hook = [](std::uint32_t, const Snapshot& old) { return rename(old, {{"^w$", "weight"}}); };
  const stele::Bytes file = good(stele::BytesRecorder<>{}.record(PlainOuter{}));
  std::vector<std::byte> damaged(file.span().begin(), file.span().end());
  damaged[64] ^= std::byte{1};  // in the first block
  const stele::Error e = bad(stele::BytesRecorder<>{}.load<HookedOuter>(std::span<const std::byte>(damaged)));
  CHECK(e.code() == Errc::checksum);
  CHECK(e.path() == "inner.weight");
  // A record reads nothing before it is asked to.
  const auto record = good(stele::BytesRecorder<>{}.load_record<HookedOuter>(std::span<const std::byte>(damaged)));
  const auto& inner = stele::get<"inner">(record);
  CHECK(good(stele::get<"bias">(inner).load()) == Floats{3});
  CHECK(bad(stele::get<"weight">(inner).load()).code() == Errc::checksum);
}

}  // namespace stele_test
