// Calls that make no sense: each is an invalid_argument, in every recorder.
#include <stele/bundle.hpp>
#include <stele/pattern.hpp>
#include <stele/quantize.hpp>
#include <stele/recorders/nnef.hpp>
#include <stele/recorders/paddle.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/schema.hpp>
#include <stele/transform.hpp>

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

namespace precondition_test {

using namespace stele_test;
using namespace stele;

namespace {

struct Weights {
  Tensor<float, 1> weight;
  Tensor<std::int16_t, 2> counts;
};
Weights weights() { return {Tensor<float, 1>({5}, {1, 2, 3, 4, 5}), Tensor<std::int16_t, 2>({2, 2}, {1, 2, 3, 4})}; }

/// Reads every part of every leaf: whole elements are read, all else is refused.
void check_parts(const Snapshot& snapshot) {
  std::array<std::byte, 64> memory{};
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const std::uint64_t unit = element_size(leaf.dtype());
    const std::uint64_t all = leaf.byte_size();
    CAPTURE(leaf.path());
    CAPTURE(name(leaf.dtype()));
    for (std::uint64_t offset = 0; offset <= all + 1; ++offset) {
      for (std::uint64_t size = 0; size <= all + 1; ++size) {
        const auto r = leaf.read(offset, std::span(memory).first(static_cast<std::size_t>(size)));
        const bool outside = offset + size > all;
        const bool whole = offset % unit == 0 && size % unit == 0;
        const Errc expected = outside ? Errc::truncated : whole ? Errc::none : Errc::invalid_argument;
        if (code_of(r) == expected) continue;
        CAPTURE(offset);
        CAPTURE(size);
        CHECK(why(r) == std::string(name(expected)));
      }
    }
    const std::uint64_t far = std::numeric_limits<std::uint64_t>::max();
    CHECK(leaf.read(far, std::span(memory).first(4)).error().code() == Errc::truncated);
  }
}

struct Call {
  std::string name;
  std::function<Errc()> run;
};
void check(std::span<const Call> calls) {
  for (const Call& call : calls) {
    CAPTURE(call.name);
    CHECK(stele::name(call.run()) == stele::name(Errc::invalid_argument));
  }
}

}  // namespace

STELE_TEST_EACH_RECORDER("precondition: part of a tensor is whole elements of it") {
  const Weights module = weights();
  const Bytes bytes = good(saved(recorder, module));
  check_parts(good(recorder.open(bytes)));
}

TEST_CASE("precondition: part of a computed tensor is whole elements of it") {
  const Weights module = weights();
  const Snapshot live = good(snapshot_of(module));
  check_parts(live);
  check_parts(with_precision(live, precision_spec<HalfPrecision>()));
  check_parts(with_precision(live, precision_spec<FullPrecision>()));
  const Snapshot quantized = good(quantize(live));
  check_parts(quantized);
  check_parts(good(dequantize(quantized)));
  check_parts(good(transpose(live, "counts")));
  const std::vector<Part> parts{{"counts.a", 1}, {"counts.b", 1}};
  check_parts(good(split(live, "counts", 1, parts)));
  const std::vector<std::string> both{"counts.a", "counts.b"};
  check_parts(good(concatenate(good(split(live, "counts", 1, parts)), both, 1, "counts")));
  check_parts(with_precision(good(transpose(live, "counts")), precision_spec<HalfPrecision>()));
}

TEST_CASE("precondition: the names of a flat file are strings") {
  stele::SnapshotBuilder builder;
  builder.set_flat();
  builder.value(stele::NodeName::element(7), stele::Value(std::int64_t{1}));
  builder.value(stele::NodeName::element(12), stele::Value(std::int64_t{2}));
  const stele::Snapshot snapshot = builder.finish();
  using Numbers = std::map<std::string, std::int64_t>;
  CHECK(good(stele::load<Numbers>(snapshot)) == Numbers{{"7", 1}, {"12", 2}});
}

STELE_TEST_EACH_RECORDER("precondition: loads and saves of nothing") {
  const Weights module = weights();
  Weights target;
  const char* const null = nullptr;
  const SourcePtr no_source;
  const Call calls[] = {
      {"load, null source", [&] { return code_of(recorder.load<Weights>(no_source)); }},
      {"load into, null source", [&] { return code_of(recorder.load_into(target, no_source)); }},
      {"open, null source", [&] { return code_of(recorder.open(no_source)); }},
      {"verify, null source", [&] { return code_of(recorder.verify(no_source)); }},
      {"open, null path", [&] { return code_of(recorder.open(null)); }},
      {"open, empty path", [&] { return code_of(recorder.open("")); }},
      {"record, empty path", [&] { return code_of(recorder.save(module, std::string())); }},
      {"record, a NUL in the path", [&] { return code_of(recorder.save(module, std::string("a\0b.c", 5))); }},
      {"open, a NUL in the path", [&] { return code_of(recorder.open(std::string("a\0b.c", 5))); }},
  };
  check(calls);
}

TEST_CASE("precondition: every other call") {
  const Weights module = weights();
  const Snapshot live = good(snapshot_of(module));
  const SourcePtr source = own_bytes(Bytes(ReadContext::piece_size + 2));
  const auto bundle = memory_bundle();
  BufferSink buffer;
  std::array<std::byte, 8> memory{};
  SpanSink span(memory);
  const std::array<std::byte, 4> four{};
  const std::vector<std::size_t> axes{0, 0};
  const std::vector<std::size_t> far{0, 7};
  const std::vector<Part> parts{{"a", 1}, {"b", 1}};
  const std::vector<std::string> paths{"counts"};
  const std::vector<Rename> bad_pattern{{"(", "x"}};
  const std::vector<Rename> bad_group{{"a", "\\1"}};
  /// Memory that is not all there, so that a window is read.
  class Hidden final : public Source {
   public:
    Hidden() : Source("hidden") {}
    std::uint64_t size() const noexcept override { return std::uint64_t{1} << 40; }
    Status read_at(std::uint64_t, std::span<std::byte>) const override { return {}; }
  } hidden;
  const Call calls[] = {
      {"window", [&] { return code_of(ReadContext().window(hidden, 0, ReadContext::piece_size + 1)); }},
      {"open_file", [&] { return code_of(open_file("")); }},
      {"map_file", [&] { return code_of(map_file("")); }},
      {"open_folder", [&] { return code_of(open_folder("")); }},
      {"open_file, NUL", [&] { return code_of(open_file(std::string("a\0", 2))); }},
      {"file_sink", [&] { return code_of(file_sink("")); }},
      {"folder_sink", [&] { return code_of(folder_sink("")); }},
      {"patch memory", [&] { return buffer.patch(1, four).error().code(); }},
      {"patch memory, far", [&] { return buffer.patch(~std::uint64_t{0}, four).error().code(); }},
      {"patch a span", [&] { return span.patch(0, four).error().code(); }},
      {"bundle open, empty", [&] { return code_of(bundle->open("")); }},
      {"bundle open, up", [&] { return code_of(bundle->open("../x")); }},
      {"bundle create, rooted", [&] { return code_of(bundle->create("/x")); }},
      {"bundle contains", [&] { return code_of(bundle->contains("a//b")); }},
      {"a null bundle", [&] { return code_of(NnefRecorder<>().open(bundle_source(nullptr))); }},
      {"a null bundle, Paddle", [&] { return code_of(PaddleRecorder<>().open(bundle_source(nullptr))); }},
      {"a null bundle, front door", [&] { return code_of(stele::open(bundle_source(nullptr))); }},
      {"save into a null bundle", [&] { return code_of(NnefRecorder<>().save(module, *bundle_sink(nullptr))); }},
      {"save into a null bundle, Paddle",
       [&] { return code_of(PaddleRecorder<>(PaddleFormat({.folder = true})).save(module, *bundle_sink(nullptr))); }},
      {"front door, null", [&] { return code_of(stele::load<Weights>(SourcePtr())); }},
      {"front door, no path", [&] { return code_of(stele::load<Weights>("")); }},
      {"front door, save", [&] { return code_of(stele::save(module, "")); }},
      {"verify", [&] { return code_of(verify(SteleFormat(), SourcePtr())); }},
      {"archive_tags", [&] { return code_of(archive_tags(SourcePtr())); }},
      {"open_archive", [&] { return code_of(open_archive(SourcePtr())); }},
      {"open_samediff", [&] { return code_of(open_samediff(SourcePtr())); }},
      {"paddle_program", [&] { return code_of(paddle_program(SourcePtr())); }},
      {"a tag that is none",
       [&] { return code_of(ArchiveRecorder<>(ArchiveFormat({.tag = "a/b"})).save(live, buffer)); }},
      {"quantize 1", [&] { return code_of(quantize(live, {.bits = 1})); }},
      {"quantize 9", [&] { return code_of(quantize(live, {.bits = 9})); }},
      {"transpose twice", [&] { return code_of(transpose(live, "counts", axes)); }},
      {"transpose far", [&] { return code_of(transpose(live, "counts", far)); }},
      {"split axis", [&] { return code_of(split(live, "counts", 2, parts)); }},
      {"concatenate axis", [&] { return code_of(concatenate(live, paths, 2, "x")); }},
      {"concatenate nothing", [&] { return code_of(concatenate(live, std::span<const std::string>(), 0, "x")); }},
      {"rename, no pattern", [&] { return code_of(rename(live, bad_pattern)); }},
      {"rename, no group", [&] { return code_of(rename(live, bad_group)); }},
  };
  check(calls);
}

TEST_CASE("precondition: arrays inside a graph fit their dtypes and shapes") {
  const GraphArray good_array{DType::f32, {2}, std::vector<std::byte>(8), {}};
  const GraphArray bad_arrays[] = {
      {DType::f32, {2}, std::vector<std::byte>(7), {}},
      {DType::f32, {2}, {}, {}},
      {DType::f32, {std::uint64_t{1} << 63, 2, 0}, {}, {}},
      {DType::none, {1}, std::vector<std::byte>(4), {}},
      {DType::string, {2}, {}, {"one"}},
  };
  const auto checkpoint = [](const GraphArray& array, bool property, bool inner) {
    GraphOperation operation;
    operation.name = "add";
    operation.op_name = "add";
    if (property) {
      operation.properties.push_back({"p", {}, {}, {}, {array}, {}, {}, {}});
    } else {
      operation.scalar = array;
    }
    Graph graph;
    graph.operations.push_back(std::move(operation));
    Checkpoint all;
    all.graph.emplace();
    if (inner) {
      all.graph->sub_graphs.emplace_back("inner", std::move(graph));
    } else {
      all.graph = std::move(graph);
    }
    return all;
  };
  const auto codes = [](const Checkpoint& all) {
    BufferSink archive;
    BufferSink samediff;
    const Errc one = code_of(ArchiveRecorder<>().save(all, archive));
    const Errc two = code_of(SameDiffRecorder<>().save(all, samediff));
    CHECK(name(one) == name(two));
    return one;
  };
  for (const bool property : {false, true}) {
    for (const bool inner : {false, true}) {
      CHECK(name(codes(checkpoint(good_array, property, inner))) == name(Errc::none));
      for (const GraphArray& array : bad_arrays) {
        CHECK(name(codes(checkpoint(array, property, inner))) == name(Errc::invalid_argument));
      }
    }
  }
}

STELE_TEST_EACH_RECORDER("precondition: any number of threads") {
  struct Large {
    Tensor<float, 1> weight;
  };
  const Large large{Tensor<float, 1>::filled({3 << 20}, 1)};
  SaveOptions save;
  save.threads = std::numeric_limits<unsigned>::max();
  const Bytes bytes = good(saved(recorder, large, save));
  LoadOptions load;
  load.threads = save.threads;
  CHECK(good(recorder.load<Large>(bytes, load)).weight[5] == 1);
}

TEST_CASE("precondition: calls without a Result") {
  const Weights module = weights();
  const Snapshot live = good(snapshot_of(module));
  CHECK_THROWS_AS((Tensor<float, 1>({2}, {1, 2, 3})), std::invalid_argument);
  CHECK_THROWS_AS((Tensor<float, 1>({4}, {1, 2, 3})), std::invalid_argument);
  CHECK_THROWS_AS(ReadContext().memory(2, 1), std::out_of_range);
  CHECK(live.value(live.nodes()[1]).is_null());
  CHECK(live.path(99).empty());
  CHECK(live.checked_leaf(99).error().code() == Errc::not_found);
  const Snapshot none{std::shared_ptr<const detail::SnapshotData>()};
  CHECK(none.leaf_count() == 0);
  const Schema schema = schema_of<Weights>();
  CHECK(schema.dtype() == DType::none);
  CHECK(schema.length() == 0);
  CHECK_FALSE(schema.rank().has_value());
  CHECK_FALSE(schema.shape().has_value());
  CHECK(ProgressCallback()(Progress{}));
  SnapshotBuilder builder;
  builder.set_id(ParamId::from_u64(1));
  builder.annotate("a", Value(true));
  builder.begin(NodeKind::module, "");
  builder.end();
  builder.end();
  CHECK(builder.finish().leaf_count() == 0);
  float one = 1;
  CHECK(TensorView<float, 2>(&one, {~Extent{0}, 2}).size() == 0);
}

}  // namespace precondition_test
