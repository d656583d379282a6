// Pickles of Paddle and NumPy, and damaged ones.
#include <doctest/doctest.h>

#include <stele/recorders/any.hpp>
#include <stele/recorders/read_only.hpp>
#include <stele/recover.hpp>

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"
#include "support/test_data.hpp"

namespace numpy_pickle_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

std::string golden(const std::string& name) { return read_text(test_data("pickle") + "/" + name); }
Snapshot open_golden(const std::string& name) {
  return good(PickleRecorder<>().open(Input(test_data("pickle") + "/" + name)));
}

template <class T>
std::vector<T> numbers_of(const Snapshot& snapshot, const std::string& name) {
  const LeafView leaf = snapshot.find(name).value();
  const std::string bytes = good(content(leaf));
  std::vector<T> all(bytes.size() / sizeof(T));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}
std::string paddle_name(const Snapshot& snapshot, const std::string& name) {
  const LeafView leaf = snapshot.find(name).value();
  return leaf.annotations() != nullptr ? *leaf.annotations()->at("paddle.name").as_string() : "";
}
Value value_of(const Snapshot& snapshot, std::string_view name) {
  for (std::uint32_t i = 0; i < snapshot.nodes().size(); ++i) {
    const Node& node = snapshot.nodes()[i];
    if (node.kind == NodeKind::value && std::string_view(node.name, node.name_size) == name) {
      return snapshot.value(node);
    }
  }
  FAIL("no value");
  return {};
}

/// Returns a pickle of a dict with one entry, w.
std::string dict_of(const std::string& value) { return "\x80\x04}\x8c\x01w" + value + "s."; }
std::string array(const std::string& shape, const std::string& type, const std::string& data,
                  const std::string& order = "<") {
  return "\x8c\x16numpy._core.multiarray\x8c\x0c_reconstruct\x93\x8c\x05numpy\x8c\x07ndarray\x93K\x00\x85"
         "C\x01"
         "b\x87R(K\x01"s +
         shape + "\x8c\x05numpy\x8c\x05" + "dtype\x93\x8c" + static_cast<char>(type.size()) + type +
         "\x89\x88\x87R(K\x03\x8c\x01" + order + "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"s + data + "tb";
}
std::string bytes(const std::string& data) { return "C"s + static_cast<char>(data.size()) + data; }
const std::string two = "K\x02\x85";

const LoadOptions rest = [] {
  LoadOptions options;
  options.allow_unused = {"*"};
  return options;
}();

}  // namespace

TEST_CASE("numpy pickle: a state_dict of Paddle") {
  const Snapshot opened = open_golden("net.pdparams");
  CHECK(opened.leaf_count() == 8);
  CHECK(opened.flat());
  CHECK(opened.find("2.weight")->shape()[0] == 4);
  CHECK(numbers_of<float>(opened, "2.weight")[5] == 6.625F);
  CHECK(paddle_name(opened, "2.weight") == "linear_0.w_0");
  CHECK(paddle_name(opened, "0.bias") == "conv2d_0.b_0");
  const auto loaded = good(load<std::map<std::string, std::map<std::string, Tensor<float>>>>(opened, rest));
  CHECK(loaded.at("2").at("bias")(1) == 7.125F);
}

TEST_CASE("numpy pickle: the state of an optimizer of Paddle") {
  const Snapshot opened = open_golden("net.pdopt");
  CHECK(numbers_of<float>(opened, "linear_0.b_0_moment1_0").size() == 3);
  CHECK(value_of(opened, "LR_Scheduler.last_epoch") == Value(std::int64_t{1}));
  CHECK(value_of(opened, "LR_Scheduler.last_lr") == Value(0.125));
}

TEST_CASE("numpy pickle: Paddle stores bfloat16 as uint16") {
  const Snapshot opened = open_golden("bf16.pdparams");
  CHECK(opened.find("2.bias")->dtype() == DType::bf16);
  CHECK(numbers_of<std::uint16_t>(opened, "2.bias") == std::vector<std::uint16_t>{0x40e0, 0x40e4, 0x40e8});
}

TEST_CASE("numpy pickle: tensors of Paddle with their names") {
  for (const char* name : {"tensors2.pdparams", "tensors4.pdparams"}) {
    CAPTURE(name);
    const Snapshot opened = open_golden(name);
    CHECK(opened.find("bf")->dtype() == DType::bf16);
    CHECK(opened.find("numpy")->dtype() == DType::u16);  // not a tensor of Paddle
    CHECK(opened.find("complex")->dtype() == DType::c64);
    CHECK(opened.find("scalar")->shape().empty());
    CHECK(numbers_of<std::int64_t>(opened, "nested.a") == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
    CHECK(numbers_of<float>(opened, "list.0") == std::vector<float>{1, 1});
    CHECK(value_of(opened, "list.1") == Value(std::int64_t{3}));
    CHECK(value_of(opened, "name") == Value("é"));
    CHECK_FALSE(paddle_name(opened, "bf").empty());
  }
  CHECK(numbers_of<float>(open_golden("one.pdtensor"), "one") == std::vector<float>(4, 1));
  CHECK(numbers_of<float>(open_golden("dense.pdparams"), "w") == std::vector<float>{1, 2});
}

TEST_CASE("numpy pickle: slices of Paddle become one tensor") {
  const Snapshot whole = open_golden("net.pdparams");
  for (const char* name : {"sliced2.pdparams", "sliced3.pdparams"}) {
    CAPTURE(name);
    const Snapshot opened = open_golden(name);
    CHECK(opened.leaf_count() == whole.leaf_count());
    for (std::size_t i = 0; i < whole.leaf_count(); ++i) {
      const LeafView leaf = whole.leaf(i);
      const LeafView joined = opened.find(whole.path(leaf.node())).value();
      CHECK(good(content(joined)) == good(content(leaf)));
      CHECK(std::equal(leaf.shape().begin(), leaf.shape().end(), joined.shape().begin(), joined.shape().end()));
    }
    CHECK(paddle_name(opened, "0.weight") == "conv2d_0.w_0");
  }
  std::string damaged = golden("sliced3.pdparams");
  damaged.replace(damaged.find("slices"), 6, "slicer");
  CHECK(code_of(PickleRecorder<>().open(bytes_of(damaged))) == Errc::malformed);
}

TEST_CASE("numpy pickle: every dtype, byte order and axis order, in each protocol") {
  for (const char* name : {"arrays2.pkl", "arrays3.pkl", "arrays4.pkl", "arrays5.pkl"}) {
    CAPTURE(name);
    const Snapshot opened = open_golden(name);
    CHECK(opened.leaf_count() == 25);
    CHECK(numbers_of<float>(opened, "big") == std::vector<float>{0, 1, 2, 3, 4, 5});
    CHECK(numbers_of<double>(opened, "fortran") == std::vector<double>{0, 1, 2, 3, 4, 5});
    CHECK(numbers_of<std::int16_t>(opened, "both") == std::vector<std::int16_t>{0, 1, 2, 3, 4, 5});
    CHECK(opened.find("uint16")->dtype() == DType::u16);
    CHECK(opened.find("bfloat16")->dtype() == DType::bf16);
    CHECK(opened.find("float8_e8m0fnu")->dtype() == DType::f8_e8m0);
    CHECK(opened.find("scalar")->shape().empty());
    CHECK(opened.find("none")->shape().size() == 2);
    const auto tied = numbers_of<std::uint8_t>(opened, "tied");
    CHECK(tied[199] == 199);
    CHECK(opened.find("again")->node() == opened.find("tied")->node());
    std::array<std::byte, 3> part{};
    good(opened.find("tied")->read(129, part));
    CHECK(part[2] == std::byte{131});
  }
  const Snapshot alone = open_golden("array.pkl");
  CHECK(numbers_of<float>(alone, "array").size() == 6);
}

TEST_CASE("numpy pickle: values of Python") {
  const Snapshot opened = open_golden("values.pkl");
  CHECK(value_of(opened, "step") == Value(std::int64_t{7}));
  CHECK(value_of(opened, "none").is_null());
  CHECK(value_of(opened, "bytes") == Value(Value::Bytes{std::byte{0}, std::byte{255}}));
  CHECK(value_of(opened, "tuple") == Value(Value::List{Value(std::int64_t{1}), Value(std::int64_t{2})}));
  CHECK(value_of(opened, "large") == Value(std::uint64_t{1} << 63));
  CHECK(value_of(opened, "long") == Value(std::string(5000, 'x')));
  CHECK(value_of(opened, "empty") == Value(Value::Map{}));
  CHECK(value_of(opened, "layers.1") == Value(Value::Map{}));
  CHECK(value_of(opened, "a.b.10") == Value(std::int64_t{1}));
  CHECK(opened.find("layers.0.w"));
}

TEST_CASE("numpy pickle: bytes that protocol 2 stores as a string are bytes") {
  const std::string file = dict_of("c_codecs\nencode\nX\3\0\0\0a\xc3\xbfX\6\0\0\0latin1\x86R"s);
  const Snapshot opened = good(PickleRecorder<>().open(bytes_of(file)));
  CHECK(value_of(opened, "w") == Value(Value::Bytes{std::byte{'a'}, std::byte{255}}));
}

TEST_CASE("numpy pickle: arrays that are no tensors stay entries") {
  const Snapshot opened = open_golden("others.pkl");
  CHECK(opened.leaf_count() == 6);
  CHECK(opened.find("w")->size() == 2);
  CHECK(unreadable_reason(*opened.find("objects")) ==
        "an array of dtype O8: the array contains pickled Python objects");
  CHECK(unreadable_reason(*opened.find("strings")) == "an array of dtype U2: the array contains strings");
  CHECK(unreadable_reason(*opened.find("dates")) == "an array of dtype M8: the array contains dates or durations");
  CHECK(unreadable_reason(*opened.find("fields")) == "an array with a structured dtype");
  CHECK(unreadable_reason(*opened.find("int4")) == "an array of dtype ml_dtypes.int4");
}

TEST_CASE("numpy pickle: an object of any other class is named") {
  const Error error = bad(PickleRecorder<>().open(Input(test_data("pickle") + "/foreign.pkl")));
  CHECK(error.code() == Errc::unsupported);
  CHECK(error.path() == "price");
  CHECK(error.found() == "decimal.Decimal");
  const std::string system = dict_of("\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R");
  CHECK(bad(PickleRecorder<>().open(bytes_of(system))).found() == "posix.system");
  CHECK(bad(PickleRecorder<>().open(bytes_of(dict_of("\x8c\x02os\x8c\x06system\x93")))).found() == "os.system");
  const std::string eval = dict_of(
      "\x8c\x08"
      "builtins\x8c\x04"
      "eval\x93\x8c\x04"
      "data}\x86R");
  CHECK(bad(PickleRecorder<>().open(bytes_of(eval))).found() == "builtins.eval");
}

TEST_CASE("numpy pickle: strings of Python 2") {
  const std::string state = "(K\x01" + two +
                            "cnumpy\ndtype\nU\x02i1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK"
                            "\x00tb\x89"s;
  const std::string head =
      "\x80\x02}U\x01wcnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01"
      "b\x87R"s;
  for (const std::string& data : {"ab"s, "\xff\x01"s}) {
    const std::string file = head + state + "U\x02" + data + "tbs.";
    CHECK(good(content(good(PickleRecorder<>().open(bytes_of(file))).leaf(0))) == data);
  }
}

TEST_CASE("numpy pickle: a pair in a pickle of another program is no tensor of Paddle") {
  const std::string file = dict_of("\x8c\1n" + array(two, "u2", bytes("abcd")) + "\x86");
  const Snapshot opened = good(PickleRecorder<>().open(bytes_of(file)));
  CHECK(opened.find("w.1")->dtype() == DType::u16);
  CHECK(value_of(opened, "w.0") == Value("n"));
}

TEST_CASE("numpy pickle: damaged arrays") {
  const PickleRecorder<> recorder;
  CHECK(recorder.open(bytes_of(dict_of(array(two, "i1", bytes("ab"))))));
  const Error error = bad(recorder.open(bytes_of(dict_of(array(two, "i1", bytes("abc"))))));
  CHECK(error.path() == "w");
  CHECK(error.expected() == "2 bytes");
  CHECK(error.found() == "3");
  const std::string big = "\x8a\x08\0\0\0\0\0\0\0\x40"s;
  const std::string files[] = {
      array("K\x02", "i1", bytes("ab")),
      array("J\xff\xff\xff\xff\x85", "i1", bytes("ab")),
      array(big + big + "\x86", "f8", bytes("")),
      array(two, "i1", "K\x01"),
      array(two, "i2", bytes("ab")),
      array(two, "i1", "N"),
  };
  for (const std::string& file : files) CHECK(code_of(recorder.open(bytes_of(dict_of(file)))) == Errc::malformed);
  // Arrays that share their bytes have more elements than the file.
  std::string shared = "\x80\x04](" + bytes(std::string(200, 'x')) + "\x94\x30";
  for (int i = 0; i < 40; ++i) shared += array("K\xc8\x85", "i1", "h\x00"s);
  CHECK(code_of(recorder.open(bytes_of(shared + "e."))) == Errc::malformed);
  // Containers that contain themselves, and shared containers that double at each level.
  CHECK(code_of(recorder.open(bytes_of("\x80\x04]\x94h\x00"s + "a."))) == Errc::limit);
  std::string doubled = "\x80\x04" + array(two, "i1", bytes("ab"));
  for (int i = 0; i < 60; ++i) doubled += "2\x86";
  CHECK(code_of(recorder.open(bytes_of(doubled + "\x85."))) == Errc::limit);
  CHECK(code_of(recorder.open(bytes_of("\x80\x04K\x01."))) == Errc::unsupported);
  CHECK(code_of(recorder.open(bytes_of("\x80\x04}.."))) == Errc::malformed);
}

TEST_CASE("numpy pickle: no success without the pickle's content") {
  const PickleRecorder<> recorder;
  const auto value = [&](const std::string& pickle, std::string_view name) {
    return value_of(good(recorder.open(bytes_of(pickle))), name);
  };
  CHECK(value("\x80\x04]\x94(K\x07\x8c\x01xe."s, "0") == Value(std::int64_t{7}));
  CHECK(value("\x80\x04]\x94(K\x07\x8c\x01xe."s, "1") == Value("x"));
  CHECK(value("\x80\x04K\x07\x8c\x01x\x86."s, "1") == Value("x"));      // a tuple
  CHECK(value("\x80\x04\x8f\x94(\x8c\x01x\x90."s, "0") == Value("x"));  // a set
  const Snapshot empty = good(recorder.open(bytes_of("\x80\x04]."s)));
  CHECK(empty.nodes().size() == 1);
  // An object of another program, alone and in a list.
  for (const std::string& around : {"."s, "\x85."s}) {
    const Error e = bad(recorder.open(bytes_of("\x80\x04\x8c\x03gen\x8c\x03Net\x93)\x81" + around)));
    CHECK(e.code() == Errc::unsupported);
    CHECK(e.found() == "gen.Net");
  }
  const std::string foreign = test_data() + "/core/data/foreign/";
  for (const auto& row : {std::pair("sk.pkl", "sklearn."), {"lgb.pkl", "lightgbm."}, {"xgb.pkl", "xgboost."}}) {
    CAPTURE(row.first);
    const Error e = bad(recorder.open(Input(foreign + row.first)));
    CHECK(e.code() == Errc::unsupported);
    CHECK(e.found().starts_with(row.second));
  }
  // joblib's arrays are between the operations; before 0.10, they are in files beside the pickle.
  const Error e = bad(recorder.open(Input(foreign + "arr.joblib")));
  CHECK(e.code() == Errc::unsupported);
  CHECK(e.message().find("joblib") != std::string_view::npos);
  CHECK(bad(recorder.open(bytes_of("\x80\x04]\x94\x8c\x13joblib.numpy_pickle\x8c\x0eNDArrayWrapper\x93)\x81"
                                   "a."s)))
            .found() == "joblib.numpy_pickle.NDArrayWrapper");
}

TEST_CASE("numpy pickle: every truncation and every changed byte is an error or opens") {
  const PickleRecorder<> recorder;
  for (const char* name : {"bf16.pdparams", "tensors2.pdparams", "sliced2.pdparams", "others.pkl"}) {
    CAPTURE(name);
    const std::string whole = golden(name);
    for (std::size_t n = 0; n < whole.size(); ++n) {
      CHECK_FALSE(recorder.open(bytes_of(std::string_view(whole).substr(0, n))));
      for (const int change : {1, 0x80, 0xff}) {
        std::string damaged = whole;
        damaged[n] = static_cast<char>(damaged[n] ^ change);
        const auto opened = recorder.open(bytes_of(damaged));
        if (!opened) continue;
        for (std::size_t i = 0; i < opened->leaf_count(); ++i) static_cast<void>(content(opened->leaf(i)));
      }
    }
  }
}

TEST_CASE("numpy pickle: a text of several blocks is read in any part") {
  std::string data, text;
  for (int i = 0; i < 300'000; ++i) {
    const auto c = static_cast<unsigned char>(i * 7 + i / 256);
    data += static_cast<char>(c);
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else {
      text += {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))};
    }
  }
  const auto le = [](std::size_t n) {
    std::string out;
    for (int i = 0; i < 4; ++i) out += static_cast<char>(n >> 8 * i & 0xff);
    return out;
  };
  const std::string file = dict_of(array("J" + le(data.size()) + "\x85", "u1",
                                         "c_codecs\nencode\nX" + le(text.size()) + text + "X" + le(6) + "latin1\x86R"));
  const Snapshot opened = good(PickleRecorder<>().open(bytes_of(file)));
  CHECK(good(content(opened.leaf(0))) == data);
  for (std::size_t at = 0; at < data.size(); at += 4099) {
    std::string part(std::min<std::size_t>(1000, data.size() - at), '\0');
    good(opened.leaf(0).read(at, std::as_writable_bytes(std::span(part))));
    CHECK(part == data.substr(at, part.size()));
  }
}

TEST_CASE("numpy pickle: the front door") {
  for (const char* name : {"net.pdparams", "net.pdopt", "tensors2.pdparams", "one.pdtensor", "arrays2.pkl",
                           "arrays5.pkl", "values.pkl", "array.pkl"}) {
    CAPTURE(name);
    const SourcePtr source = good(open_file(test_data("pickle") + "/" + name));
    CHECK(good(format_of_content(*source))->name() == "pickle");
  }
  const Error error = bad(stele::save(std::map<std::string, std::vector<float>>{{"w", {1}}}, "/none/m.pdparams"));
  CHECK(error.code() == Errc::unsupported);
}

TEST_CASE("numpy pickle: arrays of many axes are no tensors") {
  std::string shape = "(";
  for (int i = 0; i < 65; ++i) shape += "K\1";
  const Snapshot opened = good(PickleRecorder<>().open(bytes_of(dict_of(array(shape + "t", "u1", bytes("a"))))));
  CHECK(unreadable_reason(opened.leaf(0)) == "an array of more than 64 axes");
  const std::string step = "\x80\x04}\x8c\4stepK\7s.";
  const Snapshot small = good(PickleRecorder<>().open(bytes_of(step)));
  CHECK(small.nodes().size() == 2);
}

}  // namespace numpy_pickle_test
