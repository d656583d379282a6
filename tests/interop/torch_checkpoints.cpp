// The C++ side of tests/interop/torch.sh: PyTorch's own files, of models and of training.
#include <memory>
#include <string>
#include <vector>

#include "stele/recorders/pytorch.hpp"
#include "torch_net.hpp"

namespace {

namespace optim = ::torch::optim;
using Parameters = std::vector<::torch::Tensor>;

/// Two more steps after Python's three.
void train(const std::string& path, optim::Optimizer& optimizer, Net& net) {
  const stele::Snapshot file = stele::open(path).value();
  const ::torch::Tensor inputs = read(file, "inputs"), targets = read(file, "targets");
  for (std::int64_t step = 3; step < 5; ++step) {
    optimizer.zero_grad();
    (net->forward(inputs[step]) - targets[step]).pow(2).mean().backward();
    optimizer.step();
  }
}

stele::PytorchRecorder<> recorder_for(const optim::Optimizer& optimizer, const Net& net) {
  return stele::PytorchRecorder<>(stele::PytorchFormat(
      {.part = "model_state_dict", .parameters = stele::torch::parameter_names_of(optimizer, *net).value()}));
}

template <class Optimizer>
void continue_training(const std::string& name, Optimizer optimizer, Net net) {
  CAPTURE(name);
  const auto recorder = recorder_for(optimizer, net);
  const std::string path = folder() + name + ".pth";
  const stele::Checkpoint start = recorder.open_checkpoint(path).value();
  REQUIRE(start.training);
  stele::torch::load_state_dict(*net, start.parameters).value();
  stele::torch::set_updater(optimizer, start.training->updater).value();
  stele::Report report;
  stele::torch::load_optimizer_state(optimizer, *net, start.optimizer, {.report = &report}).value();
  CHECK(report.count(stele::Report::What::applied) == report.size());

  train(path, optimizer, net);

  stele::Checkpoint end{.parameters = stele::torch::snapshot_of(*net).value(),
                        .training = stele::TrainingConfig{},
                        .optimizer = stele::torch::optimizer_state_of(optimizer, *net).value()};
  end.training->updater = stele::torch::updater_of(optimizer).value();
  // PyTorch 1.13 stores the same settings for AdamW as for Adam.
  const bool as_adam = end.training->updater.type == "AdamW" && start.training->updater.type == "AMSGrad";
  CHECK((as_adam || end.training->updater == start.training->updater));
  recorder.save(end, folder() + name + "-ours.pth").value();
}

}  // namespace

TEST_CASE("a .pth file of Python gives Python's output, and is written for Python") {
  const stele::PytorchRecorder<> recorder;
  Net net;
  stele::torch::load_state_dict(*net, recorder.open(folder() + "model.pth").value()).value();
  net->eval();
  const stele::Snapshot io = stele::open(folder() + "io.safetensors").value();
  const ::torch::NoGradGuard no_grad;
  CHECK(::torch::allclose(net->forward(read(io, "x")), read(io, "y")));
  recorder.save(stele::torch::snapshot_of(*net).value(), folder() + "ours.pth").value();
  Net again;
  stele::torch::load_state_dict(*again, stele::open(folder() + "ours.pth").value()).value();
  CHECK(equal_state(*again, *net));
}

TEST_CASE("training continues from checkpoints of Python") {
  Net net;
  continue_training("sgd", optim::SGD(net->parameters(), optim::SGDOptions(1).momentum(0.1)), net);
  continue_training("adam", optim::Adam(net->parameters(), optim::AdamOptions(1)), net);
  continue_training("adamw", optim::AdamW(net->parameters(), optim::AdamWOptions(1)), net);
  continue_training("rmsprop", optim::RMSprop(net->parameters(), optim::RMSpropOptions(1)), net);
  continue_training("adagrad", optim::Adagrad(net->parameters(), optim::AdagradOptions(1)), net);
}

TEST_CASE("the numbers of a file are those of the optimizer's groups") {
  Net net;
  Parameters others = net->parameters();
  const Parameters conv{others.front()};
  others.erase(others.begin());
  const auto options = [] { return std::make_unique<optim::SGDOptions>(1); };
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(others, options());
  groups.emplace_back(conv, options());
  optim::SGD optimizer(groups, optim::SGDOptions(1));
  const std::string path = folder() + "groups.pth";
  const stele::Checkpoint start = recorder_for(optimizer, net).open_checkpoint(path).value();
  stele::torch::load_state_dict(*net, start.parameters).value();
  stele::torch::set_updater(optimizer, start.training->updater).value();
  static_cast<optim::SGDOptions&>(optimizer.param_groups()[1].options()).lr(0.05);  // the updater is of the first group
  stele::torch::load_optimizer_state(optimizer, *net, start.optimizer).value();
  train(path, optimizer, net);
  stele::save(stele::torch::snapshot_of(*net).value(), folder() + "groups-ours.pth").value();
}
