// Compressed `.stele`: what shrinks, what does not, parts, and that threads change no byte.
#include <stele/precision/shuffle.hpp>
#include <stele/recorders/stele_reader.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

using namespace stele_test;
using stele::CompressedRecorder;
using stele::Errc;
using stele::Snapshot;
using stele::Tensor;

namespace stele_test {
namespace {

struct Mixed {
  Tensor<float, 1> large;
  Tensor<double, 1> doubles;
  Tensor<stele::bfloat16, 1> halves;
  Tensor<std::uint8_t, 1> noise;
  Tensor<std::int32_t, 2> small{std::array<stele::Extent, 2>{2, 2}};
  Tensor<bool, 1> none{std::array<stele::Extent, 1>{0}};
  STELE_MODULE(Mixed, large, doubles, halves, noise, small, none)
};

/// Like trained weights: a normal distribution.
Mixed mixed(std::size_t n) {
  Mixed m;
  std::mt19937 engine(3);
  std::normal_distribution<float> normal(0, 0.02F);
  m.large = Tensor<float, 1>({n});
  m.doubles = Tensor<double, 1>({n / 2 + 1});
  m.halves = Tensor<stele::bfloat16, 1>({n});
  m.noise = Tensor<std::uint8_t, 1>({n});
  for (float& x : m.large) x = normal(engine);
  for (double& x : m.doubles) x = static_cast<double>(normal(engine));
  for (stele::bfloat16& x : m.halves) x = stele::bfloat16(normal(engine));
  for (std::uint8_t& x : m.noise) x = static_cast<std::uint8_t>(engine());
  std::fill(m.small.begin(), m.small.end(), 7);
  return m;
}

stele::Bytes packed(const Mixed& m, unsigned threads = 0) {
  stele::SaveOptions options;
  options.threads = threads;
  return good(saved(CompressedRecorder<>{}, m, options));
}

}  // namespace

TEST_CASE("compression: shuffle and back, every width and length") {
  Random random(5);
  for (const std::size_t width : {1U, 2U, 3U, 4U, 8U, 16U}) {
    for (const std::size_t count : {0U, 1U, 2U, 15U, 16U, 17U, 63U, 100U, 511U, 512U, 513U, 5000U}) {
      CAPTURE(width);
      CAPTURE(count);
      std::vector<std::byte> plain(width * count), there(width * count), back(width * count);
      random.fill(plain);
      stele::shuffle_bytes(plain.data(), there.data(), count, width);
      stele::unshuffle_bytes(there.data(), back.data(), count, width);
      REQUIRE(back == plain);
      if (width != 2 && width != 4 && width != 8) continue;
      bool same = true;
      for (std::size_t i = 0; i < plain.size(); ++i) same = same && there[i % width * count + i / width] == plain[i];
      REQUIRE(same);
    }
  }
}

TEST_CASE("compression: trained numbers shrink, noise stays as it is, all comes back") {
  const Mixed m = mixed(3000001);  // several frames, the last one short
  const stele::Bytes bytes = packed(m);
  const Snapshot s = good(CompressedRecorder<>{}.open(bytes));
  CHECK(image(good(stele::BytesRecorder<>{}.load<Mixed>(bytes))) == image(m));
  CHECK(s.find("large")->view().empty());  // compressed
  if (std::endian::native == std::endian::little) {
    CHECK(!s.find("noise")->view().empty());  // as it is
    CHECK(!s.find("small")->view().empty());
  }
  const double plain = static_cast<double>(good(stele::BytesRecorder<>{}.save(m)).size());
  CHECK(static_cast<double>(bytes.size()) < 0.87 * plain);
  good(CompressedRecorder<>{}.verify(bytes));
}

TEST_CASE("compression: the bytes do not depend on threads or sink") {
  const Mixed m = mixed(3000000);
  const stele::Bytes one = packed(m, 1);
  for (const unsigned threads : {2U, 3U, 8U}) {
    const stele::Bytes other = packed(m, threads);
    CHECK(std::equal(one.span().begin(), one.span().end(), other.span().begin(), other.span().end()));
  }
  for (const unsigned threads : {1U, 5U}) {
    stele::LoadOptions options;
    options.threads = threads;
    CHECK(image(good(CompressedRecorder<>{}.load<Mixed>(one, options))) == image(m));
  }
}

TEST_CASE("compression: parts are read from the frames that hold them") {
  const Mixed m = mixed(1500000);
  const stele::Bytes bytes = packed(m);
  const Snapshot s = good(CompressedRecorder<>{}.open(bytes));
  const auto leaf = *s.find("large");
  const std::size_t frame = (std::size_t{1} << 20) / 4;
  for (const std::size_t first :
       {std::size_t{0}, std::size_t{1}, frame - 3, frame, 3 * frame - 1, std::size_t{1499990}}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{10}, 2 * frame}) {
      if (first + count > m.large.size()) continue;
      std::vector<float> part(count);
      good(leaf.read(first * 4, std::as_writable_bytes(std::span(part))));
      CHECK(std::equal(part.begin(), part.end(), m.large.data() + first));
    }
  }
}

TEST_CASE("compression: the reader without a heap names what it cannot read") {
  const Mixed m = mixed(3000);
  const stele::Bytes bytes = packed(m);
  stele::format::MemoryFile file;
  REQUIRE(!file.open(bytes.span()));
  stele::format::TensorBytes tensor;
  CHECK(file.tensor("large", tensor).code == Errc::unsupported);
  REQUIRE(!file.tensor("small", tensor));
  CHECK(tensor.bytes.size() == 16);
}

}  // namespace stele_test
