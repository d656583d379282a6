// Odd places to save to and load from, by every recorder: files that change meanwhile, full and read-only disks, FIFOs,
// names that are too long, several processes at a time. file_sink_test.cpp tests the sink alone.
#include <stele/stele.hpp>

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/child.hpp"
#include "support/left_out.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_dir.hpp"

namespace targets_test {

namespace {

using namespace stele;
using namespace stele_test;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;

/// Returns a model of some hundred KiB, so that it is read and written in several pieces.
Mlp model(float first) {
  Mlp m = small_mlp(first);
  m.layers.emplace_back(300, 500, first);
  return m;
}

/// Runs `f` in a child process on a small disk of its own. Returns false if the system permits no mount.
template <class F>
bool on_small_disk(std::string& problem, F&& f) {
  const TempDir dir;
  problem = in_child([&]() -> std::string {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=900k") != 0) {
      return "no disk";
    }
    return f(dir.path());
  });
  if (problem != "no disk") return true;
  left_out("nothing can be mounted here");
  return false;
}

}  // namespace

STELE_TEST_EACH_RECORDER("targets: a file that shrinks or changes while it is open") {
  const TempDir dir;
  const std::string path = dir / "model.bin";
  good(recorder.save(model(1), path, quick()));
  const auto size = fs::file_size(path);
  const Image before = image(model(5));
  for (const auto less : {size - 1, size / 2, std::uintmax_t{0}}) {
    CAPTURE(less);
    good(recorder.save(model(1), path, quick()));
    const Snapshot snapshot = good(recorder.open(path));
    fs::resize_file(path, less);
    Mlp live = model(5);
    const auto loaded = load_into(live, snapshot);
    if (less < size - 1) CHECK(code_of(loaded) == Errc::truncated);
    if (!loaded) CHECK(image(live) == before);
    CHECK(!recorder.verify(path));
  }
  {
    good(recorder.save(model(1), path, quick()));
    const Snapshot snapshot = good(recorder.open(path));
    write_text(path, std::string(size, '\x55'));  // into the same file
    Mlp live = model(5);
    const auto loaded = load_into(live, snapshot);
    // Burnpack has zeros between its tensors, which are checked.
    const bool padded = dynamic_cast<const BurnpackFormat*>(&recorder.format().target()) != nullptr;
    CHECK(loaded.has_value() == (!can(recorder).checksums && !is_json_file(recorder) && !padded));
    if (!loaded) CHECK(image(live) == before);
  }
}

TEST_CASE("targets: a mapped file that shrinks ends the process that reads what is gone") {
  if (sanitizers) return;  // they take the signal
  const TempDir dir;
  const std::string path = dir / "model.stele";
  good(BinaryRecorder<>().save(model(1), path, quick()));
  LoadOptions viewing;
  viewing.storage = Storage::mmap;
  const auto lost = in_child([&]() -> std::string {
    const Mlp views = good(BinaryRecorder<>().load<Mlp>(path, viewing));
    fs::resize_file(path, 0);
    return image(views) == image(model(1)) ? "the same" : "others";
  });
  CHECK(lost == " (the child died: " + std::to_string(SIGBUS) + ")");
  // A model with memory of its own is not affected.
  good(BinaryRecorder<>().save(model(1), path, quick()));
  const Mlp owned = good(BinaryRecorder<>().load<Mlp>(path));
  fs::resize_file(path, 0);
  CHECK(image(owned) == image(model(1)));
}

STELE_TEST_EACH_RECORDER("targets: a file that is replaced while it is open or mapped") {
  const TempDir dir;
  const std::string path = dir / "model.bin";
  good(recorder.save(model(1), path, quick()));
  LoadOptions viewing;
  viewing.storage = Storage::mmap;
  const Snapshot snapshot = good(recorder.open(path));
  const Mlp views = good(recorder.load<Mlp>(path, viewing));
  good(recorder.save(model(2), path, quick()));
  CHECK(image(views) == image(model(1)));
  CHECK(image(good(load<Mlp>(snapshot))) == image(model(1)));
  CHECK(image(good(recorder.load<Mlp>(path))) == image(model(2)));
  fs::remove(path);
  CHECK(image(views) == image(model(1)));
}

STELE_TEST_EACH_RECORDER("targets: saved over the file that it is read from, at another precision") {
  const auto half = at_precision_of<BrainPrecision>(recorder);
  const TempDir dir;
  const std::string path = dir / "model.bin";
  for (const Storage storage : {Storage::owned, Storage::mmap}) {
    LoadOptions options;
    options.storage = storage;
    good(recorder.save(model(1), path, quick()));
    const Snapshot snapshot = good(recorder.open(path, options));
    good(half.save(snapshot, path, quick()));
    CHECK(dir.names() == Names{"model.bin"});
    const Snapshot now = good(recorder.open(path));
    CHECK(now.leaf(0).dtype() == DType::bf16);
    const auto expected = saved(half, model(1));
    REQUIRE_MESSAGE(expected, why(expected));
    CHECK(image(good(load<Mlp>(now))) == image(good(recorder.load<Mlp>(*expected))));
    // A snapshot that was opened before is unchanged.
    CHECK(image(good(load<Mlp>(snapshot))) == image(model(1)));
  }
}

STELE_TEST_EACH_RECORDER("targets: a full disk") {
  std::string problem;
  const bool done = on_small_disk(problem, [&](const std::string& folder) -> std::string {
    const std::string path = folder + "/model.bin";
    Mlp large = model(1);
    // Numbers that do not compress.
    std::uint32_t state = 1;
    for (float& x : *large.layers.back().weight) x = static_cast<float>(state = state * 1664525U + 1013904223U);
    for (const Durability durability : {Durability::process, Durability::full}) {
      SaveOptions options;
      options.file.durability = durability;
      // There is room for one, not for two.
      fs::remove(path);
      if (const auto r = recorder.save(large, path, options); !r) return "the first: " + why(r);
      const std::string before = read_text(path);
      const auto second = recorder.save(large, path, options);
      if (code_of(second) != Errc::io) return "the second: " + why(second);
      if (second.error().message().find("No space") == std::string::npos) return why(second);
      if (read_text(path) != before) return "the old file has changed";
      if (names_in(folder) != Names{"model.bin"}) return "litter";
      if (const auto r = recorder.save(small_mlp(), path, options); !r) return "a small one: " + why(r);
    }
    return {};
  });
  if (done) CHECK(problem == "");
}

STELE_TEST_EACH_RECORDER("targets: a read-only disk") {
  std::string problem;
  const bool done = on_small_disk(problem, [&](const std::string& folder) -> std::string {
    const std::string path = folder + "/model.bin";
    if (const auto r = recorder.save(small_mlp(1), path); !r) return why(r);
    if (::mount(nullptr, folder.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) return "cannot be remounted";
    for (const char* name : {"/model.bin", "/new.bin"}) {
      const auto r = recorder.save(small_mlp(2), folder + name);
      if (code_of(r) != Errc::io) return why(r);
    }
    const auto loaded = recorder.load<Mlp>(path);
    if (!loaded) return why(loaded);
    if (loaded->scale[0] != 1) return "another file";
    return names_in(folder) == Names{"model.bin"} ? "" : "litter";
  });
  if (done) CHECK(problem == "");
}

STELE_TEST_EACH_RECORDER("targets: FIFOs and devices") {
  const TempDir dir;
  const std::string path = dir / "fifo";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  std::string got;
  std::thread reader([&] { got = read_text(path); });
  const auto report = recorder.save(model(1), path);
  reader.join();
  REQUIRE_MESSAGE(report, why(report));
  const auto expected = saved(recorder, model(1));
  REQUIRE(expected);
  CHECK(got == text_of(expected->span()));
  CHECK(dir.names() == Names{"fifo"});
  CHECK(fs::is_fifo(path));

  const auto full = recorder.save(model(1), "/dev/full");
  CHECK(code_of(full) == Errc::io);
  CHECK(code_of(recorder.load<Mlp>(path)) == Errc::io);  // no waiting
  CHECK(code_of(recorder.load<Mlp>("/dev/zero")) == Errc::io);
}

STELE_TEST_EACH_RECORDER("targets: names that are too long") {
  const TempDir dir;
  const std::size_t extension = recorder.format().extension().size();
  // The longest that takes an extension, and one more.
  good(recorder.save(small_mlp(1), dir / std::string(255 - extension, 'n'), quick()));
  CHECK(recorder.load<Mlp>(dir / std::string(255 - extension, 'n')));
  CHECK(code_of(recorder.save(small_mlp(1), dir / std::string(256 - extension, 'n'), quick())) == Errc::io);
  CHECK(code_of(recorder.load<Mlp>(dir / std::string(256 - extension, 'n'))) == Errc::io);
  CHECK(code_of(recorder.save(small_mlp(1), dir / std::string(10000, 'n'), quick())) == Errc::io);
  CHECK(dir.names().size() == 1);
}

STELE_TEST_EACH_RECORDER("targets: two processes save to one path") {
  const TempDir dir;
  const std::string path = dir / "model.bin";
  good(recorder.save(model(1), path, quick()));
  std::vector<pid_t> children;
  for (const float first : {1.F, 2.F}) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      SaveOptions options = quick();
      options.threads = 1;
      const Mlp mine = model(first);
      bool fine = true;
      for (int i = 0; i < 30; ++i) fine = recorder.save(mine, path, options) && fine;
      ::_exit(fine ? 0 : 1);
    }
    children.push_back(child);
  }
  const Image one = image(model(1));
  const Image two = image(model(2));
  while (!children.empty()) {
    const Image now = image(good(recorder.load<Mlp>(path)));
    CHECK((now == one || now == two));
    int status = 0;
    const pid_t child = ::waitpid(children.back(), &status, WNOHANG);
    if (child == 0) continue;
    CHECK(child == children.back());
    CHECK(status == 0);
    children.pop_back();
  }
  CHECK(dir.names() == Names{"model.bin"});
}

}  // namespace targets_test
