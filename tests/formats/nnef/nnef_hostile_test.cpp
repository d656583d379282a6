// NNEF tensor files that are damaged, or whose headers are wrong.
#include <string>
#include <vector>

#include "nnef_support.hpp"
#include "support/left_out.hpp"

namespace nnef_hostile_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace stele_test::nnef;

/// Opens a tensor file and reads all of it: the error, or what was read.
Result<std::string> read(const std::string& file) {
  STELE_TRY_ASSIGN(const Snapshot opened, tensors.open(bytes_of(file)));
  REQUIRE(opened.leaf_count() == 1);
  STELE_TRY_ASSIGN(std::string bytes, content(opened.leaf(0)));
  CHECK(bytes.size() == opened.leaf(0).byte_size());
  return bytes;
}
Result<std::string> read(const File& file) { return read(file.make()); }
DType dtype_of(const File& file) { return good(tensors.open(bytes_of(file.make()))).leaf(0).dtype(); }

}  // namespace

TEST_CASE("nnef: files that a reference reader ends by, or takes wrongly") {
  CHECK(dtype_of({.bits = 16, .length = 4, .data = "\0\x3c\0\xbc"s}) == DType::f16);
  CHECK(read(File{.bits = 16, .length = 4, .data = "\0\x3c\0\xbc"s}).has_value());
  const auto four = read(File{.bits = 4, .code = 4, .length = 1, .data = "\x7f"});
  REQUIRE(four);
  CHECK(*four == "\x07\xff");
  CHECK(code_of(read(File{.bits = 0, .extents = {65535, 65535, 4}, .length = 0, .data = ""})) == Errc::unsupported);
  CHECK(code_of(read(File{.bits = 0, .extents = {0}, .length = 0, .data = ""})) == Errc::unsupported);
  CHECK(code_of(read(File{.extents = {1U << 31, 1U << 31, 4}, .length = 0, .data = ""})) == Errc::malformed);
  CHECK(code_of(read(File{.extents = {1U << 31, 1U << 31}, .length = 0, .data = ""})) == Errc::malformed);
  CHECK(code_of(read(File{.bits = 1, .code = 5, .extents = {1U << 31, 1U << 31, 2}, .length = 0, .data = ""})) ==
        Errc::malformed);
  CHECK(code_of(read(File{.extents = {1U << 30, 1}, .length = 0, .data = ""})) == Errc::malformed);
  // Codes of the first years, by the letter.
  CHECK(dtype_of({.bits = 8, .code = 0x10, .length = 2, .data = "ab"}) == DType::u8);
  CHECK(dtype_of({.bits = 8, .code = 0x11, .length = 2, .data = "ab"}) == DType::u8);
  CHECK(dtype_of({.bits = 8, .code = 0x100, .length = 2, .data = "ab"}) == DType::i8);
  CHECK(dtype_of({.bits = 1, .code = 0x101, .length = 1, .data = "\x80"}) == DType::boolean);
  CHECK(dtype_of({.bits = 8, .code = 1, .length = 2, .data = "ab", .parameters = u32(1)}) == DType::i8);
  CHECK(dtype_of({.bits = 8, .code = 1, .length = 2, .data = "ab"}) == DType::u8);
  CHECK(dtype_of({.bits = 8, .code = 2, .length = 2, .data = "ab"}) == DType::u8);
  CHECK(dtype_of({.bits = 8, .code = 3, .length = 2, .data = "ab"}) == DType::i8);
  for (const std::uint32_t code : {6U, 7U, 0xfU, 0x12U, 0x102U, 0xffffU}) {
    CHECK(code_of(read(File{.bits = 8, .code = code, .length = 2, .data = "ab"})) == Errc::unsupported);
  }
  // Four bytes too many: of an old writer where they come first and are zero.
  CHECK(code_of(read(File{.data = std::string(8, 'x') + "\0\0\0\0"s})) == Errc::malformed);
  CHECK(good(read(File{.data = "\0\0\0\0abcdefgh"s})) == in_file_order("abcdefgh", DType::f32));
  CHECK(code_of(read(File{.data = "\0\0\1\0abcdefgh"s})) == Errc::malformed);
  CHECK(code_of(read(File{.data = std::string(9, '\0')})) == Errc::malformed);
  CHECK(code_of(read(File{.data = std::string(16, '\0')})) == Errc::malformed);
  CHECK(code_of(read(File{.data = std::string(7, '\0')})) == Errc::truncated);
  CHECK(code_of(read(File{.length = 0xffffffff})) == Errc::truncated);
  CHECK(code_of(read(File{.length = 4, .data = "abcd"})) == Errc::malformed);
  CHECK(good(read(File{.extents = {}, .length = 4, .data = "\0\0\0\0"s})).size() == 4);
  CHECK(good(read(File{.extents = {0}, .length = 0, .data = ""})).empty());
  // Elements that cannot be counted, though there are none.
  CHECK(code_of(read(File{.extents = {1U << 31, 0, 1U << 31, 1U << 31}, .length = 0, .data = ""})) == Errc::malformed);
  CHECK(dtype_of({.code = 0x54520000}) == DType::opaque);
  CHECK(code_of(read(File{.version = "\1\1"s})) == Errc::unsupported);
  CHECK(code_of(read(File{.version = "\2\0"s})) == Errc::unsupported);
  CHECK(code_of(read(File{.version = "\0\0"s})) == Errc::unsupported);
}

TEST_CASE("nnef: headers that lie") {
  for (const std::uint32_t bits : {65U, 128U, 0x80000000U, 0xffffffffU, 0U}) {
    for (const std::uint32_t code : {0U, 1U, 2U, 3U, 4U, 5U}) {
      CHECK(code_of(read(File{.bits = bits, .code = code})) == Errc::unsupported);
    }
  }
  for (const std::uint32_t bits : {1U, 4U, 8U, 24U, 63U}) {
    CHECK(code_of(read(File{.bits = bits, .code = 0, .length = (2 * bits + 7) / 8})) != Errc::none);
  }
  CHECK(code_of(read(File{.bits = 2, .code = 5, .length = 1, .data = "a"})) == Errc::unsupported);
  CHECK(code_of(read(File{.bits = 16, .code = 5, .length = 4, .data = "abcd"})) == Errc::unsupported);

  std::string nine = File{}.make();
  nine.replace(8, 4, u32(9));
  CHECK(code_of(read(nine)) == Errc::malformed);
  nine.replace(8, 4, u32(0xffffffff));
  CHECK(code_of(read(nine)) == Errc::malformed);
  for (std::size_t i = 1; i < 8; ++i) {
    std::string more = File{}.make();
    more.replace(12 + 4 * i, 4, u32(1));
    CHECK(code_of(read(more)) == Errc::malformed);
    CHECK(tensors.open(bytes_of(more)).error().offset() == 12 + 4 * i);
  }
  // All widths of integers: the length must fit.
  for (std::uint32_t bits = 1; bits <= 64; ++bits) {
    const std::uint32_t length = (3 * bits + 7) / 8;
    const auto with = [&](std::uint32_t n) {
      return code_of(read(File{
          .bits = bits, .code = bits % 2 != 0 ? 1U : 4U, .extents = {3}, .length = n, .data = std::string(n, 'x')}));
    };
    CHECK(with(length) == Errc::none);
    CHECK(with(length + 1) == Errc::malformed);
    CHECK(with(length - 1) == Errc::malformed);
  }
  CHECK(code_of(read("")) == Errc::bad_magic);
  CHECK(code_of(read("N")) == Errc::bad_magic);
  CHECK(code_of(read("\x4e\xee\1\0"s + std::string(200, '\0'))) == Errc::bad_magic);
}

TEST_CASE("nnef: items of a vendor with any extents") {
  File file{.bits = 0, .code = 0x10007, .extents = {1U << 31, 1U << 31, 3}, .length = 3, .data = "abc"};
  const std::string made = file.make();
  const Snapshot opened = good(tensors.open(bytes_of(made)));
  CHECK(good(content(opened.leaf(0))) == "abc");
  CHECK(text_of(good(saved(tensors, opened)).span()) == made);
  const auto binary = good(saved(BinaryRecorder<>(), opened));
  CHECK(good(content(good(BinaryRecorder<>().open(binary)).leaf(0))) == "abc");
  CHECK_FALSE(tensors.load<Tensor<std::uint8_t>>(bytes_of(file.make())).has_value());
  LoadOptions options;
  options.dequantize = true;
  CHECK(tensors.open(bytes_of(file.make()), options).has_value());
  // Those that no u64 counts are refused, as everywhere.
  file.extents[2] = 4;
  CHECK(code_of(read(file)) == Errc::malformed);
  file.extents[0] = 0;
  CHECK(good(read(file)) == "abc");
}

TEST_CASE("nnef: files of 2017") {
  const auto file = [](std::uint32_t header, const std::vector<std::uint32_t>& extents, int type, int bits,
                       const std::string& text, const std::string& data) {
    std::string made = "\x4e\xef\1\0"s + u32(header) + u32(static_cast<std::uint32_t>(extents.size()));
    for (const std::uint32_t e : extents) made += u32(e);
    made += static_cast<char>(type);
    made += static_cast<char>(bits);
    made += u32(static_cast<std::uint32_t>(text.size())).substr(0, 2);
    return made + text + data;
  };
  CHECK(good(read(file(20, {2}, 3, 8, "", "ab"))) == "ab");
  CHECK(good(read(file(16, {}, 2, 8, "", "a"))) == "a");
  CHECK(good(read(file(48, {1, 1, 1, 1, 1, 1, 1, 2}, 2, 8, "", "ab"))) == "ab");
  CHECK(good(read(file(20 + 6, {2}, 1, 8, "mine()", "ab"))) == "ab");
  // As long as a header and what its length says, by chance.
  for (const std::uint32_t header : {16U, 20U, 24U, 48U}) {
    std::vector<std::uint32_t> extents((header - 16) / 4, 1);
    if (extents.empty()) continue;
    for (const std::uint32_t n : {127U, 128U, 129U, 132U}) {
      extents.back() = n;
      const std::string data(n, '\0');
      CAPTURE(header);
      CAPTURE(n);
      CHECK(good(read(file(header, extents, 3, 8, "", data))) == data);
    }
  }
  for (const std::uint32_t header : {0U, 16U, 19U, 21U, 24U, 22U, 128U, 0xffffffffU}) {
    CHECK(code_of(read(file(header, {2}, 3, 8, "", "ab"))) != Errc::none);
  }
  CHECK_FALSE(read(file(20, {3}, 3, 8, "", "ab")));
  CHECK_FALSE(read(file(20, {2}, 4, 8, "", "ab")));
  CHECK_FALSE(read(file(20, {2}, 3, 0, "", "ab")));
  CHECK_FALSE(read(file(20, {2}, 3, 65, "", "ab")));
  CHECK_FALSE(read(file(20, {2}, 0, 8, "", "ab")));
  CHECK_FALSE(read(file(16 + 36, {1, 1, 1, 1, 1, 1, 1, 1, 2}, 3, 8, "", "ab")));
  CHECK_FALSE(read(file(28, {1U << 31, 1U << 31, 4}, 3, 8, "", "")));
  // Texts are as they are; what is no quantization stays a text.
  for (const std::string& text : {"("s, "linear_quantize("s, "\"'"s, std::string(65535, '('), "\0\1"s,
                                  "quantize_linear(min = -1.0, max = 1.0, bits = 8"s}) {
    CHECK(good(read(file(20 + static_cast<std::uint32_t>(text.size()), {2}, 1, 8, text, "ab"))) == "ab");
  }
}

TEST_CASE("nnef: every truncation and every flipped bit of tensor files") {
  const std::string files[] = {
      File{.data = "abcdefgh"}.make(),
      File{.bits = 3, .code = 2, .extents = {2, 3}, .length = 3, .data = "abc"}.make(),
      File{.bits = 1, .code = 5, .extents = {1, 2, 1, 1, 1, 1, 1, 5}, .length = 2, .data = "ab"}.make(),
      File{.code = 0x10000, .data = "abcdefgh"}.make(),
      read_text(test_data("nnef") + "/by_hand/provisional_quantized_4.dat"),
      read_text(test_data("nnef") + "/provisional/f64-2x1x2.dat"),
      read_text(test_data("nnef") + "/by_hand/four_bytes_more.dat"),
      read_text(test_data("nnef") + "/by_hand/logarithmic_0x11_8_signed.dat"),
  };
  LoadOptions dequantized;
  dequantized.dequantize = true;
  for (const std::string& file : files) {
    REQUIRE(read(file).has_value());
    for (std::size_t size = 0; size < file.size(); ++size) {
      if (size == file.size() - 4 && size == 152) continue;  // the four bytes that were too many
      if (read(file.substr(0, size))) FAIL_CHECK(size << " bytes of " << file.size() << " are enough");
    }
    std::string damaged = file;
    for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
      // A read never returns more than the file has: a byte is at most eight bools.
      if (const auto bytes = read(damaged)) CHECK(bytes->size() <= 8 * file.size());
      if (const auto opened = tensors.open(bytes_of(damaged), dequantized)) {
        static_cast<void>(content(opened->leaf(0)));
      }
      damaged[bit / 8] = file[bit / 8];
    }
  }
}

TEST_CASE("nnef: files of another writer") {
  const auto shared = shared_file("fixtures/nnef/");
  if (!shared) return;
  const std::string& folder = *shared;
  const struct {
    const char* name;
    DType dtype;
    std::vector<Extent> shape;
    bool quantized;
  } facts[] = {{"export-scan-state__h0", DType::f32, {1, 4}, false},
               {"gru-epilogue__Y.Rb_all", DType::f32, {1, 12}, false},
               {"gru-epilogue__Y.extracted.Y.Xt_WT.prop_axis.a.input_1", DType::f32, {12, 5}, false},
               {"scatter-nd-block__indices.0", DType::i64, {2, 3, 3, 3}, true},
               {"submodel__nnet2__output_bias", DType::f32, {2}, false},
               {"variable-in-fragment__weights", DType::u8, {2, 1, 3}, false}};
  for (const auto& fact : facts) {
    CAPTURE(fact.name);
    const std::string path = folder + fact.name + ".dat";
    const Snapshot opened = good(folders.open(path));
    const LeafView leaf = opened.leaf(0);
    CHECK(leaf.dtype() == fact.dtype);
    CHECK(std::vector(leaf.shape().begin(), leaf.shape().end()) == fact.shape);
    CHECK((leaf.annotations() != nullptr && leaf.annotations()->contains("nnef.quantized")) == fact.quantized);
    CHECK(text_of(good(saved(tensors, opened)).span()) == read_text(path));
  }
  CHECK(good(folders.open(folder)).leaf_count() == std::size(facts));
}

}  // namespace nnef_hostile_test
