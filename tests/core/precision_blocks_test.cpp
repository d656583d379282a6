// Codecs of quantized blocks: what ggml makes of the same bytes and numbers, on every SIMD target this machine runs.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.hpp"
#include "block_support.hpp"
#include "stele/precision/blocks.hpp"
#include "support/precision_support.hpp"
#include "support/temp_dir.hpp"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace precision_blocks_test {

using namespace stele;
using block_test::all_types;
using precision_test::on_every_target;

namespace {

using ByteArray = std::vector<std::byte>;
using Floats = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Floats decoded(DType d, const ByteArray& blocks) {
  const std::size_t count = blocks.size() / block_size(d).bytes;
  Floats out(count * block_size(d).elements);
  decode_blocks(d, blocks.data(), out.data(), count);
  return out;
}

ByteArray encoded(DType d, const Floats& x) {
  const std::size_t count = x.size() / block_size(d).elements;
  ByteArray out(count * block_size(d).bytes);
  CHECK(encode_blocks(d, x.data(), out.data(), count) == x.size());
  return out;
}

// Also distinguishes 0 from -0 and compares NaNs.
std::vector<std::uint32_t> bits_of(const Floats& x) {
  std::vector<std::uint32_t> u(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) u[i] = std::bit_cast<std::uint32_t>(x[i]);
  return u;
}

std::string hex(const ByteArray& bytes) {
  std::string s;
  for (const std::byte b : bytes) {
    s += "0123456789abcdef"[static_cast<unsigned>(b) >> 4];
    s += "0123456789abcdef"[static_cast<unsigned>(b) & 15];
  }
  return s;
}

ByteArray from_hex(std::string_view s) {
  ByteArray bytes;
  for (std::size_t i = 0; i + 1 < s.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(s.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

std::string xxh3(const ByteArray& bytes) {
  const std::uint64_t hash = detail::hash64(bytes.data(), bytes.size());
  ByteArray big_endian;
  for (int k = 7; k >= 0; --k) big_endian.push_back(static_cast<std::byte>(hash >> (8 * k)));
  return hex(big_endian);
}
std::string xxh3(const Floats& x) { return xxh3(block_test::little_endian(x)); }

// The lines of a file of tests/formats/gguf/data, each as its columns.
std::vector<std::vector<std::string>> table(const std::string& file) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(stele_test::read_text(stele_test::test_data("gguf") + "/" + file));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> row;
    std::istringstream columns(line);
    for (std::string column; std::getline(columns, column, '\t');) row.push_back(column);
    rows.push_back(row);
  }
  return rows;
}

DType type_named(std::string_view wanted) {
  for (const DType d : all_types()) {
    if (name(d) == wanted) return d;
  }
  return DType::none;
}

std::vector<DType> encodable_types() {
  std::vector<DType> types = all_types();
  types.erase(std::remove_if(types.begin(), types.end(), [](DType d) { return !encodable(d); }), types.end());
  return types;
}

}  // namespace

TEST_CASE("blocks: every type decodes to the numbers of ggml") {
  const auto rows = table("blocks.tsv");
  REQUIRE(rows.size() == all_types().size());
  for (const auto& row : rows) {
    REQUIRE(row.size() == 7);
    const DType d = type_named(row[1]);
    CAPTURE(name(d));
    REQUIRE(static_cast<int>(d) - 64 == std::stoi(row[0]));
    const ByteArray block = from_hex(row[2]);
    REQUIRE(block.size() == block_size(d).bytes);
    const ByteArray random = block_test::random_blocks(d, 64);
    on_every_target([&] {
      Floats x = decoded(d, block);
      std::istringstream first(row[3]);
      for (std::size_t i = 0; i < 6; ++i) {
        float expected = 0;
        first >> expected;
        CHECK(x[i] == expected);
      }
      for (float& v : x) v = v == 0 ? 0 : v;  // the file has 0 for -0
      CHECK(xxh3(x) == row[5]);
      CHECK(xxh3(decoded(d, random)) == row[6]);
    });
  }
}

TEST_CASE("blocks: encoders write the bytes of ggml") {
  std::size_t types = 0;
  for (const auto& row : table("encoders.tsv")) {
    REQUIRE(row.size() >= 3);
    const DType d = type_named(row[0]);
    CAPTURE(name(d));
    CAPTURE(row[1]);
    types += row[1] == "formula";
    const Floats x = block_test::input(row[1]);
    on_every_target([&] {
      const ByteArray blocks = encoded(d, x);
      if (row.size() > 3) CHECK(hex(blocks) == row[3]);
      CHECK(xxh3(blocks) == row[2]);
    });
  }
  CHECK(types == encodable_types().size());
}

TEST_CASE("blocks: mxfp4 of tiny numbers has the least exponent, where that of ggml wraps around") {
  Floats x(64, 0x1p-140F);
  x[40] = -0x1.8p-127F;
  on_every_target([&] {
    const ByteArray blocks = encoded(DType::mxfp4, x);
    CHECK(blocks[0] == std::byte{0});
    CHECK(blocks[17] == std::byte{0});
    const Floats y = decoded(DType::mxfp4, blocks);
    CHECK(y[0] == 0);
    CHECK(y[40] == x[40]);
  });
}

TEST_CASE("blocks: every target gives the bits of the scalar target") {
  const std::int64_t scalar = [] {
    std::int64_t last = 0;  // the greatest number of a target is that of scalar code
    for (auto left = precision_detail::available_targets(); left != 0; left &= left - 1) last = left & -left;
    return last;
  }();
  for (const DType d : all_types()) {
    CAPTURE(name(d));
    const ByteArray blocks = block_test::random_blocks(d, 100);
    precision_detail::force_target(scalar);
    const auto numbers = bits_of(decoded(d, blocks));
    on_every_target([&] { CHECK(bits_of(decoded(d, blocks)) == numbers); });
    if (!encodable(d)) continue;
    // All patterns of floats, of which most blocks have some that are very large or very small.
    block_test::Random random(7);
    Floats x(2048);
    for (float& v : x) {
      v = std::bit_cast<float>(random.next());
      if (!std::isfinite(v)) v = 1;
    }
    precision_detail::force_target(scalar);
    const ByteArray expected = encoded(d, x);
    on_every_target([&] { CHECK(encoded(d, x) == expected); });
  }
}

TEST_CASE("blocks: a decoded number differs from the encoded one by a step at most") {
  struct Bound {
    DType dtype;
    float error;  // as a fraction of the block's largest magnitude
  };
  constexpr Bound bounds[] = {
      {DType::q4_0, 0.126F},  {DType::q4_1, 0.068F}, {DType::q5_0, 0.063F}, {DType::q5_1, 0.033F},
      {DType::q8_0, 0.0045F}, {DType::q2_k, 0.36F},  {DType::q3_k, 0.25F},  {DType::q4_k, 0.09F},
      {DType::q5_k, 0.06F},   {DType::q6_k, 0.022F}, {DType::iq4_nl, 0.1F}, {DType::tq1_0, 0.501F},
      {DType::tq2_0, 0.501F}, {DType::mxfp4, 0.25F}, {DType::nvfp4, 0.17F}, {DType::q1_0, 1},
      {DType::q2_0, 0.501F},
  };
  for (const Bound& bound : bounds) {
    const DType d = bound.dtype;
    CAPTURE(name(d));
    for (const std::string_view kind : {"bell", "positive", "negative", "sparse", "ties"}) {
      CAPTURE(kind);
      const Floats x = block_test::input(kind);
      const Floats y = decoded(d, encoded(d, x));
      const std::size_t n = block_size(d).elements;
      float worst = 0;
      for (std::size_t at = 0; at < x.size(); at += n) {
        float largest = 0;
        float error = 0;
        for (std::size_t i = at; i < at + n; ++i) {
          largest = std::max(largest, std::fabs(x[i]));
          error = std::max(error, std::fabs(x[i] - y[i]));
        }
        if (largest != 0) worst = std::max(worst, error / largest);
      }
      CHECK(worst <= bound.error);
    }
    for (const float v : decoded(d, encoded(d, block_test::input("mixed_zeros")))) CHECK(v == 0);
  }
}

TEST_CASE("blocks: the first number that is not finite is reported") {
  for (const DType d : encodable_types()) {
    CAPTURE(name(d));
    const std::size_t n = block_size(d).elements;
    const std::size_t blocks = 10000 / n;  // more than are checked at a time
    Floats x(n * blocks, 0.5F);
    ByteArray out(blocks * block_size(d).bytes);
    for (const std::size_t at : {std::size_t{0}, n - 1, n, std::size_t{4095}, std::size_t{4096}, x.size() - 1}) {
      for (const float bad : {kInfinity, -kInfinity, kNan, -kNan}) {
        x[at] = bad;
        x.back() = bad;
        CHECK(encode_blocks(d, x.data(), out.data(), blocks) == at);
      }
      x[at] = std::numeric_limits<float>::max();
      x.back() = -std::numeric_limits<float>::max();
      CHECK(encode_blocks(d, x.data(), out.data(), blocks) == x.size());
      x[at] = x.back() = 0.5F;
    }
    CHECK(encode_blocks(d, x.data(), out.data(), 0) == 0);
  }
}

TEST_CASE("blocks: scales that are not finite give no finite number, and equal NaNs") {
  struct Scale {
    DType dtype;
    std::size_t at;  // the byte of an f16
  };
  constexpr Scale scales[] = {
      {DType::q4_0, 0},   {DType::q4_1, 0},   {DType::q4_1, 2},    {DType::q5_0, 0},   {DType::q5_1, 2},
      {DType::q8_0, 0},   {DType::q8_1, 0},   {DType::q2_k, 80},   {DType::q2_k, 82},  {DType::q3_k, 108},
      {DType::q4_k, 0},   {DType::q4_k, 2},   {DType::q5_k, 0},    {DType::q6_k, 208}, {DType::iq2_xxs, 0},
      {DType::iq2_xs, 0}, {DType::iq2_s, 0},  {DType::iq3_xxs, 0}, {DType::iq3_s, 0},  {DType::iq1_s, 0},
      {DType::iq4_nl, 0}, {DType::iq4_xs, 0}, {DType::tq1_0, 52},  {DType::tq2_0, 64}, {DType::q1_0, 0},
      {DType::q2_0, 0},
  };
  for (const Scale& scale : scales) {
    const DType d = scale.dtype;
    CAPTURE(name(d));
    ByteArray blocks = block_test::random_blocks(d, 8);
    for (const unsigned f16 : {0x7C00u, 0xFC00u, 0x7C01u, 0xFFFFu}) {
      for (std::size_t k = 0; k < 8; ++k) {
        blocks[k * block_size(d).bytes + scale.at] = static_cast<std::byte>(f16 & 255);
        blocks[k * block_size(d).bytes + scale.at + 1] = static_cast<std::byte>(f16 >> 8);
      }
      const auto all_bad = [](const Floats& x) {
        return std::all_of(x.begin(), x.end(),
                           [](float v) { return std::isinf(v) || std::bit_cast<std::uint32_t>(v) == 0x7FC00000u; });
      };
      on_every_target([&] { CHECK(all_bad(decoded(d, blocks))); });
    }
  }
}

TEST_CASE("blocks: bytes may be anywhere, and none beyond the blocks is touched") {
  for (const DType d : all_types()) {
    CAPTURE(name(d));
    const ByteArray blocks = block_test::random_blocks(d, 3);
    const auto expected = bits_of(decoded(d, blocks));
    const std::size_t n = expected.size();
    on_every_target([&] {
      ByteArray shifted(blocks.size() + 1);
      std::copy(blocks.begin(), blocks.end(), shifted.begin() + 1);
      Floats x(n + 2, 7);
      decode_blocks(d, shifted.data() + 1, x.data() + 1, 3);
      CHECK((x.front() == 7 && x.back() == 7));
      CHECK(bits_of({x.begin() + 1, x.end() - 1}) == expected);
      if (!encodable(d)) return;
      const Floats numbers(n, 0.75F);
      ByteArray out(blocks.size() + 2, std::byte{0x5A});
      CHECK(encode_blocks(d, numbers.data(), out.data() + 1, 3) == n);
      CHECK((out.front() == std::byte{0x5A} && out.back() == std::byte{0x5A}));
      CHECK(ByteArray(out.begin() + 1, out.end() - 1) == encoded(d, numbers));
    });
  }
}

TEST_CASE("blocks: other dtypes have no codec, and some types only a decoder") {
  float x[256] = {1};
  std::byte bytes[512] = {std::byte{9}};
  for (const DType d : {DType::none, DType::f32, DType::i4, DType::opaque, static_cast<DType>(68)}) {
    CHECK_FALSE(encodable(d));
    CHECK(encode_blocks(d, x, bytes, 1) == 0);
    decode_blocks(d, bytes, x, 1);
  }
  for (const DType d : {DType::q8_1, DType::q8_k, DType::iq2_xxs, DType::iq1_m, DType::iq4_xs}) {
    CHECK_FALSE(encodable(d));
    CHECK(encode_blocks(d, x, bytes, 1) == 0);
  }
  CHECK(x[0] == 1);
  CHECK(bytes[0] == std::byte{9});
  CHECK(encodable_types().size() == 17);
}

#if defined(__SSE2__)
TEST_CASE("blocks: the caller's float modes change nothing, and are kept") {
  for (const DType d : encodable_types()) {
    CAPTURE(name(d));
    const Floats x = block_test::input("scaled");
    ByteArray blocks = encoded(d, x);
    const auto numbers = bits_of(decoded(d, blocks));
    ByteArray blocks2(blocks.size());
    Floats numbers2(x.size());
    const std::size_t count = x.size() / block_size(d).elements;
    const unsigned saved = _mm_getcsr();
    const unsigned odd = (saved & ~0x3Fu) | 0x8040u | 0x4000u;  // flush, denormals are zero, round up
    _mm_setcsr(odd);
    encode_blocks(d, x.data(), blocks2.data(), count);
    decode_blocks(d, blocks2.data(), numbers2.data(), count);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(saved);
    CHECK((after & ~0x3Fu) == odd);
    CHECK(blocks == blocks2);
    CHECK(numbers == bits_of(numbers2));
  }
}
#endif

}  // namespace precision_blocks_test
