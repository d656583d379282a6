// Tar archives: what the writer writes, and the order of its calls.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tar_support.hpp"

namespace tar_write_test {

using namespace stele_test;
using namespace stele_test::tar_files;

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

}  // namespace tar_write_test
