// Numbers of plain aggregates are values that a file may lack; where the format has no place for them, a save says so.
#include <stele/precision/complex.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <array>
#include <complex>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

using namespace stele_test;
using stele::Report;
using stele::Tensor;

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

namespace {

/// A field with a number, in a plain aggregate: a constant that a file may lack.
template <class F>
struct Number {
  Vec weight;
  F number{};
};
template <class F>
struct OptionalNumber {
  Vec weight;
  std::optional<F> number;
};
/// A field with a number, in a class that lists its fields.
template <class F>
class ListedNumber {
 public:
  Vec weight;
  F number{};

 private:
  STELE_MODULE(ListedNumber, weight, number)
};
/// A number as a file of another program stores it.
struct Stored {
  stele::DType dtype = stele::DType::none;
  std::array<std::byte, 8> bytes{};

  template <class T>
  Stored(T number) : dtype(stele::dtype_of_v<T>) {  // NOLINT(google-explicit-constructor)
    std::memcpy(bytes.data(), &number, sizeof number);
  }
};
constexpr stele::LeafOps stored_ops{
    .view = [](const void* at, std::uint64_t) { return static_cast<const Stored*>(at)->bytes.data(); }};

/// A file with `weight`, and `number` as a tensor of one element.
template <class R>
stele::Bytes file_with(const R& recorder, const Stored& stored, std::size_t rank) {
  const std::vector<stele::Extent> ones(rank, 1);
  const std::vector<stele::Extent> weight{1};
  static const Stored one(1.0F);
  stele::SnapshotBuilder builder;
  builder.begin(stele::NodeKind::module, "");
  builder.tensor("weight", one.dtype, weight, 4, {&stored_ops, &one, 0});
  builder.tensor("number", stored.dtype, ones, stele::element_size(stored.dtype), {&stored_ops, &stored, 0});
  builder.end();
  stele::BufferSink sink;
  good(recorder.save(builder.finish(), sink));
  return sink.take();
}

/// Loads the number by the rules of tensors: the oracle is convert().
template <class F, class R>
void check_number(const R& recorder, const Stored& stored, std::size_t rank) {
  using Raw = typename std::conditional_t<std::is_enum_v<F>, std::underlying_type<F>, std::type_identity<F>>::type;
  CAPTURE(stele::name(stored.dtype));
  CAPTURE(rank);
  const stele::Bytes bytes = file_with(recorder, stored, rank);
  for (const bool kinds : {false, true}) {
    stele::LoadOptions options;
    options.convert.allow_kind_change = kinds;
    CAPTURE(kinds);
    Raw expected{};
    const auto done = stele::convert(stored.dtype, stored.bytes.data(), stele::dtype_of_v<Raw>,
                                     reinterpret_cast<std::byte*>(&expected), 1, options.convert);
    const bool fits = done.status == stele::ConvertStatus::ok;
    const auto check = [&](const stele::Status& loaded, const F& number) {
      CHECK(loaded.has_value() == fits);
      if (loaded) {
        CHECK(static_cast<Raw>(number) == expected);
        return;
      }
      CHECK(loaded.error().path() == "number");
      CHECK(loaded.error().code() == (done.status == stele::ConvertStatus::unsupported ? stele::Errc::dtype_mismatch
                                                                                       : stele::Errc::out_of_range));
    };
    // Missing and unused names never hide the number.
    for (const bool lenient : {false, true}) {
      if (lenient) options.allow_unused = options.allow_missing = {"*"};
      Number<F> plain;
      check(recorder.load_into(plain, bytes, options), plain.number);
      ListedNumber<F> listed;
      check(recorder.load_into(listed, bytes, options), listed.number);
      auto fresh = recorder.template load<OptionalNumber<F>>(bytes, options);
      check(fresh ? stele::Status() : stele::Status(fresh.error()), fresh ? fresh->number.value() : F{});
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("constants: a number loads from a tensor of one element, of any rank", F, float, double,
                   stele::float16, std::int8_t, std::uint8_t, std::int32_t, std::int64_t, std::uint64_t, bool,
                   Activation) {
  const Stored all[] = {0.0F,
                        1.0F,
                        -2.5F,
                        1e30F,
                        1.0,
                        1e300,
                        stele::float16(1.5F),
                        stele::bfloat16(-3.0F),
                        std::int8_t{-1},
                        std::uint8_t{200},
                        std::int32_t{1},
                        std::int32_t{70'000},
                        std::int64_t{7},
                        std::int64_t{INT64_MIN},
                        std::uint64_t{1},
                        std::uint64_t{UINT64_MAX},
                        true,
                        false};
  for (const Stored& stored : all) {
    for (const std::size_t rank : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
      check_number<F>(stele::SafetensorsRecorder<>(), stored, rank);  // whole paths
      check_number<F>(stele::BytesRecorder<>(), stored, rank);        // nested names
    }
  }
}

TEST_CASE("constants: a tensor that is not the field's value is an error") {
  struct Model {
    Vec weight;
    float scale = 3;
  };
  struct Texts {
    Vec weight;
    std::string scale = "3";
  };
  struct Others {
    Vec weight;
    Tensor<float, 1> scale;
  };
  struct Complex {
    Vec weight;
    Tensor<std::complex<float>, 0> scale;
  };
  stele::LoadOptions options;
  options.allow_unused = options.allow_missing = {"*"};
  const auto check = [&](const auto& other, auto model, stele::Errc code) {
    const auto each = [&](auto recorder) {
      stele::BufferSink sink;
      good(recorder.save(other, sink));
      const auto failed = recorder.load_into(model, sink.take(), options);
      REQUIRE_FALSE(failed);
      CHECK(failed.error().code() == code);
      CHECK(failed.error().path() == "scale");
    };
    each(stele::SafetensorsRecorder<>());
    each(stele::BytesRecorder<>());
  };
  const Others two{vec({1}), Tensor<float, 1>::filled({2}, 1)}, none{vec({1}), Tensor<float, 1>::filled({0}, 1)},
      one{vec({1}), Tensor<float, 1>::filled({1}, 1)};
  check(two, Model(), stele::Errc::shape_mismatch);
  check(none, Model(), stele::Errc::shape_mismatch);
  check(one, Texts(), stele::Errc::kind_mismatch);
  check(Complex{vec({1}), Tensor<std::complex<float>, 0>::filled({}, 1)}, Model(), stele::Errc::dtype_mismatch);
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
