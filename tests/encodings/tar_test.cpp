// Tar archives: those of other programs, every kind of entry, gzip, threads, laziness.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "stele/recorders/any.hpp"
#include "stele/recorders/json.hpp"
#include "tar_support.hpp"

namespace tar_test {

using namespace stele_test;
using namespace stele_test::tar_files;

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
  CHECK(mapped->writable_view({0, mapped->size()}) != nullptr);
  CHECK(mapped->bundle()->names().value().size() == 5);
  const auto in_map = tar::open(map_file(dir / "a.tar").value()).value()->open("file4").value();
  CHECK(text_of(in_map->view()) == files["file4"]);
  CHECK(in_map->writable_view({0, in_map->size()}) != nullptr);
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

}  // namespace tar_test
