// One behaviour, every recorder: modules, precision, metadata. What a format cannot hold is asked of its capabilities.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/recorder_models.hpp"

namespace recorders_test {

using namespace recorder_models;

STELE_TEST_EACH_RECORDER("recorders: a module comes back as it was") {
  const Model before = model();
  Report report;
  const Model after = reloaded(recorder, before, {.report = &report});
  check_same(before, after, can(recorder));
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
    check_same(before, other, can(recorder));
    CHECK(other.embedding == tied);
  }
  SUBCASE("an empty model") {
    Model none;
    check_same(none, reloaded(recorder, none), can(recorder));
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

template <class Settings>
void check_precision(const AnyRecorder& native) {
  const Recorder<AnyFormat, Settings> recorder(native.format());
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
        convert(leaf.dtype(), leaf.view().data(), to, std::as_writable_bytes(std::span(expected)).data(),
                static_cast<std::size_t>(leaf.size()));
    REQUIRE(outcome.status == ConvertStatus::ok);
    const auto found = content(*there);
    REQUIRE_MESSAGE(found, why(found));
    CHECK(*found == expected);
  }
  Report report;
  const auto after = recorder.template load<Numbers>(*bytes, {.report = &report});
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

STELE_TEST_EACH_RECORDER("recorders: every precision") {
  SUBCASE("native") { check_precision<NativePrecision>(recorder); }
  SUBCASE("full") { check_precision<FullPrecision>(recorder); }
  SUBCASE("double") { check_precision<DoublePrecision>(recorder); }
  SUBCASE("half") { check_precision<HalfPrecision>(recorder); }
  SUBCASE("brain") { check_precision<BrainPrecision>(recorder); }
  SUBCASE("a user's own with integers") { check_precision<Mine>(recorder); }
  SUBCASE("an integer that does not fit") {
    Numbers n;
    n.i64[1] = 32768;
    const Recorder<AnyFormat, Mine> narrow(recorder.format());
    const auto bytes = saved(narrow, n);
    CHECK(code_of(bytes) == Errc::out_of_range);
    CHECK(bytes.error().path() == "i64");
    CHECK(bytes.error().found().find("element 1") != std::string::npos);
  }
  SUBCASE("an overflow that is allowed") {
    Numbers n;
    n.f32[0] = 1e6F;
    const Recorder<AnyFormat, HalfPrecision> half(recorder.format());
    CHECK(code_of(saved(half, n)) == Errc::out_of_range);
    SaveOptions options;
    options.convert.allow_overflow = true;
    auto bytes = saved(half, n, options);
    REQUIRE_MESSAGE(bytes, why(bytes));
    const auto after = half.load<Numbers>(*bytes);
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

STELE_TEST_EACH_RECORDER("recorders: a load at another dtype") {
  Wide wide;
  wide.f = Tensor<double, 1>({3}, {0.1, -0.0, 1e-9});
  wide.i = Tensor<std::uint64_t, 1>({2}, {0, 127});
  auto bytes = saved(recorder, wide);
  REQUIRE(bytes);
  SUBCASE("narrower") {
    Report report;
    const auto narrow = recorder.load<Narrow>(*bytes, {.report = &report});
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
    const auto back = recorder.load<Wide>(*small);
    REQUIRE_MESSAGE(back, why(back));
    CHECK((*back->f)[0] == std::ldexp(1.0, -24));
    CHECK((*back->i)[0] == 5);
  }
  SUBCASE("out of range") {
    wide.i = Tensor<std::uint64_t, 1>({2}, {0, 128});
    auto big = saved(recorder, wide);
    REQUIRE(big);
    const auto narrow = recorder.load<Narrow>(*big);
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
    CHECK(code_of(recorder.load<Mask>(*bytes)) == Errc::dtype_mismatch);
    LoadOptions options;
    options.convert.allow_kind_change = true;
    options.allow_unused = {"f"};
    const auto half = recorder.load<Half>(*bytes, options);
    REQUIRE_MESSAGE(half, why(half));
    CHECK((*half->i)[1] == 127.F);
  }
}

STELE_TEST_EACH_RECORDER("recorders: metadata is kept") {
  SaveOptions options;
  options.metadata = {{"author", "caf\u00e9 \U0001f600"}, {"", "no key"}, {"empty", ""}, {"quote\"", "a\nb\\c"}};
  auto bytes = saved(recorder, model(), options);
  if (!can(recorder).metadata) {
    CHECK(code_of(bytes) == Errc::not_representable);
    return;
  }
  REQUIRE_MESSAGE(bytes, why(bytes));
  const auto file = recorder.open(*bytes);
  REQUIRE_MESSAGE(file, why(file));
  CHECK(file->metadata() == options.metadata);
  const auto after = recorder.load<Model>(*bytes);
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

STELE_TEST_EACH_RECORDER("recorders: metadata of another program under the library's key") {
  if (!can(recorder).metadata) return;
  struct Plain {
    Floats w = floats({1, 2});
  };
  const auto keeps = [&](const auto& module, const std::string& text) {
    SaveOptions options;
    options.metadata = {{"stele", text}};
    const auto bytes = saved(recorder, module, options);
    if (!bytes) return code_of(bytes);
    const auto file = recorder.open(*bytes);
    REQUIRE_MESSAGE(file, why(file));
    CHECK(file->metadata() == options.metadata);
    const auto again = saved(recorder, *file);
    REQUIRE_MESSAGE(again, why(again));
    CHECK(text_of(again->span()) == text_of(bytes->span()));
    return Errc::none;
  };
  for (const std::string text : {"mine", "", "{}", R"({"values":{},"version":1})"}) {
    CAPTURE(text);
    CHECK(keeps(Plain{}, text) == Errc::none);
    const Errc beside = keeps(model(), text);
    CHECK((beside == Errc::none || beside == Errc::not_representable));
  }
  const Errc like = keeps(Plain{}, R"({"version":1})");
  CHECK((like == Errc::none || like == Errc::not_representable));
}

}  // namespace recorders_test
