// A save that fails at any of its calls leaves the whole old file or the whole new one, and no temporary file.
#include <stele/bundle.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include "harness.hpp"
#include "support/recorders.hpp"

#include "save_proof.hpp"

using namespace stele_faults;
using namespace stele_test;
using stele::Durability;
using stele::SaveOptions;
using stele::Status;

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
