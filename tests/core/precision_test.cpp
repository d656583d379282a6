// Conversions against an oracle of their own (exact scaling by powers of two and one nearbyint), on every SIMD target
// this machine runs.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "stele/precision/complex.hpp"
#include "stele/precision/settings.hpp"
#include "support/precision_support.hpp"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace precision_test {

using namespace stele;
using namespace precision_test;

namespace {

// ---- types and settings, at compile time

static_assert(dtype_of_v<float> == DType::f32 && dtype_of_v<const double> == DType::f64);
static_assert(dtype_of_v<float16> == DType::f16 && dtype_of_v<bfloat16> == DType::bf16);
static_assert(dtype_of_v<signed char> == DType::i8 && dtype_of_v<unsigned char> == DType::u8);
static_assert(dtype_of_v<std::byte> == DType::u8 && dtype_of_v<bool> == DType::boolean);
static_assert(dtype_of_v<short> == DType::i16 && dtype_of_v<unsigned> == DType::u32);
static_assert(dtype_of_v<long long> == DType::i64 && dtype_of_v<unsigned long long> == DType::u64);
static_assert(dtype_of_v<long> == (sizeof(long) == 8 ? DType::i64 : DType::i32));
static_assert(dtype_of_v<std::complex<float>> == DType::c64 && dtype_of_v<std::complex<double>> == DType::c128);
static_assert(dtype_of_v<char> == DType::none && dtype_of_v<char16_t> == DType::none);
static_assert(dtype_of_v<void> == DType::none && dtype_of_v<std::string> == DType::none);
static_assert(Element<float> && Element<std::complex<double>> && !Element<char> && !Element<long double>);

struct Mine {
  using Float = bfloat16;
  using Int = std::int32_t;
};
static_assert(PrecisionSettings<Mine> && PrecisionSettings<NativePrecision> && !PrecisionSettings<int>);
static_assert(precision_spec<NativePrecision>() == PrecisionSpec{});
static_assert(precision_spec<HalfPrecision>().apply(DType::f64) == DType::f16);
static_assert(precision_spec<BrainPrecision>().apply(DType::f16) == DType::bf16);
static_assert(precision_spec<FullPrecision>().apply(DType::i64) == DType::i64);
static_assert(precision_spec<DoublePrecision>().apply(DType::f8_e5m2) == DType::f8_e5m2);
static_assert(precision_spec<Mine>().apply(DType::i8) == DType::i32);
static_assert(precision_spec<Mine>().apply(DType::u8) == DType::u8);
static_assert(precision_spec<Mine>().apply(DType::i4) == DType::i4);
static_assert(precision_spec<Mine>().apply(DType::boolean) == DType::boolean);

static_assert(static_cast<float>(float16(1.5f)) == 1.5f && float16(65519.f).bits == 0x7BFF);
static_assert(float16(65520.f).bits == 0x7C00 && bfloat16(-0.f).bits == 0x8000);
static_assert(float16(0.f) == float16(-0.f) && !(float16::from_bits(0x7E00) == float16::from_bits(0x7E00)));

// ---- the oracle

struct FloatFormat {
  DType dtype;
  int fraction_bits;
  int least_exponent;  // of normal numbers
  double greatest;
};
constexpr FloatFormat kF16{DType::f16, 10, -14, 65504.0};
constexpr FloatFormat kBf16{DType::bf16, 7, -126, 0x1.FEp+127};
constexpr FloatFormat kF32{DType::f32, 23, -126, 0x1.FFFFFEp+127};

// `v` rounded once; infinite when it overflows. NaN is not for this function.
double rounded(const FloatFormat& f, double v) {
  if (v == 0 || std::isinf(v)) return v;
  const int place = std::max(std::ilogb(v), f.least_exponent) - f.fraction_bits;
  if (std::ilogb(v) < place - 2) return std::copysign(0.0, v);
  const double r = std::ldexp(std::nearbyint(std::ldexp(v, -place)), place);
  return std::abs(r) > f.greatest ? std::copysign(HUGE_VAL, v) : r;
}

// Sign, exponent and fraction by the book.
double value_of_fields(std::uint64_t code, int exponent_bits, int fraction_bits, int bias) {
  const double sign = (code >> (exponent_bits + fraction_bits)) & 1 ? -1.0 : 1.0;
  const int e = static_cast<int>(code >> fraction_bits) & ((1 << exponent_bits) - 1);
  const auto m = static_cast<double>(code & ((1u << fraction_bits) - 1));
  const double hidden = e == 0 ? 0.0 : std::ldexp(1.0, fraction_bits);
  return sign * std::ldexp(hidden + m, std::max(e, 1) - bias - fraction_bits);
}

double value16(DType d, std::uint16_t code) {
  const bool half = d == DType::f16;
  const int exponent = half ? (code >> 10) & 31 : (code >> 7) & 255;
  const int fraction = half ? code & 1023 : code & 127;
  if (exponent == (half ? 31 : 255)) {
    if (fraction != 0) return std::numeric_limits<double>::quiet_NaN();
    return code & 0x8000 ? -HUGE_VAL : HUGE_VAL;
  }
  return half ? value_of_fields(code, 5, 10, 15) : value_of_fields(code, 8, 7, 127);
}

// ---- helpers

// A dense sample of all floats and everything near a boundary.
std::vector<std::uint32_t> float_patterns() {
  std::vector<std::uint32_t> v;
  for (std::uint64_t u = 0; u < (std::uint64_t{1} << 32); u += 4099) v.push_back(static_cast<std::uint32_t>(u));
  const auto around = [&v](std::uint32_t u) {
    for (std::uint32_t k = 0; k < 7; ++k) v.push_back(u + k - 3);
  };
  for (std::uint32_t e = 0; e < 512; ++e) {  // both signs
    for (const std::uint32_t m :
         {0u, 0x400000u, 0x1000u, 0x2000u, 0x3000u, 0x8000u, 0x10000u, 0x18000u, 0x7FF000u, 0x7F8000u, 0x7FE000u}) {
      around((e << 23) | m);
    }
    for (int s = 0; s < 23; ++s) around((e << 23) | (1u << s));
  }
  for (std::uint32_t h = 0; h < 0x7C00; h += 3) {  // half-way points of f16
    const std::uint32_t low = detail::f32_from_f16_bits(static_cast<std::uint16_t>(h));
    const std::uint32_t high = detail::f32_from_f16_bits(static_cast<std::uint16_t>(h + 1));
    const float middle = h + 1 == 0x7C00 ? 65520.f : (std::bit_cast<float>(low) + std::bit_cast<float>(high)) / 2;
    around(std::bit_cast<std::uint32_t>(middle));
  }
  return v;
}

// Numbers that a rounding by way of f32 gets wrong, and the odd ones out.
std::vector<std::uint64_t> double_patterns(DType to) {
  std::vector<std::uint64_t> v;
  const auto add = [&v](double d) {
    v.push_back(std::bit_cast<std::uint64_t>(d));
    v.push_back(std::bit_cast<std::uint64_t>(-d));
  };
  const std::uint16_t infinity = to == DType::f16 ? 0x7C00 : 0x7F80;
  for (std::uint16_t c = 0; c < infinity; ++c) {
    const double low = value16(to, c);
    const double step = c + 1 == infinity ? low - value16(to, static_cast<std::uint16_t>(c - 1))
                                          : value16(to, static_cast<std::uint16_t>(c + 1)) - low;
    const double middle = low + step / 2;
    for (const double d : {low, middle, std::nextafter(middle, 0), std::nextafter(middle, HUGE_VAL),
                           middle * (1 - 0x1p-26), middle * (1 + 0x1p-40), low * (1 + 0x1p-24)}) {
      add(d);
    }
  }
  for (int e = -1074; e < 1024; ++e) {
    for (const double m : {1.0, 1.0 + 0x1p-52, 1.5, 2.0 - 0x1p-52, 1.0 + 0x1p-23, 1.0 + 0x1p-24, 1.0 + 0x1.8p-23}) {
      add(std::ldexp(m, e));
    }
  }
  add(HUGE_VAL);
  for (const std::uint64_t payload : {0x1ull, 0x10000000ull, 0x3FFFFFFFull, 0x4000000000000ull, 0x8000000000000ull,
                                      0xFFFFFFFFFFFFFull, 0x8040000000001ull, 0x123456789ABCDull}) {
    v.push_back(0x7FF0000000000000u | payload);
    v.push_back(0xFFF0000000000000u | payload);
  }
  return v;
}

}  // namespace

TEST_CASE("f16 and bf16: all codes to f32 and f64, and back") {
  std::vector<std::uint16_t> codes(65536);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
  for (const DType d : {DType::f16, DType::bf16}) {
    CAPTURE(name(d));
    const int shift = d == DType::f16 ? 13 : 16;
    std::vector<std::uint32_t> as_f32(codes.size());
    std::vector<std::uint64_t> as_f64(codes.size());
    std::vector<std::uint16_t> back(codes.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const std::uint16_t c = codes[i];
      const double value = value16(d, c);
      as_f32[i] = d == DType::f16 ? detail::f32_from_f16_bits(c) : detail::f32_from_bf16_bits(c);
      if (std::isnan(value)) {
        const std::uint32_t fraction = c & ((1u << (23 - shift)) - 1);
        const std::uint32_t sign = (c & 0x8000u) << 16;
        wrong += as_f32[i] != (sign | 0x7FC00000u | (fraction << shift));
        as_f64[i] = (static_cast<std::uint64_t>(sign) << 32) | 0x7FF8000000000000u |
                    (static_cast<std::uint64_t>(fraction) << (shift + 29));
        back[i] = static_cast<std::uint16_t>(c | (1u << (22 - shift)));
      } else {
        as_f64[i] = std::bit_cast<std::uint64_t>(value);
        wrong += as_f32[i] != std::bit_cast<std::uint32_t>(static_cast<float>(value));
        back[i] = c;
      }
    }
    CHECK(wrong == 0);
    on_every_target([&] {
      CHECK(agreement(converted<std::uint32_t>(d, codes, DType::f32), as_f32) == codes.size());
      CHECK(agreement(converted<std::uint64_t>(d, codes, DType::f64), as_f64) == codes.size());
      CHECK(agreement(converted<std::uint16_t>(DType::f32, as_f32, d), back) == codes.size());
      CHECK(agreement(converted<std::uint16_t>(DType::f64, as_f64, d), back) == codes.size());
    });
  }
}

TEST_CASE("f32 to f16 and bf16: oracle, references and every target agree") {
  const auto patterns = float_patterns();
  for (const FloatFormat& f : {kF16, kBf16}) {
    CAPTURE(name(f.dtype));
    std::vector<std::uint16_t> expected(patterns.size());
    std::size_t wrong = 0;
    std::size_t wrong_generic = 0;
    std::uint64_t overflows = 0;
    std::uint64_t first = patterns.size();
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      const float x = std::bit_cast<float>(patterns[i]);
      expected[i] = f.dtype == DType::f16 ? float16(x).bits : bfloat16(x).bits;
      if (std::isnan(x)) {
        const std::uint32_t payload = (patterns[i] & 0x7FFFFFu) >> (23 - f.fraction_bits);
        const std::uint32_t top = f.dtype == DType::f16 ? 0x7E00u : 0x7FC0u;
        wrong += expected[i] != ((patterns[i] >> 16 & 0x8000u) | top | payload);
      } else {
        const double want = rounded(f, static_cast<double>(x));
        wrong += std::bit_cast<std::uint64_t>(value16(f.dtype, expected[i])) != std::bit_cast<std::uint64_t>(want);
        if (std::isinf(want) && !std::isinf(x)) {
          if (overflows++ == 0) first = i;
        }
      }
      std::uint64_t out = 0;
      pd::convert_one(DType::f32, patterns[i], f.dtype, out);
      wrong_generic += out != expected[i];
    }
    CHECK(wrong == 0);
    CHECK(wrong_generic == 0);
    on_every_target([&] {
      ConvertOutcome r;
      CHECK(agreement(converted<std::uint16_t>(DType::f32, patterns, f.dtype, &r), expected) == patterns.size());
      CHECK(r == ConvertOutcome{ConvertStatus::ok, 0, overflows});
      converted<std::uint16_t>(DType::f32, patterns, f.dtype, &r, {});
      CHECK(r == ConvertOutcome{ConvertStatus::overflow, first, 0});
    });
  }
}

TEST_CASE("f64 to f16, bf16 and f32: one rounding") {
  for (const FloatFormat& f : {kF16, kBf16, kF32}) {
    CAPTURE(name(f.dtype));
    const auto patterns = double_patterns(f.dtype == DType::f16 ? DType::f16 : DType::bf16);
    std::vector<std::uint32_t> expected(patterns.size());
    std::size_t wrong = 0;
    std::uint64_t overflows = 0;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      std::uint64_t out = 0;
      pd::convert_one(DType::f64, patterns[i], f.dtype, out);
      expected[i] = static_cast<std::uint32_t>(out);
      const double x = std::bit_cast<double>(patterns[i]);
      const double got = f.dtype == DType::f32 ? static_cast<double>(std::bit_cast<float>(expected[i]))
                                               : value16(f.dtype, static_cast<std::uint16_t>(out));
      if (std::isnan(x)) {
        wrong += !std::isnan(got) || std::signbit(x) != ((out >> (bits(f.dtype) - 1)) != 0);
      } else {
        const double want = rounded(f, x);
        wrong += std::bit_cast<std::uint64_t>(got) != std::bit_cast<std::uint64_t>(want);
        overflows += std::isinf(want) && !std::isinf(x);
      }
    }
    CHECK(wrong == 0);
    on_every_target([&] {
      ConvertOutcome r;
      if (f.dtype == DType::f32) {
        CHECK(agreement(converted<std::uint32_t>(DType::f64, patterns, f.dtype, &r), expected) == patterns.size());
      } else {
        const std::vector<std::uint16_t> half(expected.begin(), expected.end());
        CHECK(agreement(converted<std::uint16_t>(DType::f64, patterns, f.dtype, &r), half) == patterns.size());
      }
      CHECK(r == ConvertOutcome{ConvertStatus::ok, 0, overflows});
    });
  }
}

TEST_CASE("f32 to f64 is exact on every target") {
  const auto patterns = float_patterns();
  std::vector<std::uint64_t> expected(patterns.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const float x = std::bit_cast<float>(patterns[i]);
    pd::convert_one(DType::f32, patterns[i], DType::f64, expected[i]);
    if (!std::isnan(x)) wrong += expected[i] != std::bit_cast<std::uint64_t>(static_cast<double>(x));
  }
  CHECK(wrong == 0);
  on_every_target([&] {
    CHECK(agreement(converted<std::uint64_t>(DType::f32, patterns, DType::f64), expected) == patterns.size());
  });
}

TEST_CASE("8-bit floats: values, round trips, ties and overflow") {
  struct Eight {
    DType dtype;
    int exponent_bits, fraction_bits, bias;
    int top;       // code of the greatest finite number
    double limit;  // the least number that overflows
  };
  constexpr Eight kAll[] = {{DType::f8_e4m3fn, 4, 3, 7, 0x7E, 464.0 + 0x1p-15},
                            {DType::f8_e5m2, 5, 2, 15, 0x7B, 61440.0},
                            {DType::f8_e4m3fnuz, 4, 3, 8, 0x7F, 248.0},
                            {DType::f8_e5m2fnuz, 5, 2, 16, 0x7F, 61440.0}};
  const auto one = [](DType from, auto value, DType to) {
    std::byte out[8];
    const auto r = convert(from, reinterpret_cast<const std::byte*>(&value), to, out, 1, {.allow_overflow = true});
    return std::pair{static_cast<int>(pd::load_bits(to, out)), r.overflowed};
  };
  for (const Eight& e : kAll) {
    CAPTURE(name(e.dtype));
    std::vector<std::uint8_t> codes(256);
    for (std::size_t i = 0; i < 256; ++i) codes[i] = static_cast<std::uint8_t>(i);
    const auto wide = converted<float>(e.dtype, codes, DType::f32);
    std::size_t wrong = 0;
    for (int c = 0; c <= e.top; ++c) {
      const double v = value_of_fields(static_cast<std::uint64_t>(c), e.exponent_bits, e.fraction_bits, e.bias);
      wrong += static_cast<double>(wide[static_cast<std::size_t>(c)]) != v;
      if (c != 0) wrong += static_cast<double>(wide[static_cast<std::size_t>(c | 0x80)]) != -v;
      if (c == e.top) continue;
      // Half-way to the next code: to the even one; a little beside it: to the nearer one.
      const double next = value_of_fields(static_cast<std::uint64_t>(c + 1), e.exponent_bits, e.fraction_bits, e.bias);
      const double middle = (v + next) / 2;
      const int even = c % 2 == 0 ? c : c + 1;
      for (const auto& [x, want] :
           {std::pair{middle, even}, {middle * (1 - 0x1p-22), c}, {middle * (1 + 0x1p-22), c + 1}}) {
        wrong += one(DType::f64, x, e.dtype) != std::pair{want, std::uint64_t{0}};
        wrong += one(DType::f32, static_cast<float>(x), e.dtype) != std::pair{want, std::uint64_t{0}};
      }
      wrong += one(DType::f64, std::nextafter(middle, HUGE_VAL), e.dtype).first != c + 1;
    }
    CHECK(wrong == 0);
    const int special = e.dtype == DType::f8_e5m2 ? 0x7C : e.dtype == DType::f8_e4m3fn ? 0x7F : 0x80;
    CHECK(one(DType::f64, e.limit, e.dtype) == std::pair{special, std::uint64_t{1}});
    CHECK(one(DType::f64, std::nextafter(e.limit - 0x1p-15, 0), e.dtype) == std::pair{e.top, std::uint64_t{0}});
    CHECK(one(DType::f64, HUGE_VAL, e.dtype) == std::pair{special, std::uint64_t{e.dtype != DType::f8_e5m2}});
    // There and back; signalling NaNs of e5m2 become quiet.
    for (const DType d : {DType::f16, DType::f32, DType::f64, DType::bf16}) {
      REQUIRE(lossless(e.dtype, d));
      auto want = codes;
      if (e.dtype == DType::f8_e5m2) {
        want[0x7D] = 0x7F;
        want[0xFD] = 0xFF;
      }
      std::vector<std::uint64_t> there(256);
      auto* const middle = reinterpret_cast<std::byte*>(there.data());
      std::vector<std::uint8_t> back(256);
      convert(e.dtype, reinterpret_cast<const std::byte*>(codes.data()), d, middle, 256);
      convert(d, middle, e.dtype, reinterpret_cast<std::byte*>(back.data()), 256);
      CHECK(agreement(back, want) == 256);
    }
  }
  SUBCASE("e8m0") {
    CHECK(one(DType::f32, 1.f, DType::f8_e8m0).first == 127);
    CHECK(one(DType::f32, 1.49f, DType::f8_e8m0).first == 127);
    CHECK(one(DType::f32, 1.5f, DType::f8_e8m0).first == 128);
    CHECK(one(DType::f64, 0x1.8p+127 - 0x1p+80, DType::f8_e8m0) == std::pair{254, std::uint64_t{0}});
    CHECK(one(DType::f32, 0x1.8p+127f, DType::f8_e8m0) == std::pair{255, std::uint64_t{1}});
    CHECK(one(DType::f64, 1e-300, DType::f8_e8m0) == std::pair{0, std::uint64_t{0}});
    CHECK(one(DType::f32, 0.f, DType::f8_e8m0) == std::pair{255, std::uint64_t{1}});
    CHECK(one(DType::f32, -1.f, DType::f8_e8m0) == std::pair{255, std::uint64_t{1}});
    for (int c = 0; c < 255; ++c) CHECK(one(DType::f32, std::ldexp(1.f, c - 127), DType::f8_e8m0).first == c);
    CHECK(static_cast<std::uint32_t>(one(DType::f8_e8m0, std::uint8_t{0}, DType::f32).first) == 0x00400000u);
    CHECK(static_cast<std::uint32_t>(one(DType::f8_e8m0, std::uint8_t{255}, DType::f32).first) == 0x7FC00000u);
  }
}

TEST_CASE("every length, unaligned, nothing written outside, in place") {
  constexpr DType kFloats[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::f8_e5m2};
  constexpr DType kInts[] = {DType::i64, DType::u32, DType::i16, DType::u8};
  std::array<std::byte, 68 * 8> src{};
  for (std::size_t i = 0; i < src.size(); ++i) src[i] = static_cast<std::byte>((i * 37 + 11) & 0x3F);
  const auto try_pair = [&](DType from, DType to) {
    std::size_t wrong = 0;
    for (std::size_t n = 0; n <= 67; ++n) {
      const std::size_t bytes = n * element_size(to);
      std::array<std::byte, 68 * 8 + 80> expected;
      expected.fill(std::byte{0xA5});
      auto got = expected;
      const std::byte* const from_here = src.data() + n % 3;
      const auto a = pd::convert_reference(from, from_here, to, expected.data() + 1, n, true);
      const auto b = convert(from, from_here, to, got.data() + 1, n, {.allow_overflow = true});
      wrong += a != b || (a.status == ConvertStatus::ok && got != expected);
      wrong += got[0] != std::byte{0xA5} || got[1 + bytes] != std::byte{0xA5};
      if (element_size(from) != element_size(to)) continue;
      std::memcpy(got.data() + 1, from_here, bytes);
      const auto c = convert(from, got.data() + 1, to, got.data() + 1, n, {.allow_overflow = true});
      wrong += a != c || (a.status == ConvertStatus::ok && got != expected);
    }
    CHECK(wrong == 0);
  };
  on_every_target([&] {
    for (const DType from : kFloats) {
      for (const DType to : kFloats) {
        if (from != to) try_pair(from, to);
      }
    }
    for (const DType from : kInts) {
      for (const DType to : kInts) {
        if (from != to) try_pair(from, to);
      }
    }
    try_pair(DType::i32, DType::u32);
    try_pair(DType::i64, DType::u64);
  });
}

TEST_CASE("the first overflow is found wherever it is, and in place") {
  for (const std::size_t n : {1u, 7u, 1023u, 1024u, 5000u}) {
    for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
      std::vector<float> v(n, 1.f);
      v[at] = -65520.f;
      v[n - 1] = 1e30f;
      ConvertOutcome r;
      converted<std::uint16_t>(DType::f32, v, DType::f16, &r, {});
      CHECK(r == ConvertOutcome{ConvertStatus::overflow, at, 0});
      std::vector<double> w(n, 1.);
      w[at] = 0x1p+128;
      converted<std::uint16_t>(DType::f64, w, DType::bf16, &r, {});
      CHECK(r == ConvertOutcome{ConvertStatus::overflow, at, 0});
      std::vector<bfloat16> b(n, bfloat16(60000.f));  // whose f16 is a bf16 that overflows
      b[at] = bfloat16(1e9f);
      auto* const bytes = reinterpret_cast<std::byte*>(b.data());
      CHECK(convert(DType::bf16, bytes, DType::f16, bytes, n) == ConvertOutcome{ConvertStatus::overflow, at, 0});
      std::vector<std::complex<double>> z(n, 1.);
      z[at] = {0., 1e200};
      converted<std::complex<float>>(DType::c128, z, DType::c64, &r, {});
      CHECK(r == ConvertOutcome{ConvertStatus::overflow, at, 0});
    }
  }
}

#if defined(__SSE2__)
TEST_CASE("the caller's floating-point modes neither matter nor change") {
  const std::vector<float> f{0x1p-149f, 0x1p-20f, 1.f + 0x1p-11f, -1.f - 0x1p-11f};
  const std::vector<double> d{0x1p-149, 1. + 0x1p-24, -1. - 0x1p-24, 0x1p-130};
  on_every_target([&] {
    const auto half = converted<std::uint16_t>(DType::f32, f, DType::f16);
    const auto single = converted<std::uint32_t>(DType::f64, d, DType::f32);
    const auto brain = converted<std::uint16_t>(DType::f64, d, DType::bf16);
    const unsigned saved = _mm_getcsr();
    const unsigned odd = (saved & ~0x3Fu) | 0x8040u | 0x4000u;  // flush, denormals are zero, round up
    _mm_setcsr(odd);
    const auto half2 = converted<std::uint16_t>(DType::f32, f, DType::f16);
    const auto single2 = converted<std::uint32_t>(DType::f64, d, DType::f32);
    const auto brain2 = converted<std::uint16_t>(DType::f64, d, DType::bf16);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(saved);
    CHECK((after & ~0x3Fu) == odd);
    CHECK(half == half2);
    CHECK(single == single2);
    CHECK(brain == brain2);
  });
}
#endif

}  // namespace precision_test
