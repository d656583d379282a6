// Caffe's files: messages of its own description, and damaged ones.
#include <doctest/doctest.h>

#include <stele/recorders/any.hpp>
#include <stele/recorders/caffe.hpp>
#include <stele/recover.hpp>

#include <filesystem>
#include <map>
#include <string>
#include <tuple>

#include "fuzz/leaves.hpp"
#include "snapshot/data.hpp"
#include "support/models.hpp"
#include "support/protobuf.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace caffe_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

std::string golden(const std::string& name) { return read_text(test_data("caffe") + "/" + name + ".caffemodel"); }

/// Returns a field with bytes.
std::string field(std::uint64_t number, const std::string& content) {
  return varint(number << 3 | 2) + varint(content.size()) + content;
}

/// Returns a file of one layer `a` with this blob.
std::string file_of(const std::string& blob, const std::string& type = "Bias") {
  return field(100, field(1, "a") + field(2, type) + field(7, blob));
}
const std::string one_two = "\0\0\x80\x3f\0\0\0\x40"s;  // floats
std::string shape(std::uint64_t extent) { return field(7, number(1, extent)); }

struct Weights {
  Tensor<float> weight, bias;
};

}  // namespace

TEST_CASE("caffe: a network loads by the names of its layers") {
  const std::string file = golden("net");
  const Snapshot opened = good(CaffeRecorder<>().open(bytes_of(file)));
  REQUIRE(opened.leaf_count() == 4);
  CHECK(opened.leaf(0).path() == "conv/3x3.weight");
  CHECK(to_string(opened.leaf(0).shape()) == "[4, 2, 3, 3]");
  CHECK(opened.leaf(2).path() == "fc.1.weight");
  CHECK(opened.leaf(0).location());
  LoadOptions options;
  options.part = "conv/3x3";
  const auto conv = good(CaffeRecorder<>().load<Weights>(bytes_of(file), options));
  CHECK(conv.weight(3, 1, 2, 2) == 71 / 8.F);
  CHECK(conv.bias(0) == 100);
  options.part = "fc.1";
  CHECK(good(CaffeRecorder<>().load<Weights>(bytes_of(file), options)).weight(1, 35) == 71 / 8.F);
}

TEST_CASE("caffe: names of other layers, and doubles") {
  const std::string file = golden("kinds");
  const Snapshot opened = good(CaffeRecorder<>().open(bytes_of(file)));
  for (const char* path : {"bn.mean", "bn.variance", "bn.factor", "scale0.weight", "scale1.weight", "slope.0",
                           "doubles.weight", "gradients.0", "none.0"}) {
    CAPTURE(path);
    CHECK(opened.find(path));
  }
  CHECK(opened.leaf_count() == 9);
  CHECK(opened.find("slope.0")->shape().empty());
  CHECK(opened.find("doubles.weight")->dtype() == DType::f64);
  CHECK(to_string(opened.find("none.0")->shape()) == "[0, 3]");
  CHECK(opened.data()->left_out.size() == 2);
}

TEST_CASE("caffe: layers of older versions") {
  for (const char* name : {"v0", "v1"}) {
    CAPTURE(name);
    const std::string file = golden(name);
    const Snapshot opened = good(CaffeRecorder<>().open(bytes_of(file)));
    REQUIRE(opened.leaf_count() == 3);
    CHECK(to_string(opened.find("conv1.weight")->shape()) == "[2, 3, 1, 1]");
    CHECK(to_string(opened.find("conv1.bias")->shape()) == "[1, 1, 1, 2]");
    CHECK(to_string(opened.find("ip.weight")->shape()) == "[1, 1, 3, 2]");
  }
}

TEST_CASE("caffe: the order of fields does not matter, and unknown fields are skipped") {
  const std::string file =
      number(77, 5) +
      field(100, field(7, field(5, one_two) + shape(2)) + field(2, "Scale") + number(99, 1) + field(1, "b")) +
      field(1, "net");
  const Snapshot opened = good(CaffeRecorder<>().open(bytes_of(file)));
  CHECK(opened.leaf(0).path() == "b.weight");
  const std::string unnamed = field(100, field(7, field(5, one_two)));
  const Snapshot other = good(CaffeRecorder<>().open(bytes_of(unnamed)));
  CHECK(other.leaf(0).path() == "0.0");
  CHECK(to_string(other.leaf(0).shape()) == "[2]");
  const std::string both = file_of(field(5, one_two) + field(8, one_two) + shape(1));
  CHECK(good(CaffeRecorder<>().open(bytes_of(both))).leaf(0).dtype() == DType::f64);
}

TEST_CASE("caffe: blobs that cannot be read stay entries") {
  const std::pair<std::string, const char*> blobs[] = {
      {shape(2) + "\x2d\0\0\x80\x3f\x2d\0\0\0\x40"s, "numbers that are not packed"},
      {shape(2) + field(5, one_two.substr(0, 4)) + field(5, one_two.substr(4)), "numbers in several parts"},
      {shape(2), "a blob without elements"},
  };
  for (const auto& [blob, reason] : blobs) {
    const std::string file = file_of(blob);
    const Snapshot opened = good(CaffeRecorder<>().open(bytes_of(file)));
    CHECK(unreadable_reason(opened.leaf(0)) == reason);
  }
}

TEST_CASE("caffe: damaged files") {
  const CaffeRecorder<> recorder;
  CHECK(recorder.open(bytes_of(file_of(field(5, one_two) + shape(2)))));
  const std::tuple<const char*, std::string, Errc> files[] = {
      {"fewer numbers than the shape", file_of(field(5, one_two) + shape(3)), Errc::malformed},
      {"a negative extent", file_of(field(5, one_two) + shape(UINT64_MAX)), Errc::malformed},
      {"half a number", file_of(field(5, one_two.substr(1)) + shape(2)), Errc::malformed},
      {"an extent that is text", file_of(field(1, "x") + field(5, one_two)), Errc::malformed},
      {"a shape that is a number", file_of(number(7, 1) + field(5, one_two)), Errc::malformed},
      {"numbers that are varints", file_of(number(5, 1)), Errc::malformed},
      {"a blob that is a number", field(100, field(1, "a") + number(7, 1)), Errc::malformed},
      {"a layer that is a number", number(100, 1), Errc::malformed},
      {"many axes", file_of(field(5, one_two) + field(7, field(1, std::string(33, '\1')))), Errc::malformed},
      {"a size that overflows", file_of(field(7, number(1, INT64_MAX) + number(1, 4)) + field(5, one_two)),
       Errc::malformed},
      {"a name twice", file_of(field(5, one_two)) + file_of(field(5, one_two)), Errc::duplicate},
      {"a blob beyond its layer", field(100, field(1, "a") + "\x3a\x7f"), Errc::malformed},
      {"a long name", field(100, field(1, std::string(70'000, 'n'))), Errc::limit},
  };
  for (const auto& damaged : files) {
    CAPTURE(std::get<0>(damaged));
    CHECK(code_of(recorder.open(bytes_of(std::get<1>(damaged)))) == std::get<2>(damaged));
  }
  for (const char* name : {"net", "kinds", "v1", "v0"}) {
    const std::string whole = golden(name);
    for (std::size_t n = 0; n < whole.size(); ++n) {
      const std::string part = whole.substr(0, n);
      const auto opened = recorder.open(bytes_of(part));
      if (opened) read_leaves(*opened, n);
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

TEST_CASE("caffe: files are recognized by their content, and only read") {
  const TempDir dir;
  for (const char* name : {"net", "kinds", "v1", "v0"}) {
    CAPTURE(name);
    std::filesystem::copy_file(test_data("caffe") + "/" + name + ".caffemodel", dir / name);
    CHECK(good(stele::open(dir / name)).leaf_count() >= 3);
  }
  // Other messages that begin with a string or a message.
  const CaffeFormat format;
  for (const std::string& other :
       {field(1, field(1, "node") + field(2, "Const")), field(1, "vocabulary") + field(9, "x"),
        number(1, 8) + field(7, "g"), field(1, "n") + field(100, "x"), field(100, field(2, "Bias")), "\xa2\x06"s,
        field(1, "only a name")}) {
    const auto bytes = std::as_bytes(std::span(other));
    CHECK_FALSE(format.recognises(bytes, bytes.size()));
  }
  CHECK(code_of(stele::save(Weights{}, dir / "w.caffemodel", quick())) == Errc::unsupported);
}

TEST_CASE("caffe: an error names the blob, what is expected and found") {
  const std::string file = file_of(field(5, one_two) + shape(3));
  const Error error = bad(CaffeRecorder<>().open(bytes_of(file)));
  CHECK(error.path() == "a.0");
  CHECK(error.expected() == "3");
  CHECK(error.found() == "2");
}

}  // namespace caffe_test
