// Saves of several files that fail at any of their calls: shards, archives, folders.
#include <stele/bundle.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/recorders/onnx.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include "harness.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

#include "save_proof.hpp"

using namespace stele_faults;
using namespace stele_test;
using stele::Durability;
using stele::SaveOptions;
using stele::Status;

namespace {

/// Proves saves of a set of files: `index` is placed last, and `last_shard` right before it. `large`: the model has
/// tensors of kilobytes.
template <class R>
void prove_shards(const R& recorder, const std::string& index, const std::string& last_shard, std::size_t count,
                  bool large = false) {
  const SaveOptions options = options_of(Durability::full);
  SaveOptions over = options;
  over.file.allow_nonatomic = true;
  SaveOptions over_other = over;
  over_other.file.durability = Durability::process;
  over_other.metadata = {{"run", "2"}};  // so that no two files are the same
  const auto saving = [&](float first, const SaveOptions& how) {
    return [&recorder, &how, index, first, large](const std::string& folder) {
      return save(recorder, model(first, large), folder + "/" + index, how);
    };
  };
  const TempDir dir;
  const Calls calls = prove(dir, {.before = {},
                                  .save = saving(1, options),
                                  .save_over = saving(1, over),
                                  // The index exists only with all files that it names: it is placed last.
                                  .whole = [&](const Files& now, const Files&, const Files& all) {
                                    return now == all || !now.contains(index);
                                  }});
  CHECK(index_of(calls, "renameat", last_shard) < index_of(calls, "renameat", "/" + index));
  check_synced(calls, index);

  // A save over another set has no such guarantee: it must be allowed, and can be repeated after a failure.
  const Files old = files_in(dir.path());
  REQUIRE(old.size() == count);
  CHECK(code_of(saving(500, options)(dir.path())) == stele::Errc::exists);
  CHECK(files_in(dir.path()) == old);
  prove(dir,
        {.before = old,
         .save = saving(500, over_other),
         .whole = [](const Files& now, const Files& before, const Files&) { return now.size() == before.size(); }});
}

}  // namespace

TEST_CASE("faults: shards of safetensors") {
  prove_shards(stele::ShardedSafetensorsRecorder<>(stele::ShardedSafetensorsFormat(50)), "m.safetensors.index.json",
               "-00003-of-00003.safetensors", 4);
}

TEST_CASE("faults: shards of SameDiff") {
  prove_shards(stele::SameDiffRecorder<>({.container = stele::SameDiffContainer::sdnb, .shard_bytes = 50}), "m.sdnb",
               ".shard0-of-4.sdnb", 5);
}

TEST_CASE("faults: an ONNX model and its external data") {
  prove_shards(stele::OnnxRecorder<>(stele::OnnxFormat({.external = "m.data"})), "m.onnx", "/m.data", 2, true);
}

TEST_CASE("faults: an archive that gets a tag, and that loses one") {
  const stele::ArchiveRecorder<> recorder;
  const Mlp first = model(1, true), second = model(500, true);
  const SaveOptions options = options_of(Durability::full);
  const TempDir made;
  good(recorder.save(first, made / "m.zip", options));
  const std::string one = read_text(made / "m.zip");
  good(recorder.append(second, made / "m.zip", "two", options));
  const std::string two = read_text(made / "m.zip");
  const auto edit = [&](const std::string& folder, const stele::Checkpoint& checkpoint, stele::ArchiveEdit how) {
    auto report = recorder.edit(checkpoint, folder + "/m.zip", "two", how, options);
    return report ? Status() : Status(std::move(report).error());
  };
  const auto has_two = [](const std::string& folder) {
    return good(stele::archive_tags(folder + "/m.zip")).size() == 2;
  };
  const stele::Checkpoint more{good(stele::snapshot_of(second))};
  const auto calls_of = [&](const Calls& calls, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      CAPTURE(name);
      CHECK(index_of(calls, name, "") < calls.size());
    }
    check_synced(calls, "m.zip");
  };

  // The file is the same whether the tag is appended or, after a save that did not finish, replaced.
  const TempDir appended;
  calls_of(prove(appended, {.before = {{"m.zip", one}},
                            .save = [&](const std::string& in) { return edit(in, more, stele::ArchiveEdit::append); },
                            .save_again =
                                [&](const std::string& in) {
                                  using enum stele::ArchiveEdit;
                                  return edit(in, more, has_two(in) ? replace : append);
                                }}),
           {"copy_file_range", "pwrite", "pread"});
  CHECK(read_text(appended / "m.zip") == two);

  // The new tag refers to the existing arrays; then the tag that has them is removed, and all of them move.
  const auto share = [&](const std::string& in) -> Status {
    STELE_TRY_ASSIGN(const stele::Checkpoint lazy, stele::open_archive(in + "/m.zip"));
    return edit(in, lazy, stele::ArchiveEdit::append);
  };
  // If the system does not identify the file, the arrays are written again: that is no error.
  const auto same = [&](const Files& a, const Files& b) {
    const auto all = [&](const Files& files) {
      std::string text;
      for (const char* tag : {"main", "two"}) {
        const auto from = bytes_of(files.at("m.zip"));
        text += image(good(stele::open_archive(from, tag)).parameters).text;
      }
      return text;
    };
    return a.size() == 1 && b.size() == 1 && (a == b || all(a) == all(b));
  };
  const TempDir shared;
  calls_of(prove(shared, {.before = {{"m.zip", one}},
                          .save = share,
                          .save_again = [&](const std::string& in) { return has_two(in) ? Status() : share(in); },
                          .same = same}),
           {"copy_file_range", "pread"});
  const TempDir removed;
  const auto remove = [&](const std::string& in) { return stele::remove_archive_tag(in + "/m.zip", "main", options); };
  calls_of(prove(removed, {.before = {{"m.zip", read_text(shared / "m.zip")}},
                           .save = remove,
                           .save_again = [&](const std::string& in) { return has_two(in) ? remove(in) : Status(); }}),
           {"copy_file_range", "pread"});
  CHECK(image(good(recorder.load<Mlp>(removed / "m.zip"))) == image(first));
}

TEST_CASE("faults: a folder, new, over an old one, and beside what a killed one left") {
  const auto put = [](stele::Bundle& bundle, const std::string& name, std::string_view text) -> Status {
    STELE_TRY_ASSIGN(const auto file, bundle.create(name));
    STELE_TRY(file->write(bytes_of(text)));
    return file->commit();
  };
  const auto known = [](const stele::Bundle& folder) -> Status {
    STELE_TRY_ASSIGN(const auto names, folder.names());
    return names.size() <= 3 ? Status() : Status(stele::Error(stele::Errc::exists, "unknown files"));
  };
  const auto saving = [&](Durability durability) {
    return [&put, &known, durability](const std::string& folder) -> Status {
      STELE_TRY_ASSIGN(const auto sink, stele::folder_sink(folder + "/m", {durability}, known));
      const auto bundle = sink->bundle();
      STELE_TRY(put(*bundle, "a.dat", "new a"));
      STELE_TRY(put(*bundle, "below/b.dat", "new b"));
      return sink->commit();
    };
  };
  const Files old = {{"m/", ""}, {"m/a.dat", "old a"}, {"m/below/", ""}, {"m/below/c.dat", "old c"}, {"m/empty/", ""}};
  Files beside = old;
  const std::string left = leftover_of("m");
  beside.insert({{left + "/", ""}, {left + "/below/", ""}, {left + "/below/b.dat", "half"}});
  for (const Durability durability : both) {
    const TempDir dir;
    for (const Files& before : {Files(), old, beside, Files{{"m/", ""}}}) {
      const Calls calls = prove(dir, {.before = before, .save = saving(durability)});
      const bool over = before.contains("m/a.dat");
      const std::size_t placed = index_of(calls, over || before.empty() ? "renameat2" : "renameat", "/m");
      REQUIRE(placed < calls.size());
      CHECK((index_of(calls, "unlinkat", "/below", placed) < calls.size()) == over);
      const auto synced = [&](std::string_view end, std::size_t from) {
        std::size_t i = from;
        while (i < calls.size() &&
               !(std::string_view(calls[i].name) == "fsync" && std::string_view(calls[i].subject).ends_with(end))) {
          ++i;
        }
        return i;
      };
      if (durability == Durability::process) {
        CHECK(synced("", 0) == calls.size());
        continue;
      }
      // The bytes, the names in the new folder, its own name.
      CHECK(synced("/below", 0) < placed);
      CHECK(synced(".tmp", synced("/below", 0)) < placed);
      std::size_t last = placed + 1;
      while (last < calls.size() && (std::string_view(calls[last].name) != "fsync" || calls[last].subject[0] != '\0')) {
        ++last;
      }
      CHECK(last < calls.size());
      CHECK(last < index_of(calls, "unlinkat", "/below", placed));
    }
  }
}

TEST_CASE("faults: file systems that can rename in one way only") {
  const TempDir dir;
  const std::string folder = std::filesystem::canonical(dir.path()).string();
  const auto yes = [](const stele::Bundle&) { return Status(); };
  const auto save_folder = [&](stele::FileSinkOptions options) -> Status {
    STELE_TRY_ASSIGN(const auto sink, stele::folder_sink(folder + "/m", options, yes));
    STELE_TRY_ASSIGN(const auto file, sink->bundle()->create("a"));
    STELE_TRY(file->write(bytes_of("new")));
    STELE_TRY(file->commit());
    return sink->commit();
  };
  const auto save_file = [&](stele::FileSinkOptions options) -> Status {
    STELE_TRY_ASSIGN(const auto sink, stele::file_sink(folder + "/f", options));
    STELE_TRY(sink->write(bytes_of("new")));
    return sink->commit();
  };
  const stele::FileSinkOptions fresh{.durability = Durability::process, .overwrite = false};
  /// The save where the first renameat2 is refused.
  const auto without_flags = [&](const Files& before, const auto& save, int code) {
    const auto begin = [&] {
      std::filesystem::remove_all(folder + "/m");
      std::filesystem::remove_all(folder + "/f");
      if (!before.empty()) std::filesystem::create_directory(folder + "/m");
      for (const auto& [name, bytes] : before) write_text(folder + "/" + name, bytes);
    };
    begin();
    Calls calls;
    {
      const Watch watch(folder);
      good(save());
      calls = Watch::calls();
    }
    begin();
    const auto at = static_cast<std::uint32_t>(index_of(calls, "renameat2", "") + 1);
    REQUIRE(at <= calls.size());
    const Watch watch(folder, {at, Fault::fail, code});
    return save();
  };
  const Files after = {{"m/", ""}, {"m/a", "new"}};
  for (const int code : {EINVAL, ENOSYS, EOPNOTSUPP}) {
    CAPTURE(code);
    // A new file by a second name, a new folder by a rename that replaces nothing.
    good(without_flags(
        {}, [&] { return save_file(fresh); }, code));
    CHECK(files_in(folder) == Files{{"f", "new"}});
    good(without_flags(
        {}, [&] { return save_folder(fresh); }, code));
    CHECK(files_in(folder) == after);
  }
  const Files old = {{"m/b", "old"}};
  for (const int code : {EINVAL, ENOSYS, EBUSY, EXDEV}) {
    CAPTURE(code);
    CHECK(code_of(without_flags(
              old, [&] { return save_folder({Durability::process}); }, code)) == stele::Errc::exists);
    CHECK(files_in(folder) == Files{{"m/", ""}, {"m/b", "old"}});
  }
}
