// Settings of PyTorch's optimizers as updaters, and back. The groups are those of torch 2.15.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "support/models.hpp"
#include "training/pytorch_settings.hpp"

namespace pytorch_settings_test {

namespace {

using namespace stele;
using namespace stele_test;
using detail::pytorch::group_of;
using detail::pytorch::unknown_member;
using detail::pytorch::updater_of;

Value parsed(const std::string& text) {
  detail::json::Reader in(text);
  Value value;
  good(detail::json::read_value(in, value, 1 << 20));
  return value;
}
std::string text_of_value(const Value& value) {
  std::string text;
  detail::json::Writer out(text);
  good(detail::json::write_value(out, value));
  return text;
}
std::string group_text(const TrainingObject& updater) {
  TrainingConfig config;
  config.updater = updater;
  return text_of_value(good(group_of(config)));
}
/// Returns the updater's type and members: "Adam learningRate=0.01 … maximize".
std::string line_of(const TrainingObject& updater) {
  std::string line = updater.type;
  for (const auto& [name, number] : updater.numbers) {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.6g", number.value());
    line += " " + name + "=" + digits;
  }
  for (const auto& [name, flag] : updater.flags) line += " " + name + (flag ? "" : "=false");
  return line;
}
std::string line_of(const std::string& group) { return line_of(updater_of(parsed(group))); }

struct Known {
  std::string updater, group;
};
const std::vector<Known> known = {
    {"Adam learningRate=0.01 beta1=0.8 beta2=0.9 epsilon=1e-06",
     R"({"lr":0.01,"betas":[0.8,0.9],"eps":1e-06,"weight_decay":0,"amsgrad":false,"maximize":false,"foreach":null,)"
     R"("capturable":false,"differentiable":false,"fused":null,"decoupled_weight_decay":false})"},
    {"AMSGrad learningRate=0.01 beta1=0.8 beta2=0.9 epsilon=1e-06 weightDecay=0.5 maximize",
     R"({"lr":0.01,"betas":[0.8,0.9],"eps":1e-06,"weight_decay":0.5,"amsgrad":true,"maximize":true,"foreach":null,)"
     R"("capturable":false,"differentiable":false,"fused":null,"decoupled_weight_decay":false})"},
    {"AdamW learningRate=0.001 beta1=0.9 beta2=0.999 epsilon=1e-08 weightDecay=0.01 amsgrad",
     R"({"lr":0.001,"betas":[0.9,0.999],"eps":1e-08,"weight_decay":0.01,"amsgrad":true,"maximize":false,"foreach":null,)"
     R"("capturable":false,"differentiable":false,"fused":null,"decoupled_weight_decay":true})"},
    {"Nadam learningRate=0.002 beta1=0.9 beta2=0.999 epsilon=1e-08",
     R"({"lr":0.002,"betas":[0.9,0.999],"eps":1e-08,"weight_decay":0,"momentum_decay":0.004,)"
     R"("decoupled_weight_decay":false,"maximize":false,"foreach":null,"capturable":false,"differentiable":false})"},
    {"AdaMax learningRate=0.002 beta1=0.9 beta2=0.999 epsilon=1e-08",
     R"({"lr":0.002,"betas":[0.9,0.999],"eps":1e-08,"weight_decay":0,"foreach":null,"maximize":false,)"
     R"("differentiable":false,"capturable":false})"},
    {"AdaDelta learningRate=1 rho=0.9 epsilon=1e-06",
     R"({"lr":1.0,"rho":0.9,"eps":1e-06,"weight_decay":0,"maximize":false,"capturable":false,"foreach":null,)"
     R"("differentiable":false})"},
    {"AdaGrad learningRate=0.01 epsilon=1e-10 learningRateDecay=0.25",
     R"({"lr":0.01,"lr_decay":0.25,"eps":1e-10,"weight_decay":0,"initial_accumulator_value":0,"foreach":null,)"
     R"("maximize":false,"differentiable":false,"fused":null})"},
    {"RmsProp learningRate=0.01 momentum=0.5 rmsDecay=0.99 epsilon=1e-08 centered",
     R"({"lr":0.01,"momentum":0.5,"alpha":0.99,"eps":1e-08,"centered":true,"weight_decay":0,"capturable":false,)"
     R"("foreach":null,"maximize":false,"differentiable":false})"},
    {"Nesterovs learningRate=0.1 momentum=0.9",
     R"({"lr":0.1,"momentum":0.9,"dampening":0,"weight_decay":0,"nesterov":true,"maximize":false,"foreach":null,)"
     R"("differentiable":false,"fused":null})"},
    {"Sgd learningRate=0.1",
     R"({"lr":0.1,"momentum":0,"dampening":0,"weight_decay":0,"nesterov":false,"maximize":false,"foreach":null,)"
     R"("differentiable":false,"fused":null})"},
    {"Sgd learningRate=0.1 momentum=0.9 dampening=0.5",
     R"({"lr":0.1,"momentum":0.9,"dampening":0.5,"weight_decay":0,"nesterov":false,"maximize":false,"foreach":null,)"
     R"("differentiable":false,"fused":null})"},
};

TEST_SUITE_BEGIN("pytorch");

TEST_CASE("pytorch settings: groups and updaters, there and back") {
  for (const Known& k : known) {
    CAPTURE(k.group);
    const TrainingObject updater = updater_of(parsed(k.group));
    std::vector<std::string> words, expected;
    const auto split = [](const std::string& line, std::vector<std::string>& to) {
      std::istringstream in(line);
      for (std::string word; in >> word;) to.push_back(word);
      std::sort(to.begin() + 1, to.end());
    };
    split(line_of(updater), words);
    split(k.updater, expected);
    CHECK(words == expected);
    CHECK(group_text(updater) == k.group);
    CHECK(unknown_member(updater) == std::nullopt);
  }
}

TEST_CASE("pytorch settings: other keys of older and newer groups") {
  // torch 1.13 has fewer keys, a scheduler adds initial_lr, and numbers may be integers.
  CHECK(
      line_of(R"({"lr":1,"betas":[0,0.5],"eps":0,"weight_decay":0,"amsgrad":false,"initial_lr":2.0,"params":["a"]})") ==
      "Adam learningRate=1 beta1=0 beta2=0.5 epsilon=0");
}

TEST_CASE("pytorch settings: groups of other optimizers are not recognized") {
  for (const char* group :
       {R"({"lr":0.001,"betas":[0.9,0.999],"eps":1e-08,"weight_decay":0,"maximize":false,"foreach":null,)"
        R"("capturable":false,"decoupled_weight_decay":false,"differentiable":false})",             // RAdam
        R"({"lr":0.01,"etas":[0.5,1.2],"step_sizes":[1e-06,50],"foreach":null,"maximize":false})",  // Rprop
        R"({"lr":0.1,"betas":[0.9,0.99]})", R"({"lr":0.1})", R"({})", R"([])", R"(null)"}) {
    CAPTURE(group);
    CHECK(updater_of(parsed(group)) == TrainingObject());
  }
}

TEST_CASE("pytorch settings: members of another kind are ignored") {
  const TrainingObject adam = updater_of(parsed(R"({"lr":"x","betas":[0.9],"eps":[],"amsgrad":1,"weight_decay":{}})"));
  CHECK(adam.type == "Adam");
  CHECK(adam.numbers.empty());
  CHECK(adam.flags.empty());
  CHECK(updater_of(parsed(R"({"betas":[0.9,"x"],"amsgrad":null})")).numbers.empty());
}

TEST_CASE("pytorch settings: members that PyTorch's optimizer does not have are found") {
  const auto adam = [](auto member) { return updaters::adam().set("weightDecay", 0.5).set("strange", member); };
  CHECK(unknown_member(adam(0.5)) == "strange");
  CHECK(unknown_member(adam(true)) == "strange");
  CHECK(unknown_member(adam("text")) == "strange");
  CHECK(unknown_member(updaters::adam(schedules::fixed(0.1))) == "learningRateSchedule");
  CHECK(unknown_member(updaters::adam().set("momentum", 0.5)) == "momentum");  // of another optimizer
  CHECK(unknown_member(updaters::adam().set("maximize", 1.0)) == "maximize");  // a flag
  CHECK(unknown_member(updaters::adam().set("epsilon", true)) == "epsilon");   // a number
  CHECK(unknown_member(updaters::adam().set("", 0.5)) == "");                  // a name that settings have for none
  CHECK(unknown_member({.type = "Unknown", .numbers = {{"learningRate", 0.1}}}) == "learningRate");

  TrainingObject raw = updaters::adam();
  raw.other.push_back({.name = "extra", .json = "null"});
  CHECK(unknown_member(raw) == std::nullopt);
  raw.other.push_back({.name = "list", .json = "[]"});
  CHECK(unknown_member(raw) == "list");
}

TEST_CASE("pytorch settings: an updater of DL4J has PyTorch's defaults for the rest") {
  CHECK(group_text(updaters::adam(0.5, 0.8, 0.9, 1e-3)) ==
        R"({"lr":0.5,"betas":[0.8,0.9],"eps":0.001,"weight_decay":0,"amsgrad":false,"maximize":false,"foreach":null,)"
        R"("capturable":false,"differentiable":false,"fused":null,"decoupled_weight_decay":false})");
  TrainingObject bare;
  bare.type = "Adam";
  CHECK(group_text(bare).starts_with(R"({"lr":0.001,"betas":[0.9,0.999],"eps":1e-08,"weight_decay":0,)"));
  CHECK(group_text(updaters::rms_prop(0.1)).starts_with(R"({"lr":0.1,"momentum":0,"alpha":0.95,"eps":1e-08,)"));
  CHECK(group_text(updaters::ada_delta()).starts_with(R"({"lr":1.0,"rho":0.95,"eps":1e-06,)"));
}

TEST_CASE("pytorch settings: schedules have their value now") {
  TrainingConfig config;
  config.iteration_count = 2;
  config.updater = updaters::nesterovs(schedules::exponential(ScheduleType::iteration, 1.0, 0.5),
                                       schedules::step(ScheduleType::epoch, 0.8, 0.5, 1));
  config.epoch_count = 1;
  CHECK(text_of_value(good(group_of(config))).starts_with(R"({"lr":0.25,"momentum":0.4,)"));
  config.updater = updaters::sgd(TrainingObject{.type = "NoSchedule"});
  CHECK(bad(group_of(config)).code() == Errc::unsupported);
}

TEST_CASE("pytorch settings: maximize, from the configuration or the updater") {
  TrainingConfig config;
  config.updater = updaters::sgd();
  config.minimize = false;
  CHECK(good(group_of(config)).find("maximize")->as_bool()[0]);
  config.minimize = true;
  CHECK_FALSE(good(group_of(config)).find("maximize")->as_bool()[0]);
  config.updater.set("maximize", true);
  CHECK(good(group_of(config)).find("maximize")->as_bool()[0]);
}

TEST_CASE("pytorch settings: updaters that PyTorch does not have") {
  for (const TrainingObject& updater : {updaters::no_op(), updaters::ada_belief(), TrainingObject()}) {
    CAPTURE(updater.type);
    CHECK(group_text(updater) == "null");
  }
}

TEST_CASE("pytorch settings: the configuration's JSON keeps PyTorch's updaters") {
  for (const Known& k : known) {
    CAPTURE(k.group);
    TrainingConfig config;
    config.updater = updater_of(parsed(k.group));
    const TrainingConfig read = good(TrainingConfig::parse(config.json()));
    CHECK(text_of_value(good(group_of(read))) == k.group);
  }
}

TEST_SUITE_END();

}  // namespace

}  // namespace pytorch_settings_test
