// The archive against the requirements of ADR-0001 (R1 to R28), with a file that other programs made and our own.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "recorders/archive/graph_fb.hpp"
#include "support/archive.hpp"
#include "support/random_model.hpp"
#include "support/temp_dir.hpp"

namespace archive_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;
using Names = std::vector<std::string>;

std::string golden(const std::string& name) { return read_text(test_data("archive") + "/" + name + ".zip"); }

template <class T>
Array counted(DType dtype, std::vector<Extent> shape, const std::vector<T>& numbers) {
  return {dtype, std::move(shape), bytes_of_numbers(numbers)};
}
Array counted(std::vector<Extent> shape) {
  std::vector<float> numbers(static_cast<std::size_t>(*element_count(shape)));
  for (std::size_t k = 0; k < numbers.size(); ++k) numbers[k] = static_cast<float>(k) - 2;
  return floats(std::move(shape), numbers);
}
template <class T>
std::vector<T> up_to(std::size_t n) {
  std::vector<T> numbers(n);
  for (std::size_t k = 0; k < n; ++k) numbers[k] = static_cast<T>(static_cast<int>(k) - 2);
  return numbers;
}

/// Returns the arrays that tests/formats/archive/interop/make_golden_archive.py put into `base`.
Arrays golden_base() {
  return {
      {"my/param/name", counted({3, 2})},
      {"&MyParam*", counted({2, 3})},
      {"with blank\n", counted(DType::f64, {2, 3}, up_to<double>(6))},
      {"", counted(DType::i64, {4}, up_to<std::int64_t>(4))},
      {"permuted", counted(DType::i16, {2, 3, 4}, up_to<std::int16_t>(24))},
      {"half", counted(DType::f16, {5}, std::vector<std::uint16_t>{0xc000, 0xbc00, 0, 0x3c00, 0x4000})},
      {"bf16", counted(DType::bf16, {5}, std::vector<std::uint16_t>{0xc000, 0xbf80, 0, 0x3f80, 0x4000})},
      {"for_others", counted(DType::i32, {3}, up_to<std::int32_t>(3))},
      {"mask", {DType::boolean, {3}, "\0\1\0"s}},
      {"plain", {DType::u8, {2, 2}, "\0\1\2\3"s}},
      {"scalar", {DType::i8, {}, "\xfe"}},
      {"none", floats({0, 3}, {})},
      {"beside", counted({2, 2})},
      {"日本語", counted({1})},
  };
}

Graph small_graph() {
  Graph g;
  g.variables = {{"in", VariableKind::placeholder, DType::f32, std::vector<std::int64_t>{-1, 2}, {}, {}, {}},
                 {"w", VariableKind::variable, DType::none, std::nullopt, {}, {}, {}},
                 {"out", VariableKind::array, DType::f32, std::nullopt, {}, {}, {}}};
  GraphOperation op;
  op.name = "mul";
  op.op_name = "matmul";
  op.inputs = {"in", "w"};
  op.outputs = {"out"};
  op.ints = {{"transposeX", 0}, {"", -1}};
  g.operations = {op};
  return g;
}

TrainingConfig adam() {
  TrainingConfig config;
  config.updater = updaters::adam();
  config.iteration_count = 41;
  return config;
}

/// Everything that a tag can have.
Checkpoint whole() {
  Checkpoint c = checkpoint({{"w", floats({2, 1}, {1, 2})}, {"b/c d", floats({3, 4})}});
  c.graph = small_graph();
  c.training = adam();
  c.optimizer.set_snapshot("V", snapshot({{"w", floats({2, 1}, {5, 6})}, {"b/c d", floats({7, 8})}}));
  c.optimizer.set_snapshot("M", snapshot({{"w", floats({2, 1}, {3, 4})}, {"b/c d", floats({9, 9})}}));
  return c;
}

/// An archive with one parameter `w`, and an updater.txt.
Entries with_updater(const std::string& line) {
  return {{"t/params.txt", "w 0\n"},
          {"t/params/0.fb", array_entry({1, 2})},
          {"t/updater.txt", line},
          {"t/updater/0.fb", array_entry({3, 4})},
          {"t/updater/1.fb", array_entry({5, 6})},
          {"t/updater/2.fb", array_entry({5})},
          {"t/trainingConfig.fb", detail::archive::write_training({adam().json(), {}}, nullptr)},
          {"tags.txt", "t\n"}};
}

}  // namespace

TEST_CASE("archive: R1 R2 R9 to R15 the entries of a file") {
  const std::string file = archive_of(whole(), {.tag = "v1"});
  CHECK(file.starts_with("PK\3\4"));
  const Entries entries = unzipped(file);
  CHECK(names_of(entries) == Names{"v1/params/0.fb", "v1/params/1.fb", "v1/updater/0.fb", "v1/updater/1.fb",
                                   "v1/updater/2.fb", "v1/updater/3.fb", "v1/params.txt", "v1/updater.txt",
                                   "v1/trainingConfig.fb", "v1/graph.fb", "tags.txt"});
  CHECK(entry(entries, "tags.txt") == "v1\n");
  CHECK(entry(entries, "v1/params.txt") == "b/c%20d 0\nw 1\n");
  CHECK(entry(entries, "v1/updater.txt") == "b/c%20d 0 1\nw 2 3\n");
  // The graph is structure alone.
  const Graph graph = good(detail::archive::read_graph(bytes_of(entry(entries, "v1/graph.fb")), 1U << 24U));
  CHECK(graph.find_variable("w")->shape == std::vector<std::int64_t>{2, 1});
  CHECK(graph.find_variable("w")->dtype == DType::f32);
  CHECK(entry(entries, "v1/graph.fb").find(bytes_of_numbers(std::vector<float>{1, 2})) == std::string::npos);
  // Each array is a FlatBuffers table of its own.
  for (const auto& [name, bytes] : entries) {
    if (!name.starts_with("v1/params/") && !name.starts_with("v1/updater/")) continue;
    const auto head = good(detail::samediff::read_head(bytes_of(bytes), bytes.size()));
    REQUIRE(head);
    CHECK(head->facts.bytes == 8);
    CHECK(head->end == bytes.size());
  }
  const auto training =
      good(detail::archive::read_training(bytes_of(entry(entries, "v1/trainingConfig.fb")), 1U << 20U));
  CHECK(good(TrainingConfig::parse(training.json)) == adam());
}

TEST_CASE("archive: R3 a file of another program") {
  const std::string file = golden("full");
  const Checkpoint base = good(opened(file, "base"));
  CHECK(arrays_of(base.parameters) == golden_base());
  const Snapshot& s = base.parameters;
  const auto texts =
      std::find_if(s.nodes().begin(), s.nodes().end(), [](const Node& n) { return n.kind == NodeKind::value; });
  REQUIRE(texts != s.nodes().end());
  CHECK(to_text(s.value(*texts)) == to_text(Value(Value::List{Value("é"s), Value("two words"s)})));
  REQUIRE(base.optimizer.kinds().size() == 2);
  for (const char* key : {"M", "V"}) {
    CHECK(arrays_of(*base.optimizer.find(key)) ==
          Arrays{{"&MyParam*", counted({2, 3})}, {"my/param/name", counted({3, 2})}});
  }
  REQUIRE(base.training);
  CHECK(base.training->updater.type == "Adam");
  CHECK(base.training->iteration_count == 41);
  CHECK(base.training->epoch_count == 3);
  CHECK(base.training->json().find("\"unknownMember\": {\"a\": [1]}") != std::string::npos);
  good(recorder_of({.tag = "base"}).verify(bytes_of(file)));
  good(recorder_of({}).verify(bytes_of(file)));

  const std::string least = golden("least");
  const Checkpoint nothing = good(opened(least));
  CHECK(nothing.parameters.leaf_count() == 0);
  CHECK_FALSE(nothing.graph);
  CHECK_FALSE(nothing.training);
  CHECK(nothing.optimizer.empty());
}

TEST_CASE("archive: R4 through a stream, from memory, from a file") {
  // One leaf that is held for its CRC-32, one that is patched or read twice, one that is computed.
  Random random(3);
  Arrays arrays{{"small", floats({1, 2})}, {"large", {DType::u8, {3000000}, random.bytes(3000000)}}};
  Checkpoint c = checkpoint(arrays);
  c.parameters = with_precision(c.parameters, {DType::f64, DType::none});
  std::ostringstream stream;
  StreamSink to_stream(stream);
  const auto recorder = recorder_of({.tag = "t"});
  good(recorder.save(c, to_stream));
  const std::string file = stream.str();
  CHECK(unzipped(file) == unzipped(archive_of(c, {.tag = "t"})));
  const TempDir dir;
  good(recorder.save(c, dir / "m", quick()));
  CHECK(read_text(dir / "m.zip") == archive_of(c, {.tag = "t"}));
  arrays["small"] = {DType::f64, {2}, bytes_of_numbers(std::vector<double>{1, 2})};
  CHECK(arrays_of(good(opened(file)).parameters) == arrays);
  CHECK(arrays_of(good(open_archive(dir / "m")).parameters) == arrays);
  CHECK(arrays_of(good(open_archive(good(map_file(dir / "m.zip")))).parameters) == arrays);
  std::istringstream back(file);
  CHECK(arrays_of(good(open_archive(good(spool(back, 1U << 24U)))).parameters) == arrays);
}

TEST_CASE("archive: R5 R6 R8 several tags, the newest by default") {
  const std::string file = golden("full");
  CHECK(tags_of(bytes_of(file)) == Names{"base", "Tuned"});
  CHECK(arrays_of(good(opened(file)).parameters) == arrays_of(good(opened(file, "Tuned")).parameters));
  CHECK(arrays_of(good(ArchiveRecorder<>().open(bytes_of(file)))).contains("own"));
  CHECK(arrays_of(good(recorder_of({.tag = "base"}).open(bytes_of(file)))).contains("plain"));
  const Error none = open_error(file, "other");
  CHECK(none.code() == Errc::not_found);
  CHECK(none.expected() == "base, Tuned");
  CHECK(none.found() == "other");
  CHECK(code_of(recorder_of({.tag = "other"}).open(bytes_of(file))) == Errc::not_found);

  const TempDir dir;
  const std::string path = dir / "m.zip";
  const ArchiveRecorder<> recorder;
  good(recorder.save(checkpoint({{"w", floats({1})}}), path, quick()));
  good(recorder.edit(checkpoint({{"w", floats({2})}}), path, "second", ArchiveEdit::append, quick()));
  CHECK(tags_of(path) == Names{"main", "second"});
  CHECK(entry(unzipped(read_text(path)), "tags.txt") == "main\nsecond\n");
  CHECK(arrays_of(good(open_archive(path)).parameters) == Arrays{{"w", floats({2})}});
  CHECK(arrays_of(good(open_archive(path, "main")).parameters) == Arrays{{"w", floats({1})}});
}

TEST_CASE("archive: tags that open() leaves out are a row of a save") {
  const TempDir dir;
  const std::string path = dir / "m.zip", other = dir / "other.zip";
  const ArchiveRecorder<> recorder;
  const Checkpoint first = checkpoint({{"w", floats({1})}});
  const auto row = [](const Result<Report>& report) {
    const std::string text = good(report).to_string();
    const std::size_t at = text.find("other tags of the archive");
    return at == text.npos ? "" : text.substr(at, text.find('\n', at) - at);
  };
  good(recorder.save(first, path, quick()));
  CHECK(row(recorder.save(good(recorder.open(path)), other, quick())).empty());
  good(recorder.edit(first, path, "second", ArchiveEdit::append, quick()));
  good(recorder.edit(first, path, "third", ArchiveEdit::append, quick()));

  const std::string lost = "other tags of the archive (2): main, second";
  CHECK(row(recorder.save(good(recorder.open(path)), other, quick())) == lost);
  CHECK(row(SafetensorsRecorder<>().save(good(stele::open(path)), dir / "m.safetensors", quick())) == lost);
  CHECK(row(recorder.save(good(open_archive(path)), other, quick())) == lost);
  // Tags that the caller has chosen.
  CHECK(row(recorder.save(good(recorder_of({.tag = "third"}).open(path)), other, quick())).empty());
  CHECK(row(recorder.save(good(open_archive(path, "main")), other, quick())).empty());
  // An edit keeps the tags of its file, and no others.
  const Checkpoint opened = good(open_archive(path));
  CHECK(row(recorder.edit(opened, other, "third", ArchiveEdit::append, quick())) == lost);
  for (const char* tag : {"fourth", "fifth"}) {  // the first edit replaces the file that is opened
    CHECK(row(recorder.edit(opened, path, tag, ArchiveEdit::append, quick())).empty());
  }
  for (int i = 0; i < 20; ++i) good(recorder.edit(first, path, "t" + std::to_string(i), ArchiveEdit::append, quick()));
  const std::string many = row(recorder.save(good(recorder.open(path)), other, quick()));
  CHECK(many.starts_with("other tags of the archive (24): main, second, third, fourth, fifth, t0, t1, "));
  CHECK(many.ends_with("t10, …"));
}

TEST_CASE("archive: entries of other kinds are a row of a save") {
  const TempDir dir;
  const std::string path = dir / "m.zip", other = dir / "other.zip";
  const ArchiveRecorder<> recorder;
  const auto rows = [](const Result<Report>& report) {
    std::string text;
    const Report& all = good(report);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].what == Report::What::lost) text += std::string(all[i].detail) + "\n";
    }
    return text;
  };
  const Entries entries = {
      {"a/params.txt", "w 0\n"},   {"a/params/0.fb", array_entry({1})}, {"a/values.json", "{}"},
      {"b/params.txt", "w a/0\n"}, {"b/note", "of another program"},    {"readme/me.txt", "around the tags"},
      {"tags.txt", "a\nb\n"}};
  write_text(path, zipped(entries));
  const std::string around = "other entries of the archive: readme/me.txt\n";
  const std::string both = "other entries of the archive: b/note, readme/me.txt\n";
  CHECK(rows(recorder.save(good(recorder.open(path)), other, quick())) == both + "other tags of the archive (1): a\n");
  CHECK(rows(recorder.save(good(open_archive(path, "a")), other, quick())) ==
        "other entries of the archive: a/values.json, readme/me.txt\n");
  // An edit keeps them, except in the folder of the tag that it replaces.
  const Checkpoint opened = good(open_archive(path));
  CHECK(rows(recorder.edit(opened, path, "c", ArchiveEdit::append, quick())).empty());
  CHECK(rows(recorder.edit(opened, path, "a", ArchiveEdit::replace, quick())) ==
        "other entries of the archive: a/values.json\n");
  CHECK(rows(recorder.edit(opened, path, "b", ArchiveEdit::touch, quick())) ==
        "other entries of the archive: b/note\n");
  CHECK(rows(recorder.save(good(open_archive(path, "a")), other, quick())) == around);
}

TEST_CASE("archive: R7 tags are not case sensitive") {
  const std::string file = golden("full");
  CHECK(arrays_of(good(opened(file, "BASE")).parameters) == golden_base());
  CHECK(arrays_of(good(opened(file, "tUNED")).parameters).size() == 3);
}

TEST_CASE("archive: R16 R19 a line may refer to another tag") {
  const std::string file = golden("full");
  const Checkpoint tuned = good(opened(file));
  CHECK(arrays_of(tuned.parameters) == Arrays{{"shared_param", counted(DType::i32, {3}, up_to<std::int32_t>(3))},
                                              {"own", floats({0.25F, -1e30F})},
                                              {"my/param/name", counted({3, 2})}});
  REQUIRE(tuned.optimizer.kinds().size() == 1);
  CHECK(arrays_of(*tuned.optimizer.find("V")) == Arrays{{"my/param/name", counted({3, 2})}});
}

TEST_CASE("archive: R17 names of parameters are no names of files") {
  Arrays arrays;
  for (const std::string name : {"my/param/name", "&MyParam*", "..", "../../x", "", " ", "\t\n\r", "%", "a%20b",
                                 "日本語", "\x7f", "\xef\xbb\xbfmark", "7", "0", "a=b", "#", "tags.txt", "\\", "x 0"}) {
    arrays.emplace(name, floats({static_cast<float>(arrays.size())}));
  }
  const std::string file = archive_of(checkpoint(arrays));
  const Entries entries = unzipped(file);
  for (std::size_t i = 0; i < arrays.size(); ++i) CHECK(entries[i].first == "main/params/" + std::to_string(i) + ".fb");
  CHECK(arrays_of(good(opened(file)).parameters) == arrays);
  // Each alone, so that each is the first in its file.
  for (const auto& one : arrays) {
    CAPTURE(one.first);
    const std::string alone = archive_of(checkpoint({one}));
    CHECK(arrays_of(good(opened(alone)).parameters) == Arrays{one});
  }
}

TEST_CASE("archive: R18 columns of updater.txt") {
  const auto read = [](const std::string& line) { return zipped(with_updater(line)); };
  const std::string file = read("w 1 0\n");
  const Checkpoint c = good(opened(file));
  CHECK(arrays_of(*c.optimizer.find("M")) == Arrays{{"w", floats({5, 6})}});
  CHECK(arrays_of(*c.optimizer.find("V")) == Arrays{{"w", floats({3, 4})}});
  for (const char* line : {"w 0\n", "w 0 1 1\n"}) {
    const Error error = open_error(read(line));
    CHECK(error.code() == Errc::malformed);
    CHECK(error.path() == "w");
    CHECK(error.expected() == "2");
  }
  const Error shape = open_error(read("w 0 2\n"));
  CHECK(shape.code() == Errc::shape_mismatch);
  CHECK(shape.expected() == "[2]");
  CHECK(shape.found() == "[1]");
  CHECK(open_error(read("v 0 1\n")).code() == Errc::malformed);
  CHECK(open_error(read("w 0 3\n")).code() == Errc::malformed);
  CHECK(open_error(read("w M=0 M=1\n")).code() == Errc::duplicate);
  // Nobody says how many there are.
  Entries entries = with_updater("w 0 1\n");
  std::erase_if(entries, [](const auto& e) { return e.first == "t/trainingConfig.fb"; });
  CHECK(open_error(zipped(entries)).code() == Errc::malformed);
}

TEST_CASE("archive: R20 to R27 the graph of another program") {
  const std::string file = golden("full");
  const Checkpoint base = good(opened(file, "base"));
  REQUIRE(base.graph);
  const Graph& g = *base.graph;
  Names names;
  for (const auto& v : g.variables) names.push_back(v.name);
  CHECK(names == Names{"in", "my/param/name", "sum", "out"});
  CHECK(g.variables[0].kind == VariableKind::placeholder);
  CHECK(g.variables[0].shape == std::vector<std::int64_t>{-1, 3});
  CHECK(g.variables[1].kind == VariableKind::variable);
  CHECK(g.variables[1].shape == std::vector<std::int64_t>{3, 2});
  CHECK_FALSE(g.variables[2].shape);
  CHECK(g.variables[3].control_dependencies == Names{"first"});
  REQUIRE(g.operations.size() == 2);
  const GraphOperation& second = g.operations[0];
  CHECK(second.family == OpFamily::transform_strict);  // a legacy operation says its type and number
  CHECK(second.number == 29);
  CHECK(second.inputs == Names{"sum"});
  CHECK(second.outputs == Names{"out"});
  const GraphOperation& first = *g.find_operation("first");
  CHECK(first.op_name == "matmul");
  CHECK(first.family == OpFamily::custom);
  CHECK(first.number == operation_hash("matmul"));
  CHECK(first.inputs == Names{"in", "my/param/name"});
  CHECK(first.ints == GraphArguments<std::int64_t>{{"transposeX", 0}, {"transposeY", 1}, {"", -7}});
  CHECK(first.doubles == GraphArguments<double>{{"alpha", 1.5}});
  CHECK(first.bools == GraphArguments<bool>{{"keep", true}});
  CHECK(first.dtypes == GraphArguments<DType>{{"to", DType::f32}});
  CHECK(first.strings == GraphArguments<std::string>{{"mode", "same"}});
  CHECK(first.dimensions == std::vector<std::int32_t>{0, 2147483647});
  REQUIRE(first.scalar);
  CHECK(*first.scalar == GraphArray{DType::f32, {}, {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0x3f}}, {}});
  CHECK(g.loss_variables == Names{"out"});
  REQUIRE(g.sub_graphs.size() == 1);
  CHECK(g.sub_graphs[0] == std::pair{"body"s, Graph()});
  CHECK(good(g.order()) == std::vector<std::size_t>{1, 0});
  // A graph that was read is written, and reads as the same.
  const Graph again = good(detail::archive::read_graph(bytes_of(good(detail::archive::write_graph(g))), 1U << 24U));
  CHECK(again == g);
}

TEST_CASE("archive: R28 what a later version adds") {
  const TempDir dir;
  const std::string path = dir / "m.zip", full = golden("full");
  const Entries before = unzipped(full);
  const ArchiveRecorder<> recorder;
  const auto check = [&] {
    const Entries now = unzipped(read_text(path));
    for (const char* kept : {"README.md", "base/params_maps.txt", "base/params_maps/0.fb", "base/params.txt"}) {
      CHECK(entry(now, kept) == entry(before, kept));
    }
    CHECK(arrays_of(good(open_archive(path, "base")).parameters) == golden_base());
  };
  CHECK(entry(before, "base/params.txt").find("map_param 0 MAP") != std::string::npos);
  write_text(path, full);
  check();
  const Snapshot base = good(ArchiveRecorder<>(ArchiveFormat({.tag = "base"})).open(path));
  CHECK(good(recorder.save(base, dir / "base", quick())).to_string().find("later version") != std::string::npos);
  // So it is with lines of updater.txt, in a checkpoint; open() leaves out the whole file.
  write_text(dir / "u.zip", zipped(with_updater("w 0 1\nmap 2 MAP\n")));
  const Checkpoint states = good(open_archive(dir / "u.zip"));
  CHECK(states.optimizer.kinds().size() == 2);
  const std::string rows = good(recorder.save(states, dir / "again", quick())).to_string();
  CHECK(rows.find("optimizer state of kinds that a later version wrote") != std::string::npos);
  const Snapshot alone = good(recorder.open(dir / "u.zip"));
  CHECK(good(recorder.save(alone, dir / "alone", quick())).to_string().find("later version") == std::string::npos);
  const Checkpoint more = checkpoint({{"x", floats({1})}});
  good(recorder.edit(more, path, "more", ArchiveEdit::append, quick()));
  check();
  good(recorder.edit(checkpoint({{"x", floats({2})}}), path, "more", ArchiveEdit::replace, quick()));
  check();
  good(recorder.edit(more, path, "tuned", ArchiveEdit::touch, quick()));
  check();
  good(remove_archive_tag(path, "more", quick()));
  check();

  // Lines that are written anew keep what they are not understood in.
  const std::string later = zipped({{"a/params.txt", "x 0\n"},
                                    {"a/params/0.fb", array_entry({1})},
                                    {"b/params.txt", "y a/0\nlist 3 4 LIST of  2\n"},
                                    {"tags.txt", "a\nb\n"}});
  write_text(path, later);
  good(remove_archive_tag(path, "a", quick()));
  CHECK(entry(unzipped(read_text(path)), "b/params.txt") == "y 0\nlist 3 4 LIST of  2\n");
  // But not where they are about what goes.
  write_text(path, zipped({{"a/params.txt", "x 0\n"},
                           {"a/params/0.fb", array_entry({1})},
                           {"b/params.txt", "map a/0 MAP\n"},
                           {"tags.txt", "a\nb\n"}}));
  const std::string old = read_text(path);
  const Error refused = bad(remove_archive_tag(path, "a", quick()));
  CHECK(refused.code() == Errc::unsupported);
  CHECK(refused.path() == "map");
  CHECK(read_text(path) == old);
}

}  // namespace archive_test
