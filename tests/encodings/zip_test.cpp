// Zip files: those of other programs, and what the writer makes.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "zip_support.hpp"

namespace zip_test {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

TEST_CASE("zip: crc") {
  CHECK(zip::crc32(0, nullptr, 0) == 0);
  CHECK(crc_of("123456789") == 0xcbf43926);
  CHECK(zip::crc32(crc_of("1234"), "56789", 5) == 0xcbf43926);
  CHECK(zip::crc32(5, nullptr, 0) == 5);
  CHECK(zip::crc32_joined(crc_of("1234"), crc_of("56789"), 5) == 0xcbf43926);
  CHECK(zip::crc32_joined(crc_of("1234"), 0, 0) == crc_of("1234"));
  const std::string text(4099, 'x');
  for (const std::size_t length : {1U, 4095U, 4096U, 4097U}) {
    CAPTURE(length);
    CHECK(zip::crc32_joined(crc_of(text.substr(length)), crc_of(text.substr(0, length)), length) == crc_of(text));
  }
  const std::string zeros(std::size_t{1} << 20, '\0');
  std::uint32_t one_by_one = 0, doubled = crc_of(zeros);
  for (int i = 0; i < 8192; ++i) one_by_one = zip::crc32_joined(one_by_one, crc_of(zeros), zeros.size());
  for (std::uint64_t length = zeros.size(); length < std::uint64_t{8192} << 20; length *= 2) {
    doubled = zip::crc32_joined(doubled, doubled, length);
  }
  CHECK(one_by_one == doubled);  // of 8 GiB
}

TEST_CASE("zip: files of other programs") {
  const std::map<std::string, std::string> folder = {{"folder/stored.txt", "some bytes"},
                                                     {"folder/deflated.txt", line()}};
  auto python = folder;
  python.insert({{"日本語", "unicode"}, {"empty", ""}});
  const std::map<std::string, std::string> two = {{"stored", line()}, {"deflated", line()}};
  const std::map<std::string, std::string> java = {
      {"folder/deflated.txt", line()}, {"folder/stored.txt", line()}, {"日本語", ""}, {"empty", ""}};
  const std::pair<std::string, std::map<std::string, std::string>> files[] = {
      {"python", python},  {"python_zip64", two},           {"python_stream", two},
      {"infozip", folder}, {"infozip_descriptors", folder}, {"infozip_pipe", {{"-", line()}}},
      {"java", java}};
  for (const auto& file : files) {
    CAPTURE(file.first);
    const auto& content = file.second;
    const std::string bytes = golden(file.first);
    for (const SourcePtr& source : {borrow_bytes(bytes_of(bytes)), SourcePtr(std::make_shared<Unmapped>(bytes))}) {
      const auto opened = zip::Directory::open(source, enough);
      REQUIRE_MESSAGE(opened, opened.error().to_string());
      const zip::Directory& directory = **opened;
      CHECK(read_all(directory) == content);
      for (const auto& [name, text] : content) {
        const zip::Entry* entry = directory.find(name);
        REQUIRE(entry != nullptr);
        CHECK(entry->name == name);
        const auto part = directory.open(*entry);
        REQUIRE_MESSAGE(part, part.error().to_string());
        std::string back(static_cast<std::size_t>((*part)->size()), '\0');
        CHECK((*part)->read_at(0, std::as_writable_bytes(std::span(back))));
        CHECK(back == text);
        CHECK((*part)->view().empty() == (entry->method == zip::deflated || source->view().empty() || text.empty()));
      }
      CHECK(directory.find("folder/") == nullptr);
      CHECK(directory.find("") == nullptr);
      CHECK(std::is_sorted(directory.entries().begin(), directory.entries().end(),
                           [](const zip::Entry& a, const zip::Entry& b) { return a.header < b.header; }));
    }
  }
}

TEST_CASE("zip: round trips") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    struct Want {
      std::string bytes;
      std::uint64_t aligned, alignment;
      bool in_place;
    };
    std::map<std::string, Want> want;
    const std::string file = written([&](zip::Writer& writer, detail::Gather& gather) {
      for (std::size_t count = random.below(12); count != 0; --count) {
        std::string name = random.chance(30) ? "日本語/" : "";
        do {
          name += static_cast<char>('a' + random.below(26));
        } while (random.chance(seed % 3 == 0 ? 99 : 70) && name.size() < 300);
        if (want.contains(name)) continue;
        const std::size_t size = random.chance(20) ? random.below(200000) : random.below(300);
        Want w{random.chance(50) ? random.bytes(size) : words(random, size), 0, 0, random.chance(50)};
        if (w.in_place) {
          w.alignment = random.chance(20) ? 0 : 1 + random.below(random.chance(80) ? 64 : 32768);
          w.aligned = random.below(200);
          REQUIRE(
              writer.begin(name, zip::stored, w.bytes.size(), w.bytes.size(), crc_of(w.bytes), w.aligned, w.alignment));
          REQUIRE(gather.write(bytes_of(w.bytes)));
        } else {
          REQUIRE(writer.add(name, bytes_of(w.bytes), random.chance(60) ? zip::deflated : zip::stored));
        }
        want.emplace(std::move(name), std::move(w));
      }
    });
    const SourcePtr sources[] = {borrow_bytes(bytes_of(file)), std::make_shared<Unmapped>(file)};
    const auto opened = zip::Directory::open(sources[seed % 2], enough);
    REQUIRE_MESSAGE(opened, opened.error().to_string());
    const zip::Directory& directory = **opened;
    CHECK(directory.entries().size() == want.size());
    for (const auto& one : want) {
      const std::string& name = one.first;
      const Want& w = one.second;
      CAPTURE(name);
      const zip::Entry* entry = directory.find(name);
      REQUIRE(entry != nullptr);
      CHECK(entry->size == w.bytes.size());
      CHECK(entry->crc == crc_of(w.bytes));
      CHECK(entry->compressed <= entry->size);
      if (entry->method == zip::deflated) CHECK(entry->compressed < entry->size);
      const auto at = directory.data(*entry);
      REQUIRE(at);
      CHECK(*at + entry->compressed <= entry->end);
      if (w.in_place) CHECK(entry->end == *at + entry->compressed);
      if (w.alignment != 0) CHECK((*at + w.aligned) % w.alignment == 0);
      const auto bytes = directory.read(*entry, w.bytes.size());
      REQUIRE_MESSAGE(bytes, bytes.error().to_string());
      CHECK(text_of(bytes->span()) == w.bytes);
      if (!w.bytes.empty()) CHECK(directory.read(*entry, w.bytes.size() - 1).error().code() == Errc::limit);
      // Bytes of the file that the caller passes are not read again.
      const auto head = bytes_of(file).subspan(static_cast<std::size_t>(entry->header));
      CHECK(directory.data(*entry, head).value() == *at);
      CHECK(directory.data(*entry, head.first(7)).value() == *at);
    }
    const std::string again = written([&](zip::Writer& writer, detail::Gather& gather) {
      REQUIRE(gather.zeros(random.below(100)));
      for (const zip::Entry& entry : directory.entries()) {
        writer.adopt(entry, gather.position());
        REQUIRE(gather.write(bytes_of(file).subspan(static_cast<std::size_t>(entry.header),
                                                    static_cast<std::size_t>(entry.end - entry.header))));
      }
    });
    CHECK(read_all(*open_zip(again).value()) == read_all(directory));
  }
}

TEST_CASE("zip: entries are adopted as they are") {
  for (const char* name : {"python", "python_zip64", "python_stream", "infozip", "infozip_descriptors", "java"}) {
    CAPTURE(name);
    const std::string file = golden(name);
    const auto directory = open_zip(file).value();
    const std::string again = written([&](zip::Writer& writer, detail::Gather& gather) {
      REQUIRE(writer.add("new", bytes_of("new")));
      for (std::size_t i = directory->entries().size(); i-- != 0;) {
        const zip::Entry& entry = directory->entries()[i];
        writer.adopt(entry, gather.position());
        REQUIRE(gather.write(bytes_of(file).subspan(static_cast<std::size_t>(entry.header),
                                                    static_cast<std::size_t>(entry.end - entry.header))));
      }
    });
    const auto back = open_zip(again).value();
    auto content = read_all(*directory);
    content.emplace("new", "new");
    CHECK(read_all(*back) == content);
    for (const zip::Entry& entry : directory->entries()) {
      const zip::Entry& now = *back->find(entry.name);
      CHECK(now.flags == entry.flags);
      CHECK(now.version == std::max<std::uint16_t>(entry.version, 20));
      CHECK(now.modified == entry.modified);
    }
  }
}

TEST_CASE("zip: equal content is equal bytes") {
  const auto make = [] {
    return written([](zip::Writer& writer, detail::Gather&) {
      REQUIRE(writer.add("a", bytes_of(line()), zip::deflated));
      REQUIRE(writer.add("b", {}, zip::deflated));
    });
  };
  CHECK(make() == make());
  const std::string file = make();
  CHECK(open_zip(file).value()->entries()[1].method == zip::stored);
  CHECK(written([](zip::Writer&, detail::Gather&) {}) == "PK\5\6"s + std::string(18, '\0'));
}

TEST_CASE("zip: what cannot be written") {
  BufferSink sink;
  detail::Gather gather(sink);
  zip::Writer writer(gather);
  const auto error = [&](std::string_view name, std::uint64_t alignment = 0) {
    const Status status = writer.begin(name, zip::stored, 0, 0, 0, 0, alignment);
    return status ? Errc::none : status.error().code();
  };
  for (const std::string& name : {""s, "/a"s, "c:/a"s, "c:"s, "a//b"s, "./a"s, "../a"s, "a/.."s, "a/../b"s, "a\\b"s,
                                  "a\0b"s, "\xff"s, std::string(65536, 'x')}) {
    CHECK(error(name) == Errc::not_representable);
  }
  CHECK(error("a", 32769) == Errc::not_representable);
  CHECK(gather.position() == 0);
  const std::string longest(65535, 'x');
  CHECK(error(longest, 32768) == Errc::none);
  CHECK(writer.finish());
  CHECK(gather.flush());
  const Bytes file = sink.take();
  CHECK(open_zip(text_of(file.span())).value()->entries()[0].name == longest);
}

}  // namespace zip_test
