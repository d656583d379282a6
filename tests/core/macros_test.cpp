// STELE_MODULE where the names around it, or its bases, are unusual; what an optional may hold.
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

using namespace stele_test;

namespace my {
// Would be found before those that the macros mean.
namespace boost {
struct Thing {};
}  // namespace boost
namespace std {
struct Thing {};
}  // namespace std
namespace stele {
struct Thing {};
}  // namespace stele

template <class A, class B>
class Pair {
 public:
  ::std::vector<float> first{1};
  STELE_MODULE(Pair, first)
};
class Plain {
 public:
  ::std::vector<float> second{2};
  STELE_MODULE(Plain, second)
};
class Empty {
  STELE_MODULE(Empty)
};
class Model : public Pair<int, float>, public Plain {
 public:
  ::std::vector<float> third{3};
  ::std::vector<Empty> empty = ::std::vector<Empty>(1);
  STELE_MODULE_DERIVED(Model, (Pair<int, float>, Plain), third, empty)
};

::stele::Result<int> two() {
  STELE_TRY_ASSIGN(const int one, ::stele::Result<int>(1));
  STELE_TRY(::stele::Result<int>(2));
  return one + 1;
}
}  // namespace my

namespace {

template <class Outer>
struct Held {
  Vec weight;
  Outer held;
  STELE_MODULE(Held, weight, held)
};

template <class Outer>
Held<Outer> held(Outer outer) {
  Held<Outer> h;
  h.weight = vec({1});
  h.held = std::move(outer);
  return h;
}

}  // namespace

TEST_SUITE_BEGIN("macros");

TEST_CASE("macros: namespaces of the user's named boost and std, bases with a comma") {
  CHECK(good(my::two()) == 2);
  my::Model model;
  model.first = {4};
  const stele::Bytes bytes = good(stele::BytesRecorder<>{}.save(model));
  const my::Model loaded = good(stele::load<my::Model>(bytes));
  CHECK(loaded.first == model.first);
  CHECK(loaded.second == model.second);
  CHECK(loaded.third == model.third);
  const auto record = good(stele::record_of(model));
  CHECK(record.first.size() == 1);
  CHECK(record.third.size() == 1);
  CHECK(good(stele::load<my::Model>(good(stele::BytesRecorder<>{}.save(model)))).empty.size() == 1);
}

STELE_TEST_EACH_RECORDER("an optional that holds an empty one is an error, not an empty one") {
  using Twice = std::optional<std::optional<Vec>>;
  using Pointer = std::unique_ptr<std::optional<Vec>>;
  using Shared = std::shared_ptr<std::unique_ptr<Vec>>;
  const auto refused = [&](const auto& model) {
    const auto bytes = saved(recorder, model);
    REQUIRE_FALSE(bytes.has_value());
    CHECK(bytes.error().code() == stele::Errc::not_representable);
    CHECK(bytes.error().path() == "held");
  };
  refused(held(Twice(std::optional<Vec>())));
  refused(held(std::make_unique<std::optional<Vec>>()));
  refused(held(std::make_shared<std::unique_ptr<Vec>>()));

  const auto there = good(saved(recorder, held(Twice(std::optional<Vec>(vec({5}))))));
  const auto loaded = good(recorder.load<Held<Twice>>(there));
  REQUIRE((loaded.held && *loaded.held));
  CHECK((***loaded.held)[0] == 5);
  const auto none = good(saved(recorder, held(Twice())));
  CHECK_FALSE(good(recorder.load<Held<Twice>>(none)).held.has_value());
  CHECK(good(recorder.load<Held<Pointer>>(none)).held == nullptr);
  CHECK(good(recorder.load<Held<Shared>>(none)).held == nullptr);
}

TEST_CASE("a tensor or a container alone is loaded as a module is") {
  const stele::BytesRecorder<> recorder;
  const std::vector<float> numbers{1, 2, 3};
  CHECK(good(recorder.load<std::vector<float>>(good(recorder.save(numbers)))) == numbers);
  const std::map<std::string, std::vector<float>> map{{"a", {1}}, {"b", {2, 3}}};
  CHECK(good(stele::load<std::map<std::string, std::vector<float>>>(good(recorder.save(map)))) == map);
}

TEST_SUITE_END();
