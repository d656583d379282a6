// The steps of a distributed run in a store of objects, which is in process 0.
#include <doctest/doctest.h>
#include <stele/remote.hpp>

#include <condition_variable>
#include <set>

#include "mpi/support.hpp"
#include "support/http_store.hpp"

namespace {

using namespace mpi_test;
using stele_test::HttpServer;
using stele_test::HttpStore;
using Request = HttpServer::Request;

constexpr const char* run_url = "s3://bucket/run";

struct Served {
  HttpStore store;
  std::function<bool(const Request&)> refuses;        // answers with 400
  std::function<void(const Request&)> before, after;  // called before and after a request is carried out
  std::mutex mutex;
  HttpServer server{[this](const Request& request) {
    std::function<void(const Request&)> first, last;
    {
      const std::lock_guard lock(mutex);
      if (refuses && refuses(request)) return HttpServer::Response{.status = 400};
      first = before;
      last = after;
    }
    if (first) first(request);
    HttpServer::Response answer = store.answer(request);
    if (last) last(request);
    return answer;
  }};
};

/// The store; its members are used in process 0 only.
class SharedStore {
 public:
  SharedStore() {
    char url[100] = "";
    if (rank_of(MPI_COMM_WORLD) == 0) {
      served_ = std::make_unique<Served>();
      std::snprintf(url, sizeof url, "%s", served_->server.url("").c_str());
    }
    MPI_Bcast(url, sizeof url, MPI_CHAR, 0, MPI_COMM_WORLD);
    remote::Options options;
    options.endpoint = url;
    options.credentials = remote::Credentials{"K", "s"};
    options.first_wait = std::chrono::milliseconds(1);
    options.part_bytes = std::uint64_t{5} << 20;
    remote::set_defaults(options);
  }
  SharedStore(const SharedStore&) = delete;
  SharedStore& operator=(const SharedStore&) = delete;
  ~SharedStore() {
    remote::set_defaults({});  // closes the connections
    MPI_Barrier(MPI_COMM_WORLD);
  }
  Served* operator->() { return served_.get(); }
  /// Sets the requests that are refused, in process 0.
  void refuse(std::function<bool(const Request&)> which) {
    on_root([&] {
      const std::lock_guard lock(served_->mutex);
      served_->refuses = std::move(which);
    });
  }
  /// Returns the keys below the run, without this prefix.
  std::vector<std::string> keys() {
    constexpr std::string_view prefix = "/bucket/run/";
    std::vector<std::string> found;
    for (const auto& object : served_->store.objects) found.push_back(object.first.substr(prefix.size()));
    return found;
  }

 private:
  std::unique_ptr<Served> served_;
};

mpi::CheckpointManager manager_of(MPI_Comm comm, ManagerOptions manager = {}, const mpi::Options& options = quick()) {
  auto opened = mpi::CheckpointManager::open(run_url, comm, std::move(manager), options);
  REQUIRE_MESSAGE(opened, why(opened));
  return *std::move(opened);
}

struct Weights {
  Sharded<float> layer;
};
Weights weights(MPI_Comm comm, float value, Cut cut = Cut::rows, const Shape& shape = {64, 16}) {
  Weights made{box_of<float>(shape, cut, rank_of(comm), size_of(comm))};
  made.layer.fill(value);
  return made;
}
/// Returns the value of the newest step, loaded by all processes; 0 if there is no step.
float newest(MPI_Comm comm, const Shape& shape = {64, 16}) {
  auto manager = manager_of(comm);
  Weights loaded = weights(comm, 0, Cut::columns, shape);
  const auto resumed = manager.resume(loaded);
  REQUIRE_MESSAGE(resumed, why(resumed));
  if (*resumed) CHECK((*resumed)->skipped.empty());
  float value = 0;
  for (const float x : loaded.layer.local()) value = x;
  float largest = 0;
  MPI_Allreduce(&value, &largest, 1, MPI_FLOAT, MPI_MAX, comm);
  for (const float x : loaded.layer.local()) CHECK(x == largest);
  return largest;
}

TEST_CASE("a store: steps are saved by all, resumed by fewer, opened by one, kept and removed") {
  SharedStore store;
  const int world = size_of(MPI_COMM_WORLD);
  {
    auto manager = manager_of(MPI_COMM_WORLD, {.keep = keep::latest(2)});
    Model nothing = placed(Cut::rows, MPI_COMM_WORLD);
    CHECK_FALSE(manager.resume(nothing).value());
    const Model model = filled(Cut::rows, MPI_COMM_WORLD), moments = filled(Cut::columns, MPI_COMM_WORLD);
    for (const std::int64_t step : {5, 10, 10, 15}) {
      const auto saved = manager.save(step, model, {{{"loss", 0.5}}, {}}, StateKind("M", moments));
      REQUIRE_MESSAGE(saved, why(saved));
      CHECK(saved->info.step == step);
      CHECK_FALSE(saved->not_removed);
    }
  }
  for (int readers = 1; readers <= world; readers += 2) {
    const First loading(readers);
    if (!loading) continue;
    auto manager = manager_of(*loading);
    Model model = placed(Cut::grid, *loading), moments = placed(Cut::rows, *loading);
    const auto resumed = manager.resume(model, StateKind("M", moments));
    REQUIRE_MESSAGE(resumed, why(resumed));
    REQUIRE(*resumed);
    CHECK((*resumed)->info.step == 15);
    CHECK((*resumed)->info.folder == "s3://bucket/run/step-00000015");
    CHECK(is_filled(model));
    moments.count = 77;  // a value, which is no optimizer state
    CHECK(is_filled(moments));
  }
  Model part = placed(Cut::uneven, MPI_COMM_WORLD);
  const auto opened_by_one = [&] {
    const auto manager = CheckpointManager::open(run_url, ShardedSafetensorsRecorder<>()).value();
    const auto steps = manager.steps();
    REQUIRE_MESSAGE(steps, why(steps));
    REQUIRE(steps->size() == 2);
    CHECK((*steps)[0].step == 10);
    CHECK(manager.verify(15));
    Model model = placed(Cut::replicated, MPI_COMM_SELF);
    const auto resumed = manager.resume(model);
    REQUIRE_MESSAGE(resumed, why(resumed));
    CHECK(is_filled(model));
  };
  on_root([&] {
    opened_by_one();
    // Nothing of the removed and the replaced steps is left: each step has a manifest, and files of one save.
    std::set<std::string> folders;
    for (const std::string& key : store.keys()) folders.insert(key.substr(0, key.find('/', key.find('/') + 1)));
    CHECK(folders.size() == 4);
  });
  // The folder of the parameters is a checkpoint of its own.
  std::string folder(100, '\0');
  on_root([&] {
    for (const std::string& key : store.keys()) {
      if (key.ends_with("/parameters/stele-shards.json")) folder = key.substr(0, key.rfind('/'));
    }
  });
  folder.resize(100);
  MPI_Bcast(folder.data(), 100, MPI_CHAR, 0, MPI_COMM_WORLD);
  const auto loaded = mpi::load_into(part, run_url + std::string("/") + folder.c_str(), MPI_COMM_WORLD, quick());
  CHECK_MESSAGE(loaded, why(loaded));
  CHECK(is_filled(part));
}

TEST_CASE("a store: what needs a folder is refused") {
  SharedStore store;
  const Weights model = weights(MPI_COMM_WORLD, 1);
  CHECK(code_of(mpi::save(model, "s3://bucket/model", MPI_COMM_WORLD, quick())) == Errc::unsupported);
  mpi::Options files = quick();
  files.files = 1;
  auto manager = manager_of(MPI_COMM_WORLD, {}, files);
  CHECK(code_of(manager.save(1, model, {})) == Errc::unsupported);
  CHECK(code_of(mpi::CheckpointManager::open("https://127.0.0.1/run", MPI_COMM_WORLD, {}, quick())) ==
        Errc::unsupported);
  on_root([&] { CHECK(store.keys().empty()); });
}

TEST_CASE("a store: the failure of one process is that of all, and leaves nothing") {
  SharedStore store;
  const int size = size_of(MPI_COMM_WORLD);
  const std::string last = "/shard-0000" + std::to_string(size);
  auto manager = manager_of(MPI_COMM_WORLD);
  REQUIRE(manager.save(1, weights(MPI_COMM_WORLD, 1), {}));
  const auto fails = [&](std::function<bool(const Request&)> which, const Shape& shape = {64, 16}) {
    std::size_t before = 0;
    on_root([&] { before = store.keys().size(); });
    store.refuse(std::move(which));
    const auto saved = manager.save(2, weights(MPI_COMM_WORLD, 2, Cut::rows, shape), {});
    store.refuse(nullptr);
    CHECK_FALSE(saved);
    int code = static_cast<int>(code_of(saved)), of_root = code;
    MPI_Bcast(&of_root, 1, MPI_INT, 0, MPI_COMM_WORLD);
    CHECK(code == of_root);
    MPI_Barrier(MPI_COMM_WORLD);
    on_root([&] {
      CHECK(store.keys().size() == before);
      CHECK(store->store.uploads.empty());
    });
    CHECK(newest(MPI_COMM_WORLD) == 1);
  };
  // The file of the last process: when it is written, and when its version is asked for.
  for (const char* method : {"PUT", "HEAD"}) {
    fails([&](const Request& request) {
      return request.method == method && request.path.find(last) != std::string::npos;
    });
  }
  fails([](const Request& request) { return request.path.ends_with("stele-shards.json"); });
  // A part of a large file of the last process.
  const auto rows = static_cast<Extent>(size) * 1536;
  fails([&](const Request& request) { return request.query.starts_with("partNumber=2&"); }, {rows, 1024});
  fails(
      [&](const Request& request) {
        return request.query.starts_with("uploadId=") && request.method == "POST" &&
               request.path.find(last) != std::string::npos;
      },
      {rows, 1024});
  REQUIRE(manager.save(2, weights(MPI_COMM_WORLD, 2, Cut::rows, {rows, 1024}), {}));
  on_root([&] { CHECK(store->store.uploads.empty()); });
  CHECK(newest(MPI_COMM_WORLD, {rows, 1024}) == 2);
}

TEST_CASE("a store: a save that stops at any request leaves the old step or the new one") {
  SharedStore store;
  REQUIRE(manager_of(MPI_COMM_WORLD).save(1, weights(MPI_COMM_WORLD, 1), {}));
  std::map<std::string, std::string> objects, tags;
  on_root([&] {
    objects = store->store.objects;
    tags = store->store.tags;
  });
  int done = 0;
  for (int stop = 0; done<2; stop += size_of(MPI_COMM_WORLD)> 2 ? 5 : 1) {
    REQUIRE(stop < 200);
    done = 0;
    for (const std::int64_t step : {1, 2}) {  // replaced, and new
      CAPTURE(stop);
      CAPTURE(step);
      on_root([&] {
        store->store.objects = objects;
        store->store.tags = tags;
      });
      store.refuse([left = stop](const Request&) mutable { return left-- <= 0; });
      Status saved;
      auto manager = mpi::CheckpointManager::open(run_url, MPI_COMM_WORLD, {}, quick());
      if (manager) {
        auto written = manager->save(step, weights(MPI_COMM_WORLD, 2), {});
        if (!written) saved = std::move(written).error();
      } else {
        saved = std::move(manager).error();
      }
      store.refuse(nullptr);
      const float value = newest(MPI_COMM_WORLD);
      CHECK((value == 1 || value == 2));
      if (saved) CHECK(value == 2);
      if (saved) ++done;
    }
  }
}

TEST_CASE("a store: steps as deltas") {
  SharedStore store;
  const Shape shape{512, 64};
  {
    auto manager = manager_of(MPI_COMM_WORLD, {.keep = keep::latest(1), .deltas = 2});
    for (int step = 1; step <= 6; ++step) {
      const auto value = static_cast<float>(step);
      const auto saved = manager.save(step, weights(MPI_COMM_WORLD, value, Cut::rows, shape), {});
      REQUIRE_MESSAGE(saved, why(saved));
      // The whole step, and those between.
      CHECK(saved->info.base == (step % 3 == 1 ? std::nullopt : std::optional<std::int64_t>(step - 1)));
      CHECK(newest(MPI_COMM_WORLD, shape) == value);
    }
    REQUIRE(manager.save(5, weights(MPI_COMM_WORLD, 50, Cut::rows, shape), {}));  // step 6 becomes whole
  }
  CHECK(newest(MPI_COMM_WORLD, shape) == 6);
  on_root([&] {
    std::set<std::string> saves;
    for (const std::string& key : store.keys()) saves.insert(key.substr(0, key.find('/', key.find('/') + 1)));
    CHECK(saves.size() == 6);  // of the steps 4, 5 (a delta) and 6: the manifests and the files
    const auto manager = CheckpointManager::open(run_url, ShardedSafetensorsRecorder<>()).value();
    CHECK(manager.open_step(6));
    CHECK(manager.verify(5));
  });
}

TEST_CASE("a store: of two runs that save the same step, one wins") {
  if (size_of(MPI_COMM_WORLD) < 2) return;
  SharedStore store;
  const int rank = rank_of(MPI_COMM_WORLD), half = rank % 2;
  MPI_Comm mine = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, half, rank, &mine);
  for (int round = 0; round < 3; ++round) {
    // A manifest is written only after both have asked for the one that is there.
    std::mutex mutex;
    std::condition_variable changed;
    int asked = 0;
    const std::int64_t step = 7 + round;
    const std::string manifest = "/step-0000000" + std::to_string(step) + "/manifest.json";
    on_root([&] {
      const std::lock_guard lock(store->mutex);
      store->after = [&](const Request& request) {
        const std::lock_guard own(mutex);
        if (request.method == "HEAD" && request.path.ends_with(manifest)) ++asked;
        changed.notify_all();
      };
      store->before = [&](const Request& request) {
        std::unique_lock own(mutex);
        if (request.method != "PUT" || !request.path.ends_with(manifest)) return;
        changed.wait_for(own, std::chrono::seconds(20), [&] { return asked >= 2; });
      };
    });
    auto manager = manager_of(mine);
    const auto saved = manager.save(step, weights(mine, static_cast<float>(10 * round + half + 1)), {});
    const Errc code = code_of(saved);
    CHECK((code == Errc::none || code == Errc::exists));
    const int won = code == Errc::none ? 1 : 0;
    int group[2] = {half == 0 ? won : 0, half == 1 ? won : 0}, all[2] = {0, 0};
    MPI_Allreduce(group, all, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    CHECK(all[0] + all[1] == 1);
    CHECK(all[half] == won);  // all processes of a run have the same result
    on_root([&] {
      const std::lock_guard lock(store->mutex);
      store->before = store->after = nullptr;
    });
    CHECK(newest(MPI_COMM_WORLD) == static_cast<float>(10 * round + (all[0] == 1 ? 1 : 2)));
    on_root([&] {
      std::set<std::string> saves;
      for (const std::string& key : store.keys()) saves.insert(key.substr(0, key.find('/', key.find('/') + 1)));
      // The manifests, and the files of the winners.
      CHECK(saves.size() == 2 * (static_cast<std::size_t>(round) + 1));
    });
  }
  MPI_Comm_free(&mine);
}

}  // namespace
