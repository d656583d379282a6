// Paddle: what is written, and read back.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "paddle_support.hpp"
#include "support/golden_text.hpp"

namespace stele_test::paddle_test {

using namespace paddle;
using stele::Errc;
using stele::PaddleFraming;
using stele::PaddleOrder;
using stele::SaveOptions;
using stele::Snapshot;
using stele::Value;

TEST_CASE("paddle: bytes by hand") {
  const std::string file = small_paddle_file();
  CHECK(file.size() == 86);
  CHECK(hex(file) ==
        "00000000000000000000000000000000040000000805100300001041000000410000e040"
        "0000000000000000000000000000000006000000080510021003000000000000803f0000004000004040000080400000a040");
  CHECK(file_of(plain, net()) == file);
  const std::string b = file.substr(0, 36);
  const std::string w = file.substr(36);
  CHECK(file_of(by({.framing = PaddleFraming::sized}), net()) == sized_frame(b) + sized_frame(w));
  CHECK(file_of(by({.framing = PaddleFraming::named}), net()) == named_frame("fc.b", b) + named_frame("fc.w", w));
  CHECK(file_of(by({.order = PaddleOrder::declared}), net()) == w + b);
  const auto bundle = stele::memory_bundle();
  good(by({.folder = true}).save(net(), *stele::bundle_sink(bundle)));
  CHECK(files_in(*bundle) == std::map<std::string, std::string>{{"fc.b", b}, {"fc.w", w}});

  const auto loads = [&](const PaddleRecorder<>& recorder, const std::string& text) {
    CHECK(image(good(recorder.load<Net>(own(text)))) == image(net()));
  };
  loads(plain, file);
  loads(plain, sized_frame(b) + sized_frame(w));  // by the content
  loads(plain, named_frame("fc.w", w) + named_frame("fc.b", b));
  loads(by({.framing = PaddleFraming::sized}), sized_frame(b) + sized_frame(w));
  loads(by({.framing = PaddleFraming::named}), named_frame("fc.w", w) + named_frame("fc.b", b));
  loads(by({.order = PaddleOrder::declared}), w + b);
  CHECK(code_of(by({.framing = PaddleFraming::sized}).load<Net>(own(file))) == Errc::truncated);
  CHECK(code_of(by({.framing = PaddleFraming::named}).load<Net>(own(file))) == Errc::truncated);
  // The framing is known also if the first tensor has an empty name, or levels.
  const std::string lod = paddle_record(5, {2}, std::string(8, 'x'), {{0, 2}});
  CHECK(good(plain.open(own(named_frame("", w)))).leaf(0).path().empty());
  CHECK(good(plain.open(own(named_frame("", lod)))).leaf(0).path().empty());
  CHECK(good(counting.open(own(sized_frame(lod)))).leaf(0).shape().size() == 1);
  // A scalar has no extents; empty ones have no bytes.
  CHECK(good(counting.open(own(paddle_record(6, {}, "12345678")))).leaf(0).byte_size() == 8);
  CHECK(good(counting.open(own(paddle_record(6, {3, 0}, "")))).leaf(0).byte_size() == 0);
  CHECK(good(counting.open(own(""))).leaf_count() == 0);
  // SIZE_T is read, and written as UINT64.
  const Snapshot size = good(counting.open(own(paddle_record(19, {1}, "12345678"))));
  CHECK(size.leaf(0).dtype() == DType::u64);
  CHECK(file_of(plain, size) == paddle_record(38, {1}, "12345678"));
}

TEST_CASE("paddle: a tied tensor stands under each of its names") {
  const TiedLayers tied = tied_layers(3);
  SaveOptions options = quick();
  stele::BufferSink sink;
  const stele::Report report = good(plain.save(tied, sink, options));
  CHECK(report.paths(stele::Report::What::lost) == std::vector<std::string>{"head", "decoder"});
  const auto names = std::vector<std::string>{"embedding",    "middle",         "head",        "encoder.weight",
                                              "encoder.bias", "decoder.weight", "decoder.bias"};
  const stele::Bytes bytes = sink.take();
  const Snapshot opened = good(plain.open(bytes, named_as(names)));
  CHECK(opened.leaf_count() == 7);
  CHECK(opened.leaf(0).path() == "decoder.bias");
  const TiedLayers back = good(stele::load<TiedLayers>(opened));
  CHECK((**back.embedding)[1] == 3);
  CHECK((**back.head)[1] == 3);
  CHECK((**back.decoder->bias)[0] == 3);
  TiedLayers live = tied_layers(0);
  good(plain.load_into(live, bytes));
  CHECK(image(live) == image(tied));
}

TEST_CASE("paddle: what the files cannot hold") {
  const WithValue module{vec({1}), "text"};
  const stele::Error error = bad(saved(plain, module));
  CHECK(error.code() == Errc::not_representable);
  CHECK(error.path() == "label");
  SaveOptions options;
  options.metadata = {{"made", "here"}};
  CHECK(bad(saved(plain, net(), options)).code() == Errc::not_representable);
  options.allow_loss = true;
  stele::BufferSink sink;
  const stele::Report report = good(plain.save(module, sink, options));
  CHECK(report.count(stele::Report::What::lost) == 2);
  CHECK(text_of(sink.take().span()) == paddle_record(5, {1}, "\0\0\x80\x3f"s));

  const auto of = [](DType dtype, const std::vector<stele::Extent>& shape) {
    stele::SnapshotBuilder builder;
    builder.set_flat();
    static constexpr std::byte bytes[16]{};
    builder.tensor("t", dtype, shape, *stele::byte_length(dtype, *stele::element_count(shape)),
                   {&memory_ops, bytes, 0});
    return builder.finish();
  };
  for (const DType dtype : {DType::u16, DType::i4, DType::f8_e8m0, DType::f8_e4m3fnuz, DType::f4_e2m1}) {
    CAPTURE(stele::name(dtype));
    CHECK(bad(saved(plain, of(dtype, {4}))).code() == Errc::not_representable);
  }
  CHECK(saved(plain, of(DType::f32, std::vector<stele::Extent>(9, 1))));
  CHECK(bad(saved(plain, of(DType::f32, std::vector<stele::Extent>(10, 1)))).code() == Errc::not_representable);
  CHECK(bad(saved(plain, of(DType::f32, {0, std::uint64_t{1} << 63U}))).code() == Errc::not_representable);
}

TEST_CASE("paddle: levels of detail") {
  const auto with = [](Value lod, std::vector<stele::Extent> shape = {5, 2}) {
    stele::SnapshotBuilder builder;
    builder.set_flat();
    static constexpr std::byte bytes[40]{};
    builder.tensor("t", DType::f32, shape, 4 * *stele::element_count(shape), {&memory_ops, bytes, 0});
    builder.annotate("paddle.lod", std::move(lod));
    return saved(plain, builder.finish());
  };
  const auto lists = [](const Lod& lod) {
    Value::List all;
    for (const auto& level : lod) {
      Value::List numbers;
      for (const std::uint64_t n : level) numbers.emplace_back(n);
      all.emplace_back(std::move(numbers));
    }
    return Value(std::move(all));
  };
  CHECK(text_of(good(with(lists({{0, 2, 5}}))).span()) == paddle_record(5, {5, 2}, std::string(40, '\0'), {{0, 2, 5}}));
  CHECK(with(lists({{0, 2, 2}, {0, 0, 5}})));
  CHECK(with(lists({})));
  CHECK(with(lists({{0, 1}}), {}));
  const Lod wrong[] = {{{1, 5}}, {{0, 4}},         {{0, 6}},      {{0, 3, 2, 5}},    {{0}},
                       {{}},     {{0, 3}, {0, 5}}, {{0, 2}, {5}}, {{0, UINT64_MAX}}, Lod(65, {0, 5})};
  for (const Lod& lod : wrong) {
    CHECK(bad(with(lists(lod))).code() == Errc::invalid_argument);
    const auto read = counting.open(own(paddle_record(5, {5, 2}, std::string(40, '\0'), lod)));
    CHECK(bad(read).code() == Errc::malformed);
  }
  for (const char* text : {"text", ""}) CHECK(bad(with(Value(text))).code() == Errc::invalid_argument);
  CHECK(bad(with(Value(Value::List{Value(1.0)}))).code() == Errc::invalid_argument);
  CHECK(bad(with(Value(Value::List{Value(Value::List{Value(0.0), Value(5.0)})}))).code() == Errc::invalid_argument);
}

TEST_CASE("paddle: another precision") {
  const PaddleRecorder<stele::HalfPrecision> half;
  stele::BufferSink sink;
  good(half.save(net(), sink));
  const std::string text(text_of(sink.take().span()));
  CHECK(text == paddle_record(4, {3}, "\x80\x48\x00\x48\x00\x47"s) +
                    paddle_record(4, {2, 3}, "\0\0\0\x3c\0\x40\0\x42\0\x44\0\x45"s));
  CHECK(image(good(plain.load<Net>(own(text)))) == image(net()));
}

TEST_CASE("paddle: what is written is read back the same") {
  const stele::Capabilities& can = PaddleFormat().capabilities();
  std::vector<DType> dtypes;
  for (const DType dtype : all_dtypes) {
    if (can.holds(dtype)) dtypes.push_back(dtype);
  }
  CHECK(dtypes.size() == 16);
  std::size_t empty = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    stele::SnapshotBuilder builder;
    builder.set_flat();
    std::set<std::string> names;
    LoadOptions options;
    options.layout.emplace();
    for (std::size_t i = random.below(12); i != 0; --i) {
      // Plain parts, no one's folder another one's file.
      std::string name = random.chance(30) ? "in/" : "";
      name += (random.chance(20) ? "\u65e5\u672c" : "w") + std::to_string(random.below(50));
      if (!names.insert(name).second) continue;
      const DType dtype = dtypes[random.below(dtypes.size())];
      std::vector<stele::Extent> shape(random.below(10));
      for (auto& e : shape) e = random.chance(5) ? 0 : 1 + random.below(shape.size() > 4 ? 2 : 5);
      if (random.chance(5)) shape = {200, 130};
      const std::uint64_t size = *stele::byte_length(dtype, *stele::element_count(shape));
      empty += size == 0 ? 1U : 0U;
      auto memory = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(size) + 1);
      random.fill(*memory);
      builder.tensor(builder.intern(name), dtype, shape, size,
                     {random.chance(50) ? &memory_ops : &read_only_ops, memory->data(), 0});
      builder.keep(std::move(memory));
      if (!shape.empty() && random.chance(20)) {
        Value::List level{Value(std::uint64_t{0}), Value(std::uint64_t{shape[0]})};
        builder.annotate("paddle.lod", Value(Value::List{Value(std::move(level))}));
      }
      options.layout->tensors.push_back({name, dtype, stele::Shape(shape)});
    }
    const Snapshot before = builder.finish();
    stele::Capabilities all = can;
    all.annotations = true;
    const auto wanted = facts(before, all);
    for (const PaddleFraming framing : {PaddleFraming::none, PaddleFraming::sized, PaddleFraming::named}) {
      for (const PaddleOrder order : {PaddleOrder::sorted, PaddleOrder::declared}) {
        const PaddleRecorder<> recorder = by({.order = order, .framing = framing});
        const std::string text = file_of(recorder, before);
        const Snapshot after = good(recorder.open(own(text), options));
        CHECK(difference(facts(after, all), wanted).empty());
        CHECK(file_of(recorder, after) == text);
        // Found by itself.
        CHECK(difference(facts(good(by({.order = order}).open(own(text), options)), all), wanted).empty());
      }
    }
    const PaddleRecorder<> folders = by({.folder = true});
    const auto bundle = stele::memory_bundle();
    if (names.empty()) {  // an empty folder is no model
      CHECK(bad(folders.save(before, *stele::bundle_sink(bundle))).code() == Errc::not_representable);
      CHECK(bad(plain.open(stele::bundle_source(bundle))).code() == Errc::missing);
      continue;
    }
    good(folders.save(before, *stele::bundle_sink(bundle)));
    CHECK(difference(facts(good(plain.open(stele::bundle_source(bundle))), all), wanted).empty());
    if (seed % 10 != 0) continue;
    const TempDir dir;
    good(folders.save(before, dir / "model", quick()));
    CHECK(difference(facts(good(plain.open(dir / "model")), all), wanted).empty());
    CHECK(files_in(*stele::folder_bundle(dir / "model")) == files_in(*bundle));
  }
  CHECK(empty > 20);
}

TEST_CASE("paddle: what is there and what replaces it") {
  const TempDir dir;
  SaveOptions once = quick();
  once.file.overwrite = false;
  good(plain.save(net(), dir / "m", once));
  CHECK(dir.names() == std::vector<std::string>{"m.pdiparams"});
  CHECK(bad(plain.save(net(), dir / "m", once)).code() == Errc::exists);
  good(plain.save(net(), dir / "m", quick()));

  const PaddleRecorder<> folders = by({.folder = true});
  good(folders.save(net(), dir / "folder", once));
  CHECK(names_in(dir / "folder") == std::vector<std::string>{"fc.b", "fc.w"});
  CHECK(bad(folders.save(net(), dir / "folder", once)).code() == Errc::exists);
  const Fc other{Tensor<float, 2>({1, 1}, {1}), vec({2})};
  good(folders.save(other, dir / "folder", quick()));
  CHECK(names_in(dir / "folder") == std::vector<std::string>{"b", "w"});
  CHECK(image(good(folders.load<Fc>(dir / "folder"))) == image(other));

  // Anything else that lies there is not thrown away.
  std::filesystem::create_directories(dir / "data/2024");
  CHECK(code_of(folders.save(other, dir / "data", quick())) == Errc::exists);
  write_text(dir / "data/2024/voltage", std::string(64, '\0'));
  CHECK(code_of(folders.save(other, dir / "data", quick())) == Errc::exists);
  CHECK(names_in(dir / "data/2024") == std::vector<std::string>{"voltage"});
  write_text(dir / "folder/__model__", program_desc({var_desc("b", tensor_desc(5, {1}))}));
  const stele::Error error = bad(folders.save(net(), dir / "folder", quick()));
  CHECK(error.code() == Errc::exists);
  CHECK(error.found() == "__model__");
  CHECK(names_in(dir / "folder") == std::vector<std::string>{"__model__", "b", "w"});
  SaveOptions beside = quick();
  beside.file.allow_nonatomic = true;
  good(folders.save(net(), dir / "folder", beside));
  CHECK(names_in(dir / "folder") == std::vector<std::string>{"__model__", "b", "fc.b", "fc.w", "w"});
  CHECK(good(plain.open(dir / "folder")).leaf_count() == 1);  // what the program has
  // A program without parameters has none, whatever lies beside.
  write_text(dir / "folder/__model__", program_desc({}));
  CHECK(good(plain.open(dir / "folder")).leaf_count() == 0);
}

TEST_CASE("paddle: names that no file can have") {
  const PaddleRecorder<> folders = by({.folder = true});
  for (const std::string& name :
       {"../x"s, "a/../../x"s, ".."s, "/x"s, ""s, "a\\b"s, "a\0b"s, "__model__"s, "__model__.json"s}) {
    CAPTURE(name);
    stele::SnapshotBuilder builder;
    builder.set_flat();
    builder.tensor(builder.intern(name), DType::f32, std::vector<stele::Extent>{0}, 0, {&memory_ops, nullptr, 0});
    const TempDir dir;
    const stele::Error error = bad(folders.save(builder.finish(), dir / "folder", quick()));
    CHECK((error.code() == Errc::invalid_argument || error.code() == Errc::not_representable));
    CHECK(error.path() == name);
    CHECK(dir.names().empty());
  }
}

TEST_CASE("paddle: a folder into a sink that has none") {
  stele::BufferSink sink;
  const Net model = net();
  const Snapshot snapshot = good(stele::snapshot_of(model));
  CHECK(code_of(PaddleFormat({.folder = true}).write(snapshot, sink, {})) == Errc::unsupported);
}

}  // namespace stele_test::paddle_test
