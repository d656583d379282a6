// Compressed JSON records: frames, the index, streams of other programs.
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/stele_file.hpp"

#include "json_documents.hpp"

namespace json_compressed_test {

using namespace stele;
using namespace stele_test;
using namespace stele_test::json_documents;

namespace {

struct Large {
  std::vector<Tensor<float, 1>> leaves;
  STELE_MODULE(Large, leaves)
};

Large large() {
  Large made;
  Random random(5);
  for (const std::size_t n : {3U, 400000U, 0U, 17U, 900001U, 2U}) {
    made.leaves.emplace_back(Tensor<float, 1>({n}));
    random.fill(std::as_writable_bytes(made.leaves.back().span()));
  }
  return made;
}

/// Counts what is read.
class Counted final : public Source {
 public:
  explicit Counted(std::string bytes) : Source("counted"), bytes_(std::move(bytes)) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    REQUIRE(offset + out.size() <= bytes_.size());
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    read += out.size();
    return {};
  }
  mutable std::atomic<std::uint64_t> read{0};

 private:
  std::string bytes_;
};

}  // namespace

TEST_CASE("json: compressed bytes do not depend on the number of threads, and any zstd reads them") {
  const Large model = large();
  const std::string text(text_of(plain.save(model).value().span()));
  std::string first;
  for (const unsigned threads : {1U, 2U, 3U, 7U}) {
    SaveOptions options;
    options.threads = threads;
    const Bytes bytes = zstd.save(model, options).value();
    if (first.empty()) first = text_of(bytes.span());
    CHECK(text_of(bytes.span()) == first);
    LoadOptions loading;
    loading.threads = threads;
    CHECK(image(zstd.load<Large>(bytes, loading).value()) == image(model));
  }
  CHECK(decompressed(first) == text);
  for (const int level : {-50, 1, 3, 19}) {
    const MemoryRecorder<JsonFormat> recorder(JsonFormat({.level = level}));
    CHECK(decompressed(text_of(recorder.save(all()).value().span())) == text_of(plain.save(all()).value().span()));
  }
}

TEST_CASE("json: compressed by others: one pass to open, one more to load") {
  const Large model = large();
  const std::string text(text_of(plain.save(model).value().span()));
  const std::string half = text.substr(0, text.size() / 2);
  const std::string rest = text.substr(half.size());
  for (const std::string& packed :
       {compressed(text), compressed(half) + compressed(rest), deflated(text), deflated(half) + deflated(rest)}) {
    const auto source = std::make_shared<Counted>(packed);
    const auto opened = plain.open(SourcePtr(source));
    REQUIRE_MESSAGE(opened, why(opened));
    CHECK(source->read <= packed.size() + 64);
    for (const unsigned threads : {1U, 4U}) {
      source->read = 0;
      LoadOptions options;
      options.threads = threads;
      const auto loaded = load<Large>(*opened, options);
      REQUIRE_MESSAGE(loaded, why(loaded));
      CHECK(image(*loaded) == image(model));
      CHECK(source->read <= packed.size());
    }
    // Back and forth works, too; it takes a pass each.
    CHECK(content(opened->leaf(4)).value().size() == 3600004);
    CHECK(content(opened->leaf(0)).value().size() == 12);
    std::byte row[4];
    REQUIRE(opened->leaf(4).read(4 * 900000, row));
    CHECK(std::memcmp(row, model.leaves[4].data() + 900000, 4) == 0);
    for (const std::size_t less : {std::size_t{1}, packed.size() / 2}) {
      const auto cut = plain.open(bytes_of(packed).first(packed.size() - less));
      CHECK_FALSE(cut);
    }
    CHECK_FALSE(plain.open(bytes_of(packed + "junk")));
  }
}

TEST_CASE("json: a file that is nothing but the frame of an index") {
  // Its first frame would be its last.
  std::string file;
  put(file, std::uint32_t{0x184d2a5d}), put(file, std::uint32_t{8});
  file += "stelejsn";
  for (const std::uint32_t entries : {1U, 2U, 3U}) {
    std::string with_table = file;
    put(with_table, std::uint32_t{0x184d2a5e}), put(with_table, std::uint32_t{8 * entries + 9});
    for (std::uint32_t i = 0; i < entries; ++i)
      put(with_table, std::uint32_t{i == 0 ? 16U : 0U}), put(with_table, std::uint32_t{0});
    put(with_table, entries);
    with_table += '\0';
    put(with_table, std::uint32_t{0x8f92eab1});
    CHECK(code_of(zstd.open(bytes_of(with_table))) == Errc::malformed);
    CHECK(code_of(zstd.open(bytes_of(with_table.substr(16)))) != Errc::none);
  }
}

TEST_CASE("json: an index that says fewer nodes than it has takes no more memory") {
  std::string lists;
  for (int i = 0; i < 2'000'000; ++i) lists += "[],";
  const std::string text = document("[" + lists + "1]");
  std::string index(24, '\0');  // the hash of the one frame, no tensors, no nodes
  const std::string frame = compressed("{}");
  put_at(index, 0, detail::hash64(frame.data(), frame.size()));
  const std::string packed = compressed(index + text);
  std::string file, entries, rest;
  put(file, std::uint32_t{0x184d2a5d}), put(file, std::uint32_t{8});
  file += "stelejsn" + frame;
  put(entries, std::uint32_t{16}), put(entries, std::uint32_t{0});
  put(entries, static_cast<std::uint32_t>(frame.size())), put(entries, std::uint32_t{2});
  put(rest, std::uint64_t{index.size() + text.size()});
  rest += packed;
  const std::string hashed = entries + rest;
  put(file, std::uint32_t{0x184d2a5d}), put(file, static_cast<std::uint32_t>(16 + rest.size()));
  file += "stelejsn";
  put(file, detail::hash64(hashed.data(), hashed.size()));
  file += rest;
  put(entries, static_cast<std::uint32_t>(24 + rest.size())), put(entries, std::uint32_t{0});
  put(file, std::uint32_t{0x184d2a5e}), put(file, static_cast<std::uint32_t>(entries.size() + 9));
  file += entries;
  put(file, std::uint32_t{3});
  file += '\0';
  put(file, std::uint32_t{0x8f92eab1});
  LoadOptions bounded;
  bounded.limits.index_bytes = std::uint64_t{64} << 20;
  const auto opened = zstd.open(bytes_of(file), bounded);
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code() == Errc::limit);
}

}  // namespace json_compressed_test
