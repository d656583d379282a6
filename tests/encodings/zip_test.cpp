// Zip files: those of other programs, what we write, each rule broken once, damage, threads, more than 4 GiB.
#include "encodings/zip/zip.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "encodings/gzip/gzip.hpp"
#include "stele/sink.hpp"
#include "support/random_model.hpp"
#include "support/stele_file.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;
namespace gzip = detail::gzip;
namespace zip = detail::zip;
using DirectoryPtr = std::shared_ptr<const zip::Directory>;

constexpr std::uint64_t enough = std::uint64_t{1} << 30;

std::uint32_t crc_of(std::string_view text) { return zip::crc32(0, text.data(), text.size()); }

Result<DirectoryPtr> open_zip(std::string_view file) {
  return zip::Directory::open(borrow_bytes(bytes_of(file), "test.zip"), enough);
}

Errc open_error(std::string_view file) {
  const auto directory = open_zip(file);
  if (!directory) CHECK(directory.error().file() == "test.zip");
  return directory ? Errc::none : directory.error().code();
}

/// What entries hold, by name; an error's code where one cannot be read.
std::map<std::string, std::string> read_all(const zip::Directory& directory) {
  std::map<std::string, std::string> all;
  for (const zip::Entry& entry : directory.entries()) {
    const auto bytes = directory.read(entry, enough);
    all.emplace(entry.name, bytes ? std::string(text_of(bytes->span())) : std::string(name(bytes.error().code())));
  }
  return all;
}

template <class F>
std::string written(F f) {
  BufferSink sink;
  detail::Gather gather(sink);
  zip::Writer writer(gather);
  f(writer, gather);
  REQUIRE(writer.finish());
  REQUIRE(gather.flush());
  return std::string(text_of(sink.take().span()));
}

/// A source that is read and has no view.
class Unmapped final : public Source {
 public:
  explicit Unmapped(std::string_view bytes) : Source("unmapped.zip"), bytes_(borrow_bytes(bytes_of(bytes))) {}
  std::uint64_t size() const noexcept override { return bytes_->size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    ++reads;
    return bytes_->read_at(offset, out);
  }
  mutable std::atomic<int> reads{0};

 private:
  SourcePtr bytes_;
};

/// Bytes that deflate well, but not to nothing.
std::string words(Random& random, std::size_t size) {
  std::string text;
  while (text.size() < size) text += std::string(1 + random.below(40), static_cast<char>('a' + random.below(26)));
  text.resize(size);
  return text;
}

// ---- zip files put together by hand

struct RawMember {
  std::string name;
  std::string data;  // as it lies in the file
  std::uint16_t method = 0;
  std::uint16_t flags = 0;
  std::uint64_t size;  // in both headers, where the next ones do not say otherwise
  std::uint32_t crc;
  std::string extra, local_extra, comment, behind;
  std::optional<std::string> local_name;
  std::optional<std::uint16_t> local_flags, local_method;
  std::optional<std::uint32_t> local_crc, local_size, local_compressed;
  std::optional<std::uint32_t> compressed, header;
  std::uint16_t disk = 0;
  std::uint32_t local_magic = 0x04034b50, magic = 0x02014b50;

  explicit RawMember(std::string n, std::string d = "abc")
      : name(std::move(n)), data(std::move(d)), size(data.size()), crc(crc_of(data)) {}
};

struct RawZip {
  std::vector<RawMember> entries;
  std::string prefix, gap, comment;  // the gap stands before the directory's end record
  std::uint16_t disk = 0, directory_disk = 0;
  std::optional<std::uint16_t> count, count_here, comment_size;
  std::optional<std::uint32_t> size, offset;
  bool wide = false;  // zip64's records
  std::uint64_t wide_size = 44;
  std::uint64_t wide_count = 0, wide_offset = 0;  // added to the right ones
  std::uint32_t wide_disk = 0, wide_disks = 1, wide_magic = 0x06064b50;

  std::string make() const {
    std::string file = prefix;
    std::vector<std::size_t> places;
    for (const RawMember& e : entries) {
      places.push_back(file.size());
      put(file, e.local_magic), put(file, std::uint16_t{20}), put(file, e.local_flags.value_or(e.flags));
      put(file, e.local_method.value_or(e.method)), put(file, 0U), put(file, e.local_crc.value_or(e.crc));
      put(file, e.local_compressed.value_or(static_cast<std::uint32_t>(e.data.size())));
      put(file, e.local_size.value_or(static_cast<std::uint32_t>(e.size)));
      const std::string local = e.local_name.value_or(e.name);
      put(file, static_cast<std::uint16_t>(local.size())), put(file, static_cast<std::uint16_t>(e.local_extra.size()));
      file += local + e.local_extra + e.data + e.behind;
    }
    const std::size_t begin = file.size();
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const RawMember& e = entries[i];
      put(file, e.magic), put(file, std::uint16_t{20}), put(file, std::uint16_t{20}), put(file, e.flags);
      put(file, e.method), put(file, 0U), put(file, e.crc);
      put(file, e.compressed.value_or(static_cast<std::uint32_t>(e.data.size())));
      put(file, static_cast<std::uint32_t>(e.size)), put(file, static_cast<std::uint16_t>(e.name.size()));
      put(file, static_cast<std::uint16_t>(e.extra.size())), put(file, static_cast<std::uint16_t>(e.comment.size()));
      put(file, e.disk), put(file, std::uint16_t{0}), put(file, 0U);
      put(file, e.header.value_or(static_cast<std::uint32_t>(places[i])));
      file += e.name + e.extra + e.comment;
    }
    const std::size_t end = file.size();
    file += gap;
    if (wide) {
      const std::size_t at = file.size();
      put(file, wide_magic), put(file, wide_size), put(file, std::uint16_t{45}), put(file, std::uint16_t{45});
      put(file, wide_disk), put(file, 0U), put(file, std::uint64_t{entries.size()} + wide_count);
      put(file, std::uint64_t{entries.size()}), put(file, std::uint64_t{end - begin});
      put(file, std::uint64_t{begin} + wide_offset);
      put(file, 0x07064b50U), put(file, 0U), put(file, std::uint64_t{at}), put(file, wide_disks);
    }
    const auto number = static_cast<std::uint16_t>(entries.size());
    put(file, 0x06054b50U), put(file, disk), put(file, directory_disk);
    put(file, count_here.value_or(count.value_or(number))), put(file, count.value_or(number));
    put(file, size.value_or(static_cast<std::uint32_t>(end - begin)));
    put(file, offset.value_or(static_cast<std::uint32_t>(begin)));
    put(file, comment_size.value_or(static_cast<std::uint16_t>(comment.size())));
    return file + comment;
  }
};

RawZip raw(std::vector<RawMember> entries) {
  RawZip file;
  file.entries = std::move(entries);
  return file;
}

/// One entry changed by `f`.
template <class F>
RawZip changed(F f) {
  RawZip file = raw({RawMember("a"), RawMember("b")});
  f(file.entries[0]);
  return file;
}

template <class... T>
std::string numbers(T... n) {
  std::string text;
  (put(text, n), ...);
  return text;
}

std::string extra_field(std::uint16_t id, const std::string& data) {
  return numbers(id, static_cast<std::uint16_t>(data.size())) + data;
}

/// The error of reading the first entry of a file that can be opened; the Source's must be the same.
Errc read_error(const RawZip& file) {
  const std::string bytes = file.make();
  const auto directory = open_zip(bytes);
  REQUIRE_MESSAGE(directory, directory.error().to_string());
  const zip::Entry& entry = (*directory)->entries()[0];
  const auto read = (*directory)->read(entry, enough);
  Status streamed;
  if (auto source = (*directory)->open(entry)) {
    Bytes all(static_cast<std::size_t>((*source)->size()));
    streamed = (*source)->read_at(0, all.span());
    if (entry.method == zip::stored && streamed && !read) streamed = read.error();  // whose CRC is not checked
  } else {
    streamed = std::move(source).error();
  }
  CHECK(read.has_value() == streamed.has_value());
  if (!read && !streamed) CHECK(read.error().code() == streamed.error().code());
  return read ? Errc::none : read.error().code();
}

std::string golden(const std::string& name) { return read_text(test_data() + "/zip/" + name + ".zip"); }

std::string line() {
  std::string text;
  for (int i = 0; i < 30; ++i) text += "0123456789";
  return text;
}

/// Entry `name` of a zip file with this alone, deflated.
std::string deflated(std::string_view content) {
  return written([&](zip::Writer& w, detail::Gather&) { REQUIRE(w.add("a", bytes_of(content), zip::deflated)); });
}

/// `content` deflated, and nothing around it.
std::string deflated_data(std::string_view content) {
  const std::string file = deflated(content);
  const auto directory = open_zip(file).value();
  const zip::Entry& entry = directory->entries()[0];
  REQUIRE(entry.method == zip::deflated);
  return file.substr(static_cast<std::size_t>(directory->data(entry).value()),
                     static_cast<std::size_t>(entry.compressed));
}

RawMember deflated_entry(std::string_view content) {
  RawMember entry("a", deflated_data(content));
  entry.method = 8;
  entry.size = content.size();
  entry.crc = crc_of(content);
  return entry;
}

}  // namespace

TEST_CASE("zip: crc") {
  CHECK(zip::crc32(0, nullptr, 0) == 0);
  CHECK(crc_of("123456789") == 0xcbf43926);
  CHECK(zip::crc32(crc_of("1234"), "56789", 5) == 0xcbf43926);
  CHECK(zip::crc32(5, nullptr, 0) == 5);
  CHECK(zip::crc32_joined(crc_of("1234"), crc_of("56789"), 5) == 0xcbf43926);
  CHECK(zip::crc32_joined(crc_of("1234"), 0, 0) == crc_of("1234"));
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
        std::string back((*part)->size(), '\0');
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
      // What is known of the file is not read again.
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
  for (const std::string& name : {""s, "/a"s, "a/../b"s, "a\\b"s, "a\0b"s, "\xff"s, std::string(65536, 'x')}) {
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
  const auto is = [&](Errc code) { return open_error(file.make()) == code; };
  REQUIRE(is(Errc::none));
  SUBCASE("no end") {
    for (const std::string& text : {""s, "PK\5\6"s, "PK\5\6"s + std::string(17, '\0'), std::string(100000, 'x')}) {
      CHECK(open_error(text) == Errc::malformed);
    }
  }
  SUBCASE("bytes behind the end") { CHECK(open_error(file.make() + "x") == Errc::malformed); }
  SUBCASE("a comment that is longer than it says") {
    file.comment = "text", file.comment_size = 3;
    CHECK(is(Errc::malformed));
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
        CHECK(open_error(bad) == Errc::malformed);
      }
    }
  }
  SUBCASE("bytes before the archive that move it") { CHECK(open_error("#!" + file.make()) == Errc::malformed); }
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
      CHECK(open_error(bad) == Errc::malformed);
    }
    std::string bad = good;
    put_at(bad, good.size() - 22 - 16, 1U);  // its disk
    CHECK(open_error(bad) == Errc::malformed);
    CHECK(open_error(good.substr(good.size() - 42)) == Errc::malformed);
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
  const auto error = [](auto f) { return open_error(changed(f).make()); };
  REQUIRE(error([](RawMember&) {}) == Errc::none);
  const auto named = [&](const std::string& name, const std::string& data = "abc") {
    return error([&](RawMember& e) { e = RawMember(name, data); });
  };
  SUBCASE("names") {
    for (const std::string& name :
         {""s,     "/"s,      "/a"s,  "a\\b"s, "a\0"s,          "\0"s,       "c:"s,    "c:/a"s,
          "a//b"s, "a//"s,    "."s,   ".."s,   "./a"s,          "a/."s,      "a/./b"s, "../a"s,
          "a/.."s, "a/../b"s, "../"s, "\xff"s, "\xed\xa0\x80"s, "\xc0\xaf"s, "a\xe6"s}) {
      CAPTURE(name);
      CHECK(named(name) == Errc::malformed);
      CHECK(named(name, "") == Errc::malformed);
    }
    for (const std::string& name : {"a:"s, "ab:c"s, "..."s, ".a"s, "a/..b"s, "日本語"s, "a\nb"s, " "s}) {
      CHECK(named(name) == (name == "a:" ? Errc::malformed : Errc::none));
    }
  }
  SUBCASE("folders") {
    CHECK(named("folder/", "") == Errc::none);
    CHECK(named("folder/") == Errc::malformed);
  }
  SUBCASE("duplicates") {
    CHECK(named("b") == Errc::duplicate);
    CHECK(open_error(raw({RawMember("a"), RawMember("b"), RawMember("c"), RawMember("a")}).make()) == Errc::duplicate);
    CHECK(open_error(raw({RawMember("a/", ""), RawMember("a/", "")}).make()) == Errc::duplicate);
  }
  SUBCASE("encryption") {
    for (const int bit : {0, 5, 6, 13}) {
      CHECK(error([&](RawMember& e) { e.flags = static_cast<std::uint16_t>(1 << bit); }) == Errc::unsupported);
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
      CHECK(open_error(bad) == Errc::malformed);
    }
  }
  SUBCASE("overlap") {
    CHECK(error([](RawMember& e) { e.size = 4, e.compressed = 4; }) == Errc::malformed);
    RawZip file = raw({RawMember("a"), RawMember("b"), RawMember("c")});
    file.entries[2].header = 0;
    CHECK(open_error(file.make()) == Errc::malformed);
    file.entries[2].header = 1;
    CHECK(open_error(file.make()) == Errc::malformed);
    // One in the data of another.
    RawZip inner = raw({RawMember("a", std::string(200, 'x')), RawMember("b")});
    inner.entries[1].header = 40;
    CHECK(open_error(inner.make()) == Errc::malformed);
  }
  SUBCASE("into the directory") {
    RawZip file = raw({RawMember("a"), RawMember("b")});
    file.entries[1].size = 4, file.entries[1].compressed = 4;
    CHECK(open_error(file.make()) == Errc::malformed);
    file = raw({RawMember("a"), RawMember("b")});
    for (const std::uint32_t header : {60U, 68U, 100U, 0x7fffffffU, 0xfffffffeU}) {
      file.entries[1].header = header;
      CHECK(open_error(file.make()) == Errc::malformed);
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
    return open_error(changed([&](RawMember& e) {
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
    CHECK(open_error(part) == Errc::malformed);
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
    CHECK(part->view_is_private() == source->view_is_private());
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
          CHECK(source->read_at(at, out.subspan(at, std::min<std::size_t>(100000, text.size() - at))));
        }
        CHECK(back == text);
        CHECK(static_cast<std::uint64_t>(unmapped->reads) <= entry.compressed / 65536 + 1);  // one pass
      }
      for (int i = 0; i < 60; ++i) {
        const std::size_t at = random.below(text.size() + 1);
        const std::size_t n = random.below(std::min<std::size_t>(text.size() - at, 200000) + 1);
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

/// Keeps small pieces, and of large ones of zeros only where they are.
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

/// What a SparseSink was given.
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
