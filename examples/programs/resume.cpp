// Trains a small network on handwritten digits and saves its steps in the background: parameters, both moments of Adam,
// learning-rate schedule and counts, the state of the random numbers. The process is killed, and the newest step loses
// the end of a file. Another process resumes from the folder alone, and ends with the same bits as a run without
// interruption.
#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "stele/checkpoints/manager.hpp"
#include "stele/checkpoints/random.hpp"
#include "stele/stele.hpp"

namespace {

constexpr std::size_t inputs = 64, hidden = 48, outputs = 10, batch = 50;

struct Layer {
  stele::Tensor<float, 2> weight;  // [outputs, inputs]
  stele::Tensor<float, 1> bias;

  void operator()(std::span<const float> x, std::span<float> y) const {
    for (std::size_t o = 0; o < y.size(); ++o) {
      y[o] = bias[o];
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += weight(o, i) * x[i];
    }
  }
};

struct Network {
  std::vector<float> mean;  // of each pixel; not trained
  Layer first, second;

  /// The logits of an image; `a` receives the output of the hidden layer.
  std::array<float, outputs> operator()(std::span<const float, inputs> x, std::array<float, hidden>& a) const {
    std::array<float, outputs> y{};
    first(x, a);
    for (float& v : a) v = std::max(v, 0.0F);
    second(a, y);
    return y;
  }
  std::array<std::span<float>, 4> trained() {
    return {std::span(first.weight), std::span(first.bias), std::span(second.weight), std::span(second.bias)};
  }
};

Network zeros() {
  const auto layer = [](std::size_t in, std::size_t out) {
    return Layer{stele::Tensor<float, 2>::zeros({out, in}), stele::Tensor<float, 1>::zeros({out})};
  };
  return {std::vector<float>(inputs), layer(inputs, hidden), layer(hidden, outputs)};
}

struct Images {
  std::vector<std::uint8_t> pixels, labels;  // 64 for each image, one for each

  std::array<float, inputs> image(std::size_t i, const std::vector<float>& mean) const {
    std::array<float, inputs> x{};
    for (std::size_t k = 0; k < inputs; ++k) x[k] = (static_cast<float>(pixels[i * inputs + k]) - mean[k]) / 16;
    return x;
  }
  Images part(std::size_t from, std::size_t to) const {
    const auto cut = [](const auto& all, std::size_t a, std::size_t b) {
      return std::vector(all.begin() + static_cast<std::ptrdiff_t>(a), all.begin() + static_cast<std::ptrdiff_t>(b));
    };
    return {cut(pixels, from * inputs, to * inputs), cut(labels, from, to)};
  }
};

Images read_images(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<std::uint8_t> all(std::istreambuf_iterator<char>(file), {});
  if (all.size() < 16) throw std::runtime_error("cannot read " + path);
  const auto labels = all.begin() + 16 + static_cast<std::ptrdiff_t>((all.size() - 16) / 65 * 64);
  return {{all.begin() + 16, labels}, {labels, all.end()}};
}

// The complete state of a training run.
struct Training {
  Network network, m, v;
  stele::TrainingConfig config;
  std::mt19937 random{1998};  // selects the images
};

Training start(const Images& images) {
  Training t{zeros(), zeros(), zeros(), {}, std::mt19937(1998)};
  for (std::size_t i = 0; i < images.pixels.size(); ++i) t.network.mean[i % inputs] += images.pixels[i];
  for (float& m : t.network.mean) m /= static_cast<float>(images.labels.size());
  for (Layer* layer : {&t.network.first, &t.network.second}) {
    for (float& w : layer->weight) w = (static_cast<float>(t.random() % 20001) - 10000) / 40000;
  }
  // Halves the rate after every 200 steps.
  t.config.updater = stele::updaters::adam(stele::schedules::step(stele::ScheduleType::iteration, 4e-3, 0.5, 200));
  return t;
}

stele::CheckpointManager open_steps(const std::string& folder) {
  return stele::CheckpointManager::open(
             folder, stele::BinaryRecorder<>(),
             {.keep = stele::keep::latest(2) | stele::keep::best(1, "loss"), .save = stele::save_when::every_steps(50)})
      .value();
}

/// Saves a step in the background; the tensors may change when this returns.
void save(stele::CheckpointManager& manager, const Training& t, double loss) {
  auto checkpoint = stele::checkpoint_of(t.network, stele::StateKind("M", t.m), stele::StateKind("V", t.v)).value();
  checkpoint.training = t.config;
  manager
      .save_async(t.config.iteration_count, checkpoint, {{{"loss", loss}}, {{"random", stele::random_state(t.random)}}})
      .value();
}

/// Loads the newest step that verifies. Structure and shapes come from its files.
Training resume(const stele::CheckpointManager& manager) {
  Training t;
  const auto step = manager.resume(t.network, stele::StateKind("M", t.m), stele::StateKind("V", t.v)).value();
  if (!step) throw std::runtime_error("there is no step to resume from");
  for (const stele::BrokenStep& broken : step->skipped) {
    std::printf("   Step %d is skipped, because it does not verify: %s.\n", static_cast<int>(broken.step),
                std::string(broken.error.code_name()).c_str());
  }
  t.config = step->checkpoint.training.value();
  stele::set_random_state(t.random, step->info.state.find("random")).value();
  return t;
}

/// Adds the gradient of one image's cross entropy, and returns the cross entropy.
float backward(const Network& n, Network& gradient, std::span<const float, inputs> x, std::size_t label) {
  std::array<float, hidden> a{}, da{};
  std::array<float, outputs> y = n(x, a);
  float sum = 0;
  for (float& v : y) sum += v = std::exp(v);
  const float loss = std::log(sum / y[label]);
  for (std::size_t o = 0; o < outputs; ++o) {
    const float dy = y[o] / sum - (o == label ? 1.0F : 0.0F);
    gradient.second.bias[o] += dy;
    for (std::size_t i = 0; i < hidden; ++i) {
      gradient.second.weight(o, i) += dy * a[i];
      da[i] += dy * n.second.weight(o, i);
    }
  }
  for (std::size_t o = 0; o < hidden; ++o) {
    if (a[o] == 0) continue;
    gradient.first.bias[o] += da[o];
    for (std::size_t i = 0; i < inputs; ++i) gradient.first.weight(o, i) += da[o] * x[i];
  }
  return loss;
}

/// Runs Adam up to step `steps`, on random images. Saves the steps that `manager`, if there is one, wants.
void train(Training& t, const Images& images, std::int64_t steps, stele::CheckpointManager* manager) {
  const std::size_t count = images.labels.size();
  const stele::TrainingObject& adam = t.config.updater;
  const double beta1 = adam.number("beta1")->value(), beta2 = adam.number("beta2")->value();
  while (t.config.iteration_count < steps) {
    const double rate = stele::learning_rate(t.config).value();  // of the schedule, at these counts
    Network gradient = zeros();
    double loss = 0;
    for (std::size_t k = 0; k < batch; ++k) {
      const std::size_t i = t.random() % count;
      loss +=
          static_cast<double>(backward(t.network, gradient, images.image(i, t.network.mean), images.labels[i])) / batch;
    }
    const auto n = static_cast<double>(++t.config.iteration_count);
    t.config.epoch_count =
        t.config.iteration_count * static_cast<std::int64_t>(batch) / static_cast<std::int64_t>(count);
    const double alpha = rate * std::sqrt(1 - std::pow(beta2, n)) / (1 - std::pow(beta1, n));
    const auto p = t.network.trained(), g = gradient.trained(), m = t.m.trained(), v = t.v.trained();
    for (std::size_t k = 0; k < p.size(); ++k) {
      for (std::size_t i = 0; i < p[k].size(); ++i) {
        const double d = g[k][i] / batch;
        m[k][i] = static_cast<float>(beta1 * m[k][i] + (1 - beta1) * d);
        v[k][i] = static_cast<float>(beta2 * v[k][i] + (1 - beta2) * d * d);
        p[k][i] -= static_cast<float>(alpha * m[k][i] / (std::sqrt(v[k][i]) + 1e-8));
      }
    }
    if (manager != nullptr && manager->due(t.config.iteration_count)) save(*manager, t, loss);
  }
}

/// Returns the percentage of images that the network recognises.
double right(const Network& n, const Images& images) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < images.labels.size(); ++i) {
    std::array<float, hidden> a{};
    const auto y = n(images.image(i, n.mean), a);
    count += std::max_element(y.begin(), y.end()) - y.begin() == images.labels[i] ? 1 : 0;
  }
  return 100 * static_cast<double>(count) / static_cast<double>(images.labels.size());
}

bool same_bits(Network& a, Network& b) {
  const auto x = a.trained(), y = b.trained();
  return a.mean == b.mean && std::equal(x.begin(), x.end(), y.begin(), [](auto one, auto other) {
           return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size_bytes()) == 0;
         });
}

/// Trains in a process of its own, which is killed at a step.
void train_until_killed(const Training& from, const Images& images, const std::string& folder, std::int64_t step) {
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    Training t = from;
    auto manager = open_steps(folder);
    train(t, images, step, &manager);
    static_cast<void>(manager.wait());  // else the kill could come before the first step is written
    std::raise(SIGKILL);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) throw std::runtime_error("the run was not killed");
}

}  // namespace

int main(int argc, char** argv) try {
  const Images all = read_images(std::string(argc > 1 ? argv[1] : "examples/data") + "/digits-test.bin");
  const Images images = all.part(0, 350), test = all.part(350, all.labels.size());
  const std::string folder = std::filesystem::temp_directory_path() / "stele-resume";
  std::filesystem::remove_all(folder);

  std::puts("3  A training run that is killed, and resumed\n");
  const Training begin = start(images);
  Training whole = begin;
  train(whole, images, 600, nullptr);
  std::printf("   600 steps of Adam without interruption: %.1f %% of test images right (%.1f %% before).\n",
              right(whole.network, test), right(begin.network, test));

  std::fflush(stdout);
  train_until_killed(begin, images, folder, 320);
  // A disk that lost the end of a file.
  std::filesystem::resize_file(folder + "/step-00000300/parameters.stele", 100);
  std::puts("   The same run again: killed at step 320, and its newest step has lost the end of a file.");
  Training again = resume(open_steps(folder));
  std::printf("   Resumed at step %d: optimizer, schedule and random numbers too.\n",
              static_cast<int>(again.config.iteration_count));
  train(again, images, 600, nullptr);
  std::filesystem::remove_all(folder);

  const bool same = same_bits(whole.network, again.network) && same_bits(whole.m, again.m) &&
                    same_bits(whole.v, again.v) && whole.config == again.config && whole.random == again.random;
  std::printf("   After 600 steps: %.1f %% right, %s\n\n", right(again.network, test),
              same ? "bit for bit the same as without interruption." : "NOT the same as without interruption!");
  return same ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
