// ONNX saves whose elements are in a second file: bytes, random models, models that have such files already, saves that
// fail or are killed.
#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/onnx.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "support/child.hpp"
#include "support/models.hpp"
#include "support/onnx_bytes.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace stele_test::onnx_external_test {
namespace {

using namespace std::string_literals;
using stele::DType;
using stele::Errc;
using stele::OnnxFormat;
using stele::OnnxRecorder;
using stele::SaveOptions;
using stele::Snapshot;
using stele::Status;

using Floats = stele::Tensor<float, 1>;
using Octets = stele::Tensor<std::uint8_t, 1>;

OnnxRecorder<> recorder_of(std::string external, std::string model = {}) {
  return OnnxRecorder<>(OnnxFormat({.model = std::move(model), .external = std::move(external)}));
}

std::string content_of(const Snapshot& snapshot, const std::string& name) {
  const auto leaf = snapshot.find(name);
  REQUIRE_MESSAGE(leaf.has_value(), name);
  return good(content(*leaf));
}

/// Returns n bytes that differ by `seed`.
std::string pattern(std::size_t n, unsigned seed) {
  std::string text(n, '\0');
  for (std::size_t i = 0; i < n; ++i) text[i] = static_cast<char>(i * 7 + seed + i / 251);
  return text;
}
Octets octets(const std::string& text) {
  Octets t({text.size()});
  std::copy(text.begin(), text.end(), t.begin());
  return t;
}

SaveOptions over() {
  SaveOptions options = quick();
  options.file.allow_nonatomic = true;
  return options;
}

std::string entry(const std::string& key, const std::string& value) { return bytes(1, key) + bytes(2, value); }
/// The fields of a TensorProto without elements.
std::string head(const std::string& name, unsigned dtype, std::uint64_t size) {
  return number(1, size) + number(2, dtype) + bytes(8, name);
}
std::string in_file(const std::string& file, std::uint64_t offset, std::uint64_t size) {
  return bytes(13, entry("location", file)) + bytes(13, entry("offset", std::to_string(offset))) +
         bytes(13, entry("length", std::to_string(size))) + number(14, 1);
}

// ---- a model that has its elements in all places: in itself, raw and as varints, and in a file

constexpr std::size_t large = 3000, small = 1000;

/// Returns the message; `external`: a tensor "outside" of 3000 bytes in this file.
std::string model_with_all(const std::string& external) {
  std::string varints;
  for (std::uint64_t i = 0; i < large; ++i) varints += varint(i % 200);
  return onnx::model(onnx::node("Identity", {"raw"}, "y") +
                     bytes(5, head("raw", 2, large) + bytes(12, "about raw") + bytes(9, pattern(large, 1))) +
                     bytes(5, head("varints", 2, large) + bytes(5, varints)) +
                     bytes(5, head("outside", 2, large) + bytes(12, "about outside") + in_file(external, 100, large)) +
                     bytes(5, head("small", 2, small) + in_file(external, 50, small)) +
                     bytes(5, head("own", 2, small) + bytes(9, pattern(small, 4))) + bytes(2, "the graph"));
}
std::string outside_file() { return pattern(100, 2) + pattern(large, 3); }

/// Writes the model as m.onnx and `external`.
void write_model(const std::string& folder, const std::string& external) {
  write_text(folder + "/m.onnx", model_with_all(external));
  write_text(folder + "/" + external, outside_file());
}

struct Part {
  Octets raw;
};
Part new_part() { return {octets(pattern(large, 9))}; }

/// Checks that a saved model has the elements of new_part() and the other elements of the model.
void check_saved(const std::string& path) {
  const Snapshot file = good(stele::open(path));
  CHECK(file.leaf_count() == 5);
  CHECK(content_of(file, "raw") == pattern(large, 9));
  std::string varints(large, '\0');
  for (std::size_t i = 0; i < large; ++i) varints[i] = static_cast<char>(i % 200);
  CHECK(content_of(file, "varints") == varints);
  CHECK(content_of(file, "outside") == pattern(large, 3));
  CHECK(content_of(file, "small") == outside_file().substr(50, small));
  CHECK(content_of(file, "own") == pattern(small, 4));
  const std::string text = read_text(path);
  for (const char* kept : {"Identity", "about raw", "about outside", "the graph"}) {
    CAPTURE(kept);
    CHECK(text.find(kept) != text.npos);
  }
}

// ---- saves that end early

/// Counts the steps of a save; the last one fails, or ends the process.
struct Steps {
  std::size_t left;
  bool dies = false;
  Status next() {
    if (left == 0 || --left != 0) return {};
    if (dies) ::_exit(0);
    return stele::Error(Errc::io, "as asked");
  }
};

class SteppedSink final : public stele::Sink {
 public:
  SteppedSink(std::unique_ptr<stele::Sink> into, Steps& steps, std::shared_ptr<stele::Bundle> bundle)
      : Sink(into->name()), into_(std::move(into)), steps_(steps), bundle_(std::move(bundle)) {}
  using Sink::write;
  Status reserve(std::uint64_t total) override {
    STELE_TRY(steps_.next());
    return into_->reserve(total);
  }
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    STELE_TRY(steps_.next());
    return into_->write(pieces);
  }
  Status commit() override {
    STELE_TRY(steps_.next());
    STELE_TRY(into_->commit());
    return steps_.next();
  }
  std::shared_ptr<stele::Bundle> bundle() const override { return bundle_; }

 private:
  std::unique_ptr<stele::Sink> into_;
  Steps& steps_;
  std::shared_ptr<stele::Bundle> bundle_;
};

class SteppedBundle final : public stele::Bundle {
 public:
  SteppedBundle(std::string folder, Steps& steps)
      : folder_(stele::folder_bundle(std::move(folder), quick().file)), steps_(steps) {}
  stele::Result<stele::SourcePtr> open(std::string_view name) const override { return folder_->open(name); }
  stele::Result<std::unique_ptr<stele::Sink>> create(std::string_view name) override {
    STELE_TRY(steps_.next());
    STELE_TRY_ASSIGN(auto sink, folder_->create(name));
    return std::unique_ptr<stele::Sink>(std::make_unique<SteppedSink>(std::move(sink), steps_, nullptr));
  }
  stele::Result<bool> contains(std::string_view name) const override {
    STELE_TRY(steps_.next());
    return folder_->contains(name);
  }
  stele::Result<std::vector<std::string>> names() const override { return folder_->names(); }
  void remove(std::string_view name) noexcept override { folder_->remove(name); }

 private:
  std::shared_ptr<stele::Bundle> folder_;
  Steps& steps_;
};

/// Saves to DIR/n.onnx and n.data; ends at a step (0: none).
stele::Result<stele::Report> save_until(const std::string& dir, Steps steps, const Part& part,
                                        const std::string& model) {
  SteppedSink sink(good(stele::file_sink(dir + "/n.onnx", quick().file)), steps,
                   std::make_shared<SteppedBundle>(dir, steps));
  return recorder_of("n.data", model).save(part, sink, quick());
}

}  // namespace

TEST_CASE("onnx external: many tensors at one offset are bounded on save") {
  const TempDir dir;
  constexpr std::size_t size = std::size_t{1} << 18;
  write_text(dir.path() + "/w.bin", pattern(size, 1));
  std::string tensors;
  for (int i = 0; i < 200; ++i) tensors += bytes(5, head("w" + std::to_string(i), 2, size) + in_file("w.bin", 0, size));
  write_text(dir.path() + "/m.onnx", onnx::model(tensors));
  const Snapshot file = good(stele::open(dir.path() + "/m.onnx"));
  CHECK(file.leaf_count() == 200);
  CHECK(OnnxRecorder<>().verify(dir.path() + "/m.onnx"));
  CHECK(code_of(saved(OnnxRecorder<>(), file)) == Errc::limit);
}

TEST_CASE("onnx external: every byte of both files") {
  struct Tensors {
    Octets below, first, second, mapped;
  };
  const std::size_t mib = std::size_t{1} << 20;
  const Tensors tensors{octets(pattern(1023, 1)), octets(pattern(1025, 2)), octets(pattern(1024, 3)),
                        octets(pattern(mib, 4))};
  const TempDir dir;
  good(recorder_of("m.data").save(tensors, dir / "m.onnx", quick()));
  CHECK(dir.names() == Paths{"m.data", "m.onnx"});
  const std::string graph = bytes(2, "stele") + bytes(5, head("below", 2, 1023) + bytes(9, pattern(1023, 1))) +
                            bytes(5, head("first", 2, 1025) + in_file("m.data", 0, 1025)) +
                            bytes(5, head("second", 2, 1024) + in_file("m.data", 1088, 1024)) +
                            bytes(5, head("mapped", 2, mib) + in_file("m.data", 65536, mib));
  CHECK(read_text(dir / "m.onnx") == number(1, 9) + bytes(2, "stele") + bytes(8, number(2, 20)) + bytes(7, graph));
  CHECK(read_text(dir / "m.data") == pattern(1025, 2) + std::string(63, '\0') + pattern(1024, 3) +
                                         std::string(65536 - 2112, '\0') + pattern(mib, 4));
  const auto loaded = good(stele::load<Tensors>(dir / "m.onnx"));
  CHECK(image(loaded) == image(tensors));
  stele::LoadOptions mapped;
  mapped.storage = stele::Storage::mmap;
  CHECK(image(good(stele::load<Tensors>(dir / "m.onnx", mapped))) == image(tensors));
}

TEST_CASE("onnx external: random models come back") {
  const auto& can = OnnxFormat().capabilities();
  const TempDir dir;
  std::size_t in_other_file = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    stele::SnapshotBuilder builder;
    builder.begin(stele::NodeKind::module, "");
    std::vector<std::uint32_t> tensors;
    for (std::size_t n = random.below(20); n != 0; --n) {
      const auto name = builder.intern(std::to_string(n) + random.name(true));
      if (!tensors.empty() && random.chance(20)) {
        builder.alias(name, tensors[random.below(tensors.size())]);
        continue;
      }
      DType dtype = DType::none;
      while (!can.holds(dtype)) dtype = all_dtypes[random.below(std::size(all_dtypes))];
      const stele::Extent shape[] = {random.below(30), 2 * random.below(60)};
      const std::uint64_t size = *stele::byte_length(dtype, shape[0] * shape[1]);
      auto memory = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(size) + 1);
      random.fill(*memory);
      for (std::byte& b : *memory) b &= dtype == DType::boolean ? std::byte{1} : std::byte{255};
      const stele::LeafOps& ops = random.chance(50) ? memory_ops : read_only_ops;
      tensors.push_back(builder.tensor(name, dtype, shape, size, {&ops, memory->data(), 0}));
      builder.keep(std::move(memory));
    }
    if (random.chance(50)) builder.value("a value", random_value(random));
    builder.end();
    const Snapshot before = builder.finish();
    const auto recorder = recorder_of("random.data");
    good(recorder.save(before, dir / "random.onnx", over()));
    const Snapshot after = good(stele::open(dir / "random.onnx"));
    REQUIRE(difference(facts(before, can), facts(after, can)) == "");
    for (std::size_t i = 0; i < before.leaf_count(); ++i) in_other_file += before.leaf(i).byte_size() >= 1024 ? 1 : 0;
    // The lazy leaves of the files, saved over them.
    const std::string model = read_text(dir / "random.onnx"), data = read_text(dir / "random.data");
    good(recorder.save(after, dir / "random.onnx", over()));
    REQUIRE(read_text(dir / "random.onnx") == model);
    REQUIRE(read_text(dir / "random.data") == data);
  }
  CHECK(in_other_file > 200);
}

TEST_CASE("onnx external: random modules come back, in memory") {
  stele::Capabilities can = OnnxFormat().capabilities();
  can.nesting = true;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    std::map<std::string, Branch> branches;
    branches["a"] = RandomModule(random, true).make();
    branches["a"].named["large"] = stele::Tensor<float>(stele::Shape({17, 31}));
    const auto bundle = stele::memory_bundle();
    const auto sink = good(bundle->create("sub/m.onnx"));
    good(recorder_of("m.data").save(branches, *sink));
    CHECK(good(bundle->names()) == Paths{"sub/m.data", "sub/m.onnx"});
    const auto again = good(OnnxRecorder<>().load<std::map<std::string, Branch>>(good(bundle->open("sub/m.onnx"))));
    REQUIRE(difference(facts(snapshot(branches), can), facts(snapshot(again), can)) == "");
  }
}

TEST_CASE("onnx external: what is saved opens, whole") {
  static const std::string elements = pattern(2048, 5);
  for (const std::uint64_t count : {0U, 1U, 100U, 100'000U}) {
    CAPTURE(count);
    stele::SnapshotBuilder builder;
    builder.begin(stele::NodeKind::module, "");
    const stele::Extent shape[] = {1024};
    for (std::uint64_t i = 0; i < count; ++i) {
      builder.tensor(builder.intern("t" + std::to_string(i)), DType::u8, shape, 1024,
                     {&memory_ops, elements.data() + i % 1024, 0});
    }
    builder.end();
    const Snapshot before = builder.finish();
    const TempDir dir;
    good(recorder_of("m.data").save(before, dir / "m.onnx", quick()));
    // Without large tensors, there is no other file.
    CHECK(dir.names().size() == (count == 0 ? 1 : 2));
    if (count != 0) CHECK(std::filesystem::file_size(dir / "m.data") == 1024 * count);
    const Snapshot file = good(stele::open(dir / "m.onnx"));
    REQUIRE(file.leaf_count() == count);
    std::uint64_t wrong = 0;
    std::string element(1024, ' ');
    for (std::size_t i = 0; i < count; ++i) {
      good(file.leaf(i).read(0, std::as_writable_bytes(std::span(element))));
      wrong += element == elements.substr(i % 1024, 1024) ? 0 : 1;
    }
    CHECK(wrong == 0);
    // A save into the model reads it with its structure.
    good(recorder_of("n.data", dir / "m.onnx").save(Snapshot(), dir / "n.onnx", quick()));
    CHECK(good(stele::open(dir / "n.onnx")).leaf_count() == count);
  }
}

TEST_CASE("onnx external: into a model") {
  const TempDir dir;
  std::filesystem::create_directory(dir / "old");
  std::filesystem::create_directory(dir / "new");
  write_model(dir / "old", "old.data");
  good(recorder_of("m.data", dir / "old/m.onnx").save(new_part(), dir / "new/m.onnx", quick()));
  good(recorder_of("", dir / "old/m.onnx").save(new_part(), dir / "new/one.onnx", quick()));
  std::filesystem::remove_all(dir / "old");  // no file of it is needed
  CHECK(names_in(dir / "new") == Paths{"m.data", "m.onnx", "one.onnx"});
  check_saved(dir / "new/m.onnx");
  check_saved(dir / "new/one.onnx");
  CHECK(std::filesystem::file_size(dir / "new/m.data") == 2 * 3008 + large);  // raw, varints, outside
  CHECK(std::filesystem::file_size(dir / "new/m.onnx") < 3000);
  // And back into one file.
  good(recorder_of("", dir / "new/m.onnx").save(Snapshot(), dir / "new/back.onnx", quick()));
  CHECK(read_text(dir / "new/back.onnx").find("m.data") == std::string::npos);
  check_saved(dir / "new/back.onnx");
}

TEST_CASE("onnx external: over the model and its file") {
  const TempDir dir;
  write_model(dir.path(), "m.data");
  const std::string model = read_text(dir / "m.onnx");
  const auto recorder = recorder_of("m.data", dir / "m.onnx");
  const stele::Error e = bad(recorder.save(new_part(), dir / "m.onnx", quick()));
  CHECK(e.code() == Errc::exists);
  CHECK(e.file() == "m.data");
  CHECK(e.hint().find("allow_nonatomic") != std::string_view::npos);
  CHECK(dir.names() == Paths{"m.data", "m.onnx"});
  CHECK(read_text(dir / "m.onnx") == model);
  CHECK(read_text(dir / "m.data") == outside_file());
  // The old file is read until both new ones are written.
  good(recorder.save(new_part(), dir / "m.onnx", over()));
  CHECK(dir.names() == Paths{"m.data", "m.onnx"});
  check_saved(dir / "m.onnx");
  // With a new name, the model is replaced in one step.
  good(recorder_of("n.data", dir / "m.onnx").save(Snapshot(), dir / "m.onnx", quick()));
  check_saved(dir / "m.onnx");
  std::filesystem::remove(dir / "m.data");
  check_saved(dir / "m.onnx");
}

TEST_CASE("onnx external: over the last of many files, which is opened again for each read") {
  const TempDir dir;
  constexpr unsigned count = 80;
  std::string graph;
  for (unsigned i = 0; i < count; ++i) {
    const std::string name = "w" + std::to_string(i);
    const std::size_t size = i % 2 == 0 ? large : small;
    write_text(dir / name, pattern(size, i));
    graph += bytes(5, head(name, 2, size) + in_file(name, 0, size));
  }
  write_text(dir / "m.onnx", onnx::model(graph));
  good(recorder_of("w79", dir / "m.onnx").save(Snapshot(), dir / "m.onnx", over()));
  for (unsigned i = 0; i < 79; ++i) std::filesystem::remove(dir / ("w" + std::to_string(i)));
  const Snapshot file = good(stele::open(dir / "m.onnx"));
  for (unsigned i = 0; i < count; ++i) {
    CHECK(content_of(file, "w" + std::to_string(i)) == pattern(i % 2 == 0 ? large : small, i));
  }
}

TEST_CASE("onnx external: names and sinks that are refused") {
  const TempDir dir;
  for (const std::string& name : {"."s, ".."s, "a/b"s, "/a"s, "a/"s, "../a"s, "a\\b"s, "a\0b"s, "\xff"s, "m.onnx"s}) {
    CAPTURE(name);
    for (const bool dry : {false, true}) {
      SaveOptions options = over();
      options.dry_run = dry;
      const stele::Error e = bad(recorder_of(name).save(new_part(), dir / "m.onnx", options));
      CHECK(e.code() == Errc::invalid_argument);
      CHECK(e.found() == name);
    }
    CHECK(dir.names().empty());
  }
  stele::BufferSink memory;
  const stele::Error e = bad(recorder_of("m.data").save(new_part(), memory));
  CHECK(e.code() == Errc::unsupported);
  CHECK(e.hint().find("OnnxOptions::external") != std::string_view::npos);
  CHECK(memory.take().size() == 0);
  CHECK_FALSE(recorder_of(std::string(300, 'a')).save(new_part(), dir / "m.onnx", quick()));
  std::filesystem::create_directory(dir / "folder");
  CHECK_FALSE(recorder_of("folder").save(new_part(), dir / "m.onnx", quick()));
  CHECK_FALSE(recorder_of("folder").save(new_part(), dir / "m.onnx", over()));
  CHECK(dir.names() == Paths{"folder"});
}

TEST_CASE("onnx external: the error of a model that is too large for one file names the option") {
  static constexpr stele::LeafOps zeros{
      .read = [](const void*, std::uint64_t, std::uint64_t, std::span<std::byte> out, stele::ReadContext&) -> Status {
        std::fill(out.begin(), out.end(), std::byte{});
        return {};
      }};
  const auto of_size = [](std::uint64_t size) {
    stele::SnapshotBuilder builder;
    builder.begin(stele::NodeKind::module, "");
    const stele::Extent shape[] = {size};
    builder.tensor("w", DType::u8, shape, size, {&zeros, nullptr, 0});
    builder.end();
    return builder.finish();
  };
  stele::BufferSink sink;
  const stele::Error e = bad(OnnxRecorder<>().save(of_size(std::uint64_t{1} << 31), sink));
  CHECK(e.code() == Errc::not_representable);
  CHECK(e.hint().find("OnnxOptions::external") != std::string_view::npos);
  const TempDir dir;
  CHECK(bad(recorder_of("m.data").save(of_size(std::uint64_t{1} << 63), dir / "m.onnx")).code() ==
        Errc::not_representable);
  CHECK(dir.names().empty());
}

TEST_CASE("onnx external: models in which other tensors are in files") {
  const TempDir dir;
  write_text(dir / "x.data", pattern(large, 1));
  const std::string outside = head("t", 2, large) + in_file("x.data", 0, large);
  const std::string with_t = bytes(5, bytes(1, "value") + bytes(5, outside));
  const auto node = [](const std::string& fields) { return bytes(1, bytes(2, "y") + bytes(4, "Constant") + fields); };
  for (const auto& one : std::map<std::string, std::string>{
           {"y", onnx::model(node(with_t))},
           {"y.list.0", onnx::model(node(bytes(5, bytes(1, "list") + bytes(10, outside))))},
           {"y.body.y", onnx::model(node(bytes(5, bytes(1, "body") + bytes(6, node(with_t)))))},
           {"y.bodies.0.t", onnx::model(node(bytes(5, bytes(1, "bodies") + bytes(11, bytes(5, outside)))))},
           {"F.y",
            onnx::model("", 17, bytes(25, bytes(1, "F") + bytes(7, bytes(2, "y") + bytes(4, "Constant") + with_t)))},
           {"F.value",
            onnx::model("", 17, bytes(25, bytes(1, "F") + bytes(11, bytes(1, "value") + bytes(5, outside))))},
           {"training_info.0.initialization.t", onnx::model("", 17, bytes(20, bytes(1, bytes(5, outside))))}}) {
    const std::string &name = one.first, &model = one.second;
    for (const char* external : {"n.data", ""}) {
      CAPTURE(name);
      CAPTURE(external);
      write_text(dir / "m.onnx", model);
      good(recorder_of(external, dir / "m.onnx").save(Snapshot(), dir / "n.onnx", over()));
      const std::string saved = read_text(dir / "n.onnx");
      CHECK(saved.find("x.data") == std::string::npos);
      CHECK((saved.find("n.data") != std::string::npos) == (*external != 0));
      CHECK(content_of(good(stele::open(dir / "n.onnx")), name) == pattern(large, 1));
    }
  }
  // A sparse tensor cannot be moved; without the other file it is copied, and refers to the old one.
  write_text(dir / "m.onnx", onnx::model(bytes(15, bytes(1, bytes(8, "s") + in_file("x.data", 0, large)))));
  CHECK(code_of(recorder_of("n.data", dir / "m.onnx").save(Snapshot(), dir / "n.onnx", over())) == Errc::unsupported);
  good(recorder_of("", dir / "m.onnx").save(Snapshot(), dir / "n.onnx", over()));
  CHECK(read_text(dir / "n.onnx") == read_text(dir / "m.onnx"));
  // Tensors that are in the model stay there.
  write_text(
      dir / "m.onnx",
      onnx::model(node(bytes(5, bytes(1, "value") + bytes(5, head("t", 2, large) + bytes(9, pattern(large, 2)))))));
  good(recorder_of("n.data", dir / "m.onnx").save(Snapshot(), dir / "n.onnx", over()));
  CHECK(read_text(dir / "n.onnx") == read_text(dir / "m.onnx"));
}

TEST_CASE("onnx external: files that are cut or missing") {
  const TempDir dir;
  good(recorder_of("m.data").save(new_part(), dir / "m.onnx", quick()));
  const std::string model = read_text(dir / "m.onnx"), data = read_text(dir / "m.data");
  for (std::size_t size = 0; size < model.size(); ++size) {
    write_text(dir / "m.onnx", model.substr(0, size));
    CHECK_FALSE(OnnxRecorder<>().open(dir / "m.onnx"));
  }
  write_text(dir / "m.onnx", model);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, data.size() - 1}) {
    write_text(dir / "m.data", data.substr(0, size));
    const stele::Error e = bad(stele::open(dir / "m.onnx"));
    CHECK(e.code() == Errc::truncated);
    CHECK(e.path() == "raw");
  }
  std::filesystem::remove(dir / "m.data");
  CHECK(bad(stele::open(dir / "m.onnx")).code() == Errc::not_found);
}

TEST_CASE("onnx external: a save that fails or is killed") {
  const auto is_temporary = [](const std::string& name) { return name.find(".stele-") != name.npos; };
  for (const bool over_old : {false, true}) {
    for (const bool dies : {true, false}) {
      std::size_t ended = 0;
      for (std::size_t at = 1;; ++at) {
        CAPTURE(over_old);
        CAPTURE(dies);
        CAPTURE(at);
        const TempDir dir;
        std::filesystem::create_directory(dir / "model");
        write_model(dir / "model", "m.data");
        const std::string model = dir / "model/m.onnx";
        if (over_old) {
          good(recorder_of("old.data", model).save(Snapshot(), dir / "n.onnx", quick()));
        }
        const std::string old = over_old ? read_text(dir / "n.onnx") : "";
        const auto save = [&] { return save_until(dir.path(), {at, dies}, new_part(), model) ? "done"s : "failed"s; };
        const std::string result = dies ? in_child(save) : save();
        if (result == "done") break;
        ++ended;
        CHECK(result == (dies ? "" : "failed"));
        const bool has_model = std::filesystem::exists(dir / "n.onnx");
        if (has_model && read_text(dir / "n.onnx") != old) {
          check_saved(dir / "n.onnx");
        } else {
          CHECK(has_model == over_old);
        }
        if (has_model && over_old) CHECK(good(stele::open(dir / "n.onnx")).leaf_count() == 5);
        Paths names = dir.names();
        if (!dies) CHECK(std::none_of(names.begin(), names.end(), is_temporary));
        if (!dies && !over_old) CHECK(names == Paths{"model"});
        // A later save needs to be allowed only if the other file was left, and its temporaries are gone then.
        const bool left = std::filesystem::exists(dir / "n.data");
        CHECK((!left || dies || over_old));
        const auto again = recorder_of("n.data", model).save(new_part(), dir / "n.onnx", quick());
        CHECK(code_of(again) == (left ? Errc::exists : Errc::none));
        if (left) good(recorder_of("n.data", model).save(new_part(), dir / "n.onnx", over()));
        check_saved(dir / "n.onnx");
        names = dir.names();
        CHECK(std::none_of(names.begin(), names.end(), is_temporary));
      }
      CHECK(ended >= 9);  // contains twice, create, reserve, write and commit of two files
    }
  }
}

}  // namespace stele_test::onnx_external_test
