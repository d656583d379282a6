// safetensors in several files, and the bundles that they lie in.
#include <stele/bundle.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

using namespace stele_test;
using stele::Errc;
using stele::ShardedSafetensorsFormat;
using stele::ShardedSafetensorsRecorder;
using stele::Snapshot;

namespace stele_test {
namespace {

using Paths = std::vector<std::string>;

struct Tied {
  std::shared_ptr<Vec> embedding, head;
  std::vector<Linear> layers;
  std::string label;
  STELE_MODULE(Tied, embedding, head, layers, label)
};
Tied tied() {
  Tied t;
  t.embedding = t.head = std::make_shared<Vec>(vec({1, 2, 3}));
  for (int i = 0; i < 4; ++i) t.layers.emplace_back(5, 3, static_cast<float>(i));
  t.label = "four";
  return t;
}

const ShardedSafetensorsRecorder<> small(ShardedSafetensorsFormat(100));
constexpr const char* index = "m.safetensors.index.json";

std::string text_in(const stele::Bundle& bundle, const std::string& name) {
  const auto source = good(bundle.open(name));
  return std::string(text_of(source->view()));
}
void put(stele::Bundle& bundle, const std::string& name, std::string_view text) {
  const auto sink = good(bundle.create(name));
  good(sink->write(bytes_of(text)));
  good(sink->commit());
}
std::shared_ptr<stele::Bundle> saved_in_memory() {
  const auto bundle = stele::memory_bundle();
  const auto sink = good(bundle->create(index));
  stele::SaveOptions options;
  options.metadata = {{"made", "here"}};
  good(small.save(tied(), *sink, options));
  return bundle;
}

}  // namespace

TEST_CASE("bundle: plain names only") {
  const TempDir dir;
  for (const auto& bundle : {stele::memory_bundle(), stele::folder_bundle(dir.path())}) {
    for (const std::string& name : {std::string(), std::string("."), std::string(".."), std::string("a//b"),
                                    std::string("/a"), std::string("a\\b"), std::string("a\0b", 3)}) {
      CAPTURE(name);
      CHECK(code_of(bundle->open(name)) == Errc::invalid_argument);
      CHECK(code_of(bundle->create(name)) == Errc::invalid_argument);
      CHECK(code_of(bundle->contains(name)) == Errc::invalid_argument);
    }
    CHECK(code_of(bundle->open("a")) == Errc::not_found);
    CHECK(!good(bundle->contains("a")));
    put(*bundle, "a", "bytes");
    CHECK(good(bundle->contains("a")));
    CHECK(good(good(bundle->open("a"))->bundle()->contains("a")));
    CHECK(good(good(bundle->create("b"))->bundle()->contains("a")));
    CHECK(!good(bundle->contains("b")));  // not committed
  }
}

TEST_CASE("shards: a model in several files, and back") {
  const TempDir dir;
  const Tied t = tied();
  const std::string path = dir.path() + "/" + index;
  good(small.save(t, path));
  CHECK(names_in(dir.path()) == Paths{"m-00001-of-00004.safetensors", "m-00002-of-00004.safetensors",
                                      "m-00003-of-00004.safetensors", "m-00004-of-00004.safetensors", index});
  for (const auto storage : {stele::Storage::owned, stele::Storage::mmap}) {
    stele::LoadOptions options;
    options.storage = storage;
    const Tied back = good(stele::load<Tied>(path, options));  // by its content
    CHECK(image(back) == image(t));
    CHECK(back.embedding == back.head);
  }
  // Each file is one that stands alone.
  const Snapshot part = good(stele::open(dir.path() + "/m-00002-of-00004.safetensors"));
  CHECK(part.leaf_count() == 2);
  CHECK(part.metadata().at("format") == "pt");
  good(stele::verify(small.format(), path));
}

TEST_CASE("shards: files of a size, larger tensors alone") {
  const auto count = [](std::uint64_t shard_bytes) {
    const auto bundle = stele::memory_bundle();
    const auto sink = good(bundle->create(index));
    good(ShardedSafetensorsRecorder<>(ShardedSafetensorsFormat(shard_bytes)).save(tied(), *sink));
    std::size_t n = 0;
    while (good(
        bundle->contains("m-0000" + std::to_string(n + 1) + "-of-0000" + std::to_string(n + 1) + ".safetensors"))) {
      ++n;
    }
    return n;
  };
  CHECK(count(5'000'000'000) == 1);
  CHECK(count(UINT64_MAX) == 1);
  const auto bundle = stele::memory_bundle();
  const auto sink = good(bundle->create(index));
  good(ShardedSafetensorsRecorder<>(ShardedSafetensorsFormat(1)).save(tied(), *sink));
  CHECK(good(bundle->contains("m-00009-of-00009.safetensors")));
}

TEST_CASE("shards: in memory, with metadata") {
  const auto bundle = saved_in_memory();
  const Snapshot s = good(small.open(good(bundle->open(index))));
  CHECK(s.metadata() == std::map<std::string, std::string>{{"made", "here"}});
  CHECK(image(good(stele::load<Tied>(s))) == image(tied()));
  CHECK(code_of(small.save(tied(), *std::make_unique<stele::BufferSink>())) == Errc::unsupported);
  const stele::Bytes alone = [&] {
    const std::string text = text_in(*bundle, index);
    stele::Bytes bytes(text.size());
    std::copy_n(bytes_of(text).begin(), text.size(), bytes.data());
    return bytes;
  }();
  CHECK(code_of(small.open(alone)) == Errc::unsupported);
}

TEST_CASE("shards: a set that is there is not replaced unasked") {
  const TempDir dir;
  const std::string path = dir.path() + "/" + index;
  good(small.save(tied(), path));
  const auto again = small.save(tied(), path);
  CHECK(code_of(again) == Errc::exists);
  CHECK(names_in(dir.path()).size() == 5);  // no litter
  std::filesystem::remove(path);
  CHECK(code_of(small.save(tied(), path)) == Errc::exists);  // a shard alone is in the way too
  stele::SaveOptions options;
  options.file.allow_nonatomic = true;
  Tied other = tied();
  other.label = "other";
  good(small.save(other, path, options));
  CHECK(good(stele::load<Tied>(path)).label == "other");
}

TEST_CASE("shards: a folder is a whole set and nothing else") {
  const TempDir dir;
  const auto check = [&] {
    return code_of(stele::ShardedSafetensorsFormat().may_replace(*stele::folder_bundle(dir.path())));
  };
  CHECK(check() == Errc::exists);
  write_text(dir / "model.safetensors", "another model");
  CHECK(check() == Errc::exists);
  std::filesystem::remove(dir / "model.safetensors");
  good(small.save(tied(), dir / "model", quick()));
  CHECK(check() == Errc::none);
  write_text(dir / "other.safetensors", "another model");
  CHECK(check() == Errc::exists);
  std::filesystem::remove(dir / "other.safetensors");
  CHECK(check() == Errc::none);
  std::filesystem::remove(dir / "model.safetensors.index.json");
  CHECK(check() == Errc::exists);
}

TEST_CASE("shards: a save that fails leaves nothing in a new place") {
  const TempDir dir;
  Tied t = tied();
  (*t.layers.back().weight)(0, 0) = 1e9F;  // becomes infinite as f16, when other shards are there already
  const ShardedSafetensorsRecorder<stele::HalfPrecision> half(ShardedSafetensorsFormat(60));
  CHECK(bad(half.save(t, dir / index)).code() == Errc::out_of_range);
  CHECK(dir.names().empty());

  const auto bundle = stele::memory_bundle();
  CHECK(bad(half.save(t, *good(bundle->create(index)))).code() == Errc::out_of_range);
  CHECK(!good(bundle->contains("m-00001-of-00005.safetensors")));
  t = tied();
  good(half.save(t, dir / index));
  CHECK(dir.names().size() > 3);
}

namespace {

/// A file of a bundle, which fails when it is written, or committed: before it has its name, or after.
class Failing final : public stele::Sink {
 public:
  enum class At { reserve, write, commit, synced };
  Failing(std::shared_ptr<stele::Bundle> bundle, const std::string& name, At at)
      : Sink(name), bundle_(std::move(bundle)), at_(at) {
    if (at_ == At::synced) into_ = good(bundle_->create(name));
  }
  stele::Status reserve(std::uint64_t) override { return fails(At::reserve); }
  stele::Status write(std::span<const std::span<const std::byte>> pieces) override {
    if (into_) STELE_TRY(into_->write(pieces));
    return fails(At::write);
  }
  stele::Status commit() override {
    STELE_TRY(fails(At::commit));
    if (into_) STELE_TRY(into_->commit());
    return fails(At::synced);
  }
  std::shared_ptr<stele::Bundle> bundle() const override { return bundle_; }

 private:
  stele::Status fails(At at) const {
    if (at != at_) return {};
    return stele::Error(Errc::io, "as asked");
  }
  std::shared_ptr<stele::Bundle> bundle_;
  std::unique_ptr<stele::Sink> into_;
  At at_;
};

template <class R>
void check_failing_index(const R& recorder, const std::string& name) {
  for (const auto at : {Failing::At::reserve, Failing::At::write, Failing::At::commit, Failing::At::synced}) {
    const auto bundle = stele::memory_bundle();
    Failing sink(bundle, name, at);
    const auto report = recorder.save(tied(), sink);
    CHECK(code_of(report) == Errc::io);
    CHECK(good(bundle->names()).empty());
    // Nothing is in the way of the next save.
    good(recorder.save(tied(), *good(bundle->create(name))));
    CHECK(good(bundle->names()).size() > 2);
    CHECK(image(good(recorder.template load<Tied>(good(bundle->open(name))))) == image(tied()));
  }
  // An index that existed before stays.
  const auto bundle = stele::memory_bundle();
  put(*bundle, name, "old");
  stele::SaveOptions over;
  over.file.allow_nonatomic = true;
  Failing sink(bundle, name, Failing::At::commit);
  CHECK(code_of(recorder.save(tied(), sink, over)) == Errc::io);
  CHECK(text_in(*bundle, name) == "old");
}

}  // namespace

TEST_CASE("shards: a save whose index fails leaves nothing in a new place") {
  check_failing_index(small, index);
  const stele::SameDiffRecorder<> samediff({.container = stele::SameDiffContainer::sdnb, .shard_bytes = 100});
  check_failing_index(samediff, "m.sdnb");
  // One file over which a set is saved is not part of the set until it is committed.
  const auto bundle = stele::memory_bundle();
  put(*bundle, "m.sdnb", "old");
  Failing sink(bundle, "m.sdnb", Failing::At::write);
  CHECK(code_of(samediff.save(tied(), sink)) == Errc::io);
  CHECK(good(bundle->names()) == Paths{"m.sdnb"});
  CHECK(text_in(*bundle, "m.sdnb") == "old");
}

TEST_CASE("shards: an index that lies") {
  const auto with = [](const std::string& from, const std::string& to) {
    const auto bundle = saved_in_memory();
    std::string text = text_in(*bundle, index);
    REQUIRE(text.find(from) != std::string::npos);
    text.replace(text.find(from), from.size(), to);
    put(*bundle, index, text);
    return small.open(good(bundle->open(index)));
  };
  CHECK(with("four", "five"));
  CHECK(code_of(with("m-00002-of", "m-00003-of")) == Errc::malformed);     // another file
  CHECK(code_of(with("m-00002-of", "../m-00002-of")) == Errc::malformed);  // out of the folder
  CHECK(code_of(with("m-00002-of", "/etc/passwd")) == Errc::malformed);
  CHECK(code_of(with("m-00002-of", "x-00002-of")) == Errc::not_found);
  CHECK(code_of(with("\"layers.0.bias\"", "\"layers.9.bias\"")) == Errc::malformed);  // not there
  CHECK(code_of(with("\"layers.0.bias\"", "\"layers.0.weight\"")) == Errc::duplicate);
  CHECK(code_of(with("\"weight_map\"", "\"weight_mop\"")) == Errc::malformed);
  CHECK(code_of(with("\"layers.0.bias\":", "\"a\":\"m-00001-of-00004.safetensors\",\"layers.0.bias\":")) ==
        Errc::malformed);                              // more names than tensors
  CHECK(with("\"total_size\":", "\"total_size\":1"));  // ties make it wrong; nobody needs it

  // Names that take more memory than their text says.
  std::string many = "{\"weight_map\":{";
  for (int i = 0; i < 2200000; ++i) many += "\"" + std::to_string(i) + "\":\"f\",";
  many.back() = '}';
  many += '}';
  const auto crowded = stele::memory_bundle();
  put(*crowded, index, many);
  stele::LoadOptions bounded;
  bounded.limits.index_bytes = std::uint64_t{4 * sizeof(void*)} << 20;
  CHECK(code_of(small.open(good(crowded->open(index)), bounded)) == Errc::limit);
}

TEST_CASE("shards: an error in a shard names it") {
  const auto bundle = saved_in_memory();
  put(*bundle, "m-00002-of-00004.safetensors", std::string("\x09\0\0\0\0\0\0\0{\"a\":nul}", 17));
  const auto opened = small.open(good(bundle->open(index)));
  CHECK(code_of(opened) == Errc::malformed);
  CHECK(opened.error().file() == "m-00002-of-00004.safetensors");
}

TEST_CASE("shards: written as transformers writes them") {
  const auto bundle = saved_in_memory();
  const std::string text = text_in(*bundle, index);
  // The keys of a model of others, with spaces and numbers as Python writes them.
  put(*bundle, index,
      "{\n  \"metadata\": {\n    \"total_size\": 312.0\n  },\n  \"weight_map\": {\n" +
          text.substr(text.find("\"embedding\""), text.size() - 3 - text.find("\"embedding\"")) + "}\n}\n");
  const Snapshot s = good(stele::open(good(bundle->open(index))));
  CHECK(s.leaf_count() == 9);
  CHECK(s.metadata() == std::map<std::string, std::string>{{"made", "here"}});  // of the files
  // Without metadata, some programs write null.
  put(*bundle, index,
      R"({"metadata": null, "weight_map": {)" +
          text.substr(text.find("\"embedding\""), text.size() - 3 - text.find("\"embedding\"")) + "}}");
  CHECK(good(stele::open(good(bundle->open(index)))).leaf_count() == 9);
}

TEST_CASE("shards: metadata of a file that the index has otherwise") {
  const auto bundle = saved_in_memory();
  std::string text = text_in(*bundle, index);
  text.replace(text.find("here"), 4, "there");
  put(*bundle, index, text);
  std::map<std::string, std::string> expected{{"made", "there"}};
  for (const char number : {'1', '2', '3', '4'}) {
    expected[std::string("made (m-0000") + number + "-of-00004.safetensors)"] = "here";
  }
  CHECK(good(small.open(good(bundle->open(index)))).metadata() == expected);
}

}  // namespace stele_test
