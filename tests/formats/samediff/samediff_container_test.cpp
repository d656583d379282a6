// The containers of SameDiff models: SDNB, shards, SDZ; arrays of every form; what cannot be written; damage.
#include <doctest/doctest.h>
#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/samediff.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "dl4j/arrays_fb.hpp"
#include "encodings/zip/zip.hpp"
#include "samediff_support.hpp"
#include "snapshot/leaf_gather.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace samediff_container_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;
namespace fs = std::filesystem;

}  // namespace

TEST_CASE("samediff: SDNB has large arrays behind its FlatBuffer, and a manifest of them") {
  Model m = model(300000);  // 1.2 MB a column
  const auto bytes = saved(SameDiffRecorder<>(SameDiffContainer::sdnb), m);
  REQUIRE_MESSAGE(bytes, why(bytes));
  const std::string_view file = text_of(bytes->span());
  CHECK(file.substr(0, 8) == "SDNB\0\0\0\1"s);
  const auto after = SameDiffRecorder<>().load<Model>(*bytes);
  REQUIRE_MESSAGE(after, why(after));
  CHECK(std::ranges::equal(std::as_bytes(after->layers[2].weight.span()), std::as_bytes(m.layers[2].weight.span())));
  // A manifest whose name differs from the array's is refused.
  std::string damaged(file);
  const std::size_t at = damaged.rfind("layers.2.weight");
  REQUIRE(at != damaged.npos);
  damaged.replace(at, 15, "layers.7.weight");
  CHECK(code_of(SameDiffRecorder<>().open(bytes_of(damaged))) == Errc::malformed);
  damaged = file;
  damaged[7] = 2;
  CHECK(code_of(SameDiffRecorder<>().open(bytes_of(damaged))) == Errc::unsupported);
}

TEST_CASE("samediff: shards, none of which may be missing") {
  const TempDir dir;
  const SameDiffRecorder<> recorder({.container = SameDiffContainer::sdnb, .shard_bytes = 50});
  const Model before = model(5);
  REQUIRE(recorder.save(before, dir / "m.sdnb", quick()));
  const auto names = names_in(dir.path());
  CHECK(names == std::vector<std::string>{"m.sdnb", "m.shard0-of-5.sdnb", "m.shard1-of-5.sdnb", "m.shard2-of-5.sdnb",
                                          "m.shard3-of-5.sdnb", "m.shard4-of-5.sdnb"});
  for (const char* name : {"m.sdnb", "m.shard0-of-5.sdnb", "m.shard3-of-5.sdnb"}) {
    const auto after = recorder.load<Model>(dir / name);
    REQUIRE_MESSAGE(after, why(after));
    CHECK(after->steps[1] == -2);
    CHECK(after->note == "a note");
  }
  CHECK(code_of(recorder.save(before, dir / "m.sdnb", quick())) == Errc::exists);
  REQUIRE(fs::remove(dir / "m.shard2-of-5.sdnb"));
  const auto missing = recorder.open(dir / "m.sdnb");
  CHECK(code_of(missing) == Errc::missing);
  CHECK(missing.error().file() == "m.shard2-of-5.sdnb");
  // A shard of another model does not have the arrays.
  fs::copy_file(dir / "m.shard1-of-5.sdnb", dir / "m.shard2-of-5.sdnb");
  CHECK(!recorder.open(dir / "m.sdnb"));
}

TEST_CASE("samediff: SDZ as Java writes it: deflated, its entry under any of three names") {
  const Model before = model(5);
  const auto sdnb = saved(SameDiffRecorder<>(SameDiffContainer::sdnb), before);
  REQUIRE(sdnb);
  for (const char* name : {"model", "model.sdnb", "other.sdnb"}) {
    BufferSink sink;
    detail::LeafGather out(sink, detail::zip::crc32);
    detail::zip::Writer zip(out);
    REQUIRE(zip.add(name, sdnb->span(), detail::zip::deflated));
    REQUIRE(zip.finish());
    REQUIRE(out.flush());
    const Bytes bytes = sink.take();
    REQUIRE(bytes.size() < sdnb->size());
    const auto after = SameDiffRecorder<>().load<Model>(bytes);
    REQUIRE_MESSAGE(after, why(after));
    CHECK(after->note == "a note");
    const auto format = format_of_content(*borrow_bytes(bytes.span()));
    REQUIRE_MESSAGE(format, why(format));
    CHECK((*format)->name() == "sdz");
  }
}

TEST_CASE("samediff: each array may be of either dialect, in chunks, in any order of bytes and axes") {
  using namespace detail::samediff;
  flatbuffers::FlatBufferBuilder to;
  const auto vector8 = [&](std::vector<std::int8_t> bytes) { return to.CreateVector(bytes); };
  const auto longs = [&](std::vector<std::int64_t> numbers) { return to.CreateVector(numbers); };
  std::vector<flatbuffers::Offset<stele_fb::Variable>> variables;
  std::int32_t id = 0;
  const auto add = [&](const char* name, stele_fb::Type type, flatbuffers::Offset<stele_fb::Array> array) {
    const auto pair = stele_fb::CreateIntPair(to, ++id, 0);
    variables.push_back(stele_fb::CreateVariable(to, pair, to.CreateString(name), type, 0, array, -1, 0));
  };
  using stele_fb::ByteOrder;
  using stele_fb::Type;
  add("extents", Type::int16,
      stele_fb::CreateArray(to, longs({2, 1}), vector8({1, 2, 3, 4}), Type::int16, ByteOrder::little));
  add("big", Type::int16,
      stele_fb::CreateArray(to, longs({1, 2, 1, 65536, 1, 'c'}), vector8({1, 2, 3, 4}), Type::int16, ByteOrder::big));
  add("permuted", Type::int8,
      stele_fb::CreateArray(
          to, longs({3, 4, 2, 3, 1, 12, 4, 32768, 0, 'c'}),
          vector8({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}), Type::int8,
          ByteOrder::big));
  const auto chunk = [&](std::int64_t index, std::vector<std::int8_t> bytes) {
    return stele_fb::CreateChunk(to, index, to.CreateVector(bytes));
  };
  const auto chunks =
      to.CreateVector(std::vector<flatbuffers::Offset<stele_fb::Chunk>>{chunk(1, {5, 6, 7}), chunk(0, {1, 2, 3, 4})});
  add("chunks", Type::int8, stele_fb::CreateArray(to, longs({7}), 0, Type::int8, ByteOrder::little, chunks, 7));
  const auto make = [&] {
    const auto list = to.CreateVector(variables);
    to.Finish(stele_fb::CreatePlainGraph(to, 0, list));
    return own_bytes([&] {
      Bytes bytes(to.GetSize());
      std::copy_n(reinterpret_cast<const std::byte*>(to.GetBufferPointer()), to.GetSize(), bytes.data());
      return bytes;
    }());
  };
  const auto file = SameDiffRecorder<>().open(make());
  REQUIRE_MESSAGE(file, why(file));
  const auto text = [&](const char* name) { return array_text(file->find(name).value()); };
  CHECK(text("extents") == "SHORT 2x1 01020304");
  CHECK(text("big") == "SHORT 2 02010403");
  CHECK(text("chunks") == "BYTE 7 01020304050607");
  // Element (i, j, k) lies at i + 12 j + 4 k.
  std::string expected;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 2; ++j) {
      for (int k = 0; k < 3; ++k) expected += hex_of(std::string(1, static_cast<char>(i + 12 * j + 4 * k)));
    }
  }
  CHECK(text("permuted") == "BYTE 4x2x3 " + expected);

  const auto refused = [&](flatbuffers::Offset<stele_fb::Array> array, Errc code) {
    add("wrong", Type::int8, array);
    CHECK(code_of(SameDiffRecorder<>().open(make())) == code);
    variables.pop_back();
  };
  to.Clear();
  variables.clear();
  refused(stele_fb::CreateArray(to, longs({3}), vector8({1, 2}), Type::int8), Errc::malformed);
  to.Clear();
  refused(stele_fb::CreateArray(to, longs({-1}), vector8({1, 2}), Type::int8), Errc::malformed);
  to.Clear();
  refused(stele_fb::CreateArray(to, longs({1, 2, 2, 32768, 1, 'c'}), vector8({1, 2}), Type::int8), Errc::unsupported);
  to.Clear();
  refused(stele_fb::CreateArray(to, longs({2}), vector8({1, 2}), Type::float8), Errc::unsupported);
  to.Clear();
  refused(stele_fb::CreateArray(to, longs({2}), 0, Type::int8, ByteOrder::little, 0, 2, 0, true), Errc::unsupported);
}

TEST_CASE("samediff: a FlatBuffer ends at 2 GiB, and the error says what to use") {
  const LeafOps nothing{.read = [](const void*, std::uint64_t, std::uint64_t, std::span<std::byte>,
                                   ReadContext&) -> Status { return Error(Errc::io, "nobody reads this"); }};
  SnapshotBuilder builder;
  builder.begin(NodeKind::module, "");
  builder.tensor("huge", DType::u8, std::vector<Extent>{std::uint64_t{3} << 30}, std::uint64_t{3} << 30,
                 {&nothing, nullptr, 0});
  builder.end();
  const Snapshot snapshot = builder.finish();
  BufferSink sink;
  const auto refused = SameDiffRecorder<>().save(snapshot, sink);
  CHECK(code_of(refused) == Errc::limit);
  CHECK(refused.error().path() == "huge");
  CHECK(refused.error().hint().find(".sdnb") != std::string::npos);
}

TEST_CASE("samediff: graphs that cannot be written") {
  const Model m = model(2);
  Checkpoint checkpoint{snapshot_of(m).value()};
  BufferSink sink;
  Graph graph;
  GraphVariable v;
  v.name = "nowhere";
  v.kind = VariableKind::variable;
  v.dtype = DType::f32;
  graph.variables = {v};
  checkpoint.graph = graph;
  CHECK(code_of(SameDiffRecorder<>().save(checkpoint, sink)) == Errc::missing);
  graph.variables[0].kind = VariableKind::array;
  GraphOperation o;
  o.name = "add";
  o.op_name = "add";
  o.inputs = {"gone"};
  o.outputs = {"nowhere"};
  graph.operations = {o};
  checkpoint.graph = graph;
  CHECK(code_of(SameDiffRecorder<>().save(checkpoint, sink)) == Errc::malformed);
  graph.operations[0].inputs = {"steps"};
  graph.operations.push_back(graph.operations[0]);
  checkpoint.graph = graph;
  CHECK(code_of(SameDiffRecorder<>().save(checkpoint, sink)) == Errc::malformed);
  checkpoint.graph.reset();
  struct Other {
    Tensor<float, 1> stranger{{1}, {1}};
    std::vector<Layer> layers;
  };
  checkpoint.optimizer.set_snapshot("M", [] {
    static const float one = 1;
    SnapshotBuilder builder;
    builder.begin(NodeKind::module, "");
    builder.tensor("stranger", DType::f32, {}, 4, {&memory_ops, &one, 0});
    builder.end();
    return builder.finish();
  }());
  CHECK(code_of(SameDiffRecorder<>().save(checkpoint, sink)) == Errc::not_representable);
}

TEST_CASE("samediff: nested graphs") {
  GraphOperation loop;
  loop.name = "loop";
  loop.op_name = "while";
  loop.number = 1;
  loop.outputs = {"v"};
  Graph body;
  body.variables = {{"v", VariableKind::array, DType::f32, std::vector<std::int64_t>{2}, {}, {}, {}}};
  body.operations = {loop};
  body.sub_graphs = {{"condition", Graph()}};
  const Model m = model(1);
  for (const SameDiffContainer container : containers) {
    Checkpoint checkpoint{snapshot_of(m).value()};
    checkpoint.graph.emplace();
    checkpoint.graph->sub_graphs = {{"body", body}, {"", Graph()}};
    BufferSink sink;
    const auto saved = SameDiffRecorder<>(container).save(checkpoint, sink);
    REQUIRE_MESSAGE(saved, why(saved));
    const auto opened = open_samediff(own_bytes(sink.take()));
    REQUIRE_MESSAGE(opened, why(opened));
    CHECK(opened->graph->sub_graphs == checkpoint.graph->sub_graphs);
  }
}

TEST_CASE("samediff: damaged files are refused or read, and nothing else") {
  const Model before = model(1);
  for (const SameDiffContainer container : containers) {
    const SameDiffRecorder<> recorder(container);
    Checkpoint checkpoint{snapshot_of(before).value()};
    checkpoint.training.emplace();
    checkpoint.training->updater = updaters::adam();
    REQUIRE(checkpoint.optimizer.set("M", before));
    REQUIRE(checkpoint.optimizer.set("V", before));
    BufferSink sink;
    REQUIRE(recorder.save(checkpoint, sink));
    const Bytes bytes = sink.take();
    const std::string file(text_of(bytes.span()));
    const auto take = [&](std::string_view damaged) {
      // In memory of its own, which ends where it ends.
      Bytes copy(damaged.size());
      std::copy_n(std::as_bytes(std::span(damaged)).begin(), damaged.size(), copy.data());
      const SourcePtr source = own_bytes(std::move(copy));
      const auto all = open_samediff(source);
      const auto module = recorder.load<Model>(source, {});
      if (all) {
        for (std::size_t i = 0; i < all->parameters.leaf_count(); ++i)
          static_cast<void>(content(all->parameters.leaf(i)));
      }
      for (const Errc code : {code_of(all), code_of(module)}) CHECK(code != Errc::out_of_memory);
      return all.has_value();
    };
    CHECK(take(file));
    // A FlatBuffer does not say how long it is: what pads its end may be missing.
    const std::size_t padding = container == SameDiffContainer::fb ? 32 : 0;
    for (std::size_t size = 0; size + padding < file.size(); size += file.size() / 400 + 1) {
      CHECK_FALSE(take(file.substr(0, size)));
    }
    Random random(7);
    for (int i = 0; i < 4000; ++i) {
      std::string damaged = file;
      const std::size_t bit = random.below(8 * file.size());
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      take(damaged);
    }
  }
}

// A FlatBuffer has no magic number: its root table, and the vtable of it, must have the place and the size of a
// graph's.
TEST_CASE("samediff: which heads are a FlatBuffer") {
  struct Row {
    const char* what;
    bool known;
    std::uint32_t root = 44, back = 40;
    unsigned length = 8, table = 8, field = 4;
    std::size_t size = 64;
    std::string_view identifier = "";
  };
  const Row rows[] = {
      {"a graph", true},
      {"a vtable of 36 bytes", true, 44, 40, 36},
      {"a vtable of 38 bytes", false, 44, 40, 38},
      {"a vtable of 9 bytes", false, 44, 40, 9},
      {"a vtable of 6 bytes", false, 44, 40, 6},
      {"a vtable up to its table", true, 44, 8, 8},
      {"a vtable beyond its table", false, 44, 8, 10},
      {"a vtable at 4", true, 60, 56},
      {"a vtable before 4", false, 60, 57},
      {"a vtable after its table", false, 44, ~std::uint32_t{3}},
      {"a table of 3 bytes", false, 44, 40, 8, 3},
      {"a table of 4 bytes", true, 44, 40, 8, 4},
      {"a table of 128 bytes", true, 44, 40, 8, 128},
      {"a table of 129 bytes", false, 44, 40, 8, 129},
      {"a field of 2 bytes", false, 44, 40, 8, 8, 2},
      {"a table at 46", false, 46},
      {"a table at the last 4 bytes", true, 60},
      {"a table at the end", false, 64},
      {"66 bytes", false, 44, 40, 8, 8, 4, 66},
      {"24 bytes", true, 12, 8, 8, 8, 4, 24},
      {"20 bytes", false, 12, 8, 8, 8, 4, 20},
      {"an identifier", false, 60, 40, 8, 8, 4, 64, "TFL3"},
      {"no identifier", true, 60, 40, 8, 8, 4, 64, "TF 3"},
  };
  const SameDiffFormat format({.container = SameDiffContainer::fb});
  for (const Row& row : rows) {
    CAPTURE(row.what);
    std::string head(row.size, '\0');
    const auto put = [&](std::size_t at, std::uint64_t number, std::size_t width) {
      for (std::size_t i = 0; i < width && at + i < head.size(); ++i) head[at + i] = static_cast<char>(number >> 8 * i);
    };
    head.replace(4, row.identifier.size(), row.identifier);
    put(0, row.root, 4);
    put(row.root, row.back, 4);
    const std::size_t vtable = std::size_t{row.root} - row.back;
    put(vtable, row.length, 2);
    put(vtable + 2, row.table, 2);
    put(vtable + 4, row.field, 2);
    CHECK(format.recognises(bytes_of(head), head.size()) == row.known);
  }
}

}  // namespace samediff_container_test
