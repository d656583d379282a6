// One behaviour, every recorder: names, bits, bytes, files, losses, edits.
#include <doctest/doctest.h>
#include <stele/precision/complex.hpp>
#include <stele/recorders/onnx.hpp>
#include <stele/recorders/openvino.hpp>
#include <stele/recorders/samediff.hpp>

#include <algorithm>
#include <bit>
#include <complex>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <stele/bundle.hpp>

#include "support/any_recorder.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace recorders_files_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

struct Named {
  std::map<std::string, Tensor<float>> tensors;
  STELE_MODULE(Named, tensors)
};

Branch branch(std::uint64_t seed) {
  Random random(seed);
  return RandomModule(random, true).make();
}

template <class R, class M>
std::string text_saved(const R& recorder, const M& module, const SaveOptions& options = {}) {
  const auto bytes = saved(recorder, module, options);
  REQUIRE_MESSAGE(bytes, why(bytes));
  return std::string(text_of(bytes->span()));
}

/// One leaf `t` of two bytes (i4: four elements).
Snapshot one_leaf(DType dtype, std::initializer_list<Extent> shape, std::string_view name = "t") {
  static const std::byte bytes[64]{};
  const Shape extents(shape);
  SnapshotBuilder builder;
  builder.begin(NodeKind::module, "");
  builder.tensor(builder.intern(name), dtype, extents, *byte_length(dtype, *extents.element_count()),
                 {&memory_ops, bytes, 0});
  return builder.finish();
}

/// Returns the files of a folder, sorted.
std::vector<std::string> names_in(const TempDir& folder) { return good(folder_bundle(folder.path())->names()); }

}  // namespace

TEST_CASE("recorders: each file that is written beside the named one has a row, also if it replaces one") {
  struct Row {
    std::string path;
    std::function<Result<Report>(const std::string& path, const SaveOptions& options)> save;
    std::size_t files;
  };
  const std::map<std::string, Tensor<float>> tensors{
      {"a", Tensor<float>({64})}, {"b", Tensor<float>({64})}, {"c", Tensor<float>({400})}};
  const Snapshot three = good(snapshot_of(tensors));
  const auto with = [&](const auto& recorder) {
    return [&three, recorder](const std::string& path, const SaveOptions& options) {
      return recorder.save(three, path, options);
    };
  };
  const TempDir made;
  const std::string data = test_data("openvino") + "/net.";
  const Row rows[] = {
      {"m.safetensors.index.json", with(ShardedSafetensorsRecorder<>(ShardedSafetensorsFormat(300))), 4},
      {"m.sdnb", with(SameDiffRecorder<>({.container = SameDiffContainer::sdnb, .shard_bytes = 300})), 0},
      {"m.onnx", with(OnnxRecorder<>(OnnxFormat({.external = "m.data"}))), 2},
      {"m.xml",
       [&](const std::string& path, const SaveOptions& options) {
         return OpenvinoRecorder<>(OpenvinoFormat({data + "xml"})).save(good(stele::open(data + "xml")), path, options);
       },
       2},
      {"m.safetensors", with(SafetensorsRecorder<>()), 1},
  };
  for (const Row& row : rows) {
    CAPTURE(row.path);
    const TempDir folder;
    SaveOptions options;
    options.file.allow_nonatomic = true;
    for (int time = 0; time < 2; ++time) {
      std::vector<std::string> named = good(row.save(folder / row.path, options)).paths(Report::What::written);
      named.push_back(row.path);
      std::sort(named.begin(), named.end());
      CHECK(named == names_in(folder));
      CHECK((named.size() == row.files || (row.files == 0 && named.size() > 2)));
    }
    options.dry_run = true;
    CHECK(good(row.save(folder / row.path, options)).count(Report::What::written) == 0);
  }
}

STELE_TEST_EACH_RECORDER("recorders: any name of a key") {
  Named named;
  float number = 0;
  for (const std::string& key : {"日本語"s,    "cafe\u0301"s,
                                 "caf\u00e9"s, "\U0001f600"s,
                                 "a/b"s,       "a.b"s,
                                 "a"s,         "a.b.c"s,
                                 "a\\b"s,      "\\e"s,
                                 ""s,          "."s,
                                 ".."s,        "\\."s,
                                 " "s,         " lead and trail "s,
                                 "0"s,         "00"s,
                                 "10"s,        "2"s,
                                 "quote\""s,   "line\nbreak\t"s,
                                 "nul\0x"s,    "__metadata__"s,
                                 "stele"s,     "a-b"s,
                                 "a b"s,       std::string(70000, 'x')}) {
    named.tensors.emplace(key, Tensor<float>({1}, {number++}));
  }
  const auto bytes = saved(recorder, named);
  REQUIRE_MESSAGE(bytes, why(bytes));
  const auto after = recorder.load<Named>(*bytes);
  REQUIRE_MESSAGE(after, why(after));
  REQUIRE(after->tensors.size() == named.tensors.size());
  for (const auto& [key, tensor] : named.tensors) {
    REQUIRE(after->tensors.contains(key));
    CHECK(after->tensors.at(key)[0] == tensor[0]);
  }
  const auto file = recorder.open(*bytes);
  REQUIRE(file);
  CHECK(file->find("tensors.日本語"));
  CHECK(file->find("tensors.a\\.b"));
  CHECK(file->find("tensors.a\\\\b"));
  CHECK(file->find("tensors.\\e"));
  CHECK(!file->find("tensors.a.b"));

  named.tensors.emplace("\xff\xfe", Tensor<float>({1}, {1.F}));
  const auto odd = saved(recorder, named);
  if (odd) {
    const auto loaded = recorder.load<Named>(*odd);
    REQUIRE_MESSAGE(loaded, why(loaded));
    CHECK(loaded->tensors.contains("\xff\xfe"));
  } else {
    CHECK(odd.error().code() == Errc::not_representable);
  }
}

namespace {
struct Bits {
  Tensor<float> f32;
  Tensor<double> f64;
  Tensor<float16> f16;
  Tensor<bfloat16> bf16;
  Tensor<float> scalar, empty, hollow, nine;
  Tensor<std::uint8_t, 2> flat;
  std::vector<double> vector;
  std::array<std::array<float, 3>, 2> grid{};
  STELE_MODULE(Bits, f32, f64, f16, bf16, scalar, empty, hollow, nine, flat, vector, grid)
};
}  // namespace

STELE_TEST_EACH_RECORDER("recorders: every bit of a tensor") {
  Bits b;
  const auto f = [](std::uint32_t u) { return std::bit_cast<float>(u); };
  const auto d = [](std::uint64_t u) { return std::bit_cast<double>(u); };
  b.f32 = Tensor<float>(
      {7}, {f(0x7fc00001), f(0xffabcdef), f(0x7f800001), f(0x80000000), f(1), f(0x7f800000), f(0x7f7fffff)});
  b.f64 = Tensor<double>(
      {5}, {d(0x7ff0000000000001), d(0xfff8dead0000beef), d(0x8000000000000000), d(1), d(0xfff0000000000000)});
  b.f16 = Tensor<float16>(
      {4}, {float16::from_bits(0x7c01), float16::from_bits(0xfe55), float16::from_bits(0x8000), float16::from_bits(1)});
  b.bf16 = Tensor<bfloat16>({3}, {bfloat16::from_bits(0x7f81), bfloat16::from_bits(0x8000), bfloat16::from_bits(1)});
  b.scalar = Tensor<float>(Shape{}, {-7.5F});
  b.empty = Tensor<float>(Shape{0});
  b.hollow = Tensor<float>(Shape{3, 0, std::uint64_t{1} << 60, 2});
  b.nine = Tensor<float>(Shape{1, 2, 1, 2, 1, 2, 1, 2, 1});
  for (std::size_t i = 0; i < 16; ++i) b.nine[i] = static_cast<float>(i);
  b.flat = Tensor<std::uint8_t, 2>({0, 5});
  b.vector = {d(0x7ff0000000000001), -0.0};
  b.grid = {{{1, 2, 3}, {4, 5, f(0x7fc12345)}}};
  const auto bytes = saved(recorder, b);
  REQUIRE_MESSAGE(bytes, why(bytes));
  const auto after = recorder.load<Bits>(*bytes);
  REQUIRE_MESSAGE(after, why(after));
  const auto one = snapshot_of(b);
  const auto two = snapshot_of(*after);
  REQUIRE(one);
  REQUIRE(two);
  CHECK(difference(facts(*one, can(recorder)), facts(*two, can(recorder))) == "");
  CHECK(after->nine.shape() == b.nine.shape());
  CHECK(after->hollow.shape() == b.hollow.shape());
  CHECK(after->scalar.rank() == 0);
  const auto file = recorder.open(*bytes);
  REQUIRE(file);
  // A part of a leaf, anywhere.
  float part[3];
  REQUIRE(file->find("nine"));
  CHECK(file->find("nine")->read(20, std::as_writable_bytes(std::span(part))));
  CHECK(part[0] == 5);
  CHECK(part[2] == 7);
  CHECK(code_of(file->find("nine")->read(56, std::as_writable_bytes(std::span(part)))) == Errc::truncated);
  CHECK(code_of(file->find("nine")->read(~std::uint64_t{3}, std::as_writable_bytes(std::span(part)))) ==
        Errc::truncated);
}

STELE_TEST_EACH_RECORDER("recorders: bytes depend on record and options only") {
  const TempDir dir;
  SaveOptions options = quick();
  options.metadata = {{"k", "v"}, {"a", "b"}};
  const Branch module = branch(5);
  const std::string first = text_saved(recorder, module, options);
  CHECK(text_saved(recorder, module, options) == first);

  REQUIRE(recorder.save(module, dir / "file.bin", options));
  CHECK(read_text(dir / "file.bin") == first);

  std::string memory(first.size(), '\1');
  SpanSink span(std::as_writable_bytes(std::span(memory)));
  REQUIRE(recorder.save(module, span, options));
  CHECK(span.size() == first.size());
  CHECK(memory == first);

  std::ostringstream stream;
  StreamSink to(stream);
  REQUIRE(recorder.save(module, to, options));
  CHECK(stream.str() == first);

  const auto record = record_of(module);
  REQUIRE_MESSAGE(record, why(record));
  CHECK(text_saved(recorder, *record, options) == first);
  const auto snapshot = snapshot_of(module);
  REQUIRE(snapshot);
  CHECK(text_saved(recorder, *snapshot, options) == first);

  // Read from wherever, the same is written again.
  const auto mapped = map_file(dir / "file.bin");
  REQUIRE(mapped);
  CHECK(text_saved(recorder, recorder.open(*mapped).value(), options) == first);
  const auto file = open_file(dir / "file.bin");
  REQUIRE(file);
  CHECK(text_saved(recorder, recorder.open(*file).value(), options) == first);
  CHECK(text_saved(recorder, recorder.load<Branch>(*file).value(), options) == first);
}

TEST_CASE_TEMPLATE("recorders: memory that is too small", R, STELE_TEST_RECORDERS) {
  const R recorder;
  const Branch module = branch(6);
  const std::string whole = text_saved(recorder, module);
  std::string memory(whole.size() + 10, '\7');
  const auto room = std::as_writable_bytes(std::span(memory));
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, whole.size() / 2, whole.size() - 1}) {
    CAPTURE(size);
    SpanSink sink(room.first(size));
    const auto result = recorder.save(module, sink);
    REQUIRE(code_of(result) == Errc::no_space);
    CHECK(result.error().found() == std::to_string(whole.size()));
    CHECK(memory.find_first_not_of('\7') == std::string::npos);  // known before the first write
  }
  if constexpr (requires { recorder.save(module, room); }) {
    const auto size = recorder.save(module, room);
    REQUIRE_MESSAGE(size, why(size));
    CHECK(*size == whole.size());
    CHECK(memory.substr(0, *size) == whole);
    CHECK(memory.substr(*size) == std::string(10, '\7'));
    const auto bytes = recorder.save(module);
    REQUIRE(bytes);
    CHECK(text_of(bytes->span()) == whole);
    CHECK(reinterpret_cast<std::uintptr_t>(bytes->data()) % 64 == 0);
    const auto small = recorder.save(module, room.first(3));
    REQUIRE(code_of(small) == Errc::no_space);
    CHECK(small.error().found() == std::to_string(whole.size()));
  }
}

STELE_TEST_EACH_RECORDER("recorders: an error keeps the old file") {
  const TempDir dir;
  const auto half = at_precision_of<HalfPrecision>(recorder);
  Named named;
  named.tensors.emplace("a", Tensor<float>::filled(Shape{200000}, 1.F));
  named.tensors.emplace("b", Tensor<float>({2}, {1.F, 2.F}));
  const std::string path = dir / "model.bin";
  REQUIRE(half.save(named, path, quick()));
  const std::string before = read_text(path);
  named.tensors.at("b")[1] = 1e6F;
  const auto result = half.save(named, path, quick());
  REQUIRE(code_of(result) == Errc::out_of_range);
  CHECK(result.error().path() == "tensors.b");
  CHECK(result.error().found().find("element 1") != std::string::npos);
  CHECK(result.error().file() == path);
  CHECK(read_text(path) == before);
  CHECK(dir.names() == std::vector<std::string>{"model.bin"});
  named.tensors.at("b")[1] = 3;
  REQUIRE(half.save(named, path, quick()));
  CHECK(read_text(path) != before);

  // An extension is added where there is none.
  REQUIRE(half.save(named, dir / "plain", quick()));
  const std::string extended = "plain" + std::string(half.format().extension());
  CHECK(dir.names() == std::vector<std::string>{"model.bin", extended});
  CHECK(half.load<Named>(dir / "plain"));
  CHECK(code_of(half.load<Named>(dir / "nothing")) == Errc::not_found);
}

namespace {
struct Mixed {
  Tensor<float, 1> good{{2}, {1.F, 2.F}};
  std::optional<Tensor<std::complex<double>, 1>> wide = Tensor<std::complex<double>, 1>({1}, {{1, 2}});
  std::shared_ptr<Tensor<std::complex<double>, 1>> tied = std::make_shared<Tensor<std::complex<double>, 1>>(*wide);
  std::shared_ptr<Tensor<std::complex<double>, 1>> again = tied;
  std::vector<Tensor<float, 1>> more{Tensor<float, 1>({1}, {3.F})};
  STELE_MODULE(Mixed, good, wide, tied, again, more)
};
}  // namespace

STELE_TEST_EACH_RECORDER("recorders: what the format cannot hold") {
  const Mixed mixed;
  const auto bytes = saved(recorder, mixed);
  if (holds(recorder, DType::c128)) {
    CHECK_MESSAGE(bytes, why(bytes));
  } else {
    REQUIRE(code_of(bytes) == Errc::not_representable);
    CHECK(bytes.error().path() == "wide");
    CHECK(bytes.error().found() == "dtype c128");
    CHECK(bytes.error().message().find("1 more") != std::string::npos);
    REQUIRE(bytes.error().report() != nullptr);
    const std::vector<std::string> lost{"wide", "tied", "again"};
    CHECK(bytes.error().report()->paths(Report::What::lost) == lost);
    SaveOptions options;
    options.allow_loss = true;
    BufferSink sink;
    const auto report = recorder.save(mixed, sink, options);
    REQUIRE_MESSAGE(report, why(report));
    CHECK(report->paths(Report::What::lost) == lost);
    const Bytes less = sink.take();
    const auto after = recorder.load<Mixed>(less);
    REQUIRE_MESSAGE(after, why(after));
    CHECK(after->good[1] == 2);
    CHECK(!after->wide);
    CHECK(after->tied == nullptr);
    CHECK(after->again == nullptr);
    CHECK(after->more.size() == 1);
  }
  for (const DType dtype : all_dtypes) {
    if (bits(dtype) == 0) continue;
    CAPTURE(name(dtype));
    const Snapshot leaf = one_leaf(dtype, {4});
    auto file = saved(recorder, leaf);
    if (holds(recorder, dtype)) {
      REQUIRE_MESSAGE(file, why(file));
      const auto back = recorder.open(*file);
      REQUIRE_MESSAGE(back, why(back));
      CHECK(back->leaf(0).dtype() == dtype);
      CHECK(back->leaf(0).byte_size() == leaf.leaf(0).byte_size());
    } else {
      CHECK(code_of(file) == Errc::not_representable);
      CHECK(file.error().path() == "t");
    }
  }
}

STELE_TEST_EACH_RECORDER("recorders: from one format to another without a module") {
  const Branch module = branch(11);
  auto bytes = saved(recorder, module);
  REQUIRE_MESSAGE(bytes, why(bytes));
  const auto opened = recorder.open(*bytes);
  REQUIRE_MESSAGE(opened, why(opened));
  const auto original = snapshot_of(module);
  REQUIRE(original);
  for (const Format* format : formats()) {
    CAPTURE(format->name());
    const Capabilities& has = format->capabilities();
    if (!has.values || !has.aliases || has.max_rank < 9) continue;  // not for all of it
    const std::string_view name = format->name();
    if (name == "hdf5" || name == "keras" || name == "zarr") continue;  // not for empty names
    const TempDir dir;
    const std::string path = dir / ("model" + std::string(format->extension()));
    SaveOptions options = quick();
    if (format->extension().empty()) options.format = format;
    const auto report = save(*opened, path, options);
    REQUIRE_MESSAGE(report, why(report));
    const auto after = load<Branch>(path);
    REQUIRE_MESSAGE(after, why(after));
    Capabilities both = format->capabilities();
    both.ids = both.ids && can(recorder).ids;
    both.nesting = true;
    const auto snapshot = snapshot_of(*after);
    REQUIRE(snapshot);
    CHECK(difference(facts(*original, both), facts(*snapshot, both)) == "");
  }
}

STELE_TEST_EACH_RECORDER("recorders: ids") {
  Twig twig;
  twig.weight = {Tensor<float>({1}, {1.F}), ParamId::from_u64(77)};
  twig.bias = {Tensor<double, 2>({1, 1}, {2.0}), ParamId::from_uuid(1, ~std::uint64_t{0})};
  BufferSink sink;
  const auto report = recorder.save(twig, sink);
  REQUIRE_MESSAGE(report, why(report));
  const Bytes bytes = sink.take();
  const auto after = recorder.load<Twig>(bytes);
  REQUIRE(after);
  if (can(recorder).ids) {
    CHECK(report->empty());
    CHECK(after->weight.id == twig.weight.id);
    CHECK(after->bias->id == twig.bias->id);
  } else {
    CHECK(report->paths(Report::What::lost) == std::vector<std::string>{"weight", "bias"});
    CHECK(!after->weight.id);
  }
}

namespace {
struct Pair {
  std::vector<Twig> twigs;
  Tensor<float, 1> scale;
  STELE_MODULE(Pair, twigs, scale)
};
}  // namespace

STELE_TEST_EACH_RECORDER("recorders: a record is edited and saved again") {
  Pair pair;
  pair.twigs.resize(2);
  for (Twig& t : pair.twigs) {
    t.weight = Tensor<float>({3}, {1.F, 2.F, 3.F});
    t.bias = Tensor<double, 2>({1, 2}, {4.0, 5.0});
  }
  pair.scale = Tensor<float, 1>({1}, {9.F});
  const TempDir dir;
  REQUIRE(recorder.save(pair, dir / "pair", quick()));
  auto record = recorder.load<Record<Pair>>(dir / "pair");
  REQUIRE_MESSAGE(record, why(record));
  CHECK(record->twigs.at(1).weight.shape()[0] == 3);
  record->twigs[0].weight = Param(Tensor<float>({2}, {7.F, 8.F}));
  record->twigs[1].bias.reset();
  record->twigs.emplace_back();
  CHECK(code_of(saved(recorder, *record)) == Errc::not_found);  // an empty leaf
  record->twigs[2].weight = Param(Tensor<float>({1}, {6.F}));
  // Over the file that the lazy leaves come from.
  const auto report = recorder.save(*record, dir / "pair", quick());
  REQUIRE_MESSAGE(report, why(report));
  const auto after = recorder.load<Pair>(dir / "pair");
  REQUIRE_MESSAGE(after, why(after));
  REQUIRE(after->twigs.size() == 3);
  CHECK(after->twigs[0].weight->size() == 2);
  CHECK((*after->twigs[0].bias->value.begin()) == 4.0);
  CHECK((*after->twigs[1].weight)[2] == 3.F);
  CHECK(!after->twigs[1].bias);
  CHECK((*after->twigs[2].weight)[0] == 6.F);
  CHECK(after->scale[0] == 9.F);
  auto module = from_record(*std::move(record));
  REQUIRE_MESSAGE(module, why(module));
  CHECK((*module->twigs[0].weight)[1] == 8.F);
}

STELE_TEST_EACH_RECORDER("recorders: verify reads every byte") {
  Named named;
  Tensor<float> numbers(Shape{100000});
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers.data()[i] = 1.F / static_cast<float>(i + 1);
  named.tensors.emplace("a", std::move(numbers));
  named.tensors.emplace("b", Tensor<float>({2}, {1.F, 2.F}));
  std::string file = text_saved(recorder, named);
  CHECK(recorder.verify(bytes_of(file)));
  for (const std::size_t less : {std::size_t{1}, std::size_t{300}, file.size() / 2, file.size() - 3, file.size()}) {
    CHECK(!recorder.verify(bytes_of(file).first(file.size() - less)));
  }
  file[file.size() / 2] = static_cast<char>(file[file.size() / 2] ^ 4);
  const auto damaged = recorder.verify(bytes_of(file));
  if (can(recorder).checksums) {
    // Damaged compressed data may fail to decompress before their checksum is compared.
    const Errc code = code_of(damaged);
    REQUIRE((code == Errc::checksum || code == Errc::malformed));
    CHECK(damaged.error().path() == "tensors.a");
    CHECK(code_of(recorder.load<Named>(bytes_of(file))) == code);
    Named live;
    live.tensors.emplace("a", Tensor<float>::filled(Shape{100000}, 5.F));
    live.tensors.emplace("b", Tensor<float>({2}, {5.F, 5.F}));
    CHECK(code_of(recorder.load_into(live, bytes_of(file))) == code);
    CHECK(live.tensors.at("a")[99999] == 5.F);  // verified before anything is written
    CHECK(live.tensors.at("b")[0] == 5.F);
  } else if (!is_json_file(recorder)) {
    CHECK(damaged);
  }
  CHECK(code_of(recorder.verify("/nonexistent/x.y")) == Errc::not_found);
}

namespace {
struct Unset {
  Tensor<float, 2> ranked;
  Tensor<float, 1> good{{1}, {1.F}};
  STELE_MODULE(Unset, ranked, good)
};

struct Dynamic {
  Tensor<float> any;
  STELE_MODULE(Dynamic, any)
};
}  // namespace

STELE_TEST_EACH_RECORDER("recorders: a tensor that was never set") {
  const auto bytes = saved(recorder, Unset{});
  REQUIRE_MESSAGE(bytes, why(bytes));
  CHECK(recorder.load<Unset>(*bytes));
  // Without a rank too: no elements.
  const auto dynamic = saved(recorder, Dynamic{});
  REQUIRE_MESSAGE(dynamic, why(dynamic));
  const auto loaded = recorder.load<Dynamic>(*dynamic);
  REQUIRE_MESSAGE(loaded, why(loaded));
  CHECK(loaded->any.size() == 0);
}

}  // namespace recorders_files_test
