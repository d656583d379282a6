// A program that only imports stele: classes with and without the macro, own specialisations, three recorders, a
// snapshot, errors.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

import stele;
#include <stele/macros.hpp>

namespace {

void require(bool good, const char* what) {
  if (good) return;
  std::cerr << what << ": wrong\n";
  std::exit(1);
}

struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<float> elements;
};

enum class Activation { relu, tanh };

class Linear {
 public:
  Linear() = default;
  explicit Linear(float x) : weight_{2, 1, {x, x}}, steps_(7), activation_(Activation::tanh) {}
  const Matrix& weight() const { return weight_; }
  bool as_made() const { return steps_ == 7 && activation_ == Activation::tanh; }

 private:
  Matrix weight_;
  std::uint64_t steps_ = 0;
  Activation activation_ = Activation::relu;
  STELE_MODULE(Linear, weight_, steps_, activation_)
};

struct Layer {
  virtual ~Layer() = default;
  std::vector<float> scale{1};
  STELE_MODULE(Layer, scale)
};
struct Dense : Layer {
  Linear linear;
  STELE_MODULE_DERIVED(Dense, (Layer), linear)
};

struct Model {  // no macro
  stele::Tensor<float, 2> table;
  std::optional<std::vector<double>> bias;
  std::map<std::string, Linear> heads;
  std::vector<std::unique_ptr<Layer>> layers;
  std::variant<Linear, Matrix> either;
  std::shared_ptr<stele::Param<stele::Tensor<float, 1>>> tied, again;
};

}  // namespace

template <>
struct stele::tensor_traits<Matrix> {
  using element = float;
  static constexpr int rank = 2;
  static Shape shape(const Matrix& m) { return {m.rows, m.columns}; }
  static const float* data(const Matrix& m) { return m.elements.data(); }
  static float* data(Matrix& m) { return m.elements.data(); }
  static void resize(Matrix& m, const Shape& s) { m = {s[0], s[1], std::vector<float>(s[0] * s[1])}; }
};
template <>
struct stele::attributes<Linear> {
  static constexpr stele::Attribute list[] = {stele::attr::rename("weight_", "weight")};
};
template <>
struct stele::derived<Layer> : stele::derived_list<Dense> {};

namespace {

Model make() {
  Model m{stele::Tensor<float, 2>::filled({3, 4}, 0.5F), std::vector<double>{1, 2}, {}, {}, Linear(9), {}, {}};
  m.heads.emplace("first", 3.0F);
  m.layers.push_back(std::make_unique<Dense>());
  m.tied = m.again = std::make_shared<stele::Param<stele::Tensor<float, 1>>>();
  m.tied->value = stele::Tensor<float, 1>::zeros({2});
  return m;
}

template <class Recorder>
void round_trip(const char* path) {
  Recorder{}.save(make(), path).value();
  const Model m = stele::load<Model>(path).value();
  require(m.table(2, 3) == 0.5F && m.bias.value()[1] == 2, path);
  require(m.heads.at("first").weight().elements[1] == 3 && m.heads.at("first").as_made(), path);
  require(dynamic_cast<const Dense&>(*m.layers.at(0)).scale[0] == 1 && m.tied == m.again, path);
  Model in_place = make();
  in_place.table(0, 0) = 1;
  Recorder{}.load_into(in_place, path).value();
  require(in_place.table(0, 0) == 0.5F, path);
}

stele::Result<std::uint64_t> parameters_of(const char* path) {
  STELE_TRY_ASSIGN(const stele::Snapshot snapshot, stele::open(path));
  STELE_TRY(stele::check_expansion(snapshot));
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) n += snapshot.leaf(i).size();
  return n;
}

}  // namespace

int main() {
  round_trip<stele::BinaryRecorder<>>("model.stele");
  round_trip<stele::SafetensorsRecorder<>>("model.safetensors");
  round_trip<stele::JsonRecorder<stele::DoublePrecision>>("model.json");

  const Model model = make();
  const stele::Snapshot snapshot = stele::snapshot_of(model).value();
  require(snapshot.find("heads.first.weight")->shape()[0] == 2, "a name of stele::attributes");
  require(parameters_of("model.json").value() == stele::num_params(model), "number of parameters");
  auto record = stele::load<stele::Record<Model>>("model.stele").value();
  require(stele::get<"table">(record).load().value()(1, 1) == 0.5F, "a record");

  require(parameters_of("missing.stele").error().code() == stele::Errc::not_found, "STELE_TRY_ASSIGN");
  const auto refused = stele::load<Linear>("model.stele");
  std::ostringstream text;
  text << refused.error();
  require(text.str().find("weight") != std::string::npos, "operator<<");
  try {
    refused.value();
  } catch (const stele::Exception& error) {
    std::cout << "module: all works; an error: " << error.what() << "\n";
    return 0;
  }
  return 1;
}
