// The C++ side of tests/interop/torch.sh: optimizers.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stele/transform.hpp"
#include "torch_net.hpp"

namespace {

namespace optim = ::torch::optim;
using OptimizerPtr = std::unique_ptr<optim::Optimizer>;
using Parameters = std::vector<::torch::Tensor>;

struct Case {
  const char* name;
  std::function<OptimizerPtr(const Parameters&)> make;
  std::function<OptimizerPtr(const Parameters&)> other;  // other rates and decays
  std::vector<std::string> kinds;
};

template <class Optimizer, class Options>
std::function<OptimizerPtr(const Parameters&)> maker(Options options) {
  return [options](const Parameters& parameters) { return std::make_unique<Optimizer>(parameters, options); };
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"SGD",
       maker<optim::SGD>(optim::SGDOptions(0.02).weight_decay(0.01)),
       maker<optim::SGD>(optim::SGDOptions(1)),
       {}},
      {"SGD with momentum",
       maker<optim::SGD>(optim::SGDOptions(0.02).momentum(0.8).dampening(0.1)),
       maker<optim::SGD>(optim::SGDOptions(1).momentum(0.1)),
       {"momentum_buffer"}},
      {"SGD with Nesterov momentum",
       maker<optim::SGD>(optim::SGDOptions(0.02).momentum(0.9).nesterov(true)),
       maker<optim::SGD>(optim::SGDOptions(1).momentum(0.1)),
       {"momentum_buffer"}},
      {"Adam",
       maker<optim::Adam>(optim::AdamOptions(0.01).betas({0.8, 0.99}).eps(1e-6)),
       maker<optim::Adam>(optim::AdamOptions(1).weight_decay(1)),
       {"step", "exp_avg", "exp_avg_sq"}},
      {"AMSGrad",
       maker<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true).weight_decay(0.1)),
       maker<optim::Adam>(optim::AdamOptions(1).amsgrad(true)),
       {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
      {"AdamW",
       maker<optim::AdamW>(optim::AdamWOptions(0.01).amsgrad(true).weight_decay(0.2)),
       maker<optim::AdamW>(optim::AdamWOptions(1).amsgrad(true)),
       {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
      {"RMSprop",
       maker<optim::RMSprop>(optim::RMSpropOptions(0.01).alpha(0.9).eps(1e-7)),
       maker<optim::RMSprop>(optim::RMSpropOptions(1).weight_decay(1)),
       {"step", "square_avg"}},
      {"RMSprop, centered",
       maker<optim::RMSprop>(optim::RMSpropOptions(0.01).centered(true).momentum(0.5).weight_decay(0.1)),
       maker<optim::RMSprop>(optim::RMSpropOptions(1).centered(true).momentum(0.9)),
       {"step", "square_avg", "momentum_buffer", "grad_avg"}},
      {"Adagrad",
       maker<optim::Adagrad>(optim::AdagradOptions(0.05).lr_decay(0.1).initial_accumulator_value(0.5).eps(1e-7)),
       maker<optim::Adagrad>(optim::AdagradOptions(1).weight_decay(1)),
       {"step", "sum"}},
  };
  return all;
}

/// One step of training on inputs that depend on `seed` only.
void train(Net& net, optim::Optimizer& optimizer, std::uint64_t seed) {
  ::torch::manual_seed(seed);
  const ::torch::Tensor x = ::torch::randn({5, 2, 8, 8});
  const ::torch::Tensor y = ::torch::randn({5, 3});
  optimizer.zero_grad();
  (net->forward(x) - y).pow(2).mean().backward();
  optimizer.step();
}

Net scaled_net() {
  Net net;
  const ::torch::NoGradGuard no_grad;
  net->scale.fill_(1);
  return net;
}

/// The state after a file: with leaves that are read from its bytes.
stele::OptimizerState saved(const stele::OptimizerState& state) {
  stele::OptimizerState read;
  for (const auto& [kind, snapshot] : state.kinds()) {
    read.set_snapshot(kind, stele::open(stele::BytesRecorder<>{}.save(snapshot).value()).value());
  }
  return read;
}

std::vector<std::string> kinds_of(const stele::OptimizerState& state) {
  std::vector<std::string> names;
  for (const auto& kind : state.kinds()) names.push_back(kind.first);
  return names;
}

template <class T>
std::string refusal(const stele::Result<T>& result) {
  REQUIRE_FALSE(result);
  CHECK_FALSE(result.error().partially_applied());
  return std::string(stele::name(result.error().code())) + " " + std::string(result.error().path());
}

}  // namespace

TEST_CASE("training continues from an optimizer's saved state and settings as if nothing had happened") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    Net net = scaled_net();
    const OptimizerPtr optimizer = c.make(net->parameters());
    for (std::uint64_t step = 0; step < 3; ++step) train(net, *optimizer, step);

    const stele::OptimizerState state = stele::torch::optimizer_state_of(*optimizer, *net).value();
    CHECK(kinds_of(state) == c.kinds);
    const stele::TrainingObject updater = stele::torch::updater_of(*optimizer).value();

    Net again;
    const OptimizerPtr resumed = c.other(again->parameters());
    stele::torch::load_state_dict(*again, stele::torch::snapshot_of(*net).value()).value();
    CHECK(equal_state(*again, *net));
    stele::torch::set_updater(*resumed, updater).value();
    CHECK(stele::torch::updater_of(*resumed).value() == updater);
    stele::Report report;
    stele::torch::load_optimizer_state(*resumed, *again, saved(state), {.report = &report}).value();
    CHECK(report.count(stele::Report::What::missing) == 0);
    for (std::uint64_t step = 3; step < 5; ++step) {
      train(net, *optimizer, step);
      train(again, *resumed, step);
    }
    CHECK(equal_state(*again, *net));
  }
}

TEST_CASE("the state has the names of Python, and is that of the optimizer without a copy") {
  Net net = scaled_net();
  optim::Adam adam(net->parameters(), optim::AdamOptions(0.01));
  CHECK(stele::torch::optimizer_state_of(adam, *net).value().empty());
  for (std::uint64_t step = 0; step < 3; ++step) train(net, adam, step);
  const stele::OptimizerState state = stele::torch::optimizer_state_of(adam, *net).value();
  const stele::Snapshot& average = *state.find("exp_avg");
  std::vector<std::string> names;
  for (std::size_t i = 0; i < average.leaf_count(); ++i) names.push_back(average.leaf(i).path());
  CHECK(names == std::vector<std::string>{"conv.weight", "norm.weight", "norm.bias", "head.0.weight", "head.0.bias",
                                          "head.2.weight", "head.2.bias"});
  CHECK(average.find("head.0.weight")->shape()[1] == 4 * 6 * 6);
  const auto before = average.leaf(0).view();
  REQUIRE_FALSE(before.empty());
  CHECK(state.find("step")->leaf_count() == 7);
  const stele::LeafView step = state.find("step")->leaf(0);
  CHECK(step.dtype() == stele::DType::f32);
  CHECK(step.shape().empty());
  CHECK(read(*state.find("step"), "conv.weight").item<float>() == 3);
  const ::torch::Tensor copy = read(average, "conv.weight");
  train(net, adam, 3);
  CHECK_FALSE(::torch::equal(read(average, "conv.weight"), copy));  // the step changed the tensor of the optimizer
}

TEST_CASE("the names of updaters and their numbers") {
  Net net;
  const auto json_of = [&](const Case& c) { return stele::torch::updater_of(*c.make(net->parameters())).value(); };
  const std::vector<std::string> types = {"Sgd",   "Sgd",     "Nesterovs", "Adam",   "AMSGrad",
                                          "AdamW", "RmsProp", "RmsProp",   "AdaGrad"};
  for (std::size_t i = 0; i < types.size(); ++i) CHECK(json_of(cases()[i]).type == types[i]);
  const stele::TrainingObject adam = json_of(cases()[3]);
  CHECK(adam.number("learningRate")->value() == 0.01);
  CHECK(adam.number("beta1")->value() == 0.8);
  CHECK(adam.number("beta2")->value() == 0.99);
  CHECK(adam.number("epsilon")->value() == 1e-6);
  CHECK(adam.number("weightDecay") == nullptr);
  CHECK(json_of(cases()[2]).number("momentum")->value() == 0.9);

  optim::Adam optimizer(net->parameters(), optim::AdamOptions(0.5).weight_decay(0.1));
  const auto lr = [&] { return static_cast<optim::AdamOptions&>(optimizer.param_groups()[0].options()).lr(); };
  stele::torch::set_updater(optimizer, stele::updaters::adam(0.25, 0.7)).value();
  CHECK(lr() == 0.25);
  const auto code = [&](const stele::TrainingObject& updater) {
    const std::string text = refusal(stele::Result<void>(stele::torch::set_updater(optimizer, updater)));
    CHECK(lr() == 0.25);
    return text;
  };
  CHECK(code(stele::updaters::sgd(0.1)) == "invalid_argument ");
  CHECK(code(stele::updaters::adam(-1.0)) == "out_of_range learningRate");
  CHECK(code(stele::updaters::adam(0.1, 1.0)) == "out_of_range beta1");
  CHECK(code(stele::updaters::adam(stele::schedules::fixed(0.1))) == "unsupported learningRateSchedule");
  CHECK(code(stele::updaters::adam().set("dampening", 0.5)) == "unsupported dampening");
  CHECK(code(stele::updaters::adam().set("maximize", true)) == "unsupported maximize");

  optim::AdamW decoupled(net->parameters(), optim::AdamWOptions(0.5));
  const auto decay = [&] { return static_cast<optim::AdamWOptions&>(decoupled.defaults()).weight_decay(); };
  stele::torch::set_updater(decoupled, stele::updaters::adam()).value();
  CHECK(decay() == 0);
  stele::torch::set_updater(decoupled, {.type = "AdamW"}).value();
  CHECK(decay() == 0.01);
  CHECK(refusal(stele::torch::set_updater(decoupled, stele::updaters::sgd())) == "invalid_argument ");
  optim::SGD sgd(net->parameters(), optim::SGDOptions(0.5));
  CHECK(refusal(stele::torch::set_updater(sgd, stele::updaters::nesterovs(0.1, 0.0))) == "out_of_range momentum");

  optim::LBFGS other(net->parameters());
  CHECK(refusal(stele::torch::updater_of(other)) == "unsupported ");
  CHECK(refusal(stele::torch::set_updater(other, adam)) == "unsupported ");
  CHECK(refusal(stele::torch::optimizer_state_of(other, *net)) == "unsupported ");
  CHECK(refusal(stele::torch::load_optimizer_state(other, *net, {})) == "unsupported ");
}

TEST_CASE("the loading of optimizer state is strict, and changes nothing on error") {
  Net net = scaled_net();
  optim::Adam adam(net->parameters(), optim::AdamOptions(0.01));
  for (std::uint64_t step = 0; step < 2; ++step) train(net, adam, step);
  const stele::OptimizerState good = saved(stele::torch::optimizer_state_of(adam, *net).value());
  train(net, adam, 2);
  const auto averages = [&] {
    const stele::OptimizerState state = stele::torch::optimizer_state_of(adam, *net).value();
    return read(*state.find("exp_avg"), "head.2.weight");
  };
  const ::torch::Tensor before = averages();
  const auto code = [&](const stele::OptimizerState& state, const stele::LoadOptions& options = {}) {
    std::string text = refusal(stele::torch::load_optimizer_state(adam, *net, state, options));
    CHECK(::torch::equal(averages(), before));
    return text;
  };
  /// The good state, with one kind replaced.
  const auto with = [&](const char* kind, const stele::Snapshot& snapshot) {
    stele::OptimizerState state = good;
    state.set_snapshot(kind, snapshot);
    return state;
  };
  const auto without = [](const stele::Snapshot& from, const std::string& name) {
    return stele::filter(from, {.include = {}, .exclude = {name}, .keep = {}}).value();
  };
  const auto tensors = [](const std::string& name, const ::torch::Tensor& value) {
    ::torch::nn::Module module;
    module.register_buffer(name, value);
    return stele::torch::snapshot_of(module).value();
  };

  CHECK(code({}) == "missing step.conv.weight");
  CHECK(code(with("exp_avg", without(*good.find("exp_avg"), "norm.bias"))) == "missing exp_avg.norm.bias");
  stele::LoadOptions options;
  options.allow_missing = {"*"};
  CHECK(code(with("exp_avg", without(*good.find("exp_avg"), "norm.bias")), options) == "missing exp_avg.norm.bias");
  CHECK(code(with("max_exp_avg_sq", *good.find("exp_avg"))) == "unused max_exp_avg_sq.conv.weight");
  CHECK(code(with("momentum_buffer", tensors("more", ::torch::ones({2})))) == "unused momentum_buffer.more");

  Net wider;
  wider->head = wider->replace_module("head", nn::Sequential(nn::Linear(4 * 6 * 6, 9), nn::ReLU(), nn::Linear(9, 3)));
  optim::Adam wide(wider->parameters(), optim::AdamOptions(0.01));
  CHECK(refusal(stele::torch::load_optimizer_state(wide, *wider, good)) == "shape_mismatch exp_avg.head.0.weight");
  CHECK(refusal(stele::torch::load_optimizer_state(adam, *wider, good)) == "invalid_argument ");
  CHECK(refusal(stele::torch::optimizer_state_of(adam, *wider)) == "invalid_argument ");

  nn::Linear one(nn::LinearOptions(1, 1).bias(false));
  optim::Adam small(one->parameters(), optim::AdamOptions(0.01));
  const auto small_state = [&](const ::torch::Tensor& step) {
    stele::OptimizerState state;
    state.set_snapshot("step", tensors("weight", step));
    state.set_snapshot("exp_avg", tensors("weight", ::torch::ones({1, 1})));
    state.set_snapshot("exp_avg_sq", tensors("weight", ::torch::ones({1, 1})));
    return state;
  };
  for (const double step : {-1.0, 1.5, 1e300, std::nan("")}) {
    const auto state = small_state(::torch::full({}, step, ::torch::kDouble));
    CHECK(refusal(stele::torch::load_optimizer_state(small, *one, state)) == "malformed step.weight");
  }
  CHECK(small.state().empty());
  for (const auto dtype : {::torch::kFloat, ::torch::kDouble, ::torch::kLong, ::torch::kInt}) {
    stele::torch::load_optimizer_state(small, *one, small_state(::torch::full({}, 17, dtype))).value();
    const auto loaded = stele::torch::optimizer_state_of(small, *one).value();
    CHECK(read(*loaded.find("step"), "weight").item<float>() == 17);
  }
}

TEST_CASE("frozen, tied and allowed parameters") {
  Net net = scaled_net();
  net->conv->weight.set_requires_grad(false);
  optim::Adam adam(net->parameters(), optim::AdamOptions(0.01));
  train(net, adam, 0);
  const stele::OptimizerState state = saved(stele::torch::optimizer_state_of(adam, *net).value());
  CHECK(state.find("step")->leaf_count() == 6);
  CHECK_FALSE(state.find("step")->find("conv.weight"));
  optim::Adam again(net->parameters(), optim::AdamOptions(0.01));
  stele::Report whole;
  stele::torch::load_optimizer_state(again, *net, state, {.report = &whole}).value();
  CHECK(whole.count(stele::Report::What::missing) == 0);
  CHECK(again.state().size() == 6);

  Net thawed = scaled_net();
  optim::Adam full(thawed->parameters(), optim::AdamOptions(0.01));
  CHECK(refusal(stele::torch::load_optimizer_state(full, *thawed, state)) == "missing step.conv.weight");
  stele::LoadOptions options;
  options.allow_missing = {"conv.*"};
  stele::Report report;
  options.report = &report;
  stele::torch::load_optimizer_state(full, *thawed, state, options).value();
  CHECK(report.paths(stele::Report::What::missing) == std::vector<std::string>{"conv.weight"});
  CHECK(full.state().size() == 6);

  struct Tied : nn::Module {
    struct Out : nn::Module {
      explicit Out(const ::torch::Tensor& weight) { register_parameter("weight", weight); }
    };
    Tied() {
      register_module("in", in);
      register_module("out", std::make_shared<Out>(in->weight));
    }
    nn::Linear in{nn::LinearOptions(3, 3).bias(false)};
  } tied;
  const auto parameters = Parameters{tied.in->weight};
  optim::Adam shared(parameters, optim::AdamOptions(0.01));
  tied.in->weight.sum().backward();
  shared.step();
  const stele::OptimizerState once = saved(stele::torch::optimizer_state_of(shared, tied).value());
  CHECK(once.find("exp_avg")->leaf_count() == 1);
  CHECK(once.find("exp_avg")->leaf(0).path() == "in.weight");
  stele::OptimizerState renamed;
  for (const auto& [kind, snapshot] : once.kinds()) {
    renamed.set_snapshot(kind, stele::rename(snapshot, {{"^in", "out"}}).value());
  }
  for (const stele::OptimizerState* state_of_one : {&once, &std::as_const(renamed)}) {
    optim::Adam other(parameters, optim::AdamOptions(0.01));
    stele::torch::load_optimizer_state(other, tied, *state_of_one).value();
    const auto found = stele::torch::optimizer_state_of(other, tied).value();
    CHECK(::torch::equal(read(*found.find("exp_avg"), "in.weight"), read(*once.find("exp_avg"), "in.weight")));
  }
}
