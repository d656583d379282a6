// A save that goes wrong at any of its calls leaves the whole old file or the whole new one, and no litter.
#include <stele/bundle.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "harness.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

using namespace stele_faults;
using namespace stele_test;
using stele::Durability;
using stele::SaveOptions;
using stele::Status;

namespace {

SaveOptions options_of(Durability durability) {
  SaveOptions options;
  options.file.durability = durability;
  options.threads = 3;
  return options;
}

template <class R, class M>
Status save(const R& recorder, const M& model, const std::string& path, const SaveOptions& options) {
  auto report = recorder.record(model, path, options);
  if (!report) return std::move(report).error();
  return {};
}

/// The name of a temporary of a process that has gone.
std::string leftover_of(const std::string& name) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  return "." + name + ".stele-" + std::to_string(child) + "-7.tmp";
}

/// Also of what lies in a temporary folder.
bool is_temporary(const std::string& name) {
  const std::size_t at = name.find(".stele-");
  return at != name.npos && name.find(".tmp", at) != name.npos;
}

/// Another process that has begun to save to `path`, and goes on when it is told to.
class Writer {
 public:
  Writer(const std::string& path, std::string_view text) {
    int told[2];
    int tells[2];
    REQUIRE((::pipe(told) == 0 && ::pipe(tells) == 0));
    child_ = ::fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      ::close(told[1]);
      char byte = 0;
      auto sink = stele::file_sink(path, {Durability::process});
      bool good = sink && (*sink)->write(bytes_of(text)) && ::write(tells[1], "x", 1) == 1;
      good = good && ::read(told[0], &byte, 1) == 1;
      ::_exit(good && (*sink)->commit() ? 0 : 1);
    }
    char byte = 0;
    REQUIRE(::read(tells[0], &byte, 1) == 1);
    for (const int end : {told[0], tells[0], tells[1]}) ::close(end);
    go_on_ = told[1];
  }
  /// Whether it could finish.
  bool finish() {
    int status = 1;
    const bool told = ::write(go_on_, "x", 1) == 1;
    ::close(go_on_);
    return ::waitpid(child_, &status, 0) == child_ && told && status == 0;
  }

 private:
  pid_t child_ = -1;
  int go_on_ = -1;
};

struct Case {
  Files before;
  std::function<Status(const std::string& folder)> save;
  std::function<Status(const std::string& folder)> save_again = save;       // after one that failed
  std::function<Status(const std::string& folder)> save_over = save_again;  // after one that could not tidy up
  std::set<std::string> beside{};                                           // of others; nobody touches them
  /// Whether both say the same.
  std::function<bool(const Files& a, const Files& b)> same = [](const Files& a, const Files& b) { return a == b; };
  /// Whether these files are one of those that a save which did not finish may leave.
  std::function<bool(const Files& files, const Files& before, const Files& after)> whole =
      [equal = same](const Files& files, const Files& before, const Files& after) {
        return files == before || equal(files, after);
      };
};

/// Whether this call tells, when it fails, that the bytes may not be where they should be: never to be passed over.
bool tells(const Calls& calls, std::size_t i) {
  const std::string_view name(calls[i].name);
  // A copy of the descriptor is closed to hear what some file systems say only then.
  const bool flushes = name == "close" && i > 0 && std::string_view(calls[i - 1].name) == "fcntl";
  return calls[i].data || calls[i].creates || flushes || name == "fsync" || name == "ftruncate" ||
         name.starts_with("rename");
}

/// Fails each call of the save once in each way, kills it once at each; returns the calls of a clean one.
Calls prove(const TempDir& dir, const Case& c) {
  const std::string folder = std::filesystem::canonical(dir.path()).string();
  const auto found = [&] {
    Files files = files_in(folder);
    for (const std::string& name : c.beside) CHECK(files.erase(name) == 1);
    return files;
  };
  const auto begin = [&] {
    for (const std::string& name : names_in(folder)) {
      if (!c.beside.contains(name)) std::filesystem::remove_all(folder + "/" + name);
    }
    for (const auto& [name, bytes] : c.before) {
      const std::string path = folder + "/" + name;
      name.ends_with('/') ? void(std::filesystem::create_directories(path)) : write_text(path, bytes);
    }
  };
  const auto without_temporaries = [](Files files) {
    std::erase_if(files, [](const auto& file) { return is_temporary(file.first); });
    return files;
  };
  const Files old = without_temporaries(c.before);

  begin();
  Calls calls;
  {
    const Watch watch(folder);
    const Status status = c.save(folder);
    REQUIRE_MESSAGE(status, why(status));
    calls = Watch::calls();
  }
  REQUIRE(!calls.empty());
  totals.calls += calls.size();
  const Files after = found();
  REQUIRE(without_temporaries(after) == after);
  REQUIRE(after != old);
  std::size_t placed = 0;  // the last call that gives a file its name
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (std::string_view(calls[i].name).starts_with("rename")) placed = i + 1;
  }
  REQUIRE(placed != 0);

  each_fault(calls, true, [&](const Spoiled& spoiled, const Call& call) {
    CAPTURE(spoiled.text());
    const std::string called = text_of(call);
    CAPTURE(called);
    begin();
    std::optional<Status> status;  // none where it was killed
    {
      const Watch watch(folder, spoiled);
      if (spoiled.kills()) {
        in_killed_child([&] { static_cast<void>(c.save(folder)); });
      } else {
        status = c.save(folder);
      }
    }
    ++(spoiled.kills() ? totals.kills : spoiled.fault == Fault::shorten ? totals.partial : totals.failures);
    Files now = found();
    if (status && spoiled.fault != Fault::fail_on) {
      // A leftover that was there may stay where looking for it went wrong, and the old folder where removing it did.
      const bool removing = *status && !c.before.empty() && spoiled.at > placed;
      for (const auto& [name, bytes] : now) {
        CHECK((!is_temporary(name) || (!spoiled.hidden() && (removing || c.before.contains(name)))));
      }
    }
    now = without_temporaries(std::move(now));
    if (!c.whole(now, old, after)) {
      ++totals.lost;
      FAIL_CHECK("neither the old nor the new");
    }
    if (status && *status) {
      CHECK(c.same(now, after));
      CHECK((spoiled.hidden() || !tells(calls, spoiled.at - 1)));
      if (spoiled.fault == Fault::fail_on) CHECK(spoiled.at > placed);
    } else if (status) {
      CHECK_MESSAGE(!spoiled.hidden(), why(*status));
      CHECK(status->error().code() == stele::Errc::io);
      CHECK(!status->error().file().empty());
      if (spoiled.at <= placed) CHECK(now != after);
    }
    const Watch watch(folder);  // so that no disk is waited for
    const bool tidied = status && !*status && spoiled.fault != Fault::fail_on;
    const Status next = tidied ? c.save_again(folder) : c.save_over(folder);
    CHECK_MESSAGE(next, why(next));
    CHECK(c.same(found(), after));
  });
  return calls;
}

/// A few tensors; `large`: more than is written at once, and more than room is taken for.
Mlp model(float first, bool large) {
  Mlp m = small_mlp(first);
  if (large) m.layers.emplace_back(400, 700, first, false);
  return m;
}

template <class R>
struct Situation {
  Situation(bool large, Durability durability) : now(model(1, large)), options(options_of(durability)) {
    path = dir / name;
    good(save(recorder, model(500, large), path, options));
    old = read_text(path);
    CHECK(image(good(recorder.template load<Mlp>(path))) == image(model(500, large)));
    good(save(recorder, now, path, options));
    CHECK(image(good(recorder.template load<Mlp>(path))) == image(now));
  }
  Calls prove(Files before, std::set<std::string> beside = {}) {
    return ::prove(dir,
                   {.before = std::move(before),
                    .save = [this](const std::string& in) { return save(recorder, now, in + "/" + name, options); },
                    .beside = std::move(beside)});
  }

  const std::string name = "model.bin";
  TempDir dir;
  R recorder;
  Mlp now;
  SaveOptions options;
  std::string path;
  std::string old;
};

/// Its files are written by the recorder that it is made of, which is in the list too.
template <class R>
inline constexpr bool in_memory = requires(const R& recorder, const Mlp& m) {
  recorder.record(m);
};

constexpr Durability both[] = {Durability::process, Durability::full};

std::size_t index_of(const Calls& calls, std::string_view name, std::string_view subject, std::size_t from = 0) {
  for (std::size_t i = from; i < calls.size(); ++i) {
    if (name == calls[i].name && std::string_view(calls[i].subject).find(subject) != std::string_view::npos) return i;
  }
  return calls.size();
}

/// What makes a save outlive a power loss: the bytes before the name, the name before the end.
void check_synced(const Calls& calls, const std::string& name) {
  const std::size_t renamed = index_of(calls, "renameat", "/" + name);
  REQUIRE(renamed < calls.size());
  const std::size_t synced = index_of(calls, "fsync", "/." + name);
  CHECK(synced < renamed);
  for (std::size_t i = synced; i < calls.size(); ++i) {
    CHECK_FALSE((calls[i].data && std::string_view(calls[i].subject).starts_with("/." + name)));
  }
  std::size_t folder = renamed + 1;
  while (folder < calls.size() &&
         (std::string_view(calls[folder].name) != "fsync" || calls[folder].subject[0] != '\0')) {
    ++folder;
  }
  CHECK(folder < calls.size());
}

}  // namespace

TEST_CASE_TEMPLATE("faults: a save to a new path", R, STELE_TEST_RECORDERS) {
  if constexpr (in_memory<R>) return;
  for (const Durability durability : both) {
    Situation<R> situation(false, durability);
    const Calls calls = situation.prove({});
    if (durability == Durability::full) check_synced(calls, situation.name);
    if (durability == Durability::process) CHECK(index_of(calls, "fsync", "") == calls.size());
  }
}

TEST_CASE_TEMPLATE("faults: a save over an old file, and beside what a killed one left", R, STELE_TEST_RECORDERS) {
  if constexpr (in_memory<R>) return;
  for (const Durability durability : both) {
    Situation<R> situation(false, durability);
    situation.prove({{situation.name, situation.old}});
    situation.prove({{situation.name, situation.old}, {leftover_of(situation.name), "half"}});
  }
}

TEST_CASE_TEMPLATE("faults: a save of more than one write", R, STELE_TEST_RECORDERS) {
  if constexpr (in_memory<R>) return;
  Situation<R> situation(true, Durability::full);
  situation.prove({{situation.name, situation.old}});
}

TEST_CASE_TEMPLATE("faults: a save beside another process that saves to the same path", R, STELE_TEST_RECORDERS) {
  if constexpr (in_memory<R>) return;
  Situation<R> situation(false, Durability::process);
  std::filesystem::remove(situation.path);
  Writer writer(situation.path, "of the other");
  const auto names = situation.dir.names();
  REQUIRE(names.size() == 1);
  situation.prove({{situation.name, situation.old}}, {names[0]});
  CHECK(writer.finish());
  CHECK(read_text(situation.path) == "of the other");
  CHECK(situation.dir.names() == std::vector<std::string>{situation.name});
}

TEST_CASE("faults: a sink that is written for long") {
  // Far enough that room is taken, given back, and the system asked to write out meanwhile.
  const TempDir dir;
  const std::string text(std::size_t{9} << 20, 'x');
  const Calls calls = prove(dir, {.before = {{"file", "old"}}, .save = [&](const std::string& folder) -> Status {
                                    STELE_TRY_ASSIGN(const auto sink, stele::file_sink(folder + "/file"));
                                    STELE_TRY(sink->reserve(text.size() + 10));
                                    STELE_TRY(sink->write(bytes_of(text)));
                                    return sink->commit();
                                  }});
  for (const char* name : {"fallocate", "ftruncate", "sync_file_range"})
    CHECK(index_of(calls, name, "") < calls.size());
}

namespace {

/// Sets of files: what a set is called, the recorder, and a file of it that comes right before the last.
template <class R>
void prove_shards(const R& recorder, const std::string& index, const std::string& last_shard, std::size_t count) {
  const SaveOptions options = options_of(Durability::full);
  SaveOptions over = options;
  over.file.allow_nonatomic = true;
  SaveOptions over_other = over;
  over_other.file.durability = Durability::process;
  over_other.metadata = {{"run", "2"}};  // so that no two files are the same
  const auto saving = [&](float first, const SaveOptions& how) {
    return [&recorder, &how, index, first](const std::string& folder) {
      return save(recorder, model(first, false), folder + "/" + index, how);
    };
  };
  const TempDir dir;
  const Calls calls = prove(dir, {.before = {},
                                  .save = saving(1, options),
                                  .save_over = saving(1, over),
                                  // An index only with all that it names: it comes last.
                                  .whole = [&](const Files& now, const Files&, const Files& all) {
                                    return now == all || !now.contains(index);
                                  }});
  CHECK(index_of(calls, "renameat", last_shard) < index_of(calls, "renameat", "/" + index));
  check_synced(calls, index);

  // Over another set there is no such promise, but one to say so, and to do it again.
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

TEST_CASE("faults: an archive that gets a tag, and that loses one") {
  const stele::ArchiveRecorder<> recorder;
  const Mlp first = model(1, true), second = model(500, true);
  const SaveOptions options = options_of(Durability::full);
  const TempDir made;
  good(recorder.record(first, made / "m.zip", options));
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

  // What is written anew is as large as is patched behind its bytes.
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

  // What is there is referred to; then the tag that has it goes, and all of it moves.
  const auto share = [&](const std::string& in) -> Status {
    STELE_TRY_ASSIGN(const stele::Checkpoint lazy, stele::open_archive(in + "/m.zip"));
    return edit(in, lazy, stele::ArchiveEdit::append);
  };
  // Where the system does not say which file it is, arrays are written again: that is no error.
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
