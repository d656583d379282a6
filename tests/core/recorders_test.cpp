// One behaviour, every recorder. What a format cannot hold is asked of its capabilities.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>

#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

using Floats = Tensor<float, 1>;

Floats floats(std::initializer_list<float> values) { return Floats({values.size()}, values); }

class Layer {
 public:
  Param<Tensor<float, 2>> weight;
  std::optional<Param<Floats>> bias;
  int unlisted = 7;
  STELE_MODULE(Layer, weight, bias)
};

Layer layer(std::size_t rows, std::size_t columns, float first, bool bias) {
  Layer l;
  l.weight = Tensor<float, 2>({rows, columns});
  for (std::size_t i = 0; i < l.weight->size(); ++i) (*l.weight)[i] = first + static_cast<float>(i);
  if (bias) l.bias = Floats::filled({rows}, first);
  return l;
}

struct Model {
  std::vector<Layer> layers;
  std::map<std::string, Tensor<double>> heads;
  std::variant<Nothing, Layer> act;
  std::shared_ptr<Floats> embedding, unembedding;
  std::int64_t step = 0;
  std::string note;
  STELE_MODULE(Model, layers, heads, act, embedding, unembedding, step, note)
};

Model model() {
  Model m;
  m.layers.push_back(layer(3, 4, 1, true));
  m.layers.push_back(layer(2, 3, -5, false));
  m.heads.emplace("mean", Tensor<double>({2}, {0.5, -0.25}));
  m.heads.emplace("scale", Tensor<double>(Shape{}, {3.5}));
  m.act = layer(1, 1, 9, true);
  m.embedding = m.unembedding = std::make_shared<Floats>(floats({1, 2, 3}));
  m.step = -42;
  m.note = "trained";
  return m;
}

/// Everything that is recorded of two modules is the same, bit by bit.
template <class M>
void check_same(const M& a, const M& b, const Capabilities& can) {
  const auto before = snapshot_of(a);
  const auto after = snapshot_of(b);
  REQUIRE_MESSAGE(before, why(before));
  REQUIRE_MESSAGE(after, why(after));
  Capabilities nested = can;
  nested.nesting = true;
  CHECK(difference(facts(*before, nested), facts(*after, nested)) == "");
}

template <class R, class M>
M reloaded(const R& recorder, const M& module, const LoadOptions& options = {}, Report* report = nullptr) {
  auto bytes = saved(recorder, module);
  REQUIRE_MESSAGE(bytes, why(bytes));
  auto loaded = recorder.template load<M>(*bytes, options, report);
  REQUIRE_MESSAGE(loaded, why(loaded));
  return *std::move(loaded);
}

template <class T>
void check_bits(const T& a, const T& b) {
  REQUIRE(a.shape() == b.shape());
  CHECK(text_of(std::as_bytes(a.span())) == text_of(std::as_bytes(b.span())));
}

}  // namespace

TEST_CASE_TEMPLATE("recorders: a module comes back as it was", R, STELE_TEST_RECORDERS) {
  const R recorder;
  const Model before = model();
  Report report;
  const Model after = reloaded(recorder, before, {}, &report);
  check_same(before, after, can<R>());
  REQUIRE(after.layers.size() == 2);
  CHECK((*after.layers[0].weight)(2, 3) == 12);
  CHECK(after.layers[0].unlisted == 7);
  REQUIRE(after.layers[0].bias);
  CHECK(!after.layers[1].bias);
  CHECK(after.heads.at("scale").rank() == 0);
  CHECK(after.heads.at("scale")[0] == 3.5);
  REQUIRE(after.act.index() == 1);
  CHECK(after.embedding == after.unembedding);
  CHECK(after.step == -42);
  CHECK(after.note == "trained");
  CHECK(report.count(Report::What::unused) == 0);
  CHECK(report.count(Report::What::missing) == 0);
  CHECK(report.count(Report::What::converted) == 0);

  SUBCASE("in place") {
    Model other = model();
    for (Layer& l : other.layers) std::fill(l.weight->begin(), l.weight->end(), 0.F);
    other.step = 0;
    const auto tied = other.embedding;
    (*tied)[1] = 0;
    auto bytes = saved(recorder, before);
    REQUIRE(bytes);
    const auto loaded = recorder.load_into(other, *bytes);
    REQUIRE_MESSAGE(loaded, why(loaded));
    check_same(before, other, can<R>());
    CHECK(other.embedding == tied);
  }
  SUBCASE("an empty model") {
    Model none;
    check_same(none, reloaded(recorder, none), can<R>());
  }
}

namespace {
struct Mine {
  using Float = bfloat16;
  using Int = std::int16_t;
};

struct Numbers {
  Tensor<double, 1> f64{{4}, {1.0, -2.5, 0.1, 60000.0}};
  Floats f32 = floats({0.1F, -3.0F, 1e-7F});
  Tensor<float16, 1> f16{{2}, {float16(1.5F), float16(-0.0F)}};
  Tensor<bfloat16, 1> bf16{{2}, {bfloat16(2.5F), bfloat16(1e4F)}};
  Tensor<std::int64_t, 1> i64{{2}, {-32768, 32767}};
  Tensor<std::int32_t, 1> i32{{2}, {-1, 5}};
  Tensor<std::int8_t, 1> i8{{2}, {-128, 127}};
  Tensor<std::uint32_t, 1> u32{{1}, {4000000000U}};
  Tensor<bool, 1> mask{{3}, {true, false, true}};
  double real = 0.1;
  STELE_MODULE(Numbers, f64, f32, f16, bf16, i64, i32, i8, u32, mask, real)
};

template <class R, class Settings>
void check_precision() {
  const at_precision_t<R, Settings> recorder;
  constexpr PrecisionSpec spec = precision_spec<Settings>();
  const Numbers before;
  auto bytes = saved(recorder, before);
  REQUIRE_MESSAGE(bytes, why(bytes));
  const auto file = recorder.open(*bytes);
  REQUIRE_MESSAGE(file, why(file));
  const auto module = snapshot_of(before);
  REQUIRE(module);
  REQUIRE(file->leaf_count() == module->leaf_count());
  for (std::size_t i = 0; i < module->leaf_count(); ++i) {
    const LeafView leaf = module->leaf(i);
    CAPTURE(leaf.path());
    const DType to = spec.apply(leaf.dtype());
    const auto there = file->find(leaf.path());
    REQUIRE(there);
    CHECK(there->dtype() == to);
    std::string expected(static_cast<std::size_t>(leaf.size()) * element_size(to), '\0');
    const auto outcome =
        convert(leaf.dtype(), leaf.view().data(), to, std::as_writable_bytes(std::span(expected)).data(), leaf.size());
    REQUIRE(outcome.status == ConvertStatus::ok);
    const auto found = content(*there);
    REQUIRE_MESSAGE(found, why(found));
    CHECK(*found == expected);
  }
  Report report;
  const auto after = recorder.template load<Numbers>(*bytes, {}, &report);
  REQUIRE_MESSAGE(after, why(after));
  check_bits(after->mask, before.mask);
  check_bits(after->u32, before.u32);
  check_bits(after->i64, before.i64);
  CHECK(after->real == before.real);
  CHECK(std::abs(after->f32[0] - 0.1F) < 1e-3F);
  CHECK(std::abs(after->f64[3] - 60000.0) < 400.0);
  std::size_t changed = 0;
  for (std::size_t i = 0; i < module->leaf_count(); ++i) {
    changed += spec.apply(module->leaf(i).dtype()) != module->leaf(i).dtype();
  }
  CHECK(report.count(Report::What::converted) == changed);
}
}  // namespace

TEST_CASE_TEMPLATE("recorders: every precision", R, STELE_TEST_RECORDERS) {
  SUBCASE("native") { check_precision<R, NativePrecision>(); }
  SUBCASE("full") { check_precision<R, FullPrecision>(); }
  SUBCASE("double") { check_precision<R, DoublePrecision>(); }
  SUBCASE("half") { check_precision<R, HalfPrecision>(); }
  SUBCASE("brain") { check_precision<R, BrainPrecision>(); }
  SUBCASE("a user's own with integers") { check_precision<R, Mine>(); }
  SUBCASE("an integer that does not fit") {
    Numbers n;
    n.i64[1] = 32768;
    const at_precision_t<R, Mine> recorder;
    const auto bytes = saved(recorder, n);
    CHECK(code_of(bytes) == Errc::out_of_range);
    CHECK(bytes.error().path() == "i64");
    CHECK(bytes.error().found().find("element 1") != std::string::npos);
  }
  SUBCASE("an overflow that is allowed") {
    Numbers n;
    n.f32[0] = 1e6F;
    const at_precision_t<R, HalfPrecision> recorder;
    CHECK(code_of(saved(recorder, n)) == Errc::out_of_range);
    SaveOptions options;
    options.convert.allow_overflow = true;
    auto bytes = saved(recorder, n, options);
    REQUIRE_MESSAGE(bytes, why(bytes));
    const auto after = recorder.template load<Numbers>(*bytes);
    REQUIRE(after);
    CHECK(std::isinf(after->f32[0]));
  }
}

namespace {
struct Narrow {
  std::optional<Tensor<float16, 1>> f;
  std::optional<Tensor<std::int8_t, 1>> i;
  STELE_MODULE(Narrow, f, i)
};

struct Wide {
  std::optional<Tensor<double, 1>> f;
  std::optional<Tensor<std::uint64_t, 1>> i;
  STELE_MODULE(Wide, f, i)
};

struct Mask {
  std::optional<Tensor<bool, 1>> f;
  std::optional<Tensor<float, 1>> i;
  STELE_MODULE(Mask, f, i)
};

struct Half {
  std::optional<Tensor<float, 1>> i;
  STELE_MODULE(Half, i)
};
}  // namespace

TEST_CASE_TEMPLATE("recorders: a load at another dtype", R, STELE_TEST_RECORDERS) {
  const R recorder;
  Wide wide;
  wide.f = Tensor<double, 1>({3}, {0.1, -0.0, 1e-9});
  wide.i = Tensor<std::uint64_t, 1>({2}, {0, 127});
  auto bytes = saved(recorder, wide);
  REQUIRE(bytes);
  SUBCASE("narrower") {
    Report report;
    const auto narrow = recorder.template load<Narrow>(*bytes, {}, &report);
    REQUIRE_MESSAGE(narrow, why(narrow));
    CHECK((*narrow->f)[0].bits == float16(0.1F).bits);
    CHECK((*narrow->f)[1].bits == 0x8000);
    CHECK((*narrow->i)[1] == 127);
    REQUIRE(report.count(Report::What::converted) == 2);
    bool lossy = false;
    for (std::size_t i = 0; i < report.size(); ++i) {
      if (report[i].path == "f") lossy = report[i].detail == "f64 -> f16, lossy";
    }
    CHECK(lossy);
  }
  SUBCASE("wider is exact") {
    Narrow narrow;
    narrow.f = Tensor<float16, 1>({1}, {float16::from_bits(1)});
    narrow.i = Tensor<std::int8_t, 1>({1}, {5});
    auto small = saved(recorder, narrow);
    REQUIRE(small);
    const auto back = recorder.template load<Wide>(*small);
    REQUIRE_MESSAGE(back, why(back));
    CHECK((*back->f)[0] == std::ldexp(1.0, -24));
    CHECK((*back->i)[0] == 5);
  }
  SUBCASE("out of range") {
    wide.i = Tensor<std::uint64_t, 1>({2}, {0, 128});
    auto big = saved(recorder, wide);
    REQUIRE(big);
    const auto narrow = recorder.template load<Narrow>(*big);
    CHECK(code_of(narrow) == Errc::out_of_range);
    CHECK(narrow.error().path() == "i");
    Narrow live;
    live.f = Tensor<float16, 1>({3}, {float16(1), float16(2), float16(3)});
    live.i = Tensor<std::int8_t, 1>({2}, {1, 2});
    CHECK(code_of(recorder.load_into(live, *big)) == Errc::out_of_range);
    CHECK((*live.f)[0] == float16(1));  // nothing was touched
    CHECK((*live.i)[1] == 2);
  }
  SUBCASE("another kind of number only when allowed") {
    CHECK(code_of(recorder.template load<Mask>(*bytes)) == Errc::dtype_mismatch);
    LoadOptions options;
    options.convert.allow_kind_change = true;
    options.allow_unused = {"f"};
    const auto half = recorder.template load<Half>(*bytes, options);
    REQUIRE_MESSAGE(half, why(half));
    CHECK((*half->i)[1] == 127.F);
  }
}

TEST_CASE_TEMPLATE("recorders: metadata is kept", R, STELE_TEST_RECORDERS) {
  const R recorder;
  SaveOptions options;
  options.metadata = {{"author", "caf\u00e9 \U0001f600"}, {"", "no key"}, {"empty", ""}, {"quote\"", "a\nb\\c"}};
  auto bytes = saved(recorder, model(), options);
  if (!can<R>().metadata) {
    CHECK(code_of(bytes) == Errc::not_representable);
    return;
  }
  REQUIRE_MESSAGE(bytes, why(bytes));
  const auto file = recorder.open(*bytes);
  REQUIRE_MESSAGE(file, why(file));
  CHECK(file->metadata() == options.metadata);
  const auto after = recorder.template load<Model>(*bytes);
  CHECK_MESSAGE(after, why(after));
  // Through a Snapshot they stay, and are replaced by key.
  SaveOptions more;
  more.metadata = {{"author", "another"}};
  auto again = saved(recorder, *file, more);
  REQUIRE(again);
  auto expected = options.metadata;
  expected["author"] = "another";
  CHECK(recorder.open(*again).value().metadata() == expected);
}

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

TEST_CASE_TEMPLATE("recorders: ties stay ties", R, STELE_TEST_RECORDERS) {
  if (!can<R>().aliases || !can<R>().values) return;
  const R recorder;
  Ties t;
  t.a = t.b = std::make_shared<Floats>(floats({1, 2}));
  t.layers = {std::make_shared<Layer>(layer(2, 2, 0, true)), std::make_shared<Layer>(layer(2, 2, 0, true))};
  t.layers.push_back(t.layers[0]);
  t.layers.push_back(nullptr);
  t.note = t.same_note = std::make_shared<std::string>("one");
  t.list = t.same_list = std::make_shared<std::vector<Floats>>();
  Report report;
  const Ties after = reloaded(recorder, t, {}, &report);
  CHECK(after.a == after.b);
  REQUIRE(after.layers.size() == 4);
  CHECK(after.layers[0] == after.layers[2]);
  CHECK(after.layers[0] != after.layers[1]);
  CHECK(after.layers[3] == nullptr);
  CHECK(after.note == after.same_note);
  CHECK(after.list == after.same_list);
  CHECK(report.count(Report::What::tied) >= 4);
  check_same(t, after, can<R>());
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
    const auto apart = recorder.template load<Apart>(*bytes, options);
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

TEST_CASE_TEMPLATE("recorders: values keep every bit", R, STELE_TEST_RECORDERS) {
  if (!can<R>().values) return;
  const R recorder;
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

TEST_CASE_TEMPLATE("recorders: empty and conditional containers", R, STELE_TEST_RECORDERS) {
  if (!can<R>().values) return;
  const R recorder;
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
  check_same(c, after, can<R>());
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
