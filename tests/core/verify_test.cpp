// verify() reads every byte of every format: damage is found, or changes nothing that is read, or lies in what its
// report names as unchecked.
#include <doctest/doctest.h>
#include <stele/recorders/archive.hpp>
#include <stele/recorders/burn.hpp>
#include <stele/recorders/nnef.hpp>
#include <stele/recorders/paddle.hpp>
#include <stele/recorders/samediff.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/archive.hpp"
#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_dir.hpp"

namespace verify_test {

namespace {

using namespace stele;
using namespace stele_test;
using Names = std::vector<std::string>;

struct Layer {
  Tensor<float, 2> weight = Tensor<float, 2>({1, 3}, {1, 2, 3});
  STELE_MODULE(Layer, weight)
};

struct Small {
  Layer layer;
  Tensor<std::uint8_t, 1> bytes = Tensor<std::uint8_t, 1>({3}, {1, 2, 3});
  STELE_MODULE(Small, layer, bytes)
};

/// Returns the content of a file as text.
std::string text(const Snapshot& s) {
  const Image all = image(s);
  std::string text = all.text;
  for (const Value& value : all.values) text += to_text(value) + "\n";
  for (const auto& [key, value] : s.metadata()) text += key + "=" + value + "\n";
  return text;
}
std::string text(const Result<Checkpoint>& opened) {
  if (!opened) return why(opened);
  std::string all = text(opened->parameters);
  if (opened->training) all += opened->training->json();
  for (const auto& [key, arrays] : opened->optimizer.kinds()) all += key + text(arrays);
  if (!opened->graph) return all;
  // A graph as the file of a format that holds one.
  BufferSink sink;
  Checkpoint graph{Snapshot(), opened->graph};
  for (GraphVariable& v : graph.graph->variables) v.kind = VariableKind::array;
  const auto report = SameDiffRecorder<>(SameDiffContainer::fb).save(graph, sink);
  return all + (report ? std::string(text_of(sink.take().span())) : why(report));
}

/// The parts that a verification has not checked.
Names unchecked(const Result<Report>& report) {
  REQUIRE_MESSAGE(report, why(report));
  CHECK(report->size() == report->count(Report::What::unchecked));
  return report->paths(Report::What::unchecked);
}

/// Flips every bit of a file of which these parts are not checked.
void check_flips(const std::string& file, const Names& parts,
                 const std::function<Result<Report>(std::span<const std::byte>)>& verify,
                 const std::function<std::string(std::span<const std::byte>)>& read) {
  CHECK(unchecked(verify(bytes_of(file))) == parts);
  const bool contents = std::find(parts.begin(), parts.end(), "contents") != parts.end();
  const std::string before = read(bytes_of(file));
  std::string damaged = file;
  std::size_t found = 0;
  const std::size_t step = sanitizers ? 7 : 1;  // prime to 8: every bit of a byte is flipped somewhere
  for (std::size_t bit = 0; bit < 8 * file.size(); bit += step) {
    char& byte = damaged[bit / 8];
    byte = static_cast<char>(byte ^ (1 << bit % 8));
    const auto report = verify(bytes_of(damaged));
    found += report ? 0 : 1;
    // Damage may add to what cannot be checked; then that is named.
    const bool named = contents || (report && unchecked(report) != parts);
    const bool harmless = !report || named || read(bytes_of(damaged)) == before;
    if (!harmless) FAIL_CHECK("not found: bit " << bit % 8 << " of byte " << bit / 8 << " of " << file.size());
    byte = file[bit / 8];
  }
  if (parts.empty()) CHECK(found == (8 * file.size() + step - 1) / step);
  CHECK(found != 0);
}

template <class R>
void check_recorder(const R& recorder, const Names& parts, const LoadOptions& options = {}) {
  CAPTURE(recorder.format().name());
  const std::string file(text_of(good(saved(recorder, Small())).span()));
  check_flips(
      file, parts, [&](auto bytes) { return recorder.verify(bytes, options); },
      [&](auto bytes) {
        const auto opened = recorder.open(bytes, options);
        return opened ? text(*opened) : why(opened);
      });
}

Checkpoint training(float n) {
  Checkpoint c = checkpoint({{"w", floats({2, 1}, {n, 2})}, {"b", floats({3, 4})}});
  GraphVariable x;
  x.name = "x", x.kind = VariableKind::placeholder, x.dtype = DType::f32;
  c.graph.emplace();
  c.graph->variables.push_back(x);
  c.training.emplace();
  c.training->updater = updaters::adam();
  c.optimizer.set_snapshot("M", snapshot({{"w", floats({2, 1}, {n, 4})}, {"b", floats({9, 9})}}));
  c.optimizer.set_snapshot("V", snapshot({{"w", floats({2, 1}, {5, 6})}, {"b", floats({7, n})}}));
  c.parameters = with_metadata(c.parameters, {{"author", "x"}});
  return c;
}

std::string all_of_archive(std::span<const std::byte> bytes) {
  const auto tags = archive_tags(bytes);
  if (!tags) return why(tags);
  std::string all;
  for (const std::string& tag : *tags) all += tag + text(open_archive(bytes, tag));
  return all;
}

}  // namespace

STELE_TEST_EACH_RECORDER("verify: every flipped bit, in every recorder") {
  check_recorder(recorder, is_zip_file(recorder)     ? Names{"zip records"}
                           : can(recorder).checksums ? Names{}
                                                     : Names{"contents"});
}

TEST_CASE("verify: every flipped bit, in formats that gzip compresses") {
  check_recorder(Recorder<GzipJsonFormat>(), {"gzip header"});
  check_recorder(NnefRecorder<>(NnefFormat({.container = NnefContainer::tgz})), {"gzip header"});
  for (const auto encoding : {BurnEncoding::mpk, BurnEncoding::json, BurnEncoding::bin}) {
    const auto burn = [&](bool gzip) {
      return BurnRecorder<>(BurnFormat({.encoding = encoding, .gzip = gzip, .schema = schema_of<Small>()}));
    };
    check_recorder(burn(true), {"gzip header"});
    check_recorder(burn(false), {"contents"});
  }
}

TEST_CASE("verify: what is compressed is seen, whatever the recorder would write") {
  const std::string plain(text_of(good(saved(Recorder<PlainJsonFormat>(), Small())).span()));
  const std::string gzip(text_of(good(saved(Recorder<GzipJsonFormat>(), Small())).span()));
  const std::string zstd(text_of(good(saved(Recorder<ZstdJsonFormat>(), Small())).span()));
  const JsonRecorder<> by_name;
  CHECK(unchecked(by_name.verify(bytes_of(plain))) == Names{"contents"});
  CHECK(unchecked(by_name.verify(bytes_of(gzip))) == Names{"gzip header"});
  CHECK(unchecked(by_name.verify(bytes_of(zstd))).empty());
  CHECK(unchecked(Recorder<PlainJsonFormat>().verify(bytes_of(zstd))).empty());
  CHECK(unchecked(Recorder<ZstdJsonFormat>().verify(bytes_of(plain))) == Names{"contents"});
}

TEST_CASE("verify: every flipped bit, in formats of bare tensors") {
  LoadOptions options;
  const Small small;
  options.layout = good(layout_of(good(snapshot_of(small))));
  check_recorder(PaddleRecorder<>(), {"contents"}, options);
  const TempDir dir;
  const NnefRecorder<> folders;
  good(folders.save(Small(), dir / "m", quick()));
  CHECK(unchecked(folders.verify(dir / "m")) == Names{"contents"});
  const ShardedSafetensorsRecorder<> shards{ShardedSafetensorsFormat(8)};
  good(shards.save(Small(), dir / "m.safetensors.index.json", quick()));
  CHECK(unchecked(shards.verify(dir / "m.safetensors.index.json")) == Names{"contents"});
}

TEST_CASE("verify: every flipped bit of an archive, in all tags and all that they have") {
  for (const bool deflate : {false, true}) {
    CAPTURE(deflate);
    const TempDir dir;
    const ArchiveRecorder<> recorder(ArchiveFormat({.tag = "old", .deduplicate = true, .deflate = deflate}));
    good(recorder.save(training(1), dir / "m.zip", quick()));
    good(recorder.edit(training(2), dir / "m.zip", "new", ArchiveEdit::append, quick()));
    check_flips(
        read_text(dir / "m.zip"), {"zip records"}, [&](auto bytes) { return ArchiveRecorder<>().verify(bytes); },
        all_of_archive);
  }
  // An archive of another program has deflated entries, and entries that no tag refers to.
  check_flips(
      read_text(test_data("archive") + "/full.zip"), {"zip records"},
      [&](auto bytes) { return ArchiveRecorder<>().verify(bytes); }, all_of_archive);
}

TEST_CASE("verify: an archive names what it cannot read") {
  std::string file = archive_of(training(1), {.tag = "t"});
  const auto names = [](const std::string& bytes) { return unchecked(ArchiveRecorder<>().verify(bytes_of(bytes))); };
  CHECK(names(file) == Names{"zip records"});
  CHECK(code_of(ArchiveRecorder<>(ArchiveFormat({.tag = "u"})).verify(bytes_of(file))) == Errc::not_found);
  Entries entries = unzipped(file);
  entries.insert(entries.begin(), {"other.bin", "some bytes"});
  file = zipped(entries);
  // Method 12 in the local header and in the directory.
  file[8] = 12;
  file[file.find("PK\1\2") + 10] = 12;
  CHECK(names(file) == Names{"zip records", "other.bin"});
}

TEST_CASE("verify: every flipped bit of SameDiff's files, in all that they have") {
  for (const auto container : {SameDiffContainer::fb, SameDiffContainer::sdnb, SameDiffContainer::sdz}) {
    const SameDiffRecorder<> recorder(container);
    CAPTURE(recorder.format().name());
    BufferSink sink;
    good(recorder.save(training(1), sink));
    check_flips(
        std::string(text_of(sink.take().span())), {container == SameDiffContainer::sdz ? "zip records" : "contents"},
        [&](auto bytes) { return recorder.verify(bytes); }, [](auto bytes) { return text(open_samediff(bytes)); });
  }
}

}  // namespace verify_test
