// The manifest of SDNB files: what Java wrote, to the byte, and hostile streams of objects.
#include "recorders/samediff/manifest.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "support/temp_dir.hpp"

namespace manifest_test {

using namespace stele;
using namespace std::string_literals;
using detail::samediff::make_manifest;
using detail::samediff::ManifestEntry;
using Entries = std::vector<ManifestEntry>;

namespace {

constexpr std::uint64_t kAmple = std::uint64_t{1} << 40;

std::string golden(const std::string& name) {
  const auto path = std::filesystem::path(stele_test::test_data("samediff")) / "manifest" / (name + ".ser");
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), name);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

Result<Entries> parse(std::string_view bytes, std::uint64_t memory = kAmple) {
  return detail::samediff::parse_manifest(std::as_bytes(std::span(bytes)), memory);
}

Entries parsed(std::string_view bytes) {
  auto entries = parse(bytes);
  REQUIRE_MESSAGE(entries.has_value(), (entries ? "" : entries.error().to_string()));
  return *std::move(entries);
}

Errc code(std::string_view bytes, std::uint64_t memory = kAmple) {
  const auto entries = parse(bytes, memory);
  if (entries) return Errc::none;
  const Error& e = entries.error();
  REQUIRE(e.offset().has_value());
  CHECK(*e.offset() <= bytes.size());
  CHECK_FALSE(e.expected().empty());
  return e.code();
}

// As the Java program has them.
Entries layers(std::uint64_t n, std::uint64_t from, std::uint64_t step) {
  Entries all;
  for (std::uint64_t i = 0; i < n; ++i)
    all.push_back({"layer." + std::to_string(i) + ".weight", from + i * step, step});
  return all;
}

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  const std::size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), with);
}

}  // namespace

TEST_CASE("manifest: bytes of Java's ObjectOutputStream") {
  for (const unsigned n : {0u, 1u, 2u, 12u, 13u, 24u, 25u, 300u}) {
    CAPTURE(n);
    const std::string bytes = golden("entries_" + std::to_string(n));
    const Entries entries = layers(n, 4096, 1 << 20);
    CHECK(parsed(bytes) == entries);
    CHECK((make_manifest(entries) == bytes));
  }
  const Entries shared = layers(3, 32, 7);
  CHECK(parsed(golden("shared_longs")) == shared);
  CHECK((make_manifest(shared) == golden("shared_longs")));
  CHECK(parsed(golden("own_longs")) == shared);
  CHECK(parsed("") == Entries());
}

TEST_CASE("manifest: other maps") {
  const Entries three = layers(3, 4096, 7);
  CHECK(parsed(golden("tree_map")) == three);
  Entries hashed = parsed(golden("hash_map"));
  std::sort(hashed.begin(), hashed.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  CHECK(hashed == three);
  // A package that moved.
  const std::string bytes = golden("entries_2");
  CHECK(parsed(replaced(bytes, "\x1forg.nd4j.common.primitives.Pair"s, "\x10org.eclipse.Pair")) == parsed(bytes));
  CHECK(parsed(replaced(bytes, "\x1forg.nd4j.common.primitives.Pair"s, "\x04Pair")) == parsed(bytes));
}

TEST_CASE("manifest: names") {
  const Entries names = parsed(golden("names"));
  const std::vector<std::string> odd = {
      "", "a/b c", std::string(1, '\0'), "\xc3\xa9\xdf\xbf", "\xe0\xa0\x80\xef\xbf\xbf", "\xf0\x9f\x98\x80", "x\0y"s};
  REQUIRE(names.size() == odd.size());
  for (std::size_t i = 0; i < odd.size(); ++i) {
    CHECK(names[i].name == odd[i]);
    CHECK(names[i].offset == 1000 * (i + 1));
    CHECK(names[i].length == 1000);
  }
  CHECK((make_manifest(names) == golden("names")));

  // The second name is the string that names the type of Pair's fields: a reference.
  const Entries type = {{"key", 1000, 2000}, {"Ljava/lang/Object;", 3000, 2000}};
  CHECK(parsed(golden("type_name")) == type);
  CHECK(parsed(make_manifest(type)) == type);

  // From 65536 bytes on, a string has another tag and eight bytes of length; compared with Java by hand.
  const std::string short_one = make_manifest(Entries{{"N", 1000, 2000}});
  for (const std::size_t n : {65535u, 65536u}) {
    const std::string name(n, 'x');
    const std::string tag = n > 65535 ? "\x7c\0\0\0\0\0\1\0\0"s : "\x74\xff\xff"s;
    const std::string bytes = make_manifest(Entries{{name, 1000, 2000}});
    CHECK((bytes == replaced(short_one, "\x74\0\1N"s, tag + name)));
    CHECK((parsed(bytes) == Entries{{name, 1000, 2000}}));
  }
  CHECK(parsed(make_manifest(Entries{{"a\xff", 1, 2}}))[0].name == "a\xef\xbf\xbd");

  // Names that are no modified UTF-8, or no text, are refused.
  const auto with_name = [&](const std::string& name) {
    return replaced(short_one, "\x74\0\1N"s, "\x74\0"s + static_cast<char>(name.size()) + name);
  };
  CHECK(code(with_name("\xc0\x80")) == Errc::none);
  // The first and the last pair of surrogates.
  CHECK(parsed(with_name("\xed\xa0\x80\xed\xb0\x80"))[0].name == "\xf0\x90\x80\x80");
  CHECK(parsed(with_name("\xed\xaf\xbf\xed\xbf\xbf"))[0].name == "\xf4\x8f\xbf\xbf");
  for (const std::string& bad :
       {std::string(1, '\0'), "\x80"s, "\xc0"s, "\xc1\x81"s, "\xc3x"s, "\xe0\x80\x80"s, "\xe0\x9f\xbf"s, "\xe2\x82"s,
        "\xe2\x82y"s, "\xf0\x9f\x98\x80"s, "\xff"s, "\xed\xa0\xbd"s, "\xed\xb8\x80"s, "\xed\xa0\xbd\xed\xa0\xbd"s,
        "\xed\xa0\xbdx"s, "\xed\xb8\x80\xed\xa0\xbd"s}) {
    CHECK(code(with_name(bad)) == Errc::malformed);
  }
}

TEST_CASE("manifest: references") {
  // One Pair for two names: after the second name is a reference to the first one's object, handle 6.
  const Entries two = {{"a", 1000, 2000}, {"b", 3000, 2000}};
  const std::string bytes = make_manifest(two);
  const std::size_t at = bytes.find("\x74\0\1b"s) + 4;
  const auto then = [&](const std::string& value) { return bytes.substr(0, at) + value + "\x78\0"s; };
  CHECK(parsed(then("\x71\0\x7e\0\x06"s)) == Entries{{"a", 1000, 2000}, {"b", 1000, 2000}});
  // A Pair of one Long twice, handle 9.
  CHECK(parsed(then("sq\0\x7e\0\x04q\0\x7e\0\x09q\0\x7e\0\x09"s)) == Entries{{"a", 1000, 2000}, {"b", 1000, 1000}});
  // References to itself (12), to nothing, to something else, and below the first handle.
  for (const std::string& bad :
       {"sq\0\x7e\0\x04q\0\x7e\0\x0cq\0\x7e\0\x09"s, "q\0\x7e\0\x0c"s, "q\0\x7e\0\xff"s, "q\0\x7e\0\x02"s,
        "q\0\x7e\0\x00"s, "q\0\x7e\0\x03"s, "q\0\x7e\0\x09"s, "q\0\x7d\xff\xff"s, "q\xff\xff\xff\xff"s,
        "sq\0\x7e\0\x00"s, "sq\0\x7e\0\x07"s, "sq\0\x7e\0\x05"s, "p"s}) {
    CHECK(code(then(bad)) == Errc::malformed);
  }
  // The same string as a name again.
  const std::string again = replaced(bytes, "\x74\0\1b"s, "q\0\x7e\0\x03"s);
  CHECK(code(again) == Errc::duplicate);
}

TEST_CASE("manifest: what no writer of SDNB writes") {
  const std::string bytes = make_manifest(layers(2, 4096, 1 << 20));
  const auto with = [&](std::string_view what, std::string_view by) { return code(replaced(bytes, what, by)); };
  CHECK(with("layer.1", "layer.0") == Errc::duplicate);
  CHECK(with("java.util.HashMap", "java.util.HashSet") == Errc::unsupported);
  CHECK(with("\x0ejava.lang.Long"s, "\x11java.lang.Runtime"s) == Errc::unsupported);
  CHECK(with("primitives.Pair", "primitives.pair") == Errc::unsupported);
  CHECK(with("\x1forg.nd4j.common.primitives.Pair"s, "\x0ejava.lang.Long"s) == Errc::malformed);
  CHECK(with("L\0\3key"s, "J\0\3key"s) == Errc::malformed);
  CHECK(with("\x02\0\x02L\0\3key"s, "\x03\0\x02L\0\3key"s) == Errc::malformed);  // with a writeObject of its own
  CHECK(with("\x02\0\x02L\0\3key"s, "\x02\0\x03L\0\3key"s) == Errc::malformed);
  CHECK(with("\0\0\0\x02\x74"s, "\0\0\0\x01\x74"s) == Errc::malformed);
  CHECK(with("\0\0\0\x02\x74"s, "\0\0\0\x03\x74"s) == Errc::malformed);
  CHECK(with("\0\0\0\x02\x74"s, "\xff\xff\xff\xff\x74"s) == Errc::malformed);
  CHECK(with("\0\0\0\x02\x74"s, "\x7f\xff\xff\xff\x74"s) == Errc::malformed);
  CHECK(with("xp\0\0\0\0\0\0\x10\0"s, "xp\xff\0\0\0\0\0\x10\0"s) == Errc::malformed);  // a negative offset
  CHECK(with("\x77\x08"s, "\x77\x09"s) == Errc::malformed);
  CHECK(code(bytes + "\0"s) == Errc::malformed);
  CHECK(code(bytes + bytes) == Errc::malformed);
  CHECK(code("PK\3\4") == Errc::malformed);
  CHECK(code("\xac\xed\0\5\x70"s) == Errc::malformed);
  CHECK(code("\xac\xed\0\5\x73\x7d"s) == Errc::malformed);  // a proxy
  CHECK(code("\xac\xed\0\5\x7b"s) == Errc::malformed);      // an exception
  CHECK(code("\xac\xed\0\5\x73\x72\0\x0ejava.lang.Long\x3b\x8b\xe4\x90\xcc\x8f\x23\xdf\x02\0\1J\0\5valuexpxxxxxxxx"s) ==
        Errc::malformed);
  // Superclasses without end.
  const std::string head = golden("entries_0");
  const std::string map = head.substr(5, head.find("xr") + 1 - 5);
  std::string classes = head.substr(0, 5);
  for (int i = 0; i < 1000; ++i) classes += map;
  CHECK(code(classes) == Errc::malformed);
}

TEST_CASE("manifest: memory") {
  const std::string bytes = golden("entries_300");
  CHECK(code(bytes, 1 << 20) == Errc::none);
  CHECK(code(bytes, 1 << 10) == Errc::limit);
  CHECK(code(bytes, 0) == Errc::limit);
  // One long string, referred to again and again, is paid for once: it cannot be two names.
  std::string long_name(60000, 'x');
  std::string bomb = make_manifest(Entries{{long_name, 1, 2}, {"b", 3, 4}});
  bomb = replaced(bomb, "\x74\0\1b"s, "q\0\x7e\0\x03"s);
  CHECK(code(bomb, 1 << 20) == Errc::duplicate);
  // Lengths that are not there.
  const std::string short_one = make_manifest(Entries{{"N", 1000, 2000}});
  CHECK(code(replaced(short_one, "\x74\0\1N"s, "\x7c\x7f\xff\xff\xff\xff\xff\xff\xffN"s)) == Errc::truncated);
  CHECK(code(replaced(short_one, "\x74\0\1N"s, "\x7c\xff\xff\xff\xff\xff\xff\xff\xffN"s)) == Errc::truncated);
}

TEST_CASE("manifest: every end that comes early, and every bit turned") {
  for (const char* name : {"entries_2", "shared_longs", "names", "tree_map"}) {
    const std::string bytes = golden(name);
    for (std::size_t n = 1; n < bytes.size(); ++n) CHECK(code(bytes.substr(0, n)) == Errc::truncated);
    std::string turned = bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        turned[i] = static_cast<char>(bytes[i] ^ (1 << bit));
        const auto entries = parse(turned);
        if (!entries) {
          code(turned);
        } else {
          CHECK(parsed(make_manifest(*entries)) == *entries);
        }
      }
      turned[i] = bytes[i];
    }
  }
}

}  // namespace manifest_test
