// Folders of torch.distributed.checkpoint that lie: metadata, slices, chunks.
#include <stele/expansion.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "pytorch_dcp_support.hpp"
#include "snapshot/unreadable.hpp"
#include "support/pytorch_file.hpp"

namespace stele_test::pytorch_dcp_hostile_test {

using namespace dcp;
using namespace std::string_literals;

namespace {

/// Two chunks of [2, 3], one after the other in a file.
Metadata two_chunks() {
  const std::uint64_t size = chunk_size();
  Metadata metadata;
  metadata.tensors = {{"w", "float32", {4, 3}, {{{0, 0}, {2, 3}}, {{2, 0}, {2, 3}}}}};
  metadata.places = {{"w", Extents{2, 0}, "a.distcp", size, size}, {"w", Extents{0, 0}, "a.distcp", 0, size}};
  return metadata;
}

std::shared_ptr<Bundle> folder_of(const Metadata& metadata) {
  auto bundle = memory_bundle();
  const std::string chunk = read_text(dcp_golden("tensor.pt"));
  put_file(*bundle, ".metadata", metadata.pickled());
  put_file(*bundle, "a.distcp", chunk + chunk);
  return bundle;
}

/// Returns the code of opening, or of reading the first tensor.
Errc outcome(const std::function<void(Metadata&)>& change, bool opens = false) {
  Metadata metadata = two_chunks();
  change(metadata);
  const auto opened = recorder.open(source_of(folder_of(metadata)));
  CHECK(opened.has_value() == opens);
  if (!opened) return opened.error().code();
  return opened->leaf_count() == 0 ? Errc::none : code_of(content(opened->leaf(0)));
}

}  // namespace

TEST_CASE("pytorch dcp: slices of one file are joined") {
  CHECK(outcome([](Metadata&) {}, true) == Errc::none);
  const Snapshot opened = good(recorder.open(source_of(folder_of(two_chunks()))));
  CHECK(good(content(opened.leaf(0))) == chunk_elements() + chunk_elements());
  // The bytes before the slices of a file are not theirs, even if they look like a file of safetensors.
  Metadata later = two_chunks();
  for (Place& place : later.places) place.at += 9;
  const auto folder = folder_of(later);
  const std::string chunk = read_text(dcp_golden("tensor.pt"));
  put_file(*folder, "a.distcp", "\1\0\0\0\0\0\0\0{"s + chunk + chunk);
  CHECK(good(content(good(recorder.open(source_of(folder))).leaf(0))) == chunk_elements() + chunk_elements());
  // Old versions have their classes elsewhere.
  CHECK(outcome([](Metadata& m) { m.module = "torch.distributed._shard.checkpoint.metadata"; }, true) == Errc::none);
  // A chunk without elements needs no slice.
  CHECK(outcome([](Metadata& m) { m.tensors[0].chunks.push_back({{4, 0}, {0, 3}}); }, true) == Errc::none);
  // Places of nothing are ignored.
  CHECK(outcome([](Metadata& m) { m.places.push_back({"other", Extents{0}, "/none", 0, 0}); }, true) == Errc::none);
}

TEST_CASE("pytorch dcp: metadata that lie") {
  CHECK(outcome([](Metadata& m) { m.module = "os"; }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.tensors[0].chunks.pop_back(); }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.tensors[0].chunks[1] = m.tensors[0].chunks[0]; }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.tensors[0].chunks.push_back({{0, 0}, {2, 3}}); }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.tensors[0].chunks[0].sizes = {3, 3}; }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.tensors[0].chunks[0].sizes = {2}; }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.tensors[0].chunks[0].offsets = {0}; }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.tensors[0].chunks[1].offsets = {3, 0}; }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.tensors[0].size = {5, 3}; }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.tensors[0].size = {4}; }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.tensors[0].size = {Extent{1} << 62, Extent{1} << 62}; }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.tensors[0].size = {UINT64_MAX, 3}; }) == Errc::malformed);  // a big integer
  CHECK(outcome([](Metadata& m) { m.tensors[0].dtype = "float33"; }) == Errc::unsupported);
  CHECK(outcome([](Metadata& m) { m.tensors[0].dtype = "qint8"; }) == Errc::unsupported);
  CHECK(outcome([](Metadata& m) { m.tensors[0].layout = "torch.sparse_coo"; }) == Errc::unsupported);
  CHECK(outcome([](Metadata& m) { m.tensors.push_back(m.tensors[0]); }) == Errc::duplicate);
  CHECK(outcome([](Metadata& m) { m.objects = {"w"}; }) == Errc::duplicate);
  CHECK(outcome([](Metadata& m) { m.objects = {"v"}; }) == Errc::malformed);  // without a place
  CHECK(outcome([](Metadata& m) { m.places.pop_back(); }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.places[0].offset.reset(); }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.places[0].offset = Extents{2, 0, 0}; }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.places[0].name = "v"; }) == Errc::malformed);
}

TEST_CASE("pytorch dcp: slices that lie") {
  for (const std::string path :
       {"/a.distcp", "../a.distcp", "x/../a.distcp", "./a.distcp", "..", "", "x//a.distcp", "a\\b", "a.distcp/"}) {
    CAPTURE(path);
    CHECK(outcome([&](Metadata& m) { m.places[0].file = path; }) == Errc::malformed);
  }
  CHECK(outcome([](Metadata& m) { m.places[0].file = std::string(5000, 'a'); }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.places[0].file = "x/a.distcp"; }) == Errc::not_found);
  CHECK(outcome([](Metadata& m) { m.places[0].length += 1; }) == Errc::truncated);
  CHECK(outcome([](Metadata& m) { m.places[0].at = std::uint64_t{1} << 62; }) == Errc::truncated);
  CHECK(outcome([](Metadata& m) { m.places[0].length = INT64_MAX; }) == Errc::truncated);
  CHECK(outcome([](Metadata& m) { m.places[0].length = UINT64_MAX; }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.places[0].at -= 1; }) == Errc::malformed);  // overlaps
  CHECK(outcome([](Metadata& m) { m.places[0].at = 0; }) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.places[0].length = 23; }) == Errc::malformed);  // too short for its elements
  CHECK(outcome([](Metadata& m) { m.places[0].transforms = {"stream.zstd"}; }) == Errc::unsupported);
  // What the slices contain is found when the tensor is read.
  const std::uint64_t size = chunk_size();
  CHECK(outcome([&](Metadata& m) { m.places[0].length = size - 1; }, true) == Errc::malformed);
  CHECK(outcome([](Metadata& m) { m.places[0].length = 24; }, true) != Errc::none);
  CHECK(outcome([](Metadata& m) { m.tensors[0].dtype = "int32"; }, true) == Errc::malformed);
  const auto turned = [&](Metadata& m) {
    m.tensors[0].size = {6, 2};
    m.tensors[0].chunks = {{{0, 0}, {3, 2}}, {{3, 0}, {3, 2}}};
    m.places = {{"w", Extents{0, 0}, "a.distcp", 0, size}, {"w", Extents{3, 0}, "a.distcp", size, size}};
  };
  CHECK(outcome(turned, true) == Errc::malformed);
  Metadata wrong = two_chunks();
  turned(wrong);
  const Error error = bad(content(good(recorder.open(source_of(folder_of(wrong)))).leaf(0)));
  CHECK(error.to_string().find("expected one tensor, f32 [3, 2], found f32 [2, 3]") != std::string::npos);
  CHECK(error.hint().find("in the slice of " + std::to_string(size) + " bytes at byte 0") != std::string::npos);
  CHECK(error.path() == "w");
  // A slice that is read as an object at once.
  const auto object = [&](Metadata& m) {
    m.tensors.clear();
    m.objects = {"v"};
    m.places = {{"v", std::nullopt, "a.distcp", 1, size}};
  };
  CHECK(outcome(object) != Errc::none);
}

TEST_CASE("pytorch dcp: names that meet") {
  namespace files = pytorch_files;
  // An object with three names of one tensor; the first meets the name of a tensor.
  const std::string shared = files::put(files::floats(), 9);
  const std::string object = files::zip_file(
      files::dict({{"b", shared}, {"c", files::get(9)}, {"d", files::get(9)}, {"n", files::number(7)}}));
  const std::uint64_t size = chunk_size();
  Metadata metadata;
  metadata.tensors = {{"a.b", "float32", {2, 3}, {{{0, 0}, {2, 3}}}}, {"a.n", "float32", {2, 3}, {{{0, 0}, {2, 3}}}}};
  metadata.objects = {"a"};
  metadata.places = {{"a.b", Extents{0, 0}, "a.distcp", 0, size},
                     {"a.n", Extents{0, 0}, "a.distcp", size, size},
                     {"a", std::nullopt, "b.distcp", 0, object.size()}};
  const auto bundle = folder_of(metadata);
  put_file(*bundle, "b.distcp", object);
  const Snapshot opened = good(recorder.open(source_of(bundle)));
  std::vector<std::string> names;
  for (std::uint32_t i = 1; i < opened.nodes().size(); ++i) names.push_back(opened.path(i));
  CHECK(names == std::vector<std::string>{"a.b", "a.n", "a.b (2)", "a.c", "a.d", "a.n (2)"});
  CHECK(good(content(*opened.find("a.b"))) == chunk_elements());
  CHECK_FALSE(detail::unreadable(*opened.find("a.b (2)")).empty());
  CHECK(good(content(*opened.find("a.c"))) == files::eight);
  CHECK(opened.leaf_count() == 5);  // a.d is a tie of a.c
}

TEST_CASE("pytorch dcp: an object with an expanded tensor") {
  namespace files = pytorch_files;
  const std::string wide = files::tensor(files::floats_storage("0", 2), {0, {std::int64_t{1} << 40}, {0}});
  const std::string object = files::zip_file(files::dict({{"w", wide}}));
  Metadata metadata;
  metadata.objects = {"a"};
  metadata.places = {{"a", std::nullopt, "b.distcp", 0, object.size()}};
  const auto bundle = folder_of(metadata);
  put_file(*bundle, "b.distcp", object);
  const Snapshot opened = good(recorder.open(source_of(bundle)));
  CHECK(opened.find("a.w")->byte_size() == std::uint64_t{4} << 40);
  CHECK(code_of(check_expansion(opened)) == Errc::limit);
}

TEST_CASE("pytorch dcp: tensors serialized as safetensors are unsupported") {
  // As FileSystemWriter writes them: one file, in which each slice begins at 0 and has the tensor's length.
  Metadata metadata = two_chunks();
  for (Place& place : metadata.places) place.at = 0, place.length = 24;
  const std::string header = R"({"w":{"dtype":"F32","shape":[4,3],"data_offsets":[0,48]}}       )";
  auto bundle = memory_bundle();
  put_file(*bundle, ".metadata", metadata.pickled());
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  put_file(*bundle, "a.distcp", file + header + std::string(48, '\0'));
  const Error error = bad(recorder.open(source_of(bundle)));
  CHECK(error.code() == Errc::unsupported);
  CHECK(error.file().ends_with("a.distcp"));
}

TEST_CASE("pytorch dcp: damaged metadata never crash") {
  const std::string text = read_text(dcp_golden("dcp4") + "/.metadata");
  const auto folder = copied("dcp4");
  const auto try_all = [&](const std::string& metadata) {
    put_file(*folder, ".metadata", metadata);
    const auto opened = recorder.open(source_of(folder));
    if (!opened) return false;
    for (std::size_t i = 0; i < opened->leaf_count(); ++i) static_cast<void>(content(opened->leaf(i)));
    return true;
  };
  REQUIRE(try_all(text));
  for (std::size_t i = 0; i < text.size(); i += 7) CHECK_FALSE(try_all(text.substr(0, i)));
  CHECK_FALSE(try_all(text + "x"));
  std::mt19937 random(3);
  int opened = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ static_cast<char>(1U << random() % 8));
    opened += try_all(damaged) ? 1 : 0;
  }
  CHECK(opened > 0);
  CHECK(opened < static_cast<int>(text.size()));
}

TEST_CASE("pytorch dcp: damaged slices never crash") {
  const auto folder = copied("dcp_mesh");
  const std::string text = read_text(dcp_golden("dcp_mesh") + "/__1_0.distcp");
  std::mt19937 random(4);
  int failed = 0;
  for (int i = 0; i < 500; ++i) {
    std::string damaged = text;
    for (auto k = random() % 3 + 1; k > 0; --k) {
      char& byte = damaged[random() % damaged.size()];
      byte = static_cast<char>(byte ^ static_cast<char>(1U << random() % 8));
    }
    put_file(*folder, "__1_0.distcp", damaged);
    const auto opened = recorder.open(source_of(folder));
    bool good_all = opened.has_value();
    for (std::size_t k = 0; opened && k < opened->leaf_count(); ++k) {
      good_all = content(opened->leaf(k)).has_value() && good_all;
    }
    failed += good_all ? 0 : 1;
  }
  CHECK(failed > 100);
}

TEST_CASE("pytorch dcp: the memory for a slice is bounded when the tensor is read") {
  namespace files = pytorch_files;
  files::Items numbers;
  for (int i = 0; i < 3000; ++i) numbers.emplace_back("n" + std::to_string(i), files::number(i));
  const std::string chunk = files::zip_file(files::dict(numbers));
  Metadata metadata;
  metadata.tensors = {{"w", "float32", {2, 3}, {{{0, 0}, {2, 3}}}}};
  metadata.places = {{"w", Extents{0, 0}, "a.distcp", 0, chunk.size()}};
  const auto folder = folder_of(metadata);
  put_file(*folder, "a.distcp", chunk);
  CHECK(code_of(content(good(recorder.open(source_of(folder))).leaf(0))) == Errc::malformed);  // no tensor
  LoadOptions options;
  options.limits.index_bytes = 100000;
  CHECK(code_of(content(good(recorder.open(source_of(folder), options)).leaf(0))) == Errc::limit);
}

TEST_CASE("pytorch dcp: memory is bounded by the metadata") {
  Metadata metadata = two_chunks();
  // Many tensors of one chunk without elements.
  for (int i = 0; i < 3000; ++i)
    metadata.tensors.push_back({"empty." + std::to_string(i), "float32", {0}, {{{0}, {0}}}});
  const auto folder = folder_of(metadata);
  CHECK(good(recorder.open(source_of(folder))).leaf_count() == 3001);
  LoadOptions options;
  options.limits.index_bytes = 200000;
  CHECK(code_of(recorder.open(source_of(folder), options)) == Errc::limit);
  // Ten thousand chunks that have no elements cost memory, too.
  metadata = two_chunks();
  for (int i = 0; i < 10000; ++i) metadata.tensors[0].chunks.push_back({{4, 0}, {0, 3}});
  CHECK(recorder.open(source_of(folder_of(metadata))).has_value());
  CHECK(code_of(recorder.open(source_of(folder_of(metadata)), options)) == Errc::limit);
}

}  // namespace stele_test::pytorch_dcp_hostile_test
