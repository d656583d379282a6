// Zip files that are refused: each rule broken once, damage, failing reads.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "encodings/gzip/gzip.hpp"
#include "zip_support.hpp"

namespace zip_hostile_test {

using namespace stele;
namespace gzip = detail::gzip;
using namespace stele_test;
using namespace std::string_literals;

TEST_CASE("zip: the raw builder makes good files") {
  RawZip file = raw({RawMember("a"), RawMember("b/c", ""), deflated_entry(line())});
  file.entries[2].name = "日本語";
  file.prefix = "#!";
  const std::map<std::string, std::string> content = {{"a", "abc"}, {"b/c", ""}, {"日本語", line()}};
  CHECK(read_all(*open_zip(file.make()).value()) == content);
  file.comment = std::string(65535, 'c');
  CHECK(read_all(*open_zip(file.make()).value()) == content);
  file.wide = true;
  CHECK(read_all(*open_zip(file.make()).value()) == content);
  file.count = 0xffff;
  file.size = file.offset = 0xffffffff;
  file.disk = file.directory_disk = 0xffff;
  CHECK(read_all(*open_zip(file.make()).value()) == content);
  CHECK(open_zip(raw({}).make()).value()->entries().empty());
}

TEST_CASE("zip: ends that are refused") {
  RawZip file = raw({RawMember("a"), RawMember("b")});
  const auto is = [&](Errc code) { return zip_error(file.make()) == code; };
  REQUIRE(is(Errc::none));
  SUBCASE("no end") {
    for (const std::string& text : {""s, "PK\5\6"s, "PK\5\6"s + std::string(17, '\0'), std::string(100000, 'x')}) {
      CHECK(zip_error(text) == Errc::malformed);
    }
  }
  SUBCASE("bytes behind the end") {
    CHECK(zip_error(file.make() + "x") == Errc::none);
    CHECK(zip_error(file.make() + std::string(65535, 'x')) == Errc::none);
    CHECK(zip_error(file.make() + std::string(70000, 'x')) == Errc::malformed);
    const std::string record = raw({}).make();
    CHECK(zip_error(file.make() + record + "x") == Errc::malformed);  // two records, neither at the end
    CHECK(zip_error(file.make() + record) == Errc::malformed);        // the record at the end has no directory there
  }
  SUBCASE("a comment that is longer than it says") {
    file.comment = "text", file.comment_size = 3;
    CHECK(is(Errc::none));
  }
  SUBCASE("a comment that is cut off") {
    file.comment = "text", file.comment_size = 5;
    CHECK(is(Errc::malformed));
  }
  SUBCASE("an end record in the comment that does not fit is a comment") {
    RawZip other = raw({RawMember("hidden")});
    other.comment_size = 1;
    file.comment = other.make();
    CHECK(is(Errc::none));
    CHECK(open_zip(file.make()).value()->find("hidden") == nullptr);
    file.comment += "PK\5\6";
    CHECK(is(Errc::none));
  }
  SUBCASE("an end record in the comment that fits, too") {
    file.comment = raw({RawMember("hidden")}).make();
    CHECK(is(Errc::malformed));
  }
  SUBCASE("a gap before the end") {
    file.gap = "x";
    CHECK(is(Errc::malformed));
  }
  SUBCASE("an offset or size that is wrong") {
    const std::string good = file.make();
    for (const std::size_t at : {good.size() - 10, good.size() - 6}) {
      for (const std::uint32_t value : {0U, 1U, 0x7fffffffU, 0xffffffffU}) {
        std::string bad = good;
        put_at(bad, at, value);
        CHECK(zip_error(bad) == Errc::malformed);
      }
    }
  }
  SUBCASE("bytes before the archive that move it") { CHECK(zip_error("#!" + file.make()) == Errc::malformed); }
  SUBCASE("disks") {
    file.disk = 1;
    CHECK(is(Errc::malformed));
    file.disk = 0xffff;  // only with zip64
    CHECK(is(Errc::malformed));
    file.disk = 0, file.directory_disk = 1;
    CHECK(is(Errc::malformed));
  }
  SUBCASE("an entry on another disk") {
    file.entries[1].disk = 1;
    CHECK(is(Errc::malformed));
    file.entries[1].disk = 0xffff;
    CHECK(is(Errc::malformed));
  }
  SUBCASE("counts") {
    for (const int count : {0, 1, 3, 0xffff}) {
      file.count = static_cast<std::uint16_t>(count);
      CHECK(is(Errc::malformed));
    }
    file.count = 2, file.count_here = 1;
    CHECK(is(Errc::malformed));
  }
  SUBCASE("zip64: records that do not agree") {
    file.wide = true;
    CHECK(is(Errc::none));
    SUBCASE("count") { file.count = 1; }
    SUBCASE("size") { file.size = 1; }
    SUBCASE("offset") { file.offset = 1; }
    SUBCASE("its own counts") { file.wide_count = 1; }
    SUBCASE("its own offset") { file.offset = 0xffffffff, file.wide_offset = 1; }
    SUBCASE("an offset beyond everything") { file.offset = 0xffffffff, file.wide_offset = ~std::uint64_t{0} - 70; }
    SUBCASE("disk") { file.wide_disk = 1; }
    SUBCASE("disks") { file.wide_disks = 2; }
    SUBCASE("magic") { file.wide_magic = 0x06064b51; }
    SUBCASE("size of the record") { file.wide_size = 43; }
    SUBCASE("huge size of the record") { file.wide_size = ~std::uint64_t{0}; }
    CHECK(is(Errc::malformed));
  }
  SUBCASE("zip64: a locator that points elsewhere") {
    file.wide = true;
    const std::string good = file.make();
    for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{good.size() - 42}, std::uint64_t{good.size()},
                                   ~std::uint64_t{0}, std::uint64_t{good.size() - 99}}) {
      std::string bad = good;
      put_at(bad, good.size() - 22 - 12, at);
      CHECK(zip_error(bad) == Errc::malformed);
    }
    std::string bad = good;
    put_at(bad, good.size() - 22 - 16, 1U);  // its disk
    CHECK(zip_error(bad) == Errc::malformed);
    CHECK(zip_error(good.substr(good.size() - 42)) == Errc::malformed);
  }
  SUBCASE("memory") {
    const std::string good = file.make();
    const auto with = [&](std::uint64_t memory) {
      const auto directory = zip::Directory::open(borrow_bytes(bytes_of(good)), memory);
      return directory ? Errc::none : directory.error().code();
    };
    CHECK(with(1000) == Errc::none);
    CHECK(with(2 * 47 + 2 * sizeof(zip::Entry)) == Errc::limit);
    CHECK(with(10) == Errc::limit);
    CHECK(with(0) == Errc::limit);
  }
}

TEST_CASE("zip: entries that are refused") {
  const auto error = [](auto f) { return zip_error(changed(f).make()); };
  REQUIRE(error([](RawMember&) {}) == Errc::none);
  const auto named = [&](const std::string& name, const std::string& data = "abc") {
    return error([&](RawMember& e) { e = RawMember(name, data); });
  };
  SUBCASE("names") {
    for (const std::string& name : {""s, "a\0"s, "\0"s, "\xff"s, "\xed\xa0\x80"s, "\xc0\xaf"s, "a\xe6"s}) {
      CAPTURE(name);
      CHECK(named(name) == Errc::malformed);
      CHECK(named(name, "") == Errc::malformed);
    }
    // zipfile of Python gives an entry any name.
    for (const std::string& name :
         {"/a"s,   "a\\b"s,   "c:"s, "c:/a"s, "a//b"s, "."s,  ".."s,    "./a"s,    "a/."s,  "a/./b"s, "../a"s,
          "a/.."s, "a/../b"s, "a:"s, "ab:c"s, "..."s,  ".a"s, "a/..b"s, "日本語"s, "a\nb"s, " "s}) {
      CAPTURE(name);
      CHECK(named(name) == Errc::none);
      CHECK(named(name, "") == Errc::none);
    }
    for (const std::string& name : {"/"s, "a//"s, "../"s}) {  // folders
      CHECK(named(name) == Errc::malformed);
      CHECK(named(name, "") == Errc::none);
    }
  }
  SUBCASE("folders") {
    CHECK(named("folder/", "") == Errc::none);
    CHECK(named("folder/") == Errc::malformed);
  }
  SUBCASE("duplicates") {
    CHECK(named("b") == Errc::duplicate);
    CHECK(zip_error(raw({RawMember("a"), RawMember("b"), RawMember("c"), RawMember("a")}).make()) == Errc::duplicate);
    CHECK(zip_error(raw({RawMember("a/", ""), RawMember("a/", "")}).make()) == Errc::duplicate);
  }
  SUBCASE("encryption") {
    for (const int bit : {0, 5, 6, 13}) {
      // The other entries stay readable: one of an encrypted entry's sizes counts the bytes of its key.
      const std::string file = changed([&](RawMember& e) {
                                 e.flags = static_cast<std::uint16_t>(1 << bit);
                                 e.size = 1;
                               }).make();
      const auto directory = open_zip(file).value();
      std::size_t refused = 0;
      for (const zip::Entry& entry : directory->entries()) {
        const auto read = directory->read(entry, enough);
        CHECK(read.has_value() == !zip::is_encrypted(entry));
        if (read) continue;
        ++refused;
        CHECK(read.error().code() == Errc::unsupported);
        CHECK(read.error().message() == "the entry is encrypted");
      }
      CHECK(refused == 1);
      const ProgressCallback none;
      detail::Meter meter(none, 0);
      CHECK(directory->check(meter).value().count(Report::What::unchecked) == 2);
    }
    CHECK(error([&](RawMember& e) { e.flags = 0x0806; }) == Errc::none);
  }
  SUBCASE("records") {
    CHECK(error([](RawMember& e) { e.magic = 0x02014b51; }) == Errc::malformed);
    const std::string good = changed([](RawMember&) {}).make();
    const std::size_t record = good.size() - 22 - 47;  // the last
    for (const std::size_t length : {28U, 30U, 32U}) {
      std::string bad = good;
      put_at(bad, record + length, std::uint16_t{2});
      CHECK(zip_error(bad) == Errc::malformed);
    }
  }
  SUBCASE("overlap") {
    CHECK(error([](RawMember& e) { e.size = 4, e.compressed = 4; }) == Errc::malformed);
    RawZip file = raw({RawMember("a"), RawMember("b"), RawMember("c")});
    file.entries[2].header = 0;
    CHECK(zip_error(file.make()) == Errc::malformed);
    file.entries[2].header = 1;
    CHECK(zip_error(file.make()) == Errc::malformed);
    // One in the data of another.
    RawZip inner = raw({RawMember("a", std::string(200, 'x')), RawMember("b")});
    inner.entries[1].header = 40;
    CHECK(zip_error(inner.make()) == Errc::malformed);
  }
  SUBCASE("into the directory") {
    RawZip file = raw({RawMember("a"), RawMember("b")});
    file.entries[1].size = 4, file.entries[1].compressed = 4;
    CHECK(zip_error(file.make()) == Errc::malformed);
    file = raw({RawMember("a"), RawMember("b")});
    for (const std::uint32_t header : {60U, 68U, 100U, 0x7fffffffU, 0xfffffffeU}) {
      file.entries[1].header = header;
      CHECK(zip_error(file.make()) == Errc::malformed);
    }
  }
  SUBCASE("sizes") {
    CHECK(error([](RawMember& e) { e.size = 2; }) == Errc::malformed);  // stored
    const auto deflates = [&](std::uint64_t size) { return error([&](RawMember& e) { e.method = 8, e.size = size; }); };
    CHECK(deflates(3 * 1032) == Errc::none);
    CHECK(deflates(3 * 1032 + 1) == Errc::limit);
    CHECK(deflates(0xfffffffe) == Errc::limit);
    CHECK(error([&](RawMember& e) {
            e.method = 8, e.size = 0xffffffff, e.extra = extra_field(1, numbers(~std::uint64_t{0}));
          }) == Errc::limit);
  }
}

TEST_CASE("zip: extra fields") {
  const auto error = [](const std::string& extra, auto f) {
    return zip_error(changed([&](RawMember& e) {
                       e.extra = extra;
                       f(e);
                     }).make());
  };
  const auto plain = [&](const std::string& extra) { return error(extra, [](RawMember&) {}); };
  constexpr std::uint64_t three = 3, none = 0, four = 4;
  SUBCASE("of others") {
    CHECK(plain(extra_field(0x5455, "abcde") + extra_field(0x7875, "")) == Errc::none);
    CHECK(plain(std::string(3, '\0')) == Errc::none);
    CHECK(plain(std::string(64, '\0')) == Errc::none);
    CHECK(plain("abc") == Errc::malformed);
    CHECK(plain(numbers(std::uint16_t{7}, std::uint16_t{1})) == Errc::malformed);
    CHECK(plain(extra_field(7, "abc") + numbers(std::uint16_t{7}, std::uint16_t{0xffff})) == Errc::malformed);
  }
  SUBCASE("zip64 where it is not needed") {
    CHECK(plain(extra_field(1, "")) == Errc::none);
    CHECK(plain(extra_field(1, numbers(three))) == Errc::none);
    CHECK(plain(extra_field(1, numbers(three, three))) == Errc::none);
    CHECK(plain(extra_field(1, numbers(three, three, none))) == Errc::none);
    CHECK(plain(extra_field(1, numbers(three, three, none, 0U))) == Errc::none);
    CHECK(plain(extra_field(1, numbers(four))) == Errc::malformed);
    CHECK(plain(extra_field(1, numbers(three, four))) == Errc::malformed);
    CHECK(plain(extra_field(1, numbers(three, three, four))) == Errc::malformed);
    CHECK(plain(extra_field(1, numbers(three, three, none, 1U))) == Errc::malformed);
    CHECK(plain(extra_field(1, numbers(three, three, none, none))) == Errc::malformed);
    CHECK(plain(extra_field(1, "abc")) == Errc::malformed);
    CHECK(plain(extra_field(1, "") + extra_field(1, "")) == Errc::malformed);
  }
  SUBCASE("zip64 instead of each number") {
    const auto wide_sizes = [](RawMember& e) { e.size = 0xffffffff, e.compressed = 0xffffffff, e.local_size = 3; };
    const auto wide_header = [](RawMember& e) { e.header = 0xffffffff; };
    const auto wide_disk = [](RawMember& e) { e.disk = 0xffff; };
    const auto wide_all = [&](RawMember& e) { wide_sizes(e), wide_header(e), wide_disk(e); };
    const auto wide_compressed = [](RawMember& e) { e.compressed = 0xffffffff; };
    CHECK(error(extra_field(1, numbers(three, three)), wide_sizes) == Errc::none);
    CHECK(error(extra_field(1, numbers(three, three, none)), wide_sizes) == Errc::none);
    CHECK(error(extra_field(1, numbers(three)), wide_compressed) == Errc::none);
    CHECK(error(extra_field(1, numbers(three, three)), wide_compressed) == Errc::none);
    CHECK(error(extra_field(1, numbers(none)), wide_header) == Errc::none);
    CHECK(error(extra_field(1, numbers(three, three, none)), wide_header) == Errc::none);
    CHECK(error(extra_field(1, numbers(0U)), wide_disk) == Errc::none);
    CHECK(error(extra_field(1, numbers(three, three, none, 0U)), wide_all) == Errc::none);
    CHECK(error("", wide_sizes) == Errc::malformed);
    CHECK(error("", wide_header) == Errc::malformed);
    CHECK(error("", wide_disk) == Errc::malformed);
    CHECK(error(extra_field(1, numbers(three)), wide_sizes) == Errc::malformed);
    CHECK(error(extra_field(1, numbers(three, four)), wide_sizes) == Errc::malformed);
    CHECK(error(extra_field(1, numbers(three, four)), wide_header) == Errc::malformed);
    CHECK(error(extra_field(1, numbers(~none)), wide_header) == Errc::malformed);
    CHECK(error(extra_field(1, numbers(~none - 20)), wide_header) == Errc::malformed);
    CHECK(error(extra_field(1, numbers(three, ~none)), wide_sizes) == Errc::malformed);
    CHECK(error(extra_field(1, numbers(~none, ~none)), wide_sizes) == Errc::malformed);
    CHECK(error(extra_field(1, numbers(none, 0U)), wide_disk) == Errc::malformed);
    CHECK(error(extra_field(1, numbers(three, three, none)), wide_all) == Errc::malformed);
    CHECK(error(extra_field(1, numbers(three, three, none, 1U)), wide_all) == Errc::malformed);
  }
}

TEST_CASE("zip: local headers that are refused") {
  const auto error = [](auto f) { return read_error(changed(f)); };
  CHECK(error([](RawMember&) {}) == Errc::none);
  CHECK(error([](RawMember& e) { e.local_magic = 0x04034b51; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.local_name = "x"; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.local_name = "ab"; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.local_method = 8; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.local_flags = 1; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.local_flags = 8; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.flags = 8, e.local_flags = 0; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.local_crc = e.crc + 1; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.local_crc = 0; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.local_size = 0; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.local_compressed = 2; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.local_extra = extra_field(7, "abc"); }) == Errc::none);
  CHECK(error([](RawMember& e) { e.local_extra = "abc"; }) == Errc::malformed);
  const auto descriptor = [](RawMember& e) {
    e.flags = 8, e.local_crc = e.local_size = e.local_compressed = 0;
    e.behind = numbers(0x08074b50U, e.crc, 3U, 3U);
  };
  CHECK(error(descriptor) == Errc::none);
  CHECK(error([&](RawMember& e) { descriptor(e), e.local_size = 3; }) == Errc::none);
  CHECK(error([&](RawMember& e) { descriptor(e), e.local_size = 2; }) == Errc::malformed);
  CHECK(error([&](RawMember& e) { descriptor(e), e.local_crc = 2; }) == Errc::malformed);
  const auto zip64 = [](RawMember& e, std::uint64_t size, std::uint64_t compressed) {
    e.local_size = e.local_compressed = 0xffffffff;
    e.local_extra = extra_field(1, numbers(size, compressed));
  };
  CHECK(error([&](RawMember& e) { zip64(e, 3, 3); }) == Errc::none);
  CHECK(error([&](RawMember& e) { zip64(e, 3, 0); }) == Errc::malformed);
  CHECK(error([&](RawMember& e) { zip64(e, 0, 3); }) == Errc::malformed);
  CHECK(error([&](RawMember& e) { descriptor(e), zip64(e, 0, 0); }) == Errc::none);
  CHECK(error([&](RawMember& e) { descriptor(e), zip64(e, 1, 0); }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.local_size = 0xffffffff; }) == Errc::malformed);
  // The extra field leaves no room for the data before the next entry.
  RawZip file = raw({RawMember("a"), RawMember("b")});
  std::string bytes = file.make();
  put_at(bytes, 28, std::uint16_t{0xffff});
  auto directory = open_zip(bytes).value();
  CHECK(directory->read(directory->entries()[0], enough).error().code() == Errc::malformed);
  put_at(bytes, 28, std::uint16_t{1});
  directory = open_zip(bytes).value();
  CHECK(directory->read(directory->entries()[0], enough).error().code() == Errc::malformed);
}

TEST_CASE("zip: data that are damaged") {
  CHECK(read_error(changed([](RawMember& e) { e.data = "abd"; })) == Errc::checksum);
  CHECK(read_error(changed([](RawMember& e) { e.method = 12; })) == Errc::unsupported);
  const auto error = [](auto f) {
    RawMember entry = deflated_entry(line());
    f(entry);
    return read_error(raw({entry}));
  };
  CHECK(error([](RawMember&) {}) == Errc::none);
  CHECK(error([](RawMember& e) { e.crc ^= 1; }) == Errc::checksum);
  CHECK(error([](RawMember& e) { e.size -= 1; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.size += 1; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.data += 'x'; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.data.pop_back(); }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e.data[0] = '\xff'; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e = RawMember("a", ""), e.method = 8; }) == Errc::malformed);
  CHECK(error([](RawMember& e) { e = RawMember("a", ""), e.crc = 1; }) == Errc::checksum);
}

TEST_CASE("zip: errors of deflated data have the offset of the first unused byte") {
  const auto offset = [](auto f) {
    RawMember entry = deflated_entry(line());
    const std::size_t size = entry.data.size();
    f(entry);
    const std::string bytes = raw({entry}).make();
    const auto directory = open_zip(bytes).value();
    const auto read = directory->read(directory->entries()[0], enough);
    REQUIRE(!read);
    REQUIRE(read.error().offset());
    return *read.error().offset() - (bytes.find(entry.data) + size);
  };
  CHECK(offset([](RawMember& e) { e.data += 'x'; }) == 0);
  CHECK(offset([](RawMember& e) { e.size += 1; }) == 0);
  const auto of_gzip = [](std::string_view packed) {
    gzip::Gzip in(borrow_bytes(bytes_of(packed)));
    std::byte piece[100];
    auto read = in.next(piece);
    while (read && *read == sizeof piece) read = in.next(piece);
    REQUIRE(!read);
    return std::pair(read.error().code(), read.error().offset());
  };
  BufferSink below;
  gzip::GzipSink sink(below, 6);
  REQUIRE(sink.write(bytes_of(std::string(1000, 'x'))));
  REQUIRE(sink.finish());
  const std::string packed(text_of(below.take().span()));
  CHECK(of_gzip(packed.substr(0, packed.size() - 1)) == std::pair(Errc::truncated, std::optional(packed.size() - 1)));
  // CRC-32 and length, of 4 bytes each, follow the data.
  for (const std::size_t from_end : {8U, 4U}) {
    std::string bad = packed;
    bad[bad.size() - from_end] ^= 1;
    CHECK(of_gzip(bad) == std::pair(Errc::checksum, std::optional(packed.size() - from_end + 4)));
  }
}

TEST_CASE("zip: every truncation and every flipped bit") {
  Random random(5);
  const std::string text = words(random, 500);
  std::string file = written([&](zip::Writer& writer, detail::Gather& gather) {
    REQUIRE(writer.begin("stored", zip::stored, text.size(), text.size(), crc_of(text), 0, 64));
    REQUIRE(gather.write(bytes_of(text)));
    REQUIRE(writer.add("deflated", bytes_of(text), zip::deflated));
    REQUIRE(writer.add("folder/c", bytes_of("c")));
  });
  const auto good = read_all(*open_zip(file).value());
  for (std::size_t size = 0; size < file.size(); ++size) {
    const std::string part = file.substr(0, size);
    CHECK(zip_error(part) == Errc::malformed);
  }
  const auto directory = open_zip(file).value();
  std::vector<bool> data(file.size());
  for (const zip::Entry& entry : directory->entries()) {
    const auto at = static_cast<std::ptrdiff_t>(directory->data(entry).value());
    // Some bits of what is deflated mean nothing.
    if (entry.method == zip::stored)
      std::fill_n(data.begin() + at, static_cast<std::ptrdiff_t>(entry.compressed), true);
  }
  for (std::size_t at = 0; at < file.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      file[at] = static_cast<char>(file[at] ^ 1 << bit);
      const auto opened = open_zip(file);
      if (data[at]) REQUIRE(opened);
      if (opened) {
        const auto now = read_all(**opened);
        if (data[at]) CHECK(now != good);
        for (const auto& [name, bytes] : now) {  // no other bytes under a name but with an error
          const auto before = good.find(name);
          if (before != good.end() && bytes != before->second) {
            CHECK((bytes == "checksum" || bytes == "malformed" || bytes == "unsupported" || bytes == "limit"));
          }
        }
        for (const zip::Entry& entry : (*opened)->entries()) {
          if (const auto source = (*opened)->open(entry)) {
            Bytes all(static_cast<std::size_t>(std::min<std::uint64_t>((*source)->size(), 1000)));
            static_cast<void>((*source)->read_at((*source)->size() - all.size(), all.span()));
          }
        }
      }
      file[at] = static_cast<char>(file[at] ^ 1 << bit);
    }
  }
}

namespace {

/// A source whose read number `fails` fails, and says no file.
class Failing final : public Source {
 public:
  Failing(std::string_view bytes, int fails)
      : Source("failing.zip"), bytes_(borrow_bytes(bytes_of(bytes))), fails_(fails) {}
  std::uint64_t size() const noexcept override { return bytes_->size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (fails_-- == 0) return Error(Errc::io, "no");
    return bytes_->read_at(offset, out);
  }

 private:
  SourcePtr bytes_;
  mutable int fails_;
};

}  // namespace

TEST_CASE("zip: each read fails once") {
  for (const char* name : {"java", "python_zip64"}) {
    const std::string file = golden(name);
    const auto good = read_all(*open_zip(file).value());
    int failed = 0;
    const auto all = [&](int fails) -> Status {
      STELE_TRY_ASSIGN(const DirectoryPtr directory,
                       zip::Directory::open(std::make_shared<Failing>(file, fails), enough));
      for (const zip::Entry& entry : directory->entries()) {
        STELE_TRY_ASSIGN(const Bytes bytes, directory->read(entry, enough));
        CHECK(text_of(bytes.span()) == good.at(std::string(entry.name)));
        STELE_TRY_ASSIGN(const SourcePtr source, directory->open(entry));
        Bytes again(bytes.size());
        auto read = source->read_at(0, again.span());
        if (!read) CHECK(source->read_at(0, again.span()));
        CHECK(text_of(again.span()) == text_of(bytes.span()));
        STELE_TRY(std::move(read));
      }
      return {};
    };
    for (int fails = 0;; ++fails, ++failed) {
      const Status status = all(fails);
      if (status) break;
      CHECK(status.error().code() == Errc::io);
      CHECK(status.error().file().starts_with("failing.zip"));
    }
    CHECK(failed >= 2 + 2 * static_cast<int>(good.size()));
  }
}

}  // namespace zip_hostile_test
