#include <doctest/doctest.h>

#include <cereal/types/map.hpp>
#include <cereal/types/memory.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/vector.hpp>

#include "stele/cereal.hpp"
#include "stele/stele.hpp"

namespace cereal_test {

namespace {

// Not aggregates: a plain aggregate is a module, whatever functions it has.
struct Schedule {
  Schedule() = default;
  Schedule(std::string k, double r, std::vector<int> s) : kind(std::move(k)), rate(r), steps(std::move(s)) {}
  std::string kind = "cosine";
  double rate = 0.1;
  std::vector<int> steps{1, 2, 3};
  bool operator==(const Schedule&) const = default;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(kind), CEREAL_NVP(rate), CEREAL_NVP(steps));
  }
};

class Config {
 public:
  Config() = default;
  Schedule schedule;
  std::map<std::string, std::uint64_t> counts{{"a", 1}, {"b", UINT64_MAX}};
  bool operator==(const Config&) const = default;

 private:
  friend class cereal::access;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(schedule, counts);
  }
};

struct Chain {
  std::unique_ptr<Chain> next;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(next);
  }
};

class Trainer {
 public:
  stele::Tensor<float, 1> weight = stele::Tensor<float, 1>::filled({3}, 2.0F);
  Config config;
  std::optional<Schedule> warmup;
  STELE_MODULE(Trainer, weight, config, warmup)
};

}  // namespace

TEST_CASE_TEMPLATE("cereal types are values in every recorder", Format, stele::SteleFormat, stele::SafetensorsFormat,
                   stele::JsonFormat) {
  const stele::MemoryRecorder<Format> recorder;
  Trainer trainer;
  trainer.config.schedule.rate = 0.25;
  trainer.config.counts["c"] = 7;
  for (const bool warm : {false, true}) {
    if (warm) trainer.warmup = Schedule{"linear", 1e-3, {}};
    const stele::Bytes bytes = recorder.save(trainer).value();
    const Trainer again = recorder.template load<Trainer>(bytes).value();
    CHECK(again.config == trainer.config);
    CHECK(again.warmup == trainer.warmup);
  }
}

TEST_CASE("a cereal value has the shape that its names say") {
  const stele::Value value = stele::value_traits<Schedule>::to_value(Schedule{});
  REQUIRE(value.find("kind") != nullptr);
  CHECK(*value.find("kind")->as_string() == "cosine");
  CHECK(value.find("steps")->as_list()->size() == 3);
}

TEST_CASE("a value that does not fit its cereal type is an error that says so") {
  Schedule schedule;
  using traits = stele::value_traits<Schedule>;
  const stele::Value good = traits::to_value(schedule);
  stele::Value::Map map = *good.as_map();
  SUBCASE("another type") { map[0].second = stele::Value(1.5); }
  SUBCASE("a missing entry") { map.pop_back(); }
  SUBCASE("an entry too many") { map.emplace_back("more", stele::Value(true)); }
  SUBCASE("an integer that does not fit") {
    map[2].second = stele::Value(stele::Value::List{stele::Value(std::int64_t{1} << 40)});
  }
  CHECK(traits::from_value(schedule, good).empty());
  CHECK_FALSE(traits::from_value(schedule, stele::Value(map)).empty());
  CHECK_FALSE(traits::from_value(schedule, stele::Value()).empty());
}

TEST_CASE("cereal types nested too deep are refused both ways") {
  Chain chain;
  Chain* end = &chain;
  for (int i = 0; i < 200; ++i) {
    end->next = std::make_unique<Chain>();
    end = end->next.get();
  }
  CHECK_THROWS_AS(stele::value_traits<Chain>::to_value(chain), stele::Exception);
}

}  // namespace cereal_test
