// Scales and zero points per channel.
#include <stele/quantize.hpp>
#include <stele/stele.hpp>
#include <stele/transform.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "quantize_support.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace stele_test::quantize_channels_test {

using namespace quantized;

namespace {

/// Integers with scales and zero points along an axis.
Value per_channel(Value axis, const Doubles& scales, const Doubles& zeros, std::int64_t bits = 8) {
  const auto list = [](const Doubles& from) {
    Value::List to;
    for (const double x : from) {
      const bool whole = std::isfinite(x) && std::floor(x) == x;
      to.push_back(whole ? Value(static_cast<std::int64_t>(x)) : Value(x));
    }
    return Value(std::move(to));
  };
  return note({{"scheme", Value("zero_point")},
               {"bits", integer(bits)},
               {"scale", list(scales)},
               {"zero_point", list(zeros)},
               {"axis", std::move(axis)}});
}

template <class T>
Snapshot shaped(DType dtype, const std::vector<stele::Extent>& shape, const std::vector<T>& numbers, const Value& how) {
  auto memory = std::make_shared<const std::vector<T>>(numbers);
  stele::SnapshotBuilder builder;
  builder.set_flat();
  const auto* at = reinterpret_cast<const std::byte*>(memory->data());
  builder.tensor("w", dtype, shape, numbers.size() * sizeof(T), {&memory_ops, at, 0});
  builder.annotate("quantization", how);
  builder.keep(std::move(memory));
  return builder.finish();
}

}  // namespace

TEST_CASE("quantize: a scale and a zero point for each index along an axis") {
  Random random(7);
  const std::vector<stele::Extent> shape{3, 5, 7};
  const std::size_t inner_of[] = {35, 7, 1};
  const std::size_t count = 3 * 5 * 7;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    CAPTURE(axis);
    Doubles scales, zeros;
    for (std::size_t c = 0; c < shape[axis]; ++c) {
      scales.push_back(0.25 * static_cast<double>(c + 1));
      zeros.push_back(c % 2 == 0 ? static_cast<double>(c) : -0.5);  // a zero point may be a fraction
    }
    const auto check_all = [&](auto zero, DType dtype, std::int64_t bits) {
      using T = decltype(zero);
      CAPTURE(dtype);
      std::vector<T> q(count);
      for (T& x : q) x = static_cast<T>(random.below(256));
      const Snapshot quantized =
          shaped(dtype, shape, q, per_channel(integer(static_cast<std::int64_t>(axis)), scales, zeros, bits));
      const Snapshot s = good(stele::dequantize(quantized));
      CHECK(s.leaf(0).dtype() == DType::f32);
      CHECK(s.leaf(0).annotations() == nullptr);
      const auto all = numbers<float>(s.leaf(0));
      REQUIRE(all.size() == count);
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t c = i / inner_of[axis] % shape[axis];
        CHECK(all[i] == static_cast<float>((static_cast<double>(q[i]) - zeros[c]) * scales[c]));
      }
      for (int round = 0; round < 20; ++round) {
        const std::size_t begin = random.below(count);
        std::vector<float> part(1 + random.below(count - begin));
        good(s.leaf(0).read(4 * begin, std::as_writable_bytes(std::span(part))));
        CHECK(std::memcmp(part.data(), all.data() + begin, 4 * part.size()) == 0);
      }
    };
    check_all(std::uint8_t{}, DType::u8, 8);
    check_all(std::int8_t{}, DType::i8, 8);
    check_all(std::int32_t{}, DType::i32, 32);
  }
}

TEST_CASE("quantize: channels that begin inside a piece") {
  Random random(8);
  const std::vector<stele::Extent> shape{3, 100003};
  std::vector<std::int8_t> q(300009);
  for (auto& x : q) x = static_cast<std::int8_t>(random.below(256));
  const Doubles scales{1, 2, -4}, zeros{0, 1, 2};
  const Snapshot s = good(stele::dequantize(shaped(DType::i8, shape, q, per_channel(integer(0), scales, zeros))));
  const auto all = numbers<float>(s.leaf(0));
  REQUIRE(all.size() == q.size());
  for (std::size_t i = 0; i < q.size(); ++i) {
    const std::size_t c = i / 100003;
    if (all[i] != static_cast<float>((q[i] - zeros[c]) * scales[c])) FAIL_CHECK(i);
  }
  for (int round = 0; round < 20; ++round) {
    const std::size_t begin = random.below(all.size());
    std::vector<float> part(1 + random.below(all.size() - begin));
    good(s.leaf(0).read(4 * begin, std::as_writable_bytes(std::span(part))));
    CHECK(std::memcmp(part.data(), all.data() + begin, 4 * part.size()) == 0);
  }
}

TEST_CASE("quantize: lists and axes that do not fit the tensor") {
  const auto unsupported = [](const Value& how, const std::string& text, std::vector<stele::Extent> shape = {2, 1}) {
    const auto r = stele::dequantize(shaped<std::uint8_t>(DType::u8, shape, {1, 2}, how));
    REQUIRE(code_of(r) == Errc::unsupported);
    CHECK(r.error().path() == "w");
    CHECK_MESSAGE(r.error().to_string().find(text) != std::string::npos, r.error().to_string());
  };
  const Doubles two{1, 2};
  CHECK(stele::dequantize(shaped<std::uint8_t>(DType::u8, {2, 1}, {1, 2}, per_channel(integer(0), two, two)))
            .has_value());
  unsupported(per_channel(integer(2), two, two), "expected an integer below 2, found 2");
  unsupported(per_channel(integer(-1), two, two), "found -1");
  unsupported(per_channel(integer(std::numeric_limits<std::int64_t>::min()), two, two), "an integer below 2");
  unsupported(per_channel(Value(0.0), two, two), "found f64");
  unsupported(per_channel(Value(), two, two), "found null");
  unsupported(per_channel(integer(0), two, two), "expected a list of 1 finite numbers in scale, found 2", {1, 2});
  unsupported(per_channel(integer(1), two, two), "expected a list of 1 finite numbers in scale, found 2");
  unsupported(per_channel(integer(0), two, {1}), "expected a list of 2 finite numbers in zero_point, found 1");
  unsupported(per_channel(integer(0), two, {1, 2, 3}), "found 3 numbers");
  unsupported(per_channel(integer(0), {1, infinity}, two), "a value that is not a finite number at position 1");
  unsupported(per_channel(integer(0), two, {std::nan(""), 1}), "a value that is not a finite number at position 0");
  unsupported(per_channel(integer(0), two, two, 0), "the quantization scheme is unknown");
  unsupported(per_channel(integer(0), two, two, 65), "the quantization scheme is unknown");
  const Value list(Value::List{Value(1.0), Value(2.0)});
  const auto mixed = [&](std::vector<std::pair<std::string, Value>> items) {
    items.emplace_back("scheme", Value("zero_point"));
    items.emplace_back("bits", integer(8));
    return Value(Value::Map(items));
  };
  unsupported(mixed({{"axis", integer(0)}, {"scale", Value(1.0)}, {"zero_point", list}}), "in scale, found f64");
  unsupported(mixed({{"axis", integer(0)}, {"scale", list}, {"zero_point", integer(0)}}), "in zero_point, found i64");
  unsupported(mixed({{"axis", integer(0)}, {"scale", list}}), "in zero_point, found none");
  unsupported(
      mixed({{"axis", integer(0)}, {"scale", Value(Value::List{Value("1"), Value(1.0)})}, {"zero_point", list}}),
      "a value that is not a finite number at position 0");
  unsupported(mixed({{"scale", list}, {"zero_point", list}}), "the quantization scheme is unknown");
  unsupported(note({{"scheme", Value("linear")},
                    {"bits", integer(8)},
                    {"min", Value(0.0)},
                    {"max", Value(1.0)},
                    {"axis", integer(0)}}),
              "the quantization scheme is unknown");
  // Axes of tensors without elements, and tensors without axes.
  const Snapshot none = shaped<std::uint8_t>(DType::u8, {2, 0}, {}, per_channel(integer(0), two, two));
  CHECK(decoded(none).empty());
  CHECK(decoded(shaped<std::uint8_t>(DType::u8, {0, 2}, {}, per_channel(integer(0), {}, {}))).empty());
  unsupported(per_channel(integer(0), two, two), "below 0", {});
}

TEST_CASE("quantize: files keep channels, or refuse them") {
  const Value how = per_channel(integer(1), {0.5, 2, 4}, {0.25, -1, 3});
  const Snapshot s = shaped<std::int8_t>(DType::i8, {2, 3}, {1, 2, 3, -4, -5, -6}, how);
  const auto wanted = decoded(s);
  stele::LoadOptions options;
  options.dequantize = true;
  for (const auto& file : {good(saved(stele::BinaryRecorder<>(), s)), good(saved(stele::JsonRecorder<>(), s))}) {
    const Snapshot opened = good(stele::open(file.span()));
    REQUIRE(opened.leaf(0).annotations() != nullptr);
    CHECK(opened.leaf(0).annotations()->at("quantization") == how);
    CHECK(decoded(opened) == wanted);
    CHECK(numbers<float>(good(stele::open(file.span(), options)).leaf(0)) == wanted);
  }
  CHECK(code_of(saved(stele::SafetensorsRecorder<>(), s)) == Errc::not_representable);
}

TEST_CASE("quantize: a transposed tensor's channels are along its new axis") {
  const Snapshot s = shaped<std::int8_t>(DType::i8, {2, 2}, {1, 2, 3, 4}, per_channel(integer(0), {1, 10}, {0, 1}));
  const Snapshot turned = good(stele::transpose(s, "w"));
  CHECK(*turned.leaf(0).annotations()->at("quantization").find("axis")->as_i64() == 1);
  CHECK(decoded(s) == std::vector<float>{1, 2, 20, 30});
  CHECK(decoded(turned) == std::vector<float>{1, 20, 2, 30});
  const std::size_t axes[] = {2, 0, 1};
  const Snapshot cube =
      shaped<std::int8_t>(DType::i8, {1, 2, 2}, {1, 2, 3, 4}, per_channel(integer(2), {1, 10}, {0, 1}));
  const Snapshot moved = good(stele::transpose(cube, "w", axes));
  CHECK(decoded(moved) == std::vector<float>{1, 3, 10, 30});
  CHECK(*s.leaf(0).annotations()->at("quantization").find("axis")->as_i64() == 0);
  // An axis that is none stays.
  const Snapshot wrong =
      shaped<std::int8_t>(DType::i8, {2, 2}, {1, 2, 3, 4}, per_channel(integer(-1), {1, 10}, {0, 1}));
  CHECK(*good(stele::transpose(wrong, "w")).leaf(0).annotations()->at("quantization").find("axis")->as_i64() == -1);
}

}  // namespace stele_test::quantize_channels_test
