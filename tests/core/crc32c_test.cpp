#include "base/crc32c.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <vector>

namespace crc32c_test {

namespace {

using stele::detail::crc32c;
using stele::detail::crc32c_by_table;

}  // namespace

TEST_CASE("crc32c: the vectors of RFC 3720") {
  std::vector<unsigned char> bytes(32);
  CHECK(crc32c(0, bytes.data(), 32) == 0x8a9136aaU);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  CHECK(crc32c(0, bytes.data(), 32) == 0x46dd794eU);
  CHECK(crc32c_by_table(0, bytes.data(), 32) == 0x46dd794eU);
  CHECK(crc32c(0, "123456789", 9) == 0xe3069283U);
  CHECK(crc32c(0, nullptr, 0) == 0);
}

TEST_CASE("crc32c: every length, place and split gives the same as the table") {
  std::string bytes(300, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 131 + i / 7);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t size = 0; size + begin <= bytes.size(); ++size) {
      const std::uint32_t whole = crc32c(0, bytes.data() + begin, size);
      REQUIRE(crc32c_by_table(0, bytes.data() + begin, size) == whole);
      const std::size_t half = size / 3;
      REQUIRE(crc32c(crc32c(0, bytes.data() + begin, half), bytes.data() + begin + half, size - half) == whole);
    }
  }
}

TEST_CASE("crc32c: masks are inverse") {
  for (const std::uint32_t crc : {0U, 1U, 0x80000000U, 0xffffffffU, 0xe3069283U}) {
    CHECK(stele::detail::unmasked_crc(stele::detail::masked_crc(crc)) == crc);
    CHECK(stele::detail::masked_crc(crc) != crc);
  }
}

}  // namespace crc32c_test
