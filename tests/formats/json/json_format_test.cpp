// JSON records: the documents themselves, compression, documents of others, and hostile ones.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <zlib.h>
#include <zstd.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "base/limits.hpp"
#include "stele/precision/base64.hpp"
#include "steps/byte_order.hpp"
#include "support/child.hpp"
#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/sanitizers.hpp"
#include "support/stele_file.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace stele;
using namespace stele_test;

const MemoryRecorder<PlainJsonFormat> plain;
const MemoryRecorder<ZstdJsonFormat> zstd;
const MemoryRecorder<GzipJsonFormat> gzip;

struct Dense {
  Param<Tensor<float, 2>> weight;
  std::optional<Param<Tensor<float, 1>>> bias;
  STELE_MODULE(Dense, weight, bias)
};
struct Versioned {
  Tensor<std::int16_t, 1> t;
  STELE_MODULE(Versioned, t)
  static constexpr Attribute stele_attributes[] = {attr::version(3)};
};
struct All {
  std::vector<Dense> layers;
  std::variant<Dense, Versioned> choice;
  std::shared_ptr<Versioned> tied, again;
  std::map<std::string, Tensor<bool, 1>> named;
  std::string text;
  double rate = 0;
  int steps = 0;
  bool on = false;
  Value any;
  STELE_MODULE(All, layers, choice, tied, again, named, text, rate, steps, on, any)
};

All all() {
  All a;
  a.layers.resize(2);
  a.layers[0].weight.value = Tensor<float, 2>({2, 3}, {1, 2.5F, -0.0F, 0.1F, 1e-45F, 3e38F});
  a.layers[1].weight = {Tensor<float, 2>({1, 1}, {7}), ParamId::from_u64(UINT64_MAX)};
  a.layers[1].bias =
      Param<Tensor<float, 1>>(Tensor<float, 1>({0}), ParamId::from_uuid(0x0123456789abcdef, 0xfedcba9876543210));
  a.choice.emplace<Versioned>().t = Tensor<std::int16_t, 1>({2}, {-1, 300});
  a.tied = a.again = std::make_shared<Versioned>();
  a.tied->t = Tensor<std::int16_t, 1>({1}, {5});
  a.named.emplace("$x", Tensor<bool, 1>({2}, {true, false}));
  a.named.emplace("a.b", Tensor<bool, 1>({1}, {true}));
  a.text = "line\nü\"";
  a.rate = 0.5;
  a.steps = -3;
  a.on = true;
  a.any = Value(Value::Map{{"k", Value(Value::List{Value(), Value(std::numeric_limits<double>::infinity())})}});
  return a;
}

std::string inflated(std::string_view packed) {
  z_stream state{};
  REQUIRE(inflateInit2(&state, 15 + 16) == Z_OK);
  std::string text(1 << 22, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  state.avail_in = static_cast<uInt>(packed.size());
  state.next_out = reinterpret_cast<Bytef*>(text.data());
  state.avail_out = static_cast<uInt>(text.size());
  REQUIRE(inflate(&state, Z_FINISH) == Z_STREAM_END);
  text.resize(state.total_out);
  inflateEnd(&state);
  return text;
}
std::string deflated(std::string_view text) {
  z_stream state{};
  REQUIRE(deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&state, text.size()) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(packed.data());
  state.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&state, Z_FINISH) == Z_STREAM_END);
  packed.resize(state.total_out);
  deflateEnd(&state);
  return packed;
}
/// What any zstd program makes of it.
std::string decompressed(std::string_view packed) {
  std::string text(1 << 24, '\0');
  const std::size_t n = ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size());
  REQUIRE_MESSAGE(!ZSTD_isError(n), ZSTD_getErrorName(n));
  text.resize(n);
  return text;
}
std::string compressed(std::string_view text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

std::string document(std::string_view record) {
  return R"({"format":"stele-json","version":1,"metadata":{},"record":)" + std::string(record) + "}";
}

}  // namespace

TEST_CASE("json: the document") {
  const std::string text(text_of(plain.record(all()).value().span()));
  CHECK(
      text ==
      R"({"format":"stele-json","version":1,"metadata":{},"record":{"layers":[)"
      R"({"weight":{"$dtype":"F32","shape":[2,3],"data":"AACAPwAAIEAAAACAzczMPQEAAADmsWF/"},"bias":null},)"
      R"({"weight":{"$dtype":"F32","shape":[1,1],"id":"18446744073709551615","data":"AADgQA=="},)"
      R"("bias":{"$dtype":"F32","shape":[0],"id":"01234567-89ab-cdef-fedc-ba9876543210","data":""}}],)"
      R"("choice":{"$variant":"Versioned","value":{"$version":3,"t":{"$dtype":"I16","shape":[2],"data":"//8sAQ=="}}},)"
      R"("tied":{"$version":3,"t":{"$dtype":"I16","shape":[1],"data":"BQA="}},"again":{"$ref":"tied"},)"
      R"("named":{"$$x":{"$dtype":"BOOL","shape":[2],"data":"AQA="},"a.b":{"$dtype":"BOOL","shape":[1],"data":"AQ=="}},)"
      R"("text":"line\nü\"","rate":0.5,"steps":-3,"on":true,"any":{"$value":{"k":[null,{"$f64":"inf"}]}}}})");
  const All again = plain.load<All>(bytes_of(text)).value();
  CHECK(again.any == all().any);
  CHECK(again.tied == again.again);
  CHECK(again.layers[1].bias->id == all().layers[1].bias->id);
  CHECK(std::signbit((*again.layers[0].weight)(0, 2)));
}

TEST_CASE("json: readable numbers") {
  const JsonRecorder<> recorder(JsonFormat({.encoding = JsonEncoding::plain, .pretty = true, .numbers_up_to = 6}));
  BufferSink sink;
  REQUIRE(recorder.record(all(), sink));
  const Bytes bytes = sink.take();
  const std::string text(text_of(bytes.span()));
  CHECK(text.starts_with(R"({
  "format": "stele-json",
  "version": 1,
  "metadata": {},
  "record": {
    "layers": [
      {
        "weight": {"$dtype": "F32", "shape": [2, 3], "data": [
          [1.0,2.5,-0.0],
          [0.1,1e-45,3e+38]]},
        "bias": null
      },
      {
        "weight": {"$dtype": "F32", "shape": [1, 1], "id": "18446744073709551615", "data": [
          [7.0]]},
        "bias": {"$dtype": "F32", "shape": [0], "id": "01234567-89ab-cdef-fedc-ba9876543210", "data": ""}
      }
    ],
    "choice": {
      "$variant": "Versioned",
      "value": {
        "$version": 3,
        "t": {"$dtype": "I16", "shape": [2], "data": [-1,300]}
      }
    },)"));
  const Snapshot back = plain.open(bytes).value();
  CHECK(text_of(plain.record(back).value().span()) == text_of(plain.record(all()).value().span()));
}

namespace {

/// Saves the bits as numbers and gives what comes back.
template <class Word>
std::vector<Word> through_numbers(DType dtype, const std::vector<Word>& words) {
  static constexpr LeafOps ops{.view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
  SnapshotBuilder builder;
  builder.begin(NodeKind::module, "");
  builder.tensor("x", dtype, std::vector<Extent>{words.size()}, words.size() * sizeof(Word), {&ops, words.data(), 0});
  const JsonRecorder<> recorder(JsonFormat({.encoding = JsonEncoding::plain, .numbers_up_to = UINT64_MAX}));
  const auto bytes = saved(recorder, builder.finish());
  REQUIRE_MESSAGE(bytes, why(bytes));
  REQUIRE(text_of(bytes->span()).find("\"data\":[") != std::string_view::npos);
  const auto back = recorder.open(*bytes);
  REQUIRE_MESSAGE(back, why(back));
  const auto text = content(back->leaf(0));
  REQUIRE_MESSAGE(text, why(text));
  REQUIRE(text->size() == words.size() * sizeof(Word));
  std::vector<Word> again(words.size());
  std::memcpy(again.data(), text->data(), text->size());
  return again;
}

template <class Word>
std::vector<Word> random_words(std::size_t n) {
  Random random(3);
  std::vector<Word> words(n);
  for (Word& w : words) w = static_cast<Word>(random.bits());
  for (unsigned i = 0; i < 8 * sizeof(Word); ++i) words.push_back(static_cast<Word>(Word{1} << i));
  words.push_back(0), words.push_back(static_cast<Word>(~Word{0}));
  return words;
}

}  // namespace

TEST_CASE("json: numbers keep every bit") {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  for (const DType d : {DType::f16, DType::bf16, DType::i16, DType::u16}) {
    CAPTURE(std::string(name(d)));
    CHECK(through_numbers(d, halves) == halves);
  }
  for (const DType d : {DType::f32, DType::i32, DType::u32}) {
    CAPTURE(std::string(name(d)));
    const auto words = random_words<std::uint32_t>(20000);
    CHECK(through_numbers(d, words) == words);
  }
  for (const DType d : {DType::f64, DType::i64, DType::u64}) {
    CAPTURE(std::string(name(d)));
    const auto words = random_words<std::uint64_t>(20000);
    CHECK(through_numbers(d, words) == words);
  }
  std::vector<std::uint8_t> bytes(256);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  for (const DType d : {DType::i8, DType::u8, DType::boolean}) CHECK(through_numbers(d, bytes) == bytes);
}

TEST_CASE("json: numbers as others write them") {
  const auto load = [](const char* dtype, const char* shape, const std::string& data) {
    return content(plain
                       .open(bytes_of(document(R"({"x":{"$dtype":")" + std::string(dtype) + R"(","shape":)" + shape +
                                               R"(,"data":)" + data + "}}")))
                       .value()
                       .leaf(0));
  };
  const auto floats = [](std::vector<float> all) {
    return std::string(reinterpret_cast<const char*>(all.data()), all.size() * 4);
  };
  CHECK(load("F32", "[3]", "[ 1 ,\n2e0, -0.5E+1 ]").value() == floats({1, 2, -5}));
  CHECK(load("F32", "[2,1]", "[[1.00000000000000000000001],[16777217]]").value() == floats({1, 16777216}));
  CHECK(load("F32", "[]", "[4]").value() == floats({4}));
  for (const char* bad : {"[1,2]",           "[1,2,3,4]",  "[[1,2,3]]",  "[1,2,+3]",      "[1,2,03]",
                          "[1,2,.5]",        "[1,2,1.]",   "[1,2,1e]",   "[1,2,\"Inf\"]", "[1,2,\"0x7f800000\"]",
                          "[1,2,\"0x7fc\"]", "[1,2,1e39]", "[1,2,true]", "[1,2,null]",    "[1,2,3,]",
                          "[1,,2,3]",        "[1 2 3]",    "[1,2,3]]",   "[1,2,1e999]",   "[1,2,nan]"}) {
    CAPTURE(std::string(bad));
    const std::string text = document(R"({"a":1,"x":{"$dtype":"F32","shape":[3],"data":)" + std::string(bad) + "}}");
    const auto opened = plain.open(bytes_of(text));
    const auto read = opened ? plain.verify(bytes_of(text)) : Result<Report>(opened.error());
    REQUIRE(!read);
    if (opened) CHECK(read.error().path() == "x");
    REQUIRE(read.error().offset());
    CHECK(*read.error().offset() >= text.rfind("\"data\""));
    CHECK(*read.error().offset() <= text.size());
  }
  for (const char* bad : {"[1.0]", "[-0]", "[128]", "[-129]", "[1e2]", "[\"1\"]", "[99999999999999999999]"}) {
    CAPTURE(bad);
    CHECK_FALSE(load("I8", "[1]", bad));
  }
  CHECK_FALSE(load("U64", "[1]", "[18446744073709551616]"));
  CHECK(load("U64", "[1]", "[18446744073709551615]").value() == std::string(8, '\xff'));
  CHECK_FALSE(load("F16", "[1]", "[65520]"));
  CHECK(in_file_order(load("F16", "[1]", "[65519.9]").value(), DType::f16) == std::string("\xff\x7b"));
  // A number of a million digits.
  const std::string digits = "[1." + std::string(1000000, '0') + "]";
  CHECK(code_of(plain.open(bytes_of(document(R"({"x":{"$dtype":"F32","shape":[1],"data":)" + digits + "}}")))) ==
        Errc::limit);
  CHECK_FALSE(load("F32", "[1]", digits.substr(0, 2000) + "]"));
}

TEST_CASE("json: the encoding by name, or as it is told") {
  const TempDir dir;
  const All a = all();
  const std::string text(text_of(plain.record(a).value().span()));
  const JsonRecorder<> recorder;
  for (const char* name : {"m.json", "m.json.zst", "m.json.gz", "m.weights"}) {
    REQUIRE(recorder.record(a, dir / name, quick()));
    CHECK(image(load<All>(dir / name).value()) == image(a));
  }
  REQUIRE(recorder.record(a, dir / "none", quick()));
  CHECK(image(recorder.load<All>(dir / "none.json.zst").value()) == image(a));
  CHECK(read_text(dir / "m.json") == text);
  CHECK(decompressed(read_text(dir / "m.json.zst")) == text);
  CHECK(decompressed(read_text(dir / "m.weights")) == text);
  CHECK(inflated(read_text(dir / "m.json.gz")) == text);
  REQUIRE(save(a, dir / "front.json.gz", quick()));
  CHECK(read_text(dir / "front.json.gz") == read_text(dir / "m.json.gz"));
  CHECK(format_of_path("x.safetensors.index.json").value()->name() == "safetensors-sharded");
  CHECK(format_of_path("x.json").value()->name() == "json");
  const JsonRecorder<> told(JsonFormat({.encoding = JsonEncoding::gzip}));
  REQUIRE(told.record(a, dir / "told.json", quick()));
  CHECK(inflated(read_text(dir / "told.json")) == text);
}

namespace {

struct Large {
  std::vector<Tensor<float, 1>> leaves;
  STELE_MODULE(Large, leaves)
};

Large large() {
  Large made;
  Random random(5);
  for (const std::size_t n : {3U, 400000U, 0U, 17U, 900001U, 2U}) {
    made.leaves.emplace_back(Tensor<float, 1>({n}));
    random.fill(std::as_writable_bytes(made.leaves.back().span()));
  }
  return made;
}

/// Counts what is read.
class Counted final : public Source {
 public:
  explicit Counted(std::string bytes) : Source("counted"), bytes_(std::move(bytes)) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    REQUIRE(offset + out.size() <= bytes_.size());
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    read += out.size();
    return {};
  }
  mutable std::atomic<std::uint64_t> read{0};

 private:
  std::string bytes_;
};

}  // namespace

TEST_CASE("json: compressed bytes do not depend on the number of threads, and any zstd reads them") {
  const Large model = large();
  const std::string text(text_of(plain.record(model).value().span()));
  std::string first;
  for (const unsigned threads : {1U, 2U, 3U, 7U}) {
    SaveOptions options;
    options.threads = threads;
    const Bytes bytes = zstd.record(model, options).value();
    if (first.empty()) first = text_of(bytes.span());
    CHECK(text_of(bytes.span()) == first);
    LoadOptions loading;
    loading.threads = threads;
    CHECK(image(zstd.load<Large>(bytes, loading).value()) == image(model));
  }
  CHECK(decompressed(first) == text);
  for (const int level : {-50, 1, 3, 19}) {
    const MemoryRecorder<JsonFormat> recorder(JsonFormat({.level = level}));
    CHECK(decompressed(text_of(recorder.record(all()).value().span())) == text_of(plain.record(all()).value().span()));
  }
}

TEST_CASE("json: compressed by others: one pass to open, one more to load") {
  const Large model = large();
  const std::string text(text_of(plain.record(model).value().span()));
  const std::string half = text.substr(0, text.size() / 2);
  const std::string rest = text.substr(half.size());
  for (const std::string& packed :
       {compressed(text), compressed(half) + compressed(rest), deflated(text), deflated(half) + deflated(rest)}) {
    const auto source = std::make_shared<Counted>(packed);
    const auto opened = plain.open(SourcePtr(source));
    REQUIRE_MESSAGE(opened, why(opened));
    CHECK(source->read <= packed.size() + 64);
    for (const unsigned threads : {1U, 4U}) {
      source->read = 0;
      LoadOptions options;
      options.threads = threads;
      const auto loaded = from_snapshot<Large>(*opened, options);
      REQUIRE_MESSAGE(loaded, why(loaded));
      CHECK(image(*loaded) == image(model));
      CHECK(source->read <= packed.size());
    }
    // Back and forth works, too; it takes a pass each.
    CHECK(content(opened->leaf(4)).value().size() == 3600004);
    CHECK(content(opened->leaf(0)).value().size() == 12);
    std::byte row[4];
    REQUIRE(opened->leaf(4).read(4 * 900000, row));
    CHECK(std::memcmp(row, model.leaves[4].data() + 900000, 4) == 0);
    for (const std::size_t less : {std::size_t{1}, packed.size() / 2}) {
      const auto cut = plain.open(bytes_of(packed).first(packed.size() - less));
      CHECK_FALSE(cut);
    }
    CHECK_FALSE(plain.open(bytes_of(packed + "junk")));
  }
}

TEST_CASE("json: a file that is nothing but the frame of an index") {
  // Its first frame would be its last.
  std::string file;
  put(file, std::uint32_t{0x184d2a5d}), put(file, std::uint32_t{8});
  file += "stelejsn";
  for (const std::uint32_t entries : {1U, 2U, 3U}) {
    std::string with_table = file;
    put(with_table, std::uint32_t{0x184d2a5e}), put(with_table, std::uint32_t{8 * entries + 9});
    for (std::uint32_t i = 0; i < entries; ++i)
      put(with_table, std::uint32_t{i == 0 ? 16U : 0U}), put(with_table, std::uint32_t{0});
    put(with_table, entries);
    with_table += '\0';
    put(with_table, std::uint32_t{0x8f92eab1});
    CHECK(code_of(zstd.open(bytes_of(with_table))) == Errc::malformed);
    CHECK(code_of(zstd.open(bytes_of(with_table.substr(16)))) != Errc::none);
  }
}

TEST_CASE("json: an index that says fewer nodes than it has takes no more memory") {
  std::string lists;
  for (int i = 0; i < 2'000'000; ++i) lists += "[],";
  const std::string text = document("[" + lists + "1]");
  std::string index(24, '\0');  // the hash of the one frame, no tensors, no nodes
  const std::string frame = compressed("{}");
  put_at(index, 0, detail::hash64(frame.data(), frame.size()));
  const std::string packed = compressed(index + text);
  std::string file, entries, rest;
  put(file, std::uint32_t{0x184d2a5d}), put(file, std::uint32_t{8});
  file += "stelejsn" + frame;
  put(entries, std::uint32_t{16}), put(entries, std::uint32_t{0});
  put(entries, static_cast<std::uint32_t>(frame.size())), put(entries, std::uint32_t{2});
  put(rest, std::uint64_t{index.size() + text.size()});
  rest += packed;
  const std::string hashed = entries + rest;
  put(file, std::uint32_t{0x184d2a5d}), put(file, static_cast<std::uint32_t>(16 + rest.size()));
  file += "stelejsn";
  put(file, detail::hash64(hashed.data(), hashed.size()));
  file += rest;
  put(entries, static_cast<std::uint32_t>(24 + rest.size())), put(entries, std::uint32_t{0});
  put(file, std::uint32_t{0x184d2a5e}), put(file, static_cast<std::uint32_t>(entries.size() + 9));
  file += entries;
  put(file, std::uint32_t{3});
  file += '\0';
  put(file, std::uint32_t{0x8f92eab1});
  LoadOptions bounded;
  bounded.limits.index_bytes = std::uint64_t{64} << 20;
  const auto opened = zstd.open(bytes_of(file), bounded);
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code() == Errc::limit);
}

TEST_CASE("json: documents of others") {
  // Spaces, another order of keys, data before the shape, names in escapes.
  const std::string text = R"( { "format" : "stele-json", "version" : 1,
    "record": { "layers": [ {"bias": null,
      "we\u0069ght": { "$dtype":"F32", "data":"AACAPwAAAEA=", "shape":[ 1, 2 ]} } ] } , "metadata" : { "by" : "hand" } }
  )";
  struct Model {
    std::vector<Dense> layers;
  };
  const auto loaded = load<Model>(bytes_of(text));
  REQUIRE_MESSAGE(loaded, why(loaded));
  CHECK((*loaded->layers.at(0).weight)(0, 1) == 2);
  CHECK(open(bytes_of(text)).value().metadata().at("by") == "hand");
}

TEST_CASE("json: what is wrong is said, and where") {
  struct Case {
    const char* record;
    Errc code;
    const char* path;
    const char* at;  // the offset is that of this text
  };
  const Case cases[] = {
      {R"({"a":{"$dtype":"F32","shape":[1],"data":"AAAAA==="}})", Errc::malformed, "a", "AAAAA"},
      {R"({"a":{"$dtype":"F32","shape":[1],"data":"AAA*AA=="}})", Errc::malformed, "a", "AAA*"},
      {R"({"a":{"$dtype":"F32","shape":[1],"data":"AAAAAB=="}})", Errc::malformed, "a", "AAAAAB"},
      {R"({"a":{"$dtype":"F32","shape":[1],"data":"AAAAA"}})", Errc::malformed, "a", "\"AAAAA"},
      {R"({"a":{"$dtype":"F32","shape":[2],"data":"AAAAAA=="}})", Errc::malformed, "a", "\"AAAAAA"},
      {R"({"a":{"$dtype":"F32","data":"AAAAAA==","shape":[2]}})", Errc::malformed, "a", "\"AAAAAA"},
      {R"({"a":{"$dtype":"F31","shape":[1],"data":"AAAAAA=="}})", Errc::unsupported, "a", "\"F31"},
      {R"({"a":{"$dtype":"F32","shape":[-1],"data":"AAAAAA=="}})", Errc::out_of_range, "a", "-1"},
      {R"({"a":{"$dtype":"F32","shape":[4294967296,4294967296],"data":""}})", Errc::malformed, "a", "\"\""},
      {R"({"a":{"$dtype":"F32","shape":[1]}})", Errc::malformed, "a", nullptr},
      {R"({"a":{"$dtype":"F32","shape":[1],"data":null}})", Errc::malformed, "", "null}"},
      {R"({"a":{"$dtype":"F32","shape":[1],"data":7}})", Errc::malformed, "", "7}"},
      {R"({"a":{"$dtype":"F32","shape":[1],"shape":[1],"data":"AAAAAA=="}})", Errc::duplicate, "a",
       "\"shape\":[1],\"data"},
      {R"({"a":{"$dtype":"F32","shape":[1],"date":"AAAAAA=="}})", Errc::unsupported, "a", "\"date"},
      {R"({"a":{"shape":[1],"$dtype":"F32","data":"AAAAAA=="}})", Errc::unsupported, "a", "\"$dtype"},
      {R"({"a":{"\u0024dtype":"F32","shape":[1],"data":"AAAAAA=="}})", Errc::malformed, "a", "\"AAAA"},
      {R"({"a":{"$dtype":"F32","shape":[1],"d\u0061ta":"AAAAAA=="}})", Errc::malformed, "a", "\"AAAA"},
      {R"({"a":1,"a":2})", Errc::duplicate, "a", nullptr},
      {R"({"a":{"$ref":"b"},"b":1})", Errc::malformed, "a", nullptr},
      {R"({"a":{"b":{"$ref":"a"}}})", Errc::malformed, "a.b", nullptr},
      {R"({"a":{"$ref":"a"}})", Errc::malformed, "a", nullptr},
      {R"({"a":1,"b":{"$ref":"a"},"c":{"$ref":"b"}})", Errc::malformed, "c", nullptr},
      {R"({"a":{"$ref":"a","x":1}})", Errc::malformed, "a", "\"x\""},
      {R"({"a":{"$other":1}})", Errc::unsupported, "a", "\"$other"},
      {R"({"a":{"b":1,"$version":1}})", Errc::unsupported, "a", "\"$version"},
      {R"({"a":{"$version":4294967296}})", Errc::out_of_range, "a", "4294967296"},
      {R"({"a":{"$variant":"x"},"b":{"$variant":"x","other":1}})", Errc::malformed, "b", "\"other"},
      {R"({"a":{"$variant":"x","value":1,"more":1}})", Errc::malformed, "a", "\"more"},
      {R"({"a":{"$elements":{"1":1,"0":1}}})", Errc::duplicate, "a.0", nullptr},
      {R"({"a":{"$elements":{"x":1}}})", Errc::malformed, "a", "\"x\""},
      {R"({"a":01})", Errc::malformed, "a", "01"},
      {R"({"a":+1})", Errc::malformed, "a", "+1"},
      {R"({"a":1e999})", Errc::out_of_range, "a", "1e999"},
      {R"({"a":tru})", Errc::malformed, "a", "tru"},
      {R"({"a":NaN})", Errc::malformed, "a", "NaN"},
      {R"({"a":[1,]})", Errc::malformed, "a.1", "]}"},
      {R"({"a":1,})", Errc::malformed, "", "}}"},
      {R"({"a" 1})", Errc::malformed, "", "1}"},
      {R"({"a":"\x"})", Errc::malformed, "a", "\\x"},
      {R"({"a":"\ud800"})", Errc::malformed, "a", "\\ud800"},
  };
  for (const Case& c : cases) {
    CAPTURE(std::string(c.record));
    const std::string text = document(c.record);
    for (const std::string& file : {text, compressed(text), deflated(text)}) {
      const auto opened = JsonRecorder<>().open(bytes_of(file));
      const auto read = opened ? JsonRecorder<>().verify(bytes_of(file)) : Result<Report>(opened.error());
      REQUIRE(!read);
      CHECK(read.error().code() == c.code);
      CHECK(read.error().path() == c.path);
      if (c.at == nullptr) continue;
      REQUIRE(read.error().offset());
      CHECK(*read.error().offset() == text.find(c.at));
    }
  }
}

TEST_CASE("json: documents that are none") {
  const std::string good = document("{}");
  CHECK(plain.open(bytes_of(good)));
  for (const std::string& bad :
       {std::string(), std::string("{}"), std::string("[]"), std::string("null"), good + "x", good + good,
        "\xef\xbb\xbf" + good, good.substr(0, good.size() - 1),
        std::string(R"({"format":"other","version":1,"record":{}})"),
        std::string(R"({"format":"stele-json","version":2,"record":{}})"),
        std::string(R"({"format":"stele-json","version":1})"),
        std::string(R"({"format":"stele-json","version":1,"record":{},"layout":"flat"})"),
        std::string(R"({"format":"stele-json","version":1,"layout":"round","record":{}})"),
        std::string(R"({"format":"stele-json","version":1,"metadata":{"a":1},"record":{}})"),
        std::string(R"({"format":"stele-json","version":1,"metadata":{"a":"1","a":"2"},"record":{}})"),
        std::string(R"({"format":"stele-json","version":1,"more":1,"record":{}})"),
        std::string(R"({"format":"stele-json","version":1,"record":{},"record":{}})"),
        std::string(R"({"format":"stele-json","version":1,"layout":"flat","record":{"a":{"b":1}}})")}) {
    CAPTURE(bad);
    const auto opened = plain.open(bytes_of(bad));
    CHECK_FALSE(opened);
    CHECK_FALSE(zstd.open(bytes_of(compressed(bad))));
  }
}

namespace {

/// Runs `f` with `most` more bytes of address space than there are now.
template <class F>
std::string with_memory(std::uint64_t most, F f) {
  return in_child([&]() -> std::string {
    if (!sanitizers) {
      const std::uint64_t limit = address_space() + most;
      const rlimit address{limit, limit};
      if (::setrlimit(RLIMIT_AS, &address) != 0) return "no limit";
    }
    return f();
  });
}

/// A zstd stream of `head`, `count` times `more`, and `tail`.
std::string stream(const std::string& head, const std::string& more, std::size_t count, const std::string& tail) {
  std::string packed(ZSTD_compressBound(std::size_t{1} << 20) + 1024, '\0');
  std::string all;
  const std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  const auto put = [&](const std::string& text, ZSTD_EndDirective end) {
    ZSTD_inBuffer in{text.data(), text.size(), 0};
    std::size_t left = 1;
    while (left != 0 || in.pos != in.size) {
      ZSTD_outBuffer out{packed.data(), packed.size(), 0};
      left = ZSTD_compressStream2(context.get(), &out, &in, end);
      REQUIRE(!ZSTD_isError(left));
      all.append(packed, 0, out.pos);
      if (end == ZSTD_e_continue && in.pos == in.size) break;
    }
  };
  put(head, ZSTD_e_continue);
  for (std::size_t i = 0; i < count; ++i) put(more, ZSTD_e_continue);
  put(tail, ZSTD_e_end);
  return all;
}

}  // namespace

TEST_CASE("json: deep nesting, and bombs") {
  const std::string deep(1000000, '[');
  CHECK(code_of(plain.open(bytes_of(document(deep)))) == Errc::limit);
  CHECK(code_of(plain.open(bytes_of(document(R"({"a":{"$value":)" + deep)))) == Errc::limit);
  std::string objects;
  for (int i = 0; i < 200000; ++i) objects += R"({"a":)";
  CHECK(code_of(plain.open(bytes_of(document(objects)))) == Errc::limit);
  const std::string levels = std::string(63, '[') + std::string(63, ']');
  CHECK(plain.open(bytes_of(document(R"({"a":{"$value":)" + levels + "}}"))));
  CHECK(code_of(plain.open(bytes_of(document(R"({"a":{"$value":[[)" + levels + "]]}}")))) == Errc::limit);

  const std::string megabyte(std::size_t{1} << 20, ' ');
  const std::string head = R"({"format":"stele-json","version":1,"metadata":{},"record":{"a":)";
  const std::string tensor = R"({"$dtype":"F32","shape":[1],"data":)";
  const std::string a(std::size_t{1} << 20, 'A');
  std::string lists;
  for (int i = 0; i < 1 << 18; ++i) lists += "[],";
  const std::string bombs[] = {
      stream(head, megabyte, 4096, "1}}"),                   // spaces
      stream(head + tensor + "\"", a, 4096, "\"}}}"),        // more data than a tensor has
      stream(head + tensor + "[", megabyte, 4096, "1]}}}"),  // spaces between numbers
      stream(head + "\"", a, 4096, "\"}}"),                  // a text
      stream(head + "[", lists, 512, "1]}}"),                // nodes
      stream(head + R"({"$value":[)", lists, 512, "1]}}}"),  // values
      stream(R"({"format":"stele-json","version":1,"metadata":{"a":")", a, 4096, "\"}}"),
  };
  for (const std::string& bomb : bombs) {
    REQUIRE(bomb.size() < std::size_t{1} << 20);
    CHECK(with_memory(detail::compressed_index_base + (std::uint64_t{128} << 20), [&]() -> std::string {
            const auto opened = plain.open(bytes_of(bomb));
            if (opened) return "opened";
            const Errc code = opened.error().code();
            return code == Errc::limit || code == Errc::malformed ? "" : why(opened);
          }) == "");
  }
  // A tensor that is as large as it says is none; what it takes is up to Limits.
  const std::string zeros = stream(
      R"({"format":"stele-json","version":1,"metadata":{},"record":{"a":{"$dtype":"U8","shape":[805306368],"data":")",
      a, 1024, "\"}}}");
  struct Model {
    Tensor<std::uint8_t, 1> a;
  };
  LoadOptions options;
  options.limits.tensor_bytes = std::uint64_t{1} << 20;
  CHECK(code_of(plain.load<Model>(bytes_of(zeros), options)) == Errc::limit);
}

namespace {
struct Chain {
  Tensor<float, 1> t{{1}, {1.F}};
  std::unique_ptr<Chain> next;
  STELE_MODULE(Chain, t, next)
};
}  // namespace

TEST_CASE("json: modules as deep as they may be") {
  Chain first;
  Chain* last = &first;
  for (int i = 0; i < 250; ++i) last = (last->next = std::make_unique<Chain>()).get();
  const Bytes bytes = zstd.record(first).value();
  CHECK(zstd.load<Chain>(bytes));
}

TEST_CASE("json: a leaf below 512 modules, as in .stele") {
  const auto nested = [](int modules) {
    std::string text;
    for (int i = 1; i < modules; ++i) text += R"({"m":)";
    return document(text + R"({"v":1})" + std::string(static_cast<std::size_t>(modules) - 1, '}'));
  };
  const auto opened = plain.open(bytes_of(nested(512)));
  REQUIRE_MESSAGE(opened, why(opened));
  const Bytes again = BytesRecorder<>().record(*opened).value();
  CHECK(BytesRecorder<>().open(again.span()));
  CHECK(code_of(plain.open(bytes_of(nested(513)))) == Errc::limit);
}

TEST_CASE("json: base64, every character at every place") {
  for (std::size_t size : {0U, 1U, 2U, 3U, 11U, 12U, 13U, 24U, 47U, 48U, 49U, 100U}) {
    std::vector<std::byte> bytes(size);
    Random random(size + 1);
    random.fill(bytes);
    std::string text(base64_size(size), '?');
    base64_encode(bytes, text.data());
    std::vector<std::byte> again(size + 1, std::byte{7});
    REQUIRE(base64_decoded_size(text) == size);
    REQUIRE(base64_decode(text, again.data()));
    CHECK(std::equal(bytes.begin(), bytes.end(), again.begin()));
    CHECK(again.back() == std::byte{7});  // and no more was written
    for (std::size_t at = 0; at < text.size(); ++at) {
      for (int c = 0; c < 256; ++c) {
        std::string changed = text;
        changed[at] = static_cast<char>(c);
        again.assign(size + 3, std::byte{0});
        const std::size_t expected = base64_decoded_size(changed);
        if (!base64_decode(changed, again.data())) continue;
        // What is taken is what is written for those bytes, and nothing else is.
        again.resize(expected);
        std::string back(base64_size(expected), '?');
        base64_encode(again, back.data());
        REQUIRE(back == changed);
      }
    }
  }
}
