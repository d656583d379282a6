// Every kind of field there and back; texts of paths.
#include <stele/module.hpp>
#include <stele/precision/complex.hpp>
#include <stele/record.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/snapshot.hpp>
#include <stele/tensor.hpp>
#include <stele/value.hpp>

#include <doctest/doctest.h>

#include <array>
#include <complex>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "support/models.hpp"

namespace load_test {

using namespace stele_test;
using stele::Errc;
using stele::LoadOptions;
using stele::Param;
using stele::ParamId;
using stele::Snapshot;
using stele::Tensor;
using stele::Value;

namespace {

using One = std::array<float, 1>;

/// Through a Snapshot, a typed record, and bytes of two formats: the same each time.
template <class M>
M round_trip(const M& m) {
  const Image wanted = image(m);
  CHECK(image(good(stele::from_record(good(stele::record_of(m))))) == wanted);
  const stele::Bytes bytes = good(stele::BytesRecorder<>{}.save(m));
  CHECK(image(good(stele::BytesRecorder<>{}.load<M>(bytes))) == wanted);
  stele::BufferSink sink;
  good(stele::SafetensorsRecorder<>{}.save(m, sink));
  const stele::Bytes flat = sink.take();
  stele::Report report;
  const M from_flat = good(stele::SafetensorsRecorder<>{}.load<M>(flat, {.report = &report}));
  CHECK(image(from_flat).values == wanted.values);
  CHECK(tensor_paths(from_flat) == tensor_paths(m));
  M back = good(stele::load<M>(snapshot(m)));
  CHECK(image(back) == wanted);
  M in_place = good(stele::load<M>(snapshot(m)));
  good(stele::load_into(in_place, snapshot(m)));
  CHECK(image(in_place) == wanted);
  return back;
}

template <class T>
Tensor<T, 1> pair_of(T a, T b) {
  return Tensor<T, 1>({2}, {a, b});
}

struct EveryElement {
  Tensor<double, 1> f64 = pair_of(1.5, -0.0);
  Tensor<float, 1> f32 = pair_of(1.5F, std::numeric_limits<float>::infinity());
  Tensor<stele::float16, 1> f16 = pair_of(stele::float16(1.5F), stele::float16::from_bits(0x7e01));
  Tensor<stele::bfloat16, 1> bf16 = pair_of(stele::bfloat16(1.5F), stele::bfloat16(-2));
  Tensor<std::int64_t, 1> i64 = pair_of<std::int64_t>(INT64_MIN, INT64_MAX);
  Tensor<std::int32_t, 1> i32 = pair_of<std::int32_t>(INT32_MIN, INT32_MAX);
  Tensor<std::int16_t, 1> i16 = pair_of<std::int16_t>(INT16_MIN, INT16_MAX);
  Tensor<std::int8_t, 1> i8 = pair_of<std::int8_t>(INT8_MIN, INT8_MAX);
  Tensor<std::uint64_t, 1> u64 = pair_of<std::uint64_t>(1, UINT64_MAX);
  Tensor<std::uint32_t, 1> u32 = pair_of<std::uint32_t>(1, UINT32_MAX);
  Tensor<std::uint16_t, 1> u16 = pair_of<std::uint16_t>(1, UINT16_MAX);
  Tensor<std::uint8_t, 1> u8 = pair_of<std::uint8_t>(1, UINT8_MAX);
  Tensor<std::byte, 1> bytes = pair_of(std::byte{1}, std::byte{255});
  Tensor<bool, 1> boolean = pair_of(true, false);
  Tensor<std::complex<float>, 1> c64 = pair_of(std::complex<float>(1, 2), std::complex<float>(3, -4));
};

struct Tensors {
  Mat u64_id, uuid, none;
  Tensor<float> any_rank;
  Tensor<float, 0> scalar;
  Tensor<float, 3> empty;
  Tensor<const float, 1> constant;
  std::vector<float> sequence;
  std::vector<std::int32_t> integers;  // listed
  std::array<bool, 3> truths{};
  std::array<std::array<double, 2>, 3> nested{};
  float c_array[2][2] = {};
  Param<std::vector<float>> learned_vector;
  std::vector<std::vector<float>> ragged;
  Tensor<float> rank9;
  STELE_MODULE(Tensors, u64_id, uuid, none, any_rank, scalar, empty, constant, sequence, integers, truths, nested,
               c_array, learned_vector, ragged, rank9)
};

enum class Color : std::uint8_t { red = 1, green = 200 };
struct Values {
  bool yes = true;
  std::int8_t i8 = INT8_MIN;
  std::int64_t i64 = INT64_MIN;
  std::uint64_t u64 = UINT64_MAX;
  unsigned short u16 = 65535;
  char letter = 'x';
  Color color = Color::green;
  float real = 0.1F;
  double wide = 1e300;
  double infinite = -std::numeric_limits<double>::infinity();
  stele::float16 half{0.5F};
  std::string text = "grüße";
  std::string none{};
  std::vector<std::string> texts{"a", "", "c"};
  std::optional<int> some = 4;
  std::optional<int> nothing;
  std::map<std::string, double> table{{"x", 1.5}};
  std::pair<int, std::string> pair{1, "one"};
  std::unique_ptr<int> pointer = std::make_unique<int>(9);
  Value any = Value(Value::Map{{"k", Value(Value::List{Value(1.5), Value(), Value("t")})}});
  One weight{1};
  STELE_MODULE(Values, yes, i8, i64, u64, u16, letter, color, real, wide, infinite, half, text, none, texts, some,
               nothing, table, pair, pointer, any, weight)
};

struct Containers {
  std::optional<Vec> present, absent;
  std::vector<Linear> list;
  std::vector<Linear> empty_list;
  std::deque<Vec> queue;
  std::array<Linear, 2> fixed;
  std::tuple<Vec, Linear, int> tuple;
  std::pair<Vec, std::optional<Vec>> pair;
  std::map<std::string, Linear> map;
  std::unordered_map<std::string, Vec> hashed;
  std::map<std::string, Vec> empty_map;
  std::variant<Vec, Linear> first, second;
  std::variant<std::monostate, Vec> maybe;
  std::unique_ptr<Linear> pointer, null;
  std::optional<std::optional<Vec>> twice;
  std::vector<std::optional<Vec>> holes;
  std::vector<std::map<std::string, std::vector<Vec>>> deep;
  Mlp nested;
  STELE_MODULE(Containers, present, absent, list, empty_list, queue, fixed, tuple, pair, map, hashed, empty_map, first,
               second, maybe, pointer, null, twice, holes, deep, nested)
};

struct Views {
  std::span<float> span;
  stele::TensorView<float, 2> view;
  std::span<float, 3> fixed;
  STELE_MODULE(Views, span, view, fixed)
};
struct Wide {
  std::int64_t number = 300;
  One w{};
  STELE_MODULE(Wide, number, w)
};
struct Narrow {
  std::uint8_t number = 1;
  One w{};
  STELE_MODULE(Narrow, number, w)
};
struct Text {
  std::string number;
  One w{};
  STELE_MODULE(Text, number, w)
};

Containers containers() {
  Containers c;
  c.present = vec({1});
  c.list.emplace_back(2, 3, 10.0F);
  c.list.emplace_back(3, 1, 20.0F, false);
  c.queue.emplace_back(vec({1}));
  c.queue.emplace_back(vec({2, 3}));
  c.fixed = {Linear(1, 1, 1), Linear(1, 2, 2, false)};
  c.tuple = {vec({4}), Linear(1, 1, 5), 6};
  c.pair = {vec({7}), vec({8})};
  c.map["a"] = Linear(1, 1, 9);
  for (const char* key : {"z", "y", "b", "a", "c", "k10", "k9"}) c.hashed[key] = vec({static_cast<float>(key[0])});
  c.first = vec({10});
  c.second = Linear(2, 2, 11);
  c.pointer = std::make_unique<Linear>(1, 1, 12.0F);
  c.twice.emplace(vec({13}));
  c.holes.resize(3);
  c.holes[1] = vec({14});
  c.deep.resize(2);
  c.deep[1]["x"].emplace_back(vec({15}));
  c.deep[1]["y"];
  c.nested = small_mlp(16);
  return c;
}

}  // namespace

TEST_CASE("load: tensors of every element type") {
  const EveryElement m;
  const EveryElement back = round_trip(m);
  CHECK(back.i64[0] == INT64_MIN);
  CHECK(back.f16[1].bits == 0x7e01);
  CHECK(std::signbit(back.f64[1]));
  CHECK(back.boolean[0]);
  CHECK(back.c64[1] == std::complex<float>(3, -4));
  CHECK(good(stele::snapshot_of(m)).leaf(14).dtype() == stele::DType::c64);
}

TEST_CASE("load: every kind of tensor field") {
  Tensors m;
  m.u64_id = Mat(mat(2, 2, 1), ParamId::from_u64(UINT64_MAX));
  m.uuid = Mat(mat(1, 2, 5), ParamId::from_uuid(0x0123456789abcdef, 0xfedcba9876543210));
  m.none = mat(1, 1, 9);
  m.any_rank = Tensor<float>({1, 2, 1, 2}, {1, 2, 3, 4});
  m.scalar = Tensor<float, 0>({}, {7});
  m.empty = Tensor<float, 3>({2, 0, 3});
  m.constant = Tensor<const float, 1>({2}, {1, 2});
  m.sequence = {1, 2, 3};
  m.integers = {4, -5};
  m.truths = {true, false, true};
  m.nested = {{{1, 2}, {3, 4}, {5, 6}}};
  m.c_array[1][0] = 8;
  m.learned_vector = Param(std::vector<float>{6}, ParamId::from_u64(1));
  m.ragged = {{1}, {}, {2, 3}};
  m.rank9 = Tensor<float>(stele::Shape{1, 1, 2, 1, 1, 1, 1, 1, 2}, {1, 2, 3, 4});
  const Snapshot s = snapshot(m);
  CHECK(s.find("nested")->shape().size() == 2);
  CHECK(s.find("nested")->shape()[0] == 3);
  CHECK(s.find("c_array")->shape()[1] == 2);
  CHECK(s.find("scalar")->shape().empty());
  CHECK(s.find("ragged.2")->size() == 2);
  CHECK(s.find("rank9")->shape()[8] == 2);
  const Tensors back = round_trip(m);
  CHECK(back.u64_id.id == ParamId::from_u64(UINT64_MAX));
  CHECK(back.uuid.id == m.uuid.id);
  CHECK_FALSE(back.none.id.has_value());
  CHECK(back.learned_vector.id == ParamId::from_u64(1));
  CHECK(back.integers == m.integers);
  CHECK(back.nested == m.nested);
  CHECK(back.empty.shape() == m.empty.shape());
}

TEST_CASE("load: a tensor that is not set yet") {
  struct Unset {
    Tensor<float> dynamic;
    Tensor<float, 2> fixed_rank;
    std::vector<float> sequence;
  };
  const Unset back = round_trip(Unset{});
  CHECK(back.dynamic.size() == 0);
  CHECK(stele::num_params(Unset{}) == 0);
  // It takes any shape in place.
  const Unset full{Tensor<float>({1, 2}, {1, 2}), mat(1, 1, 3), {4, 5}};
  Unset in_place;
  good(stele::load_into(in_place, snapshot(full)));
  CHECK(image(in_place) == image(full));
}

TEST_CASE("load: views and spans are filled where they point") {
  std::vector<float> a(3), b(4);
  std::array<float, 3> c{};
  Views v{a, {b.data(), {2, 2}}, c};
  struct Full {
    std::vector<float> span;
    Tensor<float, 2> view;
    std::array<float, 3> fixed{};
  };
  const Full full{{1, 2, 3}, mat(2, 2, 4), {8, 9, 10}};
  good(stele::load_into(v, snapshot(full)));
  CHECK(a == std::vector<float>{1, 2, 3});
  CHECK(b == std::vector<float>{4, 5, 6, 7});
  CHECK(c[2] == 10);
  CHECK(image(v) == image(full));
  const Full wrong{{1, 2}, mat(2, 2, 4), {}};
  CHECK(bad(stele::load_into(v, snapshot(wrong))).code() == Errc::shape_mismatch);
  LoadOptions rebuild;
  rebuild.rebuild = true;  // cannot make a view longer
  CHECK(bad(stele::load_into(v, snapshot(wrong), rebuild)).path() == "span");
  CHECK(image(v) == image(full));
}

TEST_CASE("load: values of every kind") {
  const Values m;
  Values back;
  back.i64 = 0, back.color = Color::red, back.text = "?", back.any = Value(), back.some.reset();
  back = round_trip(m);
  CHECK(back.i64 == INT64_MIN);
  CHECK(back.u64 == UINT64_MAX);
  CHECK(back.color == Color::green);
  CHECK(back.real == 0.1F);
  CHECK(back.text == m.text);
  CHECK(back.texts == m.texts);
  CHECK(back.some == 4);
  CHECK_FALSE(back.nothing.has_value());
  CHECK(back.any == m.any);
  CHECK(*back.pointer == 9);
}

TEST_CASE("load: values that do not fit are errors") {
  const stele::Error fresh = bad(stele::load<Narrow>(snapshot(Wide{})));
  CHECK(fresh.code() == Errc::value_mismatch);
  CHECK(fresh.path() == "number");
  CHECK(fresh.expected().find("8 bits") != std::string::npos);
  CHECK(fresh.found().find("300") != std::string::npos);
  Narrow n;
  CHECK(bad(stele::load_into(n, snapshot(Wide{}))).code() == Errc::value_mismatch);
  CHECK(n.number == 1);
  good(stele::load_into(n, snapshot(Wide{200, {}})));
  CHECK(n.number == 200);
  CHECK(bad(stele::load<Narrow>(snapshot(Wide{-1, {}}))).code() == Errc::value_mismatch);
  CHECK(bad(stele::load<Text>(snapshot(Wide{}))).expected() == "a string");
  struct TensorThere {
    One number{};
    One w{};
  };
  CHECK(bad(stele::load<Wide>(snapshot(TensorThere{}))).code() == Errc::dtype_mismatch);
  CHECK(bad(stele::load<TensorThere>(snapshot(Wide{}))).code() == Errc::kind_mismatch);
}

TEST_CASE("load: every container") {
  const Containers m = containers();
  const Containers back = round_trip(m);
  CHECK_FALSE(back.absent.has_value());
  CHECK(back.list.size() == 2);
  CHECK_FALSE(back.list[1].bias.has_value());
  CHECK(back.queue.size() == 2);
  CHECK(std::get<2>(back.tuple) == 6);
  CHECK(back.hashed.size() == 7);
  CHECK(back.first.index() == 0);
  CHECK(back.second.index() == 1);
  CHECK(back.null == nullptr);
  CHECK((**back.twice)->size() == 1);
  CHECK(back.holes.size() == 3);
  CHECK(back.deep[1].at("y").empty());
  CHECK(back.nested.layers.size() == 2);
}

TEST_CASE("load: an unordered map is written in the order of its keys") {
  const Containers c = containers();
  const Snapshot s = snapshot(c.hashed);
  Paths paths;
  for (std::size_t i = 0; i < s.leaf_count(); ++i) paths.push_back(s.leaf(i).path());
  CHECK(paths == Paths{"a", "b", "c", "k10", "k9", "y", "z"});
}

TEST_CASE("load: texts of paths") {
  struct Model {
    std::map<std::string, std::map<std::string, Vec>> m;
  };
  Model model;
  for (const char* key : {"", ".", "\\", "a.b", "a\\b", "\\e", "plain", "0", "ü"}) model.m[key]["w"] = vec({1});
  model.m["a"]["b"] = vec({2});
  CHECK(tensor_paths(model) == Paths{"m.\\e.w", "m.\\..w", "m.0.w", "m.\\\\.w", "m.\\\\e.w", "m.a.b", "m.a\\.b.w",
                                     "m.a\\\\b.w", "m.plain.w", "m.ü.w"});
  CHECK(round_trip(model).m.size() == 10);
  const Snapshot s = snapshot(model);
  CHECK(s.find("m.a\\.b.w").has_value());
  CHECK_FALSE(s.find("m.a.b.w").has_value());
  std::string text;
  stele::append_segment(text, "a.b\\");
  CHECK(text == "a\\.b\\\\");
}

}  // namespace load_test
