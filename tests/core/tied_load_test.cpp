// Ties that are not the same in file and module: nothing is lost in silence.
#include <stele/record.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace tied_load_test {

using namespace stele_test;
using stele::Bytes;
using stele::Errc;
using stele::Error;
using stele::LoadOptions;
using stele::Report;
using stele::Tensor;

namespace {

using Weights = Tensor<float, 1>;

struct Head {
  std::shared_ptr<Weights> embedding, output;
};
/// `output` has another name.
struct Renamed {
  std::shared_ptr<Weights> embedding, lm_head;
};
struct Optional {
  Weights embedding;
  std::optional<Weights> lm_head;
};
struct Nothing {
  Weights embedding;
};

/// The constructor ties two of them.
struct Made {
  Made() : embedding(std::make_shared<Weights>()), output(embedding), head(std::make_shared<Weights>()) {}
  std::shared_ptr<Weights> embedding, output, head;
  STELE_MODULE(Made, embedding, output, head)
};

Weights numbers(std::size_t count, float first) {
  Weights t({count});
  std::iota(t.begin(), t.end(), first);
  return t;
}
Head tied(std::size_t count = 3) {
  Head m;
  m.embedding = m.output = std::make_shared<Weights>(numbers(count, 1));
  return m;
}
Head apart(Weights embedding, Weights output) {
  return {std::make_shared<Weights>(std::move(embedding)), std::make_shared<Weights>(std::move(output))};
}

/// Layers that are tied as a whole, with an inner tie and a value.
struct Layer {
  Weights weight;
  std::shared_ptr<Weights> bias;
  std::int64_t step = 0;
  STELE_MODULE(Layer, weight, bias, step)
};
struct Layers {
  std::shared_ptr<Layer> first, second;
};
Layers layers(float weight, float bias, std::int64_t step) {
  Layers m;
  m.first = std::make_shared<Layer>();
  m.first->weight = numbers(3, 1);
  m.first->bias = std::make_shared<Weights>(numbers(2, 5));
  m.first->step = 7;
  m.second = std::make_shared<Layer>();
  m.second->weight = numbers(3, weight);
  m.second->bias = std::make_shared<Weights>(numbers(2, bias));
  m.second->step = step;
  return m;
}
Layers tied_pair() {
  Layers m = layers(1, 5, 7);
  m.second = m.first;
  return m;
}

std::vector<LoadOptions> ways() {
  std::vector<LoadOptions> all(4);
  all[1].storage = stele::Storage::mmap;
  all[2].rebuild = true;
  all[3].trust_data = true;
  return all;
}

}  // namespace

STELE_TEST_EACH_RECORDER("ties: a renamed name of a tied object is not left empty in silence") {
  const Head file = tied();
  const Bytes bytes = good(saved(recorder, file));
  Report report;
  const Error e = bad(recorder.load<Renamed>(bytes, {.report = &report}));
  CHECK(e.code() == Errc::unused);
  CHECK(e.path() == "output");
  CHECK(report.paths(Report::What::unused) == Paths{"output"});
  CHECK(report.paths(Report::What::missing) == Paths{"lm_head"});
  CHECK(code_of(recorder.load<Optional>(bytes)) == Errc::unused);
  CHECK(code_of(recorder.load<stele::Record<Renamed>>(bytes)) == Errc::unused);
  CHECK(code_of(stele::dry_run<Renamed>(good(recorder.open(bytes)))) == Errc::unused);
  Renamed live;
  live.embedding = std::make_shared<Weights>(numbers(3, 0));
  CHECK(code_of(recorder.load_into(live, bytes)) == Errc::unused);
  CHECK((*live.embedding)[0] == 0);

  LoadOptions unused;
  unused.allow_unused = {"output"};
  CHECK(good(recorder.load<Renamed>(bytes, unused)).lm_head == nullptr);
  LoadOptions missing;
  missing.allow_missing = {"lm_head"};
  CHECK(good(recorder.load<Renamed>(bytes, missing)).lm_head == nullptr);
  good(recorder.load_into(live, bytes, missing));
  CHECK((*live.embedding)[0] == 1);
  // A class without the other name: it says nothing new.
  CHECK(good(recorder.load<Nothing>(bytes)).embedding[0] == 1);
  // Loading in place, the module has the tie under other names.
  live.lm_head = live.embedding;
  good(recorder.load_into(live, bytes));
}

STELE_TEST_EACH_RECORDER("ties: different tensors for one object of the module are an error") {
  const TempDir dir;
  const auto file = [&](const auto& module) {
    const std::string path = dir / "m";
    write_text(path, std::string(text_of(good(saved(recorder, module)).span())));
    return path;
  };
  // A difference in the last of many pieces.
  const std::size_t large = 300'000;
  Weights other = numbers(large, 1);
  other[large - 1] += 1;
  for (const LoadOptions& options : ways()) {
    Head live = tied(large);
    (*live.embedding)[0] = -1;
    const std::string path = file(apart(numbers(large, 1), other));
    const Error e = bad(recorder.load_into(live, path, options));
    CHECK(e.code() == Errc::unused);
    CHECK(e.path() == "output");
    CHECK(e.expected().find("embedding") != std::string::npos);
    CHECK((*live.embedding)[0] == -1);
    LoadOptions allowed = options;
    allowed.allow_unused = {"output"};
    Report report;
    good(recorder.load_into(live, path, reporting(allowed, report)));
    CHECK(report.paths(Report::What::unused) == Paths{"output"});
    CHECK((*live.output)[large - 1] == numbers(large, 1)[large - 1]);

    // A file that another program wrote untied loads.
    live = tied(large);
    (*live.embedding)[0] = -1;
    Report same;
    good(recorder.load_into(live, file(apart(numbers(large, 1), numbers(large, 1))), reporting(options, same)));
    CHECK(same.paths(Report::What::tied) == Paths{"output"});
    CHECK(same.count(Report::What::unused) == 0);
    CHECK((*live.output)[0] == 1);
    // A tied file loads as well.
    good(recorder.load_into(live, file(tied(large)), options));
  }
  // New modules are made as the file is.
  const Head fresh = good(recorder.load<Head>(file(apart(numbers(3, 1), numbers(3, 2)))));
  CHECK((*fresh.output)[0] == 2);
  // From a record of such a file.
  const auto record = good(recorder.load<stele::Record<Head>>(file(apart(numbers(3, 1), numbers(3, 2)))));
  Head live = tied();
  CHECK(stele::load_into(live, record).error().path() == "output");
  // Other shapes.
  const std::string shapes = file(apart(numbers(3, 1), numbers(4, 1)));
  for (const bool rebuild : {false, true}) {
    LoadOptions options;
    options.rebuild = rebuild;
    CHECK_FALSE(recorder.load_into(live, shapes, options).has_value());
    Head unset;
    unset.embedding = unset.output = std::make_shared<Weights>();
    CHECK_FALSE(recorder.load_into(unset, shapes, options).has_value());
  }
}

STELE_TEST_EACH_RECORDER("ties: different layers for one layer of the module are an error") {
  struct Case {
    Layers file;
    std::string path;
  };
  const Case cases[] = {
      {layers(1, 5, 7), ""},
      {tied_pair(), ""},
      {layers(2, 5, 7), "second.weight"},
      {layers(1, 6, 7), "second.bias"},
      {layers(1, 5, 8), "second.step"},
  };
  for (const Case& c : cases) {
    const Bytes bytes = good(saved(recorder, c.file));
    for (const LoadOptions& options : ways()) {
      Layers live = tied_pair();
      live.first->weight[0] = -1;
      const auto r = recorder.load_into(live, bytes, options);
      CAPTURE(why(r));
      CHECK((r ? std::string() : r.error().path()) == c.path);
      CHECK(live.first->weight[0] == (r ? 1.0F : -1.0F));
      if (r) continue;
      CHECK(r.error().code() == Errc::unused);
      LoadOptions allowed = options;
      allowed.allow_unused = {"second.*"};
      Report report;
      good(recorder.load_into(live, bytes, reporting(allowed, report)));
      CHECK(report.paths(Report::What::unused) == Paths{c.path});
    }
  }
}

TEST_CASE("ties: tensors of other dtypes are compared as the module has them") {
  struct File {
    Tensor<float, 1> embedding;
    Tensor<stele::float16, 1> output;
  };
  File file{Tensor<float, 1>({2}, {1, 2}),
            Tensor<stele::float16, 1>({2}, {stele::float16(1.0F), stele::float16(2.0F)})};
  Head live = tied(2);
  good(stele::load_into(live, good(stele::snapshot_of(file))));
  file.output[1] = stele::float16(2.5F);
  CHECK(stele::load_into(live, good(stele::snapshot_of(file))).error().path() == "output");
}

TEST_CASE("ties: a file with one name of an object that the constructor ties") {
  struct First {
    Weights embedding;
  };
  struct Second {
    Weights output;
  };
  const First first{numbers(3, 1)};
  const Second second{numbers(3, 1)};
  for (const auto& file : {good(stele::snapshot_of(first)), good(stele::snapshot_of(second))}) {
    Report report;
    const auto made = good(stele::load<Made>(file, {.report = &report}));
    REQUIRE(made.embedding);
    CHECK(made.embedding == made.output);
    CHECK(image(*made.output) == image(numbers(3, 1)));
    CHECK(report.count(Report::What::tied) == 1);
    // The file has nothing of this one.
    CHECK(made.head == nullptr);
    CHECK(report.paths(Report::What::missing) == std::vector<std::string>{"head"});
  }
}

TEST_CASE("ties: a file with one name of a tie leaves the other pointer null, with a row") {
  const Nothing file{numbers(3, 1)};
  const auto snapshot = good(stele::snapshot_of(file));
  Report report;
  const Head head = good(stele::load<Head>(snapshot, {.report = &report}));
  CHECK(head.embedding != nullptr);
  CHECK(head.output == nullptr);
  CHECK(report.paths(Report::What::missing) == std::vector<std::string>{"output"});
  // An absent object of another type is none of its names, nor is one that the file declares absent.
  struct Two {
    std::shared_ptr<Weights> embedding;
    std::shared_ptr<Tensor<double, 1>> other;
  };
  Report none;
  CHECK(good(stele::load<Two>(snapshot, {.report = &none})).other == nullptr);
  CHECK(none.count(Report::What::missing) == 0);
}

}  // namespace tied_load_test
