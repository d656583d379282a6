// Loading into new modules: what is missing, unused or of another form is an error, and the report says all of it.
#include <stele/module.hpp>
#include <stele/record.hpp>
#include <stele/snapshot.hpp>
#include <stele/tensor.hpp>
#include <stele/transform.hpp>

#include <doctest/doctest.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "support/models.hpp"

namespace strict_load_test {

using namespace stele_test;
using stele::Errc;
using stele::LoadOptions;
using stele::NodeKind;
using stele::Report;
using stele::Snapshot;
using stele::Tensor;

namespace {

struct Node {
  Vec w;
  std::unique_ptr<Node> next;
  STELE_MODULE(Node, w, next)
};

struct Step {
  std::int64_t step = 0;
  STELE_MODULE(Step, step)
};

}  // namespace

TEST_CASE("load: what is missing, unused or of another form, in a new module") {
  struct Short {
    std::vector<Linear> layers;
  };
  struct Long {
    std::vector<Linear> layers;
    Vec scale;
    std::optional<Vec> maybe;
    Mlp inner;
  };
  const Long full{{Linear(2, 2, 1)}, vec({1}), vec({2}), small_mlp()};
  const Short part{{Linear(2, 2, 1)}};
  LoadOptions options;
  Report report;

  SUBCASE("missing") {
    stele::Error e = bad(stele::load<Long>(snapshot(part), reporting(options, report)));
    CHECK(e.code() == Errc::missing);
    CHECK(e.path() == "scale");
    CHECK_FALSE(e.partially_applied());
    REQUIRE(e.report() != nullptr);
    CHECK(e.report()->paths(Report::What::missing) == report.paths(Report::What::missing));
    CHECK(report.paths(Report::What::missing) == Paths{"scale", "inner.layers", "inner.scale"});
    CHECK(e.message() == "the file lacks a parameter of the module (and 2 more)");
    CHECK(e.to_string().find("missing: scale") != std::string::npos);

    options.allow_missing = {"scale"};
    CHECK(bad(stele::load<Long>(snapshot(part), options)).path() == "inner.layers");
    options.allow_missing = {"scale", "inner"};
    CHECK(bad(stele::load<Long>(snapshot(part), options)).path() == "inner.layers");
    options.allow_missing = {"scale", "inner.*"};
    CHECK(good(stele::load<Long>(snapshot(part), options)).layers.size() == 1);
    options.allow_missing = {"*"};
    Report allowed;
    CHECK(good(stele::load<Long>(snapshot(part), reporting(options, allowed))).layers.size() == 1);
    CHECK(allowed.count(Report::What::missing) == 3);
    CHECK(allowed.paths(Report::What::applied) == Paths{"layers.0.weight", "layers.0.bias"});
    options.allow_missing = {"scal", "scale.*", "scale?", "inner.*"};
    CHECK(bad(stele::load<Long>(snapshot(part), options)).path() == "scale");
  }
  SUBCASE("unused") {
    stele::Error e = bad(stele::load<Short>(snapshot(full), reporting(options, report)));
    CHECK(e.code() == Errc::unused);
    CHECK(e.path() == "scale");
    CHECK(report.paths(Report::What::unused) == Paths{"scale", "maybe", "inner.layers.0.weight", "inner.layers.0.bias",
                                                      "inner.layers.1.weight", "inner.scale", "inner.seed"});
    CHECK(e.message() == "the file has an entry that the module does not use (and 6 more)");
    options.allow_unused = {"scale", "maybe", "inner.layers.*", "inner.seed"};
    e = bad(stele::load<Short>(snapshot(full), options));
    CHECK(e.path() == "inner.scale");
    CHECK(e.message() == "the file has an entry that the module does not use");
    options.allow_unused.emplace_back("inner.scale");
    CHECK(good(stele::load<Short>(snapshot(full), options)).layers.size() == 1);
    options.allow_unused = {"*"};
    CHECK(good(stele::load<Short>(snapshot(full), options)).layers.size() == 1);
  }
  SUBCASE("mismatched") {
    struct OtherRank {
      std::vector<Vec> layers;
    };
    stele::Error e = bad(stele::load<OtherRank>(snapshot(part), reporting(options, report)));
    CHECK(e.code() == Errc::kind_mismatch);
    CHECK(e.path() == "layers.0");
    CHECK(e.expected() == "tensor");
    CHECK(e.found() == "module");
    CHECK(report.paths(Report::What::mismatched) == Paths{"layers.0"});
    struct Fixed {
      std::array<Linear, 2> layers;
    };
    e = bad(stele::load<Fixed>(snapshot(part)));
    CHECK(e.code() == Errc::shape_mismatch);
    CHECK(e.path() == "layers");
    struct AsMap {
      std::map<std::string, Linear> layers;
    };
    e = bad(stele::load<AsMap>(snapshot(part)));
    CHECK(e.code() == Errc::kind_mismatch);
    struct Ints {
      Tensor<int, 1> scale;
    };
    struct Floats {
      Tensor<float, 1> scale;
    };
    e = bad(stele::load<Ints>(snapshot(Floats{vec({1})})));
    CHECK(e.code() == Errc::dtype_mismatch);
    CHECK(e.expected() == "i32");
    CHECK(e.found() == "f32");
    struct Rank2 {
      Tensor<float, 2> scale;
    };
    e = bad(stele::load<Rank2>(snapshot(Floats{vec({1})})));
    CHECK(e.code() == Errc::shape_mismatch);
    CHECK(e.expected() == "rank 2");
    struct Variant {
      std::variant<Vec, Mlp> layers;
    };
    e = bad(stele::load<Variant>(snapshot(part)));
    CHECK(e.code() == Errc::kind_mismatch);
    CHECK(e.expected() == "0 or Mlp");
  }
}

TEST_CASE("load: a load that would apply nothing is an error") {
  struct Layers {
    std::vector<Vec> layers;
    std::map<std::string, Vec> heads;
  };
  struct Wrapped {
    Layers model;
  };
  struct Other {
    Vec weight;
  };
  LoadOptions any;
  any.allow_missing = any.allow_unused = {"*"};
  const Wrapped wrapped{{{vec({1, 2}), vec({3})}, {{"a", vec({4})}}}};
  const Snapshot file = good(stele::flatten(good(stele::snapshot_of(wrapped))));
  const auto check = [](const stele::Error& error, std::string_view hint) {
    CHECK(error.code() == Errc::nothing_applied);
    CHECK(error.hint().find(hint) != std::string_view::npos);
    REQUIRE(error.report());
    CHECK(error.report()->count(Report::What::applied) == 0);
  };
  const char* in_file = "every name of the file begins with \"model.\": set LoadOptions::part to \"model\"";
  check(bad(stele::load<Layers>(file, any)), in_file);
  Layers live{{vec({7})}, {}};
  check(bad(stele::load_into(live, file, any)), in_file);
  CHECK(image(live.layers[0]) == image(vec({7})));
  CHECK(good(stele::load<Layers>(good(stele::part(file, "model")), any)).layers.size() == 2);

  const Layers bare = wrapped.model;
  const Snapshot other = good(stele::flatten(good(stele::snapshot_of(bare))));
  struct Fixed {
    std::array<Vec, 1> encoder;
  };
  check(bad(stele::load<Fixed>(other, any)),
        "every name of the module begins with \"encoder.\": load stele::with_prefix(file, \"encoder\")");
  check(bad(stele::load<Other>(other, any)), "set LoadOptions::allow_nothing");

  any.allow_nothing = true;
  Report report;
  CHECK(good(stele::load<Layers>(file, reporting(any, report))).layers.empty());
  CHECK(report.count(Report::What::unused) == 3);
  any.allow_nothing = false;
  // One entry is enough, also a value; and a file without entries has none to apply.
  stele::SnapshotBuilder builder;
  builder.set_flat();
  builder.value("step", stele::Value(std::int64_t{3}), true);
  CHECK(good(stele::load<Step>(builder.finish(), any)).step == 3);
  const Layers empty;
  CHECK(good(stele::load<Layers>(good(stele::snapshot_of(empty)), any)).layers.empty());
}

TEST_CASE("load: several faults are all in the report") {
  struct File {
    Vec a, b;
    Vec extra;
  };
  struct Model {
    Mat a;
    Vec b, c, d;
  };
  Report report;
  const stele::Error e = bad(stele::load<Model>(snapshot(File{vec({1}), vec({2}), vec({3})}), {.report = &report}));
  CHECK(e.path() == "a");
  CHECK(report.paths(Report::What::mismatched) == Paths{"a"});
  CHECK(report.paths(Report::What::missing) == Paths{"c", "d"});
  CHECK(report.paths(Report::What::unused) == Paths{"extra"});
  CHECK(report.to_string().find("mismatched a: expected rank 2, found rank 1 [1]") != std::string::npos);
}

TEST_CASE("load: limits on tensor memory") {
  struct Model {
    Vec a, b;
  };
  const Model m{vec({1, 2}), vec({3, 4})};
  LoadOptions options;
  options.limits.tensor_bytes = 7;
  const stele::Error e = bad(stele::load<Model>(snapshot(m), options));
  CHECK(e.code() == Errc::limit);
  CHECK(e.path() == "a");
  options.limits.tensor_bytes = 8;
  CHECK(image(good(stele::load<Model>(snapshot(m), options))) == image(m));
  options.limits.total_bytes = 15;
  CHECK(bad(stele::load<Model>(snapshot(m), options)).path() == "b");
  options.limits.total_bytes = 16;
  CHECK(image(good(stele::load<Model>(snapshot(m), options))) == image(m));
  // Counted once, also where the walk over the structure is done twice.
  options.rebuild = true;
  Model in_place{vec({0}), vec({0})};
  good(stele::load_into(in_place, snapshot(m), options));
  CHECK(image(in_place) == image(m));
}

TEST_CASE("load: nesting deeper than the limit is refused, on save and on load") {
  const auto chain = [](int n) {
    auto first = std::make_unique<Node>();
    Node* last = first.get();
    for (int i = 1; i < n; ++i) {
      last->next = std::make_unique<Node>();
      last = last->next.get();
    }
    return first;
  };
  const stele::Error e = bad(stele::snapshot_of(*chain(300)));
  CHECK(e.code() == Errc::limit);
  CHECK_FALSE(e.path().empty());
  const auto within = chain(250);
  CHECK(image(good(stele::load<Node>(snapshot(*within)))) == image(*within));

  stele::SnapshotBuilder deep;
  static const Vec leaf = vec({1});
  const Snapshot one = snapshot(leaf);
  const stele::Extent extent[] = {1};
  for (int i = 0; i < 600; ++i) {
    deep.begin(NodeKind::module, i == 0 ? "" : "next");
    deep.tensor("w", stele::DType::f32, extent, 4, one.leaf(0).provider());
  }
  const Snapshot file = deep.finish();
  CHECK(bad(stele::load<Node>(file)).code() == Errc::limit);
  Node in_place;
  LoadOptions options;
  options.rebuild = true;
  CHECK(bad(stele::load_into(in_place, file, options)).code() == Errc::limit);
  CHECK(in_place.next == nullptr);
}

}  // namespace strict_load_test
