// Protobuf's wire format, without a message of any format.
#include "encodings/protobuf/protobuf.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace protobuf_test {

namespace {

using stele::Errc;
namespace protobuf = stele::detail::protobuf;

std::vector<std::byte> bytes(std::initializer_list<unsigned> numbers) {
  std::vector<std::byte> out;
  for (const unsigned n : numbers) out.push_back(static_cast<std::byte>(n));
  return out;
}

/// Returns the offset of the error that reading all fields gives, or -1 if there is none.
long long fault(std::initializer_list<unsigned> message, std::uint64_t base = 0) {
  const auto all = bytes(message);
  protobuf::Reader in(all, base);
  while (in.next()) {
  }
  const auto status = in.status();
  if (status) return -1;
  CHECK(status.error().code() == Errc::malformed);
  return static_cast<long long>(status.error().offset().value());
}

}  // namespace

TEST_CASE("protobuf: fields of every wire type, in order") {
  const auto all = bytes({0x08, 0x96, 0x01,                            // 1: 150
                          0x11, 1,    2,    3,    4,    5,   6, 7, 8,  // 2: 64 bits
                          0x1a, 3,    'a',  'b',  'c',                 // 3: "abc"
                          0x25, 1,    2,    3,    4,                   // 4: 32 bits
                          0x2a, 2,    0x08, 0x07,                      // 5: a message with 1: 7
                          0x32, 3,    0x05, 0xac, 0x02,                // 6: packed 5, 300
                          0xf8, 0xff, 0xff, 0xff, 0x0f, 0x01});        // 2^29 - 1: 1
  protobuf::Reader in(all);
  REQUIRE(in.next());
  CHECK(in.is(1));
  CHECK(!in.has_length());
  CHECK(in.number() == 150);
  REQUIRE(in.next());
  CHECK(in.is(2));
  REQUIRE(in.next());
  CHECK(in.is(3));
  CHECK(in.has_length());
  CHECK(in.text() == "abc");
  CHECK(in.bytes().size() == 3);
  REQUIRE(in.next());
  CHECK(in.is(4));
  REQUIRE(in.next());
  auto inner = in.message();
  REQUIRE(inner.next());
  CHECK(inner.number() == 7);
  CHECK(!inner.next());
  CHECK(inner.status());
  REQUIRE(in.next());
  auto packed = in.message();
  std::uint64_t number = 0;
  REQUIRE(packed.varint(number));
  CHECK(number == 5);
  REQUIRE(packed.varint(number));
  CHECK(number == 300);
  CHECK(!packed.varint(number));
  CHECK(packed.status());
  REQUIRE(in.next());
  CHECK(in.is((1U << 29) - 1));
  CHECK(!in.next());
  CHECK(in.status());
}

TEST_CASE("protobuf: invalid bytes end the message") {
  CHECK(fault({}) == -1);
  CHECK(fault({0x00, 0x00}, 100) == 101);                                               // field 0
  CHECK(fault({0x0b}) == 1);                                                            // a group
  CHECK(fault({0x08}) == 1);                                                            // no number
  CHECK(fault({0x08, 0x80}) == 2);                                                      // half a number
  CHECK(fault({0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}) == -1);  // 2^64 - 1
  CHECK(fault({0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2}) == 11);
  CHECK(fault({0x1a, 2, 'a'}, 7) == 9);  // a length beyond the end
  CHECK(fault({0x11, 1, 2, 3}) == 1);
  CHECK(fault({0x80, 0x80, 0x80, 0x80, 0x10, 0}) == 5);  // a field number of more than 29 bits
}

TEST_CASE("protobuf: a field of another wire type is an error, with the offset in the file") {
  const auto all = bytes({0x0a, 4, 0x12, 1, 'x', 0x00});
  protobuf::Reader in(all, 50);
  REQUIRE(in.next());
  auto inner = in.message();
  REQUIRE(inner.next());
  (void)inner.number();
  CHECK(!inner.next());
  REQUIRE(!inner.status());
  CHECK(inner.status().error().offset() == 55U);
  CHECK(in.status());
  CHECK(in.number() != 0);
  CHECK(!in.status());
}

TEST_CASE("protobuf: numbers are written as they are read") {
  std::vector<std::byte> all;
  protobuf::put_number(all, 1, 150);
  CHECK(all == bytes({0x08, 0x96, 0x01}));
  for (const std::uint64_t n : {std::uint64_t{0}, std::uint64_t{127}, std::uint64_t{128}, ~std::uint64_t{0}}) {
    std::vector<std::byte> one;
    protobuf::put_number(one, 2048, n);
    protobuf::Reader in(one);
    REQUIRE(in.next());
    CHECK(in.is(2048));
    CHECK(in.number() == n);
    CHECK(!in.next());
    CHECK(in.status());
  }
}

}  // namespace protobuf_test
