// Entries of zip files as sources: anywhere, in many threads, of more than 4 GiB; and many names.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "encodings/gzip/gzip.hpp"
#include "zip_support.hpp"

namespace zip_entries_test {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;
namespace gzip = detail::gzip;

TEST_CASE("zip: a stored entry is a part of the file") {
  const std::string file = written([&](zip::Writer& writer, detail::Gather&) {
    REQUIRE(writer.add("first", bytes_of("first")));
    REQUIRE(writer.add("second", bytes_of("0123456789")));
  });
  const TempDir dir;
  write_text(dir / "a.zip", file);
  const auto check = [](const SourcePtr& source, bool mapped) {
    auto directory = zip::Directory::open(source, enough).value();
    const SourcePtr part = directory->open(*directory->find("second")).value();
    directory.reset();
    CHECK(part->size() == 10);
    CHECK(part->view().size() == (mapped ? 10 : 0));
    if (mapped) CHECK(text_of(part->view()) == "0123456789");
    std::byte* const writable = part->writable_view({2, 8});
    CHECK((writable != nullptr) == (mapped && source->writable_view({0, source->size()}) != nullptr));
    if (writable != nullptr) CHECK(text_of({writable, 8}) == "23456789");
    CHECK(part->writable_view({2, 9}) == nullptr);
    std::byte bytes[4];
    CHECK(part->read_at(3, bytes));
    CHECK(text_of(bytes) == "3456");
    CHECK(part->read_at(10, {}));
    CHECK(part->read_at(11, {}).error().code() == Errc::truncated);
    CHECK(part->read_at(7, bytes).error().code() == Errc::truncated);
    CHECK(part->read_at(~std::uint64_t{0}, bytes).error().code() == Errc::truncated);
    CHECK(part->name() == source->name() + ": second");
  };
  check(map_file(dir / "a.zip").value(), true);
  check(open_file(dir / "a.zip").value(), false);
  check(borrow_bytes(bytes_of(file)), true);
}

TEST_CASE("zip: a deflated entry is read anywhere") {
  Random random(7);
  const std::string text = words(random, (std::size_t{5} << 20) + 12345);
  const std::string file = deflated(text);
  const auto unmapped = std::make_shared<Unmapped>(file);
  for (const SourcePtr& from : {borrow_bytes(bytes_of(file)), SourcePtr(unmapped)}) {
    const auto directory = zip::Directory::open(from, enough).value();
    const zip::Entry& entry = directory->entries()[0];
    REQUIRE(entry.method == zip::deflated);
    for (const bool in_order_first : {true, false}) {
      const SourcePtr source = directory->open(entry).value();
      CHECK(source->size() == text.size());
      CHECK(source->view().empty());
      std::string back(text.size(), '\0');
      const auto out = std::as_writable_bytes(std::span(back));
      if (in_order_first) {
        unmapped->reads = 0;
        for (std::size_t at = 0; at < text.size(); at += 100000) {
          CHECK(source->read_at(at, out.subspan(at, std::min<std::size_t>(40, text.size() - at))));  // a look ahead
          CHECK(source->read_at(at, out.subspan(at, std::min<std::size_t>(100000, text.size() - at))));
        }
        CHECK(back == text);
        CHECK(static_cast<std::uint64_t>(unmapped->reads) <= entry.compressed / 65536 + 1);  // one pass
      }
      std::size_t end = 0;
      for (int i = 0; i < 120; ++i) {
        // Every second read begins before the end of the last one, within zlib's window or just outside of it.
        const std::size_t at =
            i % 2 == 0 ? random.below(text.size() + 1) : end - std::min<std::size_t>(end, random.below(40000));
        const std::size_t n = random.below(std::min<std::size_t>(text.size() - at, i % 4 == 1 ? 1000 : 200000) + 1);
        end = at + n;
        REQUIRE(source->read_at(at, out.first(n)));
        REQUIRE(std::string_view(back).substr(0, n) == std::string_view(text).substr(at, n));
      }
      unmapped->reads = 0;
      REQUIRE(source->read_at(text.size() - 1, out.first(1)));
      CHECK(unmapped->reads <= 10);  // from a kept state on
      CHECK(source->read_at(text.size(), {}));
      CHECK(source->read_at(text.size(), out.first(1)).error().code() == Errc::truncated);
    }
  }
}

TEST_CASE("zip: a deflated entry with a wrong CRC") {
  Random random(9);
  const std::string text = words(random, std::size_t{3} << 20);
  RawMember raw_entry = deflated_entry(text);
  raw_entry.crc ^= 0x100;
  const std::string file = raw({raw_entry}).make();
  const auto directory = open_zip(file).value();
  const SourcePtr source = directory->open(directory->entries()[0]).value();
  Bytes all(text.size());
  CHECK(source->read_at(0, all.span().first(all.size() - 1)));
  CHECK(text_of(all.span().first(all.size() - 1)) == std::string_view(text).substr(0, text.size() - 1));
  for (int i = 0; i < 2; ++i) {
    CHECK(source->read_at(text.size() - 1, all.span().first(1)).error().code() == Errc::checksum);
    CHECK(source->read_at(0, all.span()).error().code() == Errc::checksum);
    CHECK(source->read_at(5, all.span().first(10)));  // not the end
  }
  CHECK(directory->read(directory->entries()[0], enough).error().code() == Errc::checksum);
}

TEST_CASE("zip: names are found among many") {
  std::vector<std::string> names;
  const std::string file = written([&](zip::Writer& writer, detail::Gather&) {
    for (int i = 0; i < 70000; ++i) {
      names.push_back(std::to_string(i * 7919 % 70000));
      REQUIRE(writer.add(names.back(), bytes_of(names.back())));
    }
  });
  const auto directory = open_zip(file).value();  // with zip64's end record, as 16 bits cannot count them
  REQUIRE(directory->entries().size() == names.size());
  for (std::size_t i = 0; i < names.size(); i += 99) {
    const zip::Entry* entry = directory->find(names[i]);
    REQUIRE(entry == &directory->entries()[i]);
    CHECK(text_of(directory->read(*entry, 10).value().span()) == names[i]);
  }
  CHECK(directory->find("70000") == nullptr);
  for (const std::size_t count : {65534U, 65535U}) {
    const std::string some = written([&](zip::Writer& writer, detail::Gather&) {
      for (std::size_t i = 0; i < count; ++i) REQUIRE(writer.add(names[i], {}));
    });
    CHECK(open_zip(some).value()->entries().size() == count);
    CHECK((some.find("PK\x06\x07") == std::string::npos) == (count == 65534));
  }
}

namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

/// Keeps small pieces, but only the size of large ones, which are zeros.
class SparseSink final : public Sink {
 public:
  SparseSink() : Sink("sparse") {}
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    for (const auto piece : pieces) {
      if (piece.size() < MiB) parts[size] = std::string(text_of(piece));
      size += piece.size();
    }
    return {};
  }
  std::map<std::uint64_t, std::string> parts;
  std::uint64_t size = 0;
};

/// The content that a SparseSink was given.
class SparseSource final : public Source {
 public:
  explicit SparseSource(const SparseSink& from) : Source("sparse.zip"), from_(from) {}
  std::uint64_t size() const noexcept override { return from_.size; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > from_.size || out.size() > from_.size - offset) return Error(Errc::truncated, "beyond the end");
    std::fill(out.begin(), out.end(), std::byte{0});
    auto part = from_.parts.upper_bound(offset);
    if (part != from_.parts.begin()) --part;
    for (; part != from_.parts.end() && part->first < offset + out.size(); ++part) {
      const std::uint64_t begin = std::max(offset, part->first);
      const std::uint64_t end = std::min(offset + out.size(), part->first + part->second.size());
      if (begin >= end) continue;
      std::memcpy(out.data() + (begin - offset), part->second.data() + (begin - part->first),
                  static_cast<std::size_t>(end - begin));
    }
    return {};
  }

 private:
  const SparseSink& from_;
};

}  // namespace

TEST_CASE("zip: more than 4 GiB") {
  const std::vector<std::byte> zeros(static_cast<std::size_t>(64 * MiB));
  std::uint32_t crc = zip::crc32(0, zeros.data(), zeros.size());
  for (std::uint64_t length = 64 * MiB; length < 4096 * MiB; length *= 2) crc = zip::crc32_joined(crc, crc, length);
  const std::uint32_t tail_crc = zip::crc32_joined(crc, crc_of("tail"), 4);
  SparseSink sink;
  detail::Gather gather(sink);
  zip::Writer writer(gather);
  const auto four_gib = [&] {
    for (int i = 0; i < 64; ++i) REQUIRE(gather.write(zeros));
  };
  CHECK(writer.add("small", bytes_of("small")));
  CHECK(writer.begin("huge", zip::stored, 4096 * MiB + 4, 4096 * MiB + 4, tail_crc, 8, 64));
  four_gib();
  CHECK(gather.write(bytes_of("tail")));
  CHECK(writer.begin("beyond", zip::stored, 6, 6, crc_of("beyond"), 0, 4096));
  CHECK(gather.write(bytes_of("beyond")));
  CHECK(writer.add("deflated", bytes_of(line()), zip::deflated));
  CHECK(writer.begin("four", zip::stored, 4096 * MiB, 4096 * MiB, crc));
  four_gib();
  CHECK(writer.finish());
  CHECK(gather.flush());
  CHECK(sink.size > 8192 * MiB);

  const auto directory = zip::Directory::open(std::make_shared<SparseSource>(sink), enough).value();
  REQUIRE(directory->entries().size() == 5);
  const auto read = [&](std::string_view name) {
    return std::string(text_of(directory->read(*directory->find(name), 1000).value().span()));
  };
  CHECK(read("small") == "small");
  CHECK(read("beyond") == "beyond");
  CHECK(read("deflated") == line());
  CHECK(directory->data(*directory->find("beyond")).value() % 4096 == 0);
  CHECK((directory->data(*directory->find("huge")).value() + 8) % 64 == 0);
  const zip::Entry& huge = *directory->find("huge");
  CHECK(huge.size == 4096 * MiB + 4);
  CHECK(huge.crc == tail_crc);
  CHECK(directory->read(huge, 4096 * MiB).error().code() == Errc::limit);
  const SourcePtr source = directory->open(huge).value();
  CHECK(source->size() == huge.size);
  std::byte tail[5];
  CHECK(source->read_at(huge.size - 5, tail));
  CHECK(text_of(tail) == "\0tail"s);
  CHECK(directory->find("four")->header > 4096 * MiB);

  // Entries copied to where their offset has more than 32 bits.
  SparseSink moved;
  detail::Gather to(moved);
  zip::Writer mover(to);
  for (int i = 0; i < 64; ++i) REQUIRE(to.write(zeros));
  for (const char* name : {"small", "deflated"}) {
    const zip::Entry& entry = *directory->find(name);
    Bytes bytes(static_cast<std::size_t>(entry.end - entry.header));
    REQUIRE(directory->source()->read_at(entry.header, bytes.span()));
    mover.adopt(entry, to.position());
    CHECK(to.write(bytes.span()));
  }
  CHECK(mover.finish());
  CHECK(to.flush());
  const auto other = zip::Directory::open(std::make_shared<SparseSource>(moved), enough).value();
  CHECK(read_all(*other) == std::map<std::string, std::string>{{"small", "small"}, {"deflated", line()}});
}

TEST_CASE("zip: a sink that compresses with gzip") {
  Random random(11);
  std::string text = random.bytes(100000);
  while (text.size() < 300000) text += "what repeats, ";
  std::string first;
  for (const std::size_t most : {1U, 1000U, 65536U, 300000U}) {
    CAPTURE(most);
    BufferSink below;
    gzip::GzipSink sink(below, 6);
    CHECK(sink.name() == "memory");
    for (std::size_t at = 0; at < text.size();) {
      const auto a = bytes_of(text).subspan(at, std::min(random.below(most + 1), text.size() - at));
      const auto b = bytes_of(text).subspan(at + a.size(), std::min(most, text.size() - at - a.size()));
      const std::span<const std::byte> pieces[] = {a, b};
      REQUIRE(sink.write(pieces));
      at += a.size() + b.size();
    }
    REQUIRE(sink.finish());
    const std::string packed(text_of(below.take().span()));
    CHECK(packed.substr(0, 10) == "\x1f\x8b\x08\0\0\0\0\0\0\xff"s);
    CHECK(packed.size() < 150000);
    if (first.empty()) first = packed;
    CHECK((packed == first));
    gzip::Gzip gzip(borrow_bytes(bytes_of(packed)));
    std::string back(text.size() + 1, '\0');
    REQUIRE(gzip.next(std::as_writable_bytes(std::span(back))).value() == text.size());
    back.pop_back();
    CHECK((back == text));
  }
  BufferSink below;
  gzip::GzipSink nothing(below, 9);
  REQUIRE(nothing.finish());
  const Bytes packed = below.take();
  std::byte one[1];
  CHECK(gzip::Gzip(borrow_bytes(packed.span())).next(one).value() == 0);
  std::byte little[20];
  SpanSink full(little);
  gzip::GzipSink sink(full, 6);
  REQUIRE(sink.write(bytes_of(text).first(10)));
  CHECK(sink.finish().error().code() == Errc::no_space);
}

TEST_SUITE_BEGIN("concurrency");

TEST_CASE("zip: a deflated entry read by several threads") {
  Random random(11);
  const std::string text = words(random, std::size_t{4} << 20);
  const std::string file = deflated(text);
  const auto directory = open_zip(file).value();
  const SourcePtr source = directory->open(directory->entries()[0]).value();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random places(t);
      std::string back(50000, '\0');
      for (int i = 0; i < 40; ++i) {
        const std::size_t at = places.below(text.size() - back.size() + 1);
        const Status read = source->read_at(at, std::as_writable_bytes(std::span(back)));
        if (!read || back != std::string_view(text).substr(at, back.size())) ++wrong;
      }
      const auto whole = directory->read(directory->entries()[0], enough);
      if (!whole || text_of(whole->span()) != text) ++wrong;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_SUITE_END();

}  // namespace zip_entries_test
