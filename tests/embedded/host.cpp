// The host's half of tests/embedded/run.sh:
//
//     embedded_host prepare DATA FOLDER   the digits model at half precision and ten images, and what they are: prints
//                                         the digits that the host takes them for
//     embedded_host check FOLDER          what the microcontroller wrote, against the same model's record here
#include <stele/stele.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "observer.hpp"

namespace {

struct Normalize {
  std::vector<float> mean, scale;
};
struct Linear {
  stele::Tensor<float, 2> weight;
  std::optional<std::vector<float>> bias;
  std::vector<float> operator()(const std::vector<float>& x) const {
    std::vector<float> y(weight.shape()[0]);
    for (std::size_t o = 0; o < y.size(); ++o) {
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += weight(o, i) * x[i];
      if (bias) y[o] += (*bias)[o];
    }
    return y;
  }
};
struct Digits {
  Normalize normalize;
  std::vector<Linear> hidden;
  Linear head;
  std::ptrdiff_t operator()(const char* pixels) const {
    std::vector<float> x(normalize.mean.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = (static_cast<float>(pixels[i]) - normalize.mean[i]) * normalize.scale[i];
    }
    for (const Linear& layer : hidden) {
      x = layer(x);
      for (float& v : x) v = std::max(v, 0.0F);
    }
    x = head(x);
    return std::max_element(x.begin(), x.end()) - x.begin();
  }
};

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void prepare(const std::string& data, const std::string& folder) {
  const auto trained = stele::load<Digits>(data + "/digits.safetensors").value();
  const std::string path = folder + "/model.stele";
  stele::BinaryRecorder<stele::HalfPrecision>{}.save(trained, path).value();

  const std::string images = read(data + "/digits-test.bin").substr(16, 10 * 64);
  std::ofstream(folder + "/images.bin", std::ios::binary) << images;
  const auto model = stele::load<Digits>(path).value();
  for (std::size_t i = 0; i < 10; ++i) std::printf("%td\n", model(images.data() + i * 64));
}

int check(const std::string& folder) {
  const std::string images = read(folder + "/images.bin");
  std::array<float, 16> half{};
  Observer observer(half);
  for (std::size_t at = 0; at < images.size(); at += Observer::pixels) {
    observer.see(reinterpret_cast<const std::byte*>(images.data()) + at);
  }
  const stele::Bytes here = stele::BytesRecorder<>{}.save(observer).value();
  const std::string there = read(folder + "/written.stele");
  if (there.size() != here.size() || std::memcmp(there.data(), here.data(), here.size()) != 0) {
    std::printf("%zu bytes there, %zu here: not the same\n", there.size(), here.size());
    return 1;
  }
  std::array<float, 16> loaded{};
  Observer again(loaded);
  for (std::size_t at = 0; at < images.size(); at += Observer::pixels) {  // the same optionals are there
    again.see(reinterpret_cast<const std::byte*>(images.data()) + at);
  }
  loaded.fill(0);
  stele::load_into(again, folder + "/written.stele").value();
  std::printf("%zu bytes, the same as the host's; loaded: %zu tensors\n%s", there.size(),
              stele::open(folder + "/written.stele").value().leaf_count(), stele::summary(again).c_str());
  return loaded == half ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 3 && args[0] == "prepare") return prepare(args[1], args[2]), 0;
  if (args.size() == 2 && args[0] == "check") return check(args[1]);
  std::fprintf(stderr, "usage: embedded_host prepare DATA FOLDER | check FOLDER\n");
  return 2;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
