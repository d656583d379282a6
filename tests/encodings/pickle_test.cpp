// Pickles: CPython's own, each operation, names and calls, and the writer.
#include "encodings/pickle/pickle.hpp"

#include <algorithm>
#include <random>
#include <string>

#include "pickle_support.hpp"

namespace pickle_test {

using namespace stele_test::pickles;

namespace {

/// Returns what the operations make, of protocol 2 or another.
std::string made(const std::string& operations, char protocol = 2) {
  return show("\x80"s + protocol + operations + ".");
}

std::string repeated(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

/// A source that cannot be mapped, with zeros after its bytes up to a terabyte; counts how far it is read.
class Long final : public Source {
 public:
  explicit Long(std::string bytes) : Source("long"), bytes_(std::move(bytes)) {}
  std::uint64_t size() const noexcept override { return std::uint64_t{1} << 40; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = offset + i < bytes_.size() ? static_cast<std::byte>(bytes_[offset + i]) : std::byte{0};
    }
    end = std::max(end, offset + out.size());
    return {};
  }
  mutable std::uint64_t end = 0;

 private:
  std::string bytes_;
};

}  // namespace

TEST_CASE("pickle: CPython's pickles of each protocol") {
  const std::string expected =
      "[None, True, False, 1, 300, -1, 70000, 1099511627776, -9223372036854775808, i000000000000008000, f1.5, 'a', "
      "'\xc3\xa9', b00ff, b, b7a, b, (), (1), (1, 2), (1, 2, 3), (1, 2, 3, 4), {}, {'k': 1, 'l': 2}, {'m': 3}, set[1], "
      "set[2], collections.OrderedDict{'a': 1, 'b': 2}, collections.Counter{'a': 2, 'b': 1}, "
      "collections.defaultdict(builtins.list){'x': [5]}, builtins.complex(f1, f2), ['s'], ['s'], [1, ...]]";
  for (const std::string_view golden : goldens) {
    const std::string bytes = unhex(golden);
    CHECK(show(bytes) == expected);
    const auto objects = read(bytes);
    REQUIRE(objects);
    const auto items = objects->items(objects->root());
    REQUIRE(items.size() == 34);
    CHECK(items[31] == items[32]);  // shared
    CHECK(objects->items(items[33])[1] == items[33]);
    CHECK(objects->integer(items[8]) == INT64_MIN);
    CHECK(objects->find(items[23], "l") == objects->items(items[23])[3]);
    CHECK(objects->find(items[23], "x") == pickle::no_ref);
    CHECK(objects->is_global(objects->callable(items[27]), "collections", "OrderedDict"));
    CHECK(objects->callable(items[23]) == pickle::no_ref);
    CHECK(pickle::protocol(std::as_bytes(std::span(bytes))) == static_cast<unsigned>(bytes[1]));
  }
}

TEST_CASE("pickle: the protocol of a head") {
  const auto of = [](std::string_view head) { return pickle::protocol(std::as_bytes(std::span(head))); };
  CHECK(of("\x80\x02") == 2U);
  CHECK(of("\x80\x05.") == 5U);
  CHECK(!of("\x80"));
  CHECK(!of(""));
  CHECK(!of("\x80\x01"));
  CHECK(!of("\x80\x06"));
  CHECK(!of("(\x02"));
}

TEST_CASE("pickle: each operation") {
  struct Case {
    std::string operations, expected;
  };
  const Case cases[] = {
      {"N", "None"},
      {"\x88", "True"},
      {"\x89", "False"},
      {"J\xff\xff\xff\x7f", "2147483647"},
      {"J\0\0\0\x80"s, "-2147483648"},
      {"K\xff", "255"},
      {"M\xff\xff", "65535"},
      {"\x8a\0"s, "0"},
      {"\x8a\x01\xff", "-1"},
      {"\x8a\x02\xff\0"s, "255"},
      {"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", "9223372036854775807"},
      {"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0"s, "iffffffffffffffff00"},
      {"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\xff", "-1"},
      {"\x8a\x0b\0\0\0\0\0\0\0\x80\xff\xff\xff"s, "-9223372036854775808"},
      {"\x8a\x0a\0\0\0\0\0\0\0\0\xff\xff"s, "i0000000000000000ff"},
      {"\x8b\x01\0\0\0\x07"s, "7"},
      {"\x8b\0\x01\0\0"s + repeated("\x01", 256), "i" + repeated("01", 256)},
      {"G\x3f\xf8\0\0\0\0\0\0"s, "f1.5"},
      {"G\xff\xf0\0\0\0\0\0\0"s, "f-inf"},
      {"X\x02\0\0\0ab"s, "'ab'"},
      {"\x8c\x02"
       "ab",
       "'ab'"},
      {"\x8d\x02\0\0\0\0\0\0\0ab"s, "'ab'"},
      {"\x8c\x05\xed\xa0\x80\x61\x62", "'\xed\xa0\x80\x61\x62'"},  // a lone surrogate
      {"B\x02\0\0\0a\xff"s, "b61ff"},
      {"C\x02"
       "a\xff",
       "b61ff"},
      {"\x8e\x02\0\0\0\0\0\0\0a\xff"s, "b61ff"},
      {"\x96\x02\0\0\0\0\0\0\0a\xff"s, "b61ff"},
      {"T\x02\0\0\0\xc3\xa9"s, "'\xc3\xa9'"},
      {"T\x02\0\0\0\xe9z"s, "be97a"},
      {"U\x02\xc3\xa9", "'\xc3\xa9'"},
      {"U\x03\xed\xa0\x80", "beda080"},  // Python 2 has no such UTF-8
      {"U\0"s, "''"},
      {"]", "[]"},
      {"]K\1a", "[1]"},
      {"](K\1K\2eK\3a(e", "[1, 2, 3]"},
      {")", "()"},
      {"(t", "()"},
      {"(K\1t", "(1)"},
      {"K\1\x85", "(1)"},
      {"K\1K\2\x86", "(1, 2)"},
      {"K\1K\2K\3\x87", "(1, 2, 3)"},
      {"}", "{}"},
      {"}K\1K\2s", "{1: 2}"},
      {"}(K\1K\2K\3K\4uK\1K\5s(u", "{1: 2, 3: 4, 1: 5}"},
      {"\x8f", "set[]"},
      {"\x8f(K\1K\2\x90(K\3\x90", "set[1, 2, 3]"},
      {"(K\1\x91", "set[1]"},
      {"(\x91", "set[]"},
      {"K\1K\2"s + "0", "1"},
      {"K\1("s + "0", "1"},  // POP of a mark, as CPython's pickler writes for tuples that contain themselves
      {"K\1(K\2K\3"s + "1", "1"},
      {"K\1"s + "2\x86", "(1, 1)"},
      {"K\1q\0N0h\0"s, "1"},
      {"K\1r\x07\0\0\0N0j\x07\0\0\0"s, "1"},
      {"K\1\x94K\2\x94h\1h\0\x86"s, "(2, 1)"},
      {"K\1q\5K\2\x94h\1h\5\x86"s, "(2, 1)"},  // MEMOIZE counts the entries
      {"K\1q\0K\2q\0h\0"s, "2"},
      {"ca.b\nc\n", "a.b.c"},
      {"\x8c\1a\x8c\3b.c\x93", "a.b.c"},
      {"ca\nb\n)R", "a.b()"},
      {"ca\nb\nK\1\x85R", "a.b(1)"},
      {"ca\nb\nK\1\x85R)R", "a.b(1)()"},
      {"ca\nb\n)\x81", "a.b()"},
      {"ca\nb\nK\1\x85}\x92", "a.b(1)"},
      {"ca\nb\nK\1\x85}K\1K\2s\x92", "a.b(1)"},
      {"ca\nb\n)\x81}K\1K\2sb", "a.b()|{1: 2}"},
      {"ca\nb\n)\x81}}\x86"
       "b",
       "a.b()|({}, {})"},
      {"ca\nb\n)\x81(K\1K\2eK\3a", "a.b()[1, 2, 3]"},
      {"ca\nb\n)\x81(K\1K\2uK\3a(K\4K\5u", "a.b()[3]{1: 2, 4: 5}"},
      {"K\1Q", "@1"},
      {"K\1\x85Q\x85", "(@(1))"},
      {"\x95\0\0\0\0\0\0\0\0K\1"s, "1"},
      {"K\1K\2", "2"},  // the rest of the stack is dropped, as in CPython
  };
  for (const Case& one : cases) {
    CAPTURE(hex(one.operations));
    CHECK(made(one.operations) == one.expected);
    CHECK(made(one.operations, 5) == one.expected);
  }
}

TEST_CASE("pickle: calls of plain types") {
  struct Case {
    std::string operations, expected;
  };
  const Case cases[] = {
      {"ccollections\nOrderedDict\n)R", "collections.OrderedDict{}"},
      {"ccollections\nOrderedDict\n)\x81", "collections.OrderedDict{}"},
      {"ccollections\nOrderedDict\n)RK\1K\2s}K\5K\6sb", "collections.OrderedDict{1: 2}|{5: 6}"},
      // As Python 2 writes it, a list of lists; and a list of tuples.
      {"ccollections\nOrderedDict\n](](U\1aK\1e](U\1bK\2ee\x85R", "collections.OrderedDict{'a': 1, 'b': 2}"},
      {"ccollections\nOrderedDict\n](U\1aK\1\x86U\1bK\2\x86"
       "e\x85R",
       "collections.OrderedDict{'a': 1, 'b': 2}"},
      {"ccollections\nOrderedDict\n]K\1a\x85\x81", "collections.OrderedDict([1])"},
      {"ccollections\nOrderedDict\nK\1\x85R", "collections.OrderedDict(1)"},
      {"ccollections\nCounter\n}U\1aK\2s\x85R", "collections.Counter{'a': 2}"},
      {"ccollections\nCounter\n]U\1aa\x85R", "collections.Counter(['a'])"},
      {"ccollections\ndefaultdict\n)R", "collections.defaultdict{}"},
      {"ccollections\ndefaultdict\nN\x85R", "collections.defaultdict(None){}"},
      {"ccollections\ndefaultdict\nN}K\1K\2s\x86R", "collections.defaultdict(None, {1: 2}){1: 2}"},
      {"ccollections\ndeque\n)R(K\1K\2e", "collections.deque()[1, 2]"},
      {"c__builtin__\ndict\n)R", "{}"},
      {"c__builtin__\ndict\n]K\1K\2\x86"
       "a\x85RK\3K\4s",
       "{1: 2, 3: 4}"},
      {"c__builtin__\nset\n](K\1K\2e\x85R", "set[1, 2]"},
      {"c__builtin__\nset\n)R", "set[]"},
      {"c__builtin__\nset\n)\x81", "set[]"},
      {"c__builtin__\nset\nK\1\x85R", "builtins.set(1)"},
      {"c__builtin__\nfrozenset\n](K\1K\2e\x85R", "set[1, 2]"},
      {"c__builtin__\nlist\nK\1K\2\x86\x85R", "[1, 2]"},
      {"c__builtin__\ntuple\n](K\1K\2e\x85R", "(1, 2)"},
      {"c__builtin__\ntuple\n)R", "()"},
      {"c__builtin__\nbytes\n)R", "b"},
      {"c__builtin__\nbytearray\nC\2a\xff\x85R", "b61ff"},
      {"c__builtin__\nbytearray\nU\3a\xc3\xbfU\7latin-1\x86R", "b61ff"},
      {"c__builtin__\nbytearray\nK\5\x85R", "builtins.bytearray(5)"},
      {"c_codecs\nencode\nX\7\0\0\0a\xc2\x80\xc3\xbf\xc3\x80U\6latin1\x86R"s, "b6180ffc0"},
      {"c_codecs\nencode\nU\1aU\5utf-8\x86R", "_codecs.encode('a', 'utf-8')"},
      {"c__builtin__\ncomplex\nK\1K\2\x86R", "builtins.complex(1, 2)"},
      {"ccopy_reg\n_reconstructor\ncm\nC\nc__builtin__\nobject\nN\x87R}K\1K\2sb", "m.C()|{1: 2}"},
      {"ccopy_reg\n_reconstructor\ncm\nC\nc__builtin__\ndict\n}\x87R",
       "copyreg._reconstructor(m.C, builtins.dict, {})"},
  };
  for (const Case& one : cases) {
    CAPTURE(hex(one.operations));
    CHECK(made(one.operations) == one.expected);
  }
  CHECK(made("c__builtin__\ndict\n](K\1K\2\x86]K\3ae\x85R") == "malformed at 33");  // [(1, 2), [3]]
  // A copy is one: neither grows with the other.
  CHECK(made("(c__builtin__\nlist\n]q\0K\1a\x85RK\2ah\0K\3at"s) == "([1, 2], [1, 3])");
  CHECK(made("(}q\0K\1K\2sc__builtin__\ndict\nh\0\x85RK\3K\4sh\0K\5K\6st"s) ==
        "({1: 2, 5: 6}, {1: 2, 3: 4}, {1: 2, 5: 6})");
}

TEST_CASE("pickle: names of Python 2") {
  const auto name = [](const std::string& module, const std::string& name, char protocol = 2) {
    return made("c" + module + "\n" + name + "\n", protocol);
  };
  CHECK(name("__builtin__", "set") == "builtins.set");
  CHECK(name("__builtin__", "long") == "builtins.int");
  CHECK(name("__builtin__", "unicode") == "builtins.str");
  CHECK(name("__builtin__", "xrange") == "builtins.range");
  CHECK(name("copy_reg", "_reconstructor") == "copyreg._reconstructor");
  CHECK(name("exceptions", "KeyError") == "builtins.KeyError");
  CHECK(name("exceptions", "StandardError") == "builtins.Exception");
  CHECK(name("itertools", "izip") == "builtins.zip");
  CHECK(name("itertools", "count") == "itertools.count");
  CHECK(name("cPickle", "loads") == "pickle.loads");
  CHECK(name("torch", "FloatStorage") == "torch.FloatStorage");
  CHECK(name("", "") == ".");
  CHECK(name("__builtin__", "set", 3) == "__builtin__.set");  // of protocol 3 on, they are Python 3's
  CHECK(made("\x8c\x0b__builtin__\x8c\x04long\x93") == "builtins.int");
}

TEST_CASE("pickle: containers that grow in turn") {
  // Two lists, a dict and a list inside, a hundred batches each; then a batch that is the last of one of them.
  std::string bytes = "\x80\x02]q\0]q\1}q\2"s;
  std::string a, b, c;
  for (int i = 0; i < 100; ++i) {
    const std::string n = "K" + std::string(1, static_cast<char>(i));
    bytes += "h\0("s + n + n + "e0h\1"s + n + "a0h\2("s + n + n + "u0"s;
    const std::string s = std::to_string(i);
    a += (i == 0 ? "" : ", ") + s + ", " + s;
    b += (i == 0 ? "" : ", ") + s;
    c += (i == 0 ? "" : ", ") + s + ": " + s;
  }
  CHECK(show(bytes + "h\0h\1h\2\x87."s) == "([" + a + "], [" + b + "], {" + c + "})");
}

TEST_CASE("pickle: reads up to STOP, and no farther than a buffer") {
  const std::string first = "\x80\x02(C\x05" + "12345K\1t."s;
  const std::string text(200000, 'x');
  const std::string second = "\x80\x04X\x40\x0d\x03\0"s + text + ".";
  REQUIRE(text.size() == 0x30d40);
  const auto source = std::make_shared<Long>(first + second);
  detail::Cursor in(source);
  auto memory = budget(source->end + 400000);
  const auto a = pickle::read(in, memory);
  REQUIRE(a);
  CHECK(show(*a, a->root()) == "(b3132333435, 1)");
  CHECK(in.position() == first.size());
  CHECK(source->end <= first.size() + detail::Cursor::max_taken_bytes);
  const auto b = pickle::read(in, memory);
  REQUIRE(b);
  CHECK(b->text(b->root()) == text);
  CHECK(in.position() == first.size() + second.size());
  CHECK(source->end <= first.size() + second.size() + detail::Cursor::max_taken_bytes);
}

TEST_CASE("pickle: the writer's bytes") {
  const auto written = [](auto write) {
    std::string out;
    pickle::Writer writer(out);
    write(writer);
    writer.finish();
    REQUIRE(out.substr(0, 2) == "\x80\x02");
    REQUIRE(out.back() == '.');
    return out.substr(2, out.size() - 3);
  };
  const auto integer = [&](std::int64_t n) { return written([&](pickle::Writer& w) { w.integer(n); }); };
  const auto natural = [&](std::uint64_t n) { return written([&](pickle::Writer& w) { w.unsigned_integer(n); }); };
  CHECK(integer(0) == "K\0"s);
  CHECK(integer(255) == "K\xff");
  CHECK(integer(256) == "M\0\1"s);
  CHECK(integer(65535) == "M\xff\xff");
  CHECK(integer(65536) == "J\0\0\1\0"s);
  CHECK(integer(-1) == "J\xff\xff\xff\xff");
  CHECK(integer(INT32_MAX) == "J\xff\xff\xff\x7f");
  CHECK(integer(INT32_MIN) == "J\0\0\0\x80"s);
  CHECK(integer(std::int64_t{INT32_MAX} + 1) == "\x8a\x05\0\0\0\x80\0"s);
  CHECK(integer(std::int64_t{INT32_MIN} - 1) == "\x8a\x05\xff\xff\xff\x7f\xff");
  CHECK(integer(std::int64_t{1} << 40) == "\x8a\x06\0\0\0\0\0\1"s);
  CHECK(integer(-(std::int64_t{1} << 39)) == "\x8a\x05\0\0\0\0\x80"s);
  CHECK(integer(INT64_MAX) == "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f");
  CHECK(integer(INT64_MIN) == "\x8a\x08\0\0\0\0\0\0\0\x80"s);
  CHECK(natural(7) == "K\7");
  CHECK(natural(INT64_MAX) == integer(INT64_MAX));
  CHECK(natural(std::uint64_t{1} << 63) == "\x8a\x09\0\0\0\0\0\0\0\x80\0"s);
  CHECK(natural(UINT64_MAX) == "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0"s);
  CHECK(written([](pickle::Writer& w) { w.real(1.5); }) == "G\x3f\xf8\0\0\0\0\0\0"s);
  CHECK(written([](pickle::Writer& w) { w.string("ab"); }) == "X\2\0\0\0ab"s);
  CHECK(written([](pickle::Writer& w) { w.mark(), w.none(), w.boolean(true), w.boolean(false), w.tuple(); }) ==
        "(N\x88\x89t");
  CHECK(written([](pickle::Writer& w) { w.bytes("a\xff"), w.bytes(""), w.tuple(2); }) ==
        "c_codecs\nencode\nq\0X\3\0\0\0a\xc3\xbfX\6\0\0\0latin1\x86Rh\0X\0\0\0\0X\6\0\0\0latin1\x86R\x86"s);
  // The header's example, and a name that is used again.
  CHECK(written([](pickle::Writer& w) {
          for (int i = 0; i < 2; ++i) w.global("collections", "OrderedDict"), w.empty_tuple(), w.reduce();
          w.mark(), w.string("a"), w.integer(1), w.set_items();
        }) == "ccollections\nOrderedDict\nq\0)Rh\0)R(X\1\0\0\0aK\1u"s);
  CHECK(written([](pickle::Writer& w) {
          w.empty_list();
          for (int i = 0; i < 256; ++i) CHECK(w.put() == static_cast<std::uint32_t>(i));
          CHECK(w.put() == 256);
          w.get(255), w.get(256);
        }).ends_with("q\xffr\0\1\0\0h\xffj\0\1\0\0"s));
}

namespace {

/// Writes a random object; returns what reading it shows.
std::string write_random(pickle::Writer& w, std::mt19937& random, int depth) {
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  const auto bits = [&] { return (std::uint64_t{random()} << 32 | random()) >> below(64); };
  const auto several = [&](unsigned most) {
    std::string out;
    for (unsigned i = below(most + 1); i != 0; --i) {
      out += (out.empty() ? "" : ", ") + write_random(w, random, depth + 1);
    }
    return out;
  };
  const auto entries = [&] {
    std::string out;
    for (unsigned i = below(4); i != 0; --i) {
      const std::string key = "k" + std::to_string(below(9));
      w.string(key);
      out += (out.empty() ? "'" : ", '") + key + "': ";
      out += write_random(w, random, depth + 1);
    }
    return out;
  };
  switch (below(depth < 5 ? 13 : 7)) {
    case 0:
      return w.none(), "None";
    case 1:
      return w.boolean(true), w.boolean(false), w.tuple(2), "(True, False)";
    case 2: {
      const auto n = static_cast<std::int64_t>(below(2) == 0 ? bits() : ~bits());
      return w.integer(n), std::to_string(n);
    }
    case 3: {
      const std::uint64_t n = bits() >> 1;
      return w.unsigned_integer(n), std::to_string(n);
    }
    case 4: {
      const double n = below(1000);  // no digits after the point
      return w.real(n), "f" + std::to_string(static_cast<int>(n));
    }
    case 5: {
      const std::string text(below(70), 'x');
      return w.string(text), "'" + text + "'";
    }
    case 6: {
      std::string bytes;
      for (unsigned i = below(300); i != 0; --i) bytes.push_back(static_cast<char>(below(256)));
      return w.bytes(bytes), "b" + hex(bytes);
    }
    case 7: {
      w.empty_list(), w.mark();
      const std::string items = several(5);
      return w.appends(), "[" + items + "]";
    }
    case 8: {
      w.mark();
      const std::string items = several(5);
      return w.tuple(), "(" + items + ")";
    }
    case 9: {
      w.empty_dict(), w.mark();
      const std::string items = entries();
      return w.set_items(), "{" + items + "}";
    }
    case 10: {
      w.global("collections", "OrderedDict"), w.empty_tuple(), w.reduce(), w.mark();
      const std::string items = entries();
      w.set_items();
      const std::string state = write_random(w, random, depth + 1);
      return w.build(), "collections.OrderedDict{" + items + "}|" + state;
    }
    case 11: {
      const std::string name = "f" + std::to_string(below(300));
      w.global("m", name);
      const std::string item = write_random(w, random, depth + 1);
      return w.tuple(1), w.reduce(), "m." + name + "(" + item + ")";
    }
    default: {
      const std::string id = write_random(w, random, depth + 1);
      return w.persistent(), "@" + id;
    }
  }
}

}  // namespace

TEST_CASE("pickle: what the writer writes is read back") {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    std::string out;
    pickle::Writer writer(out);
    writer.empty_list();
    std::string expected = "[";
    for (int n = 0; n < 5; ++n) {
      writer.mark();
      expected += (n == 0 ? "" : ", ") + write_random(writer, random, 0);
      writer.appends();
    }
    writer.finish();
    CAPTURE(hex(out));
    CHECK(show(out) == expected + "]");
  }
}

}  // namespace pickle_test
