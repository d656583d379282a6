// Progress and cancelling, dry runs, and suggestions of similar names.
#include <stele/stele.hpp>
#include <stele/transform.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

using namespace stele_test;
using stele::Errc;
using stele::Progress;
using stele::Report;
using stele::Snapshot;
using stele::Tensor;

namespace stele_test {
namespace {

struct Big {
  Tensor<float, 1> a, b;
  std::vector<float> c;
};
Big big() { return {Tensor<float, 1>::filled({3000000}, 1), Tensor<float, 1>::filled({1000}, 2), {3, 4}}; }
constexpr std::uint64_t big_bytes = 4 * (3000000 + 1000 + 2);

}  // namespace

STELE_TEST_EACH_RECORDER("progress: a save and a load say how far they are") {
  const Big m = big();
  std::vector<Progress> seen;
  const auto note = [&](const Progress& p) {
    seen.push_back(p);
    return true;
  };
  const auto check = [&](std::uint64_t total) {
    REQUIRE(seen.size() >= 5);  // 12 MB, in steps of 4 MiB
    for (std::size_t i = 0; i < seen.size(); ++i) {
      CHECK(seen[i].total == total);
      if (i != 0) CHECK(seen[i].done >= seen[i - 1].done);
    }
    CHECK(seen.back().done == total);
    seen.clear();
  };
  stele::SaveOptions save;
  save.progress = note;
  const stele::Bytes bytes = good(saved(recorder, m, save));
  check(big_bytes);
  stele::LoadOptions load;
  load.progress = note;
  CHECK(image(good(recorder.load<Big>(bytes, load))) == image(m));
  check(big_bytes);
  Big live = big();
  good(recorder.load_into(live, bytes, load));
  check(2 * big_bytes);  // verified, then written
  load.trust_data = true;
  good(recorder.load_into(live, bytes, load));
  check(big_bytes);
  CHECK(text_of(good(saved(recorder, m)).span()) == text_of(bytes.span()));
}

STELE_TEST_EACH_RECORDER("progress: false stops, and nothing has changed") {
  const Big m = big();
  for (int stop_at = 1; stop_at < 4; ++stop_at) {
    int calls = 0;
    const auto stop = [&](const Progress&) { return ++calls != stop_at; };
    stele::SaveOptions save;
    save.progress = stop;
    CHECK(code_of(saved(recorder, m, save)) == Errc::cancelled);
    const stele::Bytes bytes = good(saved(recorder, m));
    stele::LoadOptions load;
    load.progress = stop;
    calls = 0;
    CHECK(code_of(recorder.load<Big>(bytes, load)) == Errc::cancelled);
    Big live = big();
    live.b = Tensor<float, 1>::filled({1000}, 7);
    calls = 0;
    const stele::Error e = bad(recorder.load_into(live, bytes, load));
    CHECK(e.code() == Errc::cancelled);
    CHECK(!e.partially_applied());
    CHECK(live.b[0] == 7);
  }
  stele::SaveOptions throws;
  throws.progress = [](const Progress&) -> bool { throw std::runtime_error("no"); };
  CHECK(code_of(saved(recorder, m, throws)) == Errc::user_exception);
}

TEST_CASE("dry run: says what a load would do, and does nothing") {
  const Mlp m = small_mlp();
  const Snapshot s = good(stele::snapshot_of(m));
  const Report report = good(stele::dry_run<Mlp>(s));
  CHECK(report.paths(Report::What::applied) ==
        Paths{"seed", "layers.0.weight", "layers.0.bias", "layers.1.weight", "scale"});
  const Snapshot half = with_precision(s, {stele::DType::f16, stele::DType::none});
  CHECK(good(stele::dry_run<Mlp>(half)).count(Report::What::converted) == 4);

  Mlp live = small_mlp(50);
  const auto before = image(live);
  CHECK(good(stele::dry_run(live, s)).count(Report::What::applied) == 5);
  live.layers.pop_back();
  const stele::Error e = bad(stele::dry_run(live, s));
  CHECK(e.code() == Errc::shape_mismatch);
  CHECK(e.report() != nullptr);
  live = small_mlp(50);
  CHECK(image(live) == before);
}

TEST_CASE("dry run: a save says what would be lost") {
  Mlp m = small_mlp();
  m.layers[0].weight.id = stele::ParamId::from_u64(7);
  stele::SaveOptions options;
  options.dry_run = true;
  const Report report = good(stele::save(m, "/nonexistent/folder/x.safetensors", options));
  CHECK(report.paths(Report::What::lost) == Paths{"layers.0.weight"});
  stele::BufferSink sink;
  good(stele::BinaryRecorder<>().save(m, sink, options));
  CHECK(sink.take().empty());
}

TEST_CASE("suggestions: similar names, both ways") {
  const Mlp m = small_mlp();
  const Snapshot s = good(stele::snapshot_of(m));
  const Snapshot file = good(rename(s, std::vector<stele::Rename>{{"^scale$", "scales"}, {"0.bias", "0.bais"}}));
  const stele::Error e = bad(stele::load<Mlp>(file));
  CHECK(e.code() == Errc::missing);
  CHECK(e.path() == "scale");
  CHECK(e.hint() == "did you mean scales?");
  const Report& report = *e.report();
  std::vector<std::pair<std::string, std::string>> pairs;
  for (std::size_t i = 0; i < report.size(); ++i) {
    if (report[i].what == Report::What::suggested) pairs.emplace_back(report[i].path, report[i].detail);
  }
  CHECK(pairs == std::vector<std::pair<std::string, std::string>>{{"scale", "scales"}, {"scales", "scale"}});

  const Snapshot other = good(rename(s, std::vector<stele::Rename>{{"^scale$", "something.else"}}));
  const stele::Error far = bad(stele::load<Mlp>(other));
  CHECK(far.path() == "scale");
  CHECK(far.hint().empty());
}

}  // namespace stele_test
