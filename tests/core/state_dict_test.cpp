// Maps of tensors as whole modules: state dicts, whose keys are whole names of a file.
#include <stele/stele.hpp>
#include <stele/transform.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace state_dict_test {

using namespace stele_test;
using stele::Errc;
using stele::Error;
using stele::Report;

namespace {

using Matrix = stele::Tensor<float>;
using StateDict = std::map<std::string, Matrix>;

struct Layer {
  std::vector<float> weight{1, 2}, bias{3};
};
struct Model {
  std::vector<Layer> layers{{}, {{4, 5, 6}, {7}}};
  Layer head;
};

struct Tied {
  std::shared_ptr<std::vector<float>> a = std::make_shared<std::vector<float>>(2, 1.0F), b = a;
};
struct Valued {
  std::vector<float> w{1};
  std::string name = "x";
  STELE_MODULE(Valued, w, name)
};

std::map<std::string, std::vector<float>> values_of(const auto& dict) {
  std::map<std::string, std::vector<float>> values;
  for (const auto& [name, tensor] : dict) values[name] = {tensor.begin(), tensor.end()};
  return values;
}
const std::map<std::string, std::vector<float>> expected{{"layers.0.weight", {1, 2}},    {"layers.0.bias", {3}},
                                                         {"layers.1.weight", {4, 5, 6}}, {"layers.1.bias", {7}},
                                                         {"head.weight", {1, 2}},        {"head.bias", {3}}};

}  // namespace

TEST_CASE("state dict: every tensor of a file by its name, and back") {
  const TempDir dir;
  for (const char* extension : {".safetensors", ".stele", ".json", ".pt", ".npz", ".bpk", ".onnx"}) {
    CAPTURE(extension);
    const std::string file = dir / ("model" + std::string(extension)), again = dir / ("again" + std::string(extension));
    good(stele::save(Model(), file));
    StateDict dict = good(stele::load<StateDict>(file));
    CHECK(values_of(dict) == expected);
    CHECK(values_of(good(stele::load<std::unordered_map<std::string, std::vector<float>>>(file))) == expected);
    good(stele::save(dict, again));
    CHECK(values_of(good(stele::load<StateDict>(again))) == expected);
    const Model model = good(stele::load<Model>(again));  // the names are those of the module
    CHECK(model.layers.at(1).weight == std::vector<float>{4, 5, 6});
    // In place.
    for (auto& [name, tensor] : dict) std::fill(tensor.begin(), tensor.end(), 0.0F);
    good(stele::load_into(dict, file));
    CHECK(values_of(dict) == expected);
    CHECK(good(stele::dry_run<StateDict>(good(stele::open(file)))).count(Report::What::applied) == 6);
  }
}

TEST_CASE("state dict: names of other programs stay as they are") {
  StateDict dict;
  for (const char* name : {"a..b", "a\\b", ".", "a.", "0", "a", "a.b", "\xc3\xa4 / b"})
    dict[name] = Matrix({1}, {1.0F});
  const TempDir dir;
  const std::string file = dir / "names.safetensors";
  good(stele::save(dict, file));
  CHECK(values_of(good(stele::load<StateDict>(file))) == values_of(dict));
  std::vector<std::string> names;
  const stele::Snapshot opened = good(stele::open(file));
  for (std::size_t i = 0; i < opened.leaf_count(); ++i) names.push_back(opened.leaf(i).path());
  std::sort(names.begin(), names.end());
  std::vector<std::string> keys;
  for (const auto& [name, tensor] : dict) keys.push_back(name);
  CHECK(names == keys);
}

TEST_CASE("state dict: parts, ties, missing and other entries") {
  const TempDir dir;
  const std::string file = dir / "model.safetensors";
  good(stele::save(Model(), file));
  // A part.
  const auto part = good(stele::load<StateDict>(file, {.part = "layers.1"}));
  CHECK(values_of(part) == std::map<std::string, std::vector<float>>{{"weight", {4, 5, 6}}, {"bias", {7}}});
  // In place: the keys of the map.
  StateDict some;
  some["head.bias"] = Matrix();
  some["head.scale"] = Matrix();
  Error error = bad(stele::load_into(some, file));
  CHECK(error.code() == Errc::missing);
  CHECK(error.path() == "head.scale");
  some.erase("head.scale");
  error = bad(stele::load_into(some, file));
  CHECK(error.code() == Errc::unused);
  good(stele::load_into(some, file, {.allow_unused = {"*"}}));
  CHECK(some.at("head.bias").size() == 1);
  // A tensor that does not fit: the error has the whole name.
  error = bad(stele::load<std::map<std::string, stele::Tensor<float, 2>>>(file));
  CHECK(error.path() == "head.bias");
  CHECK(error.code() == Errc::shape_mismatch);
  // Types without names.
  for (const Error& e : {bad(stele::load<std::vector<Matrix>>(file)), bad(stele::load<Matrix>(file))}) {
    CHECK(e.hint() == "load a std::map<std::string, T> of tensors to get them by their names");
  }
  // Both names of a tied tensor.
  const std::string tied = dir / "tied.stele";
  good(stele::save(Tied(), tied));
  CHECK(good(stele::load<StateDict>(tied)).size() == 2);
  // Values are no tensors.
  const std::string valued = dir / "valued.stele";
  good(stele::save(Valued(), valued));
  error = bad(stele::load<StateDict>(valued));
  CHECK(error.code() == Errc::unused);
  CHECK(error.path() == "name");
  CHECK(good(stele::load<StateDict>(valued, {.allow_unused = {"name"}})).size() == 1);
  good(stele::save(StateDict(), dir / "empty.safetensors"));
  CHECK(good(stele::load<StateDict>(dir / "empty.safetensors")).empty());
}

}  // namespace state_dict_test
