// JSON: an index that is not that of its document, and numbers that are too small for their dtype.
#include <stele/recorders/json.hpp>

#include <doctest/doctest.h>
#include <zstd.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "support/left_out.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace json_truth_test {

using namespace stele_test;
using stele::Bytes;
using stele::DType;
using stele::Errc;
using stele::JsonEncoding;
using stele::JsonFormat;
using stele::JsonOptions;
using stele::Snapshot;
using stele::Tensor;

namespace {

struct Model {
  Tensor<float, 2> weight;
  Tensor<std::int32_t, 1> counts;
  std::string text;
  std::vector<Linear> layers;
};
Model model(float first) {
  return {mat(3, 4, first),
          Tensor<std::int32_t, 1>({2}, {7, 8}),
          "a [text] with \"quotes\" and null",
          {Linear(2, 3, first)}};
}

Bytes zst(const Model& m, JsonOptions options) {
  options.encoding = JsonEncoding::zstd;
  return good(saved(stele::Recorder<JsonFormat>(JsonFormat(options)), m));
}

std::string document(std::string_view dtype, std::string_view number) {
  return R"({"format":"stele-json","version":1,"record":{"a":{"$dtype":")" + std::string(dtype) +
         R"(","shape":[1],"data":[)" + std::string(number) + R"(]},"v":)" +
         (number.find_first_of(".e") != number.npos ? std::string(number) : "0.5") + "}}";
}

}  // namespace

TEST_CASE("json: the index of a compressed document is compared with the document by verify") {
  const stele::JsonRecorder<> recorder;
  for (const bool pretty : {false, true}) {
    for (const std::uint64_t numbers : {std::uint64_t{0}, std::uint64_t{8}, std::uint64_t{1000}}) {
      const Bytes bytes = zst(model(1), {.pretty = pretty, .numbers_up_to = numbers});
      good(recorder.verify(bytes));
      // The same document without an index.
      std::string plain(1 << 20, '\0');
      std::size_t size = 0;
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t frame = ZSTD_findFrameCompressedSize(bytes.data() + at, bytes.size() - at);
        REQUIRE(ZSTD_isError(frame) == 0);
        if (bytes.data()[at] == std::byte{0x28}) {
          size += ZSTD_decompress(plain.data() + size, plain.size() - size, bytes.data() + at, frame);
        }
        at += frame;
      }
      good(recorder.verify(bytes_of(std::string_view(plain).substr(0, size))));
    }
  }
}

TEST_CASE("json: an index that tells another story than the document is refused by verify") {
  const auto file = shared_file("repro/two-truths.json.zst");
  if (!file) return;
  const auto r = stele::JsonRecorder<>().verify(*file);
  CAPTURE(why(r));
  CHECK(code_of(r) == Errc::malformed);
}

TEST_CASE("json: a number that is too small for any but zero is zero, for every dtype and for values") {
  const std::string zeros(400, '0');
  struct Case {
    std::string text;
    bool negative;
  };
  const Case tiny[] = {{"1e-400", false},
                       {"-1e-400", true},
                       {"0." + zeros + "1", false},
                       {"-0." + zeros + zeros + "12345e-5", true},
                       {"9.9E-99999999999999999999", false},
                       {"-123456789e-999", true},
                       {"1" + zeros + "e-900", false}};
  const stele::Recorder<ReadableJsonFormat> recorder;
  for (const Case& c : tiny) {
    for (const char* dtype : {"F64", "F32", "F16", "BF16"}) {
      const std::string text = document(dtype, c.text);
      CAPTURE(text);
      const Snapshot snapshot = good(recorder.open(bytes_of(text)));
      const stele::LeafView leaf = snapshot.find("a").value();
      const std::string bytes = in_file_order(good(content(leaf)), leaf.dtype());
      std::string expected(bytes.size(), '\0');
      if (c.negative) expected.back() = '\x80';
      CHECK(bytes == expected);
      const double* value = snapshot.value(snapshot.nodes().back()).as_f64();
      REQUIRE(value != nullptr);
      CHECK(*value == 0);
      CHECK(std::signbit(*value) == c.negative);
    }
  }
  // Between the dtypes' smallest numbers: zero for some, a number for others.
  const auto first_byte_set = [&](const char* dtype, const char* number) {
    const std::string text = document(dtype, number);
    const Snapshot snapshot = good(recorder.open(bytes_of(text)));
    return good(content(snapshot.leaf(0))).find_first_not_of('\0') != std::string::npos;
  };
  CHECK(first_byte_set("F64", "1e-60"));
  CHECK_FALSE(first_byte_set("F32", "1e-60"));
  CHECK(first_byte_set("F32", "1e-45"));
  CHECK_FALSE(first_byte_set("F32", "7e-46"));
  CHECK_FALSE(first_byte_set("BF16", "1e-60"));
  CHECK(first_byte_set("BF16", "1e-40"));
  CHECK_FALSE(first_byte_set("F16", "1e-20"));
  CHECK(first_byte_set("F16", "1e-7"));
  // A number that would become infinite is still an error.
  for (const std::string& large :
       {std::string("1e400"), "-1" + zeros, "0.1" + zeros + "e401", std::string("1e99999999999999999999")}) {
    for (const char* dtype : {"F64", "F32", "F16", "BF16"}) {
      const std::string text = document(dtype, large);
      CAPTURE(text);
      const auto opened = recorder.open(bytes_of(text));
      CHECK(code_of(opened ? content(opened->leaf(0)) : stele::Result<std::string>(opened.error())) ==
            Errc::out_of_range);
    }
  }
}

}  // namespace json_truth_test
