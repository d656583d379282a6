// CheckpointManager on a store of objects.
#include <doctest/doctest.h>
#include <stele/checkpoints/manager.hpp>
#include <stele/checkpoints/policies.hpp>
#include <stele/remote.hpp>
#include <stele/stele.hpp>

#include <filesystem>
#include <map>

#include "base/hash.hpp"
#include "checkpoints/place.hpp"
#include "support/http_store.hpp"
#include "support/temp_dir.hpp"

namespace checkpoints_test {

namespace {

using namespace stele;
using stele_test::HttpServer;
using stele_test::HttpStore;

struct Model {
  Tensor<float, 2> weight;
  std::vector<float> bias;
};

/// A checkpoint borrows its module, which this keeps.
const Model& model_of(float value) {
  static std::map<float, Model> all;
  return all.try_emplace(value, Model{Tensor<float, 2>::filled({64, 64}, value), {value, value}}).first->second;
}

struct Bucket {
  HttpStore store;
  int fail_after = -1;  // requests, after which every one fails; -1: never
  int requests = 0;
  std::mutex mutex;
  HttpServer server{[this](const HttpServer::Request& request) {
    const std::lock_guard lock(mutex);
    if (fail_after >= 0 && requests++ >= fail_after) return HttpServer::Response{.status = 400};
    return store.answer(request);
  }};
  Bucket() {
    remote::Options options;
    options.endpoint = server.url("");
    options.credentials = remote::Credentials{"K", "s"};
    options.first_wait = std::chrono::milliseconds(1);
    options.tries = 4;
    remote::set_defaults(options);
  }
  ~Bucket() { remote::set_defaults({}); }
};

template <class R>
Result<CheckpointManager> manager_of(R recorder, ManagerOptions options = {}) {
  return CheckpointManager::open("s3://bucket/run/", std::move(recorder), std::move(options));
}

}  // namespace

TEST_SUITE_BEGIN("concurrency");

TEST_CASE("checkpoints on a store: steps are saved, listed, loaded, kept and removed") {
  Bucket bucket;
  ManagerOptions options;
  options.keep = keep::latest(2);
  auto manager = manager_of(BinaryRecorder<>(), options);
  REQUIRE_MESSAGE(manager, manager.error().to_string());
  for (int step = 1; step <= 4; ++step) {
    const auto saved = manager->save(step * 100, checkpoint_of(model_of(static_cast<float>(step))).value());
    REQUIRE_MESSAGE(saved, saved.error().to_string());
    CHECK_FALSE(saved->not_removed);
  }
  REQUIRE(manager->save_async(500, checkpoint_of(model_of(5)).value()));
  REQUIRE(manager->wait());
  auto again = manager_of(BinaryRecorder<>());
  REQUIRE(again);
  const auto steps = again->steps();
  REQUIRE(steps);
  REQUIRE(steps->size() == 2);
  CHECK((*steps)[0].step == 400);
  CHECK((*steps)[1].folder == "s3://bucket/run/step-00000500");
  REQUIRE(again->verify(500));
  Model loaded;
  const auto resumed = again->resume(loaded);
  REQUIRE_MESSAGE(resumed, resumed.error().to_string());
  CHECK(loaded.bias == std::vector<float>{5, 5});
  // Nothing of the removed steps is left.
  for (const auto& object : bucket.store.objects) {
    const std::string& name = object.first;
    CAPTURE(name);
    CHECK((name.starts_with("/bucket/run/step-00000400/") || name.starts_with("/bucket/run/step-00000500/")));
  }
  // The same step again replaces the manifest, then removes the files of the old one.
  REQUIRE(again->save(500, checkpoint_of(model_of(6)).value()));
  CHECK(bucket.store.objects.size() == 4);
  CHECK(again->remove(400));
  CHECK(bucket.store.objects.size() == 2);
}

TEST_CASE("checkpoints on a store: steps as deltas") {
  Bucket bucket;
  ManagerOptions options;
  options.keep = keep::latest(1);
  options.deltas = 2;
  auto manager = manager_of(CompressedRecorder<>(), options);
  REQUIRE_MESSAGE(manager, manager.error().to_string());
  for (int step = 1; step <= 3; ++step) {
    const auto saved = manager->save(step, checkpoint_of(model_of(static_cast<float>(step))).value());
    REQUIRE_MESSAGE(saved, saved.error().to_string());
  }
  CHECK(manager->steps().value().size() == 3);  // those that the last one needs
  CHECK(manager->steps().value().back().base == std::optional<std::int64_t>(2));
  Model loaded;
  REQUIRE(manager_of(BinaryRecorder<>()).value().resume(loaded));
  CHECK(loaded.bias == std::vector<float>{3, 3});
  REQUIRE(manager->remove(2));
  CHECK(manager->steps().value().back().base == std::nullopt);
  REQUIRE(manager->save(4, checkpoint_of(model_of(4)).value()));
  CHECK(manager->steps().value().size() == 2);
  REQUIRE(manager->resume(loaded));
  CHECK(loaded.bias == std::vector<float>{4, 4});
}

TEST_CASE("checkpoints on a store: a save that stops at any request leaves the old step or the new one") {
  Bucket bucket;
  auto manager = manager_of(BinaryRecorder<>());
  REQUIRE(manager);
  REQUIRE(manager->save(1, checkpoint_of(model_of(1)).value()));
  const auto before = bucket.store.objects;
  const auto tags = bucket.store.tags;
  bool finished = false;
  for (int stop = 0; !finished; ++stop) {
    REQUIRE(stop < 100);
    for (const int step : {1, 2}) {  // replaced, and new
      CAPTURE(stop);
      CAPTURE(step);
      bucket.store.objects = before;
      bucket.store.tags = tags;
      bucket.requests = 0;
      bucket.fail_after = stop;
      bool saved = false;
      if (auto writer = manager_of(BinaryRecorder<>()))
        saved = writer->save(step, checkpoint_of(model_of(2)).value()).has_value();
      bucket.fail_after = -1;
      auto reader = manager_of(BinaryRecorder<>());
      REQUIRE(reader);
      Model loaded;
      const auto resumed = reader->resume(loaded);
      REQUIRE_MESSAGE(resumed, resumed.error().to_string());
      if (saved) CHECK(loaded.bias[0] == 2);
      CHECK((loaded.bias[0] == 1 || loaded.bias[0] == 2));
      std::vector<BrokenStep> broken;
      REQUIRE(reader->steps(&broken));
      CHECK(broken.empty());
      finished = saved && step == 2;
    }
  }
}

TEST_CASE("checkpoints on a store: of two writers of a step one wins, and lost answers are not taken for the other") {
  Bucket bucket;
  auto first = manager_of(BinaryRecorder<>());
  auto second = manager_of(BinaryRecorder<>());
  REQUIRE(first);
  REQUIRE(second);
  SUBCASE("lost answers") {
    bucket.store.lost_answers = 2;
    const auto saved = first->save(1, checkpoint_of(model_of(1)).value());
    REQUIRE_MESSAGE(saved, saved.error().to_string());
    REQUIRE(second->verify(1));
  }
  SUBCASE("two writers") {
    // The second save ends while the first one writes its file.
    bool other_done = false;
    ManagerOptions options;
    options.parts.progress = [&](const Progress&) {
      if (!std::exchange(other_done, true)) REQUIRE(second->save(1, checkpoint_of(model_of(2)).value()));
      return true;
    };
    auto slow = manager_of(BinaryRecorder<>(), options);
    REQUIRE(slow);
    const auto late = slow->save(1, checkpoint_of(model_of(1)).value());
    REQUIRE_FALSE(late);
    CHECK(late.error().code() == Errc::exists);
    Model loaded;
    REQUIRE(first->resume(loaded));
    CHECK(loaded.bias[0] == 2);
    CHECK(bucket.store.objects.size() == 2);  // what the loser wrote is gone
  }
}

TEST_CASE("checkpoints on a store: a step whose objects were changed is not resumed") {
  Bucket bucket;
  auto manager = manager_of(SafetensorsRecorder<>());
  REQUIRE(manager);
  REQUIRE(manager->save(1, checkpoint_of(model_of(1)).value()));
  REQUIRE(manager->save(2, checkpoint_of(model_of(2)).value()));
  for (auto& [name, bytes] : bucket.store.objects) {
    if (!name.starts_with("/bucket/run/step-00000002/") || name.ends_with("manifest.json")) continue;
    std::string other = bytes;
    other.back() ^= 1;
    bucket.store.put(name, other);
  }
  Model loaded;
  const auto resumed = manager->resume(loaded);
  REQUIRE_MESSAGE(resumed, resumed.error().to_string());
  CHECK(loaded.bias[0] == 1);
  CHECK(manager->verify(2).error().code() == Errc::checksum);
  REQUIRE(manager->save(2, checkpoint_of(model_of(3)).value()));
  REQUIRE(manager->resume(loaded));
  CHECK(loaded.bias[0] == 3);
}

TEST_CASE("checkpoints: several processes write the files of a step, in a folder and on a store") {
  namespace steps = stele::detail::steps;
  Bucket bucket;
  const stele_test::TempDir dir;
  bool in_store = false;
  SUBCASE("in a folder") { in_store = false; }
  SUBCASE("on a store") { in_store = true; }
  const std::string where = in_store ? "s3://bucket/run" : dir / "run";
  const auto place = steps::place_at(where).value(), other = steps::place_at(where).value();
  REQUIRE(place->start(false));
  const auto put = [](steps::Share& share, const std::string& name, const std::string& text) {
    const auto sink = share.files().create(name).value();
    REQUIRE(sink->write(std::as_bytes(std::span(text))));
    REQUIRE(sink->commit());
    steps::ManifestFile file{name, text.size(), stele::detail::hash64(text.data(), text.size())};
    const auto done = share.complete(file);
    REQUIRE_MESSAGE(done, done.error().to_string());
    CHECK(file.version.empty() == (share.folder() != ""));
    return file;
  };
  // They are removed if the step does not become visible: also those of a process that says nothing.
  for (const bool commit : {false, true}) {
    CAPTURE(commit);
    steps::Manifest manifest;
    manifest.info.step = 3;
    manifest.parameters = "parameters";
    {
      auto sink = place->create(3, Durability::process).value();
      const std::string shared = place->share(*sink, manifest);
      auto first = place->join(3, shared, Durability::process), second = other->join(3, shared, Durability::process);
      manifest.files = {put(*first, "parameters/a", "one"), put(*second, "parameters/b", "two")};
      CHECK(place->numbers().value().empty());
      first->keep(commit);
      second->keep(true);
      if (commit) REQUIRE(place->commit(*sink, manifest));
    }
    CHECK(place->numbers().value().size() == (commit ? 1 : 0));
    if (in_store) CHECK(bucket.store.objects.size() == (commit ? 3 : 0));
    if (!in_store) CHECK(std::filesystem::is_empty(dir / "run") == !commit);
  }
  // Another process gets the manifest as text, and checks and reads a share of the files.
  const auto read = place->manifest(3, steps::Check::contents).value();
  auto manifest = steps::parse_manifest(steps::to_text(read).value()).value();
  REQUIRE(other->adopt(manifest));
  CHECK(manifest.info.folder == place->path(3));
  REQUIRE(other->part(manifest, "parameters", false).value()->bundle()->contains("b").value());
  std::swap(manifest.files[1].xxh3, manifest.files[0].xxh3);
  manifest.files[0].version.clear();
  CHECK(other->check(manifest, steps::Check::unchanged).error().code() == Errc::checksum);
  manifest.files.erase(manifest.files.begin());
  CHECK(other->check(manifest, steps::Check::unchanged).has_value() == in_store);  // it has the version that was saved
  CHECK(other->check(manifest, steps::Check::contents).error().code() == Errc::checksum);
}

TEST_SUITE_END();

}  // namespace checkpoints_test
