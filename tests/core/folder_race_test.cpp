// A folder that is loaded and saved by several processes at a time: each load gets one model whole.
#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/nnef.hpp>
#include <stele/recorders/paddle.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "support/child.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace folder_race_test {

using namespace stele_test;
using stele::Errc;
using stele::Status;
namespace fs = std::filesystem;

namespace {

struct RaceLayer {
  std::vector<float> weight;
  std::optional<std::vector<float>> bias;
};
struct RaceModel {
  std::vector<RaceLayer> layers;
};

// More files than are kept open (64), and fewer.
constexpr std::size_t many = 40;
constexpr std::size_t few = 3;
constexpr int saves = 60;
constexpr int loads = 40;

RaceModel race_model(float number, std::size_t layers) {
  RaceModel model;
  model.layers.assign(layers, {std::vector<float>(100, number), std::vector<float>(10, number)});
  return model;
}

/// Returns the fault of a model that was loaded; empty if there is none.
std::string fault_of(const RaceModel& model, std::size_t layers) {
  if (model.layers.size() != layers) return std::to_string(model.layers.size()) + " layers";
  for (const RaceLayer& layer : model.layers) {
    if (!layer.bias) return "a bias is gone";
    for (const std::vector<float>* numbers : {&layer.weight, &*layer.bias}) {
      for (const float number : *numbers) {
        if (number != model.layers[0].weight[0]) return "a mixed model";
      }
    }
  }
  return {};
}

struct NnefPlain : stele::Recorder<stele::NnefFormat> {
  NnefPlain() : Recorder(stele::NnefFormat(stele::NnefOptions{.graph = false})) {}
};
struct PaddleFolder : stele::Recorder<stele::PaddleFormat> {
  PaddleFolder() : Recorder(stele::PaddleFormat({.folder = true})) {}
};
#define STELE_TEST_FOLDER_RECORDERS stele::NnefRecorder<>, NnefPlain, PaddleFolder

/// A process that runs `f`, which returns what went wrong. Its verdict is the exit status.
template <class F>
pid_t begin(F f) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child != 0) return child;
  const std::string wrong = f();
  if (!wrong.empty()) static_cast<void>(::write(2, (wrong + "\n").data(), wrong.size() + 1));
  ::_exit(wrong.empty() ? 0 : 1);
}

void check_ended(pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

/// Saves again and again until it is killed, or `times`.
template <class R>
std::string save_often(const std::string& path, std::size_t layers, float first, int times) {
  const R recorder;
  for (int i = 0; i < times; ++i) {
    const auto saved = recorder.save(race_model(first + static_cast<float>(i), layers), path, quick());
    if (!saved) return "save: " + saved.error().to_string();
  }
  return {};
}

}  // namespace

TEST_CASE_TEMPLATE("folder race: loads beside a save", R, STELE_TEST_FOLDER_RECORDERS) {
  for (const std::size_t layers : {few, many}) {
    const TempDir dir;
    const std::string path = dir / "m.nnef";
    good(R().save(race_model(0, layers), path, quick()));
    const pid_t saver = begin([&] { return save_often<R>(path, layers, 1, 1'000'000); });
    const pid_t loader = begin([&]() -> std::string {
      const R recorder;
      RaceModel live = race_model(0, layers);
      for (int i = 0; i < loads; ++i) {
        const auto loaded = recorder.template load<RaceModel>(path);
        if (!loaded) return "load: " + loaded.error().to_string();
        if (auto fault = fault_of(*loaded, layers); !fault.empty()) return "load: " + fault;
        const auto sniffed = stele::load<RaceModel>(path);
        if (!sniffed) return "load: " + sniffed.error().to_string();
        if (auto fault = fault_of(*sniffed, layers); !fault.empty()) return "load: " + fault;
        const auto applied = recorder.load_into(live, path);
        if (!applied) return "load_into: " + applied.error().to_string();
        if (auto fault = fault_of(live, layers); !fault.empty()) return "load_into: " + fault;
        const auto verified = recorder.verify(path);
        if (!verified) return "verify: " + verified.error().to_string();
      }
      return {};
    });
    check_ended(loader);
    // It is still at work: it ends by this.
    REQUIRE(::kill(saver, SIGKILL) == 0);
    int status = 0;
    REQUIRE(::waitpid(saver, &status, 0) == saver);
    CHECK(WIFSIGNALED(status));
  }
}

TEST_CASE_TEMPLATE("folder race: several savers", R, STELE_TEST_FOLDER_RECORDERS) {
  const TempDir dir;
  for (const bool there : {false, true}) {
    const std::string path = dir / (there ? "old.nnef" : "new.nnef");
    if (there) good(R().save(race_model(0, few), path, quick()));
    std::vector<pid_t> savers;
    for (int i = 0; i < 3; ++i) {
      savers.push_back(begin([&] { return save_often<R>(path, few, static_cast<float>(1000 * i), saves); }));
    }
    for (const pid_t saver : savers) check_ended(saver);
    CHECK(fault_of(good(R().template load<RaceModel>(path)), few) == "");
  }
  CHECK(dir.names() == std::vector<std::string>{"new.nnef", "old.nnef"});
}

TEST_CASE_TEMPLATE("folder race: a folder without a model", R, STELE_TEST_FOLDER_RECORDERS) {
  const TempDir dir;
  const R recorder;
  fs::create_directory(dir / "empty");
  CHECK(bad(recorder.template load<RaceModel>(dir / "empty")).code() == Errc::missing);
  CHECK(bad(stele::load<RaceModel>(dir / "empty")).code() == Errc::bad_magic);
  // A model without tensors saves so that it opens, or not at all.
  const auto saved = recorder.save(RaceModel(), dir / "none.nnef", quick());
  if (saved) {
    CHECK(good(recorder.template load<RaceModel>(dir / "none.nnef")).layers.empty());
    CHECK(good(stele::load<RaceModel>(dir / "none.nnef")).layers.empty());
  } else {
    CHECK(saved.error().code() == Errc::not_representable);
    CHECK(!fs::exists(dir / "none.nnef"));
  }
}

TEST_CASE("folder race: a folder that was opened before it was replaced") {
  const TempDir dir;
  const std::string path = dir / "m.nnef";
  const stele::NnefRecorder<> recorder;
  good(recorder.save(race_model(1, few), path, quick()));
  const stele::SourcePtr source = good(stele::open_folder(path));
  CHECK(fault_of(good(recorder.load<RaceModel>(source)), few) == "");
  good(recorder.save(race_model(2, few), path, quick()));
  const stele::Error error = bad(recorder.load<RaceModel>(source));
  CHECK(error.code() == Errc::io);
  CHECK(error.message() == "the folder was replaced while it was read");
  CHECK(error.file() == path);
}

TEST_CASE("folder race: links that lead out of a folder") {
  const TempDir dir;
  const std::string path = dir / "m.nnef";
  const stele::NnefRecorder<> recorder;
  const std::string outside = dir / "outside.nnef";
  good(recorder.save(race_model(1, few), path, quick()));
  good(recorder.save(race_model(2, few), outside, quick()));
  const auto put_link = [&](const std::string& to) {
    fs::remove(path + "/layers/0/weight.dat");
    fs::create_symlink(to, path + "/layers/0/weight.dat");
  };
  for (const std::string& to :
       {outside + "/layers/0/weight.dat", std::string("../../../outside.nnef/layers/0/weight.dat")}) {
    put_link(to);
    const stele::Error error = bad(recorder.load<RaceModel>(path));
    CHECK(error.code() == Errc::io);
    CHECK(error.message().find("leads out of the folder") != std::string::npos);
    // Nothing is written through one either.
    stele::SaveOptions into = quick();
    into.file.allow_nonatomic = true;
    CHECK(bad(recorder.save(race_model(3, few), path, into)).code() == Errc::io);
    CHECK(fault_of(good(recorder.load<RaceModel>(outside)), few) == "");
    CHECK(good(recorder.load<RaceModel>(outside)).layers[0].weight[0] == 2);
  }
  // Such a link is not the recorder's own.
  CHECK(bad(recorder.save(race_model(1, few), path, quick())).code() == Errc::exists);
  fs::remove_all(path);
  good(recorder.save(race_model(1, few), path, quick()));
  put_link("../1/weight.dat");
  CHECK(fault_of(good(recorder.load<RaceModel>(path)), few) == "");
  // A folder on the way.
  fs::rename(path + "/layers", dir / "layers");
  fs::create_directory_symlink(dir / "layers", path + "/layers");
  CHECK(bad(recorder.load<RaceModel>(path)).code() == Errc::io);
  // The folder itself may be a link.
  fs::create_directory_symlink(outside, dir / "link");
  CHECK(good(recorder.load<RaceModel>(dir / "link")).layers[0].weight[0] == 2);
}

}  // namespace folder_race_test
