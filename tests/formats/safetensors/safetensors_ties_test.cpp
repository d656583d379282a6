// The safetensors format: ties that other programs name in the metadata.
#include <doctest/doctest.h>
#include <stele/transform.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/models.hpp"

#include "safetensors_file.hpp"

namespace safetensors_ties_test {

using namespace stele;
using namespace stele_test;
using namespace stele_test::safetensors;
using Strings = std::map<std::string, std::string>;

namespace {

struct Weight {
  std::shared_ptr<Tensor<float, 2>> weight;
};
struct Body {
  Tensor<float, 2> weight;
  Tensor<float, 1> bias;
};
struct Tied {
  Weight embed;
  Body body;
  Weight head;
};
struct Apart {
  struct {
    Tensor<float, 2> weight;
  } embed;
  Body body;
  struct {
    Tensor<float, 2> weight;
  } head;
};

bool is_alias(const Snapshot& file, std::string_view name) {
  const auto nodes = file.nodes();
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == NodeKind::alias && file.path(i) == name) return true;
  }
  return false;
}
bool has(const Snapshot& file, std::string_view name) { return file.find(name).has_value(); }

/// A file with tensors of one number, 1, 2, …
std::string numbers_with(const std::vector<std::string>& names, const Strings& metadata) {
  std::string header = R"({"__metadata__":{)", data;
  for (const auto& [key, text] : metadata) header += (header.back() == '{' ? "\"" : ",\"") + key + "\":\"" + text + '"';
  header += '}';
  for (const std::string& name : names) {
    const std::string at = std::to_string(data.size());
    put(data, std::bit_cast<std::uint32_t>(static_cast<float>(data.size() / 4 + 1)));
    header += ",\"" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[)" + at + "," +
              std::to_string(data.size()) + "]}";
  }
  return file_of(header + '}', data);
}

}  // namespace

TEST_CASE("safetensors: ties of save_model and of huggingface_hub are ties") {
  const std::string folder = test_data("safetensors") + "/ties/";
  for (const std::string& path :
       {folder + "model.safetensors", folder + "sharded", folder + "sharded/model.safetensors.index.json"}) {
    CAPTURE(path);
    const Snapshot file = good(open(path));
    CHECK(file.leaf_count() == 3);
    CHECK(is_alias(file, "head.weight"));
    CHECK(file.metadata().at("head.weight") == "embed.weight");
    const Tied tied = good(load<Tied>(path));
    REQUIRE(tied.head.weight != nullptr);
    CHECK(tied.head.weight == tied.embed.weight);
    CHECK(tied.head.weight->data()[5] == 5);

    Tied there;
    there.embed.weight = there.head.weight = std::make_shared<Tensor<float, 2>>();
    LoadOptions options;
    options.rebuild = true;
    good(load_into(there, path, options));
    CHECK(there.head.weight == there.embed.weight);
    CHECK(there.head.weight->data()[5] == 5);

    const Apart apart = good(load<Apart>(path));
    CHECK(apart.head.weight.data()[5] == 5);
    CHECK(good(load<std::map<std::string, Body>>(path, {.allow_missing = {"*"}, .allow_unused = {"*"}})).size() == 3);

    // As in load_model of safetensors, a module without the second name uses all of the file.
    struct Kept {
      Weight embed;
      Body body;
    };
    CHECK(good(load<Kept>(path)).embed.weight->data()[5] == 5);

    BufferSink sink;
    good(recorder.save(file, sink));
    const Snapshot again = good(recorder.open(sink.take()));
    CHECK(is_alias(again, "head.weight"));
    CHECK(again.metadata() == file.metadata());
  }
}

TEST_CASE("safetensors: a file with ties in its metadata is saved as it was") {
  const std::string path = test_data("safetensors") + "/ties/model.safetensors";
  BufferSink sink;
  good(recorder.save(good(open(path)), sink));
  const Bytes bytes = sink.take();
  CHECK_FALSE(text_of(bytes.span()).find("stele") != std::string_view::npos);
  CHECK(bytes.size() == read_text(path).size());  // the reference writes metadata in another order
}

TEST_CASE("safetensors: a tie that was removed does not come back") {
  const Snapshot file = good(open(test_data("safetensors") + "/ties/model.safetensors"));
  const Snapshot less =
      good(filter(file, {.keep = [](std::string_view path, const LeafView*) { return !path.starts_with("head"); }}));
  const TempDir dir;
  for (const std::string& path : {dir / "less.safetensors", dir / "less.safetensors.index.json"}) {
    CAPTURE(path);
    good(save(less, path));
    CHECK_FALSE(has(good(open(path)), "head.weight"));
    CHECK(good(open(path)).metadata() == file.metadata());
  }
}

TEST_CASE("safetensors: metadata of a save are metadata, whatever they name") {
  SaveOptions options;
  options.metadata = {{"best", "weight"}, {"weight.note", "weight"}};
  BufferSink sink;
  good(recorder.save(Body{Tensor<float, 2>::filled({1, 1}, 1), Tensor<float, 1>::filled({1}, 2)}, sink, options));
  const Snapshot file = good(recorder.open(sink.take()));
  CHECK(file.nodes().size() == 3);
  CHECK(file.metadata() == Strings{{"best", "weight"}, {"weight.note", "weight"}});
}

TEST_CASE("safetensors: which pairs of the metadata are ties") {
  struct Row {
    std::vector<std::string> names;
    Strings metadata;
    std::vector<std::string> ties;
  };
  const std::vector<Row> rows = {
      {{"a", "b"}, {{"c", "a"}}, {"c"}},
      {{"a", "b"}, {{"c", "a"}, {"d", "a"}, {"e", "b"}}, {"c", "d", "e"}},
      {{"m.a"}, {{"m.b", "m.a"}, {"format", "pt"}}, {"m.b"}},
      {{"pt"}, {{"format", "pt"}}, {}},                             // the framework
      {{"a", "b"}, {{"b", "a"}}, {}},                               // both are there
      {{"a"}, {{"a", "a"}}, {}},                                    //
      {{"a"}, {{"c", "b"}}, {}},                                    // the kept name is not there
      {{"m.a"}, {{"c", "m"}}, {}},                                  // a part of a name
      {{"m.a", "k"}, {{"m", "k"}}, {}},                             // the removed name has names below it
      {{"a"}, {{"", "a"}, {"c", ""}}, {}},                          //
      {{"a"}, {{"c", "a"}, {"d", "c"}}, {"c"}},                     // a tie of a tie
      {{"a"}, {{"c", "a"}, {"stele", "{\\\"version\\\":1}"}}, {}},  // stele's own file
  };
  for (const Row& row : rows) {
    const std::string bytes = numbers_with(row.names, row.metadata);
    CAPTURE(bytes);
    const Snapshot file = good(recorder.open(bytes_of(bytes)));
    CHECK(file.leaf_count() == row.names.size());
    CHECK(file.nodes().size() == 1 + row.names.size() + row.ties.size());
    for (const std::string& name : row.ties) {
      CHECK(is_alias(file, name));
      CHECK(has(file, name));
    }
  }
}

TEST_CASE("safetensors: many pairs of metadata take linear time") {
  std::vector<std::string> names;
  Strings metadata;
  for (int i = 0; i < 20'000; ++i) {
    names.push_back("t" + std::to_string(i));
    metadata["x" + std::to_string(i)] = names.back();
  }
  const std::string bytes = numbers_with(names, metadata);
  const Snapshot file = good(recorder.open(bytes_of(bytes)));
  CHECK(file.nodes().size() == 40'001);
}

}  // namespace safetensors_ties_test
