// The bytes of tensors in JSON of Burn's records: lazily read, in a file that changes, on several threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "encodings/gzip/gzip.hpp"
#include "support/burn_json.hpp"

namespace burn_json_bytes_test {

namespace {

using namespace burn_json;
namespace gzip = detail::gzip;

std::string gzipped(std::string_view text) {
  BufferSink below;
  gzip::GzipSink sink(below, 6);
  REQUIRE(sink.write(bytes_of(text)));
  REQUIRE(sink.finish());
  return std::string(text_of(below.take().span()));
}

}  // namespace

TEST_SUITE_BEGIN("burn_json");

TEST_CASE("burn json: any part of a tensor, from anywhere") {
  Random random(1);
  for (const std::size_t size : {0U, 1U, 70U, 65535U, 65536U, 65537U, 131072U, 300001U}) {
    const std::string bytes = random.bytes(size);
    const Snapshot before = leaf_of(bytes);
    for (const bool pretty : {false, true}) {
      CAPTURE(size);
      CAPTURE(pretty);
      const std::string json = written(pretty, [&](burn::TokenWriter& out) {
        REQUIRE(out.begin_map(2));
        for (const char* key : {"a", "b"}) {
          REQUIRE(out.key(key));
          REQUIRE(out.begin_map(1));
          REQUIRE(out.key("bytes"));
          REQUIRE(out.bytes(before.leaf(0)));
          REQUIRE(out.end());
        }
        REQUIRE(out.end());
      });
      const std::string packed = gzipped(json);
      gzip::Gzip gzip(borrow_bytes(bytes_of(packed)));
      std::string same(json.size() + 1, '\0');
      REQUIRE(gzip.next(std::as_writable_bytes(std::span(same))).value() == json.size());
      for (const SourcePtr& source : {borrow_bytes(bytes_of(json)), gzip.source()}) {
        const auto tokens = burn::json_reader(source, burn_json::enough).value();
        std::vector<Snapshot> leaves;
        for (Token t; tokens->next(t) && (t.kind != Token::Kind::end || leaves.size() != 2);) {
          if (t.kind == Token::Kind::bytes) leaves.push_back(leaf_of(*tokens, t));
        }
        REQUIRE(leaves.size() == 2);
        ReadContext context;
        for (const Snapshot& leaf : leaves) {
          CHECK((streamed(leaf) == bytes));
          CHECK((streamed(leaf, true) == bytes));
          const auto check_part = [&](std::size_t offset, std::size_t n) {
            std::string part(n, '?');
            REQUIRE(leaf.leaf(0).read(offset, std::as_writable_bytes(std::span(part)), context));
            CHECK((std::string_view(bytes).substr(offset, n) == part));
          };
          for (std::size_t offset = 0; size <= 100 && offset <= size; ++offset) {
            for (std::size_t n = 0; n <= size - offset; ++n) check_part(offset, n);
          }
          for (int i = 0; size > 100 && i < 8; ++i) {
            const std::size_t offset = random.below(size);
            check_part(offset, random.below(std::min<std::size_t>(size - offset + 1, i % 4 == 0 ? 300000 : 300)));
          }
        }
      }
    }
  }
}

TEST_CASE("burn json: memory is bounded") {
  std::string structure = "[0";
  while (structure.size() < 1000000) structure += ",0";
  structure += ']';
  CHECK(open_json(structure, 4000000));
  CHECK(open_json(structure, 2000000).error().code() == Errc::limit);
  std::string lists = "[0";
  for (int i = 0; i < 50000; ++i) lists += R"(,{"bytes":[]})";
  lists += ']';
  CHECK(open_json(lists, 20000000));
  CHECK(open_json(lists, 6000000).error().code() == Errc::limit);
  CHECK(open_json("{\"bytes\":[" + std::string(1000000, ' ') + "1]}", 100000).error().code() == Errc::limit);
  // Numbers take none.
  std::string numbers = "{\"bytes\":[0";
  while (numbers.size() < 3000000) numbers += ",0";
  CHECK(open_json(numbers + "]}", 1000));
}

TEST_CASE("burn json: a file that changes below its leaves") {
  class Changing final : public Source {
   public:
    explicit Changing(std::string bytes) : Source("changing.json"), now(bytes), size_(bytes.size()) {}
    std::uint64_t size() const noexcept override { return size_; }
    Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
      return borrow_bytes(bytes_of(now))->read_at(offset, out);
    }
    std::string now;

   private:
    std::uint64_t size_;
  };
  Random random(3);
  const std::string bytes = random.bytes(200000);
  const Snapshot before = leaf_of(bytes);
  const std::string text = written(false, [&](burn::TokenWriter& out) {
    REQUIRE(out.begin_map(1));
    REQUIRE(out.key("bytes"));
    REQUIRE(out.bytes(before.leaf(0)));
    REQUIRE(out.end());
  });
  const auto source = std::make_shared<Changing>(text);
  const auto tokens = burn::json_reader(source, burn_json::enough).value();
  Token t;
  while (t.kind != Token::Kind::bytes) REQUIRE(tokens->next(t));
  const Snapshot leaf = leaf_of(*tokens, t);
  const auto part = [&](std::size_t offset, std::size_t n) {
    std::string to(n, '?');
    return leaf.leaf(0).read(offset, std::as_writable_bytes(std::span(to)));
  };
  CHECK((streamed(leaf) == bytes));
  source->now = text.substr(0, text.size() / 2);
  CHECK(streamed(leaf).substr(0, 16) == "error: truncated");
  CHECK(part(bytes.size() - 10, 10).error().code() == Errc::truncated);
  for (const char* all : {"0", ",", "]", "[", "7,", "123,", "\n ", "\xff"}) {
    CAPTURE(all);
    std::string other;
    while (other.size() < text.size()) other += all;
    source->now = other.substr(0, text.size());
    CHECK(streamed(leaf).substr(0, 16) == "error: malformed");
    static_cast<void>(part(0, bytes.size()));
    static_cast<void>(part(bytes.size() / 2, 1000));
    static_cast<void>(part(bytes.size() - 1000, 1000));
  }
}

TEST_SUITE_END();

TEST_SUITE_BEGIN("concurrency");

TEST_CASE("burn json: leaves are read on several threads") {
  Random random(5);
  const std::string bytes = random.bytes(300000);
  std::string json = "{\"bytes\":[" + std::to_string(static_cast<unsigned char>(bytes[0]));
  for (const char c : bytes.substr(1)) json += ", " + std::to_string(static_cast<unsigned char>(c));
  json += "]}";
  const auto tokens = open_json(json).value();
  Token t;
  while (t.kind != Token::Kind::bytes) REQUIRE(tokens->next(t));
  const Snapshot leaf = leaf_of(*tokens, t);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      std::string part(100000, '?');
      for (std::size_t k = 0; k < 5; ++k) {
        const std::size_t offset = i * 40000 + k * 10007;
        if (!leaf.leaf(0).read(offset, std::as_writable_bytes(std::span(part)))) continue;
        right += part == std::string_view(bytes).substr(offset, part.size()) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 20);
}

TEST_SUITE_END();

}  // namespace burn_json_bytes_test
