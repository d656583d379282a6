// Models of ncnn: those of pnnx, and damaged ones.
#include <doctest/doctest.h>

#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/numpy.hpp>
#include <stele/recorders/read_only.hpp>
#include <stele/recover.hpp>

#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace ncnn_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

const NcnnRecorder<> recorder;

std::string golden(const std::string& name) { return read_text(test_data("ncnn") + "/" + name); }

/// Returns a bundle with the two files of a model, x.param and x.bin.
std::shared_ptr<Bundle> pair_of(std::string_view param, std::string_view bin) {
  const auto bundle = memory_bundle();
  for (const auto& [name, content] : {std::pair("x.param", param), std::pair("x.bin", bin)}) {
    const auto sink = good(bundle->create(name));
    good(sink->write(std::as_bytes(std::span(content))));
    good(sink->commit());
  }
  return bundle;
}

Result<Snapshot> open(std::string_view param, std::string_view bin, const LoadOptions& options = {}) {
  return recorder.open(good(pair_of(param, bin)->open("x.param")), options);
}

/// Returns the text of a model with an input and these layers.
std::string model(const std::string& layers, int count = 1) {
  return "7767517\n" + std::to_string(count + 1) + " 9\nInput in 0 1 in\n" + layers + "\n";
}

std::string u32(std::uint32_t n) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(n >> 8 * i);
  return bytes;
}

/// Returns a layer that is alone in its file.
Result<Snapshot> alone(const std::string& type, const std::string& attributes, const std::string& bin) {
  return open(model(type + " l 1 1 in l " + attributes), bin);
}

std::vector<float> floats(const Snapshot& snapshot, const std::string& name) {
  const auto leaf = snapshot.find(name);
  REQUIRE(leaf);
  std::vector<float> numbers(static_cast<std::size_t>(leaf->size()));
  REQUIRE(leaf->dtype() == DType::f32);
  good(leaf->read(0, std::as_writable_bytes(std::span(numbers))));
  return numbers;
}

Shape shape_of(const Snapshot& snapshot, const std::string& name) {
  const auto leaf = snapshot.find(name);
  REQUIRE(leaf);
  return Shape(leaf->shape());
}

}  // namespace

TEST_CASE("ncnn: a model of pnnx opens by either of its files") {
  const std::string folder = test_data("ncnn");
  const Snapshot net = good(recorder.open(folder + "/net.ncnn.param"));
  CHECK(net.leaf_count() == 17);
  CHECK(shape_of(net, "convsigmoid_0.weight") == Shape({8, 3, 3, 3}));
  CHECK(shape_of(net, "convdw_10.weight") == Shape({8, 1, 3, 5}));
  CHECK(shape_of(net, "deconv_4.weight") == Shape({6, 8, 2, 2}));
  CHECK(shape_of(net, "linear_7.weight") == Shape({5, 6}));
  CHECK(floats(net, "prelu_8.slope") == std::vector<float>(8, 0.25F));
  CHECK(floats(net, "gn_5.gamma") == std::vector<float>(6, 1));
  CHECK(floats(net, "ln_6.beta") == std::vector<float>(5, 0));
  CHECK(floats(net, "bn_2.var").front() >= 1);
  for (const char* file : {"/net.ncnn.param", "/net.ncnn.bin"}) {
    const Snapshot opened = good(stele::open(folder + file));
    CHECK(difference(facts(net, recorder.format().capabilities()), facts(opened, recorder.format().capabilities()))
              .empty());
    CHECK(good(format_of_content(*good(open_file(folder + file))))->name() == "ncnn");
  }
  const Snapshot sequence = good(recorder.open(folder + "/sequence.ncnn.bin"));
  CHECK(sequence.find("lstm_2.weight_xc")->dtype() == DType::f16);
  CHECK(shape_of(sequence, "embed_0.weight") == Shape({10, 6}));
  CHECK(shape_of(sequence, "lstm_2.weight_xc") == Shape({2, 16, 6}));
  CHECK(shape_of(sequence, "lstm_2.bias_c") == Shape({2, 4, 4}));
  CHECK(shape_of(sequence, "lstm_2.weight_hc") == Shape({2, 16, 4}));
  CHECK(shape_of(sequence, "gru_1.weight_xc") == Shape({1, 18, 8}));
  CHECK(shape_of(sequence, "rnn_4.bias_c") == Shape({1, 1, 4}));
  CHECK(shape_of(sequence, "attention_3.out_weight") == Shape({4, 4}));
}

TEST_CASE("ncnn: the graph is reported as left out, and a save to the format is refused") {
  const Snapshot net = good(recorder.open(test_data("ncnn") + "/net.ncnn.param"));
  BufferSink sink;
  const Report report = good(NpzRecorder<>().save(net, sink));
  CHECK(report.to_string().find("graph") != std::string::npos);
  CHECK(code_of(saved(Recorder<NcnnFormat>(), net)) == Errc::unsupported);
}

TEST_CASE("ncnn: every type of layer, i8 with scales, codebooks and packed weights") {
  const Snapshot layers = good(open(golden("layers.param"), golden("layers.bin")));
  CHECK(layers.leaf_count() == 157);
  CHECK(layers.find("l0.weight")->dtype() == DType::i8);
  CHECK(shape_of(layers, "l0.weight_int8_scales") == Shape({4}));
  CHECK(shape_of(layers, "l2.top_blob_int8_scales") == Shape({1}));
  const auto packed = layers.find("l82.B_packed");
  REQUIRE(packed);
  CHECK(packed->dtype() == DType::u8);
  CHECK(shape_of(layers, "l82.B_packed") == Shape({4, 35}));
  CHECK(shape_of(layers, "l18.weight") == Shape({4, 2, 1, 2, 3}));
  // Each element of a codebook is read, in any part of the array.
  const auto book = layers.find("l12.weight");
  REQUIRE(book);
  CHECK(book->encoding() == "codebook");
  const std::vector<float> all = floats(layers, "l12.weight");
  std::vector<float> part(3);
  good(book->read(4 * 7, std::as_writable_bytes(std::span(part))));
  CHECK(part == std::vector<float>(all.begin() + 7, all.begin() + 10));
  const Snapshot matrix = good(alone("InnerProduct", "0=2 2=4", u32(0) + std::string(16, '\0')));
  CHECK(good(load<std::map<std::string, std::map<std::string, Tensor<float>>>>(matrix))["l"]["weight"].shape() ==
        Shape({2, 2}));
}

TEST_CASE("ncnn: weights are stored as the layer's attributes declare") {
  const std::string two = u32(0x40000000);
  CHECK(floats(good(alone("Bias", "0=2", two + two)), "l.bias") == std::vector<float>{2, 2});
  CHECK(floats(good(alone("MemoryData", "0=1 21=0", u32(0x2c056) + two)), "l.data") == std::vector<float>{2});
  // Any other tag precedes a codebook.
  std::string book = u32(7);
  for (int i = 0; i < 256; ++i) book += i == 255 ? two : u32(0);
  CHECK(floats(good(alone("MemoryData", "0=3 21=0", book + "\0\xff\0\0"s)), "l.data") == std::vector<float>{0, 2, 0});
  CHECK(good(alone("MemoryData", "0=3 21=0", u32(0x01306b47) + std::string(8, 'x'))).leaf(0).dtype() == DType::f16);
  // Sizes that are no multiple have one axis, and arrays without extents have no bytes.
  CHECK(shape_of(good(alone("InnerProduct", "0=2 2=3", u32(0) + std::string(12, 'x'))), "l.weight") == Shape({3}));
  CHECK(good(alone("MemoryData", "", "")).leaf_count() == 0);
  CHECK(good(alone("Convolution", "0=2 1=1 6=2 19=1", "")).leaf_count() == 0);
  // Floats, lists, texts and old arrays are attributes without an effect.
  CHECK(good(alone("Bias", "0=1 1=1e-5 2=1,2 3=\"a b 0=7\" -23304=2,1,2 5=text", two)).leaf_count() == 1);
  // Words may be on any line.
  CHECK(good(open("7767517\r\n2\n9 Input in 0 1 in\n\nBias l 1 1 in l\n0=1", two)).leaf_count() == 1);
  // Packed weights of an older version begin with a tag.
  for (const std::string& tag : {""s, u32(0x000d4b38)}) {
    const Snapshot gemm = good(alone("Gemm", "3=1 5=1 8=1 9=32 18=400", tag + std::string(16, '\x11') + two));
    CHECK(good(content(*gemm.find("l.B_packed"))) == std::string(16, '\x11'));
  }
}

TEST_CASE("ncnn: an unknown layer makes one entry of its bytes and all that follow") {
  const std::string two = u32(0x40000000);
  const std::string layers = "Bias a 1 1 in a 0=1\nNew b 1 1 a b 0=1\nBias c 1 1 b c 0=1";
  const Snapshot opened = good(open(model(layers, 3), two + two + two));
  CHECK(opened.leaf_count() == 2);
  CHECK(unreadable_reason(*opened.find("b")) ==
        "the weights of a layer of the unknown type New, and of all layers after it");
  CHECK(opened.find("b")->byte_size() == 8);
  const Snapshot none = good(open(model(layers, 3), two));
  CHECK(none.leaf_count() == 1);
  for (const char* attributes : {"", "0=0", "0=-5", "0=1.5", "0=1,2", "-23300=1,1"}) {
    CAPTURE(attributes);
    CHECK(unreadable_reason(good(alone("Bias", attributes, two)).leaf(0)).find("unknown attributes, of type Bias") !=
          std::string::npos);
  }
}

TEST_CASE("ncnn: files that are missing or of other kinds") {
  const TempDir dir;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(dir / name, std::ios::binary) << text;
  };
  write("a.param", golden("net.ncnn.param"));
  write("b.bin", golden("sequence.ncnn.bin"));
  for (const auto& [name, other] : {std::pair("a.param", "a.bin"), std::pair("b.bin", "b.param")}) {
    const Error missing = bad(stele::open(dir / name));
    CHECK(missing.code() == Errc::not_found);
    CHECK(missing.expected() == std::string(other) + " in the same folder");
  }
  CHECK(code_of(recorder.open(bytes_of(golden("net.ncnn.param")))) == Errc::unsupported);
  write("c.param", "\xdd\x85\x76\0binary"s);
  CHECK(bad(stele::open(dir / "c.param")).code() == Errc::unsupported);
  write("d.param", "7767517\n1 1\npnnx.Input in0 0 1 0 #0=(1,3)f32\n");
  write("d.bin", "");
  const Error pnnx = bad(stele::open(dir / "d.param"));
  CHECK(pnnx.code() == Errc::unsupported);
  CHECK(pnnx.hint() == "open the file .ncnn.param that pnnx writes beside it");
  // Weights without a tag are recognized by the file beside them; a file of PyTorch with such a name is not.
  write("e.param", model("Bias l 1 1 in l 0=1"));
  write("e.bin", "\1\2\3\4");
  CHECK(good(stele::open(dir / "e.bin")).leaf_count() == 1);
  write("f.bin", "\1\2\3\4");
  CHECK(code_of(stele::open(dir / "f.bin")) == Errc::bad_magic);
  write("g.param", "7767517 is a number");
  write("g.bin", "\x80\x02}q");
  CHECK(code_of(stele::open(dir / "g.bin")) != Errc::none);
}

TEST_CASE("ncnn hostile: texts and sizes that lie") {
  const auto refused = [](const std::string& param, const std::string& bin = "") { return bad(open(param, bin)); };
  CHECK(refused("").code() == Errc::unsupported);  // the name of a .bin file is expected
  CHECK(refused("7767517\n").code() == Errc::truncated);
  CHECK(refused("7767517\n1000000 9\nInput in 0 1 in\n").code() == Errc::malformed);
  CHECK(refused("7767517\n99999999999 9\nInput in 0 1 in\n").code() == Errc::malformed);
  CHECK(refused("7767517\n0 0\n").code() == Errc::malformed);
  CHECK(refused("7767517\n1 1\nInput in 0 2147483647 in\n").code() == Errc::truncated);
  CHECK(refused("7767517\n1 1\nInput in -1 1 in\n").code() == Errc::malformed);
  CHECK(refused("7767517\n1 1\nInput in 0 1 in\nInput b 0 1 b\n").code() == Errc::malformed);
  CHECK(refused("7767517\n1 1\n" + std::string(300, 'x') + " in 0 1 in\n").code() == Errc::malformed);
  CHECK(refused(model("Bias l 1 1 in l 99=1")).code() == Errc::malformed);
  const Error cut = refused(model("Bias l 1 1 in l 0=2"), "abcd");
  CHECK(cut.code() == Errc::truncated);
  CHECK(cut.path() == "l.bias");
  CHECK(cut.file() == "x.bin");
  CHECK(cut.offset() == 0);
  CHECK(refused(model("Bias l 1 1 in l 0=1"), "abcdefgh").code() == Errc::malformed);
  CHECK(refused(model("MemoryData l 0 1 l 0=2147483647 1=2147483647 2=2147483647"), "abcd").code() == Errc::truncated);
  CHECK(refused(model("MemoryData l 0 1 l 0=2147483647 1=2147483647 2=2147483647 11=2147483647 21=0"), "abcd").code() ==
        Errc::truncated);
  CHECK(refused(model("Bias l 1 1 in l 0=1\nBias l 1 1 in l 0=1", 2), "abcdefgh").code() == Errc::duplicate);
  LoadOptions options;
  options.limits.index_bytes = 1000;
  CHECK(code_of(open(golden("layers.param"), golden("layers.bin"), options)) == Errc::limit);
}

TEST_CASE("ncnn hostile: every truncation and every changed byte is an error or opens") {
  for (const std::string name : {"sequence.ncnn", "layers"}) {
    const std::string param = golden(name + ".param"), bin = golden(name + ".bin");
    const auto outcome = [](std::string_view text, std::string_view weights) {
      const auto opened = open(text, weights);
      if (!opened) return false;
      for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
        const LeafView leaf = opened->leaf(i);
        REQUIRE(leaf.byte_size() <= 4 * weights.size());
        REQUIRE(content(leaf));
      }
      return true;
    };
    REQUIRE(outcome(param, bin));
    for (std::size_t i = 0; i < bin.size(); i += 3) REQUIRE_FALSE(outcome(param, std::string_view(bin).substr(0, i)));
    for (std::size_t i = 0; i + 1 < param.size(); ++i) outcome(std::string_view(param).substr(0, i), bin);
    for (std::size_t i = 0; i < param.size(); ++i) {
      std::string other = param;
      other[i] = static_cast<char>(other[i] ^ 1 << i % 8);
      outcome(other, bin);
    }
    for (std::size_t i = 0; i < bin.size(); i += 5) {
      std::string other = bin;
      other[i] = static_cast<char>(other[i] ^ 0x41);
      outcome(param, other);
    }
  }
}

TEST_CASE("ncnn: a truncated or extended file of weights can be recovered or is reported") {
  const TempDir dir;
  std::ofstream(dir / "a.param", std::ios::binary) << golden("net.ncnn.param");
  std::ofstream(dir / "a.bin", std::ios::binary) << golden("net.ncnn.bin") << "more";
  CHECK(code_of(stele::open(dir / "a.bin")) == Errc::malformed);
  CHECK(good(recover(dir / "a.bin")).snapshot.leaf_count() == 17);
}

}  // namespace ncnn_test
