// NumPy's files that are damaged, that lie, or that hold what is no tensor.
#include <doctest/doctest.h>

#include <stele/recorders/any.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/recorders/numpy.hpp>

#include <optional>
#include <string>
#include <vector>

#include "support/archive.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/sanitizers.hpp"
#include "support/stele_file.hpp"
#include "support/temp_dir.hpp"

namespace numpy_hostile_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

const NpyRecorder<> npy;
const NpzRecorder<> npz;

std::string golden(const std::string& name) { return read_text(test_data("numpy") + "/" + name); }

/// A file of version 1.0 whose header is exactly `literal`.
std::string array_of(std::string_view literal, std::string_view data = {}) {
  std::string file = "\x93NUMPY\1\0"s;
  put(file, static_cast<std::uint16_t>(literal.size()));
  return file + std::string(literal) + std::string(data);
}
std::string array_of_type(const std::string& descr, std::string_view data = {}) {
  return array_of("{'descr': " + descr + ", 'fortran_order': False, 'shape': (1,), }", data);
}
const std::string good_array = array_of_type("'|u1'", "x");

/// The error of a header; a ^ in it marks the place that the error must name.
void check_refused(std::string literal, Errc code, std::string_view data = "x") {
  CAPTURE(literal);
  const std::size_t mark = literal.find('^');
  if (mark != literal.npos) literal.erase(mark, 1);
  const std::string file = array_of(literal, data);
  const auto opened = npy.open(bytes_of(file));
  REQUIRE(!opened);
  CHECK(name(opened.error().code()) == name(code));
  CHECK(opened.error().file() == "memory");
  if (mark != literal.npos) CHECK(opened.error().offset() == 10 + mark);
  // In a .npz file, the same error names the entry.
  for (const std::uint16_t method : {zip::stored, zip::deflated}) {
    const auto entry = npz.open(bytes_of(zipped({{"layer/w.npy", file}}, method)));
    REQUIRE(!entry);
    CHECK(name(entry.error().code()) == name(code));
    CHECK(entry.error().path() == "layer/w");
    CHECK(entry.error().file() == "memory: layer/w.npy");
    CHECK(entry.error().offset() == opened.error().offset());
  }
}

void check_accepted(const std::string& literal, std::string_view data = "x") {
  CAPTURE(literal);
  const auto opened = npy.open(bytes_of(array_of(literal, data)));
  CHECK_MESSAGE(opened, why(opened));
}

LeafView named(const Snapshot& snapshot, const std::string& name) {
  const auto leaf = snapshot.find(name);
  REQUIRE_MESSAGE(leaf, name);
  return *leaf;
}

/// The error of opening a .npz file with these entries, or of reading its arrays.
Error error_of(const std::string& file) {
  const auto opened = npz.open(bytes_of(file));
  if (!opened) return opened.error();
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    if (const auto all = content(opened->leaf(i)); !all) return all.error();
  }
  return Error(Errc::none, "");
}

std::string own(const std::string& text) {
  return array_of("{'descr': '|u1', 'fortran_order': False, 'shape': (" + std::to_string(text.size()) + ",), }", text);
}

}  // namespace

TEST_CASE("numpy: headers") {
  const std::string order = "'fortran_order': False", shape = "'shape': (1,)", u1 = "'descr': '|u1'";
  check_accepted("{" + u1 + "," + order + "," + shape + "}");
  check_accepted("{" + shape + ", " + order + ", " + u1 + ", }   \n");
  check_accepted(" {\n'descr'\t: \"|u1\", " + order + ", " + shape + ",} \r\n ");
  check_accepted("{'descr': '<u1', " + order + ", 'shape': (1L,), }");  // Python 2; cnpy
  check_accepted("{'descr': '>u1', " + order + ", 'shape': (1, 1), }");
  check_accepted("{'descr': '|u1', 'fortran_order': True, 'shape': (1, 1,), }");
  check_accepted("{" + u1 + ", " + order + ", 'shape': (), }");

  check_refused("^", Errc::malformed);
  check_refused("^[]", Errc::malformed);
  check_refused("{^", Errc::malformed);
  check_refused("{}^", Errc::malformed);
  check_refused("{" + u1 + "," + order + "}^", Errc::malformed);
  check_refused("{" + u1 + "," + shape + "}^", Errc::malformed);
  check_refused("{" + order + "," + shape + "}^", Errc::malformed);
  check_refused("{" + u1 + "," + order + "," + shape + "}^x", Errc::malformed);
  check_refused("{" + u1 + "," + order + "," + shape + "}\n^\0"s, Errc::malformed);
  check_refused("{" + u1 + "," + order + "," + shape + "}^{}", Errc::malformed);
  check_refused("{" + u1 + " ^" + order + "," + shape + "}", Errc::malformed);
  check_refused("{^," + u1 + "," + order + "," + shape + "}", Errc::malformed);
  check_refused("{" + u1 + ",^," + order + "," + shape + "}", Errc::malformed);
  check_refused("{" + u1 + "," + order + "," + shape + ",^,}", Errc::malformed);
  check_refused("{" + u1 + ",^'x': 1," + order + "," + shape + "}", Errc::malformed);
  check_refused("{" + u1 + ",^" + u1 + "," + order + "," + shape + "}", Errc::duplicate);
  check_refused("{" + u1 + "," + shape + "," + order + ",^" + shape + "}", Errc::duplicate);
  check_refused("{^descr: '|u1'," + order + "," + shape + "}", Errc::malformed);
  check_refused("{^'descr\": '|u1}", Errc::malformed);
  check_refused("{'descr'^; '|u1'," + order + "," + shape + "}", Errc::malformed);
  check_refused("{'descr': ^u1," + order + "," + shape + "}", Errc::malformed);
  check_refused("{'descr': ^'|u\\x31'," + order + "," + shape + "}", Errc::malformed);
  check_refused("{" + u1 + ",'fortran_order': ^0," + shape + "}", Errc::malformed);
  check_refused("{" + u1 + ",'fortran_order': ^None," + shape + "}", Errc::malformed);
  check_refused("{" + u1 + ",'fortran_order': True^ish," + shape + "}", Errc::malformed);
}

TEST_CASE("numpy: shapes") {
  const auto with = [](const std::string& shape) {
    return "{'descr': '|u1', 'fortran_order': False, 'shape': " + shape + "}";
  };
  check_refused(with("^1"), Errc::malformed);
  check_refused(with("^[1]"), Errc::malformed);
  check_refused(with("(1^)"), Errc::malformed);
  check_refused(with("(^,)"), Errc::malformed);
  check_refused(with("(1,^,1)"), Errc::malformed);
  check_refused(with("(1, 1,^,)"), Errc::malformed);
  check_refused(with("(1 ^1)"), Errc::malformed);
  check_refused(with("(^-1,)"), Errc::malformed);
  check_refused(with("(^+1,)"), Errc::malformed);
  check_refused(with("(^01,)"), Errc::malformed);
  check_refused(with("(0^x1,)"), Errc::malformed);
  check_refused(with("(1^.0,)"), Errc::malformed);
  check_refused(with("(1^e0,)"), Errc::malformed);
  check_refused(with("(1L^L,)"), Errc::malformed);
  check_refused(with("(^True,)"), Errc::malformed);
  check_refused(with("(^(1,),)"), Errc::malformed);
  check_refused(with("(^18446744073709551616,)"), Errc::malformed);
  check_refused(with("(1,"), Errc::malformed);
  check_refused(with("(1, 1"), Errc::malformed);
  // Sizes.
  check_refused(with("(2,)"), Errc::truncated);
  check_refused(with("(0,)"), Errc::malformed);
  check_refused(with("(18446744073709551615,)"), Errc::truncated);
  check_refused(with("(4294967296, 4294967296)"), Errc::malformed);
  check_refused(with("(4294967296, 4294967296, 0)"), Errc::malformed);
  check_refused("{'descr': '<c16', 'fortran_order': False, 'shape': (1152921504606846976,)}", Errc::malformed);
  check_refused("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", Errc::truncated, "1234567");
  check_refused("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", Errc::malformed, "123456789");
}

TEST_CASE("numpy: elements that are no numbers") {
  const auto refused = [](const std::string& descr, std::string_view text) {
    CAPTURE(descr);
    const auto opened = npy.open(bytes_of(array_of_type(descr, "12345678")));
    REQUIRE(!opened);
    CHECK(opened.error().code() == Errc::unsupported);
    CHECK(opened.error().to_string().find(text) != std::string::npos);
    CHECK(opened.error().to_string().size() < 400);
  };
  refused("'|O'", "the array contains pickled Python objects");
  refused("'|S5'", "the array contains strings");
  refused("'<U2'", "the array contains strings");
  refused("'|T16'", "the array contains strings");
  refused("'<M8[ns]'", "the array contains dates or durations");
  refused("'<m8'", "the array contains dates or durations");
  refused("[('a', '<f4'), ('b', '|O')]", "the array has a structured dtype");
  refused("[" + std::string(5000, '('), "the array has a structured dtype");
  for (const char* descr :
       {"''",    "'<'",   "'f4'",  "'=f4'", "'|f4'", "'|i2'", "'<f16'", "'<f3'",  "'<c32'",  "'<i16'",
        "'<b2'", "'|V3'", "'|V0'", "'|V'",  "'<x4'", "'<F4'", "'<f4 '", "'<f04'", "'<f4f4'", "'(2,)<f4'"}) {
    refused(descr, "stele has no such dtype");
  }
  for (const char* name : {"objects", "strings", "bytes", "dates", "structured", "structured_names"}) {
    CAPTURE(name);
    CHECK(code_of(npy.open(bytes_of(golden(name + ".npy"s)))) == Errc::unsupported);
  }
  const Error error = npy.open(bytes_of(array_of_type("[('a]', '<f4'), ('b', '|O')]      "))).error();
  CHECK(error.found() == "[('a]', '<f4'), ('b', '|O')]");
}

TEST_CASE("numpy: entries that are no tensors do not hide the others") {
  struct Net {
    Tensor<std::uint8_t> good;
  };
  struct Named {
    Tensor<std::uint8_t> good, strings;
  };
  const std::string strings = array_of_type("'<U2'", "12345678");
  for (const std::uint16_t method : {zip::stored, zip::deflated}) {
    const std::string file = zipped({{"strings.npy", strings},
                                     {"good.npy", good_array},
                                     {"objects.npy", array_of_type("'|O'", "12345678")},
                                     {"dates.npy", array_of_type("'<M8[ns]'", "12345678")},
                                     {"fields.npy", array_of_type("[('a', '<f4')]", "1234")},
                                     {"void.npy", array_of_type("'|V2'", "12")},
                                     {"large.npy", "\x93NUMPY\2\0\xff\xff\0\0{}"s},
                                     {"later.npy", "\x93NUMPY\4\0\0\0"s},
                                     {"text.npy", "x"},
                                     {"upper.NPY", good_array},
                                     {"README.md", "how to use it"},
                                     {"empty", ""}},
                                    method);
    const Snapshot opened = good(npz.open(bytes_of(file)));
    REQUIRE(opened.leaf_count() == 12);
    CHECK(good(content(named(opened, "good"))) == "x");
    const auto reason = [&](const char* name) {
      const LeafView leaf = named(opened, name);
      CHECK(leaf.dtype() == DType::opaque);
      CHECK(leaf.shape().size() == 1);
      CHECK(leaf.shape()[0] == leaf.byte_size());
      REQUIRE(leaf.annotations() != nullptr);
      return *leaf.annotations()->at("unreadable").as_string();
    };
    CHECK(reason("strings") == "the array contains strings: <U2");
    CHECK(reason("objects") == "the array contains pickled Python objects: |O");
    CHECK(reason("dates") == "the array contains dates or durations: <M8[ns]");
    CHECK(reason("fields") == "the array has a structured dtype: [('a', '<f4')]; save each field as a separate array");
    CHECK(reason("void").find("set NpyOptions::void2") != std::string::npos);
    CHECK(reason("large") == "the header of the array is too large: 65535");
    CHECK(reason("later") == "the version of the array's format is unknown: 4.0");
    CHECK(reason("text") == "the data is not a NumPy array");
    CHECK(reason("upper.NPY") == "the entry is not an array");
    CHECK(reason("empty") == "the entry is not an array");
    CHECK(reason("README.md") == "the entry is not an array");
    CHECK(good(content(named(opened, "README.md"))) == "how to use it");
    CHECK(good(content(named(opened, "strings"))) == strings);

    const Report verified = good(npz.verify(bytes_of(file)));
    CHECK(verified.count(Report::What::unchecked) == 12);  // 11 entries, and the records of zip

    const auto unused = npz.load<Net>(bytes_of(file));
    REQUIRE(!unused);
    CHECK(unused.error().code() == Errc::unused);
    CHECK(unused.error().path() == "strings");
    CHECK(unused.error().found() == "an unreadable entry: the array contains strings: <U2");
    LoadOptions options;
    options.allow_unused = {"*"};
    CHECK(npz.load<Net>(bytes_of(file), options));
    const auto needed = npz.load<Named>(bytes_of(file), options);
    REQUIRE(!needed);
    CHECK(needed.error().code() == Errc::unsupported);
    CHECK(needed.error().path() == "strings");
    CHECK(needed.error().found() == "an unreadable entry: the array contains strings: <U2");

    // A save keeps the entries where a format has annotations, and refuses or lists them elsewhere.
    const BinaryRecorder<> binary;
    const Bytes kept = good(saved(binary, opened));
    const Snapshot again = good(binary.open(kept.span()));
    CHECK(again.leaf_count() == 12);
    CHECK(*named(again, "text").annotations()->at("unreadable").as_string() == "the data is not a NumPy array");
    const auto refused = saved(npz, opened);
    REQUIRE(!refused);
    CHECK(refused.error().code() == Errc::not_representable);
    CHECK(refused.error().found() == "an unreadable entry: the array contains strings: <U2");
  }
  const Snapshot objects = good(npz.open(bytes_of(golden("objects.npz"))));
  CHECK(named(objects, "objects").dtype() == DType::opaque);
  // An entry that is neither stored nor deflated.
  std::string file = zipped({{"good.npy", good_array}, {"other.npy", good_array}});
  const std::size_t local = file.rfind("PK\3\4"), central = file.rfind("PK\1\2");
  file[local + 8] = file[central + 10] = '\x5d';
  const Snapshot opened = good(npz.open(bytes_of(file)));
  CHECK(named(opened, "good").dtype() == DType::u8);
  CHECK(named(opened, "other").byte_size() == 0);
  CHECK(good(npz.verify(bytes_of(file))).count(Report::What::unchecked) == 2);
}

TEST_CASE("numpy: an encrypted entry is unreadable, and the others are read") {
  std::string file = zipped({{"good.npy", good_array}, {"other.npy", good_array}});
  const std::size_t local = file.rfind("PK\3\4"), central = file.rfind("PK\1\2");
  file[local + 6] = file[central + 8] = '\1';
  const Snapshot opened = good(npz.open(bytes_of(file)));
  CHECK(good(content(named(opened, "good"))) == "x");
  const LeafView other = named(opened, "other");
  CHECK(*other.annotations()->at("unreadable").as_string() == "the entry is encrypted");
  CHECK(other.byte_size() == 0);
  CHECK(good(npz.verify(bytes_of(file))).count(Report::What::unchecked) == 2);
}

TEST_CASE("numpy: an entry with the name of an array gets another name") {
  const std::string file =
      zipped({{"a.npy", good_array}, {"a", "text"}, {"a (2).npy", good_array}, {"b", "x"}, {"b.NPY", "x"}});
  const Snapshot opened = good(npz.open(bytes_of(file)));
  CHECK(opened.leaf_count() == 5);
  CHECK(good(content(named(opened, "a"))) == "x");
  CHECK(named(opened, "a (2)").dtype() == DType::u8);
  CHECK(good(content(named(opened, "a (3)"))) == "text");
  CHECK(*named(opened, "a (3)").annotations()->at("unreadable").as_string() == "the entry is not an array");
}

TEST_CASE("numpy: open() finds a file whose first entry is no array") {
  const auto leaves = [](const std::vector<std::pair<std::string, std::string>>& entries) {
    const std::string file = zipped(entries);
    const auto opened = stele::open(bytes_of(file));
    return opened ? opened->leaf_count() : 0;
  };
  CHECK(leaves({{"README", "x"}, {"a.npy", good_array}}) == 2);
  CHECK(leaves({{"docs/README", "x"}, {"a.npy", good_array}}) == 2);
  CHECK(leaves({{"docs/", ""}, {"docs/README", "x"}, {"a.npy", good_array}}) == 2);
  CHECK(leaves({{"text.npy", array_of_type("'<U1'", "1234")}, {"a.npy", good_array}}) == 2);
  CHECK(leaves({{"model.sdnb", "x"}}) == 0);
  CHECK(leaves({{"README", "x"}, {"b", "x"}}) == 0);
}

TEST_CASE("numpy: the beginning of an array") {
  const auto error = [](const std::string& file) { return npy.open(bytes_of(file)).error(); };
  CHECK(error("").code() == Errc::truncated);
  CHECK(error("\x93NUM").code() == Errc::truncated);
  CHECK(error("\x93NUMPY\1\0v"s).code() == Errc::truncated);
  CHECK(error("\x93NUMPY\2\0\1\0\0"s).code() == Errc::truncated);
  CHECK(error("\x93NUMPX\1\0\0\0"s).code() == Errc::bad_magic);
  CHECK(error("PK").code() == Errc::bad_magic);
  for (const std::string& version : {"\0\0"s, "\1\1"s, "\4\0"s, "\xff\0"s}) {
    CHECK(error("\x93NUMPY" + version + std::string(100, ' ')).code() == Errc::unsupported);
  }
  CHECK(error("\x93NUMPY\4\2\0\0"s).found() == "4.2");
  // The length of the header.
  CHECK(error("\x93NUMPY\1\0\5\0{}"s).code() == Errc::truncated);
  const std::string rest = good_array.substr(10);
  const std::size_t data = good_array.size() - 1;
  const auto padded = [&](std::size_t length, bool wide) {
    std::string file = wide ? "\x93NUMPY\2\0"s : "\x93NUMPY\1\0"s;
    wide ? put(file, static_cast<std::uint32_t>(length)) : put(file, static_cast<std::uint16_t>(length));
    return file + good_array.substr(10, data - 10) + std::string(length - (data - 10), ' ') + "x";
  };
  for (const bool wide : {false, true}) {
    CHECK(npy.open(bytes_of(padded(10'000, wide))));
    const Error large = error(padded(10'001, wide));
    CHECK(large.code() == Errc::limit);
    CHECK(large.expected() == "at most 10000 bytes, as numpy.load");
    CHECK(large.found() == "10001");
    CHECK(large.offset() == 8U);
  }
  CHECK(error("\x93NUMPY\2\0\xff\xff\xff\xff{}"s).code() == Errc::limit);
  // An extent for every two characters.
  std::string many = "{'descr': '|u1', 'fortran_order': True, 'shape': (";
  while (many.size() < 9'990) many += "1,";
  check_accepted(many + ")}");
}

TEST_CASE("numpy: each truncation and each flipped byte") {
  for (const char* name : {"f4.npy", "version2.npy", "big_endian_fortran.npy"}) {
    const std::string whole = golden(name);
    for (std::size_t size = 0; size < whole.size(); ++size) CHECK(!npy.open(bytes_of(whole.substr(0, size))));
    CHECK(!npy.open(bytes_of(whole + "x")));
  }
  constexpr std::size_t step = sanitizers ? 7 : 1;
  for (const char* name : {"names.npz", "compressed.npz"}) {
    CAPTURE(name);
    const std::string whole = golden(name);
    const Arrays before = arrays_of(good(npz.open(bytes_of(whole))));
    for (std::size_t size = 0; size < whole.size(); size += step) CHECK(!npz.open(bytes_of(whole.substr(0, size))));
    for (std::size_t at = 0; at < whole.size(); at += step) {
      CAPTURE(at);
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
      const auto opened = npz.open(bytes_of(damaged));
      if (!opened) continue;
      for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
        const LeafView leaf = opened->leaf(i);
        const auto all = content(leaf);
        if (!all) continue;
        const Array now{leaf.dtype(), {leaf.shape().begin(), leaf.shape().end()}, *all};
        const auto same =
            std::find_if(before.begin(), before.end(), [&](const auto& pair) { return pair.second == now; });
        CHECK(same != before.end());
      }
    }
  }
}

TEST_CASE("numpy: entries of a .npz file") {
  CHECK(error_of(zipped({{"a.npy", good_array}, {"b.npy", good_array}})).code() == Errc::none);
  CHECK(error_of(zipped({{"folder/", ""}, {"folder/a.npy", good_array}})).code() == Errc::none);
  CHECK(error_of(zipped({{"a.npy", good_array}, {"a.npy", good_array}})).code() == Errc::duplicate);
  CHECK(error_of(zipped({{"a.npy", ""}})).code() == Errc::truncated);
  const auto named = [&](const std::string& name) {
    std::string file = zipped({{std::string(name.size(), 'n'), good_array}});
    for (std::size_t at = file.find("nn"); at != file.npos; at = file.find("nn")) file.replace(at, name.size(), name);
    return file;
  };
  CHECK(error_of(named("a\xff.npy")).code() == Errc::malformed);
  // Names as numpy.load gives them.
  for (const std::string& name : {"../a"s, "/a"s, "a//b"s, "a\\b"s, "C:/a"s, "./a"s, "a/."s, "a/../b"s, "//"s}) {
    CAPTURE(name);
    const std::string file = named(name + ".npy");
    const Snapshot s = good(NpzRecorder<>().open(bytes_of(file)));
    REQUIRE(s.leaf_count() == 1);
    const Node& node = s.nodes()[s.leaf(0).node()];
    CHECK(std::string_view(node.name, node.name_size) == name);
    CHECK(good(stele::open(bytes_of(file))).leaf_count() == 1);
  }
  // A CRC-32 covers the header too.
  std::string damaged = zipped({{"a.npy", array_of("{'descr': '|u1', 'fortran_order': False, 'shape': (0,), }")}});
  const std::size_t at = damaged.find("False");
  damaged.replace(at, 5, "True ");
  CHECK(error_of(damaged).code() == Errc::checksum);
}

TEST_CASE("numpy: the entry of stele") {
  const std::string v2 = array_of_type("'<V2'", "xy");
  const auto error = [&](const std::string& text) {
    CAPTURE(text);
    return error_of(
        zipped({{"a.npy", good_array}, {"v.npy", v2}, {"__stele__/0.npy", good_array}, {"__stele__.npy", own(text)}}));
  };
  const std::string rest = R"("dtypes":{"v":"bf16"}})";
  CHECK(error(R"({"version":1,)" + rest).code() == Errc::none);
  CHECK(error(R"({"version":1,"names":{"__stele__/0":"../x"},)" + rest).code() == Errc::none);
  CHECK(error("").code() == Errc::truncated);
  CHECK(error("[]").code() == Errc::malformed);
  CHECK(error("{}").code() == Errc::malformed);
  CHECK(error("{" + rest).code() == Errc::malformed);
  CHECK(error(R"({"version":2,)" + rest).code() == Errc::unsupported);
  CHECK(error(R"({"version":1,"other":{},)" + rest).code() == Errc::unsupported);
  CHECK(error(R"({"version":1,"dtypes":{},)" + rest).code() == Errc::duplicate);
  CHECK(error(R"({"version":1,"dtypes":{"v":"bf16","v":"bf16"}})").code() == Errc::duplicate);
  CHECK(error(R"({"version":1,"dtypes":{"v":"f32"}})").code() == Errc::unsupported);
  CHECK(error(R"({"version":1,"dtypes":{"v":1}})").code() == Errc::malformed);
  CHECK(error(R"({"version":1,"dtypes":{"v":"f8_e5m2"}})").code() == Errc::malformed);  // of one byte
  CHECK(error(R"({"version":1,"dtypes":{"v":"bf16","a":"f8_e5m2"}})").code() == Errc::malformed);
  CHECK(error(R"({"version":1,"dtypes":{"v":"bf16","w":"bf16"}})").code() == Errc::malformed);
  CHECK(error(R"({"version":1,"names":{"w":"x"},)" + rest).code() == Errc::malformed);
  CHECK(error(R"({"version":1,"names":{"__stele__/0":"a"},)" + rest).code() == Errc::duplicate);
  CHECK(error(R"({"version":1,"metadata":{"stele":"{\"version\":1.0}"},)" + rest).code() == Errc::malformed);
  CHECK(error(R"({"version":1,"metadata":{"stele":"{\"version\":1,\"values\":{\"a\":1}}"},)" + rest).code() ==
        Errc::duplicate);
  CHECK(error(R"({"version":1,)" + rest + "x").code() == Errc::malformed);
  CHECK(error(R"({"version":1})").code() == Errc::none);  // v is unreadable then
  CHECK(error(std::string(100'000, '[')).code() == Errc::malformed);
  CHECK(error_of(zipped({{"__stele__.npy", array_of_type("'<f4'", "1234")}})).code() == Errc::malformed);
  CHECK(error_of(zipped({{"__stele__.npy", "x"}})).code() == Errc::bad_magic);
}

TEST_CASE("numpy: deflated arrays do not take more memory than the file's size allows") {
  // 64 MiB of zeros in 64 KiB: opening inflates the header only.
  constexpr std::size_t size = std::size_t{64} << 20;
  const std::string bomb = array_of(
      "{'descr': '|u1', 'fortran_order': False, 'shape': (" + std::to_string(size) + ",), }", std::string(size, '\0'));
  const std::string file = zipped({{"a.npy", bomb}}, zip::deflated);
  CHECK(file.size() < 100'000);
  const Snapshot opened = good(npz.open(bytes_of(file)));
  CHECK(opened.byte_size() == size);
  LoadOptions options;
  options.limits.total_bytes = 1 << 20;
  struct Model {
    Tensor<std::uint8_t> a;
  };
  CHECK(code_of(npz.load<Model>(bytes_of(file), options)) == Errc::limit);
  // Text that becomes values.
  options = {};
  options.limits.index_bytes = 1 << 20;
  std::string values = R"({"version":1,"metadata":{"stele":"{\"version\":1,\"values\":{\"x\":[0)";
  for (int i = 0; i < 200'000; ++i) values += ",0";
  const std::string text = zipped({{"__stele__.npy", own(values + "]}}\"}}")}}, zip::deflated);
  CHECK(code_of(npz.open(bytes_of(text), options)) == Errc::limit);
  CHECK(npz.open(bytes_of(text)));
}

}  // namespace numpy_hostile_test
