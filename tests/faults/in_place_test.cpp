// Deltas that are applied in place, with each call of the system failing, cut short, or the last one of the process.
#include <stele/delta.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/binary.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "harness.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace stele;
using namespace stele_faults;
using stele_test::TempDir;
using Weights = std::map<std::string, std::vector<float>>;

std::string bytes_of(const std::string& path) {
  std::string bytes(std::filesystem::file_size(path), '\0');
  std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

TEST_SUITE_BEGIN("faults");

TEST_CASE("a delta in place: whatever fails, the file is or becomes the new version, or stays the old one") {
  const TempDir dir;
  Weights weights{{"a", std::vector<float>(700'000, 1.0F)}, {"b", std::vector<float>(10, 2.0F)}};
  const std::string old_path = dir / "old.safetensors", new_path = dir / "new.safetensors";
  save(weights, old_path).value();
  for (std::size_t i = 0; i < 700'000; i += 1000) weights["a"][i] = 3;
  weights["b"][9] = 4;
  save(weights, new_path).value();
  const std::vector<std::string> deltas{dir / "delta.stele"};
  save(make_delta(stele::open(old_path).value(), stele::open(new_path).value()).value(), deltas[0],
       {.format = CompressedSteleFormat()})
      .value();
  const std::string before = bytes_of(old_path), after = bytes_of(new_path);
  const std::string folder = dir / "run";
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/model.safetensors", journal = path + ".stele-journal";
  LoadOptions options;
  options.threads = 1;
  const auto apply = [&] { return apply_in_place(path, deltas, options); };
  const auto restore = [&] {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    std::ofstream(path, std::ios::binary) << before;
  };

  restore();
  Calls calls;
  {
    const Watch watch(folder);
    apply().value();
    calls = Watch::calls();
  }
  CHECK(bytes_of(path) == after);
  CHECK(files_in(folder).size() == 1);
  CHECK(calls.size() > 15);
  totals.calls += calls.size();
  std::size_t mixtures = 0;
  each_fault(calls, true, [&](const Spoiled& spoiled, const Call& call) {
    CAPTURE(spoiled.text());
    CAPTURE(text_of(call));
    restore();
    bool done = false;
    if (spoiled.kills()) {
      in_killed_child([&] {
        const Watch watch(folder, spoiled);
        static_cast<void>(apply());
      });
      ++totals.kills;
    } else {
      const Watch watch(folder, spoiled);
      done = apply().has_value();
      ++totals.failures;
      if (spoiled.hidden()) CHECK(done);
    }
    const std::string now = bytes_of(path);
    if (done) CHECK(now == after);
    const bool waiting = std::filesystem::exists(journal);
    if (!waiting) CHECK((now == before || now == after));
    CHECK(stele::open(path).has_value() == !waiting);  // a mixture is never read
    CHECK_FALSE((done && waiting));
    mixtures += now != before && now != after ? 1 : 0;
    if (now == after && !waiting) return;
    // Both complete the change; the deltas also make it.
    const auto again = waiting && spoiled.at % 2 == 0 ? apply_in_place(path, {}, options) : apply();
    REQUIRE_MESSAGE(again, again.error().to_string());
    CHECK(*again);
    CHECK(bytes_of(path) == after);
    CHECK_FALSE(apply().value());  // is that version already
    CHECK(files_in(folder).size() == 1);
  });
  CHECK(mixtures > 0);
}

TEST_SUITE_END();

}  // namespace
