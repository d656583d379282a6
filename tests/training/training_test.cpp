// TrainingConfig: what DL4J wrote, there and back; changes; ND4J's schedules against its own numbers; hostile JSON.
#include <stele/training.hpp>

#include <doctest/doctest.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/from_chars.hpp"
#include "support/temp_dir.hpp"

namespace training_test {

using namespace stele;
using namespace std::string_literals;
namespace fs = std::filesystem;

namespace {

const fs::path kData = fs::path(stele_test::test_data("samediff"));

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> real_configs() {
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(kData / "training")) {
    if (entry.path().extension() == ".json") all.push_back(entry.path());
  }
  REQUIRE(all.size() >= 24);
  return all;
}

TrainingConfig parsed(std::string_view json) {
  auto config = TrainingConfig::parse(json);
  REQUIRE_MESSAGE(config.has_value(), (config ? "" : config.error().to_string()));
  return *std::move(config);
}

TrainingConfig real(std::string_view name) { return parsed(read(kData / "training" / (std::string(name) + ".json"))); }

Errc code(std::string_view json) {
  const auto config = TrainingConfig::parse(json);
  if (config) return Errc::none;
  REQUIRE(config.error().offset().has_value());
  CHECK(*config.error().offset() <= json.size());
  CHECK_FALSE(config.error().found().empty());
  return config.error().code();
}

double at(const TrainingObject& schedule, std::int64_t iteration, std::int64_t epoch = 0) {
  const auto value = value_at(schedule, iteration, epoch);
  REQUIRE_MESSAGE(value.has_value(), (value ? "" : value.error().to_string()));
  return *value;
}

// pow() and exp() of Java and of C may differ in the last place.
bool close(double a, double b) {
  return a == b || std::fabs(a - b) <= 4 * std::numeric_limits<double>::epsilon() * std::fabs(b);
}

}  // namespace

TEST_CASE("training: objects of a growing list keep their values") {
  TrainingObject schedule;
  schedule.type = "MapSchedule";
  schedule.values = {{0, 0.5}, {10, 0.25}};
  std::vector<TrainingObject> list;
  for (int i = 0; i < 20; ++i) list.push_back(schedule);
  CHECK(std::all_of(list.begin(), list.end(), [&](const TrainingObject& o) { return o == schedule; }));
  list.back().values[10] = 1;
  CHECK_FALSE(list.back() == schedule);
}

TEST_CASE("training: what DL4J wrote comes back as it was") {
  for (const fs::path& path : real_configs()) {
    CAPTURE(path.filename().string());
    const std::string text = read(path);
    TrainingConfig config = parsed(text);
    CHECK(config.json() == text);
    CHECK(config == parsed(text));

    // A change that is taken back is none.
    config.minimize = !config.minimize;
    CHECK(config.json() != text);
    config.minimize = !config.minimize;
    CHECK(config.json() == text);

    // Written anew, the text is that of DL4J, too: but Java does not always print the shortest digits, and has another
    // order of the keys in a map.
    config.source = {};
    if (path.filename() != "everything.json" && path.filename() != "Adam_map_iteration.json") {
      CHECK(config.json() == text);
    }
    CHECK(parsed(config.json()) == config);
  }
}

TEST_CASE("training: all that a configuration has") {
  const TrainingConfig c = real("everything");
  CHECK(c.updater.type == "Adam");
  CHECK(c.updater.class_name.empty());
  CHECK(c.updater.numbers.size() == 4);
  CHECK(c.updater.number("beta2")->value() == 1.0);
  CHECK_FALSE(c.updater.number("beta2")->integer().has_value());
  CHECK(c.updater.number("epsilon")->value() == std::numeric_limits<double>::denorm_min());
  CHECK(c.updater.number("none") == nullptr);
  REQUIRE(c.regularization.size() == 3);
  CHECK(c.regularization[0] == regularizations::l1(0.5));
  CHECK(c.regularization[1] == regularizations::weight_decay(1e-3, true));
  CHECK(c.regularization[2] == regularizations::l2(schedules::inverse(ScheduleType::iteration, 1e-4, 0.5, 2)));
  CHECK_FALSE(c.minimize);
  CHECK(c.data_set_feature_mapping == TrainingConfig::Names({"in", "in/\"2\"\x01"}));
  CHECK(c.data_set_label_mapping == TrainingConfig::Names({"\xc3\xa9\xf0\x9f\x98\x80"}));
  CHECK(c.data_set_feature_mask_mapping == std::nullopt);
  CHECK(c.data_set_label_mask_mapping == TrainingConfig::Names({"mask"}));
  CHECK(c.loss_variables == TrainingConfig::Names({"loss", "other"}));
  CHECK(c.iteration_count == 12345);
  CHECK(c.epoch_count == 7);
  REQUIRE(c.other.size() == 5);
  CHECK(c.other[0] == TrainingRaw{"initialLossDataType", "\"DOUBLE\""});
  CHECK(c.other[1].name == "trainEvaluations");

  const TrainingConfig empty = real("empty");
  CHECK(empty.updater.type.empty());
  CHECK(empty.regularization.empty());
  CHECK(empty.minimize);
}

TEST_CASE("training: updaters, schedules and regularizations are made as DL4J makes them") {
  const TrainingObject all[] = {updaters::adam(),     updaters::ams_grad(),  updaters::nadam(),
                                updaters::ada_max(),  updaters::nesterovs(), updaters::rms_prop(),
                                updaters::ada_grad(), updaters::ada_delta(), updaters::sgd(),
                                updaters::no_op(),    updaters::ada_belief()};
  for (const TrainingObject& made : all) {
    CAPTURE(made.type);
    CHECK(real(made.type).updater == made);
    CHECK(updater_state_keys(made.type).has_value());
  }

  const ScheduleType type = ScheduleType::iteration;
  const auto rate = [](std::string_view name) {
    return *real("Adam_"s.append(name)).updater.object("learningRateSchedule");
  };
  CHECK(rate("fixed") == schedules::fixed(0.001));
  CHECK(rate("step_iteration") == schedules::step(type, 0.1, 0.5, 10));
  CHECK(rate("exponential_iteration") == schedules::exponential(type, 0.1, 0.99));
  CHECK(rate("inverse_iteration") == schedules::inverse(type, 0.01, 1e-4, 0.75));
  CHECK(rate("poly_iteration") == schedules::poly(type, 0.1, 0.9, 100));
  CHECK(rate("sigmoid_iteration") == schedules::sigmoid(type, 0.5, 0.1, 10));
  CHECK(rate("map_iteration") == schedules::map(type, {{0, 0.1}, {5, 0.05}, {20, 0.01}, {1000, 1e-5}}));
  CHECK(rate("cycle_iteration") == schedules::cycle(type, 0.1 * 0.1, 0.1, 20, 2, 0.1));
  CHECK(rate("ramp_iteration") == schedules::ramp(schedules::exponential(type, 0.1, 0.9), 10));
  CHECK(real("Adam_poly_iteration").updater == updaters::adam(schedules::poly(type, 0.1, 0.9, 100)));
  CHECK(real("Sgd_cycle_epoch").updater ==
        updaters::sgd(schedules::cycle(ScheduleType::epoch, 0.1 * 0.1, 0.1, 20, 2, 0.1)));
  CHECK(real("Nesterovs_two_schedules").updater ==
        updaters::nesterovs(schedules::step(ScheduleType::epoch, 0.1, 0.5, 10),
                            schedules::map(ScheduleType::epoch, {{0, 0.5}, {10, 0.9}})));
}

TEST_CASE("training: a configuration of one's own") {
  TrainingConfig config{.updater = updaters::adam(0.01), .iteration_count = 3};
  config.regularization.push_back(regularizations::l2(1e-4));
  config.data_set_feature_mapping = {"in"};
  config.data_set_label_mapping.emplace();
  CHECK(config.json() == R"({
  "updater" : {
    "@class" : "org.nd4j.linalg.learning.config.Adam",
    "learningRate" : 0.01,
    "beta1" : 0.9,
    "beta2" : 0.999,
    "epsilon" : 1.0E-8
  },
  "regularization" : [ {
    "@class" : "org.nd4j.linalg.learning.regularization.L2Regularization",
    "l2" : {
      "@class" : "org.nd4j.linalg.schedule.FixedSchedule",
      "value" : 1.0E-4
    }
  } ],
  "minimize" : true,
  "dataSetFeatureMapping" : [ "in" ],
  "dataSetLabelMapping" : [ ],
  "dataSetFeatureMaskMapping" : null,
  "dataSetLabelMaskMapping" : null,
  "lossVariables" : null,
  "iterationCount" : 3,
  "epochCount" : 0
})");
  const TrainingConfig back = parsed(config.json());
  CHECK(back == config);
  CHECK(back.data_set_label_mapping != config.loss_variables);  // empty is not null
  CHECK(parsed(TrainingConfig().json()) == TrainingConfig());

  // Strings that are not UTF-8 and values that are not JSON do no harm.
  config.data_set_feature_mapping = {"a\xff\xc3", "\xed\xa0\x80"};
  config.other = {{"x", "1,2"}, {"y", ""}, {"z", " [1, 2] "}};
  const TrainingConfig repaired = parsed(config.json());
  CHECK(repaired.data_set_feature_mapping ==
        TrainingConfig::Names({"a\xef\xbf\xbd\xef\xbf\xbd", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}));
  CHECK(repaired.other == std::vector<TrainingRaw>{{"x", "null"}, {"y", "null"}, {"z", "[1, 2]"}});
}

TEST_CASE("training: numbers keep their kind") {
  const std::string text =
      R"({"updater":{"@class":"x.Own","a":1,"b":1.0,"c":1e0,"d":"NaN","e":"-Infinity","f":"nan","g":-0,"h":9007199254740993,)"
      R"("i":123456789012345678901234567890,"j":1e999,"k":1.5E300,"l":12345678.5,"m":0.00012,"n":-0.0}})";
  TrainingConfig config = parsed(text);
  CHECK(config.json() == text);
  CHECK(config == parsed(text));  // NaN and all
  const TrainingObject& own = config.updater;
  CHECK(own.number("a")->integer() == 1);
  CHECK_FALSE(own.number("b")->integer());
  CHECK(*own.number("a") != *own.number("b"));
  CHECK(*own.number("b") == *own.number("c"));
  CHECK(std::isnan(own.number("d")->value()));
  CHECK(own.number("e")->value() == -std::numeric_limits<double>::infinity());
  CHECK(*own.text("f") == "nan");
  CHECK(own.number("h")->integer() == 9007199254740993);
  CHECK(TrainingNumber(std::size_t{7}).integer() == 7);
  CHECK_FALSE(TrainingNumber(UINT64_MAX).integer());
  CHECK(TrainingNumber(UINT64_MAX) == TrainingNumber(0x1p64));
  CHECK(own.other == std::vector<TrainingRaw>{{"i", "123456789012345678901234567890"}, {"j", "1e999"}});

  config.epoch_count = 1;
  const std::string changed = config.json();
  for (const char* part : {R"("@class" : "x.Own")", R"("a" : 1,)", R"("b" : 1.0,)", R"("c" : 1.0,)", R"("d" : "NaN")",
                           R"("e" : "-Infinity")", R"("f" : "nan")", R"("g" : -0.0)", R"("h" : 9007199254740993)",
                           R"("i" : 123456789012345678901234567890)", R"("j" : 1e999)", R"("k" : 1.5E300)",
                           R"("l" : 1.23456785E7)", R"("m" : 1.2E-4)", R"("n" : -0.0)"}) {
    CHECK_MESSAGE(changed.find(part) != std::string::npos, part);
  }
  TrainingConfig again = parsed(changed);
  CHECK(again == config);
  CHECK(again.json() == changed);
}

TEST_CASE("training: what is not understood survives a change") {
  TrainingConfig config = parsed(
      R"({"later":{"deep":[1,{"a":null}]},"updater":{"learningRate":0.5,"later":[ 1 ,2],"none":null,)"
      R"("@class":"org.eclipse.deeplearning4j.Adam","flag":true,"plain":{"no":"class"},"inner":{"@class":"a.b.C$D"}},)"
      R"("epochCount":1})");
  CHECK(config.updater.type == "Adam");  // a package that moved
  CHECK(config.updater.class_name == "org.eclipse.deeplearning4j.Adam");
  CHECK(config.updater.object("inner")->type == "D");
  CHECK(*config.updater.flag("flag"));
  config.iteration_count = 10;
  config.updater.set("learningRate", 0.25).set("beta1", 1);
  CHECK(config.json() == R"({
  "updater" : {
    "@class" : "org.eclipse.deeplearning4j.Adam",
    "learningRate" : 0.25,
    "beta1" : 1,
    "flag" : true,
    "inner" : {
      "@class" : "a.b.C$D"
    },
    "later" : [ 1 ,2],
    "none" : null,
    "plain" : {"no":"class"}
  },
  "regularization" : [ ],
  "minimize" : true,
  "dataSetFeatureMapping" : null,
  "dataSetLabelMapping" : null,
  "dataSetFeatureMaskMapping" : null,
  "dataSetLabelMaskMapping" : null,
  "lossVariables" : null,
  "iterationCount" : 10,
  "epochCount" : 1,
  "later" : {"deep":[1,{"a":null}]}
})");
  CHECK(parsed(config.json()) == config);
  CHECK(updater_state_keys(config.updater.class_name)->size() == 2);

  // Another type is another class.
  config.updater.type = "Sgd";
  CHECK(config.updater.json().find("\"org.nd4j.linalg.learning.config.Sgd\"") != std::string::npos);

  TrainingObject object;
  object.type = "T";
  object.set("a", 0).set("a", "text").set("a", true).set("b", 0.5).set("c", schedules::fixed(1)).set("b", 2);
  CHECK(object.numbers.size() == 1);
  CHECK(object.number("b")->integer() == 2);
  CHECK(object.texts.empty());
  CHECK(*object.flag("a"));
  object.set(object.numbers[0].first, "x");
  CHECK(*object.text("b") == "x");
  object.erase("c");
  CHECK(object.objects.empty());
  CHECK(object.json() == "{\n  \"@class\" : \"T\",\n  \"b\" : \"x\",\n  \"a\" : true\n}");
  CHECK(*TrainingObject::parse(object.json()) == object);
}

TEST_CASE("training: names of the updaters' state") {
  const auto keys = [](std::string_view updater) {
    const auto found = updater_state_keys(updater);
    REQUIRE(found.has_value());
    return std::vector<std::string>(found->begin(), found->end());
  };
  using Keys = std::vector<std::string>;
  CHECK(keys("Adam") == Keys{"M", "V"});
  CHECK(keys("AMSGrad") == Keys{"M", "V", "V_HAT"});
  CHECK(keys("Nadam") == Keys{"M", "V"});
  CHECK(keys("AdaMax") == Keys{"M", "V"});
  CHECK(keys("AdaBelief") == Keys{"M", "S"});
  CHECK(keys("Nesterovs") == Keys{"V"});
  CHECK(keys("RmsProp") == Keys{"G"});
  CHECK(keys("AdaGrad") == Keys{"grad"});
  CHECK(keys("AdaDelta") == Keys{"msg", "msdx"});
  CHECK(keys("Sgd").empty());
  CHECK(keys("NoOp").empty());
  CHECK(keys("org.nd4j.linalg.learning.config.Adam") == Keys{"M", "V"});
  CHECK_FALSE(updater_state_keys("Lion").has_value());
  CHECK_FALSE(updater_state_keys("FixedSchedule").has_value());
  CHECK_FALSE(updater_state_keys("").has_value());
}

TEST_CASE("training: schedules have the values of ND4J") {
  std::ifstream file(kData / "schedules.txt");
  REQUIRE(file.good());
  TrainingObject schedule;
  std::set<std::string> types;
  std::size_t values = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.front() == '#') continue;
    if (line.front() == '{') {
      auto object = TrainingObject::parse(line);
      REQUIRE(object.has_value());
      schedule = *std::move(object);
      types.insert(schedule.type);
      continue;
    }
    std::istringstream words(line);
    std::int64_t iteration = 0, epoch = 0;
    std::string number;
    REQUIRE((words >> iteration >> epoch >> number));
    double expected = 0;
    stele::detail::from_chars(number.data(), number.data() + number.size(), expected);
    const double value = at(schedule, iteration, epoch);
    CHECK_MESSAGE(close(value, expected), schedule.json() << line << " " << value);
    ++values;
  }
  CHECK(values == 540);
  CHECK(types.size() == 9);
}

TEST_CASE("training: the learning rate at the counts there are") {
  TrainingConfig config;
  CHECK(learning_rate(config).error().code() == Errc::missing);
  config.updater = updaters::adam(0.25);
  CHECK(*learning_rate(config) == 0.25);
  config.updater = updaters::adam(schedules::step(ScheduleType::epoch, 1.0, 0.5, 2));
  config.iteration_count = 100;
  config.epoch_count = 5;
  CHECK(*learning_rate(config) == 0.25);
  CHECK(*learning_rate(config.updater, 0, 0) == 1.0);
  CHECK(std::isnan(*learning_rate(updaters::ada_delta(), 0, 0)));
  CHECK(std::isnan(*learning_rate(updaters::no_op(), 0, 0)));
  config.updater.erase("learningRateSchedule");
  CHECK(std::isnan(*learning_rate(config)));  // DL4J's mark of a schedule
  config.updater.erase("learningRate");
  CHECK(learning_rate(config).error().path() == "learningRate");
}

TEST_CASE("training: schedules that make no sense") {
  const ScheduleType type = ScheduleType::iteration;
  const auto fails = [](const TrainingObject& schedule, std::int64_t iteration = 1) {
    const auto value = value_at(schedule, iteration, 0);
    return value ? Errc::none : value.error().code();
  };
  TrainingObject schedule = schedules::step(type, 1, 0.5, 2);
  CHECK(fails(schedule, -1) == Errc::invalid_argument);
  for (const char* name : {"scheduleType", "initialValue", "decayRate", "step"}) {
    TrainingObject less = schedule;
    less.erase(name);
    CHECK(fails(less) == Errc::missing);
  }
  schedule.set("scheduleType", "DAY");
  CHECK(fails(schedule) == Errc::malformed);
  schedule.type = "CosineSchedule";
  CHECK(fails(schedule) == Errc::unsupported);
  CHECK(fails(TrainingObject()) == Errc::unsupported);
  CHECK(fails(schedules::poly(type, 1, 1, 5).set("maxIter", 2.5)) == Errc::malformed);
  CHECK(fails(schedules::poly(type, 1, 1, 5).set("maxIter", std::int64_t{1} << 40)) == Errc::malformed);
  CHECK(fails(schedules::cycle(type, 0.1, 1, 0, 0, 0.1)) == Errc::malformed);
  CHECK(fails(schedules::cycle(type, 0.1, 1, 10, 10, 0.1)) == Errc::none);
  CHECK(fails(schedules::cycle(type, 0.1, 1, 10, 0, 0.1).set("stepSize", std::int64_t{1} << 31)) == Errc::malformed);
  CHECK(fails(schedules::map(type, {{2, 0.1}})) == Errc::missing);
  CHECK(fails(schedules::map(type, {})) == Errc::missing);
  CHECK(at(schedules::ramp(schedules::fixed(1), 0), 0) == 1);
  TrainingObject deep = schedules::fixed(1);
  for (int i = 0; i < 20; ++i) deep = schedules::ramp(deep, 10);
  CHECK(fails(deep) == Errc::limit);
  // Jackson sets what Java would derive.
  CHECK(at(schedules::cycle(type, 0, 1, 20, 0, 0.1).set("stepSize", 5), 5) == 1);
}

TEST_CASE("training: hostile JSON") {
  CHECK(code("{}") == Errc::none);
  CHECK(code("") == Errc::truncated);
  for (const char* text : {"[]",
                           "1",
                           "null",
                           "\"x\"",
                           "{} {}",
                           "{\"a\":}",
                           "{,}",
                           "{\"updater\":1}",
                           "{\"updater\":[]}",
                           "{\"updater\":{}}",
                           "{\"updater\":{\"@class\":1}}",
                           "{\"updater\":{\"@class\":\"\"}}",
                           "{\"updater\":{\"@class\":\"a.\"}}",
                           "{\"updater\":{\"a\":{\"@class\":\"b\"}}}",
                           "{\"regularization\":{}}",
                           "{\"regularization\":[null]}",
                           "{\"regularization\":[1]}",
                           "{\"minimize\":null}",
                           "{\"minimize\":1}",
                           "{\"lossVariables\":\"x\"}",
                           "{\"lossVariables\":[null]}",
                           "{\"lossVariables\":[[\"x\"]]}",
                           "{\"epochCount\":1.0}",
                           "{\"epochCount\":-1}",
                           "{\"iterationCount\":\"1\"}",
                           "{\"lossVariables\":[\"\xff\"]}"}) {
    CAPTURE(text);
    CHECK(code(text) == Errc::malformed);
  }
  CHECK(code("{\"epochCount\":9223372036854775808}") == Errc::out_of_range);
  for (const char* text :
       {"{\"minimize\":true,\"minimize\":true}", "{\"x\":1,\"y\":1,\"x\":1}",
        "{\"updater\":{\"@class\":\"A\",\"@class\":\"A\"}}", "{\"updater\":{\"@class\":\"A\",\"a\":1,\"a\":\"x\"}}",
        "{\"updater\":{\"@class\":\"A\",\"a\":{\"@class\":\"B\"},\"\\u0061\":null}}",
        "{\"updater\":{\"@class\":\"A\",\"values\":{\"1\":1,\"1\":2}}}",
        "{\"updater\":{\"@class\":\"A\",\"values\":{\"1\":1},\"values\":{}}}"}) {
    CAPTURE(text);
    CHECK(code(text) == Errc::duplicate);
  }
  // Values that are no map of numbers are kept as they are.
  for (const char* values : {"{}", "{\"01\":1}", "{\"x\":1}", "{\"1\":\"x\"}", "{\"1\":[]}", "[1]", "{\"1e3\":1}"}) {
    const TrainingConfig config = parsed("{\"updater\":{\"@class\":\"A\",\"values\":"s + values + "}}");
    CHECK(config.updater.values.empty());
    CHECK(config.updater.other == std::vector<TrainingRaw>{{"values", values}});
  }

  const auto nested = [](int levels, const std::string& open, const std::string& close) {
    std::string text;
    for (int i = 0; i < levels; ++i) text += open;
    for (int i = 0; i < levels; ++i) text += close;
    return text;
  };
  const std::string inner = "{\"@class\":\"A\",\"a\":";
  CHECK(code("{\"updater\":" + nested(15, inner, "}").insert(15 * inner.size(), "1") + "}") == Errc::none);
  CHECK(code("{\"updater\":" + nested(17, inner, "}").insert(17 * inner.size(), "1") + "}") == Errc::limit);
  CHECK(code("{\"x\":" + nested(60, "[", "]") + "}") == Errc::none);
  CHECK(code("{\"x\":" + nested(100000, "[", "]") + "}") == Errc::limit);

  std::string many = "{\"updater\":{\"@class\":\"A\"";
  for (int i = 0; i < 1025; ++i) many += ",\"n" + std::to_string(i) + "\":1";
  CHECK(code(many + "}}") == Errc::limit);
  many = "{\"a\":1";
  for (int i = 0; i < 1025; ++i) many += ",\"n" + std::to_string(i) + "\":1";
  CHECK(code(many + "}") == Errc::limit);
  many = "{\"lossVariables\":[\"\"";
  for (int i = 0; i < 1000000; ++i) many += ",\"\"";
  CHECK(code(many + "]}") == Errc::limit);
  many = "{\"regularization\":[{\"@class\":\"A\"}";
  for (int i = 0; i < 100000; ++i) many += ",{\"@class\":\"A\"}";
  CHECK(code(many + "]}") == Errc::limit);
}

TEST_CASE("training: every text that ends early, and every bit turned") {
  const std::string text = read(kData / "training" / "Nesterovs_two_schedules.json");
  for (std::size_t n = 0; n < text.size(); ++n) CHECK(code(text.substr(0, n)) == Errc::truncated);
  std::string turned = text;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      turned[i] = static_cast<char>(text[i] ^ (1 << bit));
      if (auto config = TrainingConfig::parse(turned)) {
        CHECK(config->json() == turned);
        config->source = {};  // written anew, names that are no longer known stand behind the others
        const std::string written = config->json();
        TrainingConfig again = parsed(written);
        again.source = {};
        CHECK(again.json() == written);
      }
    }
    turned[i] = text[i];
  }
}

}  // namespace training_test
