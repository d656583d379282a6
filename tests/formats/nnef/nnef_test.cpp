// NNEF: modules in folders, archives and tensor files.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "nnef_support.hpp"
#include "support/golden_text.hpp"

namespace stele_test::nnef_test {

using namespace nnef;
using stele::Errc;
using stele::Value;

namespace {

struct One {
  Tensor<float, 2> only;
  STELE_MODULE(One, only)
};
struct Titled {
  Tensor<float, 1> w;
  std::string title;
  STELE_MODULE(Titled, w, title)
};

constexpr const char* graph_of_net = R"(# Variables alone, by stele.
version 1.0;

graph variables(none) -> (v0_layers_0_weight, v1_layers_0_bias, v2_layers_1_weight, v3_steps, v4_mask) {
    none = external<scalar>(shape = [1]);
    v0_layers_0_weight = variable<scalar>(shape = [4, 3], label = 'layers/0/weight');
    v1_layers_0_bias = variable<scalar>(shape = [4], label = 'layers/0/bias');
    v2_layers_1_weight = variable<scalar>(shape = [2, 4], label = 'layers/1/weight');
    v3_steps = variable<integer>(shape = [2], label = 'steps');
    v4_mask = variable<logical>(shape = [3, 3], label = 'mask');
}
)";
const Names files_of_net{"graph.nnef",          "layers/0/bias.dat", "layers/0/weight.dat",
                         "layers/1/weight.dat", "mask.dat",          "steps.dat"};

}  // namespace

TEST_CASE("nnef: a module in a folder, in an archive, and back") {
  const TempDir dir;
  const Net before = net();
  for (const bool archive : {false, true}) {
    for (const bool graph : {true, false}) {
      CAPTURE(archive);
      CAPTURE(graph);
      const auto recorder = in(archive ? NnefContainer::tgz : NnefContainer::folder, graph);
      const std::string name = (archive ? "a"s : "f"s) + (graph ? "1" : "0");
      CHECK(good(recorder.save(before, dir / name)).empty());
      const std::string path = dir / (name + (archive ? ".nnef.tgz" : ".nnef"));
      REQUIRE(fs::exists(path));
      CHECK(fs::is_directory(path) != archive);
      if (!archive) {
        Names wanted = files_of_net;
        if (!graph) wanted.erase(wanted.begin());
        CHECK(names_of(*stele::folder_bundle(path)) == wanted);
        if (graph) CHECK(read_text(path + "/graph.nnef") == graph_of_net);
      }
      // Whatever container the options name: loads take all.
      for (const auto& reader : {in(NnefContainer::folder), in(NnefContainer::tgz)}) {
        CHECK(image(good(reader.load<Net>(path))) == image(before));
      }
      Net other = net(7);
      other.steps[0] = 5;
      good(recorder.load_into(other, path));
      CHECK(image(other) == image(before));
      const auto record = good(recorder.load<stele::Record<Net>>(path));
      CHECK(image(good(record.layers.at(1).weight.load())) == image(before.layers[1].weight.value));
      good(recorder.verify(path));
      Net narrow = net();
      narrow.layers.pop_back();
      CHECK(code_of(recorder.load_into(narrow, path)) != Errc::none);
    }
  }
  // The content of a folder does not depend on how it was written.
  const auto bundle = good(folder_of(NnefRecorder<>(), before));
  for (const std::string& name : files_of_net) CHECK(text_in(*bundle, name) == read_text(dir / ("f1.nnef/" + name)));
  CHECK(image(good(NnefRecorder<>().load<Net>(stele::bundle_source(bundle)))) == image(before));
}

TEST_CASE("nnef: the bytes of a tensor file") {
  const auto bundle = good(folder_of(NnefRecorder<>(), net()));
  const std::string mask = text_in(*bundle, "mask.dat");
  std::string head(128, '\0');
  const auto put_word = [&](std::size_t at, unsigned value) { head[at] = static_cast<char>(value); };
  head.replace(0, 4, "\x4e\xef\x01\0"s);
  put_word(4, 2);
  put_word(8, 2);
  put_word(12, 3);
  put_word(16, 3);
  put_word(44, 1);
  put_word(48, 5);
  CHECK(hex(mask) == hex(head + "\xb1\x80"));
  const std::string bias = text_in(*bundle, "layers/0/bias.dat");
  put_word(4, 16);
  put_word(8, 1);
  put_word(12, 4);
  put_word(16, 0);
  put_word(44, 32);
  put_word(48, 0);
  CHECK(hex(bias) == hex(head + "\0\0\x80\x3f\0\0\x80\x3f\0\0\x80\x3f\0\0\x80\x3f"s));
}

TEST_CASE("nnef: a bare tensor in one file, and back") {
  const TempDir dir;
  const auto recorder = in(NnefContainer::tensor);
  const Tensor<float, 2> before = mat(3, 5, 2);
  const std::string path = dir / "w";
  good(recorder.save(before, path));
  REQUIRE(dir.names() == Names{"w.dat"});
  CHECK(image(good(recorder.load<Tensor<float, 2>>(path + ".dat"))) == image(before));
  CHECK(image(good(NnefRecorder<>().load<Tensor<float, 2>>(path + ".dat"))) == image(before));
  Tensor<float, 2> into({3, 5});
  good(recorder.load_into(into, path + ".dat"));
  CHECK(image(into) == image(before));
  CHECK(paths_of(good(recorder.open(path + ".dat"))) == Names{"w"});
  // A module with one tensor is saved as that tensor, and loads it under the module's name for it.
  const One one{before};
  good(recorder.save(one, dir / "one"));
  CHECK(read_text(dir / "one.dat") == read_text(dir / "w.dat"));
  CHECK(image(good(recorder.load<One>(dir / "one.dat")).only) == image(before));
  // A name with a dot is one segment.
  fs::rename(dir / "one.dat", dir / "a.b.dat");
  CHECK(paths_of(good(recorder.open(dir / "a.b.dat"))) == Names{"a\\.b"});

  CHECK(code_of(recorder.save(net(), dir / "many")) == Errc::not_representable);
  CHECK(code_of(recorder.save(named({}), dir / "none")) == Errc::not_representable);
  CHECK_FALSE(fs::exists(dir / "many.dat"));
}

TEST_CASE("nnef: paths and labels") {
  const auto labels = [](const Names& paths) {
    Names names = names_of(*good(folder_of(in(NnefContainer::folder, false), named(paths))));
    for (std::string& name : names) name.resize(name.size() - 4);
    return names;
  };
  CHECK(labels({"w"}) == Names{"w"});
  CHECK(labels({"a.b.c", "a.b-d"}) == Names{"a/b-d", "a/b/c"});
  CHECK(labels({"a\\.b.c\\.d"}) == Names{"a.b/c.d"});
  CHECK(labels({"\\.\\.\\.x", "x\\.\\."}) == Names{"...x", "x.."});

  const auto refused = [](const Names& paths) {
    CAPTURE(paths.front());
    for (const auto container : {NnefContainer::folder, NnefContainer::tgz}) {
      const bool folder = container == NnefContainer::folder;
      const auto sink = folder ? stele::bundle_sink(stele::memory_bundle()) : std::make_unique<stele::BufferSink>();
      const auto r = in(container).save(named(paths), *sink, quick());
      REQUIRE(code_of(r) == Errc::not_representable);
      CHECK(r.error().path() == paths.back());
    }
  };
  refused({"with space"});
  refused({"a.caf\u00e9"});
  refused({"a/b"});
  refused({"a\\\\b"});
  refused({"\\e"});
  refused({"a.\\e.b"});
  refused({"\\."});
  refused({"a.\\.\\..b"});
  refused({"a.\\.\\."});
  refused({"a'"});
  refused({"a\n"});
  refused({"w", "W"});
  refused({"Ab.c", "aB.c"});
  // `a.dat` is the file of one and the folder of the other.
  refused({"a", "a\\.dat.b"});
  refused({"A", "a\\.DAT.b"});
  // Both ways round.
  CHECK(code_of(folder_of(NnefRecorder<>(), named({"a\\.dat.b", "a"}))) == Errc::not_representable);
  CHECK(folder_of(NnefRecorder<>(), named({"a", "a.dat.b", "a\\.data.b"})).has_value());
  // The texts are files too.
  CHECK(folder_of(NnefRecorder<>(), named({"graph\\.nnef", "graph\\.quant"})).has_value());
  CHECK(code_of(folder_of(NnefRecorder<>(), named({"graph\\.nnef.w"}))) == Errc::not_representable);
  CHECK(code_of(folder_of(NnefRecorder<>(), named({"Graph\\.quant.w"}))) == Errc::not_representable);

  // A path comes back as it was.
  const Names paths{"0.w", "a\\.b.c", "b", "x-y._z"};
  for (const bool graph : {true, false}) {
    const auto bundle = good(folder_of(in(NnefContainer::folder, graph), named(paths)));
    CHECK(paths_of(good(NnefRecorder<>().open(stele::bundle_source(bundle)))) == paths);
  }
  // Names in the graph differ though their labels become equal letters.
  const auto bundle = good(folder_of(NnefRecorder<>(), named({"a.b", "a_b", "a-b", "a\\.b"})));
  CHECK(good(NnefRecorder<>().open(stele::bundle_source(bundle))).leaf_count() == 4);
  CHECK(text_in(*bundle, "graph.nnef").find("(v0_a_b, v1_a_b, v2_a_b, v3_a_b)") != std::string::npos);
}

TEST_CASE("nnef: models of nothing") {
  const auto bundle = good(folder_of(NnefRecorder<>(), named({})));
  CHECK(names_of(*bundle) == Names{"graph.nnef"});  // an empty folder is no model
  // The package refuses a result that is an input.
  CHECK(text_in(*bundle, "graph.nnef").find("-> (all) {") != std::string::npos);
  const Snapshot nothing = good(NnefRecorder<>().open(stele::bundle_source(bundle)));
  CHECK(nothing.leaf_count() == 0);
  CHECK(good(NnefRecorder<>().save(nothing, TempDir() / "again")).empty());  // no graph is lost
  CHECK(bad(NnefRecorder<>().open(stele::bundle_source(stele::memory_bundle()))).code() == Errc::missing);
  const auto bytes = good(saved(in(NnefContainer::tgz), named({})));
  CHECK(good(in(NnefContainer::tgz).open(bytes)).leaf_count() == 0);
}

TEST_CASE("nnef: f16, and what NNEF has not") {
  const NnefRecorder<stele::HalfPrecision> half;
  const auto bundle = good(folder_of(half, net()));
  CHECK(word(text_in(*bundle, "layers/0/bias.dat"), 44) == 16);
  CHECK(word(text_in(*bundle, "layers/0/bias.dat"), 48) == 0);
  stele::LoadOptions options;
  CHECK(image(good(half.load<Net>(stele::bundle_source(bundle), options))) == image(net()));

  const auto refused = [](DType dtype, std::size_t bytes) {
    CAPTURE(name(dtype));
    const auto r = folder_of(NnefRecorder<>(), flat({{"a"}, {"w", dtype, {8}, std::string(bytes, '\0')}}));
    REQUIRE(code_of(r) == Errc::not_representable);
    CHECK(r.error().path() == "w");
    CHECK(r.error().to_string().find(name(dtype)) != std::string::npos);
  };
  refused(DType::bf16, 16);
  refused(DType::f8_e4m3fn, 8);
  refused(DType::f4_e2m1, 4);
  refused(DType::i4, 4);
  refused(DType::c64, 64);
  refused(DType::c128, 128);
  refused(DType::string, 3);
  refused(DType::opaque, 3);  // of no vendor
  CHECK(code_of(folder_of(NnefRecorder<stele::BrainPrecision>(), net())) == Errc::not_representable);
  const std::vector<stele::Extent> nine(9, 1);
  const auto r = folder_of(NnefRecorder<>(), flat({{"w", DType::u8, nine, "\0"s}}));
  REQUIRE(code_of(r) == Errc::not_representable);
  CHECK(r.error().to_string().find("rank 9") != std::string::npos);
}

TEST_CASE("nnef: four gigabytes") {
  static std::atomic<int> reads{0};
  static constexpr stele::LeafOps never{.read = [](const void*, std::uint64_t, std::uint64_t, std::span<std::byte>,
                                                   stele::ReadContext&) -> stele::Status {
    ++reads;
    return stele::Error(Errc::io, "read");
  }};
  const auto large = [](DType dtype, std::vector<stele::Extent> shape) {
    stele::SnapshotBuilder builder;
    builder.set_flat();
    static constexpr std::byte one{};
    const std::uint64_t bytes = *stele::byte_length(dtype, *stele::element_count(shape));
    builder.tensor("small", DType::u8, std::vector<stele::Extent>{1}, 1, {&memory_ops, &one, 0});
    builder.tensor("huge", dtype, shape, bytes, {&never, nullptr, 0});
    return builder.finish();
  };
  const auto refused = [&](const Snapshot& snapshot) {
    const auto bundle = stele::memory_bundle();
    const auto sink = stele::bundle_sink(bundle);
    const auto r = NnefRecorder<>().save(snapshot, *sink, quick());
    REQUIRE(code_of(r) == Errc::not_representable);
    CHECK(r.error().path() == "huge");
    CHECK(names_of(*bundle).empty());
  };
  refused(large(DType::f32, {(1ULL << 30) + 1}));
  refused(large(DType::f32, {1ULL << 30}));
  refused(large(DType::boolean, {(1ULL << 35)}));
  refused(large(DType::u8, {1ULL << 32, 0}));  // an extent of 32 bits
  CHECK(reads == 0);
  // Bits of bools, and not bytes, count.
  const auto sink = stele::bundle_sink(stele::memory_bundle());
  const auto r = NnefRecorder<>().save(large(DType::boolean, {1ULL << 32}), *sink, quick());
  CHECK(code_of(r) == Errc::not_representable);  // the extent
  const auto s =
      NnefRecorder<>().save(large(DType::f32, {1ULL << 29, 1}), *stele::bundle_sink(stele::memory_bundle()), quick());
  CHECK(code_of(s) == Errc::io);
  CHECK(reads != 0);
}

TEST_CASE("nnef: tied tensors are written under each name, values are refused") {
  const TiedLayers tied = tied_layers(3);
  const auto bundle = good(folder_of(NnefRecorder<>(), tied));
  CHECK(names_of(*bundle) == Names{"decoder/bias.dat", "decoder/weight.dat", "embedding.dat", "encoder/bias.dat",
                                   "encoder/weight.dat", "graph.nnef", "head.dat", "middle.dat"});
  CHECK(text_in(*bundle, "embedding.dat") == text_in(*bundle, "head.dat"));
  const TiedLayers back = good(NnefRecorder<>().load<TiedLayers>(stele::bundle_source(bundle)));
  CHECK(image(*back.embedding) == image(*tied.embedding));
  CHECK(image(*back.decoder->bias) == image(*tied.decoder->bias));
  const auto r = folder_of(NnefRecorder<>(), Titled{vec({1}), "a title"});
  REQUIRE(code_of(r) == Errc::not_representable);
  CHECK(r.error().path() == "title");
}

TEST_CASE("nnef: folders are replaced when all in them is known") {
  const TempDir dir;
  const NnefRecorder<> recorder;
  const std::string path = dir / "m.nnef";
  const auto save = [&](float first, const stele::SaveOptions& options = quick()) {
    return code_of(recorder.save(net(first), path, options));
  };
  const auto check = [&](float first) { CHECK(image(good(recorder.load<Net>(path))) == image(net(first))); };
  CHECK(save(1) == Errc::none);
  CHECK(save(2) == Errc::none);
  check(2);
  stele::SaveOptions fresh = quick();
  fresh.file.overwrite = false;
  CHECK(save(3, fresh) == Errc::exists);
  check(2);
  // Tensors that are not in the new model go.
  good(recorder.save(named({"old", "layers.0.weight"}), path, quick()));
  CHECK(save(4) == Errc::none);
  CHECK(names_of(*stele::folder_bundle(path)) == files_of_net);
  // Tensors that the graph does not name, damaged ones, texts of somebody else, and files that nobody knows, stay.
  const std::string tensor = text_in(*good(folder_of(recorder, named({"old"}))), "old.dat");
  write_text(path + "/layers/old.dat", tensor);
  CHECK(save(5) == Errc::exists);
  fs::remove(path + "/layers/old.dat");
  const std::string steps = read_text(path + "/steps.dat");
  for (const std::string& other : {"3.3 3.2\n"s, steps + 'x', tensor}) {
    write_text(path + "/steps.dat", other);
    CHECK(save(5) == Errc::exists);
    CHECK(read_text(path + "/steps.dat") == other);
  }
  write_text(path + "/steps.dat", steps);
  write_text(path + "/notes.txt", "mine");
  const auto refused = recorder.save(net(5), path, quick());
  REQUIRE(code_of(refused) == Errc::exists);
  CHECK(refused.error().found() == "notes.txt");
  check(4);
  stele::SaveOptions anyhow = quick();
  anyhow.file.allow_nonatomic = true;
  CHECK(save(5, anyhow) == Errc::none);
  check(5);
  CHECK(read_text(path + "/notes.txt") == "mine");
  fs::remove(path + "/notes.txt");
  write_text(path + "/graph.nnef", "version 1.0;\n" + std::string(graph_of_net));
  CHECK(save(6) == Errc::exists);
  check(5);
  write_text(path + "/graph.nnef", graph_of_net);
  CHECK(save(6) == Errc::none);
  check(6);

  fs::copy(nnef_golden("model.nnef"), dir / "theirs.nnef", fs::copy_options::recursive);
  CHECK(code_of(recorder.save(net(), dir / "theirs.nnef", quick())) == Errc::exists);
  CHECK(names_of(*stele::folder_bundle(dir / "theirs.nnef")) ==
        names_of(*stele::folder_bundle(nnef_golden("model.nnef"))));
}

TEST_CASE("nnef: a save into a folder of other data deletes nothing") {
  const TempDir dir;
  const std::string tensor = text_in(*good(folder_of(folders, named({"a"}))), "a.dat");
  const auto check_kept = [&](const Names& files, const std::string& content) {
    for (const std::string& file : files) {
      fs::create_directories(fs::path(dir / ("results/" + file)).parent_path());
      write_text(dir / ("results/" + file), content);
    }
    for (const bool graph : {true, false}) {
      if (!graph && content == tensor) continue;  // such a folder is all that this recorder writes
      CHECK(code_of(in(NnefContainer::folder, graph).save(net(), dir / "results", quick())) == Errc::exists);
      CHECK(code_of(in(NnefContainer::by_name, graph).save(net(), dir / "results", quick())) == Errc::exists);
    }
    CHECK(names_of(*stele::folder_bundle(dir / "results")) == files);
    fs::remove_all(dir / "results");
  };
  check_kept({"2024/voltage.dat"}, "3.3 3.2\n");
  check_kept({"voltage.dat"}, "");
  check_kept({"a.dat", "b/c.dat"}, tensor);  // of another program: it has no graph
  check_kept({"graph.nnef", "voltage.dat"}, std::string(graph_of_net));
  check_kept({"graph.quant"}, "");
  check_kept({"graph.nnef"}, "# Variables alone, by stele.\n");
  fs::create_directories(dir / "results/empty");
  CHECK(code_of(folders.save(net(), dir / "results", quick())) == Errc::exists);
  // A recorder without graphs replaces its own folders.
  const auto plain = in(NnefContainer::folder, false);
  for (const float first : {1.0F, 2.0F}) good(plain.save(net(first), dir / "plain.nnef", quick()));
  CHECK(code_of(folders.save(net(), dir / "plain.nnef", quick())) == Errc::exists);
}

TEST_CASE("nnef: a folder is one model by the marks at its top") {
  const TempDir dir;
  const auto front = [&](const std::string& path) { return code_of(stele::open(path)); };
  // The name of a folder of stele's own is also that of a graph.
  fs::create_directory(dir / "zoo");
  good(folders.save(net(), dir / "zoo/graph", quick()));
  good(folders.save(net(), dir / "zoo/other", quick()));
  write_text(dir / "zoo/weights.safetensors", "");
  CHECK(front(dir / "zoo") == Errc::unsupported);  // of the empty file
  fs::remove(dir / "zoo/weights.safetensors");
  CHECK(front(dir / "zoo") == Errc::invalid_argument);  // two models
  CHECK(front(dir / "zoo/graph.nnef") == Errc::none);
  good(in(NnefContainer::folder, false).save(net(), dir / "plain", quick()));
  CHECK(front(dir / "plain.nnef") == Errc::none);
  write_text(dir / "plain.nnef/notes.dat", "3.3 3.2\n");
  CHECK(front(dir / "plain.nnef") == Errc::invalid_argument);  // files that may be models
}

namespace {

/// A tensor with any bytes that a file may hold.
Item random_item(Random& random, const std::string& path) {
  static constexpr DType dtypes[] = {DType::f16, DType::f32,     DType::f64,   DType::i8,  DType::i16,
                                     DType::i32, DType::i64,     DType::u8,    DType::u16, DType::u32,
                                     DType::u64, DType::boolean, DType::opaque};
  Item item{path, dtypes[random.below(std::size(dtypes))], {}, {}, {}};
  item.shape.resize(random.below(9));
  for (auto& e : item.shape) e = random.chance(4) ? 0 : 1 + random.below(item.shape.size() > 3 ? 3 : 20);
  const auto count = static_cast<std::size_t>(*stele::element_count(item.shape));
  if (item.dtype == DType::opaque) {
    item.bytes = random.bytes(random.below(50));
    item.notes = {{"nnef.vendor", Value(static_cast<std::int64_t>(1 + random.below(0xffff)))},
                  {"nnef.type", Value(static_cast<std::int64_t>(random.below(0x10000)))},
                  {"nnef.bits", Value(static_cast<std::int64_t>(random.bits() >> 32))}};
    return item;
  }
  const std::size_t size = element_size(item.dtype);
  item.bytes = random.bytes(count * size);
  if (item.dtype == DType::boolean) {
    for (char& c : item.bytes) c &= 1;
    if (random.chance(30)) item.notes = {{"nnef.bits", Value(std::int64_t{8})}};
    return item;
  }
  const bool sign = dtype_class(item.dtype) == stele::DTypeClass::signed_int;
  if (!sign && dtype_class(item.dtype) != stele::DTypeClass::unsigned_int) return item;
  if (random.chance(30)) item.notes.emplace("nnef.quantized", Value(true));
  // The dtype of a file is the narrowest; a width of its own is one that this dtype alone holds.
  if (random.chance(40)) return item;
  const std::size_t least = size == 1 ? 1 : 4 * size + 1;
  const std::size_t bits = least + random.below(8 * size - least);
  item.notes.emplace("nnef.bits", Value(static_cast<std::int64_t>(bits)));
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t value = random.bits() >> (64 - bits);
    if (sign && (value >> (bits - 1) & 1U) != 0) value |= ~std::uint64_t{0} << bits;
    char raw[8];
    std::memcpy(raw, &value, 8);
    std::memcpy(item.bytes.data() + i * size, raw + (std::endian::native == std::endian::big ? 8 - size : 0), size);
  }
  return item;
}

}  // namespace

TEST_CASE("nnef: random tensors come back from every container") {
  stele::Capabilities can = NnefRecorder<>().format().capabilities();
  can.annotations = true;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    std::vector<Item> items;
    for (std::size_t n = random.below(6); n != 0; --n) {
      static const std::string names[] = {"weight", "a.b", "x\\.y.z", "0", "layers.1.bias"};
      items.push_back(random_item(random, names[random.below(5)] + std::to_string(n)));
    }
    const Snapshot before = flat(items);
    const auto wanted = facts(before, can);
    for (const bool graph : {true, false}) {
      const auto bundle = folder_of(in(NnefContainer::folder, graph), before);
      REQUIRE_MESSAGE(bundle, why(bundle));
      REQUIRE(difference(wanted, facts(good(NnefRecorder<>().open(stele::bundle_source(*bundle))), can)) == "");
      const auto bytes = saved(in(NnefContainer::tgz, graph), before);
      REQUIRE_MESSAGE(bytes, why(bytes));
      REQUIRE(difference(wanted, facts(good(in(NnefContainer::tgz).open(*bytes)), can)) == "");
    }
    if (items.empty()) continue;
    const auto bytes = good(saved(in(NnefContainer::tensor), flat({items[0]})));
    stele::LoadOptions options;
    const Snapshot alone = good(in(NnefContainer::tensor).open(bytes));
    CHECK(good(content(alone.leaf(0))) == items[0].bytes);
    CHECK(std::ranges::equal(alone.leaf(0).shape(), items[0].shape));
  }
}

TEST_CASE("nnef: a folder into a sink that has none") {
  stele::BufferSink sink;
  const Mlp model = small_mlp();
  const Snapshot snapshot = good(stele::snapshot_of(model));
  CHECK(code_of(NnefFormat().write(snapshot, sink, {})) == Errc::unsupported);
}

}  // namespace stele_test::nnef_test
