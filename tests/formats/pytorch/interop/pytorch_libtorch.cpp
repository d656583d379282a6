// Writes files with the C++ side of PyTorch, for make_golden_pytorch.py and pytorch_files.py: no Python writes them.
//
//   g++-12 -std=c++17 -O0 pytorch_libtorch.cpp -ltorch -ltorch_cpu -lc10 (and the folders of the headers and libraries)
//   pytorch_libtorch SUFFIX
//
// Element k of a tensor is k.
#include <torch/torch.h>

#include <fstream>
#include <string>
#include <vector>

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(2, 3));
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
    scale = register_parameter("scale", torch::zeros({2}));
    steps = register_buffer("steps", torch::zeros({}, torch::kLong));
  }
  torch::Tensor forward(torch::Tensor x) { return norm(first(x)).sum(); }
  torch::nn::Linear first{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor scale, steps;
};
TORCH_MODULE(Net);

torch::Tensor values(std::vector<std::int64_t> shape, torch::ScalarType dtype = torch::kFloat) {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return torch::arange(n).to(dtype).reshape(shape);
}

}  // namespace

int main(int, char** arguments) {
  const std::string suffix = arguments[1];
  Net net;
  {
    const torch::NoGradGuard guard;
    for (torch::Tensor& t : net->parameters()) t.copy_(values(t.sizes().vec()));
    for (torch::Tensor& t : net->buffers()) t.copy_(values(t.sizes().vec(), t.scalar_type()));
  }
  torch::save(net, "libtorch_module" + suffix + ".pt");

  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.01));
  for (int step = 0; step < 3; ++step) {
    for (torch::Tensor& t : net->parameters()) t.mutable_grad() = values(t.sizes().vec()) / 8;
    adam.step();
  }
  torch::save(adam, "libtorch_adam" + suffix + ".pt");
  torch::save(std::vector<torch::Tensor>{values({2, 3}), values({2}, torch::kLong)}, "libtorch_list" + suffix + ".pt");
  torch::save(values({2, 3}), "libtorch_tensor" + suffix + ".pt");

  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("weight", values({2, 3}));
  dict.insert("big", std::int64_t{1} << 40);
  dict.insert("rate", 0.5);
  dict.insert("ints", c10::List<std::int64_t>({1, 2}));
  dict.insert("floats", c10::List<double>({0.5, 1.5}));
  dict.insert("tensors", c10::List<torch::Tensor>({values({1}), values({2})}));
  dict.insert("name", "net");
  const std::vector<char> bytes = torch::pickle_save(dict);
  std::ofstream("libtorch_pickle" + suffix + ".pt", std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}
