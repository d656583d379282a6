// Tensors as readable numbers in JSON records.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "passes/byte_order.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/stele_file.hpp"

#include "json_documents.hpp"

namespace json_numbers_test {

using namespace stele;
using namespace stele_test;
using namespace stele_test::json_documents;

namespace {

/// Saves the bits as numbers and gives what comes back.
template <class Word>
std::vector<Word> through_numbers(DType dtype, const std::vector<Word>& words) {
  static constexpr LeafOps ops{.view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
  SnapshotBuilder builder;
  builder.begin(NodeKind::module, "");
  builder.tensor("x", dtype, std::vector<Extent>{words.size()}, words.size() * sizeof(Word), {&ops, words.data(), 0});
  const JsonRecorder<> recorder(JsonFormat({.encoding = JsonEncoding::plain, .numbers_up_to = UINT64_MAX}));
  const auto bytes = saved(recorder, builder.finish());
  REQUIRE_MESSAGE(bytes, why(bytes));
  REQUIRE(text_of(bytes->span()).find("\"data\":[") != std::string_view::npos);
  const auto back = recorder.open(*bytes);
  REQUIRE_MESSAGE(back, why(back));
  const auto text = content(back->leaf(0));
  REQUIRE_MESSAGE(text, why(text));
  REQUIRE(text->size() == words.size() * sizeof(Word));
  std::vector<Word> again(words.size());
  std::memcpy(again.data(), text->data(), text->size());
  return again;
}

template <class Word>
std::vector<Word> random_words(std::size_t n) {
  Random random(3);
  std::vector<Word> words(n);
  for (Word& w : words) w = static_cast<Word>(random.bits());
  for (unsigned i = 0; i < 8 * sizeof(Word); ++i) words.push_back(static_cast<Word>(Word{1} << i));
  words.push_back(0), words.push_back(static_cast<Word>(~Word{0}));
  return words;
}

}  // namespace

TEST_CASE("json: numbers keep every bit") {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  for (const DType d : {DType::f16, DType::bf16, DType::i16, DType::u16}) {
    CAPTURE(std::string(name(d)));
    CHECK(through_numbers(d, halves) == halves);
  }
  for (const DType d : {DType::f32, DType::i32, DType::u32}) {
    CAPTURE(std::string(name(d)));
    const auto words = random_words<std::uint32_t>(20000);
    CHECK(through_numbers(d, words) == words);
  }
  for (const DType d : {DType::f64, DType::i64, DType::u64}) {
    CAPTURE(std::string(name(d)));
    const auto words = random_words<std::uint64_t>(20000);
    CHECK(through_numbers(d, words) == words);
  }
  std::vector<std::uint8_t> bytes(256);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  for (const DType d : {DType::i8, DType::u8, DType::boolean}) CHECK(through_numbers(d, bytes) == bytes);
}

TEST_CASE("json: numbers as others write them") {
  const auto load = [](const char* dtype, const char* shape, const std::string& data) {
    return content(plain
                       .open(bytes_of(document(R"({"x":{"$dtype":")" + std::string(dtype) + R"(","shape":)" + shape +
                                               R"(,"data":)" + data + "}}")))
                       .value()
                       .leaf(0));
  };
  const auto floats = [](std::vector<float> all) {
    return std::string(reinterpret_cast<const char*>(all.data()), all.size() * 4);
  };
  CHECK(load("F32", "[3]", "[ 1 ,\n2e0, -0.5E+1 ]").value() == floats({1, 2, -5}));
  CHECK(load("F32", "[2,1]", "[[1.00000000000000000000001],[16777217]]").value() == floats({1, 16777216}));
  CHECK(load("F32", "[]", "[4]").value() == floats({4}));
  for (const char* bad : {"[1,2]",           "[1,2,3,4]",  "[[1,2,3]]",  "[1,2,+3]",      "[1,2,03]",
                          "[1,2,.5]",        "[1,2,1.]",   "[1,2,1e]",   "[1,2,\"Inf\"]", "[1,2,\"0x7f800000\"]",
                          "[1,2,\"0x7fc\"]", "[1,2,1e39]", "[1,2,true]", "[1,2,null]",    "[1,2,3,]",
                          "[1,,2,3]",        "[1 2 3]",    "[1,2,3]]",   "[1,2,1e999]",   "[1,2,nan]"}) {
    CAPTURE(std::string(bad));
    const std::string text = document(R"({"a":1,"x":{"$dtype":"F32","shape":[3],"data":)" + std::string(bad) + "}}");
    const auto opened = plain.open(bytes_of(text));
    const auto read = opened ? plain.verify(bytes_of(text)) : Result<Report>(opened.error());
    REQUIRE(!read);
    if (opened) CHECK(read.error().path() == "x");
    REQUIRE(read.error().offset());
    CHECK(*read.error().offset() >= text.rfind("\"data\""));
    CHECK(*read.error().offset() <= text.size());
  }
  for (const char* bad : {"[1.0]", "[-0]", "[128]", "[-129]", "[1e2]", "[\"1\"]", "[99999999999999999999]"}) {
    CAPTURE(bad);
    CHECK_FALSE(load("I8", "[1]", bad));
  }
  CHECK_FALSE(load("U64", "[1]", "[18446744073709551616]"));
  CHECK(load("U64", "[1]", "[18446744073709551615]").value() == std::string(8, '\xff'));
  CHECK_FALSE(load("F16", "[1]", "[65520]"));
  CHECK(in_file_order(load("F16", "[1]", "[65519.9]").value(), DType::f16) == std::string("\xff\x7b"));
  // A number of a million digits.
  const std::string digits = "[1." + std::string(1000000, '0') + "]";
  CHECK(code_of(plain.open(bytes_of(document(R"({"x":{"$dtype":"F32","shape":[1],"data":)" + digits + "}}")))) ==
        Errc::limit);
  CHECK_FALSE(load("F32", "[1]", digits.substr(0, 2000) + "]"));
}

}  // namespace json_numbers_test
