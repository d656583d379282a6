// A program with a Boost of its own, before and after stele.hpp. Classes and enumerations that this Boost or stele's
// describes are modules and values.
#include <boost/describe.hpp>
#include <boost/mp11.hpp>
#include <boost/pfr.hpp>

#include "stele.hpp"

// The order is the test.
#include <boost/describe/members.hpp>
#include <boost/mp11/algorithm.hpp>
#include <boost/pfr/core.hpp>

enum class Theirs { relu, gelu };
BOOST_DESCRIBE_ENUM(Theirs, relu, gelu)
enum class Ours { left, right };
STELE_BOOST_DESCRIBE_ENUM(Ours, left, right)

struct Base {
  std::vector<float> scale;
};
BOOST_DESCRIBE_STRUCT(Base, (), (scale))
struct Layer : Base {
  std::vector<float> weight;
  Theirs activation = Theirs::relu;
  Ours side = Ours::left;
};
BOOST_DESCRIBE_STRUCT(Layer, (Base), (weight, activation, side))
class Head {
 public:
  std::vector<float> bias;

 private:
  STELE_MODULE(Head, bias)
};
struct Tail {
  std::vector<float> bias;
};
STELE_BOOST_DESCRIBE_STRUCT(Tail, (), (bias))
struct Plain {
  Layer layer;
  Head head;
  Tail tail;
};

static_assert(boost::mp11::mp_size<boost::describe::describe_members<Layer, boost::describe::mod_any_access>>::value ==
              3);
static_assert(boost::pfr::tuple_size_v<Plain> == 3);

int main() {
  Plain model;
  model.layer.scale = {1};
  model.layer.weight = {2, 3};
  model.layer.activation = Theirs::gelu;
  model.layer.side = Ours::right;
  model.head.bias = {4};
  model.tail.bias = {5};
  if (!stele::save(model, "boost.stele")) return 1;
  const auto loaded = stele::load<Plain>("boost.stele");
  if (!loaded) return 2;
  const Layer& layer = loaded->layer;
  if (layer.scale != model.layer.scale || layer.weight != model.layer.weight || loaded->head.bias != model.head.bias)
    return 3;
  if (layer.activation != Theirs::gelu || layer.side != Ours::right || loaded->tail.bias != model.tail.bias) return 4;
  const auto file = stele::open("boost.stele");
  return file && file->leaf_count() == 4 ? 0 : 5;
}
