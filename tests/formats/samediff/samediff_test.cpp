// DL4J's own files: what it wrote is read as it says; what we write comes back, in each container.
#include <doctest/doctest.h>
#include <stele/bundle.hpp>
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

#include "dl4j/arrays.hpp"
#include "encodings/zip/zip.hpp"
#include "snapshot/leaf_gather.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;
namespace fs = std::filesystem;

constexpr SameDiffContainer containers[] = {SameDiffContainer::fb, SameDiffContainer::sdnb, SameDiffContainer::sdz};

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

// ---- facts, in the words of tests/data/samediff/README.md

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

std::string hex(std::string_view bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes)
    text += {digits[static_cast<unsigned char>(c) >> 4], digits[static_cast<unsigned char>(c) & 15U]};
  return text;
}

std::string java_name(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return "BOOL";
    case DType::f16:
      return "HALF";
    case DType::bf16:
      return "BFLOAT16";
    case DType::f32:
      return "FLOAT";
    case DType::f64:
      return "DOUBLE";
    case DType::i8:
      return "BYTE";
    case DType::i16:
      return "SHORT";
    case DType::i32:
      return "INT";
    case DType::i64:
      return "LONG";
    case DType::u8:
      return "UBYTE";
    case DType::u16:
      return "UINT16";
    case DType::u32:
      return "UINT32";
    case DType::u64:
      return "UINT64";
    case DType::string:
      return "UTF8";
    default:
      return "UNKNOWN";
  }
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ",") + coded(n);
  return text;
}

std::string shape_text(std::span<const Extent> shape) {
  std::string text;
  for (const Extent e : shape) text += (text.empty() ? "" : "x") + std::to_string(e);
  return text.empty() ? "scalar" : text;
}

std::string array_text(const LeafView& leaf, bool scalar = false) {
  const auto bytes = content(leaf);
  if (!bytes) return why(bytes);
  const std::string digits = hex(in_file_order(*bytes, leaf.dtype()));
  return java_name(leaf.dtype()) + " " + (scalar ? "scalar" : shape_text(leaf.shape())) + " " +
         (digits.empty() ? "-" : digits);
}

void append_texts(const Value& value, std::string& text) {
  if (const auto* s = value.as_string()) {
    text += (text.empty() || text.back() == ' ' ? "" : ",") + hex(*s);
  } else if (const auto* list = value.as_list()) {
    bool first = true;
    for (const Value& v : *list) {
      if (!first) text += ',';
      first = false;
      text += hex(*v.as_string());
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
  const auto report = SameDiffRecorder<>(options).record(checkpoint, sink);
  REQUIRE_MESSAGE(report, why(report));
  return sink.take();
}

/// Opened from memory that lives as long.
Result<Checkpoint> opened(Bytes bytes) { return open_samediff(own_bytes(std::move(bytes))); }

struct Layer {
  Tensor<float, 2> weight;
  std::optional<Tensor<float, 1>> bias;
  STELE_MODULE(Layer, weight, bias)
};
struct Model {
  std::vector<Layer> layers;
  Tensor<std::int64_t, 1> steps{{2}, {1, -2}};
  std::string note = "a note";
  STELE_MODULE(Model, layers, steps, note)
};

Model model(std::size_t rows) {
  Model m;
  for (std::size_t i = 1; i < 4; ++i) {
    m.layers.push_back({Tensor<float, 2>({rows, i}), {}});
    if (i != 2) m.layers.back().bias = Tensor<float, 1>({i});
    Random random(i);
    random.fill(std::as_writable_bytes(m.layers.back().weight.span()));
  }
  return m;
}

}  // namespace

TEST_CASE("samediff: files that DL4J wrote") {
  const auto files = files_in(test_data() + "/samediff", ".fb");
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
      options.storage = mapped ? storage::view : storage::owned;
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
  for (const std::string& file : files_in(test_data() + "/samediff", ".fb")) {
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
    const auto report = ArchiveRecorder<>().record(*before, sink);
    REQUIRE_MESSAGE(report, why(report));
    check(open_archive(own_bytes(sink.take())));
  }
}

TEST_CASE("samediff: the fixtures of DL4J's own tests") {
  const fs::path folder = fs::path(test_data()) / "../../../shared/fixtures/samediff";
  if (!fs::exists(folder)) {
    MESSAGE("left out: no ../shared/fixtures/samediff");
    return;
  }
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
    const auto report = recorder.record(before, sink, options);
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
    REQUIRE(recorder.record(before, stream_sink, options));
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
  const auto before = open_samediff(test_data() + "/samediff/strings.fb");
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

TEST_CASE("samediff: SDNB has large arrays behind its FlatBuffer, and a manifest of them") {
  Model m = model(300000);  // 1.2 MB a column
  const auto bytes = saved(SameDiffRecorder<>(SameDiffContainer::sdnb), m);
  REQUIRE_MESSAGE(bytes, why(bytes));
  const std::string_view file = text_of(bytes->span());
  CHECK(file.substr(0, 8) == "SDNB\0\0\0\1"s);
  const auto after = SameDiffRecorder<>().load<Model>(*bytes);
  REQUIRE_MESSAGE(after, why(after));
  CHECK(std::ranges::equal(std::as_bytes(after->layers[2].weight.span()), std::as_bytes(m.layers[2].weight.span())));
  // What the manifest says is not what the array says: refused.
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
  REQUIRE(recorder.record(before, dir / "m.sdnb", quick()));
  const auto names = names_in(dir.path());
  CHECK(names == std::vector<std::string>{"m.sdnb", "m.shard0-of-5.sdnb", "m.shard1-of-5.sdnb", "m.shard2-of-5.sdnb",
                                          "m.shard3-of-5.sdnb", "m.shard4-of-5.sdnb"});
  for (const char* name : {"m.sdnb", "m.shard0-of-5.sdnb", "m.shard3-of-5.sdnb"}) {
    const auto after = recorder.load<Model>(dir / name);
    REQUIRE_MESSAGE(after, why(after));
    CHECK(after->steps[1] == -2);
    CHECK(after->note == "a note");
  }
  CHECK(code_of(recorder.record(before, dir / "m.sdnb", quick())) == Errc::exists);
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
      for (int k = 0; k < 3; ++k) expected += hex(std::string(1, static_cast<char>(i + 12 * j + 4 * k)));
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
  const auto refused = SameDiffRecorder<>().record(snapshot, sink);
  CHECK(code_of(refused) == Errc::limit);
  CHECK(refused.error().path() == "huge");
  CHECK(refused.error().expected().find(".sdnb") != std::string::npos);
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
  CHECK(code_of(SameDiffRecorder<>().record(checkpoint, sink)) == Errc::missing);
  graph.variables[0].kind = VariableKind::array;
  GraphOperation o;
  o.name = "add";
  o.op_name = "add";
  o.inputs = {"gone"};
  o.outputs = {"nowhere"};
  graph.operations = {o};
  checkpoint.graph = graph;
  CHECK(code_of(SameDiffRecorder<>().record(checkpoint, sink)) == Errc::malformed);
  graph.operations[0].inputs = {"steps"};
  graph.operations.push_back(graph.operations[0]);
  checkpoint.graph = graph;
  CHECK(code_of(SameDiffRecorder<>().record(checkpoint, sink)) == Errc::malformed);
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
  CHECK(code_of(SameDiffRecorder<>().record(checkpoint, sink)) == Errc::not_representable);
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
    REQUIRE(recorder.record(checkpoint, sink));
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
