// Saves and loads a model in each format, and breaks a precondition, without exceptions and RTTI.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <stele/recorders/gguf.hpp>
#include <stele/recorders/json.hpp>
#include <stele/recorders/numpy.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/stele.hpp>

namespace {

struct Linear {
  stele::Tensor<float, 2> weight;
  std::array<float, 3> bias{};
};
struct Model {
  std::vector<Linear> layers;
};

void check(bool good, const char* what, const std::string& why = {}) {
  if (good) return;
  std::fprintf(stderr, "%s: %s\n", what, why.c_str());
  std::exit(1);
}

template <class Recorder>
void round_trip(const Recorder& recorder) {
  const std::string name(recorder.format().name());
  Model model;
  for (const float first : {1.0F, 7.0F}) {
    Linear linear{stele::Tensor<float, 2>({3, 2}), {first, first + 1, first + 2}};
    for (std::size_t i = 0; i < 6; ++i) linear.weight.data()[i] = first * static_cast<float>(i);
    model.layers.push_back(std::move(linear));
  }
  const std::string path = "bare_" + name + std::string(recorder.format().extension());
  for (const char* const time : {"first save", "second save"}) {  // the second replaces the file
    const auto saved = recorder.save(model, path);
    check(saved.has_value(), time, saved ? "" : saved.error().to_string());
  }
  stele::LoadOptions options;
  for (const auto storage : {stele::Storage::owned, stele::Storage::mmap}) {
    options.storage = storage;
    auto loaded = recorder.template load<Model>(path, options);
    check(loaded.has_value(), name.c_str(), loaded ? "" : loaded.error().to_string());
    check(loaded->layers.size() == 2, name.c_str(), "the number of layers differs");
    for (std::size_t i = 0; i < 2; ++i) {
      const Linear &want = model.layers[i], &got = loaded->layers[i];
      check(got.bias == want.bias && got.weight.shape() == want.weight.shape() && got.weight(2, 1) == want.weight(2, 1),
            name.c_str(), "an element differs");
    }
  }
  const auto missing = recorder.template load<Model>("there_is_no" + std::string(recorder.format().extension()));
  check(!missing && missing.error().code() == stele::Errc::not_found, name.c_str(), "a missing file");
  std::remove(path.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  if (what == "formats") {
    round_trip(stele::BinaryRecorder<>());
    round_trip(stele::SafetensorsRecorder<>());
    round_trip(stele::GgufRecorder<>());
    round_trip(stele::NpzRecorder<>());
    round_trip(stele::PytorchRecorder<>());
    round_trip(stele::JsonRecorder<>());
    return 0;
  }
  static std::string_view expected =
      what == "memory" ? "std::bad_alloc" : "stele: a Tensor's values do not fit its shape";
  check(stele::set_fatal_handler([](const char* message) { std::exit(message == expected ? 0 : 2); }) == nullptr,
        "the handler at first");
  if (what == "memory") {
    const stele::Tensor<float> tensor({std::uint64_t{1} << 62});
    check(tensor.size() == 0, "memory", "there is a tensor of 2^64 bytes");
  } else {
    const stele::Tensor<float> tensor({2, 2}, {1, 2, 3});
    check(tensor.size() == 0, "precondition", "there is a tensor of 4 elements made of 3");
  }
  return 1;
}
