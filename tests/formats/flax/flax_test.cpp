// Flax's files: those of Flax itself, and damaged ones.
#include <doctest/doctest.h>

#include <stele/recorders/flax.hpp>
#include <stele/recover.hpp>

#include <map>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace flax_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

std::string golden(const std::string& name) { return read_text(test_data("flax") + "/" + name + ".msgpack"); }

struct Layer {
  Tensor<float> bias, kernel;
};
struct Net {
  Layer Conv_0, Dense_0, Dense_1;
};
struct Element {
  Tensor<std::int8_t> w;
};
struct Values {
  std::int64_t step = 0, negative = 0;
  std::uint64_t large = 0;
  std::string name;
  Value bytes, tuple;
  std::map<std::string, int> keys;
  std::vector<Element> list;
  STELE_MODULE(Values, step, negative, large, name, bytes, tuple, keys, list)
};
struct Large {
  Tensor<float, 2> w;
};

/// Returns a file of one entry.
std::string file_of(const std::string& entry) { return "\x81\xa1w" + entry; }
/// Returns an array's content: [[2], dtype, bytes].
std::string array(const std::string& dtype, const std::string& bytes, const std::string& shape = "\x91\x02") {
  return "\x93" + shape + static_cast<char>(0xa0 + dtype.size()) + dtype + "\xc4" + static_cast<char>(bytes.size()) +
         bytes;
}
std::string extension(char type, const std::string& content) {
  return "\xc7"s + static_cast<char>(content.size()) + type + content;
}

/// Admits what a class does not have.
const LoadOptions rest = [] {
  LoadOptions options;
  options.allow_unused = {"*"};
  return options;
}();

}  // namespace

TEST_CASE("flax: a model of Flax loads, and is saved byte by byte") {
  const std::string file = golden("net");
  const FlaxRecorder<> recorder;
  const Net net = good(recorder.load<Net>(bytes_of(file)));
  CHECK(net.Conv_0.kernel.shape() == Shape({3, 3, 1, 2}));
  CHECK(net.Dense_1.bias(2) == 0.25F);
  CHECK(text_of(good(saved(recorder, net)).span()) == file);
  for (const char* name : {"net", "state", "values", "arrays"}) {
    CAPTURE(name);
    const std::string bytes = golden(name);
    CHECK(text_of(good(saved(recorder, good(recorder.open(bytes_of(bytes))))).span()) == bytes);
  }
}

TEST_CASE("flax: values, lists and names that are numbers") {
  const std::string file = golden("values");
  const Snapshot opened = good(FlaxRecorder<>().open(bytes_of(file)));
  const Values values = good(load<Values>(opened, rest));
  CHECK(values.step == 7);
  CHECK(values.negative == -300);
  CHECK(values.large == std::uint64_t{1} << 63);
  CHECK(values.name == "é");
  CHECK(values.bytes == Value(Value::Bytes{std::byte{0}, std::byte{255}}));
  CHECK(values.tuple == Value(Value::List{Value(std::int64_t{1}), Value(std::int64_t{2})}));
  CHECK(values.keys == std::map<std::string, int>{{"10", 1}, {"2", 2}});
  CHECK(values.list.size() == 2);
  CHECK(opened.find("a\\.b.c/d"));
}

TEST_CASE("flax: every dtype, and scalars of NumPy") {
  const std::string file = golden("arrays");
  const Snapshot opened = good(FlaxRecorder<>().open(bytes_of(file)));
  CHECK(opened.leaf_count() == 23);
  CHECK(opened.find("float8_e8m0fnu")->dtype() == DType::f8_e8m0);
  CHECK(opened.find("complex128")->byte_size() == 48);
  CHECK(opened.find("rank0")->annotations() == nullptr);
  CHECK(opened.find("scalar")->annotations() != nullptr);
  CHECK(opened.find("none")->shape().size() == 2);
}

TEST_CASE("flax: arrays in parts") {
  const std::string file = golden("large");
  const FlaxRecorder<> recorder(FlaxFormat({.part_bytes = 64}));
  const Snapshot opened = good(recorder.open(bytes_of(file)));
  const Tensor<float, 2> w = good(load<Large>(opened, rest)).w;
  CHECK(w.shape() == Shape({5, 8}));
  CHECK(w(4, 7) == 39);
  CHECK(text_of(good(saved(recorder, opened)).span()) == file);
  const std::size_t second = file.find("\xa1"s + "1" + "\xc7");
  std::string damaged = file;
  damaged[second + 1] = '2';
  CHECK(code_of(recorder.open(bytes_of(damaged))) == Errc::malformed);

  std::string unknown = file;  // a part of another dtype is damage; a dtype that stele lacks is not
  for (std::size_t at = unknown.find("float32"), w = 0; w < 3; ++w, at = unknown.find("float32")) {
    unknown.replace(at, 7, "float33");
  }
  const Snapshot other = good(recorder.open(bytes_of(unknown)));
  CHECK(unreadable_reason(*other.find("w")) == "an array of dtype float33");
  CHECK(good(content(*other.find("w"))) == good(content(*opened.find("w"))));
  CHECK(other.find("b")->dtype() == DType::f32);
}

TEST_CASE("flax: what is no tensor stays an entry") {
  const std::string file = golden("unknown");
  const Snapshot opened = good(FlaxRecorder<>().open(bytes_of(file)));
  CHECK(opened.find("w")->size() == 2);
  CHECK(unreadable_reason(*opened.find("i4")) == "an array of dtype int4");
  CHECK(unreadable_reason(*opened.find("complex")) == "a complex number");
  CHECK(code_of(saved(FlaxRecorder<>(), opened)) == Errc::not_representable);
  const std::string other = file_of(extension(9, "abc"));
  CHECK(unreadable_reason(good(FlaxRecorder<>().open(bytes_of(other))).leaf(0)) == "an extension of type 9");
}

TEST_CASE("flax: damaged files") {
  const FlaxRecorder<> recorder;
  const std::string good_array = array("int8", "ab");
  CHECK(recorder.open(bytes_of(file_of(extension(1, good_array)))));
  const std::pair<const char*, std::string> files[] = {
      {"an array alone", extension(1, good_array)},
      {"a list alone", "\x91\x01"},
      {"a name twice", "\x82\xa1w\x01\xa1w\x01"},
      {"a number twice",
       "\x82\xa1"
       "0\x01\xa1"
       "0\x01"},
      {"too few bytes", file_of(extension(1, array("int8", "a")))},
      {"a negative extent", file_of(extension(1, array("int8", "a", "\x91\xff")))},
      {"an extent of 2^63", file_of(extension(1, array("int8", "a", "\x92\xcf\x40"s + std::string(7, '\0') + "\x02")))},
      {"an extension that is longer", file_of(extension(1, good_array + "x"))},
      {"an extension that is shorter", file_of("\xc7"s + static_cast<char>(good_array.size() - 1) + "\1" + good_array)},
      {"no shape", file_of(extension(1, "\x93\x01\xa4int8\xc4\x01z"))},
      {"bytes after the map", file_of("\x01") + "x"},
      {"parts without content", file_of("\x81\xb9__msgpack_chunked_array__\xc3")},
      {"parts twice", file_of("\x83\xb9__msgpack_chunked_array__\xc3\xa5shape\x81\xa1"
                              "0\x02\xa5shape\x81\xa1"
                              "0\x02")},
  };
  for (const auto& damaged : files) {
    CAPTURE(damaged.first);
    const auto opened = recorder.open(bytes_of(damaged.second));
    REQUIRE_FALSE(opened);
    CHECK((opened.error().code() == Errc::malformed || opened.error().code() == Errc::duplicate));
  }
  const std::string whole = golden("state");
  for (std::size_t n = 0; n < whole.size(); n += 7)
    CHECK_FALSE(recorder.open(bytes_of(std::string_view(whole).substr(0, n))));
}

TEST_CASE("flax: what the format cannot hold is refused") {
  const FlaxRecorder<> recorder;
  CHECK(code_of(saved(recorder, std::map<std::string, std::string>{{"a", std::string(70'000, 'x')}})) ==
        Errc::not_representable);
  Value deep;
  for (int i = 0; i < 70; ++i) deep = Value(Value::List{std::move(deep)});
  CHECK(code_of(saved(recorder, std::map<std::string, Value>{{"a", deep}})) == Errc::not_representable);
  SaveOptions options;
  options.metadata = {{"author", "us"}};
  CHECK(code_of(saved(recorder, std::map<std::string, int>{{"a", 1}}, options)) == Errc::not_representable);
}

TEST_CASE("flax: files are recognized by their content, whatever their first name is") {
  const TempDir dir;
  for (const std::string& name :
       {std::string("a"), std::string(300, 'n'), std::string(2000, 'n'), "\n"s, "metadata"s}) {
    CAPTURE(name.size());
    const std::map<std::string, int> model{{name, 1}, {name + "z", 2}};
    REQUIRE(stele::save(model, dir / "m.msgpack", quick()));
    const auto back = stele::load<std::map<std::string, int>>(dir / "m.msgpack");
    CHECK(good(back) == model);
  }
}

TEST_CASE("flax: an error names the entry, and what is expected and found") {
  const std::string file = "\x81\xa1m\x81\xa1w" + extension(1, array("int8", "a"));
  const Error error = bad(FlaxRecorder<>().open(bytes_of(file)));
  CHECK(error.path() == "m.w");
  CHECK(error.expected() == "2 bytes of the array");
  CHECK(error.found() == "1");
}

}  // namespace flax_test
