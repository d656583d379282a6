// Checkpoints of Orbax: those of Orbax itself, and damaged ones.
#include <doctest/doctest.h>

#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/read_only.hpp>
#include <stele/recover.hpp>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/crc32c.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace orbax_test {

namespace {

using namespace stele;
using namespace stele_test;

using Files = std::map<std::string, std::string>;

std::string golden(const std::string& name) { return test_data("orbax") + "/" + name; }

Files files_of(const std::string& folder) {
  Files files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = std::filesystem::relative(entry.path(), folder).generic_string();
    files.emplace(name, read_text(entry.path().string()));
  }
  return files;
}

SourcePtr source_of(const Files& files) {
  const auto bundle = memory_bundle();
  for (const auto& [name, text] : files) {
    const auto sink = good(bundle->create(name));
    good(sink->write(std::as_bytes(std::span(text))));
    good(sink->commit());
  }
  return bundle_source(bundle);
}

Result<Snapshot> open_files(const Files& files) { return OrbaxRecorder<>().open(source_of(files)); }

struct Layer {
  Tensor<float, 2> kernel;
  Tensor<bfloat16, 1> bias;
};
struct Params {
  std::vector<Layer> layers;
};
struct Adam {
  Tensor<std::int32_t, 0> count;
  Params mu, nu;
};
struct Extra {
  std::string name;
  std::int64_t number = 0;
  double scalar = 0;
  bool flag = false;
  Tensor<std::int8_t, 1> array;
  STELE_MODULE(Extra, name, scalar, flag, array)
};
struct Matrix {
  Tensor<float, 2> w;
  std::int64_t step = 0;
  STELE_MODULE(Matrix, w, step)
};
struct State {
  Params params;
  Tensor<std::int32_t, 0> step;
  Extra extra;
};

const LoadOptions rest = [] {
  LoadOptions options;
  options.allow_unused = {"*"};
  return options;
}();

/// Corrects the checksum of a database's part after a change.
void seal(std::string& part) {
  const std::uint32_t crc = detail::crc32c(0, part.data(), part.size() - 4);
  for (unsigned i = 0; i < 4; ++i) part[part.size() - 4 + i] = static_cast<char>(crc >> 8 * i);
}

}  // namespace

TEST_CASE("orbax: a train state loads into classes") {
  const Snapshot opened = good(open(*find_format("orbax"), golden("ocdbt")));
  const State state = good(load<State>(opened, rest));
  REQUIRE(state.params.layers.size() == 2);
  CHECK(state.params.layers[1].kernel(3, 2) == 11 % 8);
  CHECK(static_cast<float>(state.params.layers[0].bias(2)) == 2);
  CHECK(state.step() == 7);
  CHECK(state.extra.name == "a name");
  CHECK(state.extra.scalar == 1.5);
  CHECK(state.extra.flag);
  CHECK(state.extra.array(2) == 2);
  LoadOptions slots = rest;
  slots.part = "opt_state.0";
  const Adam adam = good(stele::load<Adam>(golden("ocdbt"), slots));
  CHECK(adam.count() == 0);
  CHECK(adam.nu.layers[1].kernel(0, 1) == 1);
  CHECK(opened.find("extra.a\\.b")->size() == 2);
  CHECK(opened.find("extra.tuple.1"));
  const auto nodes = opened.nodes();
  std::map<std::string, NodeKind> kinds;
  for (std::uint32_t i = 1; i < nodes.size(); ++i) kinds.emplace(opened.path(i), nodes[i].kind);
  CHECK(kinds.at("params.layers") == NodeKind::list);
  CHECK(kinds.at("extra.none") == NodeKind::none);
  CHECK(kinds.at("extra.list") == NodeKind::list);
  CHECK(kinds.at("extra.dict") == NodeKind::module);
  CHECK(kinds.at("opt_state.1") == NodeKind::none);
  CHECK(kinds.at("extra.int") == NodeKind::value);
}

TEST_CASE("orbax: plain files, zarr v3, and the files of a folder") {
  const Snapshot plain = good(OrbaxRecorder<>().open(golden("plain")));
  CHECK(good(load<Params>(plain)).layers.size() == 1);
  const Snapshot zarr3 = good(OrbaxRecorder<>().open(golden("zarr3")));
  const Matrix loaded = good(load<Matrix>(zarr3));
  CHECK(loaded.w(7, 5) == 47 % 8);
  CHECK(loaded.step == 7);
  for (const char* file : {"/manifest.ocdbt", "/_METADATA", "/_CHECKPOINT_METADATA"}) {
    CHECK(good(stele::open(golden("zarr3") + file)).leaf_count() == 1);
  }
}

TEST_CASE("orbax: the newest complete step") {
  const Snapshot opened = good(stele::open(golden("steps")));
  CHECK(opened.leaf_count() == 1);
  CHECK(good(load<std::map<std::string, Tensor<float, 1>>>(opened)).at("w")(0) == 10);
  CHECK(opened.metadata().at("notes") == R"({"run":"a"})");
  CHECK(opened.metadata().size() == 1);
  CHECK(opened.notes() == std::vector<std::string>{"the folder has 2 steps; opened 10"});
  CHECK(good(load<std::map<std::string, Tensor<float, 1>>>(good(stele::open(golden("steps/2"))))).at("w")(1) == 2);
  CHECK(code_of(OrbaxRecorder<>().open(golden("steps/30.orbax-checkpoint-tmp"))) == Errc::malformed);
  // Without its marks, a step is incomplete.
  Files files = files_of(golden("steps"));
  files.erase("10/commit_success.txt");
  files["10/_CHECKPOINT_METADATA"] = R"({"item_handlers":{},"init_timestamp_nsecs":1,"commit_timestamp_nsecs":null})";
  CHECK(good(load<std::map<std::string, Tensor<float, 1>>>(good(open_files(files)))).at("w")(0) == 2);
  std::erase_if(files, [](const auto& file) { return file.first.starts_with("2/"); });
  CHECK(code_of(open_files(files)) == Errc::not_found);
}

TEST_CASE("orbax: a database with several levels") {
  const Snapshot opened = good(stele::open(golden("many")));
  REQUIRE(opened.leaf_count() == 12);
  for (std::size_t i = 0; i < 12; ++i) {
    const auto leaf = opened.find("group.array_" + std::to_string(i));
    REQUIRE(leaf);
    std::vector<std::int16_t> values(24);
    good(leaf->read(0, std::as_writable_bytes(std::span(values))));
    for (std::size_t k = 0; k < 24; ++k) CHECK(values[k] == static_cast<std::int16_t>(k + i));
  }
}

TEST_CASE("orbax: entries without data stay entries") {
  Files files = files_of(golden("plain"));
  files.erase("layers.0.bias/.zarray");
  files.erase("layers.0.bias/0");
  const Snapshot opened = good(open_files(files));
  CHECK(unreadable_reason(*opened.find("layers.0.bias")) == "the checkpoint lacks the data of this jax.Array");
  const Error error = bad(OrbaxRecorder<>().verify(source_of(files)));
  CHECK(error.code() == Errc::missing);
  CHECK(error.path() == "layers.0.bias");
  CHECK(OrbaxRecorder<>().verify(source_of(files_of(golden("plain")))));
  files["other/.zarray"] = files.at("layers.0.kernel/.zarray");
  files["other/0.0"] = files.at("layers.0.kernel/0.0");
  CHECK(good(open_files(files)).find("other"));
  files["_METADATA"] = R"({"tree_metadata":{}})";
  CHECK(good(open_files(files)).find("layers\\.0\\.kernel"));
  files["_METADATA"] = R"({"tree_metadata":{"a":{"key_metadata":[{"key":"a","key_type":2}]},)"
                       R"("b":{"key_metadata":[{"key":"a","key_type":2},{"key":"b","key_type":2}]}}})";
  CHECK(code_of(open_files(files)) == Errc::malformed);
}

TEST_CASE("orbax: an absent chunk is lost if the checkpoint stores all chunks") {
  const Files whole = files_of(golden("plain"));
  CHECK(good(open_files(whole)).notes().empty());
  Files files = whole;
  REQUIRE(files.erase("layers.0.kernel/0.0") == 1);
  const Snapshot opened = good(open_files(files));
  CHECK(opened.notes().empty());
  const Error error = bad(content(*opened.find("layers.0.kernel")));
  CHECK(error.code() == Errc::missing);
  CHECK(error.path() == "layers.0.kernel");
  CHECK(error.file().ends_with("/layers.0.kernel/0.0"));
  CHECK(content(*opened.find("layers.0.bias")));
  CHECK(code_of(OrbaxRecorder<>().verify(source_of(files))) == Errc::missing);
  // Older versions of Orbax do not store chunks of fill values.
  std::string& document = files["_METADATA"];
  const std::string key = "\"store_array_data_equal_to_fill_value\": true";
  for (const std::string other : {"\"store_array_data_equal_to_fill_value\": false", "\"unknown\": true"}) {
    files["_METADATA"] = whole.at("_METADATA");
    REQUIRE(document.find(key) != document.npos);
    document.replace(document.find(key), key.size(), other);
    const Snapshot old = good(open_files(files));
    CHECK(good(content(*old.find("layers.0.kernel"))) == std::string(48, '\0'));
    CHECK(old.notes() ==
          std::vector<std::string>{"1 of 1 chunks of layers.0.kernel are absent: their elements are the fill value"});
    CHECK(good(OrbaxRecorder<>().verify(source_of(files))).paths(Report::What::unchecked).front() == old.notes()[0]);
  }
}

TEST_CASE("orbax: damaged databases") {
  const Files whole = files_of(golden("zarr3"));
  const auto read_all = [](const Files& files) {
    const auto opened = open_files(files);
    if (!opened) return false;
    bool good = true;
    for (std::size_t i = 0; i < opened->leaf_count(); ++i) good = content(opened->leaf(i)).has_value() && good;
    return good;
  };
  CHECK(read_all(whole));
  for (const auto& [file, text] : whole) {
    const std::string name = file;
    CAPTURE(name);
    Files files = whole;
    const bool part = name == "manifest.ocdbt";
    for (std::size_t i = 0; i<text.size(); i += text.size()> 1000 ? 7 : 1) {
      files[name] = text.substr(0, i);
      const bool cut = read_all(files);
      if (part && cut) FAIL("a truncated manifest is read");
      files[name] = text;
      files[name][i] = static_cast<char>(files[name][i] ^ (1 << i % 8));
      const bool changed = read_all(files);
      if (part && changed) FAIL("a changed manifest is read");
    }
  }
  // Lies with a correct checksum.
  const std::string manifest = whole.at("manifest.ocdbt");
  for (std::size_t i = 14; i + 4 < manifest.size(); ++i) {
    for (const char byte : {'\x00', '\x01', '\x7f', '\x80', '\xff'}) {
      Files files = whole;
      std::string& text = files["manifest.ocdbt"];
      text[i] = byte;
      seal(text);
      read_all(files);
    }
  }
}

TEST_CASE("orbax: is only read") {
  const TempDir dir;
  CHECK(code_of(Recorder<OrbaxFormat>().save(Params(), dir / "x")) == Errc::unsupported);
}

}  // namespace orbax_test
