// The archive where ADR-0001 leaves something open: what we resolved (A1 to A12; archive_arrays_test.cpp has
// A13 to A16).
#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <string>

#include "archive_generated.h"
#include "recorders/archive/graph_fb.hpp"
#include "recorders/archive/lines.hpp"
#include "support/archive.hpp"
#include "support/random_model.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_dir.hpp"

namespace archive_tags_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;
using namespace detail::archive;
using Names = std::vector<std::string>;
constexpr std::uint64_t plenty = 1U << 24U;

/// One tag `t` with a parameter `w`, and what else is given.
Entries one_tag(Entries more = {}) {
  Entries all = {{"t/params.txt", "w 0\n"}, {"t/params/0.fb", array_entry({1, 2})}};
  all.insert(all.end(), more.begin(), more.end());
  all.emplace_back("tags.txt", "t\n");
  return all;
}

Entries with_params(const std::string& text) {
  return {{"t/params.txt", text}, {"t/params/0.fb", array_entry({1})}, {"tags.txt", "t\n"}};
}

Names names_in_tag(const std::string& text) {
  const std::string file = zipped(with_params(text));
  Names names;
  for (const auto& [name, array] : arrays_of(good(opened(file)).parameters)) names.push_back(name);
  return names;
}

Checkpoint with_state(const std::string& updater, const Names& keys) {
  Checkpoint c = checkpoint({{"a", floats({1})}, {"b", floats({2, 3})}});
  c.training.emplace().updater.type = updater;
  float n = 10;
  for (const std::string& key : keys) {
    c.optimizer.set_snapshot(key, snapshot({{"a", floats({n})}, {"b", floats({n + 1, n + 2})}}));
    n += 10;
  }
  return c;
}

Arrays state_of(const Checkpoint& c, const std::string& key) {
  const Snapshot* arrays = c.optimizer.find(key);
  return arrays != nullptr ? arrays_of(*arrays) : Arrays();
}

const std::string long_tag(128, 'x');
const Names bad_tags = {"",        ".",        "..",         "a.",   "a ",     " a",           "a b",       "a/b",
                        "a\\b",    "a:b",      "a*",         "a?",   "a\"",    "<a",           "a>",        "a|",
                        "a\tb",    "7",        "0123456789", "CON",  "con",    "Prn",          "aux",       "NUL",
                        "nul.txt", "com1",     "COM0",       "lpt9", "LPT1.x", long_tag + "x", "caf\u00e9", "a\0b"s,
                        "a=b",     "tags.txt", "Tags.TXT"};
const Names good_tags = {"a",   "1.0",   "v1",   "-",       "_",     "a.b",    ".a",        "7b",
                         "com", "COM10", "lptx", "console", "nully", long_tag, "iter-1000", "EN_cased"};

}  // namespace

TEST_CASE("archive: A1 fields of named arguments") {
  Graph graph;
  GraphOperation op;
  op.name = "op";
  op.op_name = "x";
  op.ints = {{"i", 1}};
  op.doubles = {{"t", 2.5}, {"", -1}};
  op.bools = {{"b", true}};
  op.dtypes = {{"d", DType::bf16}};
  graph.operations = {op};
  const std::string bytes = good(write_graph(graph));
  const auto& written = *flatbuffers::GetRoot<stele_fb::Graph>(bytes.data())->operations()->Get(0);
  CHECK(written.i_arg_names()->Get(0)->str() == "i");
  CHECK(written.i_args()->Get(0) == 1);
  CHECK(written.t_arg_names()->size() == 2);
  CHECK(written.t_args()->Get(0) == 2.5);
  CHECK(written.t_args()->Get(1) == -1);
  CHECK(written.b_args()->Get(0) == 1);
  CHECK(written.d_arg_names()->Get(0)->str() == "d");
  CHECK(written.d_args()->Get(0) == stele_fb::Type::bfloat16);
  // The two lists of a pair are of one length; without names they are positions.
  flatbuffers::FlatBufferBuilder to;
  const auto make = [&](std::size_t names) {
    to.Clear();
    const auto list = to.CreateVectorOfStrings(Names(names, "n"));
    const auto numbers = to.CreateVector(std::vector<double>{1, 2});
    stele_fb::OperationBuilder builder(to);
    builder.add_t_arg_names(list);
    builder.add_t_args(numbers);
    const auto operations = to.CreateVector(std::vector{builder.Finish()});
    to.Finish(stele_fb::CreateGraph(to, 0, operations));
    return read_graph(std::as_bytes(std::span(to.GetBufferPointer(), to.GetSize())), plenty);
  };
  CHECK(good(make(0)).operations[0].doubles == GraphArguments<double>{{"", 1}, {"", 2}});
  CHECK(good(make(2)).operations[0].doubles == GraphArguments<double>{{"n", 1}, {"n", 2}});
  CHECK(bad(make(1)).code() == Errc::malformed);
  CHECK(bad(make(3)).code() == Errc::malformed);
}

TEST_CASE("archive: A2 names as one word") {
  CHECK(names_in_tag("%61b%C3%A9 0\n% 0\n") == Names{"", "ab\u00e9"});
  CHECK(names_in_tag("x\t \t0 \t\n") == Names{"x"});
  CHECK(names_in_tag("# 0\n// 0\n") == Names{"#", "//"});  // no comments
  CHECK(names_in_tag("a=b 0\n") == Names{"a=b"});
  for (const char* text :
       {"x%2 0\n", "x%2g 0\n", "%% 0\n",  "x% 0\n",    "%zz 0\n",  "%FF 0\n", "\xff 0\n", " x 0\n",  "\t0\n",
        "x\n",     "x  \n",    "x MAP\n", "x -1\n",    "x 00\n",   "x 01\n",  "x +1\n",   "x 0x0\n", "x 4294967296\n",
        "x /0\n",  "x t/\n",   "x 7/0\n", "x t/0/0\n", "x ../0\n", "x 0 0\n", "x t\\0\n"}) {
    CAPTURE(text);
    const Error error = open_error(zipped(with_params(text)));
    CHECK(error.code() == Errc::malformed);
    if (error.path().empty()) CHECK(error.offset() == 0);
  }
  CHECK(lines_text(std::vector<Line>{{"\xef\xbb\xbfx y", {{"", 1}}, {}, {}}}) == "%EF%BB%BFx%20y 1\n");
  CHECK(lines_text(std::vector<Line>{{"", {{"o", 1}, {"", 4294967295}}, {"M", "V"}, {}}}) == "% M=o/1 V=4294967295\n");
}

TEST_CASE("archive: A3 the order of state arrays") {
  const std::map<std::string, Names> orders = {{"Adam", {"M", "V"}},      {"AMSGrad", {"M", "V", "V_HAT"}},
                                               {"Nadam", {"M", "V"}},     {"AdaMax", {"M", "V"}},
                                               {"Nesterovs", {"V"}},      {"RmsProp", {"G"}},
                                               {"AdaGrad", {"grad"}},     {"AdaDelta", {"msg", "msdx"}},
                                               {"AdaBelief", {"M", "S"}}, {"Unknown", {"z", "a"}},
                                               {"Adam", {"M", "V"}}};
  for (const auto& order : orders) {
    const auto& [updater, keys] = order;
    CAPTURE(order.first);
    // Set the other way round; an updater of its own keeps that.
    const Names set = updater == "Unknown" ? keys : Names(keys.rbegin(), keys.rend());
    const Checkpoint c = with_state(updater, set);
    const std::string file = archive_of(c);
    const Entries entries = unzipped(file);
    std::string a = "a", b = "b";
    for (std::size_t i = 0; i < keys.size(); ++i) {
      a += " " + std::to_string(i);
      b += " " + std::to_string(keys.size() + i);
    }
    CHECK(entry(entries, "main/updater.txt") == a + "\n" + b + "\n");
    CHECK(good(read_training(bytes_of(entry(entries, "main/trainingConfig.fb")), plenty)).state_keys == keys);
    const Checkpoint back = good(opened(file));
    REQUIRE(back.optimizer.kinds().size() == keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      CHECK(back.optimizer.kinds()[i].first == keys[i]);
      CHECK(state_of(back, keys[i]) == state_of(c, keys[i]));
    }
  }
  // Without state_keys the order is the updater's own.
  const std::string plain = zipped(
      one_tag({{"t/updater.txt", "w 0 1\n"},
               {"t/updater/0.fb", array_entry({3, 4})},
               {"t/updater/1.fb", array_entry({5, 6})},
               {"t/trainingConfig.fb", write_training({with_state("Adam", {}).training->json(), {}}, nullptr)}}));
  CHECK(state_of(good(opened(plain)), "V") == Arrays{{"w", floats({5, 6})}});
}

TEST_CASE("archive: A3 states of some parameters only") {
  Checkpoint c = checkpoint({{"a", floats({1})}, {"b", floats({2})}, {"c", floats({3})}, {"d", floats({4})}});
  c.optimizer.set_snapshot("M", snapshot({{"a", floats({1.5})}, {"b", floats({2.5})}}));
  c.optimizer.set_snapshot("V", snapshot({{"c", floats({3.5})}, {"b", floats({4.5})}}));
  const std::string file = archive_of(c);
  CHECK(entry(unzipped(file), "main/updater.txt") == "a M=0\nb 1 2\nc V=3\n");
  const Checkpoint back = good(opened(file));
  CHECK_FALSE(back.training);  // the keys are there without one
  for (const char* key : {"M", "V"}) CHECK(state_of(back, key) == state_of(c, key));

  const auto refused = [&](const std::string& key, const Arrays& state) {
    Checkpoint wrong = checkpoint({{"a", floats({1})}});
    wrong.optimizer.set_snapshot(key, snapshot(state));
    BufferSink sink;
    return bad(ArchiveRecorder<>().save(wrong, sink));
  };
  const Error shape = refused("M", {{"a", floats({1, 2})}});
  CHECK(shape.code() == Errc::not_representable);
  CHECK(shape.path() == "a");
  CHECK(shape.expected() == "[1]");
  CHECK(shape.found() == "[2]");
  const Error unknown = refused("M", {{"a", floats({1})}, {"x", floats({1})}});
  CHECK(unknown.code() == Errc::not_representable);
  CHECK(unknown.path() == "x");
  CHECK(refused("M", {{"a", {DType::c64, {1}, std::string(8, '\0')}}}).code() == Errc::not_representable);
  for (const std::string key : {"", "a b", "a\tb", "M=V", "a\n", "\xff"}) {
    CHECK(refused(key, {{"a", floats({1})}}).code() == Errc::not_representable);
  }
}

TEST_CASE("archive: A4 the training configuration") {
  const std::string json = R"({"updater" : {"@class":"org.nd4j.linalg.learning.config.Adam","learningRate":"NaN",)"
                           R"("beta1":0.5,"beta2":0.75,"epsilon":1.0E-8},"iterationCount":1234567890123,)"
                           R"("epochCount" :2, "later": [1, 2.50, null]})";
  Checkpoint c = checkpoint({{"w", floats({1})}});
  c.training = good(TrainingConfig::parse(json));
  const std::string file = archive_of(c), bytes = entry(unzipped(file), "main/trainingConfig.fb");
  const auto& written = *flatbuffers::GetRoot<stele_fb::Training>(bytes.data());
  CHECK(written.json()->str() == json);
  CHECK(written.updater()->str() == "Adam");
  CHECK(written.iteration_count() == 1234567890123);
  CHECK(written.epoch_count() == 2);
  CHECK(good(opened(file)).training->json() == json);
}

TEST_CASE("archive: A5 upper and lower case") {
  const auto file = [](const std::string& folder, const std::string& tags) {
    return zipped({{folder + "/params.txt", "w 0\n"}, {folder + "/params/0.fb", array_entry({1})}, {"tags.txt", tags}});
  };
  const std::string other = file("MODEL", "Model\n");
  CHECK(tags_of(bytes_of(other)) == Names{"Model"});  // as tags.txt spells them
  for (const char* tag : {"Model", "MODEL", "model"}) CHECK(arrays_of(good(opened(other, tag)).parameters).size() == 1);
  CHECK(open_error(file("a", "a\nb\nA\n")).code() == Errc::duplicate);
  CHECK(open_error(file("a", "a\na\n")).code() == Errc::duplicate);
  CHECK(open_error(file("\u00e9", "\u00c9\n")).code() == Errc::malformed);
  // The folder of the right spelling comes first, wherever it stands.
  for (const bool first : {true, false}) {
    Entries entries = {{"A/params.txt", "w 0\n"}, {"A/params/0.fb", array_entry({1})}};
    const Entries right = {{"a/params.txt", "w 0\n"}, {"a/params/0.fb", array_entry({2})}};
    entries.insert(first ? entries.begin() : entries.end(), right.begin(), right.end());
    entries.emplace_back("tags.txt", "a\n");
    const std::string both = zipped(entries);
    CHECK(arrays_of(good(opened(both)).parameters) == Arrays{{"w", floats({2})}});
  }
  // Edits find tags so, too, and the spelling of a replaced one is the new one.
  const TempDir dir;
  const std::string path = dir / "m.zip";
  const ArchiveRecorder<> recorder;
  write_text(path, other);
  CHECK(code_of(recorder.edit(checkpoint({}), path, "mODEL", ArchiveEdit::append, quick())) == Errc::exists);
  good(recorder.edit(checkpoint({{"w", floats({5})}}), path, "mODEL", ArchiveEdit::replace, quick()));
  CHECK(names_of(unzipped(read_text(path))) == Names{"mODEL/params/0.fb", "mODEL/params.txt", "tags.txt"});
  CHECK(tags_of(path) == Names{"mODEL"});
}

TEST_CASE("archive: A6 what is a tag") {
  const ArchiveRecorder<> recorder;
  const TempDir dir;
  const std::string path = dir / "m.zip";
  write_text(path, zipped(one_tag()));
  const std::string before = read_text(path);
  for (const std::string& tag : bad_tags) {
    CAPTURE(tag);
    CHECK_FALSE(valid_tag(tag));
    BufferSink sink;
    if (!tag.empty()) CHECK(code_of(recorder_of({.tag = tag}).save(checkpoint({}), sink)) == Errc::invalid_argument);
    CHECK(code_of(recorder.edit(checkpoint({}), path, tag, ArchiveEdit::append, quick())) == Errc::invalid_argument);
    if (tag.empty() || tag == "a\tb") continue;
    CHECK(open_error(zipped({{"t/params.txt", ""}, {"tags.txt", "t\n" + tag + "\n"}})).code() == Errc::malformed);
    CHECK(open_error(zipped(with_params("w " + tag + "/0\n"))).code() == Errc::malformed);
  }
  CHECK(read_text(path) == before);
  for (const std::string& tag : good_tags) {
    CAPTURE(tag);
    CHECK(valid_tag(tag));
    CHECK(tags_of(bytes_of(archive_of(checkpoint({}), {.tag = tag}))) == Names{tag});
    good(recorder.edit(checkpoint({{"w", floats({1})}}), path, tag, ArchiveEdit::append, quick()));
  }
  Names all = good_tags;
  all.insert(all.begin(), "t");
  CHECK(tags_of(path) == all);
}

TEST_CASE("archive: A7 where a tag stands that is written again") {
  const TempDir dir;
  const std::string path = dir / "m.zip";
  const ArchiveRecorder<> recorder;
  const auto put = [&](const char* tag, float n, ArchiveEdit edit) {
    return recorder.edit(checkpoint({{"w", floats({n})}}), path, tag, edit, quick());
  };
  const auto value = [&](const char* tag) { return arrays_of(good(open_archive(path, tag)).parameters).at("w"); };
  good(recorder_of({.tag = "a"}).save(checkpoint({{"w", floats({1})}}), path, quick()));
  good(put("b", 2, ArchiveEdit::append));
  good(put("c", 3, ArchiveEdit::append));
  good(put("a", 4, ArchiveEdit::replace));
  CHECK(tags_of(path) == Names{"a", "b", "c"});
  good(put("b", 5, ArchiveEdit::touch));
  CHECK(tags_of(path) == Names{"a", "c", "b"});
  good(put("b", 6, ArchiveEdit::touch));
  CHECK(tags_of(path) == Names{"a", "c", "b"});
  CHECK(value("a") == floats({4}));
  CHECK(value("c") == floats({3}));
  CHECK(value("") == floats({6}));
  CHECK(unzipped(read_text(path)).size() == 7);  // nothing is left of what was replaced
  CHECK(code_of(put("d", 1, ArchiveEdit::replace)) == Errc::not_found);
  CHECK(code_of(put("d", 1, ArchiveEdit::touch)) == Errc::not_found);
  CHECK(code_of(put("b", 1, ArchiveEdit::append)) == Errc::exists);
  CHECK(code_of(remove_archive_tag(path, "d", quick())) == Errc::not_found);
  CHECK(code_of(remove_archive_tag(path, "", quick())) == Errc::invalid_argument);
  good(remove_archive_tag(path, "C", quick()));
  CHECK(tags_of(path) == Names{"a", "b"});
  good(remove_archive_tag(path, "a", quick()));
  CHECK(code_of(remove_archive_tag(path, "b", quick())) == Errc::invalid_argument);
  CHECK(value("") == floats({6}));
}

TEST_CASE("archive: A8 references name entries") {
  const auto read = [](const std::string& params, Entries more = {}) {
    Entries all = {{"a/params.txt", params}, {"a/params/0.fb", array_entry({1})}};
    all.insert(all.end(), more.begin(), more.end());
    all.emplace_back("tags.txt", "a\n");
    return zipped(all);
  };
  const Error missing = open_error(read("x 1\n"));
  CHECK(missing.code() == Errc::malformed);
  CHECK(missing.path() == "x");
  CHECK(missing.expected() == "a/params/1.fb");
  CHECK(open_error(read("x b/0\n")).expected() == "b/params/0.fb");
  CHECK(open_error(read("x 0\ny 0\nx 0\n")).code() == Errc::duplicate);
  CHECK(open_error(read("x 0\n%78 0\n")).code() == Errc::duplicate);
  CHECK(open_error(read("x 0 MAP\nx 0\n")).code() == Errc::duplicate);
  // References name the own tag, the same array twice, and a folder that is no tag.
  const std::string file = read("x a/0\ny 0\nz B/0\n", {{"b/params/0.fb", array_entry({2})}});
  CHECK(open_error(file).expected() == "B/params/0.fb");  // which has one spelling
  const std::string fine = read("x a/0\ny A/0\nz b/0\n", {{"b/params/0.fb", array_entry({2})}});
  CHECK(arrays_of(good(opened(fine)).parameters) == Arrays{{"x", floats({1})}, {"y", floats({1})}, {"z", floats({2})}});
  // No reference leads to another: a number is always a file.
  const std::string chain = zipped({{"a/params.txt", "x b/0\n"},
                                    {"b/params.txt", "x a/0\n"},
                                    {"b/params/0.fb", array_entry({2})},
                                    {"tags.txt", "a\nb\n"}});
  CHECK(arrays_of(good(opened(chain, "a")).parameters) == Arrays{{"x", floats({2})}});
  CHECK(open_error(chain, "b").code() == Errc::malformed);
}

TEST_CASE("archive: A9 variables and constants have arrays") {
  Checkpoint c = checkpoint({{"w", floats({2, 1}, {1, 2})}, {"c", floats({3})}, {"p", floats({4})}});
  Graph& g = c.graph.emplace();
  for (const auto& [name, kind] : {std::pair{"w", VariableKind::variable}, std::pair{"c", VariableKind::constant},
                                   std::pair{"p", VariableKind::placeholder}, std::pair{"gone", VariableKind::variable},
                                   std::pair{"h", VariableKind::array}}) {
    g.variables.push_back({name, kind, DType::none, std::nullopt, {}, {}, {}});
  }
  const std::string file = archive_of(c);
  const Checkpoint back = good(opened(file));
  CHECK(arrays_of(back.parameters) == arrays_of(c.parameters));
  // Their shapes are those of the arrays; all else is as it was said.
  Graph expected = g;
  expected.variables[0].dtype = expected.variables[1].dtype = DType::f32;
  expected.variables[0].shape = {2, 1};
  expected.variables[1].shape = {1};
  CHECK(*back.graph == expected);
}

TEST_CASE("archive: A10 what may be absent") {
  const std::string file = zipped(one_tag());
  const Checkpoint c = good(opened(file));
  CHECK(c.parameters.leaf_count() == 1);
  CHECK_FALSE(c.graph);
  CHECK_FALSE(c.training);
  CHECK(c.optimizer.empty());
  const Error no_tags = open_error(zipped({{"t/params.txt", ""}}));
  CHECK(no_tags.code() == Errc::malformed);
  CHECK(no_tags.message().find("tags.txt") != std::string::npos);
  CHECK(open_error(zipped({{"t/params.txt", ""}, {"tags.txt", ""}})).code() == Errc::malformed);
  CHECK(open_error(zipped({{"t/params.txt", ""}, {"tags.txt", "\n \n"}})).code() == Errc::malformed);
  CHECK(open_error(zipped({{"t/graph.fb", ""}, {"tags.txt", "t\n"}})).expected() == "t/params.txt");
  CHECK(open_error(zipped(one_tag({{"t/graph.fb", ""}}))).code() == Errc::malformed);
  const std::string empty = archive_of(checkpoint({}));
  CHECK(names_of(unzipped(empty)) == Names{"main/params.txt", "tags.txt"});
  CHECK(good(opened(empty)).parameters.leaf_count() == 0);
}

TEST_CASE("archive: A11 ends of lines") {
  CHECK(good(parse_tags("a")) == Names{"a"});
  CHECK(good(parse_tags("\xef\xbb\xbf"
                        "a\r\n\n\r\n \t\nb\r\n")) == Names{"a", "b"});
  CHECK(bad(parse_tags("\xef\xbb\xbf\xef\xbb\xbf"
                       "a"))
            .code() == Errc::malformed);
  CHECK(bad(parse_tags("a\n\xef\xbb\xbf"
                       "b"))
            .code() == Errc::malformed);
  CHECK(bad(parse_tags("a\rb")).code() == Errc::malformed);
  CHECK(bad(parse_tags("a\n b")).offset() == 2);
  CHECK(names_in_tag("\xef\xbb\xbf"
                     "x 0\r\n\r\ny 0") == Names{"x", "y"});
  CHECK(tags_text(Names{"a", "b"}) == "a\nb\n");
}

TEST_CASE("archive: A12 arrays are written little-endian, with ND4J's own shapes") {
  const std::string file = archive_of(checkpoint({{"w", floats({2, 3}, {1, 2, 3, 4, 5, 6})}}));
  const std::string bytes = entry(unzipped(file), "main/params/0.fb");
  const auto& array = *flatbuffers::GetRoot<stele_fb::Array>(bytes.data());
  CHECK(std::vector<std::int64_t>(array.shape()->begin(), array.shape()->end()) ==
        std::vector<std::int64_t>{2, 2, 3, 3, 1, 8192, 1, 'c'});
  CHECK(array.dtype() == stele_fb::Type::float32);
  CHECK(array.order() == stele_fb::ByteOrder::little);
  const std::string content(reinterpret_cast<const char*>(array.buffer()->data()), array.buffer()->size());
  CHECK(content == in_file_order(bytes_of_numbers(std::vector<float>{1, 2, 3, 4, 5, 6}), DType::f32));
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  CHECK(verifier.VerifyBuffer<stele_fb::Array>(nullptr));
}

}  // namespace archive_tags_test
