// Pickles: each rule broken once, damage, bombs, memory.
#include <cstddef>
#include <string>
#include <vector>

#include "pickle_support.hpp"

namespace pickle_hostile_test {

using namespace stele_test::pickles;

namespace {

std::string repeated(std::string_view text, std::size_t count) {
  std::string out;
  out.reserve(text.size() * count);
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

Error read_error(const std::string& bytes) {
  const auto objects = read(bytes);
  if (objects) return Error(Errc::none);
  return objects.error();
}

/// Reads with a fixed amount of memory; returns how much was taken, or the error.
Result<std::uint64_t> memory_of(const std::string& bytes, std::uint64_t allowed) {
  Limits limits;
  limits.index_bytes = allowed;
  detail::IndexBudget memory(limits, bytes.size());
  detail::Cursor in(borrow_bytes(std::as_bytes(std::span(bytes))));
  const auto objects = pickle::read(in, memory);
  if (!objects) return objects.error();
  return allowed - memory.left();
}

}  // namespace

TEST_CASE("pickle: each rule broken once") {
  struct Case {
    std::string bytes, expected;
  };
  const std::string p = "\x80\x02";
  const Case cases[] = {
      {"", "truncated at 0"},
      {"\x80", "truncated at 0"},
      {"\x80\x01.", "bad_magic at 0"},
      {"\x80\x06.", "bad_magic at 0"},
      {"(dp0\n.", "bad_magic at 0"},
      {p, "truncated at 2"},
      {p + "N", "truncated at 3"},
      {p + "N" + p + ".", "malformed at 3"},
      // The stack and its marks.
      {p + ".", "malformed at 2"},
      {p + "N(.", "malformed at 4"},
      {p + "0", "malformed at 2"},
      {p + "1", "malformed at 2"},
      {p + "2", "malformed at 2"},
      {p + "N(2", "malformed at 4"},
      {p + "t", "malformed at 2"},
      {p + "\x85", "malformed at 2"},
      {p + "NN\x87", "malformed at 4"},
      {p + "N(N\x86", "malformed at 5"},
      {p + "e", "malformed at 2"},
      {p + "(e", "malformed at 3"},
      {p + "](Na", "malformed at 5"},
      {p + "]((e", "malformed at 5"},
      {p + "\x91", "malformed at 2"},
      {p + "Q", "malformed at 2"},
      {p + "q\0"s, "malformed at 2"},
      {p + "\x94", "malformed at 2"},
      // Containers of another kind.
      {p + "}Na", "malformed at 4"},
      {p + ")Na", "malformed at 4"},
      {p + "\x8fNa", "malformed at 4"},
      {p + "N(Ne", "malformed at 5"},
      {p + "]NNs", "malformed at 5"},
      {p + "](NNu", "malformed at 6"},
      {p + "}(Nu", "malformed at 5"},
      {p + "cm\nf\n)R(Nu", "malformed at 11"},
      {p + "](N\x90", "malformed at 5"},
      {p + "cm\nf\n)R(N\x90", "malformed at 11"},
      // The memo.
      {p + "h\0"s, "malformed at 2"},
      {p + "Nq\3h\0"s, "malformed at 5"},
      {p + "j\xff\xff\xff\xff", "malformed at 2"},
      {p + "Nr\xff\xff\xff\xff", "limit at 3"},
      {p + "Nr\x02\0\1\0"s, "limit at 3"},  // 65,536 after two operations
      // Calls.
      {p + "cm\nf\nNR", "malformed at 8"},
      {p + "cm\nf\n]R", "malformed at 8"},
      {p + "N)R", "malformed at 4"},
      {p + "])R", "malformed at 4"},
      {p + ")R", "malformed at 3"},
      {p + "K\1)\x81", "malformed at 5"},
      {p + "cm\nf\nN\x81", "malformed at 8"},
      {p + "cm\nf\n)N\x92", "malformed at 9"},
      {p + "cm\nf\n)\x92", "malformed at 8"},
      {p + "NNb", "malformed at 4"},
      {p + "]}b", "malformed at 4"},
      {p + "cm\nf\n}b", "malformed at 8"},
      {p + "}}b}b", "malformed at 6"},
      {p + "N\x8c\1a\x93", "malformed at 6"},
      {p + "\x8c\1aN\x93", "malformed at 6"},
      {p + "c_codecs\nencode\nX\3\0\0\0\xe2\x82\xacX\6\0\0\0latin1\x86R"s, "malformed at 38"},
      {p + "ccollections\nOrderedDict\n]Na\x85R", "malformed at 31"},
      // Numbers and strings.
      {p + "\x8b\xff\xff\xff\xff", "malformed at 2"},
      {p + "\x8b\1\0\1\0"s + std::string(65537, 'x'), "limit at 2"},
      {p + "\x8a\4abc", "truncated at 4"},
      {p + "T\xff\xff\xff\xff", "malformed at 2"},
      {p + "X\2\0\0\0\xc3."s, "malformed at 2"},
      {p + "X\1\0\0\0\xff"s, "malformed at 2"},
      {p + "X\3\0\0\0\xed\xa0."s, "malformed at 2"},
      {p + "X\4\0\0\0\xc3\xed\xa0\x80"s, "malformed at 2"},
      {p + "X\xff\xff\xff\xff"s, "truncated at 2"},
      {p + "\x8d\xff\xff\xff\xff\xff\xff\xff\xff"s, "truncated at 2"},
      {p + "\x8e\0\0\0\0\1\0\0\0"s, "truncated at 2"},
      {p + "\x96\xff\xff\xff\xff\xff\xff\xff\x7f"s, "truncated at 2"},
      {p + "ca\xff\nb\n", "malformed at 2"},
      {p + "ca\nb", "truncated at 6"},
      {p + "c" + std::string(4097, 'a') + "\nb\n.", "limit at 2"},
      {p + "X\1\x10\0\0"s + std::string(4097, 'a') + "X\1\0\0\0b\x93"s, "limit at 4110"},
  };
  for (const Case& one : cases) {
    CAPTURE(hex(one.bytes.substr(0, 60)));
    CHECK(show(one.bytes) == one.expected);
  }
  // The bounds themselves are admitted.
  CHECK(show(p + "Nr\x01\0\1\0."s) == "None");
  CHECK(read(p + "c" + std::string(4096, 'a') + "\nb\n."));
  CHECK(read(p + "\x8b\0\0\1\0"s + std::string(65536, 'x') + "."));
}

TEST_CASE("pickle: errors name the operation") {
  const Error other = read_error("\x80\x02}Na.");
  CHECK(other.message() == "the pickle's operation APPEND finds an operand of another kind");
  CHECK(other.expected() == "a list");
  CHECK(other.found() == "a dict");
  const Error text = read_error("\x80\x02I1\n.");
  CHECK(text.code() == Errc::unsupported);
  CHECK(text.message() == "the pickle's operation INT is not supported");
  CHECK(text.offset() == 2);
  const Error unknown = read_error("\x80\x02N\xf0");
  CHECK(unknown.code() == Errc::malformed);
  CHECK(unknown.found() == "240");
  CHECK(unknown.offset() == 3);
}

TEST_CASE("pickle: each byte is an operation, unsupported, or none, as in CPython's pickletools") {
  const std::string supported =
      "().012BCGJKMNQRTUX]abcehjqrstu}"
      "\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96";
  const std::string unsupported = "FILPSVdgilop\x82\x83\x84\x97\x98";
  CHECK(supported.size() + unsupported.size() == 68);
  for (int c = 0; c < 256; ++c) {
    CAPTURE(c);
    const auto op = static_cast<char>(c);
    const Error error = read_error("\x80\x02" + std::string(1, op));
    CHECK((error.code() == Errc::unsupported) == (unsupported.find(op) != unsupported.npos));
    const bool none = error.message() == "the byte is not a pickle operation";
    CHECK(none == (supported.find(op) == supported.npos && unsupported.find(op) == unsupported.npos));
  }
}

TEST_CASE("pickle: cut off anywhere, and each bit changed") {
  for (const std::string_view golden : goldens) {
    const std::string bytes = unhex(golden);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      CAPTURE(size);
      CHECK(read_error(bytes.substr(0, size)).code() == Errc::truncated);
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string changed = bytes;
        changed[i] = static_cast<char>(changed[i] ^ 1 << bit);
        const auto objects = read(changed);
        if (objects) {
          CHECK(objects->root() < objects->size());
          continue;
        }
        const Errc code = objects.error().code();
        CHECK((code == Errc::malformed || code == Errc::truncated || code == Errc::unsupported ||
               code == Errc::bad_magic || code == Errc::limit));
        CHECK(objects.error().offset() <= changed.size());
      }
    }
  }
}

TEST_CASE("pickle: a million tuples in each other") {
  constexpr std::size_t depth = 1000000;
  const auto nested = read("\x80\x02)" + std::string(depth, '\x85') + ".");
  REQUIRE(nested);
  CHECK(nested->size() == depth + 1);
  Ref r = nested->root();
  for (std::size_t i = 0; i < depth; ++i) r = nested->items(r)[0];
  CHECK(nested->items(r).empty());
  // With marks, in lists, and in persistent ids.
  REQUIRE(read("\x80\x02" + std::string(depth, '(') + std::string(depth, 't') + "."));
  const auto lists = read("\x80\x02" + std::string(depth, ']') + std::string(depth - 1, 'a') + ".");
  REQUIRE(lists);
  CHECK(lists->size() == depth);
  const auto ids = read("\x80\x02N" + std::string(depth, 'Q') + ".");
  REQUIRE(ids);
  CHECK(ids->size() == depth + 1);
}

TEST_CASE("pickle: objects that are used often are stored once") {
  // 2^1000 leaves.
  const auto doubled = read("\x80\x02)" + repeated("2\x86", 1000) + ".");
  REQUIRE(doubled);
  CHECK(doubled->size() == 1001);
  const auto lists = read("\x80\x02]q\0"s + repeated("h\0"s, 1000) + "(" + repeated("h\0"s, 1000) + "t.");
  REQUIRE(lists);
  CHECK(lists->size() == 2);
  const auto constants = read("\x80\x02](" + repeated("N\x88\x89)K\7(t", 10000) + "e.");
  REQUIRE(constants);
  CHECK(constants->size() == 6);
  CHECK(constants->items(constants->root()).size() == 60000);
}

TEST_CASE("pickle: bombs take no more memory than the pickle's length admits") {
  const auto small = [](const std::string& operations) {
    const auto taken = memory_of("\x80\x02" + operations, std::uint64_t{1} << 40);
    return taken ? *taken : 0;
  };
  CHECK(small("Nr\x01\0\1\0."s) < 300000);  // the highest entry of a memo
  // A list of 10,000 integers, copied by each call of four bytes.
  const std::string copies =
      "\x80\x02]q\0("s + repeated("K\1", 10000) + "e0c__builtin__\nlist\nq\1"s + repeated("h\1h\0\x85R"s, 100000) + ".";
  CHECK(read_error(copies).code() == Errc::limit);
  const std::string texts = "\x80\x02X\x10\x27\0\0"s + std::string(10000, 'a') +
                            "q\0X\6\0\0\0latin1q\1c_codecs\nencode\nq\2"s + repeated("h\2h\0h\1\x86R"s, 100000) + ".";
  CHECK(read_error(texts).code() == Errc::limit);
  // What takes most: one operation, one byte, a million times.
  const std::string most[] = {")" + std::string(1 << 20 | 1, '\x85') + ".", std::string(1 << 20 | 1, ']') + ".",
                              "N" + std::string(1 << 20 | 1, 'Q') + ".", "N" + std::string(1 << 20 | 1, '2') + ".",
                              std::string(1 << 20 | 1, '(') + "N."};
  for (const std::string& operations : most) {
    CAPTURE(operations[1]);
    CHECK(small(operations) > 0);
    CHECK(small(operations) <= 120 * operations.size());
  }
}

TEST_CASE("pickle: memory is counted before it is taken") {
  const std::string samples[] = {
      "\x80\x02X\0\0\2\0"s + std::string(131072, 'x') + ".",
      "\x80\x02" + std::string(3000, '(') + std::string(3000, 't') + ".",
      "\x80\x02](" + repeated("M\0\1"s, 3000) + "e.",
      "\x80\x02N" + std::string(3000, '\x94') + ".",
      "\x80\x02]q\0]q\1"s + repeated("h\0Na0h\1Na0"s, 500) + ".",
      "\x80\x02" + repeated("ctorch\nSize\n)R", 500) + ".",
      "\x80\x02\x8b\0\x40\0\0"s + std::string(16384, 'x') + ".",
      unhex(golden2),
      unhex(golden5),
  };
  for (const std::string& bytes : samples) {
    const auto all = memory_of(bytes, std::uint64_t{1} << 40);
    REQUIRE(all);
    CHECK(*all >= bytes.size() / 2);
    for (std::uint64_t allowed = 1; allowed < *all; allowed += 1 + *all / 97) {
      const auto less = memory_of(bytes, allowed);
      REQUIRE(!less);
      CHECK(less.error().code() == Errc::limit);
      CHECK(less.error().offset());
    }
    CHECK(memory_of(bytes, *all));
    CHECK(!memory_of(bytes, *all - 1));
  }
}

TEST_CASE("pickle: an integer of 255 bytes is no number of the reader's") {
  const auto objects = read("\x80\x02\x8a\xff" + std::string(255, '\x7f') + ".");
  REQUIRE(objects);
  CHECK(objects->is(objects->root(), Kind::big));
  CHECK(!objects->is(objects->root(), Kind::integer));
  CHECK(objects->text(objects->root()) == std::string(255, '\x7f'));
}

}  // namespace pickle_hostile_test
