// Proves a save: fails each of its calls and kills it at each.
#pragma once

#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <set>

#include "harness.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

namespace stele_faults {

using namespace stele_test;
using stele::Durability;
using stele::SaveOptions;
using stele::Status;

inline SaveOptions options_of(Durability durability) {
  SaveOptions options;
  options.file.durability = durability;
  options.threads = 3;
  return options;
}

template <class R, class M>
Status save(const R& recorder, const M& model, const std::string& path, const SaveOptions& options) {
  auto report = recorder.save(model, path, options);
  if (!report) return std::move(report).error();
  return {};
}

/// Returns the name of a temporary file of a process that has ended.
inline std::string leftover_of(const std::string& name) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  return "." + name + ".stele-" + std::to_string(child) + "-7.tmp";
}

/// Returns true also for the files in a temporary folder.
inline bool is_temporary(const std::string& name) {
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
  /// Lets the process finish. Returns true if its save succeeded.
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
  std::set<std::string> beside{};                                           // of other programs; not touched
  /// Returns true if both sets of files have the same content.
  std::function<bool(const Files& a, const Files& b)> same = [](const Files& a, const Files& b) { return a == b; };
  /// Returns true if a save that did not finish may leave these files.
  std::function<bool(const Files& files, const Files& before, const Files& after)> whole =
      [equal = same](const Files& files, const Files& before, const Files& after) {
        return files == before || equal(files, after);
      };
};

/// Returns true if the save must not ignore a failure of this call: the bytes may not be in their place.
inline bool tells(const Calls& calls, std::size_t i) {
  const std::string_view name(calls[i].name);
  // A copy of the descriptor is closed because some file systems report errors only then.
  const bool flushes = name == "close" && i > 0 && std::string_view(calls[i - 1].name) == "fcntl";
  return calls[i].data || calls[i].creates || flushes || name == "fsync" || name == "ftruncate" ||
         name.starts_with("rename");
}

/// Fails each call of the save once in each way, kills it once at each; returns the calls of a clean one.
inline Calls prove(const TempDir& dir, const Case& c) {
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
    std::optional<Status> status;  // none if it was killed
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
      // An existing leftover may stay if the search for it failed, and the old folder if its removal failed.
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

/// Returns a few tensors; if `large`, more than is written at once, and more than space is reserved for.
inline Mlp model(float first, bool large) {
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
    return stele_faults::prove(
        dir, {.before = std::move(before),
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

/// True for a recorder into memory: the list also has the recorder of which it is made, which writes files.
template <class R>
constexpr bool in_memory = requires(const R& recorder, const Mlp& m) {
  recorder.save(m);
};

inline constexpr Durability both[] = {Durability::process, Durability::full};

inline std::size_t index_of(const Calls& calls, std::string_view name, std::string_view subject, std::size_t from = 0) {
  for (std::size_t i = from; i < calls.size(); ++i) {
    if (name == calls[i].name && std::string_view(calls[i].subject).find(subject) != std::string_view::npos) return i;
  }
  return calls.size();
}

/// Checks that a save outlives a power loss: the bytes are synced before the rename, the folder after it.
inline void check_synced(const Calls& calls, const std::string& name) {
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

}  // namespace stele_faults
