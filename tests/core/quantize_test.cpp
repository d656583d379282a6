// Floats as small integers, and back.
#include <stele/quantize.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "quantize_support.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

using namespace stele_test;
using namespace stele_test::quantized;
using stele::Report;

namespace stele_test {
namespace {

constexpr auto most = static_cast<double>(std::numeric_limits<float>::max());

template <class T>
void add(stele::SnapshotBuilder& builder, const std::string& path, DType dtype, const std::vector<T>& numbers) {
  auto memory = std::make_shared<const std::vector<T>>(numbers);
  const std::vector<stele::Extent> shape{numbers.size()};
  const auto* at = reinterpret_cast<const std::byte*>(memory->data());
  builder.tensor(builder.intern(path), dtype, shape, numbers.size() * sizeof(T), {&memory_ops, at, 0});
  builder.keep(std::move(memory));
}
template <class T>
Snapshot one(DType dtype, const std::vector<T>& numbers, const Value& note = {}) {
  stele::SnapshotBuilder builder;
  builder.set_flat();
  add(builder, "w", dtype, numbers);
  if (!note.is_null()) builder.annotate("quantization", note);
  return builder.finish();
}
Snapshot doubles(const Doubles& numbers) { return one(DType::f64, numbers); }

/// All codes of `bits` in a T.
template <class T>
std::vector<T> codes(unsigned bits, bool sign) {
  std::vector<T> all;
  const std::int64_t count = std::int64_t{1} << bits;
  for (std::int64_t q = sign ? -count / 2 : 0; q < (sign ? count / 2 : count); ++q) all.push_back(static_cast<T>(q));
  return all;
}

template <class T>
void check(const std::vector<float>& found, const std::vector<T>& q, double (*formula)(double, double, double, double),
           double a, double b, double c) {
  REQUIRE(found.size() == q.size());
  for (std::size_t i = 0; i < q.size(); ++i) {
    CAPTURE(static_cast<double>(q[i]));
    const auto wanted = static_cast<float>(formula(static_cast<double>(q[i]), a, b, c));
    CHECK(found[i] == doctest::Approx(wanted).epsilon(1e-6));
    if (wanted == 0 && c == 0) CHECK(std::abs(found[i]) < 1e-6F);
  }
}

double value_of(const Value& value, const char* key) {
  REQUIRE(value.find(key) != nullptr);
  return *value.find(key)->as_f64();
}

}  // namespace

// The formulas as NNEF 1.0.5, 4.9.5, has them.

TEST_CASE("quantize: linear integers mean numbers between min and max") {
  const double low = -1.25, high = 3.5;
  for (unsigned bits = 1; bits <= 8; ++bits) {
    for (const bool sign : {false, true}) {
      for (const bool symmetric : {false, true}) {
        if (sign && bits < 2) continue;
        CAPTURE(bits);
        CAPTURE(sign);
        CAPTURE(symmetric);
        // r = scalar(2 ^ bits - 1 - integer(signed && symmetric))
        const double r = std::pow(2.0, bits) - 1 - (sign && symmetric ? 1 : 0);
        // p = scalar(2 ^ (bits - 1) - integer(symmetric) if signed else 0)
        const double p = sign ? std::pow(2.0, bits - 1) - (symmetric ? 1 : 0) : 0.0;
        const Value how = note({{"scheme", Value("linear")},
                                {"bits", integer(bits)},
                                {"min", Value(low)},
                                {"max", Value(high)},
                                {"signed", Value(sign)},
                                {"symmetric", Value(symmetric)}});
        // y = (q + p) / r * (max - min) + min
        const auto formula = [](double q, double steps, double shift, double) {
          return (q + shift) / steps * (3.5 - -1.25) + -1.25;
        };
        if (sign) {
          const auto q = codes<std::int8_t>(bits, true);
          check(decoded(one(DType::i8, q, how)), q, formula, r, p, 1);
        } else {
          const auto q = codes<std::uint8_t>(bits, false);
          check(decoded(one(DType::u8, q, how)), q, formula, r, p, 1);
        }
      }
    }
  }
  // Flags that are absent are false.
  const Value bare =
      note({{"scheme", Value("linear")}, {"bits", integer(8)}, {"min", integer(0)}, {"max", integer(51)}});
  CHECK(decoded(one<std::uint8_t>(DType::u8, {0, 5, 255}, bare)) == std::vector<float>{0, 1, 51});
  CHECK(decoded(one<std::uint8_t>(DType::u8, {}, bare)).empty());
}

TEST_CASE("quantize: integers with a zero point") {
  const Value how = note({{"scheme", Value("zero_point")},
                          {"bits", integer(8)},
                          {"scale", Value(0.125)},
                          {"zero_point", integer(-3)},
                          {"signed", Value(true)}});
  const auto q = codes<std::int8_t>(8, true);
  // y = (q - z) * scale
  check(
      decoded(one(DType::i8, q, how)), q, [](double x, double z, double s, double) { return (x - z) * s; }, -3, 0.125,
      0);
  const Value wide =
      note({{"scheme", Value("zero_point")}, {"bits", integer(32)}, {"scale", Value(0.5)}, {"zero_point", integer(7)}});
  CHECK(decoded(one<std::int32_t>(DType::i32, {7, 9, -1, 1 << 30}, wide)) ==
        std::vector<float>{0, 1, -4, static_cast<float>(1 << 29) - 3.5F});
  const Value widest =
      note({{"scheme", Value("zero_point")}, {"bits", integer(64)}, {"scale", Value(1.0)}, {"zero_point", integer(0)}});
  CHECK(decoded(one<std::uint64_t>(DType::u64, {~std::uint64_t{0}, 1}, widest)) == std::vector<float>{0x1p64F, 1});
}

TEST_CASE("quantize: integers that are exponents") {
  for (const double max : {4.0, 3.0, 0.7, 1.0}) {
    for (unsigned bits = 2; bits <= 6; ++bits) {
      const Value how = note({{"scheme", Value("logarithmic")}, {"bits", integer(bits)}, {"max", Value(max)}});
      const auto q = codes<std::uint8_t>(bits, false);
      // m = ceil(log2(max)), r = 2 ^ bits - 1; what is stored is the exponent less m - r
      check(
          decoded(one(DType::u8, q, how)), q,
          [](double x, double b, double top, double) {
            return std::pow(2.0, x + std::ceil(std::log2(top)) - (std::pow(2.0, b) - 1));
          },
          bits, max, 1);
    }
  }
  // The top bit is the sign, be it one of the number or not.
  const Value sign =
      note({{"scheme", Value("logarithmic")}, {"bits", integer(4)}, {"max", Value(4.0)}, {"signed", Value(true)}});
  const std::vector<float> wanted{4, 2, 0x1p-5F, -4, -0x1p-5F};
  CHECK(decoded(one<std::uint8_t>(DType::u8, {7, 6, 0, 15, 8}, sign)) == wanted);
  CHECK(decoded(one<std::int8_t>(DType::i8, {7, 6, 0, -1, -8}, sign)) == wanted);
  // 0 is the least number, and none is zero; what is less than all floats is.
  const Value eight = note({{"scheme", Value("logarithmic")}, {"bits", integer(8)}, {"max", Value(1.0)}});
  CHECK(decoded(one<std::uint8_t>(DType::u8, {255, 106 + 1, 0}, eight)) == std::vector<float>{1, 0x1p-148F, 0});
}

TEST_CASE("quantize: annotations that say nothing that is known") {
  const auto unsupported = [](const Value& how, DType dtype = DType::u8) {
    const auto r = stele::dequantize(one<std::uint8_t>(dtype, {1}, how));
    REQUIRE(code_of(r) == Errc::unsupported);
    CHECK(r.error().path() == "w");
    // Those that are not asked for stay.
    CHECK(stele::dequantize(one<std::uint8_t>(dtype, {1}, how), {"v"}).has_value());
  };
  const auto linear = [](Value bits, Value low, Value high, const char* scheme = "linear") {
    return note(
        {{"scheme", Value(scheme)}, {"bits", std::move(bits)}, {"min", std::move(low)}, {"max", std::move(high)}});
  };
  CHECK(stele::dequantize(one<std::uint8_t>(DType::u8, {1}, linear(integer(8), Value(0.0), Value(1.0)))).has_value());
  unsupported(Value("linear"));
  unsupported(Value(true));
  unsupported(note({}));
  unsupported(note({{"scheme", Value("linear")}}));
  unsupported(linear(integer(8), Value(0.0), Value(1.0), "cubic"));
  unsupported(linear(integer(0), Value(0.0), Value(1.0)));
  unsupported(linear(integer(65), Value(0.0), Value(1.0)));
  unsupported(linear(integer(-1), Value(0.0), Value(1.0)));
  unsupported(linear(Value(2.5), Value(0.0), Value(1.0)));
  unsupported(linear(Value(std::nan("")), Value(0.0), Value(1.0)));
  unsupported(linear(integer(8), Value(-infinity), Value(1.0)));
  unsupported(linear(integer(8), Value(0.0), Value(std::nan(""))));
  unsupported(linear(integer(8), Value("0"), Value(1.0)));
  unsupported(linear(integer(8), Value(0.0), Value(1.0)), DType::boolean);
  unsupported(linear(integer(8), Value(0.0), Value(1.0)), DType::f8_e4m3fn);
  unsupported(note({{"scheme", Value("logarithmic")}, {"bits", integer(8)}, {"max", Value(0.0)}}));
  unsupported(note({{"scheme", Value("logarithmic")}, {"bits", integer(8)}, {"max", Value(-1.0)}}));
  unsupported(note({{"scheme", Value("linear")},
                    {"bits", integer(1)},
                    {"min", Value(0.0)},
                    {"max", Value(1.0)},
                    {"signed", Value(true)}}));
  unsupported(note(
      {{"scheme", Value("zero_point")}, {"bits", integer(8)}, {"scale", Value(infinity)}, {"zero_point", integer(0)}}));
}

TEST_CASE("quantize: numbers beyond f32 are out of range") {
  const Value how =
      note({{"scheme", Value("zero_point")}, {"bits", integer(8)}, {"scale", Value(1e38)}, {"zero_point", integer(0)}});
  const Snapshot s = good(stele::dequantize(one<std::uint8_t>(DType::u8, {1, 3, 4}, how)));
  const auto r = content(s.leaf(0));
  REQUIRE(code_of(r) == Errc::out_of_range);
  float part[2];
  CHECK(s.leaf(0).read(0, std::as_writable_bytes(std::span(part))).has_value());
  CHECK(code_of(s.leaf(0).read(4, std::as_writable_bytes(std::span(part)))) == Errc::out_of_range);
  const Value powers = note({{"scheme", Value("logarithmic")}, {"bits", integer(8)}, {"max", Value(1e300)}});
  CHECK(code_of(content(good(stele::dequantize(one<std::uint8_t>(DType::u8, {255}, powers))).leaf(0))) ==
        Errc::out_of_range);
}

TEST_CASE("quantize: each tensor between its least and its largest number") {
  const Doubles numbers_in{0.5, -1, 2, 0.25, 1.999, 0};
  for (unsigned bits = 2; bits <= 8; ++bits) {
    CAPTURE(bits);
    Report report;
    const Snapshot s = good(stele::quantize(doubles(numbers_in), {.bits = bits}, &report));
    const stele::LeafView leaf = s.leaf(0);
    CHECK(leaf.dtype() == DType::u8);
    CHECK(leaf.byte_size() == numbers_in.size());
    REQUIRE(leaf.annotations() != nullptr);
    const Value& how = leaf.annotations()->at("quantization");
    CHECK(value_of(how, "min") == -1);
    CHECK(value_of(how, "max") == 2);
    CHECK(*how.find("bits")->as_i64() == bits);
    CHECK(*how.find("scheme")->as_string() == "linear");
    const double r = std::pow(2.0, bits) - 1;
    const auto q = numbers<std::uint8_t>(leaf);
    const auto back = decoded(s);
    double largest = 0, sum = 0, squares = 0;
    for (std::size_t i = 0; i < q.size(); ++i) {
      // q = round((z - min) / (max - min) * r)
      CHECK(q[i] == std::nearbyint((numbers_in[i] + 1) / 3 * r));
      const double error = std::abs(static_cast<double>(q[i]) / r * 3 - 1 - numbers_in[i]);
      CHECK(error <= 1.5 / r + 1e-9);
      CHECK(back[i] == doctest::Approx(static_cast<double>(q[i]) / r * 3 - 1).epsilon(1e-6));
      largest = std::max(largest, error);
      sum += error;
      squares += error * error;
    }
    REQUIRE(report.size() == 1);
    CHECK(report[0].what == Report::What::quantized);
    CHECK(report[0].path == "w");
    char text[200];
    const auto count = static_cast<double>(q.size());
    std::snprintf(text, sizeof text, "f64 -> %u bits in [-1, 2]; largest error %.3g, mean %.3g, root mean square %.3g",
                  bits, largest, sum / count, std::sqrt(squares / count));
    CHECK(report[0].detail == text);
    // Again: the same integers.
    CHECK(numbers<std::uint8_t>(good(stele::quantize(good(stele::dequantize(s)), {.bits = bits})).leaf(0)) == q);
  }
  for (const unsigned bits : {0U, 1U, 9U, 64U}) {
    CHECK(code_of(stele::quantize(doubles({1}), {.bits = bits})) == Errc::invalid_argument);
  }
}

TEST_CASE("quantize: all float dtypes") {
  const auto check_all = [](const Snapshot& s) {
    const auto back = decoded(good(stele::quantize(s)));
    REQUIRE(back.size() == 3);
    CHECK(back[0] == -2);
    CHECK(back[1] == doctest::Approx(0.0).epsilon(0.01));
    CHECK(back[2] == 2);
  };
  check_all(one<float>(DType::f32, {-2, 0, 2}));
  check_all(one<double>(DType::f64, {-2, 0, 2}));
  check_all(one<std::uint16_t>(DType::f16, {0xc000, 0, 0x4000}));
  check_all(one<std::uint16_t>(DType::bf16, {0xc000, 0, 0x4000}));
}

TEST_CASE("quantize: tensors of one number, of none, of the largest") {
  for (const double x : {0.0, -0.0, 1.0, -3.7, 1e-300, 5e-324, 1e-45, 1e30, most, -most, 0.1, 16777217.0}) {
    for (const Doubles& all : {Doubles{x}, Doubles{x, x, x}}) {
      CAPTURE(x);
      const Snapshot s = good(stele::quantize(doubles(all)));
      const auto back = decoded(s);
      REQUIRE(back.size() == all.size());
      const Value how = s.leaf(0).annotations()->at("quantization");
      CHECK(std::isfinite(value_of(how, "max")));
      CHECK(value_of(how, "min") < value_of(how, "max"));
      CHECK(value_of(how, "min") <= x);
      CHECK(value_of(how, "max") >= x);
      // Both are f32 in files.
      CHECK(static_cast<double>(static_cast<float>(value_of(how, "min"))) == value_of(how, "min"));
      CHECK(static_cast<double>(static_cast<float>(value_of(how, "max"))) == value_of(how, "max"));
      for (const float y : back) CHECK(y == doctest::Approx(static_cast<float>(x)).epsilon(1e-6));
    }
  }
  Report report;
  const Snapshot none = good(stele::quantize(one<float>(DType::f32, {}), {}, &report));
  CHECK(none.leaf(0).dtype() == DType::f32);
  CHECK(report.empty());
  const auto ends = decoded(good(stele::quantize(doubles({-most, 0, most}))));
  CHECK(ends[0] == static_cast<float>(-most));
  CHECK(ends[2] == static_cast<float>(most));
  // f64 that no f32 is: rounded outwards.
  const Snapshot fine = good(stele::quantize(doubles({0.1, 0.3})));
  const Value how = fine.leaf(0).annotations()->at("quantization");
  CHECK(value_of(how, "min") <= 0.1);
  CHECK(value_of(how, "max") >= 0.3);
  CHECK(value_of(how, "max") < 0.3000001);
}

TEST_CASE("quantize: what is not finite, or beyond f32, is refused") {
  for (const double x : {std::nan(""), infinity, -infinity, 2 * most, -2 * most, 1e300}) {
    CAPTURE(x);
    for (const Doubles& all : {Doubles{x}, Doubles{0, 1, x}, Doubles{x, 0}}) {
      const auto r = stele::quantize(doubles(all));
      REQUIRE(code_of(r) == Errc::out_of_range);
      CHECK(r.error().path() == "w");
    }
  }
  CHECK(code_of(stele::quantize(one<std::uint16_t>(DType::f16, {0x7c00}))) == Errc::out_of_range);
}

TEST_CASE("quantize: patterns, and dtypes that stay") {
  stele::SnapshotBuilder builder;
  builder.set_flat();
  add<float>(builder, "a.weight", DType::f32, {1, 2});
  builder.annotate("mine", Value(true));
  add<float>(builder, "a.bias", DType::f32, {1, 2});
  add<float>(builder, "b.weight", DType::f32, {1, 2});
  add<std::int32_t>(builder, "n", DType::i32, {1, 2});
  add<std::uint8_t>(builder, "f8", DType::f8_e4m3fn, {1, 2});
  const Snapshot s = builder.finish();
  const auto changed = [](const Snapshot& from) {
    std::string names;
    for (std::size_t i = 0; i < from.leaf_count(); ++i) {
      if (from.leaf(i).dtype() == DType::u8) names += from.leaf(i).path() + " ";
    }
    return names;
  };
  CHECK(changed(good(stele::quantize(s))) == "a.weight a.bias b.weight ");
  CHECK(changed(good(stele::quantize(s, {.patterns = {"a.*"}}))) == "a.weight a.bias ");
  CHECK(changed(good(stele::quantize(s, {.patterns = {"a.weight", "b.weight"}}))) == "a.weight b.weight ");
  CHECK(changed(good(stele::quantize(s, {.patterns = {}}))).empty());
  const Snapshot q = good(stele::quantize(s));
  CHECK(q.leaf(0).annotations()->size() == 2);
  CHECK(changed(good(stele::dequantize(q, {"a.*"}))) == "b.weight ");
  const Snapshot back = good(stele::dequantize(q));
  CHECK(changed(back).empty());
  CHECK(back.leaf(0).annotations()->size() == 1);
  CHECK(back.leaf(1).annotations() == nullptr);
  // The snapshot that they come from is as it was.
  CHECK(changed(s).empty());
  CHECK(s.leaf(1).annotations() == nullptr);
  CHECK(changed(q) == "a.weight a.bias b.weight ");
}

TEST_CASE("quantize: parts of large tensors, and all of them") {
  Random random(5);
  std::vector<float> all(300007);
  for (float& x : all) x = static_cast<float>(random.below(1000000)) * 1e-3F - 300.0F;
  const Snapshot s = one(DType::f32, all);
  const Snapshot q = good(stele::quantize(s));
  const Snapshot back = good(stele::dequantize(q));
  const auto codes_all = numbers<std::uint8_t>(q.leaf(0));
  const auto back_all = numbers<float>(back.leaf(0));
  REQUIRE(back_all.size() == all.size());
  for (int round = 0; round < 50; ++round) {
    const std::size_t begin = random.below(all.size());
    const std::size_t n = 1 + random.below(round % 2 == 0 ? 100 : all.size() - begin);
    const std::size_t size = std::min(n, all.size() - begin);
    std::vector<std::uint8_t> codes_part(size);
    good(q.leaf(0).read(begin, std::as_writable_bytes(std::span(codes_part))));
    CHECK(std::memcmp(codes_part.data(), codes_all.data() + begin, size) == 0);
    std::vector<float> part(size);
    good(back.leaf(0).read(4 * begin, std::as_writable_bytes(std::span(part))));
    CHECK(std::memcmp(part.data(), back_all.data() + begin, 4 * size) == 0);
  }
  const double step = 1000.0 / 255;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::abs(static_cast<double>(back_all[i]) - static_cast<double>(all[i])) > step / 2 + 1e-3) FAIL_CHECK(i);
  }
}

TEST_CASE("quantize: files that are damaged") {
  std::vector<float> all(50000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i);
  const auto file = good(saved(stele::BinaryRecorder<>(), one(DType::f32, all)));
  std::string text(text_of(file.span()));
  const float marker = 31234;
  const std::size_t at = text.find(std::string(reinterpret_cast<const char*>(&marker), 4));
  REQUIRE(at != std::string::npos);
  text[at] = static_cast<char>(text[at] ^ 1);
  const Snapshot damaged = good(stele::BinaryRecorder<>().open(bytes_of(text)));
  CHECK(code_of(stele::quantize(damaged)) == Errc::checksum);

  auto bytes = good(saved(stele::BinaryRecorder<stele::Quantized8>(), one(DType::f32, all)));
  stele::LoadOptions options;
  options.dequantize = true;
  CHECK(content(good(stele::BinaryRecorder<>().open(bytes, options)).leaf(0)).has_value());
  std::string coded(text_of(bytes.span()));
  const std::size_t middle = coded.find(std::string(150, '\x80'));
  REQUIRE(middle != std::string::npos);
  coded[middle] = '\x7f';
  const Snapshot s = good(stele::BinaryRecorder<>().open(bytes_of(coded), options));
  CHECK(code_of(content(s.leaf(0))) == Errc::checksum);
  // So of what has been damaged since it was quantized.
  text[at] = static_cast<char>(text[at] ^ 1);
  const Snapshot whole = good(stele::BinaryRecorder<>().open(bytes_of(text)));
  const Snapshot q = good(stele::quantize(whole));
  CHECK(content(q.leaf(0)).has_value());
  text[at] = static_cast<char>(text[at] ^ 1);
  CHECK(code_of(content(q.leaf(0))) == Errc::checksum);
}

}  // namespace stele_test
