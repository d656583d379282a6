// Integers, bools, changes of kind, and the promise of `lossless`.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "support/precision_support.hpp"

namespace precision_int_test {

using namespace stele;
using namespace precision_test;

namespace {

constexpr DType kInts[] = {DType::i8, DType::i16, DType::i32, DType::i64,
                           DType::u8, DType::u16, DType::u32, DType::u64};

bool is_signed(DType d) { return dtype_class(d) == DTypeClass::signed_int; }

// The 64-bit two's complement of the value that the low bits of `word` have in `d`.
std::uint64_t extended(DType d, std::uint64_t word) {
  const unsigned spare = 64 - bits(d);
  return is_signed(d) ? static_cast<std::uint64_t>(static_cast<std::int64_t>(word << spare) >> spare)
                      : word << spare >> spare;
}

bool fits(DType from, std::uint64_t value, DType to) {
  const bool negative = is_signed(from) && value >> 63 != 0;
  if (negative && !is_signed(to)) return false;
  return extended(to, value) == value && (negative || !is_signed(to) || value >> 63 == 0);
}

void check_ints(DType from, DType to) {
  std::vector<std::uint64_t> values;
  for (const unsigned place : {0u, 7u, 8u, 15u, 16u, 31u, 32u, 63u}) {
    const std::uint64_t edge = std::uint64_t{1} << place;
    for (const std::uint64_t v : {edge - 1, edge, edge + 1, ~edge, 0 - edge}) values.push_back(extended(from, v));
  }
  constexpr std::size_t kCount = 600;
  std::vector<std::byte> in(kCount * 8);
  std::vector<std::byte> out(kCount * 8);
  const auto put = [&](std::size_t i, std::uint64_t v) { pd::store_bits(from, in.data() + i * element_size(from), v); };
  const auto got = [&](std::size_t i) { return extended(to, pd::load_bits(to, out.data() + i * element_size(to))); };
  for (std::size_t i = 0; i < kCount; ++i) put(i, 1);
  std::size_t wrong = 0;
  for (const std::uint64_t v : values) {
    const bool good = fits(from, v, to);
    for (const std::size_t at : {std::size_t{0}, std::size_t{300}, kCount - 1}) {
      put(at, v);
      const auto r = convert(from, in.data(), to, out.data(), kCount);
      wrong += r != (good ? ConvertOutcome{} : ConvertOutcome{ConvertStatus::out_of_range, at, 0});
      wrong += good && (got(at) != v || got(1) != 1);
      put(at, 1);
    }
  }
  INFO(name(from), " -> ", name(to));
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("integers of every width and sign, in range or not") {
  on_every_target([] {
    for (const DType from : kInts) {
      for (const DType to : kInts) check_ints(from, to);
    }
  });
}

TEST_CASE("bools, kinds and what is refused") {
  std::vector<std::uint8_t> flags(100, 1);
  ConvertOutcome r;
  CHECK(converted<std::uint8_t>(DType::boolean, flags, DType::boolean, &r) == flags);
  CHECK(r == ConvertOutcome{});
  for (const std::size_t at : {0u, 50u, 99u}) {
    flags[at] = 0x81;
    converted<std::uint8_t>(DType::boolean, flags, DType::boolean, &r);
    CHECK(r == ConvertOutcome{ConvertStatus::bad_bool, at, 0});
    converted<float>(DType::boolean, flags, DType::f32, &r, {.allow_kind_change = true});
    CHECK(r == ConvertOutcome{ConvertStatus::bad_bool, at, 0});
    flags[at] = 0;
  }
  constexpr ConvertRules kKinds{.allow_kind_change = true};
  CHECK(converted<float>(DType::boolean, flags, DType::f32, &r, kKinds)[49] == 1.f);
  const std::vector<float> floats{0.f, -0.f, 1.f, -128.f, 128.f, 0.5f};
  const auto small = converted<std::int8_t>(DType::f32, floats, DType::i8, &r, kKinds);
  CHECK(r == ConvertOutcome{ConvertStatus::out_of_range, 4, 0});
  CHECK(small[3] == -128);
  converted<std::int32_t>(DType::f32, floats, DType::i32, &r, kKinds);
  CHECK(r == ConvertOutcome{ConvertStatus::out_of_range, 5, 0});
  converted<std::uint8_t>(DType::f32, floats, DType::boolean, &r, kKinds);
  CHECK(r == ConvertOutcome{ConvertStatus::out_of_range, 3, 0});
  converted<std::int64_t>(DType::f32, std::vector<float>{NAN}, DType::i64, &r, kKinds);
  CHECK(r.status == ConvertStatus::out_of_range);
  const std::vector<std::int64_t> longs{16777217, -9007199254740993, std::numeric_limits<std::int64_t>::min()};
  const auto f = converted<float>(DType::i64, longs, DType::f32, &r, kKinds);
  CHECK((f[0] == 16777216.f && f[1] == -9007199254740992.f && f[2] == -0x1p63f));
  const auto d = converted<double>(DType::i64, longs, DType::f64, &r, kKinds);
  CHECK((d[0] == 16777217. && d[1] == -9007199254740992. && d[2] == -0x1p63));
  converted<std::uint16_t>(DType::i64, longs, DType::f16, &r, kKinds);
  CHECK(r == ConvertOutcome{ConvertStatus::overflow, 0, 0});

  for (const auto& [from, to] : {std::pair{DType::i32, DType::f32},
                                 {DType::f32, DType::i64},
                                 {DType::boolean, DType::u8},
                                 {DType::string, DType::string},
                                 {DType::i4, DType::i8},
                                 {DType::c64, DType::f32},
                                 {DType::none, DType::none},
                                 {static_cast<DType>(999), DType::f32}}) {
    CHECK_FALSE(convertible(from, to));
    CHECK(convert(from, nullptr, to, nullptr, 1).status == ConvertStatus::unsupported);
  }
  CHECK_FALSE(convertible(DType::c64, DType::f32, kKinds));
  // Packed elements are copied by the byte.
  const std::vector<std::uint8_t> packed{0x21, 0x43, 0x05};
  std::vector<std::uint8_t> copy(3);
  convert(DType::i4, reinterpret_cast<const std::byte*>(packed.data()), DType::i4,
          reinterpret_cast<std::byte*>(copy.data()), 5);
  CHECK(copy == packed);
}

TEST_CASE("lossless means that every value survives") {
  constexpr DType kAll[] = {DType::f64,     DType::f32,         DType::f16,         DType::bf16,    DType::f8_e4m3fn,
                            DType::f8_e5m2, DType::f8_e4m3fnuz, DType::f8_e5m2fnuz, DType::f8_e8m0, DType::i64,
                            DType::i32,     DType::i16,         DType::i8,          DType::u64,     DType::u32,
                            DType::u16,     DType::u8,          DType::boolean};
  for (const DType from : kAll) {
    std::vector<std::uint64_t> codes;  // all of them, or what is next to a power of two
    if (bits(from) <= 16) {
      for (std::uint64_t c = 0; c < (from == DType::boolean ? 2u : 1u << bits(from)); ++c) codes.push_back(c);
    } else {
      const std::uint64_t mask = ~std::uint64_t{0} >> (64 - bits(from));
      for (unsigned s = 0; s < bits(from); ++s) {
        for (const std::uint64_t c : {1ull << s, (1ull << s) - 1, (1ull << s) + 1, ~(1ull << s), 0 - (1ull << s)}) {
          codes.push_back(c & mask);
        }
      }
    }
    for (const DType to : kAll) {
      bool survives = true;
      for (const std::uint64_t c : codes) {
        std::uint64_t there = 0;
        const pd::Number n = pd::decode(from, c);
        survives &= pd::convert_one(from, c, to, there) == ConvertStatus::ok;
        const pd::Number m = pd::decode(to, there);
        survives &= n.kind == m.kind &&
                    (n.kind == pd::Number::Kind::nan ||
                     (n.negative == m.negative && n.exponent == m.exponent && n.significand == m.significand));
        if (!survives) break;
      }
      INFO(name(from), " -> ", name(to));
      CHECK(lossless(from, to) == survives);
    }
  }
  CHECK(lossless(DType::c64, DType::c128));
  CHECK_FALSE(lossless(DType::c128, DType::c64));
  CHECK(lossless(DType::i4, DType::i4));
}

}  // namespace precision_int_test
