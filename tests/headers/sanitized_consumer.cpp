// A program with every attribute and every kind of class. It is only compiled, with the sanitizers of the compiler:
// they take fewer expressions for constant.
#include <stele/derived.hpp>
#include <stele/recorders/burn.hpp>
#include <stele/stele.hpp>

#include <boost/describe/class.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace {

enum class Activation { relu, tanh };

class Linear {
 public:
  std::vector<float> weight, bias, scratch;
  Activation activation = Activation::relu;
  STELE_MODULE(Linear, weight, bias, scratch, activation)
  static constexpr stele::Attribute stele_attributes[] = {
      stele::attr::version(3),
      stele::attr::type_name("Dense"),
      stele::attr::rename("weight", "kernel"),
      stele::attr::alias("bias", "b"),
      stele::attr::keep_default("bias"),
      stele::attr::skip("scratch"),
      stele::attr::was_one("bias"),
      stele::attr::moved("kernel", "inner.weight"),
      stele::attr::burn_layout("kernel bias"),
  };
};
class Derived : public Linear {
 public:
  std::vector<float> more;
  STELE_MODULE_DERIVED(Derived, (Linear), more)
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::rename("more", "most")};
};
struct Outside {
  std::vector<float> weight;
  std::string name;
};
BOOST_DESCRIBE_STRUCT(Outside, (), (weight, name))
struct Small {
  std::vector<float> weight;
  int stride = 1;
};
struct Made {
  explicit Made(std::vector<float> w) : weight(std::move(w)) {}
  const std::vector<float> weight;
  STELE_MODULE(Made, weight)
  static Made from_record(stele::Record<Made>&& record) { return Made(record.weight.load().value()); }
};
struct Base {
  virtual ~Base() = default;
};
struct Scale : Base {
  std::vector<float> scale;
  STELE_MODULE(Scale, scale)
};
struct Model {
  std::vector<std::unique_ptr<Base>> behind;
  std::vector<Linear> layers;
  Derived derived;
  Outside outside;
  Small small;
  std::variant<Linear, Small> either;
  std::map<std::string, std::optional<std::vector<float>>> map;
  std::shared_ptr<stele::Param<stele::Tensor<float, 2>>> tied, again;
  std::unique_ptr<Small> pointer;
  std::vector<Made> made;
  stele::Value settings;
  STELE_MODULE(Model, behind, layers, derived, outside, small, either, map, tied, again, pointer, made, settings)
};

}  // namespace

template <>
struct stele::derived<Base> : stele::derived_list<Scale> {};
template <>
struct stele::attributes<Outside> {
  static constexpr stele::Attribute list[] = {stele::attr::version(2), stele::attr::rename("weight", "w")};
  static std::string_view migrate(std::uint32_t, std::string_view field) { return field; }
  static stele::Result<stele::Snapshot> migrate(std::uint32_t, const stele::Snapshot& old) { return old; }
};
template <>
struct stele::attributes<Small> {
  static constexpr stele::Attribute list[] = {stele::attr::alias("weight", "w")};
};

int main() {
  Model model;
  model.layers.resize(2);
  model.made.emplace_back(std::vector<float>{1});
  model.tied = model.again = std::make_shared<stele::Param<stele::Tensor<float, 2>>>();
  const stele::Bytes bytes = stele::BytesRecorder<>{}.save(model).value();
  const Model loaded = stele::load<Model>(bytes).value();
  auto record = stele::BytesRecorder<>{}.load<stele::Record<Model>>(bytes).value();
  return loaded.layers.size() == 2 && loaded.tied == loaded.again && record.made.size() == 1 ? 0 : 1;
}
