// Models of whisper.cpp: those of its own programs, and damaged ones.
#include <doctest/doctest.h>

#include <stele/quantize.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/gguf.hpp>
#include <stele/recorders/read_only.hpp>
#include <stele/recover.hpp>

#include <string>
#include <utility>
#include <vector>

#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace whisper_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

const WhisperRecorder<> recorder;

std::string golden(const std::string& name) { return read_text(test_data("whisper") + "/" + name + ".bin"); }

std::string i32(std::initializer_list<std::int64_t> numbers) {
  std::string bytes;
  for (const std::int64_t n : numbers) {
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(static_cast<std::uint64_t>(n) >> 8 * i);
  }
  return bytes;
}

/// Returns a file's header with two mel bands and one token.
std::string head(std::int64_t file_type = 1) {
  return i32({0x67676d6c, 3, 1, 1, 1, 1, 1, 1, 1, 1, 2, file_type, 2, 1, 0, 0, 1, 1}) + "\xff";
}
std::string tensor(const std::string& name, std::int64_t type, std::initializer_list<std::int64_t> extents,
                   const std::string& data) {
  const auto rank = static_cast<std::int64_t>(extents.size());
  return i32({rank, static_cast<std::int64_t>(name.size()), type}) + i32(extents) + name + data;
}

/// Opens a copy of the bytes, which the snapshot owns.
Result<Snapshot> open(const std::string& bytes, const LoadOptions& options = {}) {
  const auto view = bytes_of(bytes);
  return recorder.open(own_bytes(std::vector<std::byte>(view.begin(), view.end())), options);
}

}  // namespace

TEST_CASE("whisper: a converted model, its numbers and its vocabulary") {
  const Snapshot model = good(stele::open(test_data("whisper") + "/ggml-f16.bin"));
  CHECK(model.leaf_count() == 51);
  const auto weight = model.find("encoder.blocks.0.mlp.0.weight");
  REQUIRE(weight);
  CHECK(weight->dtype() == DType::f16);
  CHECK(Shape(weight->shape()) == Shape({32, 8}));
  CHECK(Shape(model.find("encoder.conv1.weight")->shape()) == Shape({8, 4, 3}));
  CHECK(Shape(model.find("encoder.conv1.bias")->shape()) == Shape({8, 1}));
  CHECK(model.find("decoder.ln.bias")->dtype() == DType::f32);
  const auto filters = model.find("mel_filters");
  REQUIRE(filters);
  std::vector<float> numbers(28);
  good(filters->read(0, std::as_writable_bytes(std::span(numbers))));
  CHECK(numbers[27] == 27.0F / 8);
  CHECK(*model.properties().find("whisper.n_vocab")->as_i64() == 6);
  CHECK(*model.properties().find("whisper.ftype")->as_i64() == 1);
  const Value::List& tokens = *model.properties().find("tokenizer.ggml.tokens")->as_list();
  CHECK(tokens == Value::List{"!", "Ġa", "Ã©", "ÿĀ", "the"});
  CHECK(code_of(saved(Recorder<WhisperFormat>(), model)) == Errc::unsupported);
}

TEST_CASE("whisper: quantized blocks are kept, and become a GGUF file without loss") {
  const Snapshot model = good(stele::open(test_data("whisper") + "/ggml-q4_0.bin"));
  const auto weight = model.find("decoder.blocks.0.cross_attn.query.weight");
  REQUIRE(weight);
  CHECK(weight->dtype() == DType::q4_0);
  CHECK(Shape(weight->shape()) == Shape({32, 32}));
  CHECK(good(dequantize(model)).find("decoder.token_embedding.weight")->dtype() == DType::f32);
  const Bytes gguf = good(saved(GgufRecorder<>(), model));
  const Snapshot back = good(GgufRecorder<>().open(gguf.span()));
  const Capabilities& can = GgufRecorder<>().format().capabilities();
  CHECK(difference(facts(model, can), facts(back, can)).empty());
  CHECK(*back.properties().find("tokenizer.ggml.tokens") == *model.properties().find("tokenizer.ggml.tokens"));
  CHECK(*back.properties().find("whisper.n_mels")->as_i64() == 4);
}

TEST_CASE("whisper: tensors of types without a known size end the positions") {
  const std::string first = tensor("a", 0, {1}, "abcd");
  REQUIRE(good(open(head() + first)).leaf_count() == 2);
  const Snapshot unknown = good(open(head() + first + tensor("b", 99, {1}, "abcd") + first));
  CHECK(unknown.leaf_count() == 3);
  CHECK(unreadable_reason(*unknown.find("b")) == "elements of ggml's type 99, and all tensors after it");
  CHECK(unknown.find("b")->byte_size() == 4 + first.size());
  for (const auto& [type, version] : {std::pair(7, 0), std::pair(1007, 1), std::pair(3007, 3)}) {
    const Snapshot old = good(open(head(type) + first + tensor("b", 8, {32}, std::string(36, 'x'))));
    CHECK(unreadable_reason(*old.find("b")) ==
          "blocks of ggml's version " + std::to_string(version) + ", and all tensors after it");
  }
  CHECK(good(open(head(2007) + tensor("b", 8, {32}, std::string(34, 'x')))).find("b")->dtype() == DType::q8_0);
  CHECK(good(open(head() + tensor("", 0, {}, "abcd"))).leaf_count() == 2);
}

TEST_CASE("whisper: other files of ggml before GGUF are named") {
  const auto found = [](const std::string& bytes) {
    const Error error = bad(open(bytes));
    CHECK(error.code() == Errc::unsupported);
    return std::string(error.found());
  };
  std::string rest;
  for (int i = 0; i < 80; ++i) rest += static_cast<char>(i + 1);
  CHECK(found(i32({0x67676a74, 3}) + rest) == "a language model (ggjt)");
  CHECK(found(i32({0x67676d66, 1}) + rest) == "a language model (ggmf)");
  CHECK(found(i32({0x67676c61, 1}) + rest) == "a LoRA adapter (ggla)");
  CHECK(found(i32({0x67676d6c, 10}) + "silero-16k" + rest) == "a model of Silero VAD of ggml before GGUF");
  CHECK(found(i32({0x67676d6c, 50257, 1024, 768, 12, 12, 1, 50257}) + rest) == "a model of GPT-2 of ggml before GGUF");
  CHECK(found(i32({0x67676d6c, 50400, 2048, 4096, 16, 28, 64, 1, 50400}) + rest) ==
        "a model of GPT-J of ggml before GGUF");
  CHECK(found(i32({0x67676d6c, 1, 2, 3, 4, 5, 80, 1, 512, 8, 2, 5, 6, 7, 8, 9, 80, 257}) + rest) ==
        "a model of Parakeet of ggml before GGUF");
  CHECK(found(i32({0x67676d6c, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17})) ==
        "another model of ggml before GGUF");
  CHECK(found("lmgg") == "another model of ggml before GGUF");
  const TempDir dir;
  write_text(dir / "m.bin", i32({0x67676a74, 3}) + rest);
  CHECK(bad(stele::open(dir / "m.bin")).code() == Errc::unsupported);
}

TEST_CASE("whisper hostile: counts, lengths and extents that lie") {
  const auto refused = [](const std::string& bytes) { return bad(open(bytes)); };
  const std::string numbers = i32({0x67676d6c, 3, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1});
  CHECK(refused(numbers + i32({2, 2147483647})).code() == Errc::truncated);
  CHECK(refused(numbers + i32({2, -1})).code() == Errc::malformed);
  CHECK(refused(numbers + i32({2, 0, 2147483647})).code() == Errc::truncated);
  CHECK(refused(numbers + i32({2, 0, -1})).code() == Errc::malformed);
  CHECK(refused(numbers + i32({2, 0, 1, 50})).code() == Errc::truncated);
  CHECK(refused(numbers + i32({2, 0, 1, -1}) + std::string(99, 'x')).code() == Errc::limit);
  CHECK(refused(head() + i32({5, 1, 0, 1, 1, 1, 1, 1}) + "aabcd").code() == Errc::malformed);
  CHECK(refused(head() + i32({-1, 1, 0}) + "aabcd").code() == Errc::malformed);
  CHECK(refused(head() + i32({1, -1, 0, 1}) + "aabcd").code() == Errc::malformed);
  CHECK(refused(head() + tensor("a", 0, {-1}, "abcd")).code() == Errc::malformed);
  CHECK(refused(head() + tensor("a", 0, {2}, "abcd")).code() == Errc::truncated);
  CHECK(refused(head() + tensor("a\0b"s, 0, {1}, "abcd")).code() == Errc::malformed);
  CHECK(refused(head() + tensor("a", 0, {2147483647, 2147483647, 2147483647, 2147483647}, "abcd")).code() ==
        Errc::malformed);
  CHECK(refused(head(2007) + tensor("a", 8, {33}, std::string(36, 'x'))).code() == Errc::malformed);
  CHECK(refused(head() + tensor("a", 0, {1}, "abcd") + tensor("a", 0, {1}, "abcd")).code() == Errc::duplicate);
  CHECK(refused(head() + tensor("mel_filters", 0, {1}, "abcd")).code() == Errc::duplicate);
  CHECK(refused(head() + "a").code() == Errc::truncated);
  LoadOptions options;
  options.limits.index_bytes = 1000;
  CHECK(code_of(open(golden("ggml-f16"), options)) == Errc::limit);
}

TEST_CASE("whisper hostile: every truncation and every changed byte is an error or opens") {
  const std::string file = golden("ggml-f16");
  const auto outcome = [](const std::string& bytes) {
    const auto opened = open(bytes);
    if (!opened) return;
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
      REQUIRE(content(opened->leaf(i)));
      total += opened->leaf(i).byte_size();
    }
    REQUIRE(total <= bytes.size());
  };
  for (std::size_t i = 0; i < file.size(); i += 3) outcome(file.substr(0, i));
  for (std::size_t i = 0; i < file.size(); i += 2) {
    std::string other = file;
    other[i] = static_cast<char>(other[i] ^ 1 << i % 8);
    outcome(other);
  }
}

}  // namespace whisper_test
