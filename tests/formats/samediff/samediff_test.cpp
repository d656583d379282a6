// DL4J's own files: what it wrote is read as it says; what we write comes back, in each container.
#include <doctest/doctest.h>
#include <stele/recorders/any.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/recorders/samediff.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "samediff_support.hpp"
#include "support/dl4j.hpp"
#include "support/left_out.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace samediff_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;
namespace fs = std::filesystem;

std::vector<std::string> files_in(const fs::path& folder, const std::string& extension) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == extension) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

// ---- facts, in the words of tests/formats/samediff/data/README.md

std::string coded(std::string_view name) {
  static constexpr char digits[] = "0123456789ABCDEF";
  if (name.empty()) return "%";
  std::string text;
  for (const char c : name) {
    const auto b = static_cast<unsigned char>(c);
    if (b <= 0x20 || b == 0x7f || c == '%' || c == ',') {
      text += {'%', digits[b >> 4], digits[b & 15U]};
    } else {
      text += c;
    }
  }
  return text;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ",") + coded(n);
  return text;
}

void append_texts(const Value& value, std::string& text) {
  if (const auto* s = value.as_string()) {
    text += (text.empty() || text.back() == ' ' ? "" : ",") + hex_of(*s);
  } else if (const auto* list = value.as_list()) {
    bool first = true;
    for (const Value& v : *list) {
      if (!first) text += ',';
      first = false;
      text += hex_of(*v.as_string());
    }
  }
}

/// The lines of a .txt that files can answer.
std::multiset<std::string> facts_of(const Checkpoint& checkpoint) {
  std::multiset<std::string> lines;
  static constexpr const char* kinds[] = {"VARIABLE", "CONSTANT", "ARRAY", "PLACEHOLDER", "SEQUENCE"};
  for (const GraphVariable& v : checkpoint.graph->variables) {
    lines.insert("variable " + coded(v.name) + " " + kinds[static_cast<int>(v.kind)] + " " + java_name(v.dtype));
  }
  for (const GraphOperation& o : checkpoint.graph->operations) {
    lines.insert("op " + coded(o.name) + " " + coded(o.op_name) + " " + std::to_string(static_cast<int>(o.family)) +
                 " " + std::to_string(o.number) + " in=" + joined(o.inputs) + " out=" + joined(o.outputs));
  }
  for (const std::string& name : checkpoint.graph->loss_variables) lines.insert("loss " + coded(name));
  for (std::size_t i = 0; i < checkpoint.parameters.leaf_count(); ++i) {
    const LeafView leaf = checkpoint.parameters.leaf(i);
    const GraphVariable* v = checkpoint.graph->find_variable(leaf.path());
    std::string path(leaf.path());
    // Names of a flat file are paths as they are.
    const Node& node = checkpoint.parameters.nodes()[leaf.node()];
    path.assign(node.name, node.name_size);
    v = checkpoint.graph->find_variable(path);
    REQUIRE_MESSAGE(v != nullptr, path);
    lines.insert("array " + coded(path) + " " + array_text(leaf, v->shape && v->shape->empty() && leaf.size() == 0));
  }
  for (const Node& node : checkpoint.parameters.nodes()) {
    if (node.kind != NodeKind::value) continue;
    const Value& value = checkpoint.parameters.value(node);
    std::string text;
    append_texts(value, text);
    const auto* list = value.as_list();
    lines.insert("array " + coded({node.name, node.name_size}) + " UTF8 " +
                 (list != nullptr ? std::to_string(list->size()) : "scalar") + " " + text);
  }
  for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) {
    for (std::size_t i = 0; i < arrays.leaf_count(); ++i) {
      const LeafView leaf = arrays.leaf(i);
      const Node& node = arrays.nodes()[leaf.node()];
      lines.insert("state " + coded({node.name, node.name_size}) + " " + key + " " + array_text(leaf));
    }
  }
  return lines;
}

std::multiset<std::string> facts_in(const std::string& text) {
  std::multiset<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const std::string word = line.substr(0, line.find(' '));
    if (word == "variable" || word == "array" || word == "state" || word == "op" || word == "loss") lines.insert(line);
  }
  return lines;
}

std::string difference_of(const std::multiset<std::string>& expected, const std::multiset<std::string>& found) {
  std::string text;
  for (const std::string& line : expected) {
    if (!found.contains(line)) text += "missing: " + line.substr(0, 300) + "\n";
  }
  for (const std::string& line : found) {
    if (!expected.contains(line)) text += "too many: " + line.substr(0, 300) + "\n";
  }
  return text;
}

std::string spaceless(std::string_view json) {
  std::string text;
  for (const char c : json) {
    if (c != ' ' && c != '\n') text += c;
  }
  return text;
}

Bytes bytes_of_checkpoint(const Checkpoint& checkpoint, SameDiffOptions options) {
  BufferSink sink;
  const auto report = SameDiffRecorder<>(options).save(checkpoint, sink);
  REQUIRE_MESSAGE(report, why(report));
  return sink.take();
}

/// Opened from memory that lives as long.
Result<Checkpoint> opened(Bytes bytes) { return open_samediff(own_bytes(std::move(bytes))); }

}  // namespace

TEST_CASE("samediff: files that DL4J wrote") {
  const auto files = files_in(test_data("samediff"), ".fb");
  REQUIRE(files.size() >= 40);
  for (const std::string& file : files) {
    CAPTURE(file);
    const std::string text = content_of(file.substr(0, file.size() - 3) + ".txt");
    REQUIRE(!text.empty());
    auto expected = facts_in(text);
    std::erase_if(expected, [](const std::string& line) {  // of the program, not in the file
      return line.find(" GRADIENT ") != line.npos;
    });
    for (const bool mapped : {false, true}) {
      LoadOptions options;
      options.storage = mapped ? Storage::mmap : Storage::owned;
      const auto checkpoint = open_samediff(file, options);
      REQUIRE_MESSAGE(checkpoint, why(checkpoint));
      CHECK(difference_of(expected, facts_of(*checkpoint)) == "");
      const std::size_t config = text.find("\nconfig ");
      CHECK(checkpoint->training.has_value() == (config != text.npos));
      if (checkpoint->training) {
        const std::string json = text.substr(config + 8, text.find('\n', config + 1) - config - 8);
        CHECK(spaceless(checkpoint->training->json()) == spaceless(json));
      }
      const auto order = checkpoint->graph->order();
      REQUIRE_MESSAGE(order, why(order));
      CHECK(order->size() == checkpoint->graph->operations.size());
      const auto format = format_of_content(*open_file(file).value());
      REQUIRE_MESSAGE(format, why(format));
      CHECK((*format)->name() == "samediff");
    }
  }
}

TEST_CASE("samediff: what DL4J wrote comes back from every container, and through an archive") {
  for (const std::string& file : files_in(test_data("samediff"), ".fb")) {
    CAPTURE(file);
    const auto before = open_samediff(file);
    REQUIRE_MESSAGE(before, why(before));
    const auto facts = facts_of(*before);
    const auto check = [&](const Result<Checkpoint>& after) {
      REQUIRE_MESSAGE(after, why(after));
      CHECK(difference_of(facts, facts_of(*after)) == "");
      // The numbers of arrays stand in the graph or in the array, as the container has it.
      CHECK((after->graph == before->graph));
      CHECK((after->training == before->training));
    };
    for (const SameDiffContainer container : containers)
      check(opened(bytes_of_checkpoint(*before, {.container = container})));
    check(opened(bytes_of_checkpoint(*before, {.container = SameDiffContainer::sdz, .shard_bytes = 16})));
    BufferSink sink;
    const auto report = ArchiveRecorder<>().save(*before, sink);
    REQUIRE_MESSAGE(report, why(report));
    check(open_archive(own_bytes(sink.take())));
  }
}

TEST_CASE("samediff: the fixtures of DL4J's own tests") {
  const auto shared = shared_file("fixtures/samediff");
  if (!shared) return;
  const fs::path folder = *shared;
  struct Expected {
    const char* file;
    std::size_t variables, operations, tensors, texts;
  };
  for (const Expected& e : {Expected{"assert_type_rank2_int64", 4, 2, 2, 0}, Expected{"avg_pooling3d", 6, 3, 3, 0},
                            Expected{"cond_true", 11, 5, 5, 0}, Expected{"non2d_0A", 5, 2, 1, 0},
                            Expected{"pad_1D", 4, 1, 3, 0}, Expected{"scalar_float32", 26, 15, 3, 4},
                            Expected{"simpleif_0_alt", 20, 12, 2, 0}, Expected{"simplewhile_nested", 57, 44, 7, 0},
                            Expected{"tensor_array_split_sz1_float32_nodynamic_noname_noshape", 9, 4, 4, 0},
                            Expected{"tensor_array_unstack_sz1_int64_nodynamic_noname_shape2-3", 16, 6, 9, 0}}) {
    CAPTURE(e.file);
    const auto checkpoint = open_samediff((folder / (std::string(e.file) + ".fb")).string());
    REQUIRE_MESSAGE(checkpoint, why(checkpoint));
    CHECK(checkpoint->graph->variables.size() == e.variables);
    CHECK(checkpoint->graph->operations.size() == e.operations);
    CHECK(checkpoint->parameters.leaf_count() == e.tensors);
    const auto nodes = checkpoint->parameters.nodes();
    CHECK(static_cast<std::size_t>(std::count_if(nodes.begin(), nodes.end(),
                                                 [](const Node& n) { return n.kind == NodeKind::value; })) == e.texts);
    const auto order = checkpoint->graph->order();
    REQUIRE_MESSAGE(order, why(order));
    CHECK(SameDiffRecorder<>().verify((folder / (std::string(e.file) + ".fb")).string()));
    for (const GraphOperation& o : checkpoint->graph->operations) {
      // Custom operations have the hash of their registered name; aliases have another one.
      if (o.family == OpFamily::custom && o.op_name == "add") CHECK(o.number == operation_hash("add"));
    }
  }
}

TEST_CASE("samediff: modules in every container") {
  for (const SameDiffContainer container : containers) {
    CAPTURE(static_cast<int>(container));
    const SameDiffRecorder<> recorder(container);
    const Model before = model(5);
    BufferSink sink;
    SaveOptions options;
    options.metadata = {{"who", "me"}};
    const auto report = recorder.save(before, sink, options);
    REQUIRE_MESSAGE(report, why(report));
    const Bytes bytes = sink.take();
    const auto snapshot = recorder.open(bytes);
    REQUIRE_MESSAGE(snapshot, why(snapshot));
    CHECK(snapshot->metadata() == options.metadata);
    const auto after = recorder.load<Model>(bytes);
    REQUIRE_MESSAGE(after, why(after));
    CHECK(after->layers.size() == 3);
    CHECK(after->note == "a note");
    CHECK(!after->layers[1].bias);
    CHECK(std::ranges::equal(after->layers[2].weight.span(), before.layers[2].weight.span(), [](float a, float b) {
      return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
    }));
    // The front door knows it by its content, and half of it by its name.
    const auto format = format_of_content(*borrow_bytes(bytes.span()));
    REQUIRE_MESSAGE(format, why(format));
    CHECK((*format)->name() == recorder.format().name());
    // The same bytes in one pass over memory, a file or a stream.
    std::ostringstream stream;
    StreamSink stream_sink(stream);
    REQUIRE(recorder.save(before, stream_sink, options));
    CHECK(stream.str() == text_of(bytes.span()));
  }
}

TEST_CASE("samediff: random snapshots come back from every container") {
  for (const SameDiffContainer container : containers) {
    const SameDiffRecorder<> recorder(container);
    const Capabilities& can = recorder.format().capabilities();
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      CAPTURE(seed);
      Random random(seed);
      const Snapshot before = random_snapshot(random, can);
      const auto bytes = saved(recorder, before);
      if (!bytes && bytes.error().code() == Errc::duplicate) continue;
      REQUIRE_MESSAGE(bytes, why(bytes));
      const auto after = recorder.open(*bytes);
      REQUIRE_MESSAGE(after, why(after));
      REQUIRE(difference(facts(before, can), facts(*after, can)) == "");
    }
  }
}

TEST_CASE("samediff: two arrays of one name are refused, of strings too") {
  const auto before = open_samediff(test_data("samediff") + "/strings.fb");
  REQUIRE_MESSAGE(before, why(before));
  const auto bytes = bytes_of_checkpoint(*before, {.container = SameDiffContainer::fb});
  const std::string_view file = text_of(bytes.span());
  CHECK(file.find("values") == std::string_view::npos);  // strings are in their arrays alone
  std::string damaged(file);
  damaged.replace(damaged.find("\6\0\0\0scalar"s) + 4, 6, "vector");
  const auto r = SameDiffRecorder<>().open(std::as_bytes(std::span(damaged)));
  REQUIRE(!r);
  CHECK(r.error().code() == Errc::duplicate);
  CHECK(r.error().path() == "vector");
}

}  // namespace samediff_test
