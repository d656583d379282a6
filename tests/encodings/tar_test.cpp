// Tar archives: those of other programs, what we write, each rule broken once, damage, threads, laziness.
#include "encodings/tar/tar.hpp"
#include "encodings/gzip/gzip.hpp"

#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "stele/recorders/any.hpp"
#include "stele/recorders/json.hpp"
#include "stele/sink.hpp"
#include "support/random_model.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;
namespace gzip = detail::gzip;
namespace tar = detail::tar;
using BundlePtr = std::shared_ptr<const Bundle>;
using Files = std::map<std::string, std::string>;

/// A source that is read and has no view, and counts.
class Unmapped final : public Source {
 public:
  explicit Unmapped(std::string_view bytes) : Source("test.tar"), bytes_(borrow_bytes(bytes_of(bytes))) {}
  std::uint64_t size() const noexcept override { return bytes_->size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    read += out.size();
    return bytes_->read_at(offset, out);
  }
  mutable std::atomic<std::uint64_t> read{0};

 private:
  SourcePtr bytes_;
};

Result<BundlePtr> open_tar(std::string_view file) { return tar::open(borrow_bytes(bytes_of(file), "test.tar")); }

std::string read_part(const Source& source, std::uint64_t offset, std::size_t size) {
  std::string text(size, '?');
  const Status status = source.read_at(offset, std::as_writable_bytes(std::span(text)));
  return status ? text : "error: "s + status.error().to_string();
}

std::string read_all(const Bundle& bundle, const std::string& name) {
  const auto source = bundle.open(name);
  if (!source) return "error: " + source.error().to_string();
  const std::string leaf(file_name(name));
  CHECK((*source)->bundle()->open(leaf).value()->name() == (*source)->name());
  CHECK((*source)->name() == "test.tar/" + name);
  return read_part(**source, 0, static_cast<std::size_t>((*source)->size()));
}

void check_files(const Bundle& bundle, const Files& files) {
  std::vector<std::string> names;
  for (const auto& f : files) names.push_back(f.first);
  CHECK(bundle.names().value() == names);
  for (const auto& f : files) {
    const auto& name = f.first;
    const auto& content = f.second;
    CAPTURE(name);
    CHECK(bundle.contains(name).value());
    CHECK(read_all(bundle, name) == content);
  }
  CHECK_FALSE(bundle.contains("no such").value());
  CHECK(bundle.open("no such").error().code() == Errc::not_found);
}

void write_file(Bundle& bundle, const std::string& name, std::string_view content) {
  auto sink = bundle.create(name);
  REQUIRE_MESSAGE(sink, sink.error().to_string());
  REQUIRE((*sink)->reserve(content.size()));
  REQUIRE((*sink)->write(bytes_of(content)));
  REQUIRE((*sink)->commit());
}

std::string written(const Files& files, bool gzip) {
  BufferSink sink;
  const auto writer = std::make_shared<tar::Writer>(sink, gzip);
  const std::shared_ptr<Bundle> bundle = writer;
  for (const auto& [name, content] : files) write_file(*bundle, name, content);
  REQUIRE(writer->finish());
  return std::string(text_of(sink.take().span()));
}

// ---- archives put together by hand

std::string octal(std::uint64_t number, int digits) {
  std::string text(static_cast<std::size_t>(digits), '0');
  for (std::size_t i = text.size(); i-- != 0; number >>= 3) text[i] = static_cast<char>('0' + number % 8);
  return text;
}

struct Raw {
  std::string name;
  std::string data = {};
  char type = '0';
  std::optional<std::string> size = {};  // its field
  std::string magic = "ustar\00000"s;
  std::string prefix = {};
  std::string sum = {};  // its field
  bool with_sign = false;

  std::string make() const {
    std::string h(512, '\0');
    const auto put = [&](std::size_t at, const std::string& text) { h.replace(at, text.size(), text); };
    put(0, name), put(100, "0000644\0"s), put(108, "0000000\0"s), put(116, "0000000\0"s);
    put(124, size.value_or(octal(data.size(), 11) + '\0')), put(136, octal(0, 11) + '\0');
    put(148, "        "), h[156] = type, put(257, magic), put(345, prefix);
    std::int64_t all = 0;
    for (const char c : h) all += with_sign ? static_cast<signed char>(c) : static_cast<unsigned char>(c);
    put(148, sum.empty() ? octal(static_cast<std::uint64_t>(all), 6) + "\0 "s : sum);
    h += data;
    h.resize((h.size() + 511) / 512 * 512);
    return h;
  }
};

std::string zeros(std::size_t count) { return std::string(count, '\0'); }

std::string record(const std::string& key, const std::string& value) {
  std::size_t size = key.size() + value.size() + 3;
  while (std::to_string(size).size() + key.size() + value.size() + 3 != size) ++size;
  return std::to_string(size) + ' ' + key + '=' + value + '\n';
}

Raw pax(const std::string& records, char type = 'x') { return {"PaxHeader", records, type}; }
Raw long_name(const std::string& name) { return {"././@LongLink", name, 'L', std::nullopt, "ustar  \0"s}; }

std::string archive(const std::vector<Raw>& entries, std::size_t end = 1024) {
  std::string file;
  for (const Raw& e : entries) file += e.make();
  return file + zeros(end);
}

std::string gzipped(std::string_view text) {
  z_stream z{};
  REQUIRE(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&z, static_cast<uLong>(text.size())), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - z.avail_out);
  deflateEnd(&z);
  return out;
}

/// What opening gives, the same plain, not mapped and in gzip.
Error open_error(const std::string& file) {
  const std::string packed = gzipped(file);
  const SourcePtr sources[] = {borrow_bytes(bytes_of(file), "test.tar"), std::make_shared<Unmapped>(file),
                               std::make_shared<Unmapped>(packed)};
  std::optional<Error> first;
  for (const SourcePtr& source : sources) {
    const auto opened = tar::open(source);
    const Error error = opened ? Error(Errc::none) : opened.error();
    if (!opened) CHECK(error.file() == "test.tar");
    if (first) CHECK(error.to_string() == first->to_string());
    if (!first) first = error;
  }
  return *first;
}
Errc open_code(const std::string& file) { return open_error(file).code(); }
Errc open_code(const std::vector<Raw>& entries) { return open_code(archive(entries)); }

std::string golden(const std::string& name) { return read_text(test_data() + "/tar/" + name); }

}  // namespace

TEST_CASE("tar: files of other programs") {
  std::string numbers;
  for (int i = 0; i < 5 * 256; ++i) numbers += static_cast<char>(i);
  const Files four = {{"graph.nnef", "version 1.0;\n"},
                      {"folder/weights.dat", numbers},
                      {"empty", ""},
                      {"block", std::string(512, 'b')}};
  std::string words = "folder/", names;
  for (int i = 0; i < 20; ++i) words += "long", names += "name";
  Files with_long = four, all = four;
  with_long[words + '/' + names + ".dat"] = "long";
  all = with_long;
  all["folder/" + std::string(120, 'x')] = "longer";
  Files ustar = with_long, python = all;
  ustar["日本語"] = python["日本語"] = "unicode";
  const std::pair<std::string, Files> archives[] = {
      {"python_ustar.tar", ustar},  {"python_pax.tar", python},   {"python_gnu.tar", python},
      {"python_comment.tar", four}, {"python_pax.tgz", python},   {"python_members.tgz", python},
      {"tar_v7.tar", four},         {"tar_ustar.tar", with_long}, {"tar_oldgnu.tar", all},
      {"tar_gnu.tar", all},         {"tar_posix.tar", all}};
  for (const auto& a : archives) {
    const auto& name = a.first;
    const auto& files = a.second;
    CAPTURE(name);
    const std::string bytes = golden(name);
    const bool gzip = name.ends_with(".tgz");
    for (const SourcePtr& source :
         {borrow_bytes(bytes_of(bytes), "test.tar"), SourcePtr(std::make_shared<Unmapped>(bytes))}) {
      const auto opened = tar::open(source);
      REQUIRE_MESSAGE(opened, opened.error().to_string());
      check_files(**opened, files);
      const auto part = (*opened)->open("block").value();
      CHECK(part->view().empty() == (gzip || source->view().empty()));
      CHECK((*opened)->contains("folder").value());
      CHECK_FALSE((*opened)->contains("fold").value());
      CHECK((*opened)->open("folder").error().code() == Errc::io);
      const auto folder = (*opened)->open("folder/weights.dat").value()->bundle();
      CHECK(folder->names().value().size() == (*opened)->names().value().size() - (files.contains("日本語") ? 4 : 3));
      CHECK(folder->contains("weights.dat").value());
      CHECK_FALSE(folder->contains("graph.nnef").value());
      CHECK(folder->open("graph.nnef").error().code() == Errc::not_found);
    }
    CHECK(tar::looks_like_tar(bytes_of(bytes)) == (!gzip && name != "tar_v7.tar"));
  }
}

TEST_CASE("tar: what we write is read, and by GNU tar") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    Files files;
    for (std::size_t count = random.below(12); count != 0; --count) {
      std::string name;
      do {
        if (!name.empty()) name += '/';
        name += random.chance(20) ? "日本語" : "part";
        name += std::string(random.below(random.chance(20) ? 120 : 8), 'x') + std::to_string(random.below(1000));
      } while (random.chance(60));
      const std::size_t size = random.chance(20) ? random.below(300000) : random.below(1100);
      files[name] = random.chance(50) ? random.bytes(size) : std::string(size, 'y');
    }
    const bool gzip = seed % 2 == 0;
    const std::string file = written(files, gzip);
    CHECK(file == written(files, gzip));
    if (gzip) CHECK(std::string_view(file).substr(0, 10) == std::string_view("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10));
    const SourcePtr sources[] = {borrow_bytes(bytes_of(file), "test.tar"), std::make_shared<Unmapped>(file)};
    const auto opened = tar::open(sources[seed / 2 % 2]);
    REQUIRE_MESSAGE(opened, opened.error().to_string());
    check_files(**opened, files);
    for (const auto& [name, content] : files) {  // in any order
      const auto source = (*opened)->open(name).value();
      for (int i = 0; i < 4; ++i) {
        const std::size_t at = random.below(content.size() + 1), n = random.below(content.size() - at + 1);
        CHECK(read_part(*source, at, n) == content.substr(at, n));
      }
      std::byte one[1];
      CHECK(source->read_at(content.size(), one).error().code() == Errc::truncated);
      CHECK(source->read_at(UINT64_MAX, one).error().code() == Errc::truncated);
    }
    if (seed < 12 && !files.empty() && std::system("tar --version > /dev/null 2>&1") == 0) {  // NOLINT(cert-env33-c)
      const TempDir dir;
      write_text(dir / "a.tar", file);
      const std::string command = "cd " + dir.path() + " && tar -xf a.tar && rm a.tar";
      REQUIRE(std::system(command.c_str()) == 0);  // NOLINT(cert-env33-c)
      for (const auto& [name, content] : files) CHECK(read_text(dir / name) == content);
    }
  }
}

TEST_CASE("tar: names in order, and a header as POSIX has it") {
  BufferSink sink;
  const auto writer = std::make_shared<tar::Writer>(sink, false);
  for (const std::string name : {"b", "a/b", "a.b"}) write_file(*writer, name, "text");
  CHECK(writer->names().value() == std::vector<std::string>{"a.b", "a/b", "b"});
  CHECK(writer->contains("a/b").value());
  CHECK(writer->contains("a").value());
  CHECK_FALSE(writer->contains("c").value());
  CHECK(writer->create("a").error().code() == Errc::invalid_argument);
  CHECK(writer->create("b/c/d").error().code() == Errc::not_found);
  {
    const auto folder = writer->create("a/f/c").value()->bundle();
    CHECK(folder->names().value().empty());
    write_file(*folder, "d", "text");
    CHECK(folder->names().value() == std::vector<std::string>{"d"});
    CHECK(folder->contains("d").value());
    CHECK(writer->contains("a/f/d").value());
    CHECK(folder->create("..").error().code() == Errc::invalid_argument);
  }
  CHECK(writer->open("b").error().code() == Errc::unsupported);
  writer->remove("b");
  CHECK(writer->contains("b").value());
  REQUIRE(writer->finish());
  const std::string file(text_of(sink.take().span()));
  CHECK(file.size() == 4 * 1024 + 1024);
  std::string header = Raw{"b", "text"}.make().substr(0, 329) + "0000000\0"s + "0000000\0"s + zeros(167);
  header.replace(148, 8, "        ");
  std::uint64_t sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  header.replace(148, 8, octal(sum, 6) + "\0 "s);
  CHECK(file.substr(0, 512) == header);
}

TEST_CASE("tar: names that just fit and just do not") {
  const auto blocks = [](const std::string& name) {
    const std::string file = written({{name, ""}}, false);
    check_files(**open_tar(file), {{name, ""}});
    return file.size() / 512 - 2;
  };
  const auto name = [](std::size_t prefix, std::size_t rest) {
    return std::string(prefix, 'p') + '/' + std::string(rest, 'n');
  };
  CHECK(blocks(std::string(100, 'n')) == 1);
  CHECK(blocks(std::string(101, 'n')) == 3);
  CHECK(blocks(name(155, 100)) == 1);
  CHECK(blocks(name(156, 100)) == 3);
  CHECK(blocks(name(155, 101)) == 3);
  CHECK(blocks(name(1, 99)) == 1);
  CHECK(blocks(name(200, 1)) == 3);
  CHECK(blocks(name(300, 300)) == 4);
  for (std::size_t n = 80; n < 130; ++n) CHECK(blocks(std::string(n, 'n') + "/x") <= 3);  // the record's own length
}

TEST_CASE("tar: a name that begins as gzip does") {
  const std::string magic = "\x1f\x8b";
  for (const std::string& name : {magic, magic + "\x08n", magic + std::string(98, 'n'), magic + std::string(99, 'n'),
                                  std::string(120, 'p') + '/' + magic + "lder/n"}) {
    CAPTURE(name);
    for (const Files& files : {Files{{name, "content"}}, Files{{"a", "x"}, {name, "content"}}}) {
      for (const bool gzip : {false, true}) {
        const std::string file = written(files, gzip);
        check_files(**open_tar(file), files);
      }
    }
  }
  // As fuzzing has found it: in another program's archive, where such a name is not the first.
  const Files files{{"graph.nnef", "x"}, {magic + "lder/weights.dat", "y"}};
  const std::string found = archive({{"graph.nnef", "x"}, {magic + "lder/weights.dat", "y"}});
  for (const std::string& file : {found, written(files, false), written(files, true)}) {
    const auto opened = open_tar(file);
    REQUIRE(opened);
    check_files(**opened, files);
  }
}

namespace {

/// Takes any number of bytes and keeps the first ones.
class Beginning final : public Sink {
 public:
  Beginning() : Sink("beginning") {}
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    for (const auto piece : pieces) {
      if (text.size() < 4096) text += std::string(text_of(piece.first(std::min<std::size_t>(piece.size(), 4096))));
      size += piece.size();
    }
    return {};
  }
  std::string text;
  std::uint64_t size = 0;
};

}  // namespace

TEST_CASE("tar: files of 8 GiB and more") {
  const std::uint64_t most = (std::uint64_t{1} << 33) - 1;
  for (const std::uint64_t size : {most, most + 1, std::uint64_t{1} << 40}) {
    Beginning sink;
    tar::Writer writer(sink, false);
    auto file = writer.create("large").value();
    REQUIRE(file->reserve(size));
    const std::string piece(1 << 20, '\0');
    REQUIRE(file->write(bytes_of(piece)));
    CHECK(file->commit().error().code() == Errc::invalid_argument);  // not all of it
    CHECK((sink.text[156] == 'x') == (size > most));
    if (size > most) CHECK(sink.text.substr(512, 30).find(" size=" + std::to_string(size) + '\n') != std::string::npos);
    if (size == most) CHECK(sink.text.substr(124, 12) == "77777777777\0"s);
  }
  // And read: a source that has the size of one, and zeros but for the first header.
  struct Large final : Source {
    explicit Large(std::string head) : Source("test.tar"), head_(std::move(head)) {}
    std::uint64_t size() const noexcept override { return head_.size() + (std::uint64_t{1} << 33) + 1024; }
    Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = offset + i < head_.size() ? std::byte(head_[static_cast<std::size_t>(offset) + i]) : std::byte{0};
      }
      read += out.size();
      return {};
    }
    std::string head_;
    mutable std::uint64_t read = 0;
  };
  const std::string base256 = "\x80\0\0\0\0\0\0\x02\0\0\0\0"s;
  for (const std::string& head :
       {pax(record("size", "8589934592")).make() + Raw{"large"}.make(), Raw{"large", "", '0', base256}.make()}) {
    const auto source = std::make_shared<Large>(head);
    const auto opened = tar::open(source);
    REQUIRE_MESSAGE(opened, opened.error().to_string());
    CHECK(source->read < 4096);
    CHECK((*opened)->open("large").value()->size() == std::uint64_t{1} << 33);
  }
}

TEST_CASE("tar: a writer is used in order") {
  for (const bool gzip : {false, true}) {
    BufferSink sink;
    tar::Writer writer(sink, gzip);
    for (const std::string& bad : {""s, "/a"s, "a/"s, "a//b"s, ".."s, "a/../b"s, "./a"s, "a\\b"s, "a\0b"s}) {
      CHECK(writer.create(bad).error().code() == Errc::invalid_argument);
      CHECK(writer.contains(bad).error().code() == Errc::invalid_argument);
    }
    { auto given_up = writer.create("a").value(); }  // nothing has happened
    auto file = writer.create("a").value();
    CHECK(file->name() == "memory/a");
    CHECK(file->bundle() == nullptr);  // a writer that no pointer shares
    CHECK(writer.create("b").error().code() == Errc::invalid_argument);
    CHECK(writer.finish().error().code() == Errc::invalid_argument);
    CHECK(file->write(bytes_of("x")).error().code() == Errc::invalid_argument);
    REQUIRE(file->reserve(4));
    CHECK(file->reserve(4).error().code() == Errc::invalid_argument);
    REQUIRE(file->write(bytes_of("abc")));
    CHECK(file->write(bytes_of("de")).error().code() == Errc::invalid_argument);
    CHECK(file->commit().error().code() == Errc::invalid_argument);
    REQUIRE(file->copy(*borrow_bytes(bytes_of("cde")), 1, 1));
    CHECK(file->copy(*borrow_bytes(bytes_of("cde")), 1, 1).error().code() == Errc::invalid_argument);
    REQUIRE(file->commit());
    CHECK(file->commit().error().code() == Errc::invalid_argument);
    CHECK(file->write(bytes_of("x")).error().code() == Errc::invalid_argument);
    CHECK(writer.create("a").error().code() == Errc::invalid_argument);
    auto empty = writer.create("empty").value();
    REQUIRE(empty->commit());
    REQUIRE(writer.finish());
    CHECK(writer.finish().error().code() == Errc::invalid_argument);
    CHECK(writer.create("c").error().code() == Errc::invalid_argument);
    const std::string bytes(text_of(sink.take().span()));
    const auto opened = open_tar(bytes);
    REQUIRE_MESSAGE(opened, opened.error().to_string());
    check_files(**opened, {{"a", "abcd"}, {"empty", ""}});
  }
}

TEST_CASE("tar: what fails in a writer stays") {
  BufferSink sink;
  const auto writer = std::make_shared<tar::Writer>(sink, false);
  {
    auto file = writer->create("a").value();
    CHECK(file->bundle() == writer);
    REQUIRE(file->reserve(4));
  }
  CHECK(writer->finish().error().code() == Errc::invalid_argument);
  CHECK(writer->create("b").error().code() == Errc::invalid_argument);

  std::vector<std::byte> memory(1000);
  for (const bool gzip : {false, true}) {
    SpanSink small(memory);
    tar::Writer full(small, gzip);
    Random random(1);
    const std::string content = random.bytes(300000);
    auto file = full.create("a").value();
    REQUIRE(file->reserve(content.size()));
    CHECK(file->write(bytes_of(content)).error().code() == Errc::no_space);
    CHECK(file->commit().error().code() == Errc::no_space);
    file.reset();
    CHECK(full.finish().error().code() == Errc::no_space);
    CHECK(full.create("b").error().code() == Errc::no_space);
  }
}

TEST_CASE("tar: a bundle that is read cannot be changed") {
  const auto opened = open_tar(archive({{"a", "x"}})).value();
  auto& bundle = const_cast<Bundle&>(*opened);
  CHECK(bundle.create("b").error().code() == Errc::unsupported);
  bundle.remove("a");
  CHECK(opened->contains("a").value());
  CHECK(opened->open("/a").error().code() == Errc::invalid_argument);
  CHECK(opened->contains("a/..").error().code() == Errc::invalid_argument);
}

TEST_CASE("tar: entries of all kinds that are read") {
  const auto check = [](const std::vector<Raw>& entries, const Files& files) {
    const std::string file = archive(entries);
    for (const std::string& bytes : {file, gzipped(file)}) {
      const auto opened = open_tar(bytes);
      REQUIRE_MESSAGE(opened, opened.error().to_string());
      check_files(**opened, files);
    }
  };
  const Raw a{"a", "x"};
  check({}, {});
  check({a, {"b", "y", '\0'}, {"c", "z", '7'}}, {{"a", "x"}, {"b", "y"}, {"c", "z"}});
  check({{"d/", "", '5'}, {"./", "", '5'}, {".", "", '5'}, {"old/", "", '\0'}, a}, {{"a", "x"}});
  check({{"./a", "x"}, {"./b/c", "y"}}, {{"a", "x"}, {"b/c", "y"}});
  check({{"a", "x", '0', std::nullopt, zeros(8), "not read"}}, {{"a", "x"}});       // v7
  check({{"a", "x", '0', std::nullopt, "ustar  \0"s, "not read"}}, {{"a", "x"}});   // GNU
  check({{"a", "x", '0', std::nullopt, "ustar\0\0\0"s, "p/q"}}, {{"p/q/a", "x"}});  // without a version
  check({{std::string(100, 'n'), "x", '0', std::nullopt, "ustar\00000"s, std::string(155, 'p')}},
        {{std::string(155, 'p') + '/' + std::string(100, 'n'), "x"}});
  check({{"\xff\xfe", "x", '0', std::nullopt, "ustar\00000"s, "", "", true}}, {{"\xff\xfe", "x"}});  // a sum with sign
  check({{"a", "x", '0', "          1 "}}, {{"a", "x"}});
  check({{"a", "x", '0', "000000000001"}}, {{"a", "x"}});
  check({{"a", "x", '0', "\x80"s + zeros(10) + '\1'}}, {{"a", "x"}});
  check({pax(record("path", "long/name") + record("mtime", "1.5")), a}, {{"long/name", "x"}});
  check({pax(record("path", "b") + record("path", "c")), a, {"b", "y"}}, {{"c", "x"}, {"b", "y"}});
  check({pax(record("path", "b") + record("path", "")), a}, {{"a", "x"}});
  check({pax(record("size", "1")), {"a", "x", '0', "00000000000\0"s}, {"b", "y"}}, {{"a", "x"}, {"b", "y"}});
  check({pax(record("size", "7") + record("size", "")), a, {"b", "y"}}, {{"a", "x"}, {"b", "y"}});
  check({pax(""), a, pax(record("comment", "c"), 'g'), {"b", "y"}}, {{"a", "x"}, {"b", "y"}});
  check({pax(record("path", "folder/")), {"x", "", '5'}, a}, {{"a", "x"}});
  check({long_name(std::string(3000, 'n') + '\0'), a, {"b", "y"}}, {{std::string(3000, 'n'), "x"}, {"b", "y"}});
  check({long_name("n"), {"k", "link", 'K'}, a}, {{"n", "x"}});
}

TEST_CASE("tar: each rule broken once") {
  const Raw a{"a", "x"};
  // Names.
  for (const std::string& name : {"/a"s, ".."s, "../a"s, "a/../b"s, "a/.."s, "a//b"s, "a/./b"s, "././a"s, "a\\b"s, ""s,
                                  "."s, "//"s, ".//a"s, "\\"s}) {
    CAPTURE(name);
    CHECK(open_code({Raw{name, "x"}}) == Errc::malformed);
    CHECK(open_code({long_name(name + '\0'), a}) == Errc::malformed);
    if (!name.empty()) CHECK(open_code({pax(record("path", name)), a}) == Errc::malformed);
    if (name != ".") CHECK(open_code({Raw{name, "", '5'}}) == Errc::malformed);
  }
  CHECK(open_code({Raw{"a\0b"s, "x"}}) == Errc::malformed);
  CHECK(open_code({Raw{"a", "x", '0', std::nullopt, "ustar\00000"s, "p\0p"s}}) == Errc::malformed);
  CHECK(open_code({Raw{"a", "x", '0', std::nullopt, "ustar\00000"s, "/p"}}) == Errc::malformed);
  CHECK(open_code({pax(record("path", "a\0b"s)), a}) == Errc::malformed);
  CHECK(open_code({long_name("a\0b\0"s), a}) == Errc::malformed);
  CHECK(open_code({long_name("a\0\0"s), a}) == Errc::malformed);
  const Error twice = open_error(archive({a, {"b", ""}, {"./a", "y"}}));
  CHECK(twice.code() == Errc::duplicate);
  CHECK(twice.path() == "a");
  CHECK(twice.offset() == 1024 + 512 + 512);
  const Error folder = open_error(archive({{"a/b", "x"}, {"a.b", "y"}, {"a", "z"}}));
  CHECK(folder.code() == Errc::malformed);
  CHECK(folder.path() == "a");
  std::string deep = "a";
  for (int i = 1; i < 64; ++i) deep += "/a";
  CHECK(open_code({Raw{"a", "x"}, long_name("b/" + deep.substr(2) + '\0'), a}) == Errc::none);
  CHECK(open_code({long_name("b/" + deep + '\0'), a}) == Errc::malformed);

  // Types.
  for (const char type : {'1', '2', '3', '4', '6', '8', 'S', 'D', 'M', 'N', 'V', 'X', 'A', 'z', '\xff'}) {
    CAPTURE(type);
    const Error error = open_error(archive({a, Raw{"entry", "", type}}));
    CHECK(error.code() == Errc::unsupported);
    CHECK(error.path() == "entry");
    CHECK(error.offset() == 1024);
  }
  CHECK(open_code({pax(record("GNU.sparse.major", "1")), a}) == Errc::unsupported);
  CHECK(open_code({Raw{"folder", "x", '5'}}) == Errc::malformed);
  CHECK(open_code({Raw{"folder/", "x"}}) == Errc::malformed);
  CHECK(open_code({pax(record("size", "1")), Raw{"folder/", "", '5'}}) == Errc::malformed);

  // Numbers and sums.
  for (const std::string& size : {zeros(12), std::string(12, ' '), "-0000000001\0"s, "0000000001x\0"s, "00000000018\0"s,
                                  "1 1         "s, "\xff"s + std::string(11, '\xff'), "\x80"s + std::string(11, '\xff'),
                                  "\x81"s + zeros(10) + '\1', "1\0 0000000 1"s.substr(0, 12)}) {
    CAPTURE(size);
    CHECK(open_code({Raw{"a", "x", '0', size}}) == Errc::malformed);
    CHECK(open_code({Raw{"a", "x", 'x', size}, a}) == Errc::malformed);
    CHECK(open_code({Raw{"a", "x", 'L', size}, a}) == Errc::malformed);
  }
  CHECK(open_code({Raw{"a", "x", '0', "\x80\0\0\0\x7f"s + std::string(7, '\xff')}}) == Errc::truncated);
  CHECK(open_code({Raw{"a", "x", '0', "77777777777\0"s}}) == Errc::truncated);
  CHECK(open_code({pax(record("size", "9223372036854775807")), a}) == Errc::truncated);
  for (const std::string size : {"9223372036854775808", "18446744073709551616", "-1", "1x", " 1", "0x1", "1 "}) {
    CHECK(open_code({pax(record("size", size)), a}) == Errc::malformed);
  }
  for (const std::string& sum : {"0000000\0"s, zeros(8), "        "s, "xxxxxxxx"s, "777777\0 "s}) {
    CHECK(open_code({a, Raw{"b", "x", '0', std::nullopt, "ustar\00000"s, "", sum}}) == Errc::checksum);
    CHECK(open_code({Raw{"b", "x", '0', std::nullopt, "ustar\00000"s, "", sum}}) == Errc::checksum);
    CHECK(open_code({Raw{"b", "x", '0', std::nullopt, zeros(8), "", sum}}) == Errc::bad_magic);
  }

  // More of a file.
  for (const std::string& records : {"x"s, "1"s, " "s, "=\n"s, "3 a"s, "4 =\n"s, "5 =a\n"s, "6 a=b"s, "7 a=b\n"s,
                                     "5 a=b\n"s, "99 a=b\n"s, "6 abc\n"s, "6 a=b\n\0"s, "-6 a=b\n"s, "6\ta=b\n"s,
                                     "0 a=b\n"s, "2 a=b\n"s, "18446744073709551622 a=b\n"s, "06 a=b\n\n"s}) {
    CAPTURE(records);
    CHECK(open_code({pax(records), a}) == Errc::malformed);
    CHECK(open_code({pax(records, 'g'), a}) == Errc::malformed);
  }
  for (const std::string key : {"path", "size", "GNU.sparse.name"}) {
    CHECK(open_code({pax(record(key, "1"), 'g'), a}) == Errc::malformed);
  }
  const Raw x = pax(record("mtime", "1")), g = pax(record("comment", "1"), 'g'), l = long_name("n\0"s);
  CHECK(open_code({x, x, a}) == Errc::malformed);
  CHECK(open_code({x, g, a}) == Errc::malformed);
  CHECK(open_code({x, l, a}) == Errc::malformed);
  CHECK(open_code({l, x, a}) == Errc::malformed);
  CHECK(open_code({l, g, a}) == Errc::malformed);
  CHECK(open_code({l, l, a}) == Errc::malformed);
  CHECK(open_code({a, x}) == Errc::malformed);
  CHECK(open_code({a, l}) == Errc::malformed);
  CHECK(open_code({g, a, g}) == Errc::none);
  const std::string mebi(1 << 20, 'c');
  CHECK(open_code({pax(record("comment", mebi.substr(30)) + record("a", "")), a}) == Errc::none);
  CHECK(open_code({pax(record("comment", mebi)), a}) == Errc::limit);
  CHECK(open_code({long_name(mebi + '\0'), a}) == Errc::limit);
  CHECK(open_code({Raw{"a", "x", 'x', "77777777777\0"s}, a}) == Errc::limit);

  // The end.
  CHECK(open_code(""s) == Errc::truncated);
  CHECK(open_code(zeros(511)) == Errc::truncated);
  CHECK(open_code(zeros(512)) == Errc::truncated);
  CHECK(open_code(zeros(1023)) == Errc::truncated);
  CHECK(open_code(zeros(1024)) == Errc::none);
  CHECK(open_code(zeros(1025)) == Errc::none);
  CHECK(open_code(archive({a}) + "x") == Errc::malformed);
  CHECK(open_code(archive({a}) + archive({a})) == Errc::malformed);
  CHECK(open_code(archive({a}, 512) + archive({a})) == Errc::malformed);
  CHECK(open_code(archive({a}) + zeros(1 << 20)) == Errc::none);
  CHECK(open_code(archive({a}) + zeros((1 << 20) + 1)) == Errc::malformed);
  CHECK(open_code("no archive, but as long as a block of one" + std::string(600, '.')) == Errc::bad_magic);
}

TEST_CASE("tar: every truncation and flipped bit of a small archive") {
  const std::string file =
      archive({{"a", "some bytes"}, pax(record("path", "folder/b")), {"b", std::string(600, 'b')}, {"c", ""}});
  for (std::size_t n = 0; n < file.size(); ++n) {
    CAPTURE(n);
    const auto opened = open_tar(std::string_view(file).substr(0, n));
    REQUIRE_FALSE(opened);
    CHECK(opened.error().code() == Errc::truncated);
  }
  for (std::size_t at = 0; at < file.size(); ++at) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << at % 8);
    const auto opened = open_tar(damaged);           // headers have sums; data have none
    if (at < 512 && at != 148) CHECK_FALSE(opened);  // there, a blank for the first 0 is as good
    if (opened) CHECK((*opened)->contains("a").value());
  }

  const Files files = {{"a", "some bytes"}, {"folder/b", std::string(600, 'b')}, {"c", ""}};
  const std::string packed = gzipped(file);
  for (std::size_t n = 0; n < packed.size(); ++n) {
    CAPTURE(n);
    const auto opened = open_tar(std::string_view(packed).substr(0, n));
    REQUIRE_FALSE(opened);
    CHECK(opened.error().code() == Errc::truncated);
  }
  const auto with = [&](std::size_t from_end) {
    std::string damaged = packed;
    damaged[damaged.size() - from_end] = static_cast<char>(damaged[damaged.size() - from_end] ^ 1);
    return damaged;
  };
  for (std::size_t i = 1; i <= 8; ++i) CHECK(open_tar(with(i)).error().code() == Errc::checksum);
  for (std::size_t i = 9; i <= packed.size() - 10; ++i) {  // zeros that are copied from elsewhere are the same
    const std::string damaged = with(i);
    if (const auto opened = open_tar(damaged)) check_files(**opened, files);
  }
  CHECK(open_tar(packed + "no member").error().code() == Errc::malformed);
  CHECK(open_tar(packed + zeros(20)).error().code() == Errc::malformed);
  CHECK(open_tar(packed + packed).error().code() == Errc::malformed);  // bytes behind the end of the archive
  CHECK(open_tar(packed + gzipped("")));
  CHECK(open_tar(gzipped("") + packed));
  CHECK(open_tar(gzipped(packed)).error().code() == Errc::truncated);
}

TEST_CASE("tar: opening reads headers only") {
  Files files;
  for (int i = 0; i < 5; ++i) files["file" + std::to_string(i)] = std::string(1000000, static_cast<char>('a' + i));
  const std::string file = written(files, false);
  const auto source = std::make_shared<Unmapped>(file);
  const auto opened = tar::open(source);
  REQUIRE(opened);
  CHECK(source->read <= 3 + 7 * 512);
  check_files(**opened, files);

  const TempDir dir;
  write_text(dir / "a.tar", file);
  const auto from_file = tar::open(open_file(dir / "a.tar").value()).value()->open("file3").value();
  CHECK(from_file->view().empty());
  const auto mapped = from_file->mapped();
  REQUIRE(mapped != nullptr);
  CHECK(text_of(mapped->view()) == files["file3"]);
  CHECK(mapped->view_is_private());
  CHECK(mapped->bundle()->names().value().size() == 5);
  const auto in_map = tar::open(map_file(dir / "a.tar").value()).value()->open("file4").value();
  CHECK(text_of(in_map->view()) == files["file4"]);
  CHECK(in_map->view_is_private());
}

TEST_CASE("tar: gzip is read anywhere from kept states") {
  // More than the states that are kept at first are apart.
  Random random(7);
  std::string piece = random.bytes(1 << 20);
  std::vector<std::string> pieces;
  Files files;
  const std::size_t count = 300;
  BufferSink sink;
  tar::Writer writer(sink, true);
  auto file = writer.create("large").value();
  REQUIRE(file->reserve(count * (piece.size() + 1)));
  std::string run(piece.size(), '\0');
  for (std::size_t i = 0; i < count; ++i) {  // most of it deflates to nothing
    run[0] = static_cast<char>(i % 251);
    REQUIRE(file->write(bytes_of(i % 50 == 0 ? piece : run)));
    REQUIRE(file->write(bytes_of("!")));
  }
  REQUIRE(file->commit());
  REQUIRE(writer.finish());
  const std::string packed(text_of(sink.take().span()));
  const auto counting = std::make_shared<Unmapped>(packed);
  const auto opened = tar::open(counting);
  REQUIRE_MESSAGE(opened, opened.error().to_string());
  CHECK(counting->read == packed.size() + 3);  // once
  const auto source = (*opened)->open("large").value();
  const std::size_t step = piece.size() + 1;
  CHECK(source->size() == count * step);
  for (int i = 0; i < 40; ++i) {
    const std::size_t k = random.below(count), at = k % 50 == 0 ? random.below(piece.size() - 100) : 0;
    const std::uint64_t before = counting->read;
    const std::string got = read_part(*source, k * step + at, 100);
    const std::string want =
        k % 50 == 0 ? piece.substr(at, 100) : std::string(1, static_cast<char>(k % 251)) + zeros(99);
    CHECK(got == want);
    CHECK(counting->read - before < packed.size() / 2);
  }
  CHECK(read_part(*source, count * step - 1, 1) == "!");  // to the end
}

TEST_CASE("tar: bombs are refused") {
  // Folders, which take no memory; they are there only when they are read.
  struct Folders final : Source {
    explicit Folders(std::uint64_t n) : Source("test.tar"), count(n) {}
    std::uint64_t size() const noexcept override { return count * 512 + 1024; }
    Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
      const auto from = offset < count * 512 ? bytes_of(header) : bytes_of(end);
      std::copy_n(from.data(), std::min(out.size(), from.size()), out.data());
      return {};
    }
    std::uint64_t count;
    std::string header = Raw{"f/", "", '5'}.make(), end = zeros(512);
  };
  CHECK(tar::open(std::make_shared<Folders>(1'000'000)));
  const auto too_many = tar::open(std::make_shared<Folders>(1'000'001));
  CHECK((!too_many && too_many.error().code() == Errc::limit));
  // Names, which do, in gzip.
  std::string entries;
  for (int i = 0; i < 40'000; ++i) entries += Raw{std::to_string(i)}.make();
  const std::string packed = gzipped(entries + zeros(1024));
  CHECK(packed.size() < 1'500'000);
  CHECK(open_tar(packed));
  Limits bounded;
  bounded.index_bytes = std::uint64_t{4} << 20;
  const auto refused = tar::open(borrow_bytes(bytes_of(packed), "test.tar"), bounded);
  CHECK((!refused && refused.error().code() == Errc::limit));
  CHECK(open_tar(entries + zeros(1024)));
}

TEST_CASE("tar: what gzip begins with") {
  const std::string text = "some text that is long enough to be deflated, deflated, deflated";
  const std::string packed = gzipped(text);
  const auto head = [](std::string_view bytes, std::size_t most) {
    std::vector<std::byte> room(most);
    return std::string(text_of(gzip::inflated_head(bytes_of(bytes), room)));
  };
  CHECK(head(packed, 1000) == text);
  CHECK(head(packed, 10) == text.substr(0, 10));
  CHECK(head(packed, 0).empty());
  CHECK(head("", 10).empty());
  CHECK(head("plain", 10).empty());
  CHECK(head("\x1f\x8b", 10).empty());
  CHECK(head("\x1f\x8b no gzip, though it begins so", 10).empty());
  CHECK(text.starts_with(head(std::string_view(packed).substr(0, packed.size() / 2), 1000)));
  const std::string archived = gzipped(archive({{"a", "x"}}));
  CHECK(tar::looks_like_tar(bytes_of(head(std::string_view(archived).substr(0, 1024), 512))));
  CHECK_FALSE(tar::looks_like_tar(bytes_of(head(packed, 512))));
  const std::string plain = archive({{"a", "x"}});
  CHECK(tar::looks_like_tar(bytes_of(std::string_view(plain).substr(0, 263))));
  CHECK_FALSE(tar::looks_like_tar(bytes_of(std::string_view(plain).substr(0, 262))));
  CHECK_FALSE(tar::looks_like_tar({}));
}

TEST_CASE("tar: gzip of a tar archive is no JSON") {
  const JsonFormat by_name, gzip({.encoding = JsonEncoding::gzip});
  const auto is_json = [&](std::string_view bytes) {
    const auto head = bytes_of(bytes.substr(0, 1024));
    CHECK(by_name.recognises(head, bytes.size()) == gzip.recognises(head, bytes.size()));
    const auto format = format_of_content(*borrow_bytes(bytes_of(bytes)));
    CHECK((format && (*format)->name() == "json.gz") == gzip.recognises(head, bytes.size()));
    return gzip.recognises(head, bytes.size());
  };
  CHECK(is_json(gzipped("{}")));
  CHECK(is_json(gzipped(" \n\t{\"format\"")));
  CHECK(is_json(gzipped("")));             // nothing can be said
  CHECK(is_json("\x1f\x8b\x08 no gzip"));  // nor here: its own errors say more
  CHECK_FALSE(is_json(gzipped("graph")));
  CHECK_FALSE(is_json(gzipped(archive({{"graph.nnef", "version 1.0;"}}))));
  CHECK_FALSE(is_json(golden("python_pax.tgz")));
}

TEST_SUITE("concurrency") {
  TEST_CASE("tar: files are read by several threads") {
    Files files;
    Random random(3);
    for (int i = 0; i < 4; ++i) files["file" + std::to_string(i)] = random.bytes(100000);
    for (const bool gzip : {false, true}) {
      const std::string file = written(files, gzip);
      const auto opened = open_tar(file).value();
      std::vector<std::thread> threads;
      std::atomic<int> good{0};
      for (const auto& f : files) {
        threads.emplace_back([&] {
          const auto source = opened->open(f.first).value();
          for (std::size_t at = 90000; at >= 10000; at -= 10000)
            good += read_part(*source, at, 100) == f.second.substr(at, 100);
        });
      }
      for (std::thread& t : threads) t.join();
      CHECK(good == 4 * 9);
    }
  }
}
