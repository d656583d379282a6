// The options of saves and loads that replace functions of their own: format and precision, part, report.
#include <stele/checkpoint.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/gguf.hpp>
#include <stele/recorders/paddle.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/transform.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <string_view>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace options_test {

using namespace stele_test;
using stele::DType;
using stele::Errc;
using stele::LoadOptions;
using stele::Record;
using stele::Report;
using stele::SaveOptions;
using stele::Snapshot;
using stele::Tensor;

namespace {

struct Small {
  Tensor<float, 2> weight;
  std::vector<float> bias;
};
struct Whole {
  Small model;
  Small average;
};

Small small(float first) { return {Tensor<float, 2>({1, 2}, {first, 2}), {3}}; }

bool same(const Small& a, const Small& b) {
  return std::equal(a.weight.begin(), a.weight.end(), b.weight.begin(), b.weight.end()) && a.bias == b.bias;
}

DType dtype_in(const std::string& path) { return good(stele::open(path)).leaf(0).dtype(); }

}  // namespace

TEST_CASE("options: a save takes its format and its precision from them, or the format from the path") {
  const TempDir dir;
  const Small m = small(1);
  const std::string path = dir / "model.data";
  good(stele::save(m, path, {.format = stele::GgufFormat(), .precision = stele::HalfPrecision{}}));
  CHECK(good(stele::format_of_content(*good(stele::open_file(path))))->name() == "gguf");
  CHECK(dtype_in(path) == DType::f16);
  good(stele::save(m, path, {.format = stele::find_format("safetensors"), .precision = DType::bf16}));
  CHECK(good(stele::format_of_content(*good(stele::open_file(path))))->name() == "safetensors");
  CHECK(dtype_in(path) == DType::bf16);
  const std::string named = dir / "model.safetensors";
  good(stele::save(m, named, {.precision = stele::Quantized8{}, .allow_loss = true, .dry_run = true}));
  CHECK_FALSE(std::filesystem::exists(named));
  // Every spelling of a path.
  good(stele::save(m, std::string_view(named)));
  good(stele::save(m, named.c_str()));
  good(stele::save(m, std::filesystem::path(named), {.precision = DType::f64}));
  CHECK(dtype_in(named) == DType::f64);

  stele::BufferSink sink;
  CHECK(bad(stele::save(m, sink)).code() == Errc::invalid_argument);
  good(stele::save(m, sink, {.format = stele::SafetensorsFormat()}));
  CHECK(same(good(stele::load<Small>(sink.take())), m));

  const stele::Error unknown = bad(stele::save(m, path, {.format = stele::find_format("safetensor")}));
  CHECK(unknown.code() == Errc::invalid_argument);
  CHECK(bad(stele::save(m, dir / "model.unknown")).code() == Errc::unsupported);
  CHECK(bad(stele::save(m, dir / "m", {.format = stele::find_format("tensor-bundle")})).code() == Errc::unsupported);
}

TEST_CASE("options: a recorder has its own format and precision") {
  const TempDir dir;
  const stele::SafetensorsRecorder<> recorder;
  for (const SaveOptions& options :
       {SaveOptions{.format = stele::GgufFormat()}, SaveOptions{.precision = DType::f16}}) {
    const stele::Error e = bad(recorder.save(small(1), dir / "m", options));
    CHECK(e.code() == Errc::invalid_argument);
    CHECK(e.hint().find("stele::save") != std::string_view::npos);
  }
  CHECK(std::filesystem::is_empty(dir / ""));
}

TEST_CASE("options: a checkpoint is saved in a format that stores one") {
  const TempDir dir;
  const Small m = small(1);
  const Snapshot arrays = snapshot(m);
  stele::Checkpoint checkpoint{.parameters = arrays};
  checkpoint.optimizer.set_snapshot("M", arrays);
  good(stele::save(checkpoint, dir / "c.zip", {.precision = DType::f16}));
  const stele::CheckpointFormat& zip = *stele::find_format("archive")->checkpoints();
  const stele::Checkpoint back = good(stele::open_checkpoint(zip, dir / "c.zip"));
  CHECK(back.parameters.leaf(0).dtype() == DType::f16);
  REQUIRE(back.optimizer.find("M") != nullptr);
  CHECK(back.optimizer.find("M")->leaf(0).dtype() == DType::f32);
  CHECK(bad(stele::open_checkpoint(zip, dir / "c.zip", {.part = "weight"})).code() == Errc::invalid_argument);
  CHECK(bad(stele::verify(zip, dir / "c.zip", {.part = "weight"})).code() == Errc::invalid_argument);
  const stele::Error e = bad(stele::save(checkpoint, dir / "c.safetensors"));
  CHECK(e.code() == Errc::unsupported);
  CHECK(e.found() == "safetensors");
}

STELE_TEST_EACH_RECORDER("options: a part of a file is loaded like a file") {
  const TempDir dir;
  const Whole saved{small(1), small(5)};
  const std::string path = dir / "whole";
  if (!recorder.save(saved, path, quick())) return;  // one tensor only
  for (const bool average : {false, true}) {
    const Small& expected = average ? saved.average : saved.model;
    Report report;
    LoadOptions options{.part = average ? "average" : "model", .report = &report};
    if (!recorder.open(path)) options.layout = good(stele::layout_of(snapshot(saved)));
    CHECK(same(good(recorder.template load<Small>(path, options)), expected));
    CHECK(report.count(Report::What::applied) == 2);
    CHECK(report.size() == 2);
    Small live = small(9);
    good(recorder.load_into(live, path, options));
    CHECK(same(live, expected));
    const auto record = good(recorder.template load<Record<Small>>(path, options));
    CHECK(good(get<"bias">(record).load()) == expected.bias);
    const Snapshot part = good(recorder.open(path, options));
    REQUIRE(part.find("bias"));
    CHECK(same(good(stele::load<Small>(part)), expected));
    // A Snapshot gives the same part.
    LoadOptions whole = options;
    whole.part.clear();
    const Snapshot file = good(recorder.open(path, whole));
    options.layout.reset();
    CHECK(same(good(stele::load<Small>(file, options)), expected));
    CHECK(good(stele::dry_run<Small>(file, options)).count(Report::What::applied) == 2);

    options.part = "modell";
    Small kept = small(7);
    for (const stele::Error& e :
         {bad(stele::load<Small>(file, options)), bad(stele::load_into(kept, file, options)),
          bad(stele::dry_run(kept, file, options)), bad(stele::load<Record<Small>>(file, options))}) {
      CHECK(e.code() == Errc::not_found);
      CHECK(e.path() == "modell");
    }
    CHECK(same(kept, small(7)));
  }
}

TEST_CASE("options: a long name that many members repeat does not fill the memory") {
  // 1 MiB in the file, 512 MiB in a list of whole paths.
  std::map<std::string, std::map<std::string, std::vector<float>>> model;
  auto& members = model[std::string(std::size_t{1} << 20, 'n')];
  for (int i = 0; i < 512; ++i) members["w" + std::to_string(i)] = {1.0F};
  const TempDir dir;
  good(stele::save(model, dir / "m.stele"));
  const Snapshot file = good(stele::open(dir / "m.stele"));
  CHECK(file.leaf_count() == 512);
  using Model = decltype(model);
  CHECK(bad(stele::load<Model>(file, {.part = "n"})).code() == Errc::limit);
  CHECK(bad(stele::flatten(file)).code() == Errc::limit);
  CHECK(bad(stele::with_prefix(file, "p.")).code() == Errc::limit);
  CHECK(good(stele::load<Model>(file)) == model);
}

TEST_CASE("options: a part with a hook, and of a file of several levels") {
  struct Outer {
    std::vector<Whole> versions;
  };
  const TempDir dir;
  good(stele::save(Outer{{{small(1), small(2)}, {small(3), small(4)}}}, dir / "m.stele"));
  CHECK(same(good(stele::load<Small>(dir / "m.stele", {.part = "versions.1.average"})), small(4)));
  CHECK(bad(stele::load<Small>(dir / "m.stele", {.part = "versions.1"})).code() == Errc::missing);
}

TEST_CASE("options: a load that fails names the part that has the names") {
  struct Net {
    Small first, second;
  };
  struct Trained {
    Net model_state_dict;
    std::vector<float> step;
  };
  const TempDir dir;
  good(stele::save(Trained{{small(1), small(2)}, {1}}, dir / "c.safetensors"));
  const stele::Error e = bad(stele::load<Net>(dir / "c.safetensors"));
  CHECK(e.code() == Errc::missing);
  CHECK(e.hint() == "4 names that the module needs are below \"model_state_dict\": set LoadOptions::part to it");
  good(stele::load<Net>(dir / "c.safetensors", {.part = "model_state_dict"}));
}

TEST_CASE("options: the report of a load that fails") {
  const TempDir dir;
  good(stele::save(small(1), dir / "m.stele"));
  Report report;
  report.add(Report::What::lost, "before");
  const stele::Error e = bad(stele::load<Whole>(dir / "m.stele", {.report = &report}));
  CHECK(report.size() > 1);
  CHECK(report[0].path == "before");
  REQUIRE(e.report());
}

}  // namespace options_test
