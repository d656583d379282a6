// Files of Keras and h5py, and damaged ones.
#include <doctest/doctest.h>

#include <stele/recorders/keras.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/recover.hpp>
#include <stele/stele.hpp>
#include <stele/transform.hpp>
#include <stele/transforms/keras.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "snapshot/data.hpp"
#include "support/archive.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace keras_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

std::string golden(const std::string& name) { return read_text(test_data("keras") + "/" + name); }

struct Layer {
  std::vector<Tensor<float>> vars;
};
struct Layers {
  Layer conv2d, batch_normalization, dense, dense_1;
};
struct Net {
  Layers layers;
};

const LoadOptions rest = [] {
  LoadOptions options;
  options.allow_unused = {"*"};
  return options;
}();

std::vector<float> numbers(const Snapshot& snapshot, const std::string& path) {
  const auto leaf = snapshot.find(path);
  REQUIRE_MESSAGE(leaf.has_value(), path);
  std::vector<float> all(leaf->size());
  good(leaf->read(0, std::as_writable_bytes(std::span(all))));
  return all;
}

/// Returns the names, types and bytes of all tensors.
std::map<std::string, std::string> contents(const Snapshot& snapshot) {
  std::map<std::string, std::string> all;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    all[leaf.path()] = std::string(name(leaf.dtype())) + " " + good(content(leaf));
  }
  return all;
}

/// Opens and reads everything. Checks that the tensors have at most as many bytes as the file can contain.
Errc outcome(const std::string& file, const Format& format) {
  const auto opened = stele::open(format, bytes_of(file));
  if (!opened) return opened.error().code();
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const auto all = content(opened->leaf(i));
    if (all) total += all->size();
  }
  REQUIRE(total <= (std::uint64_t{16} << 20) + 1100 * file.size());
  return Errc::none;
}

}  // namespace

TEST_CASE("keras: a model loads from each of its files") {
  const std::string whole = golden("conv.keras"), weights = golden("conv.weights.h5"), legacy = golden("conv.h5");
  const Net net = good(KerasRecorder<>().load<Net>(bytes_of(whole), rest));
  CHECK(net.layers.conv2d.vars[0].shape() == Shape({3, 3, 1, 2}));
  CHECK(net.layers.batch_normalization.vars.size() == 4);
  CHECK(net.layers.dense_1.vars[1].shape() == Shape({2}));
  const Snapshot a = good(KerasRecorder<>().open(bytes_of(whole)));
  const Snapshot b = good(Hdf5Recorder<>().open(bytes_of(weights)));
  CHECK(contents(a) == contents(b));
  CHECK(a.metadata().at("layers/dense_1/vars@name") == "head.out");
  CHECK(good(parse_json(a.metadata().at("config.json"))).find("class_name")->as_string() != nullptr);
  CHECK(good(parse_json(a.metadata().at("metadata.json"))).find("keras_version") != nullptr);
  const Snapshot c = good(Hdf5Recorder<>().open(bytes_of(legacy)));
  CHECK(numbers(c, "model_weights.first.sequential.first.kernel") == numbers(a, "layers.conv2d.vars.0"));
  CHECK(numbers(c, "model_weights.head\\.out.sequential.head\\.out.bias") == numbers(a, "layers.dense_1.vars.1"));
  const Value* const names = c.properties().find("model_weights@layer_names");
  REQUIRE(names != nullptr);
  CHECK(names->as_list()->size() == 5);
  CHECK(good(parse_json(c.metadata().at("model_config"))).find("config") != nullptr);
}

TEST_CASE("keras: weights in several files, with an index") {
  const std::string folder = test_data("keras") + "/sharded/";
  const std::pair<const char*, std::vector<Extent>> variables[] = {
      {"layers.dense.vars.0", {4, 8}}, {"layers.dense.vars.1", {8}},        {"layers.dense_1.vars.0", {8, 8}},
      {"layers.dense_1.vars.1", {8}},  {"layers.embedding.vars.0", {5, 2}},
  };
  const auto check = [&](const Snapshot& s) {
    CHECK(s.leaf_count() == std::size(variables));
    for (std::size_t n = 0; n < std::size(variables); ++n) {
      CAPTURE(variables[n].first);
      const auto leaf = s.find(variables[n].first);
      REQUIRE(leaf.has_value());
      CHECK(std::equal(leaf->shape().begin(), leaf->shape().end(), variables[n].second.begin()));
      const std::vector<float> found = numbers(s, variables[n].first);
      for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == static_cast<float>(i + 100 * n));
    }
    CHECK(s.metadata().at("layers/dense_1/vars@name") == "second");
  };
  check(good(stele::open(folder + "m.weights.json")));
  check(good(Hdf5Recorder<>().open(folder + "m.weights.json")));
  const std::string index = read_text(folder + "m.weights.json");
  {  // The folder alone: which file to open.
    const TempDir dir;
    const auto copy = [&](const std::string& from, const std::string& to) {
      write_text(dir / to, read_text(folder + from));
    };
    copy("m_00000.weights.h5", "m-00001-of-00002.h5");
    const auto error = [&] { return stele::open(dir.path()).error(); };
    CHECK(error().found() != "m.weights.json");
    copy("m.weights.json", "m.weights.json");
    write_text(dir / "config.json", "{\"model_type\": \"llama\"}");
    CHECK(error().found() == "m.weights.json");
    CHECK(error().hint().ends_with("/m.weights.json"));
    copy("m.weights.json", "n.weights.json");
    CHECK(error().found() == "m.weights.json, n.weights.json");
  }
  const std::string first = "m_00000.weights.h5", second = "m_00001.weights.h5";
  CHECK(index.find("[\n            \"" + second + "\",\n") != index.npos);  // a layer in two files
  const auto with = [&](const std::string& changed) {
    const TempDir dir;
    for (const std::string& name : {first, second, "m_00002.weights.h5"s}) {
      write_text(dir / name, read_text(folder + name));
    }
    write_text(dir / "m.weights.json", changed);
    return Hdf5Recorder<>().open(dir / "m.weights.json");
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string changed = index;
    REQUIRE(changed.find(from) != changed.npos);
    for (std::size_t at = changed.find(from); at != changed.npos; at = changed.find(from, at + to.size())) {
      changed.replace(at, from.size(), to);
    }
    return with(changed);
  };
  check(good(with(index)));
  CHECK(bad(replaced(first, second)).code() == Errc::malformed);
  CHECK(bad(replaced(first, "../" + first)).found() == "../" + first);
  CHECK(bad(replaced(first, "none.weights.h5")).code() == Errc::not_found);
  CHECK(bad(replaced("/layers/embedding/vars", "/layers/other/vars")).code() == Errc::malformed);
  CHECK(bad(replaced("\"" + first + "\"", "7")).code() == Errc::malformed);
  CHECK(bad(with(R"({"weight_map":[".weights.h5"]})")).code() == Errc::malformed);
  CHECK(bad(with(R"({"weight_map":{"/vars":"m_00000.weights.h5"}})")).path() == "layers.dense.vars.0");
  // An attribute of a layer that is in two files is one property.
  const TempDir dir;
  using Variables = std::map<std::string, std::map<std::string, Tensor<float, 1>>>;
  for (const std::string number : {"0", "1"}) {
    const Variables layer = {{"vars", {{number, Tensor<float, 1>::filled({2}, 1)}}}};
    const Snapshot part = with_properties(snapshot_of(layer).value(), Value(Value::Map{{"vars@size", Value(3)}}));
    good(Hdf5Recorder<>().save(part, dir / (number + ".weights.h5")));
  }
  write_text(dir / "m.weights.json", R"({"weight_map":{"/vars":["0.weights.h5","1.weights.h5"]}})");
  const Snapshot both = good(Hdf5Recorder<>().open(dir / "m.weights.json"));
  CHECK(both.leaf_count() == 2);
  CHECK(both.properties() == Value(Value::Map{{"vars@size", Value(3)}}));
}

TEST_CASE("keras: a compressed configuration may take more memory than a stored one, up to a limit") {
  const std::string weights = golden("conv.weights.h5");
  const auto opened = [&](std::size_t size, std::uint16_t method) {
    const std::string config(size, ' ');
    auto file = std::make_shared<std::string>(zipped({{"config.json", config}, {"model.weights.h5", weights}}, method));
    auto snapshot = KerasRecorder<>().open(bytes_of(*file));
    if (!snapshot) return snapshot.error().code();
    CHECK(snapshot->metadata().at("config.json").size() == size);
    return Errc::none;
  };
  // It is in memory four times: a file of any size may take 16 MiB, a compressed one 256 MiB.
  CHECK(opened(std::size_t{5} << 20, zip::deflated) == Errc::none);
  CHECK(opened(std::size_t{5} << 20, zip::stored) == Errc::none);
  CHECK(opened(std::size_t{70} << 20, zip::deflated) == Errc::limit);
}

TEST_CASE("keras: variables with numbers are in the order of the numbers") {
  const std::string weights = golden("conv.weights.h5");
  const Snapshot snapshot = good(Hdf5Recorder<>().open(bytes_of(weights)));
  std::vector<std::string> names;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const std::string path = snapshot.leaf(i).path();
    if (path.starts_with("optimizer.")) names.push_back(path);
  }
  CHECK(names.size() > 10);
  CHECK(names[2] == "optimizer.vars.2");
  CHECK(names.back() == "optimizer.vars." + std::to_string(names.size() - 1));
}

TEST_CASE("keras: what is saved again has the same tensors and attributes") {
  for (const char* name : {"conv.weights.h5", "conv.h5"}) {
    CAPTURE(name);
    const std::string file = golden(name);
    const Hdf5Recorder<> recorder;
    const Snapshot before = good(recorder.open(bytes_of(file)));
    const Bytes again = good(saved(recorder, before));
    const Snapshot after = good(recorder.open(again));
    CHECK(contents(before) == contents(after));
    CHECK(before.metadata() == after.metadata());
    CHECK(before.properties() == after.properties());
    CHECK(text_of(good(saved(recorder, after)).span()) == text_of(again.span()));
  }
  const std::string file = golden("conv.keras");
  const KerasRecorder<> recorder;
  const Snapshot before = good(recorder.open(bytes_of(file)));
  const Bytes again = good(saved(recorder, before));
  const Snapshot after = good(recorder.open(again));
  CHECK(contents(before) == contents(after));
  CHECK(before.metadata() == after.metadata());
  const TempDir dir;
  good(recorder.save(before, dir / "m.keras"));
  CHECK(read_text(dir / "m.keras") == text_of(again.span()));
  CHECK(recorder.verify(dir / "m.keras"));
  std::string damaged(text_of(again.span()));
  damaged[damaged.size() - 400] = static_cast<char>(damaged[damaged.size() - 400] ^ 1);
  CHECK_FALSE(recorder.verify(bytes_of(damaged)));
}

TEST_CASE("keras: datasets of every kind") {
  const std::string file = golden("types.h5");
  const Snapshot s = good(Hdf5Recorder<>().open(bytes_of(file)));
  const std::pair<const char*, DType> types[] = {{"f8", DType::f64},     {"f4", DType::f32},   {"f2", DType::f16},
                                                 {"i8", DType::i64},     {"i4", DType::i32},   {"i2", DType::i16},
                                                 {"i1", DType::i8},      {"u8", DType::u64},   {"u4", DType::u32},
                                                 {"u2", DType::u16},     {"u1", DType::u8},    {"bool", DType::boolean},
                                                 {"c8", DType::c64},     {"c16", DType::c128}, {"big_f4", DType::f32},
                                                 {"big_i2", DType::i16}, {"bf16", DType::bf16}};
  for (const auto& type : types) {
    CAPTURE(type.first);
    CHECK(s.find("types."s + type.first)->dtype() == type.second);
  }
  CHECK(numbers(s, "types.big_f4") == std::vector<float>{0, 1, 2});
  std::vector<float> all(70);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i);
  for (const char* name : {"plain", "gzip", "all", "single", "lzf"}) {
    CAPTURE(name);
    CHECK(numbers(s, "chunks."s + name) == all);
    float some[3];
    good(s.find("chunks."s + name)->read(4 * 33, std::as_writable_bytes(std::span(some))));
    CHECK(some[2] == 35);
  }
  const std::vector<float> part = numbers(s, "chunks.part");
  CHECK(part[12] == 12);
  CHECK(part[14] == 1.5F);
  CHECK(part[69] == 1.5F);
  CHECK(numbers(s, "unwritten") == std::vector<float>{7, 7, 7});
  CHECK(numbers(s, "compact") == std::vector<float>{1, 2});
  CHECK(numbers(s, "scalar") == std::vector<float>{2.5F});
  CHECK(s.find("empty")->size() == 0);
  const std::pair<const char*, const char*> reasons[] = {
      {"links.soft", "a soft link"},
      {"links.other", "a link to another file"},
      {"links.group", "another link to a group"},
      {"links.virtual", "a virtual dataset"},
      {"links.external", "a dataset in other files"},
      {"types.void", "a dataset of elements without a type"},
  };
  for (const auto& reason : reasons) {
    CAPTURE(reason.first);
    CHECK(unreadable_reason(*s.find(reason.first)) == reason.second);
  }
  std::string other = file;  // a filter that stele does not have
  other[other.find("\0\x7d\x08\0"s)] = 1;
  const Snapshot changed = good(Hdf5Recorder<>().open(bytes_of(other)));
  CHECK(unreadable_reason(*changed.find("chunks.lzf")) == "a dataset with the filter 32001");
  CHECK(s.metadata().at("name") == "é");
  const Value& p = s.properties();
  CHECK(*p.find("flag") == Value(true));
  CHECK(*p.find("count") == Value(3));
  CHECK(*p.find("rate") == Value(0.5));
  CHECK(*p.find("fixed") == Value("ab"));
  CHECK(*p.find("texts") == Value(Value::List{Value("a"), Value("b")}));
  CHECK(p.find("none")->is_null());
  CHECK(p.find("nothing")->as_list()->empty());
  const auto text = std::find_if(s.nodes().begin(), s.nodes().end(), [&](const Node& node) {
    return node.kind == NodeKind::value && std::string_view(node.name, node.name_size) == "text";
  });
  REQUIRE(text != s.nodes().end());
  CHECK(s.value(*text) == Value("é"));
}

TEST_CASE("keras: a file of the newest version of HDF5") {
  const std::string file = golden("latest.h5");
  const Snapshot s = good(Hdf5Recorder<>().open(bytes_of(file)));
  for (const char* name : {"plain", "gzip", "all", "single", "one", "early", "growing"}) {
    CAPTURE(name);
    const std::vector<float> all = numbers(s, "chunks."s + name);
    CHECK(all[0] == 0);
    CHECK(all[69] == 69);
  }
  CHECK(numbers(s, "types.big_f4") == std::vector<float>{0, 1, 2});
  CHECK(s.find("types.bool")->dtype() == DType::boolean);
  CHECK(s.find("types.c8")->dtype() == DType::c64);
  for (int i = 0; i < 12; ++i) CHECK(numbers(s, "group.member" + std::to_string(i))[0] == static_cast<float>(i));
  CHECK(*s.properties().find("list") == Value(Value::List{Value(1), Value(2)}));
}

TEST_CASE("keras: every index of chunks, with every maximum size and filter") {
  const std::string file = golden("chunks.h5");
  const Snapshot s = good(Hdf5Recorder<>().open(bytes_of(file)));
  std::size_t compared = 0;
  for (std::size_t i = 0; i < s.leaf_count(); ++i) {
    const LeafView leaf = s.leaf(i);
    const std::string path = leaf.path();
    CAPTURE(path);
    std::vector<float> expected(leaf.size());
    for (std::size_t k = 0; k < expected.size(); ++k) expected[k] = static_cast<float>(k);
    CHECK(numbers(s, path) == expected);
    float some[2];
    good(leaf.read(4 * (expected.size() - 3), std::as_writable_bytes(std::span(some))));
    CHECK(some[1] == expected[expected.size() - 2]);
    ++compared;
  }
  CHECK(compared == 12 * 6);
}

TEST_CASE("keras: long arrays of chunks have pages") {
  const std::string file = golden("paged.h5");
  const Snapshot s = good(Hdf5Recorder<>().open(bytes_of(file)));
  for (const char* name : {"fixed", "extensible"}) {
    CAPTURE(name);
    const std::string found = good(content(*s.find(name)));
    const std::size_t size = name == "fixed"s ? 2100 : 150'000;
    CHECK(found == "\0\1\2"s + std::string(size - 13, '\xff') + "\0\1\2\3\4\5\6\7\x8\x9"s);
  }
}

TEST_CASE("keras: what is no tensor and no attribute of stele is listed") {
  const std::string file = golden("others.h5");
  const Snapshot s = good(Hdf5Recorder<>().open(bytes_of(file)));
  CHECK(numbers(s, "w") == std::vector<float>{0, 1, 2});
  CHECK(good(content(*s.find("colours"))) == "\0\1"s);
  const std::pair<const char*, const char*> reasons[] = {
      {"pair", "a dataset of compound elements"},
      {"nested", "a dataset of compound elements"},
      {"rows", "a dataset of compound elements"},
      {"halves", "a dataset of compound elements"},
      {"lists", "a dataset of lists of variable length"},
      {"references", "a dataset of references"},
      {"type", "a named datatype"},
  };
  for (const auto& reason : reasons) {
    CAPTURE(reason.first);
    CHECK(unreadable_reason(*s.find(reason.first)) == reason.second);
  }
  const Value& p = s.properties();
  CHECK(p.as_map()->size() == 3);
  CHECK(*p.find("w@unit") == Value("m"));
  CHECK(*p.find("w@half") == Value(0.5));
  CHECK(*p.find("w@colour") == Value(1));
  REQUIRE(s.data()->left_out.size() == 1);
  for (const char* name : {"complex", "complexes", "pair", "opaque", "table", "reference", "region", "lists", "named",
                           "colour (names of its numbers)"}) {
    CAPTURE(name);
    CHECK(s.data()->left_out[0].find("w@"s + name) != std::string::npos);
  }
  CHECK(s.data()->left_out[0].find("colours@names of its numbers") != std::string::npos);
}

TEST_CASE("keras: every dtype that HDF5 holds comes back, and names and metadata of other formats") {
  std::map<std::string, Tensor<float>> model;
  for (int i = 0; i < 300; ++i) model["layer" + std::to_string(i)] = Tensor<float>::filled({2}, static_cast<float>(i));
  model["a/b"] = Tensor<float>::filled({1}, 1.0F);
  const Hdf5Recorder<> recorder;
  SaveOptions options = quick();
  CHECK(code_of(saved(recorder, model, options)) == Errc::not_representable);
  model.erase("a/b");
  options.metadata = {{"author@host", "us"}, {"a//b@c", "x"}, {"@", "y"}, {"", ""}};
  CHECK(code_of(saved(recorder, model, options)) == Errc::not_representable);
  options.metadata.erase("");
  options.metadata["long"] = std::string(200'000, 'x');
  options.metadata["none"] = "";
  const Bytes file = good(saved(recorder, model, options));
  auto again = good(recorder.load<std::map<std::string, Tensor<float>>>(file));
  CHECK(again.size() == 300);
  CHECK(again["layer299"](1) == 299);
  CHECK(good(recorder.open(file)).metadata() == options.metadata);
}

TEST_CASE("keras: properties without an equivalent in HDF5 are kept") {
  const std::string weights = golden("conv.weights.h5");
  const Snapshot plain = good(Hdf5Recorder<>().open(bytes_of(weights)));
  const Value properties(Value::Map{{"list", Value(Value::List{Value(1), Value("a")})},
                                    {"map", Value(Value::Map{{"x", Value(2)}})},
                                    {"many", Value(Value::List(20'000, Value(0.5)))},
                                    {"big", Value(~std::uint64_t{0})},
                                    {"flags", Value(Value::List{Value(true), Value(false)})},
                                    {"null", Value()}});
  const Bytes file = good(saved(Hdf5Recorder<>(), with_properties(plain, properties)));
  const Snapshot again = good(Hdf5Recorder<>().open(file));
  for (const auto& property : *properties.as_map()) {
    CAPTURE(property.first);
    REQUIRE(again.properties().find(property.first) != nullptr);
    CHECK(*again.properties().find(property.first) == property.second);
  }
  CHECK(again.metadata() == plain.metadata());
}

TEST_CASE("keras: every truncation and every changed byte is an error or opens") {
  const Hdf5Format hdf5;
  const KerasFormat keras;
  struct One {
    const Format* format;
    const char* name;
    std::size_t step;
  };
  for (const One& one : {One{&hdf5, "types.h5", 7},
                         {&hdf5, "latest.h5", 5},
                         {&hdf5, "others.h5", 5},
                         {&hdf5, "chunks.h5", 67},
                         {&hdf5, "paged.h5", 499},
                         {&hdf5, "heaps_earliest.h5", 5},
                         {&hdf5, "heaps_v108.h5", 11},
                         {&hdf5, "heaps_latest.h5", 11},
                         {&keras, "conv.keras", 41}}) {
    CAPTURE(one.name);
    const std::string file = golden(one.name);
    for (std::size_t n = 0; n < file.size(); n += one.step * 3) {
      CAPTURE(n);
      CHECK(outcome(file.substr(0, n), *one.format) != Errc::none);
    }
    for (const int flip : {1, 0x80, 0xff}) {
      for (std::size_t i = 0; i < file.size(); i += one.step) {
        std::string damaged = file;
        damaged[i] = static_cast<char>(damaged[i] ^ flip);
        static_cast<void>(outcome(damaged, *one.format));
      }
    }
  }
}

TEST_CASE("keras: hostile files") {
  const Hdf5Recorder<> recorder;
  std::string file = golden("types.h5");
  const auto replaced = [&](std::size_t at, const std::string& bytes) {
    std::string changed = file;
    changed.replace(at, bytes.size(), bytes);
    return recorder.open(bytes_of(changed));
  };
  CHECK(code_of(replaced(8, "\x09")) == Errc::unsupported);
  CHECK(code_of(replaced(13, "\x04")) == Errc::unsupported);
  CHECK(code_of(replaced(40, std::string(7, '\xff') + "\x7f")) == Errc::truncated);
  CHECK(code_of(replaced(64, std::string(7, '\xff') + "\x7f")) == Errc::truncated);
  // A B-tree whose child is the tree itself.
  const std::size_t tree = file.find("TREE");
  std::string cycle(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) cycle[i] = static_cast<char>(tree >> 8 * i & 0xff);
  std::string changed = file;
  changed.replace(tree + 32, 8, cycle);
  CHECK(code_of(recorder.open(bytes_of(changed))) == Errc::malformed);
  changed[tree + 5] = 1;  // its level
  CHECK(code_of(recorder.open(bytes_of(changed))) == Errc::malformed);
  const Error error = bad(recorder.open(bytes_of(file.substr(0, 5000))));
  CHECK(error.code() == Errc::truncated);
  CHECK(error.expected() == std::to_string(file.size()) + " bytes");
}

TEST_CASE("keras: links and attributes in fractal heaps, and user blocks") {
  struct One {
    const char* name;
    const Format& format;
    std::size_t members, attributes;
    bool ordered;       // members and attributes are in the order of their creation, else sorted by name
    std::size_t size;   // letters of a name
    std::size_t block;  // bytes before the superblock
  };
  const Hdf5Format hdf5;
  const KerasFormat model;
  const auto in_heap = [](std::size_t i, std::size_t size) {
    return (i % 2 == 0 ? "é" : "m") + std::to_string(i * 7919 % 10007) + std::string(size > 5 ? size - 5 : 0, 'x');
  };
  for (const One& one : {One{"heaps_earliest.h5", hdf5, 9, 0, false, 0, 512},
                         {"heaps_v108.h5", hdf5, 9, 9, true, 0, 2048},
                         {"heaps_latest.h5", hdf5, 9, 9, false, 0, 0},
                         {"heaps_many.keras", model, 300, 100, false, 0, 0},
                         {"heaps_ordered.keras", model, 300, 100, true, 0, 0},
                         {"heaps_long.keras", model, 1001, 0, false, 700, 0}}) {
    CAPTURE(one.name);
    const std::string file = golden(one.name);
    const Snapshot s = good(stele::open(one.format, bytes_of(file)));
    std::vector<std::string> expected, found;
    for (std::size_t i = 0; i < one.members; ++i) expected.push_back("group." + in_heap(i, one.size));
    expected.emplace_back("group.other");
    if (!one.ordered) std::sort(expected.begin(), expected.end());
    for (const Node& node : s.nodes()) {
      if (node.kind != NodeKind::tensor && node.kind != NodeKind::alias) continue;
      const std::string_view name(node.name, node.name_size);
      if (name.starts_with("group.")) found.emplace_back(name);
    }
    CHECK(found == expected);
    CHECK(unreadable_reason(*s.find("group.other")) == "a link to another file");
    CHECK(numbers(s, "w") == std::vector<float>{0, 1, 2});
    if (one.size == 0) {
      for (std::size_t i = 0; i < one.members; ++i) {
        CHECK(numbers(s, "group." + in_heap(i, 0))[0] == static_cast<float>(i));
      }
    }
    std::vector<std::string> keys, sorted;
    for (std::size_t i = 0; i < one.attributes; ++i) {
      keys.push_back("w@" + in_heap(i, 0));
      REQUIRE(s.properties().find(keys.back()) != nullptr);
      CHECK(*s.properties().find(keys.back()) == Value(i));
      CHECK(s.metadata().at("group@" + in_heap(i, 0)) == "text " + std::to_string(i));
    }
    if (one.attributes > 9) {
      for (const auto& [name, count] : {std::pair("large", 3000), std::pair("larger", 9000)}) {
        keys.push_back("w@"s + name);
        const Value::List& list = *s.properties().find(keys.back())->as_list();
        REQUIRE(list.size() == static_cast<std::size_t>(count));
        CHECK(list[2999] == Value(2999 % 7));
      }
    }
    if (!one.ordered) std::sort(keys.begin(), keys.end());
    if (const Value::Map* const all = s.properties().as_map()) {
      for (const auto& property : *all) {
        if (property.first.starts_with("w@")) sorted.push_back(property.first);
      }
    }
    CHECK(sorted == keys);
    if (one.format.name() != "hdf5") continue;
    CHECK(file.find("HDF") == one.block + 1);
    CHECK(good(stele::open(bytes_of(file))).leaf_count() == s.leaf_count());  // recognised after its user block
    // An error's offset counts from the beginning of the file.
    std::string damaged = file;
    damaged[file.find("FRHP") + 4] = 9;
    CHECK(bad(stele::open(hdf5, bytes_of(damaged))).offset() == file.find("FRHP"));
  }
  const std::string filtered = golden("heap_filtered.h5");
  const Snapshot s = good(stele::open(hdf5, bytes_of(filtered)));
  CHECK(unreadable_reason(*s.find("group.*")) == "the members of a group, which are in a heap with filters");
  CHECK(numbers(s, "w") == std::vector<float>{0, 1, 2});
}

TEST_CASE("keras: hostile fractal heaps") {
  const Hdf5Recorder<> recorder;
  const std::string file = golden("heaps_latest.h5");
  const auto put = [](std::string& at, std::size_t offset, std::size_t size, std::uint64_t value) {
    for (std::size_t i = 0; i < size; ++i) at[offset + i] = static_cast<char>(value >> 8 * i & 0xff);
  };
  const auto get = [&](std::size_t offset) {
    std::uint64_t value = 0;
    for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(file[offset + i]);
    return value;
  };
  const std::size_t tree = file.find("BTHD\0\5"s), leaf = get(tree + 16);  // of the group's links
  std::string address(8, '\0');
  put(address, 0, 8, tree);
  const std::size_t heap = get(file.find(address) - 8);
  constexpr std::uint64_t none = ~std::uint64_t{0};
  struct One {
    std::size_t at, size;
    std::uint64_t value;
    Errc code = Errc::malformed;
  };
  for (const One& one : {One{heap + 4, 1, 1},
                         {heap + 5, 2, 9},
                         {heap + 10, 4, 0},
                         {heap + 110, 2, 0},
                         {heap + 110, 2, 3},
                         {heap + 112, 8, 0},
                         {heap + 112, 8, none},
                         {heap + 112, 8, std::uint64_t{1} << 63},
                         {heap + 120, 8, 1},
                         {heap + 120, 8, std::uint64_t{1} << 62},
                         {heap + 128, 2, 0},
                         {heap + 128, 2, 0xffff},
                         {heap + 132, 8, none},
                         {heap + 132, 8, heap},
                         {heap + 132, 8, file.size(), Errc::truncated},
                         {heap + 140, 2, 1},
                         {heap + 140, 2, 0xffff},
                         {tree + 4, 1, 1},
                         {tree + 5, 1, 4},
                         {tree + 6, 4, 0},
                         {tree + 6, 4, 16},
                         {tree + 10, 2, 0},
                         {tree + 12, 2, 1},
                         {tree + 12, 2, 0xffff},
                         {tree + 16, 8, tree},
                         {tree + 16, 8, none, Errc::truncated},
                         {tree + 24, 2, 0xffff},
                         {leaf + 5, 1, 8},
                         {leaf + 10, 1, 0x10, Errc::truncated},  // an id of a large object, without a tree of them
                         {leaf + 10, 1, 0x20},
                         {leaf + 10, 1, 0x40},
                         {leaf + 11, 4, 0},
                         {leaf + 11, 4, 0xffffffff},
                         {leaf + 15, 2, 0xffff},
                         {leaf + 22, 6, get(leaf + 11)}}) {  // two objects in one place
    CAPTURE(one.at);
    CAPTURE(one.value);
    std::string changed = file;
    put(changed, one.at, one.size, one.value);
    CHECK(code_of(recorder.open(bytes_of(changed))) == one.code);
  }
  // Blocks of addresses: of the block that the file has, of themselves, and of no block.
  const auto with_blocks = [&](std::uint64_t rows, std::uint64_t first, std::uint64_t others) {
    std::string changed = file;
    std::string block = "FHIB\0"s + std::string(12, '\0');
    put(block, 5, 8, heap);
    for (std::uint64_t i = 0; i < 4 * rows; ++i) {
      block += std::string(8, '\0');
      put(block, block.size() - 8, 8, i == 0 ? first : others);
    }
    put(changed, heap + 132, 8, changed.size());
    put(changed, heap + 140, 2, rows);
    return changed + block + "hash";
  };
  const std::uint64_t direct = get(heap + 132);
  for (const std::uint64_t rows : {1U, 9U, 20U}) CHECK(recorder.open(bytes_of(with_blocks(rows, direct, none))));
  CHECK(code_of(recorder.open(bytes_of(with_blocks(1, none, none)))) == Errc::malformed);
  CHECK(code_of(recorder.open(bytes_of(with_blocks(1, heap, none)))) == Errc::malformed);
  CHECK(code_of(recorder.open(bytes_of(with_blocks(1, file.size(), none)))) == Errc::truncated);
  std::string far = with_blocks(20, direct, file.size());
  put(far, leaf + 11, 4, 4 * (std::uint64_t{1} << 17));  // an object in the first block of blocks
  CHECK(code_of(recorder.open(bytes_of(far))) == Errc::malformed);
  // A tree whose node is each of its children: without a bound, 21^30 visits.
  std::string cycle = file;
  std::string node = "BTIN\0\5"s;
  node[5] = file[tree + 5];
  node.resize(512);
  constexpr std::size_t record = 11, count = 1;
  for (std::size_t size = 8; size <= 16; ++size) {  // of a pointer, which depends on the level
    for (std::size_t i = 0; i <= count; ++i) {
      put(node, 6 + count * record + i * size, 8, file.size());
      put(node, 6 + count * record + i * size + 8, 1, count);
    }
    put(cycle, tree + 12, 2, 30);
    put(cycle, tree + 16, 8, file.size());
    put(cycle, tree + 24, 2, count);
    CHECK(code_of(recorder.open(bytes_of(cycle + node))) != Errc::none);
  }
}

TEST_CASE("keras: layers as PyTorch's, and back") {
  const std::string file = golden("nested.keras");
  const KerasRecorder<> recorder;
  const Snapshot model = good(recorder.open(bytes_of(file)));
  const Snapshot state = good(keras::to_pytorch(model));
  CHECK(state.leaf_count() == model.leaf_count() + 2);  // LSTM and GRU have two biases
  CHECK(state.metadata().empty());
  // Dense: [in, out].
  const auto kernel = numbers(model, "layers.dense.vars.0"), weight = numbers(state, "dense_2.weight");
  CHECK(state.find("dense_2.weight")->shape()[0] == 2);
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t o = 0; o < 2; ++o) CHECK(weight[o * 4 + i] == kernel[i * 2 + o]);
  }
  // Conv1D: [axis, in, out].
  const auto conv = numbers(model, "layers.conv1d.vars.0"), turned = numbers(state, "conv1d.weight");
  for (std::size_t a = 0; a < 2; ++a) {
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t o = 0; o < 3; ++o) CHECK(turned[(o * 3 + i) * 2 + a] == conv[(a * 3 + i) * 3 + o]);
    }
  }
  // A depthwise kernel: [axes, in, n].
  const auto deep = numbers(model, "layers.functional.layers.depthwise_conv2d.vars.0");
  const auto grouped = numbers(state, "encoder.depthwise_conv2d.weight");
  CHECK(std::equal(state.find("encoder.depthwise_conv2d.weight")->shape().begin(),
                   state.find("encoder.depthwise_conv2d.weight")->shape().end(),
                   std::vector<Extent>{4, 1, 2, 2}.begin()));
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::size_t c = 0; c < 4; ++c) CHECK(grouped[c * 4 + a] == deep[a * 4 + c]);
  }
  // GRU: gates z, r, h of 2 units each; a bias of two rows.
  const auto gates = numbers(model, "layers.gru.cell.vars.0"), rows = numbers(state, "gru.weight_ih_l0");
  const auto bias = numbers(model, "layers.gru.cell.vars.2"), second = numbers(state, "gru.bias_hh_l0");
  constexpr std::size_t order[] = {1, 0, 2};
  for (std::size_t g = 0; g < 3; ++g) {
    for (std::size_t u = 0; u < 2; ++u) {
      for (std::size_t i = 0; i < 2; ++i) CHECK(rows[(g * 2 + u) * 2 + i] == gates[i * 6 + order[g] * 2 + u]);
      CHECK(second[g * 2 + u] == bias[6 + order[g] * 2 + u]);
    }
  }
  // A part of a tensor whose gates are exchanged.
  float some[3];
  good(state.find("gru.weight_ih_l0")->read(12, std::as_writable_bytes(std::span(some))));
  CHECK(std::equal(some, some + 3, rows.begin() + 3));
  CHECK(numbers(state, "lstm.bias_hh_l0") == std::vector<float>(8));
  CHECK(numbers(state, "embedding.weight") == numbers(model, "layers.embedding.vars.0"));

  const Snapshot back = good(keras::from_pytorch(state, model));
  CHECK(contents(back) == contents(model));
  CHECK(back.metadata() == model.metadata());
  CHECK(text_of(good(saved(recorder, back)).span()) == text_of(good(saved(recorder, model)).span()));
  // Through a file, and the two biases of an LSTM.
  const Bytes saved_state = good(saved(SafetensorsRecorder<>(), state));
  CHECK(contents(good(keras::from_pytorch(good(SafetensorsRecorder<>().open(saved_state)), model))) == contents(model));
  std::map<std::string, Tensor<float>> bias_hh;
  bias_hh["lstm.bias_hh_l0"] = Tensor<float>::filled({8}, 1.0F);
  const Bytes other = good(saved(SafetensorsRecorder<>(), bias_hh));
  const std::vector<Rename> plain{{"\\\\", ""}};
  const std::vector<Snapshot> both{state, good(stele::rename(good(SafetensorsRecorder<>().open(other)), plain))};
  const Snapshot sum = good(keras::from_pytorch(good(overlay(both)), model));
  CHECK(numbers(sum, "layers.lstm.cell.vars.2")[3] == numbers(model, "layers.lstm.cell.vars.2")[3] + 1);
}

TEST_CASE("keras: codes of quantized layers are not PyTorch's weights") {
  // Layers without a bias: codes and scale are two variables, as kernel and bias are.
  const std::string file = golden("quantized.keras"), whole = golden("quantized.h5");
  for (const Snapshot& model :
       {good(KerasRecorder<>().open(bytes_of(file))), good(Hdf5Recorder<>().open(bytes_of(whole)))}) {
    const Snapshot state = good(keras::to_pytorch(model));
    CHECK(state.leaf_count() == 8);
    CHECK(contents(state) == contents(model));
  }
}

TEST_CASE("keras: layers of a whole-model file, and errors") {
  const std::string whole = golden("conv.h5"), file = golden("conv.keras"), weights = golden("conv.weights.h5");
  const Snapshot legacy = good(Hdf5Recorder<>().open(bytes_of(whole)));
  const Snapshot model = good(KerasRecorder<>().open(bytes_of(file)));
  const Snapshot a = good(keras::to_pytorch(legacy)), b = good(keras::to_pytorch(model));
  for (const char* name : {"first.weight", "first.bias", "batch_normalization.running_var", "head\\.out.weight"}) {
    CHECK(numbers(a, name) == numbers(b, name));
  }
  CHECK(b.find("optimizer.vars.0"));
  const Snapshot without = good(Hdf5Recorder<>().open(bytes_of(weights)));
  CHECK(bad(keras::to_pytorch(without)).code() == Errc::missing);
  // The caller lists the layers.
  const std::vector<keras::Layer> layers{{keras::LayerKind::dense, "fc", {"layers.dense.vars.0"}}};
  CHECK(good(keras::to_pytorch(without, layers)).find("fc.weight")->shape()[0] == 3);
  const std::vector<keras::Layer> wrong{{keras::LayerKind::dense, "fc", {"layers.conv2d.vars.0"}}};
  CHECK(bad(keras::to_pytorch(without, wrong)).code() == Errc::shape_mismatch);
  const std::vector<keras::Layer> absent{{keras::LayerKind::dense, "fc", {"layers.dense.vars.9"}}};
  CHECK(bad(keras::to_pytorch(without, absent)).path() == "layers.dense.vars.9");
  CHECK(bad(keras::from_pytorch(b, model)).code() == Errc::unused);  // the optimizer's state
  CHECK(bad(keras::from_pytorch(Snapshot(), model)).code() == Errc::missing);
}

}  // namespace keras_test
