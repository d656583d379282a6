// Burn's own benchmark of saving and loading, with twenty linear layers (1024 to 2048, then 2048 to 2048: 327 MB) in
// Burn's formats. tests/formats/burn/interop/v21 does the same as burn-bench-v21, so that benchmarks/burn.py can run
// both alternately.
//
//   bench_burn save|load mpk|bin|bpk|raw PATH TIMES
#include <stele/recorders/burn.hpp>
#include <stele/stele.hpp>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace {

struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::optional<stele::Param<stele::Tensor<float, 1>>> bias;
};
struct Large {
  std::vector<Linear> layers;
};

constexpr std::size_t layers = 20, width = 2048, first_width = 1024;

Large filled() {
  Large model;
  for (std::size_t i = 0; i < layers; ++i) {
    const std::size_t in = i == 0 ? first_width : width;
    model.layers.push_back(
        {stele::Tensor<float, 2>::filled({in, width}, 0.25F), {stele::Tensor<float, 1>::filled({width}, 0.5F)}});
  }
  return model;
}

/// Returns a line of /proc/self/status, in bytes.
long long status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return 1024 * std::atoll(line.c_str() + name.size() + 1);
  }
  return 0;
}

stele::SaveOptions save_options() {
  stele::SaveOptions options;
  options.file.durability = stele::Durability::process;  // Burn does not sync
  return options;
}

/// The minimum work: writes the model's bytes to a file, or reads them.
void raw(bool save, const std::string& path, std::vector<char>& bytes) {
  const int file = ::open(path.c_str(), save ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY, 0644);
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n =
        save ? ::write(file, bytes.data() + at, bytes.size() - at) : ::read(file, bytes.data() + at, bytes.size() - at);
    if (n <= 0) std::exit((std::perror(path.c_str()), 1));
    at += static_cast<std::size_t>(n);
  }
  ::close(file);
}

template <class Recorder>
void run(bool save, const Recorder& recorder, const std::string& path, const Large& model) {
  if (save) {
    recorder.save(model, path, save_options()).value();
  } else {
    const Large loaded = recorder.template load<Large>(path).value();
    if (loaded.layers[layers - 1].weight->shape()[0] != width) std::exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: bench_burn save|load mpk|bin|bpk|raw PATH TIMES\n");
    return 2;
  }
  const bool save = std::string(argv[1]) == "save";
  const std::string format = argv[2];
  const std::string path = argv[3];
  const Large model = save ? filled() : Large();
  std::vector<char> bytes(format == "raw" ? (first_width + (layers - 1) * width + layers) * width * sizeof(float) : 0);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak is counted from here
  const long long before = status("VmRSS");
  for (int i = 0; i < std::atoi(argv[4]); ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (format == "raw") {
      raw(save, path, bytes);
    } else if (format == "bpk") {
      run(save, stele::BurnpackRecorder<stele::BurnFullPrecision>(), path, model);
    } else {
      stele::BurnOptions options;
      options.encoding = format == "bin" ? stele::BurnEncoding::bin : stele::BurnEncoding::mpk;
      run(save, stele::BurnRecorder<stele::BurnFullPrecision>(stele::BurnFormat(options)), path, model);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%s %s %.6f\n", argv[1], argv[2], seconds.count());
  }
  std::printf("growth %lld\n", status("VmHWM") - before);
  return 0;
}
