// Loading into a module that lives: structure first, nothing changes on error, rebuilding when asked.
#include <stele/module.hpp>
#include <stele/record.hpp>
#include <stele/snapshot.hpp>
#include <stele/tensor.hpp>

#include <doctest/doctest.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "support/models.hpp"

namespace in_place_test {

using namespace stele_test;
using stele::Errc;
using stele::LoadOptions;
using stele::Report;
using stele::Snapshot;

namespace {

using One = std::array<float, 1>;

struct Model {
  Vec first;
  std::vector<Linear> layers;
  std::optional<Vec> maybe;
  std::map<std::string, Vec> heads;
  std::variant<Vec, Linear> either;
  std::unique_ptr<Linear> pointer;
  std::array<Linear, 2> fixed;
  std::tuple<Vec, std::vector<Vec>> tuple;
  std::vector<std::array<Linear, 2>> arrays;
  std::vector<One> numbers;
  int steps = 0;
  std::vector<std::string> names;
  STELE_MODULE(Model, first, layers, maybe, heads, either, pointer, fixed, tuple, arrays, numbers, steps, names)
};

Model model(float n) {
  Model m;
  m.first = vec({n, n});
  m.layers.emplace_back(2, 2, n);
  m.layers.emplace_back(2, 1, n, false);
  m.maybe = vec({n});
  m.heads["a"] = vec({n});
  m.heads["b"] = vec({n});
  m.either = Linear(1, 1, n);
  m.pointer = std::make_unique<Linear>(1, 1, n);
  m.fixed = {Linear(1, 1, n), Linear(1, 1, n)};
  m.tuple = {vec({n}), {}};
  std::get<1>(m.tuple).emplace_back(vec({n}));
  m.arrays.resize(1);
  m.arrays[0] = {Linear(1, 1, n), Linear(1, 1, n)};
  m.numbers = {{n}};
  m.steps = static_cast<int>(n);
  m.names = {"x", std::to_string(n)};
  return m;
}

const LoadOptions rebuild = [] {
  LoadOptions o;
  o.rebuild = true;
  return o;
}();

/// `change` makes another structure; loading it is the error `code` at `path` and changes nothing, except when the
/// structure is to be rebuilt.
template <class Change>
void refused(Errc code, const std::string& path, Change change) {
  CAPTURE(path);
  Model other = model(2);
  change(other);
  Model m = model(1);
  const Image before = image(m);
  Report report;
  const stele::Error e = bad(stele::load_into(m, snapshot(other), {.report = &report}));
  CHECK(e.code() == code);
  CHECK(e.path() == path);
  CHECK_FALSE(e.partially_applied());
  CHECK(image(m) == before);
  CHECK(report.count(Report::What::applied) == 0);
  good(stele::load_into(m, snapshot(other), reporting(rebuild, report)));
  CHECK(image(m) == image(other));
}

}  // namespace

TEST_CASE("in place: the same structure, no memory is allocated anew") {
  Model m = model(1);
  const float* first = m.first->data();
  const float* second = m.layers[1].weight->data();
  Report report;
  good(stele::load_into(m, snapshot(model(2)), {.report = &report}));
  CHECK(image(m) == image(model(2)));
  CHECK(m.first->data() == first);
  CHECK(m.layers[1].weight->data() == second);
  CHECK(report.count(Report::What::applied) == report.size());
  CHECK(report.paths(Report::What::applied).size() == snapshot(m).leaf_count() + 3);
}

TEST_CASE("in place: another structure is refused whole, or rebuilt when asked") {
  refused(Errc::shape_mismatch, "first", [](Model& m) { m.first = vec({1, 2, 3}); });
  refused(Errc::shape_mismatch, "layers", [](Model& m) { m.layers.pop_back(); });
  refused(Errc::shape_mismatch, "layers", [](Model& m) { m.layers.emplace_back(1, 1, 9.0F); });
  refused(Errc::shape_mismatch, "layers.1.weight", [](Model& m) { m.layers[1] = Linear(3, 1, 9, false); });
  refused(Errc::missing, "layers.0.bias", [](Model& m) { m.layers[0].bias.reset(); });
  refused(Errc::kind_mismatch, "layers.1.bias", [](Model& m) { m.layers[1].bias = vec({1}); });
  refused(Errc::missing, "maybe", [](Model& m) { m.maybe.reset(); });
  refused(Errc::missing, "heads.b", [](Model& m) { m.heads.erase("b"); });
  refused(Errc::unused, "heads.c", [](Model& m) { m.heads["c"] = vec({1}); });
  refused(Errc::kind_mismatch, "either.0", [](Model& m) { m.either = vec({1}); });
  refused(Errc::missing, "pointer", [](Model& m) { m.pointer.reset(); });
  refused(Errc::shape_mismatch, "tuple.1", [](Model& m) { std::get<1>(m.tuple).clear(); });
  refused(Errc::shape_mismatch, "arrays", [](Model& m) { m.arrays.resize(3); });
  refused(Errc::shape_mismatch, "numbers", [](Model& m) { m.numbers.resize(3); });
  refused(Errc::shape_mismatch, "names", [](Model& m) { m.names.clear(); });
}

TEST_CASE("in place: parts that the module has and the file has not, when allowed, stay") {
  Model other = model(2);
  other.maybe.reset();
  other.layers[0].bias.reset();
  other.heads.erase("a");
  LoadOptions options;
  options.allow_missing = {"maybe", "layers.*", "heads.a"};
  Model m = model(1);
  Report report;
  good(stele::load_into(m, snapshot(other), reporting(options, report)));
  CHECK((**m.maybe)[0] == 1);
  CHECK((**m.layers[0].bias)[0] == 1);
  CHECK((*m.layers[0].weight)(0, 0) == 2);
  CHECK((*m.heads["a"])[0] == 1);
  CHECK((*m.heads["b"])[0] == 2);
  CHECK(report.paths(Report::What::missing) == Paths{"layers.0.bias", "maybe", "heads.a"});
}

TEST_CASE("in place: rebuilding checks all of the structure before it changes anything") {
  // Elements that will be made anew are no objects yet that could give their fixed lengths.
  struct WrongArrays {
    std::vector<std::array<Linear, 3>> arrays;
  };
  struct Arrays {
    std::vector<std::array<Linear, 2>> arrays;
  };
  WrongArrays lists;
  lists.arrays.resize(2);
  for (auto& a : lists.arrays) a.fill(Linear(1, 1, 5));
  Arrays into;
  into.arrays.resize(1);
  into.arrays[0].fill(Linear(1, 1, 6));
  Image before = image(into);
  stele::Error e = bad(stele::load_into(into, good(stele::snapshot_of(lists)), rebuild));
  CHECK(e.code() == Errc::shape_mismatch);
  CHECK(e.path() == "arrays.0");
  CHECK_FALSE(e.partially_applied());
  CHECK(image(into) == before);

  struct WrongNumbers {
    std::vector<std::array<float, 2>> numbers;
  };
  struct Numbers {
    std::vector<One> numbers;
  };
  const WrongNumbers tensors{{{1, 2}, {3, 4}}};
  Numbers numbers{{{9}}};
  before = image(numbers);
  e = bad(stele::load_into(numbers, good(stele::snapshot_of(tensors)), rebuild));
  CHECK(e.code() == Errc::shape_mismatch);
  CHECK(e.path() == "numbers.0");
  CHECK_FALSE(e.partially_applied());
  CHECK(image(numbers) == before);
}

TEST_CASE("in place: a record is loaded like a file") {
  const Model other = model(2);
  auto r = good(stele::record_of(other));
  r.steps = 77;
  Model m = model(1);
  good(stele::load_into(m, r));
  CHECK(m.steps == 77);
  m.steps = 2;
  CHECK(image(m) == image(other));
  r.layers.pop_back();
  const Image before = image(m);
  CHECK(bad(stele::load_into(m, r)).path() == "layers");
  CHECK(image(m) == before);
  good(stele::load_into(m, r, rebuild));
  CHECK(m.layers.size() == 1);
}

TEST_CASE("in place: a module that is loaded from itself stays") {
  Model m = model(1);
  good(stele::load_into(m, snapshot(m)));
  CHECK(image(m) == image(model(1)));
}

}  // namespace in_place_test
