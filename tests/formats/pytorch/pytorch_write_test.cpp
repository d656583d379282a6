// Files of PyTorch: the zip file, tensors and their storages, what names cannot express. Loaded by torch.load of 1.13
// and 2.15 with weights_only=True: data/written.
#include <sstream>

#include "pytorch_written.hpp"
#include "support/pytorch_outcome.hpp"

namespace pytorch_write_test {

namespace {

using namespace stele_test;
using namespace stele_test::pytorch;

Value integer(std::int64_t n) { return Value(n); }

/// The model of data/written.
struct Tiny {
  std::shared_ptr<Linear> encoder, decoder;
  Tensor<std::int64_t, 0> steps;
  Tensor<bool, 1> mask;
  double rate = 0.5;
  STELE_MODULE(Tiny, encoder, decoder, steps, mask, rate)
};
Tiny tiny(float first = 1) {
  Tiny t;
  t.encoder = t.decoder = std::make_shared<Linear>(3, 2, first);
  t.steps = Tensor<std::int64_t, 0>(std::array<stele::Extent, 0>{});
  *t.steps.data() = 1LL << 40;
  t.mask = Tensor<bool, 1>({3}, {true, false, true});
  return t;
}

std::string golden(const std::string& name) { return read_text(test_data("pytorch") + "/written/" + name); }

/// Compares all bytes with their checksums.
bool intact(const detail::zip::Directory& zip) {
  const LoadOptions options;
  detail::Meter meter(options.progress, 0);
  return good(zip.check(meter)).size() == 1;  // the zip's own records
}

TEST_SUITE_BEGIN("pytorch");

TEST_CASE("pytorch writes: the bytes of a state_dict") {
  SaveOptions options;
  options.metadata = {{"author", "someone"}};
  const Tiny t = tiny();
  const std::string file = file_of(snapshot(t), options);
  CHECK(file == golden("state_dict.pt"));
  CHECK(file == file_of(snapshot(t), options));
}

TEST_CASE("pytorch writes: entries in order, storages aligned, checksums right") {
  const std::string file = file_of(snapshot(tiny()));
  const auto zip = good(open_zip(file));
  std::vector<std::string> names;
  for (const auto& entry : zip->entries()) {
    names.emplace_back(entry.name);
    CHECK(entry.method == detail::zip::stored);
    CHECK(entry.flags == 0);  // no descriptor
    if (entry.name.starts_with("archive/data/")) CHECK(good(zip->data(entry)) % 64 == 0);
  }
  CHECK(names == std::vector<std::string>{"archive/data.pkl", "archive/byteorder", "archive/data/0", "archive/data/1",
                                          "archive/data/2", "archive/data/3", "archive/version"});
  CHECK(intact(*zip));
  CHECK(entry_of(file, "byteorder") == "little");
  CHECK(entry_of(file, "version") == "3\n");
  CHECK(entry_of(file, "data/1") == "\0\0\x80\x3f\0\0\x80\x3f"s);
  CHECK(entry_of(file, "data/3") == "\1\0\1"s);
}

TEST_CASE("pytorch writes: tied tensors have one storage") {
  const std::string file = file_of(snapshot(tied_layers(3)));
  CHECK(object_of(file) ==
        "O{'embedding': T(Float '0' 2, (2), (1)), 'middle': T(Float '1' 1, (1), (1)), "
        "'encoder.weight': T(Float '2' 4, (2, 2), (2, 1)), 'encoder.bias': T(Float '3' 2, (2), (1)), "
        "'decoder.bias': T(Float '3' 2, (2), (1)), 'decoder.weight': T(Float '2' 4, (2, 2), (2, 1)), "
        "'head': T(Float '0' 2, (2), (1))}|"
        "{'stele_metadata': {'stele': '{\"version\":1,\"aliases\":{\"decoder\":\"encoder\"}}'}}");
  // Names show the ties of single tensors.
  CHECK(object_of(file_of(Flat().tensor("a").alias("b").snapshot())) ==
        "O{'a': T(Float '0' 2, (2), (1)), 'b': T(Float '0' 2, (2), (1))}");
}

TEST_CASE("pytorch writes: every dtype") {
  struct Case {
    DType dtype;
    std::string text;
  };
  for (const Case& c : std::vector<Case>{{DType::f64, "T(Double '0' 6, (2, 3), (3, 1))"},
                                         {DType::f32, "T(Float '0' 6, (2, 3), (3, 1))"},
                                         {DType::f16, "T(Half '0' 6, (2, 3), (3, 1))"},
                                         {DType::bf16, "T(BFloat16 '0' 6, (2, 3), (3, 1))"},
                                         {DType::i64, "T(Long '0' 6, (2, 3), (3, 1))"},
                                         {DType::i32, "T(Int '0' 6, (2, 3), (3, 1))"},
                                         {DType::i16, "T(Short '0' 6, (2, 3), (3, 1))"},
                                         {DType::i8, "T(Char '0' 6, (2, 3), (3, 1))"},
                                         {DType::u8, "T(Byte '0' 6, (2, 3), (3, 1))"},
                                         {DType::boolean, "T(Bool '0' 6, (2, 3), (3, 1))"},
                                         {DType::c64, "T(ComplexFloat '0' 6, (2, 3), (3, 1))"},
                                         {DType::c128, "T(ComplexDouble '0' 6, (2, 3), (3, 1))"},
                                         {DType::u16, "T('0' 12, (2, 3), (3, 1), torch.uint16)"},
                                         {DType::u32, "T('0' 24, (2, 3), (3, 1), torch.uint32)"},
                                         {DType::u64, "T('0' 48, (2, 3), (3, 1), torch.uint64)"},
                                         {DType::f8_e4m3fn, "T('0' 6, (2, 3), (3, 1), torch.float8_e4m3fn)"},
                                         {DType::f8_e5m2, "T('0' 6, (2, 3), (3, 1), torch.float8_e5m2)"},
                                         {DType::f8_e4m3fnuz, "T('0' 6, (2, 3), (3, 1), torch.float8_e4m3fnuz)"},
                                         {DType::f8_e5m2fnuz, "T('0' 6, (2, 3), (3, 1), torch.float8_e5m2fnuz)"},
                                         {DType::f8_e8m0, "T('0' 6, (2, 3), (3, 1), torch.float8_e8m0fnu)"}}) {
    CAPTURE(name(c.dtype));
    std::string bytes(*byte_length(c.dtype, 6), '\1');
    const std::string file = file_of(Flat().tensor("w", c.dtype, {2, 3}, bytes).snapshot());
    CHECK(object_of(file) == "O{'w': " + c.text + "}");
    CHECK(entry_of(file, "data/0") == bytes);
  }
  // Two numbers of four bits are one element in PyTorch.
  CHECK(object_of(file_of(Flat().tensor("w", DType::f4_e2m1, {3, 4}, "123456").snapshot())) ==
        "O{'w': T('0' 6, (3, 2), (2, 1), torch.float4_e2m1fn_x2)}");
  for (const DType dtype : {DType::i4, DType::u4, DType::f6_e2m3, DType::f6_e3m2, DType::string, DType::opaque}) {
    CAPTURE(name(dtype));
    CHECK(refused(Flat().tensor("w", dtype, {8}, "123456").snapshot()).code() == Errc::not_representable);
  }
}

TEST_CASE("pytorch writes: opaque tensors with the name of PyTorch's dtype") {
  struct Case {
    std::string type;
    std::vector<Extent> shape;
    std::string bytes, text;  // no text: refused
  };
  for (const Case& c : std::vector<Case>{{"complex32", {2}, "12345678", "T('0' 8, (2), (1), torch.complex32)"},
                                         {"bits16", {1, 3}, "123456", "T('0' 6, (1, 3), (3, 1), torch.bits16)"},
                                         {"bits4x2", {}, "1", "T('0' 1, (), (), torch.bits4x2)"},
                                         {"bits16", {2}, "123", ""},
                                         {"float32", {1}, "1234", ""},
                                         {"other", {1}, "1", ""}}) {
    CAPTURE(c.type);
    const Snapshot s =
        Flat().tensor("w", DType::opaque, c.shape, c.bytes).note(Value(c.type), "pytorch.dtype").snapshot();
    if (c.text.empty()) {
      CHECK(refused(s).code() == Errc::not_representable);
      continue;
    }
    const std::string file = file_of(s);
    CHECK(object_of(file) == "O{'w': " + c.text + "}");
    CHECK(entry_of(file, "data/0") == c.bytes);
  }
}

TEST_CASE("pytorch writes: shapes") {
  const std::string file = file_of(Flat()
                                       .tensor("scalar", DType::i8, {}, "a")
                                       .tensor("empty", DType::f32, {2, 0, 3}, "")
                                       .tensor("rank5", DType::u8, {1, 2, 3, 1, 2}, "123456789abc")
                                       .tensor("", DType::u8, {1}, "a")
                                       .snapshot());
  CHECK(object_of(file) ==
        "O{'scalar': T(Char '0' 1, (), ()), 'empty': T(Float '1' 0, (2, 0, 3), (3, 3, 1)), "
        "'rank5': T(Byte '2' 12, (1, 2, 3, 1, 2), (12, 6, 2, 2, 1)), '': T(Byte '3' 1, (1), (1))}");
  CHECK(entry_of(file, "data/1").empty());
  CHECK(object_of(file_of(Flat().snapshot())) == "O{}");
  const Error huge = refused(Flat().tensor("a", DType::u8, {0, std::uint64_t{1} << 63}, "").snapshot());
  CHECK(huge.code() == Errc::not_representable);
  CHECK(huge.path() == "a");
}

TEST_CASE("pytorch writes: quantized tensors") {
  const Value::Map whole{
      {"scheme", Value("zero_point")}, {"bits", integer(8)}, {"scale", Value(0.5)}, {"zero_point", integer(-3)}};
  CHECK(object_of(file_of(Flat().tensor("q", DType::i8, {2}, "ab").note(whole).snapshot())) ==
        "O{'q': Q(QInt8 '0' 2, (2), (1), (torch.per_tensor_affine, f0.5, -3))}");
  Value::Map rows{{"scheme", Value("zero_point")},
                  {"bits", integer(8)},
                  {"scale", Value(Value::List{Value(0.5), Value(0.25)})},
                  {"zero_point", Value(Value::List{integer(3), integer(4)})},
                  {"axis", integer(1)}};
  const std::string file = file_of(Flat().tensor("q", DType::u8, {1, 2}, "ab").note(rows).tensor("w").snapshot());
  CHECK(object_of(file) ==
        "O{'q': Q(QUInt8 '0' 2, (1, 2), (2, 1), (torch.per_channel_affine, T(Double '1' 2, (2), (1)), "
        "T(Long '2' 2, (2), (1)), 1)), 'w': T(Float '3' 2, (2), (1))}");
  CHECK(entry_of(file, "data/1") == "\0\0\0\0\0\0\xe0\x3f\0\0\0\0\0\0\xd0\x3f"s);
  CHECK(entry_of(file, "data/2") == "\3\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0"s);
  rows[3].second = Value(Value::List{Value(0.5), integer(4)});  // real zero points, which PyTorch has as f32
  CHECK(object_of(file_of(Flat().tensor("q", DType::u8, {1, 2}, "ab").note(rows).snapshot())) ==
        "O{'q': Q(QUInt8 '0' 2, (1, 2), (2, 1), (torch.per_channel_affine_float_qparams, T(Double '1' 2, (2), (1)), "
        "T(Double '2' 2, (2), (1)), 1))}");
  rows[3].second = Value(Value::List{Value(0.1), integer(4)});
  CHECK(refused(Flat().tensor("q", DType::u8, {1, 2}, "ab").note(rows).snapshot()).path() == "q");
  Value::Map wide = whole;
  wide[1].second = integer(32);
  CHECK(object_of(file_of(Flat().tensor("q", DType::i32, {1}, "abcd").note(wide).snapshot())) ==
        "O{'q': Q(QInt32 '0' 1, (1), (1), (torch.per_tensor_affine, f0.5, -3))}");
}

TEST_CASE("pytorch writes: quantizations that PyTorch does not have are lost") {
  const auto with = [](DType dtype, std::string key, Value value) {
    Value::Map note{
        {"scheme", Value("zero_point")}, {"bits", integer(8)}, {"scale", Value(0.5)}, {"zero_point", integer(3)}};
    for (auto& [k, v] : note) {
      if (k == key) v = value;
    }
    if (key == "axis" || key == "signed") note.emplace_back(key, value);
    return Flat().tensor("q", dtype, {2}, std::string(*byte_length(dtype, 2), 'a')).note(note).tensor("w").snapshot();
  };
  for (const Snapshot& s : {with(DType::i16, "", {}), with(DType::i32, "", {}), with(DType::i8, "bits", integer(4)),
                            with(DType::i8, "scheme", Value("linear")), with(DType::i8, "scale", Value("x")),
                            with(DType::i8, "zero_point", Value(0.5)), with(DType::i8, "axis", integer(0)),
                            with(DType::i8, "axis", Value("0")), with(DType::u8, "signed", Value(true))}) {
    const Error error = refused(s);
    CHECK(error.code() == Errc::not_representable);
    CHECK(error.path() == "q");
    SaveOptions options;
    options.allow_loss = true;
    CHECK(object_of(file_of(s, options)) == "O{'w': T(Float '0' 2, (2), (1))}");
  }
}

TEST_CASE("pytorch writes: containers that have one name become one") {
  namespace files = stele_test::pytorch_files;
  const std::string w = files::tensor(files::floats_storage("0", 2));
  struct Case {
    std::string object, written;
  };
  for (const Case& c :
       std::vector<Case>{{files::dict({{"", files::dict({{"x", w}})}, {"y", w}}),
                          "{'x': T(Float '0' 2, (2), (1)), 'y': T(Float '0' 2, (2), (1))}"},
                         {files::dict({{"a", files::dict({{"b.c", files::dict({{"x", w}})}})},
                                       {"a.b", files::dict({{"c", files::dict({{"y", w}})}})}}),
                          "{'a': {'b': {'c': {'x': T(Float '0' 2, (2), (1)), 'y': T(Float '0' 2, (2), (1))}}}}"}}) {
    const Snapshot file = good(files::opened(files::zip_file(c.object)));
    CHECK(object_of(file_of(file)) == c.written);
    BufferSink sink;
    const Report report = good(PytorchRecorder<>().save(file, sink));
    CHECK(report.to_string().find("containers with the name of another") != std::string::npos);
  }
}

TEST_CASE("pytorch writes: values and metadata are attributes of the dict") {
  Flat flat;
  flat.tensor("w")
      .value("rate", Value(0.5))
      .metadata({{"a", "b"}})
      .origin("metadata", R"({"":{"":{"version":1},"bn":{"version":2}}})");
  CHECK(object_of(file_of(flat.snapshot())) ==
        "O{'w': T(Float '0' 2, (2), (1))}|{'_metadata': O{'': {'version': 1}, 'bn': {'version': 2}}, "
        "'stele_metadata': {'a': 'b', 'stele': '{\"version\":1,\"values\":{\"rate\":0.5}}'}}");
  for (const auto& metadata :
       std::vector<std::map<std::string, std::string>>{{{"stele", R"({"version":1})"}}, {{"a", "\xff"}}}) {
    CHECK(refused(Flat().tensor("w").metadata(metadata).snapshot()).code() == Errc::not_representable);
  }
  for (const char* modules : {"[]", "{", "{} {}"}) {
    CAPTURE(modules);
    CHECK(refused(Flat().tensor("w").origin("metadata", modules).snapshot()).code() == Errc::malformed);
  }
  // Versions that an opened file may have, but no file gets.
  SaveOptions options;
  options.allow_loss = true;
  for (const char* modules : {R"({"a":{"__class__":"x"}})", R"({"a":1})"}) {
    CAPTURE(modules);
    Flat flat;
    const Snapshot s = flat.tensor("w").origin("metadata", modules).snapshot();
    CHECK(refused(s).code() == Errc::not_representable);
    CHECK(object_of(file_of(s, options)) == "O{'w': T(Float '0' 2, (2), (1))}");
  }
}

TEST_CASE("pytorch writes: names that are not UTF-8 or not unique are refused") {
  const Error utf8 = refused(Flat().tensor("a\xff").snapshot(), true);
  CHECK(utf8.code() == Errc::not_representable);
  CHECK(utf8.path() == "a\xff");
  CHECK(refused(Flat().tensor("a").tensor("b").tensor("a").snapshot()).code() == Errc::duplicate);
  CHECK(refused(Flat().tensor("b.x").tensor("a.x").alias("b.x").snapshot()).code() == Errc::duplicate);
  CHECK(object_of(file_of(Flat().tensor("π").snapshot())) == "O{'π': T(Float '0' 2, (2), (1))}");
}

/// Writes forward only.
class StreamOnly final : public Sink {
 public:
  StreamOnly() : Sink("stream") {}
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    for (const auto piece : pieces) text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return {};
  }
  using Sink::write;
  std::string text;
};

struct Large {
  Tensor<float, 2> many, some;
  STELE_MODULE(Large, many, some)
};

TEST_CASE("pytorch writes: the same bytes to memory, a file and a stream, from memory and computed") {
  Large large{Tensor<float, 2>::filled({1200, 1100}, 0.1F), mat(300, 100, 5)};  // 5 MiB, and 117 KiB
  const TempDir dir;
  const std::string file = file_of(snapshot(large));
  for (const unsigned threads : {1U, 2U}) {
    SaveOptions options;
    options.threads = threads;
    CHECK(file_of(snapshot(large), options) == file);
    good(PytorchRecorder<>().save(large, dir / "large.pt", options));
    CHECK(read_text(dir / "large.pt") == file);
  }
  StreamOnly stream;
  good(PytorchRecorder<>().save(large, stream));
  CHECK(stream.text == file);
  CHECK(intact(*good(open_zip(file))));

  using Half = PytorchRecorder<HalfPrecision>;
  StreamOnly forward;
  good(Half().save(large, forward));
  BufferSink buffer;
  good(Half().save(large, buffer));
  const std::string half(text_of(buffer.take().span()));
  CHECK(half == forward.text);
  CHECK(intact(*good(open_zip(half))));
  CHECK(object_of(half) ==
        "O{'many': T(Half '0' 1320000, (1200, 1100), (1100, 1)), "
        "'some': T(Half '1' 30000, (300, 100), (100, 1))}");
}

TEST_CASE("pytorch writes: 100,000 tensors, with zip64") {
  constexpr std::uint32_t count = 100000;
  Flat flat;
  for (std::uint32_t i = 0; i < count; ++i) flat.tensor("layer." + std::to_string(i), DType::u8, {1}, "a");
  const std::string file = file_of(flat.snapshot());
  const auto zip = good(open_zip(file));
  REQUIRE(zip->entries().size() == count + 3);
  CHECK(zip->entries()[2].name == "archive/data/0");
  CHECK(zip->entries()[count + 1].name == "archive/data/99999");
  const std::string pickled = entry_of(file, "data.pkl");
  const auto objects = good(pickles::read(pickled));
  REQUIRE(objects.items(objects.root()).size() == 2 * count);
  CHECK(pickles::show(objects, objects.items(objects.root())[2 * count - 2]) == "'layer.99999'");
  CHECK(pickled.size() < 150 * std::size_t{count});
}

TEST_SUITE_END();

}  // namespace

}  // namespace pytorch_write_test
