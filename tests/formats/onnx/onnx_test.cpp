// ONNX: files of the onnx package, saves into a model, and every rule broken once.
#include <stele/bundle.hpp>
#include <stele/composite.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/onnx.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/onnx_bytes.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace onnx_test {

using namespace stele_test;
using stele::DType;
using stele::Errc;
using stele::LeafView;
using stele::OnnxFormat;
using stele::OnnxRecorder;
using stele::Snapshot;
using stele::Tensor;
using namespace std::string_literals;

namespace {

std::string golden(const std::string& name) { return test_data("onnx") + "/" + name; }

std::string content_of(const Snapshot& snapshot, const std::string& name) {
  const auto leaf = snapshot.find(name);
  REQUIRE_MESSAGE(leaf.has_value(), name);
  return good(content(*leaf));
}

// ---- messages by hand

std::string entry(const std::string& key, const std::string& value) { return bytes(1, key) + bytes(2, value); }

/// A TensorProto of two elements without them.
std::string tensor(unsigned dtype, const std::string& elements, const std::string& dims = number(1, 2)) {
  return dims + number(2, dtype) + bytes(8, "t") + elements;
}
std::string model_of(const std::string& graph) { return number(1, 9) + bytes(7, graph); }
std::string model_with(const std::string& tensor) { return model_of(bytes(5, tensor)); }

stele::Result<Snapshot> opened(const std::string& file) {
  const auto bytes = bytes_of(file);
  return OnnxRecorder<>{}.open(std::vector<std::byte>(bytes.begin(), bytes.end()));
}

struct Dense {
  Tensor<float, 2> weight;
  std::optional<Tensor<float, 1>> bias;
  STELE_MODULE(Dense, weight, bias)
};
/// mlp.onnx: names as of PyTorch's Sequential, and a Constant.
struct Network {
  std::map<std::string, Dense> net;
  Tensor<std::int64_t, 1> shape;
  Tensor<float, 1> c;
  STELE_MODULE(Network, net, shape, c)
};

template <class T, int Rank>
bool equal(const Tensor<T, Rank>& a, const Tensor<T, Rank>& b) {
  return a.shape() == b.shape() && std::equal(a.data(), a.data() + a.size(), b.data());
}

}  // namespace

TEST_CASE("onnx: every dtype, in raw_data and in the field of its type") {
  const Snapshot file = good(stele::open(golden("types.onnx")));
  const std::map<std::string, DType> dtypes = {{"FLOAT", DType::f32},
                                               {"UINT8", DType::u8},
                                               {"INT8", DType::i8},
                                               {"UINT16", DType::u16},
                                               {"INT16", DType::i16},
                                               {"INT32", DType::i32},
                                               {"INT64", DType::i64},
                                               {"BOOL", DType::boolean},
                                               {"FLOAT16", DType::f16},
                                               {"DOUBLE", DType::f64},
                                               {"UINT32", DType::u32},
                                               {"UINT64", DType::u64},
                                               {"COMPLEX64", DType::c64},
                                               {"COMPLEX128", DType::c128},
                                               {"BFLOAT16", DType::bf16},
                                               {"FLOAT8E4M3FN", DType::f8_e4m3fn},
                                               {"FLOAT8E4M3FNUZ", DType::f8_e4m3fnuz},
                                               {"FLOAT8E5M2", DType::f8_e5m2},
                                               {"FLOAT8E5M2FNUZ", DType::f8_e5m2fnuz},
                                               {"UINT4", DType::u4},
                                               {"INT4", DType::i4},
                                               {"FLOAT4E2M1", DType::f4_e2m1}};
  CHECK(file.leaf_count() == 2 * dtypes.size() + 2);
  for (const auto& type : dtypes) {
    const auto& name = type.first;
    CAPTURE(name);
    const std::string raw = content_of(file, name + ".raw");
    CHECK(content_of(file, name + ".typed") == raw);
    for (const char* kind : {".raw", ".typed"}) {
      const LeafView leaf = *file.find(name + kind);
      CHECK(leaf.dtype() == type.second);
      CHECK(stele::to_string(leaf.shape()) == "[3, 5]");
      CHECK(raw.size() == leaf.byte_size());
    }
  }
  // The values are those of the script's rule.
  const std::string floats = content_of(file, "FLOAT.typed"), bits = content_of(file, "INT4.raw");
  for (std::size_t k = 0; k < 15; ++k) {
    float value = 0;
    std::memcpy(&value, floats.data() + 4 * k, 4);
    CHECK(value == static_cast<float>(k % 7) - 2);
    const auto half = static_cast<unsigned>(static_cast<unsigned char>(bits[k / 2])) >> (4 * (k % 2)) & 15U;
    CHECK(half == ((k % 7 + 14) & 15U));
  }
}

TEST_CASE("onnx: a module is loaded, and saved into the model") {
  const TempDir dir;
  Network mlp = good(stele::load<Network>(golden("mlp.onnx")));
  CHECK(mlp.net.at("0").weight(0, 3) == 1);
  CHECK(mlp.net.at("2").bias.has_value() == false);
  CHECK(equal(good(stele::load<Network>(golden("external.onnx"))).net.at("0").weight, mlp.net.at("0").weight));

  // The same module gives the same model, and a changed one the same bytes but for its elements.
  const std::string theirs = read_text(golden("mlp.onnx"));
  const OnnxRecorder<> into(OnnxFormat({.model = golden("mlp.onnx")}));
  good(into.save(mlp, dir / "same.onnx"));
  const Snapshot file = good(stele::open(golden("mlp.onnx")));
  CHECK(good(into.save(file, dir / "again.onnx")).count(stele::Report::What::lost) == 0);  // it has a graph
  CHECK(good(OnnxRecorder<>().save(file, dir / "again.onnx")).count(stele::Report::What::lost) == 1);
  CHECK(equal(good(stele::load<Network>(dir / "same.onnx")).net.at("0").weight, mlp.net.at("0").weight));
  mlp.net.at("0").weight(0, 3) = 42;
  good(into.save(mlp, dir / "changed"));
  const std::string same = read_text(dir / "same.onnx"), changed = read_text(dir / "changed.onnx");
  CHECK(same.size() == changed.size());
  CHECK(std::mismatch(same.begin(), same.end(), changed.begin()).first != same.end());
  CHECK(good(stele::load<Network>(dir / "changed.onnx")).net.at("0").weight(0, 3) == 42);
  for (const char* kept : {"Gemm", "Relu", "a small network", "the first layer", "golden", "inside"}) {
    CAPTURE(kept);
    CHECK(changed.find(kept) != std::string::npos);
  }
  CHECK(good(stele::open(dir / "changed.onnx")).metadata() == good(stele::open(golden("mlp.onnx"))).metadata());

  // Into itself, a part only: what the module does not have stays.
  struct Part {
    std::map<std::string, Dense> net;
  };
  std::filesystem::copy_file(golden("mlp.onnx"), dir / "own.onnx");
  const OnnxRecorder<> own(OnnxFormat({.model = dir / "own.onnx"}));
  Part part{{{"0", {Tensor<float, 2>::filled({4, 8}, 7), std::nullopt}}}};
  good(own.save(part, dir / "own.onnx"));
  const Network partly = good(stele::load<Network>(dir / "own.onnx"));
  CHECK(partly.net.at("0").weight(3, 7) == 7);
  CHECK(equal(*partly.net.at("0").bias, *mlp.net.at("0").bias));
  CHECK(equal(partly.shape, mlp.shape));

  // Elements in another file become part of the new one.
  const OnnxRecorder<> from_external(OnnxFormat({.model = golden("external.onnx")}));
  good(from_external.save(part, dir / "whole.onnx"));
  const Network whole = good(stele::load<Network>(dir / "whole.onnx"));
  CHECK(whole.net.at("0").weight(3, 7) == 7);
  CHECK(equal(whole.net.at("2").weight, mlp.net.at("2").weight));

  // Metadata: new keys are added, those of the model stay or get the new value.
  stele::SaveOptions options;
  options.metadata = {{"author", "me"}, {"epoch", "3"}};
  good(into.save(mlp, dir / "metadata.onnx", options));
  CHECK(good(stele::open(dir / "metadata.onnx")).metadata() ==
        std::map<std::string, std::string>{{"author", "me"}, {"epoch", "3"}, {"note", "ü"}});
}

TEST_CASE("onnx: a module that does not fit the model") {
  const TempDir dir;
  const auto error = [&](const auto& module, auto recorder) {
    const stele::Error e = bad(recorder.save(module, dir / "x.onnx"));
    CHECK(dir.names().empty());
    return e;
  };
  const OnnxFormat into({.model = golden("mlp.onnx")});
  Network mlp = good(stele::load<Network>(golden("mlp.onnx")));
  stele::Error e = error(mlp, OnnxRecorder<stele::HalfPrecision>(into));
  CHECK(e.code() == Errc::dtype_mismatch);
  CHECK(e.path() == "c");
  CHECK(e.expected() == "f32");
  mlp.net.at("0").weight = Tensor<float, 2>::filled({4, 9}, 1);
  e = error(mlp, OnnxRecorder<>(into));
  CHECK(e.code() == Errc::shape_mismatch);
  CHECK(e.expected() == "[4, 8]");
  CHECK(e.found() == "[4, 9]");
  struct More {
    Tensor<float, 1> extra;
  };
  const More more{Tensor<float, 1>::filled({2}, 1)};
  e = error(more, OnnxRecorder<>(into));
  CHECK(e.code() == Errc::not_representable);
  CHECK(e.path() == "extra");
  stele::SaveOptions lossy = quick();
  lossy.allow_loss = true;
  const stele::Report report = good(OnnxRecorder<>(into).save(more, dir / "x.onnx", lossy));
  REQUIRE(report.size() == 1);
  CHECK(report[0].path == "extra");
  CHECK(good(stele::open(dir / "x.onnx")).leaf_count() == 5);
  CHECK(bad(OnnxRecorder<>(OnnxFormat({.model = dir / "none"})).save(more, dir / "y.onnx")).code() == Errc::not_found);
}

TEST_CASE("onnx: initializers by hand") {
  const std::string two("\0\0\x80\x3f\0\0\0\x40", 8);
  const Snapshot plain = good(opened(model_with(tensor(1, bytes(9, two)))));
  CHECK(content_of(plain, "t") == two);
  // Packed dims, and fields in any order.
  CHECK(content_of(good(opened(model_with(bytes(9, two) + bytes(8, "t") + number(2, 1) + bytes(1, "\2")))), "t") ==
        two);
  // Unknown fields are skipped.
  CHECK(opened(number(100, 1) + model_with(tensor(1, bytes(9, two) + bytes(200, "x"))) + bytes(300, "y")).has_value());
  // Negative numbers take ten bytes.
  CHECK(content_of(good(opened(model_with(tensor(3, bytes(5, varint(~0ULL) + varint(127)))))), "t") == "\xff\x7f");
  CHECK(content_of(good(opened(model_with(tensor(7, bytes(7, varint(~0ULL) + varint(1)))))), "t") ==
        std::string(8, '\xff') + "\1"s + std::string(7, '\0'));
  // Parts of computed elements.
  const Snapshot computed = good(opened(model_with(tensor(6, bytes(5, varint(1) + varint(258))))));
  std::array<std::byte, 4> part{};
  stele::ReadContext context;
  good(computed.leaf(0).read(4, part, context));
  CHECK(std::to_integer<int>(part[0]) == 2);
  CHECK(std::to_integer<int>(part[1]) == 1);
}

TEST_CASE("onnx: varints that are read in order are decoded once") {
  /// Counts the bytes that are read.
  class Counting final : public stele::Source {
   public:
    explicit Counting(std::string text) : Source("counting"), text_(std::move(text)) {}
    std::uint64_t size() const noexcept override { return text_.size(); }
    stele::Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
      count += out.size();
      std::memcpy(out.data(), text_.data() + offset, out.size());
      return {};
    }
    mutable std::uint64_t count = 0;

   private:
    std::string text_;
  };
  constexpr std::uint64_t count = 1 << 19;
  std::string elements;
  for (std::uint64_t i = 0; i < count; ++i) elements += varint(i);
  const auto source = std::make_shared<Counting>(model_with(tensor(7, bytes(7, elements), number(1, count))));
  const Snapshot file = good(OnnxRecorder<>{}.open(stele::SourcePtr(source)));
  const LeafView leaf = file.leaf(0);
  stele::ReadContext context;
  std::vector<std::uint64_t> part(count / 64);
  const auto check = [&](std::uint64_t first) {
    good(leaf.read(8 * first, std::as_writable_bytes(std::span(part)), context));
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < part.size(); ++i) wrong += part[i] == first + i ? 0 : 1;
    CHECK(wrong == 0);
  };
  for (std::uint64_t first = 0; first < count; first += part.size()) check(first);
  CHECK(source->count < 4 * source->size() + 64 * (std::uint64_t{64} << 10));
  // In any order, and past the end of the last read.
  for (const std::uint64_t first : {count - part.size(), std::uint64_t{0}, count / 2, count / 2 + 1, count / 2 - 1})
    check(first);
}

TEST_CASE("onnx: the content of a model is recognised") {
  const OnnxFormat format;
  const auto recognised = [&](const std::string& head) { return format.recognises(bytes_of(head), 1000); };
  const std::string graph = bytes(7, "graph");
  for (const unsigned version : {1U, 9U, 63U}) CHECK(recognised(number(1, version) + graph));
  for (const unsigned version : {0U, 64U, 127U, 128U}) CHECK_FALSE(recognised(number(1, version) + graph));
  CHECK_FALSE(recognised(number(2, 9) + graph));
  for (const std::string& strings :
       {bytes(2, "producer"), bytes(4, std::string(512, 'd')), number(5, 300), number(5, 1) + bytes(8, "")}) {
    CHECK(recognised(number(1, 9) + strings + graph));
  }
  for (const std::string& other : {bytes(1, "x"), bytes(9, "x"), number(6, 1), bytes(4, std::string(513, 'd'))}) {
    CHECK_FALSE(recognised(number(1, 9) + other + graph));
  }
  CHECK(recognised(number(1, 9) + bytes(14, "property")));
  CHECK(recognised(number(1, 9) + bytes(7, std::string(1000, 'g'))));
  CHECK_FALSE(recognised(number(1, 9) + bytes(7, std::string(1001, 'g'))));
  for (std::size_t size = 0; size < 5; ++size) CHECK_FALSE(recognised((number(1, 9) + graph).substr(0, size)));
}

TEST_CASE("onnx: files that are wrong") {
  const auto check = [](const std::string& file, Errc code) {
    const auto result = opened(file);
    REQUIRE(!result);
    CHECK(name(result.error().code()) == name(code));
    CHECK(result.error().file() == "memory");
  };
  const std::string two(8, '\0');
  check(number(1, 9), Errc::malformed);                                               // no graph
  check(model_of("") + bytes(7, ""), Errc::malformed);                                // two
  check(model_of(bytes(15, "")), Errc::malformed);                                    // sparse, no name
  check(model_with(number(2, 1) + bytes(9, std::string(4, '\0'))), Errc::malformed);  // no name
  check(model_with(tensor(1, "")), Errc::malformed);                                  // no elements
  check(model_with(tensor(1, bytes(9, "1234567"))), Errc::malformed);                 // too few bytes
  check(model_with(tensor(1, bytes(9, two) + bytes(4, two))), Errc::malformed);       // twice
  check(model_with(tensor(1, bytes(5, "\1\1"))), Errc::malformed);                    // another dtype's field
  check(model_with(tensor(1, bytes(9, two), number(1, ~0ULL))), Errc::malformed);     // a negative extent
  check(model_with(tensor(1, bytes(9, two), number(1, 1ULL << 40) + number(1, 1ULL << 40))), Errc::malformed);
  check(model_with(tensor(6, bytes(5, "\1"))), Errc::malformed);  // one of two elements
  check(model_of(bytes(5, tensor(1, bytes(9, two))) + bytes(5, tensor(1, bytes(9, two)))), Errc::duplicate);
  check(model_of("") + bytes(14, entry("a", "1")) + bytes(14, entry("a", "2")), Errc::duplicate);
  check(model_with(tensor(1, number(14, 1) + bytes(9, two))), Errc::malformed);                        // here and there
  check(model_with(tensor(1, number(14, 1) + bytes(13, entry("location", "x")))), Errc::unsupported);  // no bundle
  check(number(1, 9) + "\x3a\x05", Errc::malformed);  // a field past the end
  check(number(1, 9) + "\x3b", Errc::malformed);      // a group

  // Elements are checked when they are read.
  for (const auto& [dtype, elements] : {std::pair(6U, varint(1ULL << 31) + varint(1)),
                                        {3U, varint(128) + varint(1)},
                                        {2U, varint(256) + varint(1)},
                                        {9U, varint(2) + varint(1)},
                                        {10U, varint(1 << 16) + varint(1)},
                                        {6U, varint(1) + varint(1) + varint(1)},
                                        {27U, varint(64) + varint(1)},
                                        {28U, varint(1) + varint(1) + varint(1)},
                                        {6U, "\x80\x80"s}}) {
    const Snapshot file = good(opened(model_with(tensor(dtype, bytes(5, elements)))));
    CHECK(bad(content(file.leaf(0))).code() == Errc::malformed);
  }
}

TEST_CASE("onnx: two 4-bit elements in a byte that is written as a signed number") {
  // onnx 1.16 writes int4 so: -113 for the byte 0x8f.
  const std::string signed_byte = varint(static_cast<std::uint64_t>(std::int64_t{-113}));
  for (const unsigned dtype : {21U, 22U, 23U}) {
    CAPTURE(dtype);
    const std::string elements = bytes(5, signed_byte + varint(0x37) + varint(0x0e));
    CHECK(content_of(good(opened(model_with(tensor(dtype, elements, number(1, 5))))), "t") == "\x8f\x37\x0e");
  }
  for (const std::int64_t wrong : {std::int64_t{-129}, std::int64_t{256}}) {
    const std::string elements = bytes(5, varint(static_cast<std::uint64_t>(wrong)));
    CHECK(bad(content(good(opened(model_with(tensor(22, elements)))).leaf(0))).code() == Errc::malformed);
  }
}

TEST_CASE("onnx: elements of 6 bits in a varint each are packed, four in three bytes") {
  // 1, 2, ..., from the low bits on.
  const std::string all = "\x81\x30\x10\x85\x71\x20\x09"s;
  for (const unsigned count : {0U, 1U, 2U, 3U, 4U, 7U, 9U}) {
    std::string elements;
    for (unsigned i = 1; i <= count; ++i) elements += varint(i);
    std::string packed = all.substr(0, (6 * count + 7) / 8);
    if (count % 4 != 0) packed.back() = static_cast<char>(packed.back() & (0xff >> (8 - 6 * count % 8) % 8));
    const Snapshot file = good(opened(model_with(tensor(27, bytes(5, elements), number(1, count)))));
    CAPTURE(count);
    CHECK(file.leaf(0).dtype() == DType::f6_e2m3);
    CHECK(content(file.leaf(0)).value() == packed);
    // Byte by byte, and from the middle of three bytes.
    stele::ReadContext context;
    for (std::size_t at = 0; at < packed.size(); ++at) {
      std::vector<std::byte> rest(packed.size() - at);
      good(file.leaf(0).read(at, rest, context));
      CHECK(std::memcmp(rest.data(), packed.data() + at, rest.size()) == 0);
    }
  }
}

TEST_CASE("onnx: codes that onnxruntime's operators unpack are not taken for weights") {
  const auto named = [](const std::string& name, unsigned dtype, const std::string& elements) {
    return bytes(5, number(1, 2) + number(2, dtype) + bytes(8, name) + bytes(9, elements));
  };
  const auto node = [](const std::string& domain, const std::string& op, std::initializer_list<const char*> inputs) {
    std::string fields;
    for (const char* const input : inputs) fields += bytes(1, input);
    return bytes(1, fields + bytes(2, "y") + bytes(4, op) + bytes(7, domain));
  };
  const std::string tensors = named("w_Q4", 2, "ab") + named("w_scales", 1, std::string(8, '\0')) + named("c", 2, "cd");
  struct Case {
    std::string node;
    bool packed;
  };
  for (const Case& c : {Case{node("com.microsoft", "MatMulNBits", {"x", "w_Q4", "w_scales"}), true},
                        Case{node("com.microsoft", "MatMulBnb4", {"x", "w_Q4", "w_scales"}), true},
                        Case{node("com.microsoft", "GatherBlockQuantized", {"w_Q4", "i", "w_scales"}), true},
                        Case{node("com.microsoft", "MatMulNBits", {"x"}), false},
                        Case{node("own", "MatMulNBits", {"x", "w_Q4", "w_scales"}), false},
                        Case{node("", "Add", {"x", "w_Q4", "w_scales"}), false}}) {
    const Snapshot file = good(opened(model_of(c.node + tensors)));
    CHECK(file.leaf_count() == 3);
    CHECK(file.notes().size() == (c.packed ? 1 : 0));
    const TempDir dir;
    const auto saved = stele::save(file, dir / "a.onnx");
    CHECK(saved.has_value() == !c.packed);
    if (c.packed) CHECK(saved.error().code() == Errc::unsupported);
    CHECK(stele::save(stele::raw_codes(file), dir / "b.onnx").has_value());
  }
}

TEST_CASE("onnx: texts of a model without operations are left out, and listed") {
  const std::string one = bytes(5, tensor(2, bytes(9, "ab"))), told = bytes(1, "k") + bytes(2, "v");
  const auto lost = [](const std::string& file) {
    const TempDir dir;
    return good(OnnxRecorder<>().save(good(opened(file)), dir / "a.onnx")).count(stele::Report::What::lost);
  };
  CHECK(lost(model_of(one)) == 0);
  for (const std::string& file :
       {bytes(6, "text") + model_of(one), bytes(4, "org") + model_of(one), number(5, 3) + model_of(one),
        model_of(one + bytes(10, "text")), model_of(one + bytes(16, told)),
        model_with(tensor(2, bytes(9, "ab") + bytes(12, "text"))),
        model_with(tensor(2, bytes(9, "ab") + bytes(16, told)))}) {
    CHECK(lost(file) == 1);
  }
  CHECK(lost(number(5, 0) + bytes(6, "") + model_of(one)) == 0);
}

TEST_CASE("onnx: what is no tensor of a known kind is unreadable, and all else is read") {
  const std::string two(8, '\0'), good_one = bytes(5, number(1, 2) + number(2, 1) + bytes(8, "good") + bytes(9, two));
  const auto in_graph = [&](const std::string& fields) { return model_of(fields + good_one); };
  const std::string strings = tensor(8, bytes(6, "a") + bytes(6, "b")), unknown = tensor(99, bytes(9, two));
  const std::string sparse = bytes(1, bytes(8, "t") + bytes(9, two)) + bytes(2, bytes(9, two));
  const auto constant = [](const std::string& attribute) {
    return bytes(1, bytes(2, "t") + bytes(4, "Constant") + bytes(5, attribute));
  };
  struct Case {
    std::string file, reason, raw;
  };
  const std::string value_string = bytes(1, "value_string") + bytes(4, "text");
  for (const Case& c : {
           Case{in_graph(bytes(5, strings)), "strings", strings},
           Case{in_graph(bytes(5, tensor(25, bytes(9, "1")))), "elements of TensorProto.DataType 25",
                tensor(25, bytes(9, "1"))},
           Case{in_graph(bytes(5, tensor(0, ""))), "elements of TensorProto.DataType 0", tensor(0, "")},
           Case{in_graph(bytes(5, tensor(1, bytes(9, two) + bytes(3, "")))), "a segment of a tensor",
                tensor(1, bytes(9, two) + bytes(3, ""))},
           Case{in_graph(bytes(5, tensor(6, number(5, 1) + number(5, 2)))), "elements that are not packed",
                tensor(6, number(5, 1) + number(5, 2))},
           Case{in_graph(bytes(15, sparse)), "a sparse tensor", sparse},
           Case{in_graph(constant(bytes(1, "sparse_value") + bytes(22, sparse))), "a sparse tensor", sparse},
           Case{in_graph(constant(bytes(1, "value") + bytes(5, strings))), "strings", strings},
           Case{in_graph(constant(value_string)), "strings", value_string},
           Case{in_graph(bytes(5, tensor(99, number(14, 1) + bytes(13, entry("location", "none"))))),
                "elements of TensorProto.DataType 99", ""},
       }) {
    CAPTURE(c.reason);
    const Snapshot file = good(opened(c.file));
    REQUIRE(file.leaf_count() == 2);
    const LeafView leaf = *file.find("t");
    CHECK(leaf.dtype() == DType::opaque);
    CHECK(leaf.annotations()->at("unreadable") == stele::Value(c.reason));
    CHECK(good(content(leaf)) == c.raw);
    CHECK(content_of(file, "good") == two);
    // A module that needs it does not load, and a save replaces the others only.
    struct All {
      Tensor<float, 1> good, t;
    };
    const auto all = bytes_of(c.file);
    const std::vector<std::byte> memory(all.begin(), all.end());
    CHECK_FALSE(OnnxRecorder<>{}.load<All>(memory));
    struct Part {
      Tensor<float, 1> good;
    };
    stele::LoadOptions some;
    some.allow_unused = {"t"};
    Part part = good(OnnxRecorder<>{}.load<Part>(memory, some));
    const TempDir dir;
    write_text(dir / "m.onnx", c.file);
    part.good(0) = 1;
    const OnnxRecorder<> into(OnnxFormat({.model = dir / "m.onnx"}));
    good(into.save(part, dir / "n.onnx", quick()));
    const Snapshot saved = good(stele::open(dir / "n.onnx"));
    CHECK(content_of(saved, "good") == "\0\0\x80\x3f\0\0\0\0"s);
    CHECK(content_of(saved, "t") == c.raw);
    CHECK(bad(into.save(All{part.good, part.good}, dir / "n.onnx", quick())).found().find(c.reason) !=
          std::string_view::npos);
  }
}

TEST_CASE("onnx: elements in other files") {
  const TempDir dir;
  std::filesystem::create_directory(dir / "model");
  std::filesystem::create_directory(dir / "model/sub");
  const std::string two("\0\0\x80\x3f\0\0\0\x40", 8);
  for (const char* file : {"outside.bin", "model/inside.bin", "model/sub/inside.bin"})
    write_text(dir / file, "1234" + two);
  std::error_code no_privilege;  // on Windows
  std::filesystem::create_symlink("../outside.bin", dir / "model/link.bin", no_privilege);
  const auto from = [&](const std::string& location, const std::string& offset = "4", const std::string& length = "8") {
    std::string fields = number(14, 1) + bytes(13, entry("location", location));
    if (!offset.empty()) fields += bytes(13, entry("offset", offset));
    if (!length.empty()) fields += bytes(13, entry("length", length));
    write_text(dir / "model/m.onnx", model_with(tensor(1, fields)));
    return stele::open(dir / "model/m.onnx");
  };
  CHECK(content_of(good(from("inside.bin")), "t") == two);
  CHECK(content_of(good(from("sub/inside.bin", "4", "")), "t") == two);
  CHECK(content_of(good(from("inside.bin", "", "8")), "t") == "1234" + two.substr(0, 4));
  CHECK(content_of(good(from("inside.bin", "4", "0")), "t") == two);  // no length
  CHECK(content_of(good(from("./inside.bin")), "t") == two);
  CHECK(content_of(good(from("././sub/inside.bin")), "t") == two);
  for (const std::string location : {"../outside.bin", "/etc/passwd", "sub/../inside.bin", "./../outside.bin", "./", "",
                                     ".", "sub/", "sub\\inside.bin"}) {
    CAPTURE(location);
    CHECK(bad(from(location)).code() == Errc::malformed);
    CHECK(bad(from(location)).path() == "t");
  }
  CHECK_FALSE(from("sub").has_value());
  CHECK(bad(from("none.bin")).code() == Errc::not_found);
  CHECK_FALSE(from("link.bin").has_value());
  CHECK(bad(from("inside.bin", "5")).code() == Errc::truncated);
  CHECK(bad(from("inside.bin", "18446744073709551615")).code() == Errc::truncated);
  for (const char* wrong : {"-4", "4x", "99999999999999999999999"})
    CHECK(bad(from("inside.bin", wrong)).code() == Errc::malformed);
  CHECK(bad(from("inside.bin", "4", "7")).code() == Errc::malformed);
}

TEST_CASE("onnx: a file for each tensor, more of them than stay open") {
  const TempDir dir;
  constexpr std::uint64_t count = 200;
  std::string graph;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string name = "w" + std::to_string(i);
    write_text(dir / name, varint(i % 100) + "\1\2\3");
    graph +=
        bytes(5, number(1, 4) + number(2, 2) + bytes(8, name) + number(14, 1) + bytes(13, entry("location", name)));
  }
  write_text(dir / "m.onnx", model_of(graph));
#ifdef __linux__
  const auto open_files = [] {
    const auto all = std::filesystem::directory_iterator("/proc/self/fd");
    return static_cast<std::uint64_t>(std::distance(begin(all), end(all)));
  };
  const std::uint64_t before = open_files();
#endif
  const Snapshot model = good(stele::open(dir / "m.onnx"));
#ifdef __linux__
  CHECK(open_files() < before + count / 2);
#endif
  for (std::uint64_t i = 0; i < count; ++i)
    CHECK(content_of(model, "w" + std::to_string(i)) == varint(i % 100) + "\1\2\3");
  std::filesystem::remove(dir / "w199");
  std::string content(4, ' ');
  CHECK_FALSE(model.find("w199")->read(0, std::as_writable_bytes(std::span(content))));
}

}  // namespace onnx_test
