// Several threads at once on what is const: Snapshots, sources, recorders. Run under the thread sanitizer too.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace concurrency_test {

namespace {

using namespace stele;
using namespace stele_test;

constexpr unsigned threads = 8;

/// Runs `work(thread number)` in all threads at once; what they say is wrong, or nothing.
std::string at_once(const std::function<std::string(unsigned)>& work) {
  std::atomic<unsigned> ready{0};
  std::mutex mutex;
  std::string problem;
  std::vector<std::thread> all;
  for (unsigned t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      ++ready;
      while (ready < threads) std::this_thread::yield();
      const std::string text = work(t);
      const std::lock_guard lock(mutex);
      if (problem.empty()) problem = text;
    });
  }
  for (std::thread& t : all) t.join();
  return problem;
}

struct Weights {
  std::vector<Tensor<float, 1>> layers;
  std::map<std::string, Tensor<double, 1>> heads;
  std::shared_ptr<Tensor<float, 1>> tied, again;
  std::string note = "note";
  STELE_MODULE(Weights, layers, heads, tied, again, note)
};

Weights weights() {
  Weights w;
  for (const std::size_t n : {100000U, 3U, 0U, 20000U, 1000U, 70000U, 1U, 300U}) {
    w.layers.emplace_back(Tensor<float, 1>({n}));
    for (std::size_t i = 0; i < n; ++i) w.layers.back()[i] = static_cast<float>(i % 1000) - 7.5F;
  }
  w.heads.emplace("a", Tensor<double, 1>({3}, {1, 2, 3}));
  w.heads.emplace("b", Tensor<double, 1>::filled({50000}, 0.5));
  w.tied = w.again = std::make_shared<Tensor<float, 1>>(Tensor<float, 1>::filled({5000}, 2.F));
  return w;
}

/// Reads all leaves, each thread beginning with another one, whole and in parts.
std::string read_all(const Snapshot& snapshot, const std::vector<std::string>& expected, unsigned thread) {
  ReadContext context;
  const std::size_t n = snapshot.leaf_count();
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t i = (k + thread) % n;
    const LeafView leaf = snapshot.leaf(i);
    const auto all = content(leaf);
    if (!all) return all.error().to_string();
    if (*all != expected[i]) return leaf.path() + " has other bytes";
    if (leaf.size() < 100) continue;
    const std::size_t element = element_size(leaf.dtype());
    std::string part(10 * element, '\0');
    const std::size_t offset = (thread + 1) * element;
    if (auto r = leaf.read(offset, std::as_writable_bytes(std::span(part)), context); !r) return r.error().to_string();
    if (part != expected[i].substr(offset, part.size())) return leaf.path() + " has another part";
  }
  return snapshot.find("tied") ? "" : "a tie is lost";
}

std::vector<std::string> contents(const Snapshot& snapshot) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) all.push_back(content(snapshot.leaf(i)).value());
  return all;
}

std::string differs(const Weights& a, const Weights& b) {
  if (a.layers.size() != b.layers.size()) return "another number of layers";
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    if (!std::equal(a.layers[i].begin(), a.layers[i].end(), b.layers[i].begin(), b.layers[i].end()))
      return "another layer";
  }
  if (b.heads.at("b")[49999] != 0.5 || b.tied != b.again || b.note != a.note) return "other heads, ties or values";
  return "";
}

}  // namespace

TEST_SUITE_BEGIN("concurrency");

STELE_TEST_EACH_RECORDER("concurrency: reading one snapshot") {
  const TempDir dir;
  const Weights module = weights();
  REQUIRE(recorder.save(module, dir / "w", quick()));
  const std::string path = dir / ("w" + std::string(recorder.format().extension()));
  const auto bytes = saved(recorder, module);
  REQUIRE(bytes);
  for (const SourcePtr& source : {open_file(path).value(), map_file(path).value(), borrow_bytes(bytes->span())}) {
    const auto snapshot = recorder.open(source);
    REQUIRE_MESSAGE(snapshot, why(snapshot));
    const auto expected = contents(*snapshot);
    CHECK(at_once([&](unsigned t) { return read_all(*snapshot, expected, t); }) == "");
    for (const PrecisionSpec spec : {precision_spec<HalfPrecision>(), precision_spec<DoublePrecision>()}) {
      const Snapshot other = with_precision(*snapshot, spec);
      const auto converted = contents(other);
      CHECK(at_once([&](unsigned t) { return read_all(other, converted, t); }) == "");
    }
  }
}

STELE_TEST_EACH_RECORDER("concurrency: modules from one snapshot and one recorder") {
  const TempDir dir;
  const Weights module = weights();
  REQUIRE(recorder.save(module, dir / "w", quick()));
  const auto snapshot = recorder.open(dir / "w");
  REQUIRE_MESSAGE(snapshot, why(snapshot));
  const auto record = recorder.load<Record<Weights>>(dir / "w");
  REQUIRE_MESSAGE(record, why(record));
  CHECK(at_once([&](unsigned t) -> std::string {
          if (t % 4 == 0) {
            const auto m = load<Weights>(*snapshot);
            return m ? differs(module, *m) : why(m);
          }
          if (t % 4 == 1) {
            const auto m = recorder.load<Weights>(dir / "w");
            return m ? differs(module, *m) : why(m);
          }
          if (t % 4 == 2) {
            Weights m = weights();
            m.layers[0][5] = 0;
            const auto r = load_into(m, *record);
            return r ? differs(module, m) : why(r);
          }
          const auto leaf = record->layers.at(5).load();
          return leaf && (*leaf)[69999] == module.layers[5][69999] ? "" : why(leaf);
        }) == "");
}

STELE_TEST_EACH_RECORDER("concurrency: saving one module") {
  const auto half = at_precision_of<HalfPrecision>(recorder);
  const TempDir dir;
  const Weights module = weights();
  const auto expected = saved(half, module);
  REQUIRE(expected);
  const auto snapshot = snapshot_of(module);
  REQUIRE(snapshot);
  CHECK(at_once([&](unsigned t) -> std::string {
          if (t % 2 == 0) {
            const auto bytes = t == 0 ? saved(half, module) : saved(half, *snapshot);
            if (!bytes) return why(bytes);
            return text_of(bytes->span()) == text_of(expected->span()) ? "" : "other bytes";
          }
          // All into the same file: each one whole, the last one stays.
          const auto r = half.save(module, dir / "same.bin", quick());
          return r ? "" : why(r);
        }) == "");
  CHECK(read_text(dir / "same.bin") == text_of(expected->span()));
  CHECK(dir.names() == std::vector<std::string>{"same.bin"});
}

TEST_CASE("concurrency: compressed saves and loads, each on threads of its own") {
  struct Large {
    Tensor<float, 1> t{std::array<stele::Extent, 1>{1500000}};
  };
  Large large;
  for (std::size_t i = 0; i < large.t.size(); ++i) large.t[i] = static_cast<float>(i % 977);
  SaveOptions save;
  save.threads = 3;
  LoadOptions load;
  load.threads = 3;
  const CompressedRecorder<> recorder;
  const auto bytes = saved(recorder, large, save);
  REQUIRE(bytes);
  CHECK(at_once([&](unsigned t) -> std::string {
          if (t % 2 == 0) {
            const auto again = saved(recorder, large, save);
            return again && text_of(again->span()) == text_of(bytes->span()) ? "" : "other bytes";
          }
          const auto back = recorder.load<Large>(*bytes, load);
          return back && back->t[1400000] == large.t[1400000] ? "" : "other numbers";
        }) == "");
}

TEST_SUITE_END();

}  // namespace concurrency_test
