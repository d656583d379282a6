// recover(): what remains of files that lost their end, a shard or a name, or that other bytes follow.
#include <stele/expansion.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/recorders/gguf.hpp>
#include <stele/recorders/numpy.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/recover.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "support/models.hpp"
#include "support/pytorch_file.hpp"
#include "support/recorders.hpp"
#include "support/stele_file.hpp"
#include "support/temp_dir.hpp"

namespace recover_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

struct Net {
  Tensor<float> first{{3}, {1, 2, 3}};
  Tensor<std::int32_t, 2> second = Tensor<std::int32_t, 2>({2, 2}, {4, 5, 6, 7});
  Tensor<float> third{{5}, {8, 9, 10, 11, 12}};
  STELE_MODULE(Net, first, second, third)
};

struct TiedNet {
  std::shared_ptr<Vec> embedding = std::make_shared<Vec>(Tensor<float, 1>({3}, {1, 2, 3}));
  std::shared_ptr<Vec> head = embedding;
  Vec other = Tensor<float, 1>({2}, {4, 5});
  std::string label = "four";
  STELE_MODULE(TiedNet, embedding, head, other, label)
};

template <class R>
std::string file_of(const R& recorder) {
  const Bytes bytes = good(saved(recorder, Net()));
  return std::string(text_of(bytes.span()));
}

/// Checks that each recovered tensor has its bytes or fails to read. Returns the number of whole ones.
std::size_t whole_tensors(const Snapshot& recovered) {
  const Net net;
  const Snapshot expected = snapshot(net);
  std::size_t whole = 0;
  for (std::size_t i = 0; i < recovered.leaf_count(); ++i) {
    const LeafView leaf = recovered.leaf(i);
    const auto bytes = content(leaf);
    if (!bytes || !unreadable_reason(leaf).empty()) continue;
    const auto original = expected.find(leaf.path());
    REQUIRE_MESSAGE(original, leaf.path());
    CHECK(*bytes == good(content(*original)));
    ++whole;
  }
  return whole;
}

/// Returns the kind of the node with that path.
std::optional<NodeKind> kind_of(const Snapshot& snapshot, std::string_view path) {
  for (std::uint32_t i = 0; i < snapshot.nodes().size(); ++i) {
    if (snapshot.path(i) == path) return snapshot.nodes()[i].kind;
  }
  return std::nullopt;
}

template <class R>
void check_lost_end(const R& recorder) {
  const std::string file = file_of(recorder);
  CAPTURE(file.size());
  const std::size_t directory = file.find("PK\1\2");
  REQUIRE(directory != file.npos);
  for (const std::size_t size : {directory, directory + 10, file.size() - 22, file.size() - 1}) {
    CAPTURE(size);
    const std::string cut = file.substr(0, size);
    CHECK_FALSE(recorder.open(bytes_of(cut)));
    const Recovered made = good(recover(bytes_of(cut)));
    CHECK(made.format == recorder.format().name());
    CHECK(made.notes.size() == 1);
    CHECK(whole_tensors(made.snapshot) == 3);
  }
}

}  // namespace

TEST_CASE("recover: zip files without their end") {
  check_lost_end(NpzRecorder<>());
  check_lost_end(PytorchRecorder<>());
  check_lost_end(ArchiveRecorder<>());
}

TEST_CASE("recover: a PyTorch file that ends inside a storage") {
  const std::string file = file_of(PytorchRecorder<>());
  for (const auto& [entry, whole] : {std::pair("/data/2", 2U), std::pair("/data/1", 1U), std::pair("/data/0", 0U)}) {
    const std::size_t header = file.find(entry);
    REQUIRE(header != file.npos);
    for (const std::size_t size : {header - 20, header + 10}) {
      CAPTURE(size);
      const std::string cut = file.substr(0, size);
      const Recovered made = good(recover(bytes_of(cut)));
      CHECK(made.snapshot.leaf_count() == 3);
      CHECK(whole_tensors(made.snapshot) == whole);
      CHECK(unreadable_reason(*made.snapshot.find("third")) == "a tensor whose storage is not in the file");
    }
  }
  // No other file may lack a storage.
  std::string renamed = file;
  for (std::size_t at = 0; (at = renamed.find("/data/2", at)) != renamed.npos;) renamed[at + 6] = '7';
  CHECK(code_of(PytorchRecorder<>().open(bytes_of(renamed))) == Errc::malformed);
}

TEST_CASE("recover: each truncation of an npz file") {
  const std::string file = file_of(NpzRecorder<>());
  std::size_t last = 0;
  for (std::size_t size = 0; size <= file.size(); ++size) {
    CAPTURE(size);
    const std::string cut = file.substr(0, size);
    const auto made = recover(bytes_of(cut));
    const std::size_t whole = made ? whole_tensors(made->snapshot) : 0;
    CHECK(whole >= last);
    last = whole;
  }
  CHECK(last == 3);
  const std::string cut = file.substr(0, file.find("third.npy") + 100);
  const Recovered made = good(recover(bytes_of(cut)));
  CHECK(whole_tensors(made.snapshot) == 2);
  REQUIRE(made.notes.size() == 2);
  CHECK(made.notes[1] == "the file ends inside the entry third.npy");
}

TEST_CASE("recover: entries of zip files that are refused are listed") {
  const std::string bad = "the entry name contains a zero byte";
  struct One {
    std::string other, reason, path;  // another name of the entry third.npy, and what becomes of it
  };
  const auto renamed = [](const std::string& other) {
    std::string file = file_of(NpzRecorder<>());
    for (std::size_t at = 0; (at = file.find("third.npy", at)) != file.npos;) file.replace(at, other.size(), other);
    return file;
  };
  for (const One& one : {One{std::string("thi\0d.npy", 9), bad, std::string("thi\0d", 5)},
                         {"first.npy", "an earlier entry has the same name", "first (2)"}}) {
    CAPTURE(one.other);
    const std::string file = renamed(one.other);
    CHECK_FALSE(NpzRecorder<>().open(bytes_of(file)));
    const Recovered made = good(recover(bytes_of(file)));
    CHECK(whole_tensors(made.snapshot) == 2);
    REQUIRE(made.notes.size() == 2);
    CHECK(made.notes[1] == "the entry " + one.other + " is lost: " + one.reason);
    REQUIRE(made.snapshot.leaf_count() == 3);
    CHECK(made.snapshot.leaf(2).path() == one.path);
    CHECK(unreadable_reason(made.snapshot.leaf(2)) == one.reason);
  }
  for (const std::string name : {"thi\\d", "/hird"}) {  // names that NumPy reads
    CAPTURE(name);
    const std::string file = renamed(name + ".npy");
    CHECK(NpzRecorder<>().open(bytes_of(file)));
    const Recovered made = good(recover(bytes_of(file)));
    REQUIRE(made.snapshot.leaf_count() == 3);
    CHECK(made.snapshot.leaf(2).path() == name);
    CHECK(unreadable_reason(made.snapshot.leaf(2)).empty());
  }
  // An entry that is no tensor.
  std::string file = file_of(PytorchRecorder<>());
  REQUIRE(file.find("archive/version") != file.npos);
  for (std::size_t at = 0; (at = file.find("archive/version", at)) != file.npos;) file[at + 8] = '\0';
  CHECK_FALSE(PytorchRecorder<>().open(bytes_of(file)));
  const Recovered made = good(recover(bytes_of(file)));
  CHECK(whole_tensors(made.snapshot) == 3);
  REQUIRE(made.notes.size() == 2);
  CHECK(made.notes[1] == "the entry archive/" + std::string(1, '\0') + "ersion is lost: " + bad);
}

TEST_CASE("recover: files that other bytes follow") {
  const auto followed = [](const std::string& file, std::size_t notes) {
    const std::string longer = file + "other bytes";
    const Recovered made = good(recover(bytes_of(longer)));
    CHECK(made.notes.size() == notes);
    CHECK(whole_tensors(made.snapshot) == 3);
  };
  followed(file_of(SafetensorsRecorder<>()), 1);
  followed(file_of(GgufRecorder<>()), 1);
  followed(file_of(NpzRecorder<>()), 0);     // which readers of zip files ignore
  followed(file_of(BinaryRecorder<>()), 0);  // the header has the size
  const Bytes one = good(saved(NpyRecorder<>(), Net().first));
  const std::string npy = std::string(text_of(one.span())) + "x";
  CHECK(good(recover(bytes_of(npy))).snapshot.leaf(0).byte_size() == 12);
}

TEST_CASE("recover: files that end early") {
  const std::string file = file_of(SafetensorsRecorder<>());
  const std::string cut = file.substr(0, file.size() - 4);
  const Recovered made = good(recover(bytes_of(cut)));
  CHECK(made.snapshot.leaf_count() == 3);
  CHECK(whole_tensors(made.snapshot) == 2);
  CHECK(made.notes == std::vector<std::string>{"the file ends early"});
  const std::string stele = file_of(BinaryRecorder<>());
  const std::string without_index = stele.substr(0, stele.size() - 70);
  const auto nothing = recover(bytes_of(without_index));
  REQUIRE(!nothing);
  CHECK(nothing.error().code() == Errc::truncated);
  CHECK(nothing.error().hint().find("is missing or incomplete") != std::string::npos);
  CHECK_FALSE(recover(bytes_of(""s)));
  CHECK_FALSE(recover(bytes_of("no model"s)));
}

TEST_CASE("recover: a .stele file without its trailer") {
  const std::string plain = file_of(BinaryRecorder<>()), packed = file_of(MemoryRecorder<CompressedSteleFormat>());
  for (const std::string& file : {plain, packed}) {
    for (std::size_t size = 0; size <= file.size(); ++size) {
      CAPTURE(size);
      const std::string cut = file.substr(0, size);
      const auto made = recover(bytes_of(cut));
      CHECK(made.has_value() == (size + 64 >= file.size()));
      if (!made) continue;
      CHECK(whole_tensors(made->snapshot) == 3);
      CHECK(made->notes.size() == (size == file.size() ? 0 : 2));
    }
    // A trailer that is there, but empty.
    std::string zeros = file;
    std::fill(zeros.end() - 64, zeros.end(), '\0');
    CHECK(whole_tensors(good(recover(bytes_of(zeros))).snapshot) == 3);
    // Another trailer does not hide damage of a tensor.
    std::string damaged = file.substr(0, file.size() - 64);
    damaged[64] ^= 1;
    CHECK(whole_tensors(good(recover(bytes_of(damaged))).snapshot) == 2);
  }
  // The index of a large file, and one that is before the last megabyte.
  std::map<std::string, Tensor<float, 1>> many;
  for (int i = 0; i < 20000; ++i) many["tensor " + std::to_string(i)] = Tensor<float, 1>::filled({3}, 0.5F);
  for (const bool one : {false, true}) {
    if (one) many = {{"w", Tensor<float, 1>::filled({1 << 20}, 0.5F)}};
    const Bytes file = good(saved(BinaryRecorder<>(), many));
    const auto cut = file.span().first(file.size() - 64);
    CHECK(good(recover(cut)).snapshot.leaf_count() == many.size());
  }
}

TEST_CASE("recover: a .stele file whose trailer is damaged") {
  const std::string note = "the index or its trailer is damaged: names, shapes and values are not checked";
  for (const std::string& file : {file_of(BinaryRecorder<>()), file_of(MemoryRecorder<CompressedSteleFormat>())}) {
    const auto check = [&](const std::string& damaged) {
      CHECK_FALSE(open(bytes_of(damaged)));
      const Recovered made = good(recover(bytes_of(damaged)));
      CHECK(whole_tensors(made.snapshot) == 3);
      CHECK(made.notes == std::vector<std::string>{note});
    };
    for (std::size_t at = file.size() - 64; at < file.size(); ++at) {
      CAPTURE(at);
      std::string damaged = file;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
      check(damaged);
      damaged.replace(at, damaged.npos, file.size() - at, '\xff');
      check(damaged);
    }
    std::uint64_t total = 0;  // 0: the writer did not know it, and no byte may follow the trailer
    std::memcpy(&total, file.data() + 32, sizeof total);
    if (total != 0) check(file.substr(0, file.size() - 20) + std::string(20, 'x') + "other bytes");
    // Damage of the index that leaves its header whole: the bytes of the tensors still have their checksums.
    std::string renamed = file;
    const std::size_t name = renamed.rfind("second");
    REQUIRE(name != renamed.npos);
    renamed[name + 5] = 'e';
    const Recovered made = good(recover(bytes_of(renamed)));
    CHECK(made.notes == std::vector<std::string>{note});
    CHECK(made.snapshot.find("secone"));
  }
}

TEST_CASE("recover: a file of many headers of an index takes linear time") {
  std::string file = file_of(MemoryRecorder<CompressedSteleFormat>()).substr(0, 64);
  const std::size_t size = std::size_t{4} << 20;
  while (file.size() < size) {
    std::string head;
    put(head, std::uint32_t{1});                        // nodes
    head.append(28, '\0');                              // no entries, extents, values, metadata
    put(head, std::uint64_t{size - file.size() - 96});  // strings, to the end of the file
    put(head, std::uint32_t{0});                        // types
    put(head, std::uint32_t{4});                        // compressed
    head.append(16, '\0');
    file += head;
  }
  CHECK_FALSE(recover(bytes_of(file)));  // with each header, it takes minutes
  file.back() = 'x';                     // nor if all of it is there
  CHECK_FALSE(recover(bytes_of(file)));
}

TEST_CASE("recover: a flipped byte of padding costs no tensor") {
  std::string file = file_of(BinaryRecorder<>());
  file[64 + 12] = 'x';  // after the first tensor
  const Snapshot opened = good(BinaryRecorder<>().open(bytes_of(file)));
  CHECK(whole_tensors(opened) == 2);
  CHECK(whole_tensors(good(recover(bytes_of(file))).snapshot) == 3);
  file[64] = 'x';
  CHECK(whole_tensors(good(recover(bytes_of(file))).snapshot) == 2);
}

TEST_CASE("recover: shards and names that are missing") {
  const TempDir dir;
  const std::string index = dir.path() + "/m.safetensors.index.json";
  REQUIRE(ShardedSafetensorsRecorder<>(ShardedSafetensorsFormat(8)).save(Net(), index, quick()));
  CHECK(whole_tensors(good(recover(index)).snapshot) == 3);
  std::string text = read_text(index);

  SUBCASE("a name that no file has") {
    const std::size_t map = text.find("\"weight_map\":{") + 14;
    text.insert(map, R"("lost":"m-00001-of-00003.safetensors",)");
    write_text(index, text);
    CHECK_FALSE(open(index));
    const Recovered made = good(recover(index));
    CHECK(whole_tensors(made.snapshot) == 3);
    REQUIRE(made.snapshot.find("lost"));
    CHECK(unreadable_reason(*made.snapshot.find("lost")) ==
          "the tensor is not in its file m-00001-of-00003.safetensors");
  }
  SUBCASE("a shard that is missing, and one that ends early") {
    std::filesystem::remove(dir.path() + "/m-00002-of-00003.safetensors");
    const std::string third = dir.path() + "/m-00003-of-00003.safetensors";
    write_text(third, read_text(third) + "x");
    const Recovered made = good(recover(index));
    CHECK(made.snapshot.leaf_count() == 3);
    CHECK(whole_tensors(made.snapshot) == 2);
  }
  SUBCASE("a shard whose tensors share their elements") {
    namespace files = pytorch_files;
    const std::string wide = files::tensor(files::floats_storage("0", 2), {0, {std::int64_t{1} << 40}, {0}});
    write_text(dir.path() + "/wide.bin", files::zip_file(files::dict({{"w", wide}})));
    write_text(index, R"({"weight_map":{"w":"wide.bin","lost":"none"}})");
    const Recovered made = good(recover(index));
    CHECK(made.snapshot.leaf_count() == 2);
    CHECK(code_of(check_expansion(made.snapshot)) == Errc::limit);
  }
  SUBCASE("metadata, values and ties") {
    SaveOptions options = quick();
    options.metadata["author"] = "a";
    options.file.allow_nonatomic = true;
    REQUIRE(ShardedSafetensorsRecorder<>(ShardedSafetensorsFormat(8)).save(TiedNet(), index, options));
    const std::string shard = dir.path() + "/m-00001-of-00002.safetensors";
    std::string first = read_text(shard);
    first.replace(first.find(R"("author":"a")"), 12, R"("author":"b")");
    write_text(shard, first);
    std::filesystem::remove(dir.path() + "/m-00002-of-00002.safetensors");
    for (const bool damaged : {false, true}) {
      CAPTURE(damaged);
      text = read_text(index);
      const std::size_t ties = text.find(R"(\"embedding\")");
      REQUIRE(ties != text.npos);
      if (damaged) write_text(index, text.replace(ties, 3, R"(\"E)"));
      const Recovered made = good(recover(index));
      CHECK(made.snapshot.metadata() ==
            std::map<std::string, std::string>{{"author", "a"}, {"author (m-00001-of-00002.safetensors)", "b"}});
      CHECK(kind_of(made.snapshot, "embedding") == NodeKind::tensor);
      CHECK(kind_of(made.snapshot, "head") == (damaged ? std::nullopt : std::optional(NodeKind::alias)));
      CHECK(kind_of(made.snapshot, "label") == (damaged ? std::nullopt : std::optional(NodeKind::value)));
      CHECK(!unreadable_reason(*made.snapshot.find("other")).empty());
      CHECK(made.notes.size() == (damaged ? 2 : 1));
      if (damaged) CHECK(made.notes.front().starts_with("the values and ties of the index are lost: "));
    }
  }
  SUBCASE("values of a shard, and names of several") {
    namespace files = pytorch_files;
    const std::string w = files::tensor(files::floats_storage("0", 2), {0, {2}, {1}});
    const std::string one = files::zip_file(files::dict({{"w", w}, {"epoch", files::number(7)}}));
    write_text(dir.path() + "/a.bin", one);
    write_text(dir.path() + "/b.bin", one);
    write_text(index, R"({"weight_map":{"w":"a.bin","lost":"b.bin"}})");
    const Recovered made = good(recover(index));
    CHECK(made.snapshot.leaf_count() == 2);
    CHECK(kind_of(made.snapshot, "epoch") == NodeKind::value);
    CHECK(made.notes == std::vector<std::string>{"b.bin: names that another file also has: 2"});
  }
  SUBCASE("an index of itself") {
    write_text(index, R"({"weight_map":{"a":"m.safetensors.index.json","b":"../x","c":"none"}})");
    const Recovered made = good(recover(index));
    CHECK(made.snapshot.leaf_count() == 3);
    CHECK(made.notes.size() == 3);
    CHECK(whole_tensors(made.snapshot) == 0);
  }
}

}  // namespace recover_test
