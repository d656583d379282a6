// Burn's records in gzip: inflated once, and not behind what is no record.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "encodings/gzip/gzip.hpp"
#include "stele/recorders/any.hpp"
#include "stele/schema.hpp"
#include "support/burn_bytes.hpp"
#include "support/recorders.hpp"

namespace burn_gzip_test {

namespace {

using namespace stele;
using namespace stele_test;
namespace gzip = detail::gzip;

struct Leaf {
  Param<Tensor<float, 1>> w;
};
struct Net {
  std::vector<Leaf> layers;
};

/// Counts the compressed bytes that are read: a way back reads some of them again.
class Counting final : public Source {
 public:
  explicit Counting(std::span<const std::byte> bytes) : Source("counting"), bytes_(bytes) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) return Error(Errc::truncated, "the end");
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    read += out.size();
    return {};
  }
  mutable std::atomic<std::uint64_t> read{0};

 private:
  std::span<const std::byte> bytes_;
};

Net noise(std::size_t count, std::size_t elements) {
  Net net;
  std::mt19937 random(1);
  for (std::size_t i = 0; i < count; ++i) {
    auto t = Tensor<float, 1>::zeros({elements});
    for (float& x : t) x = static_cast<float>(random()) * 1e-9F;
    net.layers.push_back({std::move(t)});
  }
  return net;
}

BurnFormat format_of(BurnEncoding encoding) {
  return BurnFormat({.encoding = encoding, .gzip = true, .schema = schema_of<Net>()});
}

Bytes gzipped(std::string_view text, std::size_t times = 1) {
  BufferSink packed;
  gzip::GzipSink sink(packed, 6);
  for (std::size_t i = 0; i < times; ++i) sink.write(bytes_of(text)).value();
  sink.finish().value();
  return packed.take();
}

/// `head` in gzip, and behind it `count` members of 1 MiB of `fill` each.
Bytes bomb(std::string_view head, std::string_view fill, std::size_t count) {
  std::string mega;
  while (mega.size() < (std::size_t{1} << 20)) mega += fill;
  const Bytes first = gzipped(head);
  const Bytes member = gzipped(mega);
  Bytes all(first.size() + count * member.size());
  std::memcpy(all.data(), first.data(), first.size());
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(all.data() + first.size() + i * member.size(), member.data(), member.size());
  }
  return all;
}

}  // namespace

TEST_CASE("burn gzip: opening inflates once, whatever the tensors' size") {
  for (const BurnEncoding encoding : {BurnEncoding::mpk, BurnEncoding::bin, BurnEncoding::json}) {
    CAPTURE(static_cast<int>(encoding));
    for (const std::size_t elements : {std::size_t{1}, std::size_t{250}, std::size_t{3000}, std::size_t{100000}}) {
      CAPTURE(elements);
      const std::size_t count = elements == 1 ? 20000 : (std::size_t{1} << 20) / elements + 1;
      const BurnRecorder<> recorder(format_of(encoding));
      const Net net = noise(count, elements);
      BufferSink sink;
      recorder.save(net, sink).value();
      const Bytes bytes = sink.take();
      const auto source = std::make_shared<Counting>(bytes.span());
      const auto opened = recorder.open(SourcePtr(source));
      REQUIRE_MESSAGE(opened, why(opened));
      CHECK(opened->leaf_count() == count);
      // The head is looked at first, and the end from the last kept state again (1 MiB of what is inflated).
      const std::uint64_t slack = (std::uint64_t{3} << 19) + bytes.size() / 100;
      CHECK(source->read <= bytes.size() + slack);
      // A load opens, verifies and fills: thrice, with the window's overlap.
      source->read = 0;
      const auto loaded = recorder.load<Net>(SourcePtr(source));
      REQUIRE_MESSAGE(loaded, why(loaded));
      CHECK(source->read <= 3 * bytes.size() + 4 * slack);
      CHECK(std::equal(loaded->layers.back().w->begin(), loaded->layers.back().w->end(), net.layers.back().w->begin()));
    }
  }
}

TEST_CASE("gzip: other formats open in a pass or two, too") {
  const Net net = noise(4000, 250);
  for (const char* name : {"json.gz", "nnef-tgz"}) {
    CAPTURE(std::string(name));
    const Format& format = *find_format(name);
    BufferSink sink;
    detail::save_object(format, {}, {detail::module_info<Net>(), &net}, sink, quick()).value();
    const Bytes bytes = sink.take();
    const auto source = std::make_shared<Counting>(bytes.span());
    const auto opened = detail::open({&format}, SourcePtr(source), LoadOptions());
    REQUIRE_MESSAGE(opened, why(opened));
    CHECK(opened->leaf_count() == net.layers.size());
    CHECK(source->read <= 2 * bytes.size() + (std::uint64_t{4} << 20));
  }
}

TEST_CASE("burn gzip: a model of zeros opens and loads, though hardly anything compresses more") {
  for (const BurnEncoding encoding : {BurnEncoding::mpk, BurnEncoding::bin, BurnEncoding::json}) {
    CAPTURE(static_cast<int>(encoding));
    const BurnRecorder<> recorder(format_of(encoding));
    Net net;
    net.layers.push_back({Tensor<float, 1>::zeros({std::size_t{2} << 20})});
    BufferSink sink;
    recorder.save(net, sink).value();
    const Bytes bytes = sink.take();
    CHECK(bytes.size() < (std::size_t{64} << 10));
    const auto loaded = recorder.load<Net>(bytes);
    REQUIRE_MESSAGE(loaded, why(loaded));
    CHECK(loaded->layers[0].w->size() == std::size_t{2} << 20);
    CHECK(recorder.verify(bytes));
    // But not beyond what the caller allows.
    LoadOptions options;
    options.limits.total_bytes = 1000;
    CHECK(code_of(recorder.load<Net>(bytes, options)) == Errc::limit);
  }
}

TEST_CASE("burn gzip: what is no record is not inflated whole") {
  constexpr std::size_t count = 512;
  const Net net = noise(2, 3);
  const auto plain = [&](BurnEncoding encoding) {
    const BurnRecorder<> recorder(BurnFormat({.encoding = encoding}));
    BufferSink sink;
    recorder.save(net, sink).value();
    const Bytes bytes = sink.take();
    return std::string(text_of(bytes.span()));
  };
  const std::string json = plain(BurnEncoding::json);
  const std::string up_to_item = json.substr(0, json.find("\"item\":"));
  REQUIRE(up_to_item.size() < json.size());
  const std::string zeros(1, '\0');
  struct Bomb {
    BurnEncoding encoding;
    std::string head, fill;
  };
  const Bomb bombs[] = {
      {BurnEncoding::mpk, plain(BurnEncoding::mpk), zeros},
      {BurnEncoding::mpk, plain(BurnEncoding::mpk).substr(0, 300), zeros},
      {BurnEncoding::bin, plain(BurnEncoding::bin), zeros},
      {BurnEncoding::bin, plain(BurnEncoding::bin).substr(0, 150), zeros},
      {BurnEncoding::json, json, "x"},
      {BurnEncoding::json, json, " "},
      {BurnEncoding::json, json, zeros},
      {BurnEncoding::json, up_to_item, " "},
      {BurnEncoding::json, up_to_item + "\"item\": ", "["},
      {BurnEncoding::json, up_to_item + "\"item\": [", "null,"},
      {BurnEncoding::json, up_to_item + "\"item\": {\"bytes\": [", "[0,"},
      {BurnEncoding::json, up_to_item + "\"zzz\": \"", "a"},
  };
  for (const Bomb& made : bombs) {
    CAPTURE(static_cast<int>(made.encoding));
    CAPTURE(made.fill);
    const Bytes bytes = bomb(made.head, made.fill, count);
    const auto source = std::make_shared<Counting>(bytes.span());
    const BurnRecorder<> recorder(format_of(made.encoding));
    const auto opened = recorder.open(SourcePtr(source));
    REQUIRE(!opened);
    // Two searches of 64 MiB at most: for the reason, and for damage.
    CHECK(source->read < bytes.size() * 140 / count + (std::uint64_t{256} << 10));
  }
}

TEST_CASE("burn gzip: damage is found and said, wherever it is") {
  const BurnRecorder<> recorder(format_of(BurnEncoding::mpk));
  BufferSink sink;
  recorder.save(noise(200, 250), sink).value();
  const Bytes whole = sink.take();
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    Bytes bytes(whole.size());
    std::memcpy(bytes.data(), whole.data(), whole.size());
    const std::size_t at = 10 + random() % (bytes.size() - 10);
    bytes.data()[at] ^= static_cast<std::byte>(1U << (random() % 8));
    const auto opened = recorder.open(bytes);
    CHECK_MESSAGE(!opened, at);
  }
  for (const std::size_t size : {whole.size() - 1, whole.size() - 8, whole.size() / 2, std::size_t{700}}) {
    const auto opened = recorder.open(whole.span().first(size));
    REQUIRE(!opened);
    CHECK_MESSAGE(opened.error().code() == Errc::truncated, why(opened));
  }
}

}  // namespace burn_gzip_test
