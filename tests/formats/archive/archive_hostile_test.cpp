// Archives that are damaged, that lie, that are made to take long or much.
#include <doctest/doctest.h>

#include <string>

#include "archive_generated.h"
#include "recorders/archive/graph_fb.hpp"
#include "recorders/archive/lines.hpp"
#include "support/archive.hpp"
#include "support/random_model.hpp"
#include "support/sanitizers.hpp"
#include "support/stele_file.hpp"
#include "support/temp_dir.hpp"

namespace archive_hostile_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;
using namespace detail::archive;
using flatbuffers::FlatBufferBuilder;
constexpr std::uint64_t plenty = 1U << 24U;
constexpr std::size_t step = sanitizers ? 7 : 1;  // of what is damaged one after the other

std::span<const std::byte> made(const FlatBufferBuilder& from) {
  return std::as_bytes(std::span(from.GetBufferPointer(), from.GetSize()));
}

/// Compares what can be read of a damaged file with what was in it; empty: all that is read is right.
std::string compared(const Snapshot& now, const Arrays& before) {
  for (std::size_t i = 0; i < now.leaf_count(); ++i) {
    const LeafView leaf = now.leaf(i);
    const auto bytes = content(leaf);
    if (!bytes) continue;
    const auto was = before.find(leaf.path());
    if (was == before.end()) return "a new name: " + leaf.path();
    const Array is{leaf.dtype(), {leaf.shape().begin(), leaf.shape().end()}, *bytes};
    if (is != was->second) return "other bytes: " + leaf.path();
  }
  return {};
}

struct Whole {
  Arrays parameters, m;
};

std::string taken(std::string_view file, const char* tag, const Whole& before) {
  const auto c = opened(file, tag);
  if (!c) return c.error().code() == Errc::out_of_memory ? "too much memory" : "";
  std::string problem = compared(c->parameters, before.parameters);
  if (const Snapshot* m = c->optimizer.find("M"); m != nullptr && problem.empty()) problem = compared(*m, before.m);
  return problem;
}

Whole whole_of(std::string_view file, const char* tag) {
  const Checkpoint c = good(opened(file, tag));
  return {arrays_of(c.parameters), c.optimizer.find("M") != nullptr ? arrays_of(*c.optimizer.find("M")) : Arrays()};
}

/// An archive with one entry of a tag `t` besides a parameter `w` of entry 0.
std::string with(const std::string& name, std::string_view bytes) {
  return zipped({{"t/params.txt", "w 0\n"},
                 {"t/params/0.fb", array_entry({1})},
                 {name, std::string(bytes)},
                 {"tags.txt", "t\n"}});
}
std::string with_array(std::string_view bytes) {
  return zipped({{"t/params.txt", "w 0\n"}, {"t/params/0.fb", std::string(bytes)}, {"tags.txt", "t\n"}});
}

/// Opens and reads all.
Errc read_error(std::string_view file) {
  const auto c = opened(file);
  if (!c) return c.error().code();
  for (std::size_t i = 0; i < c->parameters.leaf_count(); ++i) {
    const auto bytes = content(c->parameters.leaf(i));
    if (!bytes) return bytes.error().code();
    CHECK(bytes->size() == c->parameters.leaf(i).byte_size());
  }
  return Errc::none;
}

struct RawArray {
  std::vector<std::int64_t> shape{1, 2, 1, 8192, 1, 'c'};
  std::string buffer = std::string(8, '\0');
  stele_fb::Type dtype = stele_fb::Type::float32;
  bool external = false;
  std::vector<std::string> names{};
  std::int64_t total = 0;

  std::string make() const {
    FlatBufferBuilder to;
    const auto info = to.CreateVector(shape);
    const auto bytes = to.CreateVector(reinterpret_cast<const std::int8_t*>(buffer.data()), buffer.size());
    const auto list = to.CreateVectorOfStrings(names);
    to.Finish(stele_fb::CreateArray(to, info, bytes, dtype, stele_fb::ByteOrder::little, 0, total, list, external));
    return std::string(text_of(made(to)));
  }
};

}  // namespace

TEST_CASE("archive: every truncation and every flipped bit of all parts") {
  Checkpoint c = checkpoint({{"a", floats({1, 2})}, {"none", floats({})}});
  c.optimizer.set_snapshot("M", snapshot({{"a", floats({3, 4})}}));
  c.training.emplace().updater = updaters::adam();
  GraphOperation op;
  op.name = "op";
  op.ints = {{"i", 1}};
  c.graph.emplace().operations = {op};
  const std::string file = archive_of(c);
  REQUIRE(file.size() < 2800);
  const Whole before = whole_of(file, "");
  for (std::size_t size = 0; size < file.size(); ++size) {
    const std::string cut = file.substr(0, size);
    if (opened(cut).has_value()) FAIL_CHECK(size << " bytes are enough");
  }
  std::string damaged = file;
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    const std::string problem = taken(damaged, "", before);
    if (!problem.empty()) FAIL_CHECK(problem << " with bit " << bit << " flipped");
    damaged[bit / 8] = file[bit / 8];
  }
}

TEST_CASE("archive: a damaged file of another program") {
  const std::string file = read_text(test_data("archive") + "/full.zip");
  const Whole base = whole_of(file, "base"), tuned = whole_of(file, "tuned");
  for (std::size_t size = 0; size < file.size(); size += 13) CHECK_FALSE(opened(file.substr(0, size)).has_value());
  std::string damaged = file;
  for (std::size_t i = 0; i < file.size(); i += step) {
    damaged[i] = static_cast<char>(damaged[i] ^ 1 << i * 5 % 8);
    std::string problem = taken(damaged, "base", base);
    if (problem.empty()) problem = taken(damaged, "tuned", tuned);
    if (!problem.empty()) FAIL_CHECK(problem << " at byte " << i);
    damaged[i] = file[i];
  }
  // Bytes after the content are checked, too, and so are strings.
  for (const char* text : {"two words", "\xfe\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00"}) {
    std::size_t at = file.find(text);
    REQUIRE(at != file.npos);
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    CHECK_FALSE(recorder_of({.tag = "base"}).verify(bytes_of(damaged)).has_value());
    damaged[at] = file[at];
  }
}

TEST_CASE("archive: flipped bits of each part, with the right CRC-32") {
  const std::string file = read_text(test_data("archive") + "/full.zip");
  const Entries entries = unzipped(file);
  // Arrays of every kind.
  for (const auto& [name, bytes] : entries) {
    if (!name.starts_with("base/params/") || !name.ends_with(".fb")) continue;
    std::string damaged = bytes;
    for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += step) {
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
      static_cast<void>(read_error(with_array(damaged)));
      damaged[bit / 8] = bytes[bit / 8];
    }
  }
  const auto each = [&](const std::string& bytes, auto read) {
    std::string damaged = bytes;
    for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += step) {
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
      read(damaged);
      damaged[bit / 8] = bytes[bit / 8];
    }
    for (std::size_t size = 0; size < bytes.size(); ++size) read(bytes.substr(0, size));
  };
  each(entry(entries, "base/graph.fb"), [](const std::string& bytes) {
    const auto graph = read_graph(bytes_of(bytes), plenty);
    if (graph) static_cast<void>(graph->order());
    if (graph) CHECK(write_graph(*graph).has_value());
  });
  each(entry(entries, "tuned/trainingConfig.fb"), [](const std::string& bytes) {
    if (const auto training = read_training(bytes_of(bytes), plenty))
      static_cast<void>(TrainingConfig::parse(training->json));
  });
  for (const std::string& text : {entry(entries, "base/params.txt"), "w M=0 V=t/1 MAP x\n"s}) {
    each(text, [](const std::string& damaged) {
      const auto parsed = parse_lines(damaged, plenty);
      if (!parsed) return;
      const auto again = parse_lines(lines_text(*parsed), plenty);
      CHECK((again && lines_text(*again) == lines_text(*parsed)));
    });
  }
}

TEST_CASE("archive: arrays that lie") {
  CHECK(read_error(with_array(RawArray().make())) == Errc::none);
  const auto error = [](auto change) {
    RawArray a;
    change(a);
    return read_error(with_array(a.make()));
  };
  using I = std::vector<std::int64_t>;
  CHECK(error([](RawArray& a) { a.buffer += "x"; }) == Errc::malformed);
  CHECK(error([](RawArray& a) { a.buffer.pop_back(); }) == Errc::malformed);
  CHECK(error([](RawArray& a) { a.buffer.clear(); }) == Errc::malformed);
  CHECK(error([](RawArray& a) { a.shape[1] = 3; }) == Errc::malformed);
  CHECK(error([](RawArray& a) { a.shape[1] = -2; }) == Errc::malformed);
  CHECK(error([](RawArray& a) { a.shape[1] = INT64_MAX; }) == Errc::malformed);
  CHECK(error([](RawArray& a) { a.shape[2] = 2; }) == Errc::unsupported);   // room between
  CHECK(error([](RawArray& a) { a.shape[2] = 0; }) == Errc::unsupported);   // all in one place
  CHECK(error([](RawArray& a) { a.shape[2] = -1; }) == Errc::unsupported);  // backwards
  CHECK(error([](RawArray& a) { a.shape[3] |= 8; }) == Errc::malformed);    // empty, but not
  CHECK(error([](RawArray& a) { a.shape = I{2, 1LL << 32, 1LL << 32, 1, 1, 8192, 1, 'c'}; }) != Errc::none);
  CHECK(error([](RawArray& a) {
          a.shape = I{2, 1LL << 62, 0, 0, 0, 8192, 1, 'c'};
          a.buffer.clear();
        }) != Errc::out_of_memory);
  CHECK(error([](RawArray& a) {
          a.shape = {};
          a.dtype = stele_fb::Type::inherit;
        }) == Errc::malformed);
  CHECK(error([](RawArray& a) {
          a.shape = I{2};
          a.dtype = stele_fb::Type::float8;
        }) == Errc::unsupported);
  CHECK(error([](RawArray& a) {
          a.shape = I{2};
          a.dtype = static_cast<stele_fb::Type>(99);
        }) == Errc::unsupported);
  CHECK(error([](RawArray& a) { a.shape = I{-1}; }) == Errc::malformed);
  CHECK(error([](RawArray& a) { a.external = true; }) == Errc::malformed);
  CHECK(error([](RawArray& a) {
          a.external = true;
          a.names = {"x"};
          a.total = 8;
        }) == Errc::malformed);
  CHECK(error([](RawArray& a) {
          a.external = true;
          a.buffer.clear();
          a.names = {"x", "y"};
          a.total = 8;
        }) == Errc::malformed);
  CHECK(error([](RawArray& a) {
          a.external = true;
          a.buffer.clear();
          a.names = {"x"};
          a.total = -8;
        }) == Errc::malformed);
  CHECK(error([](RawArray& a) {
          a.external = true;
          a.buffer.clear();
          a.names = {""};
          a.total = 8;
        }) == Errc::malformed);
  CHECK(error([](RawArray& a) { a.shape = I{1, 2, 1, 1048576, 1, 'c'}; }) == Errc::malformed);  // texts that are none
  // Texts of very many axes would be lists in each other, and no others are there.
  RawArray deep;
  deep.buffer = std::string(8, '\0') + "\1\0\0\0\0\0\0\0x"s;
  deep.shape.assign(2 * 100000 + 4, 1);
  deep.shape[0] = 100000;
  deep.shape[deep.shape.size() - 3] = 1048576;
  deep.shape.back() = 'c';
  CHECK(read_error(with_array(deep.make())) == Errc::limit);
  // Not FlatBuffers at all.
  for (const std::string& bytes : {""s, "\0\0\0\0"s, "\4\0\0\0"s, "\xff\xff\xff\xff"s, std::string(100, '\0'),
                                   std::string(100, '\xff'), "text"s}) {
    CHECK(read_error(with_array(bytes)) == Errc::malformed);
    CHECK(read_error(with("t/graph.fb", bytes)) == Errc::malformed);
    CHECK(read_error(with("t/trainingConfig.fb", bytes)) == Errc::malformed);
  }
  CHECK(read_error(with("t/metadata.json", std::string(100000, '[') + std::string(100000, ']'))) == Errc::malformed);
  CHECK(read_error(with("t/metadata.json", "{\"a\":\"b\",\"a\":\"c\"}")) == Errc::duplicate);
  CHECK(read_error(with("t/metadata.json", R"({"stele":"{\"version\":1,\"values\":{\"v\":)" + std::string(5000, '[') +
                                               std::string(5000, ']') + "}}\"}")) != Errc::none);
}

TEST_CASE("archive: graphs in graphs") {
  const auto nested = [](int depth) {
    FlatBufferBuilder to;
    auto inner = stele_fb::CreateGraph(to);
    for (int i = 0; i < depth; ++i) {
      const auto named = to.CreateVector(std::vector{stele_fb::CreateNamedGraph(to, 0, inner)});
      inner = stele_fb::CreateGraph(to, 0, 0, 0, 0, named);
    }
    to.Finish(inner);
    return read_graph(made(to), plenty);
  };
  CHECK(nested(16).has_value());
  CHECK(bad(nested(17)).code() == Errc::limit);
  CHECK_FALSE(nested(40).has_value());
  CHECK_FALSE(nested(1000).has_value());
  Graph deep;
  for (int i = 0; i < 17; ++i) {
    Graph outer;
    outer.sub_graphs.emplace_back("g", std::move(deep));
    deep = std::move(outer);
  }
  CHECK(bad(write_graph(deep)).code() == Errc::not_representable);
  CHECK(write_graph(deep.sub_graphs[0].second).has_value());
  // A named graph that is none.
  FlatBufferBuilder to;
  const auto named = to.CreateVector(std::vector{stele_fb::CreateNamedGraph(to)});
  to.Finish(stele_fb::CreateGraph(to, 0, 0, 0, 0, named));
  CHECK(bad(read_graph(made(to), plenty)).code() == Errc::malformed);
}

TEST_CASE("archive: FlatBuffers that say one thing very often") {
  constexpr std::size_t many = 50000;
  const std::string name(50000, 'x');
  FlatBufferBuilder to;
  {
    // Texts, in one operation and in very many.
    const std::vector<flatbuffers::Offset<flatbuffers::String>> all(many, to.CreateString(name));
    const auto texts = to.CreateVector(all);
    const auto graph = stele_fb::CreateGraph(to, 0, 0, texts, texts);
    to.Finish(graph);
    CHECK(bad(read_graph(made(to), plenty)).code() == Errc::limit);
    to.Clear();
    const auto empty = to.CreateString("");
    const auto list = to.CreateVector(std::vector(many, empty));
    const auto op = stele_fb::CreateOperation(to, 0, 0, 21, 0, list, list, list, 0, list, 0, list);
    const auto operations = to.CreateVector(std::vector(many, op));
    to.Finish(stele_fb::CreateGraph(to, 0, operations));
    CHECK(bad(read_graph(made(to), plenty)).code() == Errc::limit);
    CHECK(opened(with("t/graph.fb", text_of(made(to)))).error().code() == Errc::limit);
  }
  {
    // Arrays in properties, graphs in graphs.
    to.Clear();
    const auto info = to.CreateVector(std::vector<std::int64_t>{1, 50000, 1, 32768, 1, 'c'});
    const auto bytes = to.CreateVector(std::vector<std::int8_t>(50000));
    const auto array = stele_fb::CreateArray(to, info, bytes);
    const auto arrays = to.CreateVector(std::vector(1000, array));
    const auto property = stele_fb::CreateProperty(to, 0, 0, 0, 0, arrays);
    const auto properties = to.CreateVector(std::vector(1000, property));
    stele_fb::OperationBuilder builder(to);
    builder.add_properties(properties);
    const auto operations = to.CreateVector(std::vector{builder.Finish()});
    to.Finish(stele_fb::CreateGraph(to, 0, operations));
    CHECK(bad(read_graph(made(to), plenty)).code() == Errc::limit);
    to.Clear();
    auto inner = stele_fb::CreateGraph(to);
    for (int i = 0; i < 16; ++i) {
      const auto named = stele_fb::CreateNamedGraph(to, 0, inner);
      const auto list = to.CreateVector(std::vector(100, named));
      inner = stele_fb::CreateGraph(to, 0, 0, 0, 0, list);
    }
    to.Finish(inner);
    CHECK(bad(read_graph(made(to), plenty)).code() == Errc::limit);
  }
  {
    to.Clear();
    const auto keys = to.CreateVector(std::vector(many, to.CreateString(name)));
    to.Finish(stele_fb::CreateTraining(to, 0, keys));
    CHECK(bad(read_training(made(to), plenty)).code() == Errc::limit);
    CHECK(opened(with("t/trainingConfig.fb", text_of(made(to)))).error().code() == Errc::limit);
  }
  // The limit admits a real graph of 10,000 operations.
  Graph large;
  for (int i = 0; i < 10000; ++i) {
    GraphOperation op;
    op.name = "operation_" + std::to_string(i);
    op.op_name = "matmul";
    op.inputs = {"a", "b"};
    op.outputs = {"c"};
    op.ints = {{"transposeX", 0}, {"transposeY", 0}, {"transposeZ", 0}};
    large.operations.push_back(op);
  }
  Checkpoint c = checkpoint({});
  c.graph = large;
  for (const bool deflate : {false, true}) {
    const std::string file = archive_of(c, {.deflate = deflate});
    CHECK(good(opened(file)).graph->operations.size() == large.operations.size());
  }
}

TEST_CASE("archive: what would take the square of the time") {
  constexpr int many = 100'000;  // the square is 10^10 texts
  // Folders of another spelling, tags, and lines that name them.
  const std::string file = zipped_by([&](zip::Writer& w) {
    std::string tags = "t\n", lines;
    for (int i = 0; i < many; ++i) {
      good(w.add("T/params/" + std::to_string(i) + ".fb", bytes_of("")));
      tags += "x" + std::to_string(i) + "\n";
      if (i % 4 == 0) lines += std::to_string(i) + " x" + std::to_string(i) + "/0 MAP\n";
    }
    good(w.add("T/params.txt", bytes_of(lines)));
    good(w.add("tags.txt", bytes_of(tags)));
  });
  CHECK(good(opened(file, "t")).parameters.leaf_count() == 0);
  // Columns of state.
  std::string columns = "w", keys = "w";
  for (int i = 0; i < many; ++i) columns += " 0", keys += " k" + std::to_string(i) + "=0";
  for (const std::string& line : {columns, keys}) {
    const std::string states = zipped({{"t/params.txt", "w 0\n"},
                                       {"t/params/0.fb", array_entry({1})},
                                       {"t/updater.txt", line},
                                       {"t/updater/0.fb", array_entry({1})},
                                       {"tags.txt", "t\n"}});
    CHECK_FALSE(opened(states).has_value());
  }
  // Many lines of a kind each.
  std::string params, updater;
  for (int i = 0; i < many; ++i) {
    params += std::to_string(i) + " 0\n";
    updater += std::to_string(i) + " k" + std::to_string(i) + "=0\n";
  }
  const std::string kinds = zipped({{"t/params.txt", params},
                                    {"t/params/0.fb", array_entry({1})},
                                    {"t/updater.txt", updater},
                                    {"t/updater/0.fb", array_entry({1})},
                                    {"tags.txt", "t\n"}});
  CHECK(open_error(kinds).code() == Errc::limit);
}

TEST_CASE("archive: many tags of many parameters can be edited") {
  // More lines together than memory is allowed for one tag.
  std::string lines, tags;
  for (int i = 0; i < 3000; ++i) lines += "layer." + std::to_string(i) + ".weight base/0\n";
  const TempDir dir;
  const std::string path = dir / "m.zip";
  write_text(path, zipped_by([&](zip::Writer& w) {
               good(w.add("base/params.txt", bytes_of("w 0\n")));
               good(w.add("base/params/0.fb", bytes_of(array_entry({1}))));
               for (int i = 0; i < 60; ++i) {
                 good(w.add("t" + std::to_string(i) + "/params.txt", bytes_of(lines), zip::deflated));
                 tags += "t" + std::to_string(i) + "\n";
               }
               good(w.add("tags.txt", bytes_of("base\n" + tags)));
             }));
  const auto recorder = recorder_of({.deduplicate = true});
  good(recorder.edit(checkpoint({{"w", floats({1})}}), path, "new", ArchiveEdit::append, quick()));
  CHECK(arrays_of(good(open_archive(path)).parameters) == Arrays{{"w", floats({1})}});
  CHECK(good(open_archive(path, "t7")).parameters.leaf_count() == 3000);
}

}  // namespace archive_hostile_test
