// NNEF: quantized tensors, and items whose width an annotation declares.
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "nnef_support.hpp"
#include "support/golden_text.hpp"

namespace stele_test::nnef_quantization_test {

using namespace nnef;
using stele::Errc;
using stele::Value;

namespace {

struct Floats {
  Tensor<float, 2> w;
  Tensor<double, 1> d;
  Tensor<std::int32_t, 1> i;
  Tensor<float, 1> none;
  STELE_MODULE(Floats, w, d, i, none)
};
Floats floats() {
  Floats f;
  f.w = Tensor<float, 2>({3, 3}, {-1.0F, -0.5F, 0.0F, 0.25F, 0.3F, 0.7F, 1.0F, 0.9F, 0.1F});
  f.d = Tensor<double, 1>({5}, {10, 11, 12.5, 13, 17});
  f.i = Tensor<std::int32_t, 1>({2}, {1, -70000});
  f.none = Tensor<float, 1>({0});
  return f;
}

/// The largest distance; the sizes are equal.
template <class A, class B>
double distance(const A& a, const B& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a.data()[i]) - static_cast<double>(b.data()[i])));
  }
  return most;
}

template <class Settings>
void check_quantized(unsigned bits) {
  CAPTURE(bits);
  const Floats before = floats();
  const double steps = std::ldexp(1.0, static_cast<int>(bits)) - 1;
  // Without graph = true too: quantized tensors need it.
  for (const bool graph : {true, false}) {
    const NnefRecorder<Settings> recorder(NnefFormat({.graph = graph}));
    Report report;
    const auto bundle = good(folder_of(recorder, before, &report));
    REQUIRE(report.count(Report::What::quantized) == 2);
    CHECK(report[0].path == "w");
    const std::string row(report[0].detail);
    CHECK(row.starts_with("f32 -> " + std::to_string(bits) + " bits in [-1, 1]; largest error "));
    CHECK(std::stod(row.substr(row.find("error ") + 6)) <= 1.0 / steps + 1e-4);
    CHECK(std::string(report[1].detail).starts_with("f64 -> "));

    const std::string file = text_in(*bundle, "w.dat");
    CHECK(file.size() == 128 + (9 * bits + 7) / 8);
    CHECK(word(file, 44) == bits);
    CHECK(word(file, 48) == 2);
    if (bits == 4) {  // two items in a byte, the first in the high bits
      CHECK(static_cast<unsigned char>(file[128]) == (0U << 4 | 4U));
      CHECK((static_cast<unsigned char>(file.back()) & 15U) == 0);
    }
    CHECK(text_in(*bundle, "graph.quant") ==
          "\"v0_w\": min_max_linear_quantize(min = -1.0, max = 1.0, bits = " + std::to_string(bits) +
              ", signed = false, symmetric = false);\n"
              "\"v1_d\": min_max_linear_quantize(min = 10.0, max = 17.0, bits = " +
              std::to_string(bits) + ", signed = false, symmetric = false);\n");
    CHECK(text_in(*bundle, "graph.nnef").find("v0_w = variable<scalar>") != std::string::npos);
    CHECK(text_in(*bundle, "graph.nnef").find("v2_i = variable<integer>") != std::string::npos);

    stele::LoadOptions options;
    options.dequantize = true;
    Floats after = good(recorder.template load<Floats>(stele::bundle_source(bundle), options));
    CHECK(distance(after.w, before.w) <= 1.0 / steps + 1e-6);
    CHECK(distance(after.d, before.d) <= 3.5 / steps + 1e-6);
    CHECK(image(after.i) == image(before.i));
    CHECK(image(after.none) == image(before.none));

    const Snapshot raw = good(recorder.open(stele::bundle_source(bundle)));
    const auto leaf = raw.find("w");
    REQUIRE(leaf);
    CHECK(leaf->dtype() == DType::u8);
    REQUIRE(leaf->annotations() != nullptr);
    const Value& note = leaf->annotations()->at("quantization");
    REQUIRE(note.find("bits") != nullptr);
    CHECK(*note.find("bits")->as_i64() == bits);
    CHECK(*note.find("scheme")->as_string() == "linear");
    CHECK(*note.find("min")->as_f64() == -1.0);
    CHECK(leaf->annotations()->contains("nnef.bits") == (bits != 8));
    CHECK_FALSE(raw.find("i")->annotations());
    // Integers are not taken for floats by mistake.
    CHECK(code_of(recorder.template load<Floats>(stele::bundle_source(bundle))) == Errc::dtype_mismatch);
    // A file that was opened is written again as it was.
    const auto again = good(folder_of(NnefRecorder<>(), raw));
    CHECK(text_in(*again, "w.dat") == file);
    CHECK(text_in(*again, "graph.quant") == text_in(*bundle, "graph.quant"));
  }
}

}  // namespace

TEST_CASE("nnef: floats become integers of 8 and of 4 bits") {
  check_quantized<stele::Quantized8>(8);
  check_quantized<stele::Quantized4>(4);
}

TEST_CASE("nnef: quantized tensors in other formats") {
  const Floats before = floats();
  CHECK(code_of(saved(stele::SafetensorsRecorder<stele::Quantized8>(), before)) == Errc::not_representable);
  const auto bytes = good(saved(stele::BinaryRecorder<stele::Quantized8>(), before));
  stele::LoadOptions options;
  options.dequantize = true;
  const Floats after = good(stele::BinaryRecorder<>().load<Floats>(bytes, options));
  CHECK(distance(after.w, before.w) <= 1.0 / 255 + 1e-6);
  // A tensor file has no text beside it.
  const NnefRecorder<stele::Quantized8> tensor(NnefFormat({.container = NnefContainer::tensor}));
  CHECK(code_of(saved(tensor, before.w)) == Errc::not_representable);
  // From the binary file to NNEF.
  const auto bundle = good(folder_of(NnefRecorder<>(), good(stele::BinaryRecorder<>().open(bytes))));
  CHECK(names_of(*bundle) == Names{"d.dat", "graph.nnef", "graph.quant", "i.dat", "none.dat", "w.dat"});
}

TEST_CASE("nnef: what graph.quant says, and what it cannot") {
  const auto map = [](std::initializer_list<std::pair<std::string, Value>> items) { return Value(Value::Map(items)); };
  const auto text = [&](Value note, DType dtype = DType::u8) {
    const auto bundle = folder_of(
        NnefRecorder<>(),
        flat({{"w", dtype, {1}, std::string(element_size(dtype), '\0'), {{"quantization", std::move(note)}}}}));
    return bundle ? text_in(**bundle, "graph.quant") : bundle.error().to_string();
  };
  const Value eight(std::int64_t{8});
  CHECK(text(map({{"scheme", Value("linear")}, {"bits", eight}, {"min", Value(-1.5)}, {"max", Value(1e30)}})) ==
        "\"v0_w\": min_max_linear_quantize(min = -1.5, max = 1e+30, bits = 8, signed = false, symmetric = false);\n");
  CHECK(text(map({{"scheme", Value("linear")},
                  {"bits", eight},
                  {"min", Value(std::int64_t{-2})},
                  {"max", Value(2.0)},
                  {"signed", Value(true)},
                  {"symmetric", Value(true)}}),
             DType::i8) ==
        "\"v0_w\": min_max_linear_quantize(min = -2.0, max = 2.0, bits = 8, signed = true, symmetric = true);\n");
  CHECK(text(map({{"scheme", Value("zero_point")},
                  {"bits", eight},
                  {"scale", Value(0.1)},
                  {"zero_point", Value(std::int64_t{-3})},
                  {"signed", Value(true)}}),
             DType::i8) ==
        "\"v0_w\": zero_point_linear_quantize(zero_point = -3, scale = 0.1, bits = 8, signed = true, symmetric = "
        "false);\n");
  CHECK(text(map({{"scheme", Value("logarithmic")}, {"bits", eight}, {"max", Value(4.0)}})) ==
        "\"v0_w\": logarithmic_quantize(max = 4.0, bits = 8);\n");
  const auto refused = [&](Value note) {
    const std::string said = text(std::move(note));
    CHECK_MESSAGE(said.starts_with("not_representable: w: "), said);
  };
  refused(Value("linear"));
  refused(map({{"scheme", Value("linear")}, {"bits", eight}, {"min", Value(0.0)}}));
  refused(map({{"scheme", Value("linear")}, {"bits", eight}, {"min", Value(0.0)}, {"max", Value(INFINITY)}}));
  refused(map({{"scheme", Value("cubic")}, {"bits", eight}}));
  refused(map({{"scheme", Value("logarithmic")}, {"bits", eight}, {"max", Value(4.0)}, {"signed", Value(true)}}));
  refused(
      map({{"scheme", Value("linear")}, {"bits", Value(std::int64_t{9})}, {"min", Value(0.0)}, {"max", Value(1.0)}}));
  // Per channel.
  const auto channels = [](double x) { return Value(Value::List{Value(x)}); };
  const Value axis(std::int64_t{0});
  for (const Value& scale : {channels(0.5), Value(0.5)}) {
    for (const Value& zero : {channels(3), Value(std::int64_t{3})}) {
      const Value note = map(
          {{"scheme", Value("zero_point")}, {"bits", eight}, {"scale", scale}, {"zero_point", zero}, {"axis", axis}});
      refused(note);
      CHECK(text(note).find("expected one scale and zero point for the whole tensor") != std::string::npos);
    }
  }
  refused(
      map({{"scheme", Value("zero_point")}, {"bits", eight}, {"scale", channels(0.5)}, {"zero_point", channels(3)}}));
  refused(
      map({{"scheme", Value("linear")}, {"bits", eight}, {"min", Value(0.0)}, {"max", Value(1.0)}, {"axis", axis}}));

  // A text that is not understood is kept, and written again; one that is no operation is refused.
  const auto kept = [&](Value note) {
    return code_of(
        folder_of(NnefRecorder<>(), flat({{"w", DType::u8, {1}, "\0"s, {{"nnef.quantization", std::move(note)}}}})));
  };
  CHECK(kept(Value("mine(scale = [[0.5], [2.0]])")) == Errc::none);
  CHECK(kept(Value("mine(a = 1); \"v\": yours(b = 2)")) == Errc::not_representable);
  CHECK(kept(Value("mine(")) == Errc::not_representable);
  CHECK(kept(Value("")) == Errc::not_representable);
  CHECK(kept(Value(true)) == Errc::not_representable);
}

TEST_CASE("nnef: quantization that differs by channel is kept as text") {
  const std::string folder = nnef_golden("model.nnef");
  const Snapshot opened = good(NnefRecorder<>().open(folder));
  const auto leaf = opened.find("head.linear.weight_channels");
  REQUIRE(leaf);
  REQUIRE(leaf->annotations() != nullptr);
  CHECK_FALSE(leaf->annotations()->contains("quantization"));
  CHECK(*leaf->annotations()->at("nnef.quantization").as_string() ==
        "zero_point_linear_quantize(zero_point = [[0], [3]], scale = [[0.5], [0.125]], bits = 8, signed = true, "
        "symmetric = false)");
  const auto bundle = good(folder_of(NnefRecorder<>(), opened));
  const Snapshot again = good(NnefRecorder<>().open(stele::bundle_source(bundle)));
  CHECK(again.find("head.linear.weight_channels")->annotations()->at("nnef.quantization") ==
        leaf->annotations()->at("nnef.quantization"));
  for (std::size_t i = 0; i < opened.leaf_count(); ++i) {
    const std::string path = opened.leaf(i).path();
    CAPTURE(path);
    REQUIRE(again.find(path));
    CHECK(good(content(opened.leaf(i))) == good(content(*again.find(path))));
    CHECK(type_text(opened.leaf(i)) == type_text(*again.find(path)));
  }
}

TEST_CASE("nnef: items that are wider than their quantization says") {
  const auto bundle = stele::memory_bundle();
  put(*bundle, "graph.nnef", "version 1.0; graph g(x) -> (w) { w = variable(shape = [2], label = 'w'); }");
  put(*bundle, "graph.quant", "\"w\": linear_quantize(min = -1.0, max = 1.0, bits = 4);");
  put(*bundle, "w.dat",
      text_in(*good(folder_of(NnefRecorder<>(),
                              flat({{"w", DType::u8, {2}, "\x0f\xff", {{"nnef.quantized", Value(true)}}}}))),
              "w.dat"));
  const Snapshot opened = good(NnefRecorder<>().open(stele::bundle_source(bundle)));
  CHECK(*opened.leaf(0).annotations()->at("nnef.bits").as_i64() == 8);
  const auto again = good(folder_of(NnefRecorder<>(), opened));
  CHECK(text_in(*again, "w.dat") == text_in(*bundle, "w.dat"));
  CHECK(text_in(*again, "graph.quant").find("bits = 4") != std::string::npos);
}

TEST_CASE("nnef: numbers of graph.quant that no number holds") {
  const auto note = [](const std::string& operation) {
    const auto bundle = stele::memory_bundle();
    put(*bundle, "graph.nnef", "version 1.0; graph g(x) -> (w) { w = variable(shape = [1], label = 'w'); }");
    put(*bundle, "graph.quant", "\"w\": " + operation + ";");
    put(*bundle, "w.dat", text_in(*good(folder_of(NnefRecorder<>(), named({"w"}))), "w.dat"));
    const Snapshot s = good(NnefRecorder<>().open(stele::bundle_source(bundle)));
    return *s.leaf(0).annotations();
  };
  CHECK(note("linear_quantize(min = -1.0, max = 1.0, bits = 8)").contains("quantization"));
  for (const std::string operation : {
           "linear_quantize(min = -1.0, max = 1e400, bits = 8)",
           "linear_quantize(min = -1.0, max = 1.0, bits = 99999999999999999999)",
           "linear_quantize(min = -1.0, max = 1.0, max = 2.0, bits = 8)",
           "linear_quantize(min = -1.0, max = 1.0, bits = 8, scheme = true)",
           "linear_quantize(min = -1.0, max = [1.0], bits = 8)",
           "linear_quantize(min = -1.0, max = 'one', bits = 8)",
           "tanh(x = 1.0)",
       }) {
    CAPTURE(operation);
    const auto notes = note(operation);
    CHECK_FALSE(notes.contains("quantization"));
    REQUIRE(notes.contains("nnef.quantization"));
    CHECK(*notes.at("nnef.quantization").as_string() == operation);
  }
}

TEST_CASE("nnef: widths that an annotation says") {
  const auto u12 = [](std::string bytes, std::int64_t bits) {
    return flat({{"w", DType::u16, {3}, std::move(bytes), {{"nnef.bits", Value(bits)}}}});
  };
  const auto tensor = in(NnefContainer::tensor);
  const std::string numbers =
      std::endian::native == std::endian::little ? "\x23\x01\x56\x04\xbc\x0a"s : "\x01\x23\x04\x56\x0a\xbc"s;
  CHECK(hex(text_of(good(saved(tensor, u12(numbers, 12))).span()).substr(128)) == "123456abc0");
  CHECK(code_of(saved(tensor, u12(numbers, 11))) == Errc::out_of_range);
  CHECK(code_of(saved(tensor, u12(numbers, 0))) == Errc::not_representable);
  CHECK(code_of(saved(tensor, u12(numbers, -1))) == Errc::not_representable);
  CHECK(code_of(saved(tensor, u12(numbers, 17))) == Errc::not_representable);
  CHECK(good(saved(tensor, u12(numbers, 16))).size() == 128 + 6);
  CHECK(hex(text_of(
                good(saved(tensor,
                           flat({{"w", DType::i8, {4}, "\xf8\x07\xff\x00"s, {{"nnef.bits", Value(std::int64_t{4})}}}})))
                    .span())
                .substr(128)) == "87f0");
  CHECK(code_of(saved(tensor, flat({{"w", DType::i8, {1}, "\xf7"s, {{"nnef.bits", Value(std::int64_t{4})}}}}))) ==
        Errc::out_of_range);
  CHECK(code_of(saved(tensor, flat({{"w", DType::i8, {1}, "\x08"s, {{"nnef.bits", Value(std::int64_t{4})}}}}))) ==
        Errc::out_of_range);
  CHECK(code_of(saved(tensor, flat({{"w", DType::boolean, {1}, "\x02"s}}))) == Errc::malformed);
}

TEST_CASE("nnef: items of a vendor are kept as they are") {
  for (const char* const file : {"by_hand/vendor.dat", "by_hand/vendor_blocks.dat"}) {
    const Snapshot opened = good(NnefRecorder<>().open(nnef_golden(file)));
    const auto leaf = opened.leaf(0);
    CHECK(leaf.dtype() == DType::opaque);
    REQUIRE(leaf.annotations() != nullptr);
    CHECK(*leaf.annotations()->at("nnef.vendor").as_i64() == word(read_text(nnef_golden(file)), 48) >> 16);
    CHECK(*leaf.annotations()->at("nnef.type").as_i64() == (word(read_text(nnef_golden(file)), 48) & 0xffff));
    CHECK(*leaf.annotations()->at("nnef.bits").as_i64() == word(read_text(nnef_golden(file)), 44));
    const auto bundle = good(folder_of(NnefRecorder<>(), opened));
    const Snapshot again = good(NnefRecorder<>().open(stele::bundle_source(bundle)));
    CHECK(good(content(again.leaf(0))) == good(content(leaf)));
    CHECK(*again.leaf(0).annotations() == *leaf.annotations());
  }
  const auto vendor = [](std::int64_t number, std::int64_t type, std::int64_t bits) {
    return code_of(
        saved(in(NnefContainer::tensor),
              flat({{"w",
                     DType::opaque,
                     {2},
                     "abc",
                     {{"nnef.vendor", Value(number)}, {"nnef.type", Value(type)}, {"nnef.bits", Value(bits)}}}})));
  };
  CHECK(vendor(1, 0, 0) == Errc::none);
  CHECK(vendor(0xffff, 0xffff, 0xffffffff) == Errc::none);
  CHECK(vendor(0, 0, 8) == Errc::not_representable);
  CHECK(vendor(0x10000, 0, 8) == Errc::not_representable);
  CHECK(vendor(1, 0x10000, 8) == Errc::not_representable);
  CHECK(vendor(1, -1, 8) == Errc::not_representable);
  CHECK(vendor(1, 0, 0x100000000) == Errc::not_representable);
  CHECK(vendor(1, 0, -1) == Errc::not_representable);
}

}  // namespace stele_test::nnef_quantization_test
