// MXNet's files: those of MXNet itself, files of older layouts, and damaged ones.
#include <doctest/doctest.h>

#include <stele/recorders/mxnet.hpp>
#include <stele/recover.hpp>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "fuzz/leaves.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace mxnet_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

std::string golden(const std::string& name) { return read_text(test_data("mxnet") + "/" + name + ".params"); }

struct Dense {
  Tensor<float> weight, bias;
};
struct Norm {
  Tensor<float> gamma, beta, running_mean, running_var;
};
struct Symbol {
  Tensor<float> fc_weight, fc_bias, bn_gamma, bn_beta, bn_moving_mean, bn_moving_var;
};
struct Odd {
  Tensor<float, 0> scalar;
  Tensor<std::int8_t, 2> none;
  STELE_MODULE(Odd, scalar, none)
};

template <class T>
std::string little(T value) {
  std::string bytes(sizeof value, '\0');
  for (char& c : bytes) {
    c = static_cast<char>(value & 0xff);
    value = static_cast<T>(static_cast<std::uint64_t>(value) >> 8);
  }
  return bytes;
}
std::string u64(std::uint64_t value) { return little(value); }
std::string u32(std::uint32_t value) { return little(value); }

/// Returns a file of one array with this name.
std::string file_of(const std::string& array, const std::string& name = "w") {
  return u64(0x112) + u64(0) + u64(1) + array + u64(1) + u64(name.size()) + name;
}
/// Returns an array of int8, of two elements.
std::string array_of(const std::string& head) { return head + u32(1) + u32(0) + u32(5) + "ab"; }
const std::string v2 = u32(0xf993fac9) + u32(0), v3 = u32(0xf993faca) + u32(0);

}  // namespace

TEST_CASE("mxnet: a model of Gluon loads, and opened files are saved byte by byte") {
  const MxnetRecorder<> recorder;
  const std::string file = golden("gluon");
  const auto net = good(recorder.load<std::tuple<Dense, Norm>>(bytes_of(file)));
  CHECK(std::get<0>(net).weight.shape() == Shape({3, 2}));
  CHECK(std::get<0>(net).weight(2, 1) == 0.625F);
  CHECK(std::get<1>(net).running_var(2) == 0.25F);
  CHECK(good(saved(recorder, net)).size() == file.size());
  for (const char* name : {"gluon", "module", "dtypes", "list", "empty", "np"}) {
    CAPTURE(name);
    const std::string bytes = golden(name);
    CHECK(text_of(good(saved(recorder, good(recorder.open(bytes_of(bytes))))).span()) == bytes);
  }
}

TEST_CASE("mxnet: names without the prefixes of the Module API") {
  const std::string file = golden("module");
  const Snapshot opened = good(MxnetRecorder<>().open(bytes_of(file)));
  const auto model = good(load<Symbol>(opened));
  CHECK(model.fc_weight(2, 1) == 0.625F);
  CHECK(*opened.find("bn_moving_var")->annotations()->at("mxnet.prefix").as_string() == "aux");
  // A model that was never in a file of MXNet gets prefixes if asked for.
  const MxnetRecorder<> prefixed(MxnetFormat({.names = MxnetNames::prefixed}));
  const std::string bytes(text_of(good(saved(prefixed, model)).span()));
  CHECK(bytes.find("arg:fc_weight") != bytes.npos);
  CHECK(bytes.find("aux:bn_moving_var") != bytes.npos);
  const std::string plain(text_of(good(saved(MxnetRecorder<>(), model)).span()));
  CHECK(plain.find("arg:") == plain.npos);
}

TEST_CASE("mxnet: names that need their prefixes") {
  const std::string one = array_of(v2 + u32(1) + u64(2));
  const auto two = [&](const std::string& a, const std::string& b) {
    return u64(0x112) + u64(0) + u64(2) + one + one + u64(2) + u64(a.size()) + a + u64(b.size()) + b;
  };
  for (const auto& names : {std::pair("arg:w", "aux:w"), std::pair("arg:w", "w"), std::pair("arg:arg:w", "aux:"),
                            std::pair("arg:", "aux:")}) {
    CAPTURE(names.first);
    const std::string file = two(names.first, names.second);
    const Snapshot opened = good(MxnetRecorder<>().open(bytes_of(file)));
    CHECK(text_of(good(saved(MxnetRecorder<>(), opened)).span()) == file);
  }
  CHECK(good(MxnetRecorder<>().open(bytes_of(two("arg:w", "aux:w")))).find("aux:w"));
  CHECK(code_of(MxnetRecorder<>().open(bytes_of(two("arg:w", "arg:w")))) == Errc::duplicate);
  // A path that begins like a prefix comes back.
  const std::map<std::string, Tensor<float>> model{{"arg:w", Tensor<float>({1}, {2.F})}};
  const Bytes bytes = good(saved(MxnetRecorder<>(), model));
  const auto back = good(MxnetRecorder<>().load<std::map<std::string, Tensor<float>>>(bytes));
  CHECK(back.at("arg:w")(0) == 2);
}

TEST_CASE("mxnet: every dtype") {
  const std::string file = golden("dtypes");
  const Snapshot opened = good(MxnetRecorder<>().open(bytes_of(file)));
  CHECK(opened.leaf_count() == 7);
  CHECK(opened.find("float16")->dtype() == DType::f16);
  CHECK(opened.find("int64")->byte_size() == 48);
  const DType codes[] = {DType::f32,     DType::f64, DType::f16, DType::u8,  DType::i32, DType::i8,  DType::i64,
                         DType::boolean, DType::i16, DType::u16, DType::u32, DType::u64, DType::bf16};
  for (std::uint32_t code = 0; code < std::size(codes); ++code) {
    const std::string bytes = file_of(v3 + u32(1) + u64(0) + u32(1) + u32(0) + u32(code));
    CHECK(good(MxnetRecorder<>().open(bytes_of(bytes))).leaf(0).dtype() == codes[code]);
  }
}

TEST_CASE("mxnet: tensors without axes or elements") {
  const std::string file = golden("np");
  const Snapshot opened = good(MxnetRecorder<>().open(bytes_of(file)));
  CHECK(opened.find("scalar")->shape().empty());
  CHECK(opened.find("none")->shape().size() == 2);
  CHECK(opened.find("flag")->dtype() == DType::boolean);
  Odd odd;
  odd.scalar = Tensor<float, 0>({}, {2.5F});
  odd.none = Tensor<std::int8_t, 2>({0, 3});
  const Bytes bytes = good(saved(MxnetRecorder<>(), odd));
  CHECK(text_of(bytes.span()).substr(24, 4) == u32(0xf993faca));
  const Odd back = good(MxnetRecorder<>().load<Odd>(bytes));
  CHECK(back.scalar() == 2.5F);
  CHECK(back.none.shape() == Shape({0, 3}));
}

TEST_CASE("mxnet: a list without names, and an older layout") {
  const std::string file = golden("list");
  const auto list = good(MxnetRecorder<>().load<std::tuple<Tensor<float>, Tensor<std::int8_t>>>(bytes_of(file)));
  CHECK(std::get<0>(list)(1) == 2);
  CHECK(std::get<1>(list)(0, 0) == 3);
  for (const std::string& head : {u32(2) + u32(2) + u32(1), u32(0xf993fac8) + u32(2) + u64(2) + u64(1),
                                  v2 + u32(2) + u64(2) + u64(1), v3 + u32(2) + u64(2) + u64(1)}) {
    const std::string bytes = file_of(array_of(head));
    const Snapshot opened = good(MxnetRecorder<>().open(bytes_of(bytes)));
    CHECK(opened.find("w")->dtype() == DType::i8);
    CHECK(opened.find("w")->shape()[0] == 2);
    CHECK(opened.find("w")->shape()[1] == 1);
  }
}

TEST_CASE("mxnet: sparse arrays and arrays without a shape stay entries") {
  const std::string file = golden("sparse");
  const Snapshot opened = good(MxnetRecorder<>().open(bytes_of(file)));
  CHECK(unreadable_reason(*opened.find("rows")) == "a sparse array (row_sparse)");
  CHECK(unreadable_reason(*opened.find("csr")) == "a sparse array (csr)");
  CHECK(opened.find("rows")->byte_size() == 4 * 4 + 2 * 8);
  CHECK(opened.find("csr")->byte_size() == 3 * 4 + 4 * 8 + 3 * 8);
  CHECK(opened.find("after")->shape().size() == 2);
  // MXNet saves an array before it is computed without the shape of its elements, and takes that of the indices.
  std::string early = file;
  for (const std::string& stored : {u32(1) + u32(2) + u64(2) + u64(2), u32(2) + u32(1) + u64(3)}) {
    const std::size_t at = early.find(u32(0xf993fac9) + stored);
    REQUIRE(at != early.npos);
    early.replace(at + 12, stored.size() - 8, stored.size() - 8, '\0');
  }
  const Snapshot same = good(MxnetRecorder<>().open(bytes_of(early)));
  for (const char* name : {"before", "rows", "csr", "after"}) {
    CHECK(same.find(name)->byte_size() == opened.find(name)->byte_size());
  }
  // A scalar has no rows.
  CHECK(code_of(MxnetRecorder<>().open(bytes_of(file_of(u32(0xf993faca) + u32(1) + u32(1) + u64(0) + u32(0) + u32(1) +
                                                        u32(0) + u32(0) + u32(6) + u32(1) + u64(1))))) != Errc::none);
  CHECK(code_of(saved(MxnetRecorder<>(), opened)) == Errc::not_representable);
  for (const std::string& array : {v2 + u32(0), u32(0), u32(0xf993fac8) + u32(0), v3 + u32(UINT32_MAX),
                                   v3 + u32(1) + u64(UINT64_MAX), v2 + u32(UINT32_MAX)}) {
    const std::string bytes = file_of(array);
    const Snapshot none = good(MxnetRecorder<>().open(bytes_of(bytes)));
    CHECK(unreadable_reason(none.leaf(0)) == "an array without a shape");
  }
}

TEST_CASE("mxnet: damaged files") {
  const MxnetRecorder<> recorder;
  const std::string good_array = array_of(v2 + u32(1) + u64(2));
  CHECK(recorder.open(bytes_of(file_of(good_array))));
  const std::tuple<const char*, std::string, Errc> files[] = {
      {"another number", u64(0x113) + u64(0) + u64(0) + u64(0), Errc::bad_magic},
      {"more arrays than bytes", u64(0x112) + u64(0) + u64(UINT64_MAX) + u64(0), Errc::truncated},
      {"fewer names than arrays", u64(0x112) + u64(0) + u64(2) + good_array + good_array + u64(1) + u64(1) + "w",
       Errc::malformed},
      {"a long name", u64(0x112) + u64(0) + u64(1) + good_array + u64(1) + u64(UINT64_MAX) + "w", Errc::limit},
      {"bytes after the names", file_of(good_array) + "x", Errc::malformed},
      {"a negative extent", file_of(array_of(v2 + u32(1) + u64(UINT64_MAX - 1))), Errc::malformed},
      {"many axes", file_of(array_of(u32(33))), Errc::malformed},
      {"a size that overflows", file_of(array_of(v2 + u32(2) + u64(INT64_MAX) + u64(4))), Errc::malformed},
      {"a size beyond the file", file_of(array_of(v2 + u32(1) + u64(1000))), Errc::truncated},
      {"an unknown dtype", file_of(v2 + u32(1) + u64(2) + u32(1) + u32(0) + u32(13) + "ab"), Errc::unsupported},
      {"an unknown storage type", file_of(array_of(u32(0xf993fac9) + u32(3) + u32(1) + u64(2))), Errc::unsupported},
      {"sparse indices of an unknown shape",
       file_of(u32(0xf993fac9) + u32(1) + u32(1) + u64(2) + u32(1) + u64(2) + u32(1) + u32(0) + u32(5) + u32(6) +
               u32(UINT32_MAX) + "ab"),
       Errc::malformed},
  };
  for (const auto& damaged : files) {
    CAPTURE(std::get<0>(damaged));
    CHECK(code_of(recorder.open(bytes_of(std::get<1>(damaged)))) == std::get<2>(damaged));
  }
  for (const char* name : {"gluon", "module", "list", "np", "sparse"}) {
    const std::string whole = golden(name);
    for (std::size_t n = 0; n < whole.size(); ++n) {
      CHECK_FALSE(recorder.open(bytes_of(std::string_view(whole).substr(0, n))));
    }
    for (std::size_t i = 0; i < whole.size(); ++i) {
      for (const int flip : {1, 0x80, 0xff}) {
        std::string damaged = whole;
        damaged[i] = static_cast<char>(damaged[i] ^ flip);
        const auto opened = recorder.open(bytes_of(damaged));
        if (opened) read_leaves(*opened, damaged.size());
      }
    }
  }
}

TEST_CASE("mxnet: what the format cannot hold is refused") {
  const MxnetRecorder<> recorder;
  CHECK(code_of(saved(recorder, std::map<std::string, Tensor<float>>{
                                    {std::string(70'000, 'n'), Tensor<float>({1})}})) == Errc::not_representable);
  CHECK(code_of(saved(recorder, std::map<std::string, Tensor<float>>{{"a\0b"s, Tensor<float>({1})}})) ==
        Errc::not_representable);
  CHECK(code_of(saved(recorder, std::map<std::string, std::string>{{"a", "text"}})) == Errc::not_representable);
}

TEST_CASE("mxnet: an error tells the place, what is expected and found") {
  const std::string file = file_of(v2 + u32(1) + u64(2) + u32(1) + u32(0) + u32(13) + "ab");
  const Error error = bad(MxnetRecorder<>().open(bytes_of(file)));
  CHECK(error.offset() == 24);
  CHECK(error.expected() == "0 to 12");
  CHECK(error.found() == "13");
}

}  // namespace mxnet_test
