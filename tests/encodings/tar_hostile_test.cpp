// Tar archives: each rule broken once, damage, bombs.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "tar_support.hpp"

namespace tar_hostile_test {

using namespace stele_test;
using namespace stele_test::tar_files;

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
  const Error twice = tar_error(archive({a, {"b", ""}, {"./a", "y"}}));
  CHECK(twice.code() == Errc::duplicate);
  CHECK(twice.path() == "a");
  CHECK(twice.offset() == 1024 + 512 + 512);
  const Error folder = tar_error(archive({{"a/b", "x"}, {"a.b", "y"}, {"a", "z"}}));
  CHECK(folder.code() == Errc::malformed);
  CHECK(folder.path() == "a");
  std::string deep = "a";
  for (int i = 1; i < 64; ++i) deep += "/a";
  CHECK(open_code({Raw{"a", "x"}, long_name("b/" + deep.substr(2) + '\0'), a}) == Errc::none);
  CHECK(open_code({long_name("b/" + deep + '\0'), a}) == Errc::malformed);

  // Types.
  for (const char type : {'1', '2', '3', '4', '6', '8', 'S', 'D', 'M', 'N', 'V', 'X', 'A', 'z', '\xff'}) {
    CAPTURE(type);
    const Error error = tar_error(archive({a, Raw{"entry", "", type}}));
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
  CHECK(open_code(zeros(512) + std::string(512, 'x')) == Errc::malformed);
  CHECK(open_code(zeros(1023) + 'x') == Errc::malformed);
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

}  // namespace tar_hostile_test
