// Folders of safetensors files: those of torch.distributed.checkpoint, with boxes of tensors, and others.
#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "json/sealed.hpp"
#include "safetensors_file.hpp"
#include "snapshot/shard_index.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace safetensors_folder_test {

namespace {

using namespace stele;
using namespace stele_test;
using stele_test::safetensors::file_of;
namespace fs = std::filesystem;

const ShardedSafetensorsRecorder<> sharded;

std::string folder_at(const std::string& name) { return test_data("safetensors") + "/" + name; }

void put_file(Bundle& bundle, const std::string& name, std::string_view text) {
  const auto sink = good(bundle.create(name));
  good(sink->write(bytes_of(text)));
  good(sink->commit());
}

/// Copies the files of a folder to memory, without one of them.
std::shared_ptr<Bundle> copied(const std::string& folder, const std::string& without = "") {
  auto bundle = memory_bundle();
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != without && entry.is_regular_file()) put_file(*bundle, name, read_text(entry.path().string()));
  }
  return bundle;
}

Result<Snapshot> open_all(const std::shared_ptr<Bundle>& bundle, const LoadOptions& options = {}) {
  return sharded.open(bundle_source(bundle), options);
}

/// Element k of a golden tensor is k % 251; k % 2 of bools.
std::string golden_bytes(DType dtype, std::uint64_t count, std::uint64_t first = 0) {
  std::string bytes;
  for (std::uint64_t k = 0; k < count; ++k) {
    const auto number = static_cast<std::int64_t>(dtype == DType::boolean ? k % 2 : (k + first) % 251);
    std::byte element[16];
    const auto* from = reinterpret_cast<const std::byte*>(&number);
    REQUIRE(convert(DType::i64, from, dtype, element, 1, {.allow_kind_change = true}).status == ConvertStatus::ok);
    bytes.append(reinterpret_cast<const char*>(element), element_size(dtype));
  }
  return bytes;
}

struct Tensor {
  DType dtype;
  std::vector<Extent> shape;
};
using Tensors = std::map<std::string, Tensor>;

void check_tensors(const Snapshot& opened, const Tensors& wanted) {
  CHECK(opened.leaf_count() == wanted.size());
  for (const auto& item : wanted) {
    const std::string& path = item.first;  // a structured binding cannot be captured
    const Tensor& tensor = item.second;
    CAPTURE(path);
    const auto leaf = opened.find(path);
    REQUIRE(leaf);
    CHECK(leaf->dtype() == tensor.dtype);
    CHECK(std::vector<Extent>(leaf->shape().begin(), leaf->shape().end()) == tensor.shape);
    const std::string all = golden_bytes(tensor.dtype, leaf->size(), path == "scalar" ? 3 : 0);
    CHECK(good(content(*leaf)) == all);
    if (leaf->size() < 3) continue;
    const std::size_t size = element_size(tensor.dtype);
    std::string some(2 * size, '\0');
    good(leaf->read(size, std::as_writable_bytes(std::span(some))));
    CHECK(some == all.substr(size, 2 * size));
  }
}

const Tensors all_tensors = {
    {"rows", {DType::f32, {10, 3}}}, {"rows.all", {DType::f32, {7, 2}}}, {"columns", {DType::f32, {3, 9}}},
    {"grid", {DType::bf16, {5, 6}}}, {"cube", {DType::i64, {2, 3, 5}}},  {"few", {DType::f16, {1, 4}}},
    {"whole", {DType::f64, {2, 2}}}, {"mask", {DType::boolean, {8}}},    {"scalar", {DType::f32, {}}},
    {"none", {DType::f32, {0, 2}}},
};
const Tensors some_tensors = {
    {"rows", {DType::f32, {10, 3}}}, {"columns", {DType::f32, {3, 9}}}, {"grid", {DType::bf16, {5, 6}}}};
const Tensors two_tensors = {{"rows", {DType::f32, {10, 3}}}, {"columns", {DType::f32, {3, 9}}}};

struct Labeled {
  std::vector<float> weight;
  std::string label;
  STELE_MODULE(Labeled, weight, label)
};

/// A file with one f32 tensor and the place of its box.
std::string box_file(const std::string& shape, const std::string& offsets, std::size_t elements,
                     const std::string& dtype = "F32", std::size_t size = 4) {
  const std::string info = offsets.empty() ? "" : R"({\"w\":{\"saved_offsets\":)" + offsets + "}}";
  const std::string metadata =
      offsets.empty() ? "" : R"("__metadata__":{"DCP_SHARDING_INFO":")" + info + R"(","DCP_VERSION":"1.0"},)";
  return file_of("{" + metadata + R"("w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[0,)" +
                     std::to_string(elements * size) + "]}}",
                 std::string(elements * size, '\1'));
}

/// A folder of any number of files, none of which can be opened.
class Listed final : public Bundle {
 public:
  explicit Listed(std::size_t files) : names_(files) {
    for (std::size_t i = 0; i < files; ++i) names_[i] = std::to_string(100'000 + i) + ".safetensors";
  }
  Result<SourcePtr> open(std::string_view) const override { return Error(Errc::io, "not to be opened"); }
  Result<std::unique_ptr<Sink>> create(std::string_view) override { return Error(Errc::io, "not to be written"); }
  Result<bool> contains(std::string_view) const override { return false; }
  Result<std::vector<std::string>> names() const override { return names_; }
  void remove(std::string_view) noexcept override {}

 private:
  std::vector<std::string> names_;
};

std::shared_ptr<Bundle> folder_of(const std::vector<std::string>& files) {
  auto bundle = memory_bundle();
  for (std::size_t i = 0; i < files.size(); ++i) put_file(*bundle, "f" + std::to_string(i) + ".safetensors", files[i]);
  return bundle;
}

}  // namespace

TEST_CASE("safetensors folder: boxes of ranks are whole tensors") {
  check_tensors(good(open(folder_at("dcp_sharded"))), all_tensors);
  check_tensors(good(open(folder_at("dcp_buckets"))), some_tensors);
  check_tensors(good(open(folder_at("dcp_consolidated/sharded"))), two_tensors);
  const Snapshot opened = good(sharded.open(folder_at("dcp_sharded")));
  check_tensors(opened, all_tensors);
  CHECK(opened.flat());
  CHECK(opened.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  CHECK(good(format_of_content(*good(open_folder(folder_at("dcp_sharded")))))->name() == "safetensors-sharded");
  CHECK(good(sharded.verify(folder_at("dcp_sharded"))).count(Report::What::unchecked) == 1);
  // Saved as one file, these are the same tensors.
  const auto file = good(saved(SafetensorsRecorder<>(), opened));
  check_tensors(good(open(file.span())), all_tensors);
}

TEST_CASE("safetensors folder: folders with an index, or one file") {
  check_tensors(good(open(folder_at("dcp_consolidated"))), two_tensors);
  check_tensors(good(open(folder_at("dcp_rank0"))), {{"a", {DType::f32, {2, 3}}}, {"b", {DType::i32, {4}}}});
  const Snapshot one = good(open_all(folder_of({box_file("[2]", "", 2)})));
  CHECK(one.leaf_count() == 1);
  CHECK(good(content(one.leaf(0))) == std::string(8, '\1'));
  // A file of stele in a folder: with its values.
  TempDir dir;
  good(SafetensorsRecorder<>().save(Labeled{{1, 2}, "mine"}, dir / "model.safetensors"));
  const auto model = good(sharded.load<Labeled>(dir.path()));
  CHECK(model.weight == std::vector<float>{1, 2});
  CHECK(model.label == "mine");
  CHECK(good(load<Labeled>(dir.path())).label == "mine");
  // Only the recorder takes a file of any name for a model: the folder may have other files.
  std::filesystem::rename(dir / "model.safetensors", dir / "mine.safetensors");
  CHECK(good(sharded.load<Labeled>(dir.path())).label == "mine");
  CHECK(code_of(open(dir.path())) == Errc::bad_magic);
}

TEST_CASE("safetensors folder: what further files have besides tensors is a row of a save") {
  const auto box = [](int start, const std::string& metadata, const std::string& key) {
    return file_of(R"({"__metadata__":{"DCP_SHARDING_INFO":"{\"w\":{\"saved_offsets\":[)" + std::to_string(start) +
                       R"(]}}",)" + metadata + R"(},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1])" + key + "}}",
                   "x");
  };
  const auto bundle = folder_of({box(0, R"("author":"a","step":"1")", ""), box(1, R"("author":"b","step":"1")", ""),
                                 box(2, R"("note":"c")", R"(,"unit":"m")")});
  const Snapshot opened = good(open_all(bundle));
  CHECK(opened.metadata() == std::map<std::string, std::string>{{"author", "a"}, {"step", "1"}});
  BufferSink sink;
  const std::string report = good(BinaryRecorder<>().save(opened, sink)).to_string();
  CAPTURE(report);
  CHECK(report.find("unknown keys of tensors: unit") != report.npos);
  CHECK(report.find("metadata of further files: author, note") != report.npos);
}

TEST_CASE("safetensors folder: unknown keys of stele's index and its files are rows of a save") {
  namespace st = stele::detail::shards;
  const auto opened = [](const std::string& of_file, const std::string& of_tensor, const std::string& of_index,
                         const std::string& data = "ab") {
    const std::string file = file_of(R"({"__metadata__":{"DCP_VERSION":"1.0","format":"pt")" + of_file +
                                         R"(},"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2])" + of_tensor + "}}",
                                     data);
    const std::size_t header = file.size() - data.size();
    const st::ShardIndex index{{{"f", file.size(), stele::detail::hash64(file.data(), header)}},
                               {{{2}, {0, 0, 2}}},
                               {{"w", DType::u8, 0}},
                               {{"author", "a"}},
                               ""};
    std::string text = st::to_text(index);
    text.resize(text.rfind(",\n  \"xxh3\""));
    for (const char* list : {"\"name\":\"f\"", "\"shape\":[2]", "\"name\":\"w\""}) {
      const std::size_t at = text.find(list);
      REQUIRE(at != text.npos);
      if (!of_index.empty()) text.insert(at, "\"unit\":{\"a\":[1]},");
    }
    text += of_index;
    stele::detail::json::seal(text);
    const auto bundle = memory_bundle();
    put_file(*bundle, "f", file);
    put_file(*bundle, std::string(st::shard_index_name), text);
    const Snapshot snapshot = good(open_all(bundle));
    CHECK(snapshot.metadata() == std::map<std::string, std::string>{{"author", "a"}});
    BufferSink sink;
    const Report report = good(BinaryRecorder<>().save(snapshot, sink));
    std::vector<std::string> rows;
    for (std::size_t i = 0; i < report.size(); ++i) rows.emplace_back(report[i].detail);
    return rows;
  };
  using Rows = std::vector<std::string>;
  CHECK(opened("", "", "").empty());
  CHECK(opened("", "", R"(,"later":[{"x":1}],"more":2)") ==
        Rows{"unknown keys of the index: files.unit, layouts.unit, tensors.unit, later, more"});
  CHECK(opened(R"(,"note":"n")", R"(,"unit":"m")", "") ==
        Rows{"unknown keys of tensors: unit", "metadata of the files: note"});
  CHECK(opened("", R"(},"extra":{"dtype":"U8","shape":[1],"data_offsets":[2,3])", "", "abc") ==
        Rows{"tensors of the files that the index does not list: extra"});
  CHECK(opened("", R"(},"no_box":{"dtype":"U8","shape":[0],"data_offsets":[2,2])", "").empty());
}

TEST_CASE("safetensors folder: the file of a rank is missing") {
  for (const auto& entry : fs::directory_iterator(folder_at("dcp_sharded"))) {
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    const Error error = bad(open_all(copied(folder_at("dcp_sharded"), name)));
    CHECK(error.code() == Errc::malformed);
    CHECK(error.hint() == "the folder may lack the file of a rank");
    CHECK_FALSE(error.path().empty());
  }
  // Without its last rows, a tensor only looks smaller: the shape is not in the files.
  const std::string top = box_file("[2,3]", "[0,0]", 6), bottom = box_file("[1,3]", "[2,0]", 3);
  CHECK(to_string(good(open_all(folder_of({top, bottom}))).leaf(0).shape()) == "[3, 3]");
  CHECK(to_string(good(open_all(folder_of({top}))).leaf(0).shape()) == "[2, 3]");
  CHECK(code_of(open_all(folder_of({bottom}))) == Errc::malformed);
}

TEST_CASE("safetensors folder: more files than stay open") {
  TempDir dir;
  for (unsigned i = 0; i < 100; ++i) {
    const std::string name = "shard-" + std::to_string(100 + i) + "-model-00001-of-00001.safetensors";
    write_text(dir / name, box_file("[1,3]", "[" + std::to_string(i) + ",0]", 3));
  }
  const Snapshot opened = good(open(dir.path()));
  REQUIRE(opened.leaf_count() == 1);
  CHECK(to_string(opened.leaf(0).shape()) == "[100, 3]");
  CHECK(good(content(opened.leaf(0))) == std::string(1200, '\1'));
}

TEST_CASE("safetensors folder: folders that cannot be joined") {
  const auto refused = [](const std::vector<std::string>& files) { return code_of(open_all(folder_of(files))); };
  CHECK(refused({box_file("[2]", "[0]", 2), box_file("[2]", "[2]", 2)}) == Errc::none);
  CHECK(refused({box_file("[2]", "", 2), box_file("[2]", "[2]", 2)}) == Errc::none);  // a whole file begins at 0
  CHECK(refused({box_file("[2]", "[2]", 2)}) == Errc::malformed);
  CHECK(refused({box_file("[2]", "[0]", 2), box_file("[2]", "[1]", 2)}) == Errc::malformed);  // overlap
  CHECK(refused({box_file("[2]", "[0]", 2), box_file("[2]", "[0]", 2)}) == Errc::malformed);
  CHECK(refused({box_file("[2]", "[0]", 2), box_file("[2]", "[3]", 2)}) == Errc::malformed);
  CHECK(refused({box_file("[2]", "[0]", 2), box_file("[2]", "[2]", 2, "I32")}) == Errc::malformed);
  CHECK(refused({box_file("[2]", "[0]", 2), box_file("[2,1]", "[2,0]", 2)}) == Errc::malformed);
  CHECK(refused({box_file("[2]", "[0,0]", 2)}) == Errc::malformed);
  CHECK(refused({box_file("[2]", "[18446744073709551615]", 2)}) == Errc::malformed);
  CHECK(refused({box_file("[0]", "[9223372036854775808]", 0)}) == Errc::malformed);  // a cover of nothing
  CHECK(refused({box_file("[2]", "[-1]", 2)}) == Errc::out_of_range);
  CHECK(refused({box_file("[2]", "[0.5]", 2)}) == Errc::malformed);
  CHECK(refused({box_file("[2]", "{}", 2)}) == Errc::malformed);
  CHECK(refused({box_file("[2]", "[0]}", 2)}) == Errc::malformed);
  CHECK(refused({box_file("[2]", "[0],\\\"saved_offsets\\\":[0]", 2)}) == Errc::duplicate);
  CHECK(refused({box_file("[2]", "[0]},\\\"w\\\":{\\\"saved_offsets\\\":[0]", 2)}) == Errc::duplicate);
  CHECK(refused({box_file("[2]", "[0],\\\"more\\\":true", 2)}) == Errc::none);
  CHECK(refused({box_file("[2]", "", 2), box_file("[2]", "", 2)}) == Errc::malformed);
  // Elements of half a byte are not joined.
  CHECK(refused({box_file("[2]", "[0]", 1, "F4", 1)}) == Errc::none);
  CHECK(refused({box_file("[2]", "[0]", 1, "F4", 1), box_file("[2]", "[2]", 1, "F4", 1)}) == Errc::unsupported);
  // A tensor without a place, and no safetensors at all.
  const std::string two = file_of(
      R"({"__metadata__":{"DCP_SHARDING_INFO":"{\"v\":{\"saved_offsets\":[0]}}"},"v":{"dtype":"U8","shape":[1],)"
      R"("data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
      "ab");
  const Error error = bad(open_all(folder_of({two})));
  CHECK(error.code() == Errc::malformed);
  CHECK(error.path() == "w");
  CHECK(error.file().ends_with("f0.safetensors"));
  CHECK(refused({file_of(R"({"__metadata__":{"DCP_SHARDING_INFO":"{}","stele":"{}"}})"), two}) != Errc::none);
  CHECK(code_of(open_all(memory_bundle())) == Errc::not_found);
  CHECK(code_of(open(bundle_source(memory_bundle()))) == Errc::bad_magic);
  const auto indexes = folder_of({two});
  put_file(*indexes, "a.safetensors.index.json", "{}");
  put_file(*indexes, "b.safetensors.index.json", "{}");
  CHECK(open_all(indexes).error().to_string().find("more than one index") != std::string::npos);
  // Another format's folder with a file of safetensors.
  const auto both = folder_of({box_file("[2]", "[0]", 2)});
  put_file(*both, "checkpoint", "model_checkpoint_path: \"x\"");
  CHECK(open(bundle_source(both)).error().to_string().find("more than one format") != std::string::npos);
}

TEST_CASE("safetensors folder: the number of files is bounded") {
  CHECK(code_of(open_all(std::make_shared<Listed>(100'000))) == Errc::io);
  const Error error = bad(open_all(std::make_shared<Listed>(100'001)));
  CHECK(error.code() == Errc::limit);
  CHECK(error.expected() == "at most 100000");
  CHECK(error.found() == "100001");
}

TEST_CASE("safetensors folder: memory is bounded") {
  std::string info;
  for (int i = 0; i < 2000; ++i)
    info += (i != 0 ? "," : "") + std::string(R"(\"t)") + std::to_string(i) + R"(\":{\"saved_offsets\":[0]})";
  const auto bundle = folder_of({file_of(R"({"__metadata__":{"DCP_SHARDING_INFO":"{)" + info + R"(}"}})")});
  CHECK(open_all(bundle).has_value());
  LoadOptions options;
  options.limits.index_bytes = 100000;
  CHECK(code_of(open_all(bundle, options)) == Errc::limit);
}

}  // namespace safetensors_folder_test
