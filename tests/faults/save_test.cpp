// A save that goes wrong at any of its calls leaves the whole old file or the whole new one, and no litter.
#include <stele/recorders/archive.hpp>
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

bool is_temporary(const std::string& name) { return name.find(".stele-") != name.npos && name.ends_with(".tmp"); }

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
  std::function<Status(const std::string& folder)> save_again = save;  // after one that did not finish
  std::set<std::string> beside{};                                      // of others; nobody touches them
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
      if (!c.beside.contains(name)) std::filesystem::remove(folder + "/" + name);
    }
    for (const auto& [name, bytes] : c.before) write_text(folder + "/" + name, bytes);
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
      // A leftover that was there may stay where looking for it went wrong.
      for (const auto& [name, bytes] : now) {
        CHECK((!is_temporary(name) || (!spoiled.hidden() && c.before.contains(name))));
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
    const Status next = c.save_again(folder);
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
    CHECK(image(good(recorder.template load_module<Mlp>(path))) == image(model(500, large)));
    good(save(recorder, now, path, options));
    CHECK(image(good(recorder.template load_module<Mlp>(path))) == image(now));
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

TEST_CASE("faults: shards") {
  const std::string index = "m.safetensors.index.json";
  const stele::ShardedSafetensorsRecorder<> recorder(stele::ShardedSafetensorsFormat(50));
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
                                  .save_again = saving(1, over),
                                  // An index only with all that it names: it comes last.
                                  .whole = [&](const Files& now, const Files&, const Files& all) {
                                    return now == all || !now.contains(index);
                                  }});
  CHECK(index_of(calls, "renameat", "-00003-of-00003.safetensors") < index_of(calls, "renameat", "/" + index));
  check_synced(calls, index);

  // Over another set there is no such promise, but one to say so, and to do it again.
  const Files old = files_in(dir.path());
  REQUIRE(old.size() == 4);
  CHECK(code_of(saving(500, options)(dir.path())) == stele::Errc::exists);
  CHECK(files_in(dir.path()) == old);
  prove(dir,
        {.before = old,
         .save = saving(500, over_other),
         .whole = [](const Files& now, const Files& before, const Files&) { return now.size() == before.size(); }});
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
  CHECK(image(good(recorder.load_module<Mlp>(removed / "m.zip"))) == image(first));
}
