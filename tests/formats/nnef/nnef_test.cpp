// NNEF: tensor files, folders and archives of them.
#include <stele/bundle.hpp>
#include <stele/recorders/nnef.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/golden_text.hpp"
#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

using namespace stele_test;
using stele::Errc;
using stele::NnefContainer;
using stele::NnefFormat;
using stele::NnefRecorder;
using stele::Snapshot;

namespace stele_test {
namespace {

std::string golden(const std::string& name) { return test_data() + "/nnef/" + name; }

/// A line of expected.txt: its README.md says what is in it.
struct Fact {
  std::string file, label, type, shape, hex;
  std::string meaning;  // empty: none
};

std::vector<Fact> all_facts() {
  std::vector<Fact> list;
  std::ifstream in(golden("expected.txt"));
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    Fact fact;
    std::getline(fields, fact.file, '\t');
    std::getline(fields, fact.type, '\t');
    std::getline(fields, fact.shape, '\t');
    std::getline(fields, fact.hex, '\t');
    std::getline(fields, fact.meaning, '\t');
    if (const auto colon = fact.file.find(':'); colon != std::string::npos) {
      fact.label = fact.file.substr(colon + 1);
      fact.file.resize(colon);
    }
    list.push_back(std::move(fact));
  }
  return list;
}

/// "q" and the type as expected.txt has it: u12 is a u16 of which a save writes 12 bits.
std::string type_text(const stele::LeafView& leaf) {
  const stele::Annotations* notes = leaf.annotations();
  std::string type(stele::name(leaf.dtype()));
  if (notes == nullptr || type == "opaque" || type == "bool") return type;
  if (const auto bits = notes->find("nnef.bits"); bits != notes->end()) {
    type = type.substr(0, 1) + std::to_string(*bits->second.as_i64());
  }
  return (notes->contains("nnef.quantized") ? "q" : "") + type;
}

std::string path_of_label(std::string label) {
  if (label.starts_with('/')) label.erase(0, 1);
  std::string path;
  for (const char c : label) path += c == '/' ? std::string(".") : c == '.' ? std::string("\\.") : std::string(1, c);
  return path;
}

/// f64 numbers in hexadecimal, little-endian.
std::vector<double> numbers_of(const std::string& text) {
  std::vector<double> list;
  for (std::size_t at = 0; at + 16 <= text.size(); at += 16) {
    std::uint64_t bits = 0;
    for (std::size_t k = 8; k-- > 0;) bits = bits << 8 | std::stoull(text.substr(at + 2 * k, 2), nullptr, 16);
    list.push_back(std::bit_cast<double>(bits));
  }
  return list;
}

}  // namespace

TEST_CASE("nnef: golden files") {
  std::map<std::string, Snapshot> opened;
  std::map<std::string, std::size_t> counts;
  const std::vector<Fact> facts = all_facts();
  REQUIRE(facts.size() > 50);
  for (const Fact& fact : facts) {
    CAPTURE(fact.file);
    CAPTURE(fact.label);
    if (!opened.contains(fact.file)) opened.emplace(fact.file, good(NnefRecorder<>{}.open(golden(fact.file))));
    const Snapshot& snapshot = opened.at(fact.file);
    ++counts[fact.file];
    const auto leaf =
        fact.label.empty() ? std::optional(good(snapshot.checked_leaf(0))) : snapshot.find(path_of_label(fact.label));
    REQUIRE(leaf);
    CHECK(type_text(*leaf) == fact.type);
    CHECK(shape_text(leaf->shape(), "-") == fact.shape);
    CHECK(hex(in_file_order(good(content(*leaf)), leaf->dtype())) == fact.hex);
  }
  stele::LoadOptions options;
  options.dequantize = true;
  for (const Fact& fact : facts) {
    if (fact.meaning.empty() || fact.label.ends_with("channels")) continue;
    CAPTURE(fact.file);
    CAPTURE(fact.label);
    const Snapshot snapshot = good(NnefRecorder<>{}.open(golden(fact.file), options));
    const auto leaf =
        fact.label.empty() ? std::optional(good(snapshot.checked_leaf(0))) : snapshot.find(path_of_label(fact.label));
    REQUIRE(leaf);
    CHECK(leaf->dtype() == stele::DType::f32);
    const std::vector<double> wanted = numbers_of(fact.meaning);
    std::vector<float> found(wanted.size());
    REQUIRE(leaf->byte_size() == found.size() * sizeof(float));
    good(leaf->read(0, std::as_writable_bytes(std::span(found))));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      CHECK(found[i] == doctest::Approx(static_cast<float>(wanted[i])).epsilon(1e-7));
    }
  }
  for (const auto& count : counts) {
    CAPTURE(count.first);
    CHECK(opened.at(count.first).leaf_count() == count.second);
  }
}

// ---- modules --------------------------------------------------------------------------------------------------------

namespace {

using namespace std::string_literals;
using Names = std::vector<std::string>;
using stele::Bundle;
using stele::DType;
using stele::Report;
using stele::SourcePtr;
using stele::Tensor;
using stele::Value;
namespace fs = std::filesystem;

struct Net {
  std::vector<Linear> layers;
  Tensor<std::int64_t, 1> steps;
  Tensor<bool, 2> mask;
  STELE_MODULE(Net, layers, steps, mask)
};
struct One {
  Tensor<float, 2> only;
  STELE_MODULE(One, only)
};
struct Titled {
  Tensor<float, 1> w;
  std::string title;
  STELE_MODULE(Titled, w, title)
};
Net net(float first = 1) {
  Net n;
  n.layers.emplace_back(3, 4, first);
  n.layers.emplace_back(4, 2, first + 100, false);
  n.steps = Tensor<std::int64_t, 1>({2}, {-1, 1LL << 40});
  n.mask = Tensor<bool, 2>({3, 3}, {true, false, true, true, false, false, false, true, true});
  return n;
}

NnefRecorder<> in(NnefContainer container, bool graph = true) {
  return NnefRecorder<>(NnefFormat({.container = container, .graph = graph}));
}

struct Item {
  std::string path;
  DType dtype = DType::u8;
  std::vector<stele::Extent> shape{1};
  std::string bytes = "\0"s;
  stele::Annotations notes{};
};
Snapshot flat(const std::vector<Item>& items) {
  stele::SnapshotBuilder builder;
  builder.set_flat();
  for (const Item& item : items) {
    auto memory = std::make_shared<const std::string>(item.bytes);
    const auto* at = reinterpret_cast<const std::byte*>(memory->data());
    builder.tensor(builder.intern(item.path), item.dtype, item.shape, item.bytes.size(), {&memory_ops, at, 0});
    for (const auto& [key, value] : item.notes) builder.annotate(key, value);
    builder.keep(std::move(memory));
  }
  return builder.finish();
}
/// u8 tensors of one element with these paths.
Snapshot named(const Names& paths) {
  std::vector<Item> items;
  for (const std::string& path : paths) items.push_back({path});
  return flat(items);
}

/// Saved as a folder in memory.
template <class R, class M>
stele::Result<std::shared_ptr<Bundle>> folder_of(const R& recorder, const M& model, Report* report = nullptr) {
  const auto bundle = stele::memory_bundle();
  const auto sink = stele::bundle_sink(bundle);
  auto r = recorder.record(model, *sink, quick());
  if (!r) return std::move(r).error();
  if (report != nullptr) *report = *std::move(r);
  return bundle;
}
std::string text_in(const Bundle& bundle, const std::string& name) {
  return std::string(text_of(good(bundle.open(name))->view()));
}
void put(Bundle& bundle, const std::string& name, std::string_view text) {
  const auto sink = good(bundle.create(name));
  good(sink->write(bytes_of(text)));
  good(sink->commit());
}
Names names_of(const Bundle& bundle) { return good(bundle.names()); }
Names paths_of(const Snapshot& s) {
  Names paths;
  for (std::size_t i = 0; i < s.leaf_count(); ++i) paths.push_back(s.leaf(i).path());
  return paths;
}
template <class T>
std::vector<T> numbers(const stele::LeafView& leaf) {
  const std::string bytes = good(content(leaf));
  std::vector<T> all(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

/// The words of a header.
std::uint32_t word(std::string_view file, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t k = 4; k-- > 0;) value = value << 8 | static_cast<unsigned char>(file.at(at + k));
  return value;
}

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
      CHECK(good(recorder.record(before, dir / name)).empty());
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
      const auto record = good(recorder.load_record<Net>(path));
      CHECK(image(good(record.layers.at(1).weight.load())) == image(before.layers[1].weight.value));
      good(recorder.verify(path));
      Net narrow = net();
      narrow.layers.pop_back();
      CHECK(code_of(recorder.load_into(narrow, path)) != Errc::none);
    }
  }
  // What lies in a folder does not depend on how it was written.
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
  good(recorder.record(before, path));
  REQUIRE(dir.names() == Names{"w.dat"});
  CHECK(image(good(recorder.load<Tensor<float, 2>>(path + ".dat"))) == image(before));
  CHECK(image(good(NnefRecorder<>().load<Tensor<float, 2>>(path + ".dat"))) == image(before));
  Tensor<float, 2> into({3, 5});
  good(recorder.load_into(into, path + ".dat"));
  CHECK(image(into) == image(before));
  CHECK(paths_of(good(recorder.open(path + ".dat"))) == Names{"w"});
  // Of a module with one tensor, the tensor has its name there.
  const One one{before};
  good(recorder.record(one, dir / "one"));
  CHECK(read_text(dir / "one.dat") == read_text(dir / "w.dat"));
  CHECK(image(good(recorder.load<One>(dir / "one.dat")).only) == image(before));
  // A name with a dot is one segment.
  fs::rename(dir / "one.dat", dir / "a.b.dat");
  CHECK(paths_of(good(recorder.open(dir / "a.b.dat"))) == Names{"a\\.b"});

  CHECK(code_of(recorder.record(net(), dir / "many")) == Errc::not_representable);
  CHECK(code_of(recorder.record(named({}), dir / "none")) == Errc::not_representable);
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
      const auto r = in(container).record(named(paths), *sink, quick());
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
  CHECK(good(NnefRecorder<>().open(stele::bundle_source(bundle))).leaf_count() == 0);
  CHECK(bad(NnefRecorder<>().open(stele::bundle_source(stele::memory_bundle()))).code() == Errc::missing);
  const auto bytes = good(saved(in(NnefContainer::tgz), named({})));
  CHECK(good(in(NnefContainer::tgz).open(bytes)).leaf_count() == 0);
}

// ---- quantization ---------------------------------------------------------------------------------------------------

namespace {

struct Floats {
  Tensor<float, 2> w;
  Tensor<double, 1> d;
  Tensor<std::int32_t, 1> i;
  Tensor<float, 1> none;
  STELE_MODULE(Floats, w, d, i, none)
};
Floats floats() {
  Floats f;
  f.w = Tensor<float, 2>({3, 3}, {-1.0F, -0.5F, 0.0F, 0.25F, 0.3F, 0.7F, 1.0F, 0.9F, 0.1F});
  f.d = Tensor<double, 1>({5}, {10, 11, 12.5, 13, 17});
  f.i = Tensor<std::int32_t, 1>({2}, {1, -70000});
  f.none = Tensor<float, 1>({0});
  return f;
}

/// The largest distance; the sizes are equal.
template <class A, class B>
double distance(const A& a, const B& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a.data()[i]) - static_cast<double>(b.data()[i])));
  }
  return most;
}

template <class Settings>
void check_quantized(unsigned bits) {
  CAPTURE(bits);
  const Floats before = floats();
  const double steps = std::ldexp(1.0, static_cast<int>(bits)) - 1;
  // Without graph = true too: quantized tensors need it.
  for (const bool graph : {true, false}) {
    const NnefRecorder<Settings> recorder(NnefFormat({.graph = graph}));
    Report report;
    const auto bundle = good(folder_of(recorder, before, &report));
    REQUIRE(report.count(Report::What::quantized) == 2);
    CHECK(report[0].path == "w");
    const std::string row(report[0].detail);
    CHECK(row.starts_with("f32 -> " + std::to_string(bits) + " bits in [-1, 1]; largest error "));
    CHECK(std::stod(row.substr(row.find("error ") + 6)) <= 1.0 / steps + 1e-4);
    CHECK(std::string(report[1].detail).starts_with("f64 -> "));

    const std::string file = text_in(*bundle, "w.dat");
    CHECK(file.size() == 128 + (9 * bits + 7) / 8);
    CHECK(word(file, 44) == bits);
    CHECK(word(file, 48) == 2);
    if (bits == 4) {  // two items in a byte, the first in the high bits
      CHECK(static_cast<unsigned char>(file[128]) == (0U << 4 | 4U));
      CHECK((static_cast<unsigned char>(file.back()) & 15U) == 0);
    }
    CHECK(text_in(*bundle, "graph.quant") ==
          "\"v0_w\": min_max_linear_quantize(min = -1.0, max = 1.0, bits = " + std::to_string(bits) +
              ", signed = false, symmetric = false);\n"
              "\"v1_d\": min_max_linear_quantize(min = 10.0, max = 17.0, bits = " +
              std::to_string(bits) + ", signed = false, symmetric = false);\n");
    CHECK(text_in(*bundle, "graph.nnef").find("v0_w = variable<scalar>") != std::string::npos);
    CHECK(text_in(*bundle, "graph.nnef").find("v2_i = variable<integer>") != std::string::npos);

    stele::LoadOptions options;
    options.dequantize = true;
    Floats after = good(recorder.template load<Floats>(stele::bundle_source(bundle), options));
    CHECK(distance(after.w, before.w) <= 1.0 / steps + 1e-6);
    CHECK(distance(after.d, before.d) <= 3.5 / steps + 1e-6);
    CHECK(image(after.i) == image(before.i));
    CHECK(image(after.none) == image(before.none));

    const Snapshot raw = good(recorder.open(stele::bundle_source(bundle)));
    const auto leaf = raw.find("w");
    REQUIRE(leaf);
    CHECK(leaf->dtype() == DType::u8);
    REQUIRE(leaf->annotations() != nullptr);
    const Value& note = leaf->annotations()->at("quantization");
    REQUIRE(note.find("bits") != nullptr);
    CHECK(*note.find("bits")->as_i64() == bits);
    CHECK(*note.find("scheme")->as_string() == "linear");
    CHECK(*note.find("min")->as_f64() == -1.0);
    CHECK(leaf->annotations()->contains("nnef.bits") == (bits != 8));
    CHECK_FALSE(raw.find("i")->annotations());
    // Integers are not taken for floats by mistake.
    CHECK(code_of(recorder.template load<Floats>(stele::bundle_source(bundle))) == Errc::dtype_mismatch);
    // What was opened is written again as it was.
    const auto again = good(folder_of(NnefRecorder<>(), raw));
    CHECK(text_in(*again, "w.dat") == file);
    CHECK(text_in(*again, "graph.quant") == text_in(*bundle, "graph.quant"));
  }
}

}  // namespace

TEST_CASE("nnef: floats become integers of 8 and of 4 bits") {
  check_quantized<stele::Quantized8>(8);
  check_quantized<stele::Quantized4>(4);
}

TEST_CASE("nnef: quantized tensors in other formats") {
  const Floats before = floats();
  CHECK(code_of(saved(stele::SafetensorsRecorder<stele::Quantized8>(), before)) == Errc::not_representable);
  const auto bytes = good(saved(stele::BinaryRecorder<stele::Quantized8>(), before));
  stele::LoadOptions options;
  options.dequantize = true;
  const Floats after = good(stele::BinaryRecorder<>().load<Floats>(bytes, options));
  CHECK(distance(after.w, before.w) <= 1.0 / 255 + 1e-6);
  // A tensor file has no text beside it.
  const NnefRecorder<stele::Quantized8> tensor(NnefFormat({.container = NnefContainer::tensor}));
  CHECK(code_of(saved(tensor, before.w)) == Errc::not_representable);
  // From the binary file to NNEF.
  const auto bundle = good(folder_of(NnefRecorder<>(), good(stele::BinaryRecorder<>().open(bytes))));
  CHECK(names_of(*bundle) == Names{"d.dat", "graph.nnef", "graph.quant", "i.dat", "none.dat", "w.dat"});
}

TEST_CASE("nnef: what graph.quant says, and what it cannot") {
  const auto map = [](std::initializer_list<std::pair<std::string, Value>> items) { return Value(Value::Map(items)); };
  const auto text = [&](Value note, DType dtype = DType::u8) {
    const auto bundle = folder_of(
        NnefRecorder<>(),
        flat({{"w", dtype, {1}, std::string(element_size(dtype), '\0'), {{"quantization", std::move(note)}}}}));
    return bundle ? text_in(**bundle, "graph.quant") : bundle.error().to_string();
  };
  const Value eight(std::int64_t{8});
  CHECK(text(map({{"scheme", Value("linear")}, {"bits", eight}, {"min", Value(-1.5)}, {"max", Value(1e30)}})) ==
        "\"v0_w\": min_max_linear_quantize(min = -1.5, max = 1e+30, bits = 8, signed = false, symmetric = false);\n");
  CHECK(text(map({{"scheme", Value("linear")},
                  {"bits", eight},
                  {"min", Value(std::int64_t{-2})},
                  {"max", Value(2.0)},
                  {"signed", Value(true)},
                  {"symmetric", Value(true)}}),
             DType::i8) ==
        "\"v0_w\": min_max_linear_quantize(min = -2.0, max = 2.0, bits = 8, signed = true, symmetric = true);\n");
  CHECK(text(map({{"scheme", Value("zero_point")},
                  {"bits", eight},
                  {"scale", Value(0.1)},
                  {"zero_point", Value(std::int64_t{-3})},
                  {"signed", Value(true)}}),
             DType::i8) ==
        "\"v0_w\": zero_point_linear_quantize(zero_point = -3, scale = 0.1, bits = 8, signed = true, symmetric = "
        "false);\n");
  CHECK(text(map({{"scheme", Value("logarithmic")}, {"bits", eight}, {"max", Value(4.0)}})) ==
        "\"v0_w\": logarithmic_quantize(max = 4.0, bits = 8);\n");
  const auto refused = [&](Value note) {
    CHECK(text(std::move(note)).find("NNEF") != std::string::npos);
    CHECK(true);
  };
  refused(Value("linear"));
  refused(map({{"scheme", Value("linear")}, {"bits", eight}, {"min", Value(0.0)}}));
  refused(map({{"scheme", Value("linear")}, {"bits", eight}, {"min", Value(0.0)}, {"max", Value(INFINITY)}}));
  refused(map({{"scheme", Value("cubic")}, {"bits", eight}}));
  refused(map({{"scheme", Value("logarithmic")}, {"bits", eight}, {"max", Value(4.0)}, {"signed", Value(true)}}));
  refused(
      map({{"scheme", Value("linear")}, {"bits", Value(std::int64_t{9})}, {"min", Value(0.0)}, {"max", Value(1.0)}}));

  // A text that is not understood is kept, and written again; one that is no operation is refused.
  const auto kept = [&](Value note) {
    return code_of(
        folder_of(NnefRecorder<>(), flat({{"w", DType::u8, {1}, "\0"s, {{"nnef.quantization", std::move(note)}}}})));
  };
  CHECK(kept(Value("mine(scale = [[0.5], [2.0]])")) == Errc::none);
  CHECK(kept(Value("mine(a = 1); \"v\": yours(b = 2)")) == Errc::not_representable);
  CHECK(kept(Value("mine(")) == Errc::not_representable);
  CHECK(kept(Value("")) == Errc::not_representable);
  CHECK(kept(Value(true)) == Errc::not_representable);
}

TEST_CASE("nnef: quantization that differs by channel is kept as text") {
  const std::string folder = golden("model.nnef");
  const Snapshot opened = good(NnefRecorder<>().open(folder));
  const auto leaf = opened.find("head.linear.weight_channels");
  REQUIRE(leaf);
  REQUIRE(leaf->annotations() != nullptr);
  CHECK_FALSE(leaf->annotations()->contains("quantization"));
  CHECK(*leaf->annotations()->at("nnef.quantization").as_string() ==
        "zero_point_linear_quantize(zero_point = [[0], [3]], scale = [[0.5], [0.125]], bits = 8, signed = true, "
        "symmetric = false)");
  const auto bundle = good(folder_of(NnefRecorder<>(), opened));
  const Snapshot again = good(NnefRecorder<>().open(stele::bundle_source(bundle)));
  CHECK(again.find("head.linear.weight_channels")->annotations()->at("nnef.quantization") ==
        leaf->annotations()->at("nnef.quantization"));
  for (std::size_t i = 0; i < opened.leaf_count(); ++i) {
    const std::string path = opened.leaf(i).path();
    CAPTURE(path);
    REQUIRE(again.find(path));
    CHECK(good(content(opened.leaf(i))) == good(content(*again.find(path))));
    CHECK(type_text(opened.leaf(i)) == type_text(*again.find(path)));
  }
}

TEST_CASE("nnef: items that are wider than their quantization says") {
  const auto bundle = stele::memory_bundle();
  put(*bundle, "graph.nnef", "version 1.0; graph g(x) -> (w) { w = variable(shape = [2], label = 'w'); }");
  put(*bundle, "graph.quant", "\"w\": linear_quantize(min = -1.0, max = 1.0, bits = 4);");
  put(*bundle, "w.dat",
      text_in(*good(folder_of(NnefRecorder<>(),
                              flat({{"w", DType::u8, {2}, "\x0f\xff", {{"nnef.quantized", Value(true)}}}}))),
              "w.dat"));
  const Snapshot opened = good(NnefRecorder<>().open(stele::bundle_source(bundle)));
  CHECK(*opened.leaf(0).annotations()->at("nnef.bits").as_i64() == 8);
  const auto again = good(folder_of(NnefRecorder<>(), opened));
  CHECK(text_in(*again, "w.dat") == text_in(*bundle, "w.dat"));
  CHECK(text_in(*again, "graph.quant").find("bits = 4") != std::string::npos);
}

TEST_CASE("nnef: numbers of graph.quant that no number holds") {
  const auto note = [](const std::string& operation) {
    const auto bundle = stele::memory_bundle();
    put(*bundle, "graph.nnef", "version 1.0; graph g(x) -> (w) { w = variable(shape = [1], label = 'w'); }");
    put(*bundle, "graph.quant", "\"w\": " + operation + ";");
    put(*bundle, "w.dat", text_in(*good(folder_of(NnefRecorder<>(), named({"w"}))), "w.dat"));
    const Snapshot s = good(NnefRecorder<>().open(stele::bundle_source(bundle)));
    return *s.leaf(0).annotations();
  };
  CHECK(note("linear_quantize(min = -1.0, max = 1.0, bits = 8)").contains("quantization"));
  for (const std::string operation : {
           "linear_quantize(min = -1.0, max = 1e400, bits = 8)",
           "linear_quantize(min = -1.0, max = 1.0, bits = 99999999999999999999)",
           "linear_quantize(min = -1.0, max = 1.0, max = 2.0, bits = 8)",
           "linear_quantize(min = -1.0, max = 1.0, bits = 8, scheme = true)",
           "linear_quantize(min = -1.0, max = [1.0], bits = 8)",
           "linear_quantize(min = -1.0, max = 'one', bits = 8)",
           "tanh(x = 1.0)",
       }) {
    CAPTURE(operation);
    const auto notes = note(operation);
    CHECK_FALSE(notes.contains("quantization"));
    REQUIRE(notes.contains("nnef.quantization"));
    CHECK(*notes.at("nnef.quantization").as_string() == operation);
  }
}

// ---- dtypes, widths, limits -----------------------------------------------------------------------------------------

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

TEST_CASE("nnef: golden files are written again as they were") {
  std::size_t same = 0;
  for (const Fact& fact : all_facts()) {
    if (!fact.label.empty()) continue;
    CAPTURE(fact.file);
    const std::string& file = fact.file;
    const Snapshot opened = good(NnefRecorder<>().open(golden(file)));
    const bool older = file.starts_with("provisional/") || file.find("_0x1") != std::string::npos ||
                       file.find("signed_flag") != std::string::npos || file.find("provisional") != std::string::npos ||
                       file.find("limits_code_2") != std::string::npos || file.find("four_bytes") != std::string::npos;
    if (!older) {
      const auto bytes = good(saved(in(NnefContainer::tensor), opened));
      std::string wanted = read_text(golden(file));
      if (file == "by_hand/bool_8.dat") {  // all but 0 is true
        for (std::size_t i = 128; i < wanted.size(); ++i) wanted[i] = wanted[i] != 0;
      }
      CHECK(hex(text_of(bytes.span())) == hex(wanted));
      ++same;
      continue;
    }
    // Those of before become files of today with the same numbers.
    const auto bundle = folder_of(NnefRecorder<>(), opened);
    if (file == "by_hand/logarithmic_0x11_8_signed.dat") {
      CHECK(code_of(bundle) == Errc::not_representable);
      continue;
    }
    REQUIRE_MESSAGE(bundle, why(bundle));
    const auto names = names_of(**bundle);
    const std::string written = text_in(
        **bundle, *std::find_if(names.begin(), names.end(), [](const std::string& n) { return n.ends_with(".dat"); }));
    CHECK(word(written, 48) <= 5);
    CHECK(written.substr(52, 76) == std::string(76, '\0'));
    const Snapshot again = good(NnefRecorder<>().open(stele::bundle_source(*bundle)));
    CHECK(good(content(again.leaf(0))) == good(content(opened.leaf(0))));
    CHECK(type_text(again.leaf(0)) == type_text(opened.leaf(0)));
    stele::LoadOptions options;
    options.dequantize = true;
    if (fact.meaning.empty()) continue;
    CHECK(good(content(good(NnefRecorder<>().open(stele::bundle_source(*bundle), options)).leaf(0))) ==
          good(content(good(NnefRecorder<>().open(golden(file), options)).leaf(0))));
  }
  CHECK(same > 60);
}

TEST_CASE("nnef: widths that an annotation says") {
  const auto u12 = [](std::string bytes, std::int64_t bits) {
    return flat({{"w", DType::u16, {3}, std::move(bytes), {{"nnef.bits", Value(bits)}}}});
  };
  const auto tensor = in(NnefContainer::tensor);
  const std::string numbers =
      std::endian::native == std::endian::little ? "\x23\x01\x56\x04\xbc\x0a"s : "\x01\x23\x04\x56\x0a\xbc"s;
  CHECK(hex(text_of(good(saved(tensor, u12(numbers, 12))).span()).substr(128)) == "123456abc0");
  CHECK(code_of(saved(tensor, u12(numbers, 11))) == Errc::out_of_range);
  CHECK(code_of(saved(tensor, u12(numbers, 0))) == Errc::not_representable);
  CHECK(code_of(saved(tensor, u12(numbers, -1))) == Errc::not_representable);
  CHECK(code_of(saved(tensor, u12(numbers, 17))) == Errc::not_representable);
  CHECK(good(saved(tensor, u12(numbers, 16))).size() == 128 + 6);
  CHECK(hex(text_of(
                good(saved(tensor,
                           flat({{"w", DType::i8, {4}, "\xf8\x07\xff\x00"s, {{"nnef.bits", Value(std::int64_t{4})}}}})))
                    .span())
                .substr(128)) == "87f0");
  CHECK(code_of(saved(tensor, flat({{"w", DType::i8, {1}, "\xf7"s, {{"nnef.bits", Value(std::int64_t{4})}}}}))) ==
        Errc::out_of_range);
  CHECK(code_of(saved(tensor, flat({{"w", DType::i8, {1}, "\x08"s, {{"nnef.bits", Value(std::int64_t{4})}}}}))) ==
        Errc::out_of_range);
  CHECK(code_of(saved(tensor, flat({{"w", DType::boolean, {1}, "\x02"s}}))) == Errc::malformed);
}

TEST_CASE("nnef: items of a vendor are kept as they are") {
  for (const char* const file : {"by_hand/vendor.dat", "by_hand/vendor_blocks.dat"}) {
    const Snapshot opened = good(NnefRecorder<>().open(golden(file)));
    const auto leaf = opened.leaf(0);
    CHECK(leaf.dtype() == DType::opaque);
    REQUIRE(leaf.annotations() != nullptr);
    CHECK(*leaf.annotations()->at("nnef.vendor").as_i64() == word(read_text(golden(file)), 48) >> 16);
    CHECK(*leaf.annotations()->at("nnef.type").as_i64() == (word(read_text(golden(file)), 48) & 0xffff));
    CHECK(*leaf.annotations()->at("nnef.bits").as_i64() == word(read_text(golden(file)), 44));
    const auto bundle = good(folder_of(NnefRecorder<>(), opened));
    const Snapshot again = good(NnefRecorder<>().open(stele::bundle_source(bundle)));
    CHECK(good(content(again.leaf(0))) == good(content(leaf)));
    CHECK(*again.leaf(0).annotations() == *leaf.annotations());
  }
  const auto vendor = [](std::int64_t number, std::int64_t type, std::int64_t bits) {
    return code_of(
        saved(in(NnefContainer::tensor),
              flat({{"w",
                     DType::opaque,
                     {2},
                     "abc",
                     {{"nnef.vendor", Value(number)}, {"nnef.type", Value(type)}, {"nnef.bits", Value(bits)}}}})));
  };
  CHECK(vendor(1, 0, 0) == Errc::none);
  CHECK(vendor(0xffff, 0xffff, 0xffffffff) == Errc::none);
  CHECK(vendor(0, 0, 8) == Errc::not_representable);
  CHECK(vendor(0x10000, 0, 8) == Errc::not_representable);
  CHECK(vendor(1, 0x10000, 8) == Errc::not_representable);
  CHECK(vendor(1, -1, 8) == Errc::not_representable);
  CHECK(vendor(1, 0, 0x100000000) == Errc::not_representable);
  CHECK(vendor(1, 0, -1) == Errc::not_representable);
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
    const auto r = NnefRecorder<>().record(snapshot, *sink, quick());
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
  const auto r = NnefRecorder<>().record(large(DType::boolean, {1ULL << 32}), *sink, quick());
  CHECK(code_of(r) == Errc::not_representable);  // the extent
  const auto s =
      NnefRecorder<>().record(large(DType::f32, {1ULL << 29, 1}), *stele::bundle_sink(stele::memory_bundle()), quick());
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

// ---- places ---------------------------------------------------------------------------------------------------------

TEST_CASE("nnef: folders are replaced when all in them is known") {
  const TempDir dir;
  const NnefRecorder<> recorder;
  const std::string path = dir / "m.nnef";
  const auto save = [&](float first, const stele::SaveOptions& options = quick()) {
    return code_of(recorder.record(net(first), path, options));
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
  write_text(path + "/old.dat", text_in(*good(folder_of(recorder, named({"old"}))), "old.dat"));
  CHECK(save(4) == Errc::none);
  CHECK(names_of(*stele::folder_bundle(path)) == files_of_net);
  // Texts of somebody else, and files that nobody knows, stay.
  write_text(path + "/notes.txt", "mine");
  const auto refused = recorder.record(net(5), path, quick());
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

  fs::copy(golden("model.nnef"), dir / "theirs.nnef", fs::copy_options::recursive);
  CHECK(code_of(recorder.record(net(), dir / "theirs.nnef", quick())) == Errc::exists);
  CHECK(names_of(*stele::folder_bundle(dir / "theirs.nnef")) == names_of(*stele::folder_bundle(golden("model.nnef"))));
}

namespace {

/// Another bundle's files; counts what is read of them.
class Watched final : public Bundle {
 public:
  explicit Watched(std::shared_ptr<Bundle> inner) : inner_(std::move(inner)) {}
  stele::Result<SourcePtr> open(std::string_view name) const override {
    STELE_TRY_ASSIGN(SourcePtr source, inner_->open(name));
    sources.push_back(source);
    ++opened;
    return SourcePtr(std::make_shared<Counting>(std::move(source), *this));
  }
  stele::Result<std::unique_ptr<stele::Sink>> create(std::string_view name) override { return inner_->create(name); }
  stele::Result<bool> contains(std::string_view name) const override { return inner_->contains(name); }
  stele::Result<std::vector<std::string>> names() const override { return inner_->names(); }
  void remove(std::string_view) noexcept override {}
  std::uint64_t take() const { return read.exchange(0); }

  mutable std::vector<SourcePtr> sources;
  mutable std::atomic<std::uint64_t> read{0};
  mutable std::size_t opened = 0;

 private:
  class Counting final : public stele::Source {
   public:
    Counting(SourcePtr inner, const Watched& to) : Source(inner->name()), inner_(std::move(inner)), to_(to) {}
    std::uint64_t size() const noexcept override { return inner_->size(); }
    stele::Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
      to_.read += out.size();
      return inner_->read_at(offset, out);
    }
    std::span<const std::byte> view() const noexcept override { return inner_->view(); }
    bool view_is_private() const noexcept override { return inner_->view_is_private(); }

   private:
    SourcePtr inner_;
    const Watched& to_;
  };
  std::shared_ptr<Bundle> inner_;
};

bool within(const void* at, std::span<const std::byte> memory) {
  return at >= memory.data() && at < memory.data() + memory.size();
}

}  // namespace

TEST_CASE("nnef: a load reads headers, and of leaves those that are asked for") {
  const TempDir dir;
  constexpr std::uint64_t elements = 1U << 22;
  std::string head =
      text_in(*good(folder_of(NnefRecorder<>(), flat({{"w", DType::f32, {1}, "\0\0\0\0"s}}))), "w.dat").substr(0, 128);
  for (const std::size_t at : {4U, 12U}) {
    const std::uint64_t n = at == 4 ? 4 * elements : elements;
    for (std::size_t k = 0; k < 4; ++k) head[at + k] = static_cast<char>(n >> 8 * k & 0xff);
  }
  std::string graph = "version 1.0; graph g(x) -> (t0) { x = external(shape = [1]);\n";
  constexpr std::size_t count = 150;  // more than stay open
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = "t" + std::to_string(i);
    write_text(dir / (name + ".dat"), head);
    fs::resize_file(dir / (name + ".dat"), 128 + 4 * elements);
    graph.append(name).append(" = variable(shape = [").append(std::to_string(elements)).append("], label = '");
    graph.append(name).append("');\n");
  }
  for (const bool described : {false, true}) {
    CAPTURE(described);
    if (described) write_text(dir / "graph.nnef", graph + "}");
    const auto watched = std::make_shared<Watched>(stele::folder_bundle(dir.path()));
    const Snapshot opened = good(NnefRecorder<>().open(stele::bundle_source(watched)));
    CHECK(opened.leaf_count() == count);
    CHECK(watched->take() <= count * 132 + 2 * graph.size());
    for (const std::size_t i : {std::size_t{3}, count - 1}) {
      CHECK(good(content(opened.leaf(i))) == std::string(4 * elements, '\0'));
      CHECK(watched->take() == 4 * elements);
      float part[16];
      good(opened.leaf(i).read(4 * (elements - 16), std::as_writable_bytes(std::span(part))));
      CHECK(watched->take() == sizeof part);
    }
  }
}

TEST_CASE("nnef: packed items are read in parts") {
  // 100,000 items of 12 bits in several pieces.
  std::vector<std::uint16_t> items(300001);
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = static_cast<std::uint16_t>(i * 7919 % 4096);
  const std::string bytes(reinterpret_cast<const char*>(items.data()), 2 * items.size());
  const auto bundle = std::make_shared<Watched>(good(folder_of(
      NnefRecorder<>(), flat({{"w", DType::u16, {items.size()}, bytes, {{"nnef.bits", Value(std::int64_t{12})}}}}))));
  const Snapshot opened = good(NnefRecorder<>().open(stele::bundle_source(bundle)));
  CHECK(good(content(opened.leaf(0))) == bytes);
  bundle->take();
  for (const std::size_t begin : {0U, 1U, 7U, 8U, 299000U, 300000U}) {
    std::vector<std::uint16_t> part(std::min<std::size_t>(999, items.size() - begin));
    good(opened.leaf(0).read(2 * begin, std::as_writable_bytes(std::span(part))));
    CHECK(std::equal(part.begin(), part.end(), items.begin() + static_cast<std::ptrdiff_t>(begin)));
    CHECK(bundle->take() <= part.size() * 3 / 2 + 24);
  }
}

TEST_CASE("nnef: parameters that point into a mapped folder or archive") {
  const TempDir dir;
  const Net before = net();
  good(NnefRecorder<>().record(before, dir / "m.nnef", quick()));
  stele::LoadOptions options;
  options.storage = stele::storage::view;
  {
    const auto watched = std::make_shared<Watched>(stele::folder_bundle(dir / "m.nnef", {}, true));
    Report report;
    const Net now = good(NnefRecorder<>().load<Net>(stele::bundle_source(watched), options, &report));
    CHECK(image(now) == image(before));
    const auto mapped = [&](const void* at) {
      return std::any_of(watched->sources.begin(), watched->sources.end(),
                         [&](const SourcePtr& s) { return within(at, s->view()); });
    };
    CHECK(mapped(now.layers[0].weight.value.data()));
    CHECK(mapped(now.layers[1].weight.value.data()));
    CHECK(mapped(now.layers[0].bias->value.data()));
    CHECK(mapped(now.steps.data()));
    CHECK_FALSE(mapped(now.mask.data()));
    CHECK(report.paths(Report::What::copied) == Names{"mask"});
  }
  Report report;
  CHECK(image(good(NnefRecorder<>().load<Net>(dir / "m.nnef", options, &report))) == image(before));
  CHECK(report.paths(Report::What::copied) == Names{"mask"});

  good(in(NnefContainer::tgz).record(before, dir / "m.nnef.tgz", quick()));
  report = {};
  CHECK(image(good(NnefRecorder<>().load<Net>(dir / "m.nnef.tgz", options, &report))) == image(before));
  CHECK(report.count(Report::What::copied) == 5);

  const SourcePtr tar = good(stele::map_file(golden("model.nnef.tar")));
  const Snapshot opened = good(NnefRecorder<>().open(tar));
  for (std::size_t i = 0; i < opened.leaf_count(); ++i) {
    const stele::LeafView leaf = opened.leaf(i);
    CAPTURE(leaf.path());
    if (leaf.dtype() == DType::boolean) {
      CHECK(leaf.view().empty());
      continue;
    }
    REQUIRE(within(leaf.view().data(), tar->view()));
    CHECK((leaf.view().data() - tar->view().data()) % 128 == 0);
  }
}

// ---- property -------------------------------------------------------------------------------------------------------

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

}  // namespace stele_test
