// Loads a state_dict that PyTorch saved, and saves one that PyTorch loads: `pytorch [FILE]`.
#include <cstdio>
#include <optional>
#include <vector>

#include <stele/stele.hpp>

struct Linear {
  stele::Tensor<float, 2> weight;  // [out, in], as in PyTorch
  std::optional<std::vector<float>> bias;
};
struct Normalize {
  std::vector<float> mean, scale;
};
struct Digits {
  Normalize normalize;
  std::vector<Linear> hidden;
  Linear head;
};

int main(int argc, char** argv) {
  // Python: torch.save(net.state_dict(), "digits.pth")
  Digits net = stele::load<Digits>(argc > 1 ? argv[1] : "examples/data/digits.pth").value();
  std::printf("bias of the digit 9: %.3f\n", (*net.head.bias)[9]);

  net.head.bias.reset();  // bias=False in Python
  stele::save(net, "changed.pth").value();
  // Python: net.load_state_dict(torch.load("changed.pth", weights_only=True, mmap=True))
  std::printf("%s", stele::summary(stele::open("changed.pth").value()).c_str());
}

// Output:
// bias of the digit 9: 0.039
// normalize.mean  f32 [64]  64
// normalize.scale  f32 [64]  64
// hidden.0.weight  f32 [48, 64]  3072
// hidden.0.bias  f32 [48]  48
// hidden.1.weight  f32 [32, 48]  1536
// head.weight  f32 [10, 32]  320
// 6 tensors, 5104 parameters, 20416 bytes
