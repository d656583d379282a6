// A load that goes wrong at any of its calls is an error, and what it would have changed is as it was.
#include <stele/recorders/nnef.hpp>
#include <stele/recorders/paddle.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "harness.hpp"
#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

using namespace stele_faults;
using namespace stele_test;
using stele::LoadOptions;
using stele::Status;
using stele::Storage;

namespace {

/// Large enough to be read in several pieces, and unpacked by several threads.
Mlp model(float first) {
  Mlp m = small_mlp(first);
  m.layers.emplace_back(400, 700, first);
  return m;
}

/// Fails each call of `run` once in each way. `run` gives what came of it and checks what a load may leave.
template <class Run>
void prove(const std::string& folder, Run&& run) {
  Calls calls;
  {
    const Watch watch(folder);
    const Status status = run();
    REQUIRE_MESSAGE(status, why(status));
    calls = Watch::calls();
  }
  REQUIRE(!calls.empty());
  totals.calls += calls.size();
  each_fault(calls, false, [&](const Spoiled& spoiled, const Call& call) {
    CAPTURE(spoiled.text());
    const std::string called = text_of(call);
    CAPTURE(called);
    ++(spoiled.fault == Fault::shorten ? totals.partial : totals.failures);
    const Watch watch(folder, spoiled);
    const Status status = run();
    const bool closes = std::string_view(call.name) == "close";
    // A file that cannot be mapped is read.
    const bool maps = std::string_view(call.name) == "mmap";
    if (spoiled.hidden() || ((closes || maps) && spoiled.fault == Fault::fail)) {
      CHECK_MESSAGE(status, why(status));
    } else if (status && spoiled.fault == Fault::fail && std::string_view(call.name) == "pread") {
      // A read of more than one tensor, whose parts could be read afterwards. `run` has checked what came of it.
    } else if (!closes || !status) {
      REQUIRE(!status);
      CHECK(status.error().code() == stele::Errc::io);
      CHECK(status.error().file().starts_with(folder));
    }
  });
}

void prove_loads(const AnyRecorder& recorder, const std::string& name) {
  const TempDir dir;
  const std::string folder = std::filesystem::canonical(dir.path()).string();
  const std::string path = folder + "/" + name;
  good(recorder.save(model(1), path, quick()));
  const Image expected = image(model(1));
  const Image old = image(model(500));
  constexpr std::pair<Storage, unsigned> ways[] = {{Storage::owned, 1}, {Storage::owned, 3}, {Storage::mmap, 1}};
  for (const auto& [storage, threads] : ways) {
    LoadOptions options;
    options.storage = storage;
    options.threads = threads;
    prove(folder, [&]() -> Status {
      auto loaded = recorder.load<Mlp>(path, options);
      if (!loaded) return std::move(loaded).error();
      CHECK(image(*loaded) == expected);
      return {};
    });
    prove(folder, [&]() -> Status {
      auto verified = recorder.verify(path, options);
      return verified ? Status() : Status(std::move(verified).error());
    });
    for (const bool rebuild : {false, true}) {
      options.rebuild = rebuild;
      // `verifying` counts the reads of the verifying pass, which can be left out; the writing pass makes no more.
      const auto calls_of = [&](bool trust_data) {
        LoadOptions other = options;
        other.trust_data = trust_data;
        Mlp live = model(500);
        const Watch watch(folder);
        good(recorder.load_into(live, path, other));
        return Watch::calls().size();
      };
      const std::size_t verifying = calls_of(false) - calls_of(true);
      // JSON keeps the frame that it has read last, which here is all.
      if (!is_json_file(recorder)) CHECK((verifying != 0) == (storage == Storage::owned));
      std::size_t changed = 0;
      prove(folder, [&]() -> Status {
        Mlp live = model(500);
        auto loaded = recorder.load_into(live, path, options);
        if (loaded) {
          CHECK(image(live) == expected);
          return {};
        }
        if (loaded.error().partially_applied()) {
          ++changed;
          static_cast<void>(image(live));  // a module all the same
        } else {
          CHECK(image(live) == old);
        }
        return std::move(loaded).error();
      });
      CHECK((changed != 0) == (verifying != 0));
      CHECK(changed <= 3 * verifying);  // three errors; none before all was verified
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("faults: loads", R, STELE_TEST_RECORDERS, stele::GgufRecorder<>) {
  prove_loads(any_recorder<R>(), "model.bin");
}

TEST_CASE("faults: loads of shards") {
  const stele::ShardedSafetensorsFormat format(100);
  prove_loads(AnyRecorder(AnyFormat(format)), "m.safetensors.index.json");
}

TEST_CASE("faults: loads of folders") {
  const stele::NnefFormat nnef;
  prove_loads(AnyRecorder(AnyFormat(nnef)), "m.nnef");
  const stele::PaddleFormat paddle({.folder = true});
  prove_loads(AnyRecorder(AnyFormat(paddle)), "m.paddle");
}

TEST_CASE("faults: maps on systems with larger pages") {
  const TempDir dir;
  const std::string path = dir / "file";
  std::string text(300'000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761U >> 16U);
  write_text(path, text);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(file >= 0);
  for (const long page : {4096L, 16384L, 65536L}) {
    stele_faults_block()->page_bytes = page;
    for (const std::uint64_t offset : {0ULL, 8ULL, 4096ULL, 4097ULL, 20480ULL, 65536ULL, 70000ULL}) {
      CAPTURE(page);
      CAPTURE(offset);
      const auto source = good(stele::open_descriptor(file, {offset, 200'000}, true));
      const auto view = source->view();
      REQUIRE(view.size() == 200'000);  // it was mapped
      const std::string_view part(reinterpret_cast<const char*>(view.data()), view.size());
      CHECK(part == std::string_view(text).substr(static_cast<std::size_t>(offset), 200'000));
      std::byte* const last = source->writable_view({199'999, 1});
      REQUIRE(last != nullptr);
      *last = ~*last;
    }
    const auto model_path = dir / "m.safetensors";
    good(stele::SafetensorsRecorder<>().save(model(1), model_path, quick()));
    LoadOptions options;
    options.storage = Storage::mmap;
    CHECK(image(good(stele::SafetensorsRecorder<>().load<Mlp>(model_path, options))) == image(model(1)));
  }
  stele_faults_block()->page_bytes = 0;
  ::close(file);
  CHECK(read_text(path) == text);
}

TEST_CASE("faults: folders on a system without openat2") {
  namespace fs = std::filesystem;
  const TempDir dir;
  const std::string path = dir / "m.nnef";
  const stele::NnefRecorder<> recorder;
  stele_faults_block()->no_openat2 = true;
  good(recorder.save(model(1), path, quick()));
  CHECK(image(good(recorder.load<Mlp>(path))) == image(model(1)));
  const fs::path file = path + "/layers/0/weight.dat";
  REQUIRE(fs::exists(file));
  fs::rename(file, dir / "weight.dat");
  fs::create_symlink(dir / "weight.dat", file);
  CHECK(bad(recorder.load<Mlp>(path)).code() == stele::Errc::io);
  fs::remove(file);
  fs::rename(dir / "weight.dat", file);
  fs::rename(path + "/layers", dir / "layers");
  fs::create_directory_symlink(dir / "layers", path + "/layers");
  CHECK(!recorder.load<Mlp>(path));
  stele_faults_block()->no_openat2 = false;
}
