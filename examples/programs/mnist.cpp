// Runs the model of Burn's web example (https://burn.dev, examples/mnist-inference-web). The model is written in Rust
// and was trained there. Here its files are loaded into C++ classes with the same fields.
//
//     mnist DATA FILE...
//
// DATA is examples/data. Each FILE is a model.bin of Burn 0.21 or a model.bpk of 0.22, from that example's folder.
// Without a FILE, the program only draws a digit. `make demo BURN="FILE..."` runs it.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "stele/recorders/burn.hpp"
#include "stele/stele.hpp"

namespace {

using Vector = std::vector<float>;
template <int Rank>
using Param = stele::Param<stele::Tensor<float, Rank>>;

/// Square images, one for each channel, one after another.
struct Planes {
  std::size_t side = 0;
  Vector values{};

  std::size_t count() const { return values.size() / (side * side); }
  float* plane(std::size_t channel) { return &values[channel * side * side]; }
  const float* plane(std::size_t channel) const { return &values[channel * side * side]; }
};

// These classes have the field names of the Rust modules. A .bin file stores fields by position, so burn_layout lists
// the Rust fields that are not recorded. All other files load without it.

struct Linear {
  Param<2> weight;  // [in, out]
  std::optional<Param<1>> bias;

  Vector operator()(const Vector& x) const {
    Vector y(weight->shape()[1]);
    if (bias) std::copy((*bias)->begin(), (*bias)->end(), y.begin());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float* row = weight->data() + i * y.size();
      for (std::size_t o = 0; o < y.size(); ++o) y[o] += x[i] * row[o];
    }
    return y;
  }
};

struct Conv2d {
  Param<4> weight;  // [out, in, height, width]
  std::optional<Param<1>> bias;

  static constexpr stele::Attribute stele_attributes[] = {
      stele::attr::burn_layout("weight, bias, stride[2], kernel_size[2], dilation[2], groups, padding")};

  /// Convolves with steps of one, without padding.
  Planes operator()(const Planes& x) const {
    const auto [outputs, inputs, height, width] = weight->shape();
    Planes y{x.side - height + 1, {}};
    for (std::size_t o = 0; o < outputs; ++o) {
      y.values.resize((o + 1) * y.side * y.side, bias ? (**bias)[o] : 0);
      for (std::size_t i = 0; i < inputs; ++i) {
        for (std::size_t k = 0; k < height * width; ++k) {
          const float w = (*weight)(o, i, k / width, k % width);
          for (std::size_t row = 0; row < y.side; ++row) {
            const float* from = x.plane(i) + (row + k / width) * x.side + k % width;
            float* to = y.plane(o) + row * y.side;
            for (std::size_t column = 0; column < y.side; ++column) to[column] += w * from[column];
          }
        }
      }
    }
    return y;
  }
};

struct BatchNorm {
  Param<1> gamma, beta, running_mean, running_var;
  double momentum = 0.1, epsilon = 1e-5;  // constants to Burn: not in its files

  void operator()(Planes& x) const {
    for (std::size_t c = 0; c < x.count(); ++c) {
      const float scale = (*gamma)[c] / std::sqrt((*running_var)[c] + static_cast<float>(epsilon));
      for (float& v : std::span(x.plane(c), x.side * x.side)) v = (v - (*running_mean)[c]) * scale + (*beta)[c];
    }
  }
};

struct ConvBlock {
  Conv2d conv;
  BatchNorm norm;

  static constexpr stele::Attribute stele_attributes[] = {stele::attr::burn_layout("conv, norm, pool, activation")};

  /// Returns the largest of each 2×2 pixels of every channel, at least 0.
  Planes operator()(const Planes& x) const {
    Planes y = conv(x);
    norm(y);
    Planes pooled{y.side / 2, Vector(y.count() * (y.side / 2) * (y.side / 2))};
    for (std::size_t c = 0; c < y.count(); ++c) {
      for (std::size_t i = 0; i < pooled.side * pooled.side; ++i) {
        const float* at = y.plane(c) + i / pooled.side * 2 * y.side + i % pooled.side * 2;
        pooled.plane(c)[i] = std::max({0.0F, at[0], at[1], at[y.side], at[y.side + 1]});
      }
    }
    return pooled;
  }
};

Vector gelu(Vector x) {
  for (float& v : x) v *= (1 + std::erf(v / std::sqrt(2.0F))) / 2;
  return x;
}

struct Model {
  ConvBlock conv1, conv2;
  Linear fc1, fc2, fc3;

  static constexpr stele::Attribute stele_attributes[] = {
      stele::attr::burn_layout("conv1, conv2, dropout, fc1, fc2, fc3, activation")};

  struct Answer {
    int digit = 0;
    float chance = 0;
  };
  /// Takes pixels from 0 to 255.
  Answer operator()(Planes image) const {
    for (float& v : image.values) v = (v / 255 - 0.1307F) / 0.3081F;
    const Vector y = fc3(gelu(fc2(gelu(fc1(conv2(conv1(image)).values)))));
    const auto largest = std::max_element(y.begin(), y.end());
    float sum = 0;
    for (const float v : y) sum += std::exp(v - *largest);
    return {static_cast<int>(largest - y.begin()), 1 / sum};
  }
};

/// Returns a digit as in MNIST: 20×20 pixels with sharp strokes, their center of mass in the middle of 28×28.
Planes enlarged(const std::uint8_t* pixels) {
  constexpr std::size_t small = 8, box = 20, side = 28;
  Vector scaled(box * box);
  float mass = 0, down = 0, right = 0;
  const auto split = [](std::size_t at) {  // the pixel before, and how far it is to the next
    const float x = std::clamp((static_cast<float>(at) + 0.5F) * small / box - 0.5F, 0.0F, small - 1.0F);
    const float before = std::min(std::floor(x), small - 2.0F);
    return std::pair(static_cast<std::size_t>(before), x - before);
  };
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    const auto [row, below] = split(i / box);
    const auto [column, beside] = split(i % box);
    const auto across = [&, from = pixels + row * small + column, t = beside](std::size_t next) {
      return std::lerp(static_cast<float>(from[next]), static_cast<float>(from[next + 1]), t);
    };
    const float ink = std::lerp(across(0), across(small), below);
    scaled[i] = 255 * std::clamp((ink - 4) / 8, 0.0F, 1.0F);  // the largest ink is 16
    mass += scaled[i];
    down += scaled[i] * static_cast<float>(i / box);
    right += scaled[i] * static_cast<float>(i % box);
  }
  const auto margin = [&](float moment) {
    return static_cast<std::size_t>(std::clamp((side - 1) / 2.0F - moment / mass + 0.5F, 0.0F, float{side - box}));
  };
  Planes image{side, Vector(side * side)};
  for (std::size_t row = 0; row < box; ++row)
    std::copy_n(&scaled[row * box], box, &image.values[(margin(down) + row) * side + margin(right)]);
  return image;
}

struct Digit {
  Planes image;
  int label = 0;
};

/// Reads the test images. examples/data/README.md describes the file.
std::vector<Digit> read_digits(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<std::uint8_t> bytes(std::istreambuf_iterator<char>(file), {});
  if (bytes.size() != 16 + 450 * 65) throw std::runtime_error("cannot read " + path);
  std::vector<Digit> digits;
  for (std::size_t i = 0; i < 450; ++i) digits.push_back({enlarged(&bytes[16 + i * 64]), bytes[16 + 450 * 64 + i]});
  return digits;
}

void draw(const Planes& image) {
  for (std::size_t i = 0; i < image.values.size(); ++i) {
    if (i / image.side % 2 == 0) std::putchar(" .:-=+*#%@"[static_cast<std::size_t>(image.values[i] * 9 / 255)]);
    if (i % (2 * image.side) == image.side - 1) std::putchar('\n');
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<Digit> digits = read_digits(std::string(argc > 1 ? argv[1] : "examples/data") + "/digits-test.bin");
  draw(digits[0].image);
  if (argc < 3) std::puts("No model was loaded: name a model.bin or model.bpk of Burn's examples/mnist-inference-web.");
  for (const std::string& path : std::vector<std::string>(argv + std::min(argc, 2), argv + argc)) {
    const auto format = stele::format_of_content(*stele::open_file(path).value()).value();
    const Model model = stele::load<Model>(path).value();  // the format follows from the content
    const auto [digit, chance] = model(digits[0].image);
    const auto right = std::count_if(digits.begin(), digits.end(),
                                     [&](const Digit& each) { return model(each.image).digit == each.label; });
    std::printf("%s: %s, %zu tensors. This is a %d (%.1f %%); of %zu digits %.1f %% are right\n", path.c_str(),
                std::string(format->name()).c_str(), stele::snapshot_of(model).value().leaf_count(), digit,
                double{100 * chance}, digits.size(),
                100 * static_cast<double>(right) / static_cast<double>(digits.size()));
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
