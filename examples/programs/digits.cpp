// Loads a digits classifier that was trained in PyTorch, saves it with every recorder and at several precisions, loads
// each file and classifies the test images again. `make demo` runs it.
//
//     digits [DATA] [--all] [--files FOLDER]
//
// DATA is examples/data. --all saves with every recorder at every precision. --files keeps the saved files in FOLDER,
// which must be new or empty.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "stele/recorders/archive.hpp"
#include "stele/recorders/burn.hpp"
#include "stele/recorders/gguf.hpp"
#include "stele/recorders/nnef.hpp"
#include "stele/recorders/numpy.hpp"
#include "stele/recorders/paddle.hpp"
#include "stele/recorders/pytorch.hpp"
#include "stele/recorders/samediff.hpp"
#include "stele/stele.hpp"

namespace {

using Vector = std::vector<float>;

// A class with private members: the macro lists the recorded fields.
class Linear {
 public:
  Vector operator()(const Vector& x) const {
    calls_.fetch_add(1, std::memory_order_relaxed);
    const auto [outputs, inputs] = weight->shape();
    Vector y(outputs, 0.0F);
    for (std::size_t o = 0; o < outputs; ++o) {
      for (std::size_t i = 0; i < inputs; ++i) y[o] += (*weight)(o, i) * x[i];
      if (bias) y[o] += (**bias)[o];
    }
    return y;
  }

 private:
  stele::Param<stele::Tensor<float, 2>> weight;
  std::optional<stele::Param<stele::Tensor<float, 1>>> bias;  // hidden.1 was trained without one
  mutable std::atomic<std::uint64_t> calls_{0};               // not listed, so not recorded

  STELE_MODULE(Linear, weight, bias)

 public:
  Linear() = default;
  Linear(Linear&& other) noexcept : weight(std::move(other.weight)), bias(std::move(other.bias)) {}
};

// Plain aggregates need no macro: tensors, modules, numbers and strings are recorded.
struct Normalize {
  std::vector<float> mean;
  std::vector<float> scale;
};

enum class Activation { relu };

struct Digits {
  Normalize normalize;
  std::vector<Linear> hidden;
  Linear head;
  Activation activation = Activation::relu;

  int operator()(const std::uint8_t* pixels) const {
    Vector x(normalize.mean.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = (static_cast<float>(pixels[i]) - normalize.mean[i]) * normalize.scale[i];
    }
    for (const Linear& layer : hidden) {
      x = layer(x);
      for (float& v : x) v = std::max(v, 0.0F);
    }
    x = head(x);
    return static_cast<int>(std::max_element(x.begin(), x.end()) - x.begin());
  }
};

struct Images {
  std::size_t count = 0;
  std::vector<std::uint8_t> pixels;  // count × 64
  std::vector<std::uint8_t> labels;
};

// Magic "DIGITS1\n", u32 count, u32 pixels per image (little-endian), pixels, labels.
std::optional<Images> read_images(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<std::uint8_t, 16> head{};
  file.read(reinterpret_cast<char*>(head.data()), head.size());
  const auto u32 = [&](std::size_t at) {
    return head[at] | (std::size_t{head[at + 1]} << 8) | (std::size_t{head[at + 2]} << 16);
  };
  if (!file || u32(12) != 64) return std::nullopt;
  Images images{u32(8), {}, {}};
  images.pixels.resize(images.count * 64);
  images.labels.resize(images.count);
  file.read(reinterpret_cast<char*>(images.pixels.data()), static_cast<std::streamsize>(images.pixels.size()));
  file.read(reinterpret_cast<char*>(images.labels.data()), static_cast<std::streamsize>(images.labels.size()));
  return file ? std::optional(std::move(images)) : std::nullopt;
}

double accuracy(const Digits& model, const Images& images) {
  std::size_t right = 0;
  for (std::size_t i = 0; i < images.count; ++i) right += model(&images.pixels[i * 64]) == images.labels[i] ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(images.count);
}

/// Returns the largest difference of any parameter of two models.
double largest_error(const Digits& a, const Digits& b) {
  const stele::Snapshot left = stele::snapshot_of(a).value();
  const stele::Snapshot right = stele::snapshot_of(b).value();
  double largest = 0;
  for (std::size_t i = 0; i < left.leaf_count(); ++i) {
    std::vector<float> x(left.leaf(i).size());
    std::vector<float> y(x.size());
    left.leaf(i).read(0, std::as_writable_bytes(std::span(x))).value();
    right.leaf(i).read(0, std::as_writable_bytes(std::span(y))).value();
    for (std::size_t k = 0; k < x.size(); ++k) largest = std::max(largest, std::fabs(double{x[k]} - double{y[k]}));
  }
  return largest;
}

/// Returns the median of nine runs, in microseconds.
double microseconds(auto work) {
  std::array<double, 9> times{};
  for (double& t : times) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    t = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
  std::nth_element(times.begin(), times.begin() + 4, times.end());
  return times[4];
}

std::size_t bytes_in(const std::filesystem::path& folder) {
  std::size_t n = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) n += entry.file_size();
  }
  return n;
}

struct Demo {
  Digits model;
  Images images;
  std::filesystem::path folder;
  bool all_precisions = false;
  stele::LoadOptions options{};
  int cells = 0;

  struct Saved {
    std::size_t bytes = 0;
    double error = 0;
    double right = 0;
    double open_us = 0, load_us = 0;
  };

  /// Saves the model, measures the file, loads it and classifies the images.
  template <class Recorder>
  Saved measure(const std::string& name, const Recorder& recorder) {
    std::string file = name;
    std::replace(file.begin(), file.end(), ' ', '-');
    std::replace(file.begin(), file.end(), '.', '-');
    const std::string path = folder / (file + std::string(recorder.format().extension()));
    stele::Bytes memory;
    Saved saved;
    if constexpr (requires { recorder.save(model).value().size(); }) {
      memory = recorder.save(model).value();
      saved.bytes = memory.size();
    } else {
      const auto before = bytes_in(folder);
      recorder.save(model, path).value();
      saved.bytes = bytes_in(folder) - before;
    }
    const auto open = [&] {
      return memory.empty() ? recorder.open(path, options).value() : recorder.open(memory).value();
    };
    const auto load = [&](const stele::Snapshot& s) { return stele::load<Digits>(s).value(); };
    const stele::Snapshot snapshot = open();
    const Digits again = load(snapshot);
    saved.error = largest_error(model, again);
    saved.right = 100 * accuracy(again, images);
    saved.open_us = microseconds(open);
    saved.load_us = microseconds([&] { load(snapshot); });
    return saved;
  }

  /// Prints one row of the long table, or one of three cells of a line.
  template <class Recorder>
  void row(const char* recorder_name, const char* precision, const Recorder& recorder) {
    const Saved saved = measure(std::string(recorder_name) + "-" + precision, recorder);
    if (all_precisions) {
      std::printf("%-13s %-10s %8zu B   %9.2e   %6.2f %%   %8.1f us   %8.1f us\n", recorder_name, precision,
                  saved.bytes, saved.error, saved.right, saved.open_us, saved.load_us);
    } else {
      if (saved.error != 0) throw std::runtime_error(std::string(recorder_name) + ": the numbers have changed");
      std::printf("   %-13s %6zu B %6.0f us%s", recorder_name, saved.bytes, saved.open_us + saved.load_us,
                  ++cells % 3 == 0 ? "\n" : "");
    }
  }

  /// Prints one row of the short table.
  template <class Recorder>
  void precision_row(const char* stored_as, const char* file, const Recorder& recorder) {
    const Saved saved = measure(file, recorder);
    std::printf("   %-28s %6zu B   largest error %8.2e   %6.2f %% right\n", stored_as, saved.bytes, saved.error,
                saved.right);
  }

  /// Prints one row, or one for each of the four precisions.
  template <class Make>
  void rows(const char* recorder_name, Make recorder) {
    row(recorder_name, "native", recorder(stele::NativePrecision{}));
    if (!all_precisions) return;
    row(recorder_name, "double", recorder(stele::DoublePrecision{}));
    row(recorder_name, "half", recorder(stele::HalfPrecision{}));
    row(recorder_name, "bfloat16", recorder(stele::BrainPrecision{}));
  }
};

}  // namespace

int main(int argc, char** argv) try {
  std::string data = "examples/data";
  std::filesystem::path kept;
  bool all_precisions = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--all") == 0) {
      all_precisions = true;
    } else if (std::strcmp(argv[i], "--files") == 0 && i + 1 < argc) {
      kept = argv[++i];
    } else {
      data = argv[i];
    }
  }
  auto images = read_images(data + "/digits-test.bin");
  if (!images) {
    std::fprintf(stderr, "cannot read %s/digits-test.bin\n", data.c_str());
    return 1;
  }

  // No Digits was initialised before: shapes, the number of layers and the missing bias come from the file.
  stele::Report report;
  Digits model = stele::load<Digits>(data + "/digits.pth", {.report = &report}).value();
  std::puts("1  A model trained in PyTorch, loaded into a C++ class\n");
  std::printf(
      "   load<Digits>(\"digits.pth\") fills a class of your own from the file that torch.save wrote: %zu tensors\n"
      "   of %zu numbers, in three layers. One layer was trained without a bias; its std::optional stays empty.\n",
      report.count(stele::Report::What::applied), static_cast<std::size_t>(stele::num_params(model)));
  const Digits other = stele::load<Digits>(data + "/digits.safetensors").value();
  std::printf("   It recognises %.2f %% of %zu images. The same model in digits.safetensors differs by %g.\n\n",
              100 * accuracy(model, *images), images->count, largest_error(model, other));

  const auto temporary = std::filesystem::temp_directory_path() / "stele-digits";
  Demo demo{std::move(model), std::move(*images), kept.empty() ? temporary : kept, all_precisions};
  if (kept.empty()) std::filesystem::remove_all(temporary);
  std::filesystem::create_directories(demo.folder);
  if (!std::filesystem::is_empty(demo.folder)) {
    std::fprintf(stderr, "%s is not empty: name a new or empty folder\n", demo.folder.c_str());
    return 1;
  }
  std::puts("2  The same model in every format: bytes of the file, time to open and load it\n");
  if (all_precisions) {
    std::puts("recorder      precision        size   largest err   accuracy       open          load");
  }
  // Every recorder of the library, some with several encodings.
  demo.rows("binary", []<class P>(P) { return stele::BinaryRecorder<P>(); });
  demo.rows("compressed", []<class P>(P) { return stele::CompressedRecorder<P>(); });
  demo.rows("bytes", []<class P>(P) { return stele::BytesRecorder<P>(); });
  demo.rows("safetensors", []<class P>(P) { return stele::SafetensorsRecorder<P>(); });
  demo.rows("sharded", []<class P>(P) {
    return stele::ShardedSafetensorsRecorder<P>(stele::ShardedSafetensorsFormat(8000));  // bytes in a file
  });
  demo.rows("npz", []<class P>(P) { return stele::NpzRecorder<P>(); });
  demo.rows("json.zst", []<class P>(P) { return stele::JsonRecorder<P>(); });
  demo.rows("json.gz", []<class P>(P) {
    return stele::JsonRecorder<P>(stele::JsonFormat({.encoding = stele::JsonEncoding::gzip}));
  });
  demo.rows("json", []<class P>(P) {
    return stele::JsonRecorder<P>(stele::JsonFormat({.encoding = stele::JsonEncoding::plain}));
  });
  demo.rows("json text", []<class P>(P) {  // tensors as decimal numbers
    return stele::JsonRecorder<P>(
        stele::JsonFormat({.encoding = stele::JsonEncoding::plain, .pretty = true, .numbers_up_to = UINT64_MAX}));
  });
  demo.rows("pytorch", []<class P>(P) { return stele::PytorchRecorder<P>(); });
  demo.rows("archive", []<class P>(P) { return stele::ArchiveRecorder<P>(); });
  demo.rows("samediff", []<class P>(P) { return stele::SameDiffRecorder<P>(); });
  demo.rows("sdnb", []<class P>(P) { return stele::SameDiffRecorder<P>(stele::SameDiffContainer::sdnb); });
  demo.rows("sdz", []<class P>(P) { return stele::SameDiffRecorder<P>(stele::SameDiffContainer::sdz); });
  // Burn's .bin files and Paddle's files store tensors by position, without names.
  demo.options.layout = stele::layout_of(stele::snapshot_of(demo.model).value()).value();
  const auto burn = [&](const char* name, stele::BurnEncoding encoding, bool gzip) {
    const stele::BurnFormat format({.encoding = encoding, .gzip = gzip, .schema = stele::schema_of<Digits>()});
    demo.rows(name, [&]<class P>(P) { return stele::BurnRecorder<P>(format); });
  };
  burn("burn mpk", stele::BurnEncoding::mpk, false);
  burn("burn mpk.gz", stele::BurnEncoding::mpk, true);
  burn("burn bin", stele::BurnEncoding::bin, false);
  burn("burn json", stele::BurnEncoding::json, false);
  burn("burn json.gz", stele::BurnEncoding::json, true);
  demo.rows("burnpack", []<class P>(P) { return stele::BurnpackRecorder<P>(); });
  demo.rows("paddle", []<class P>(P) { return stele::PaddleRecorder<P>(); });
  demo.rows("paddle folder",
            []<class P>(P) { return stele::PaddleRecorder<P>(stele::PaddleFormat({.folder = true})); });
  demo.options.layout.reset();
  // NNEF has no bfloat16. It stores quantized tensors with their range, GGUF in blocks.
  demo.options.dequantize = true;
  const auto nnef = [&](const char* name, stele::NnefOptions how) {
    const stele::NnefFormat format(how);
    demo.row(name, "native", stele::NnefRecorder<>(format));
    if (!all_precisions) return;
    demo.row(name, "double", stele::NnefRecorder<stele::DoublePrecision>(format));
    demo.row(name, "half", stele::NnefRecorder<stele::HalfPrecision>(format));
    demo.row(name, "8 bits", stele::NnefRecorder<stele::Quantized8>(format));
    demo.row(name, "4 bits", stele::NnefRecorder<stele::Quantized4>(format));
  };
  demo.rows("gguf", []<class P>(P) { return stele::GgufRecorder<P>(); });
  if (all_precisions) {
    demo.row("gguf", "q8_0", stele::GgufRecorder<stele::GgufPrecision<stele::ggml::q8_0>>());
    // Rows of 64 are not whole blocks of q4_K: the report tells that q5_0 takes its place.
    demo.row("gguf", "q4_K", stele::GgufRecorder<stele::GgufPrecision<stele::ggml::q4_K>>());
  }
  nnef("nnef", {});
  nnef("nnef.tgz", {.container = stele::NnefContainer::tgz});
  if (demo.cells % 3 != 0) std::puts("");

  std::puts("\n3  Half the size, a quarter: one template argument chooses the precision of a save\n");
  demo.precision_row("f32, as it is", "as-it-is", stele::BinaryRecorder<>());
  demo.precision_row("f16    HalfPrecision", "f16", stele::BinaryRecorder<stele::HalfPrecision>());
  demo.precision_row("bf16   BrainPrecision", "bf16", stele::BinaryRecorder<stele::BrainPrecision>());
  demo.precision_row("8 bits Quantized8", "8-bits", stele::BinaryRecorder<stele::Quantized8>());
  demo.precision_row("q8_0   blocks of llama.cpp", "q8_0",
                     stele::GgufRecorder<stele::BlockPrecision<stele::DType::q8_0>>());
  demo.precision_row("q4_0   blocks of llama.cpp", "q4_0",
                     stele::GgufRecorder<stele::BlockPrecision<stele::DType::q4_0>>());
  if (kept.empty()) std::filesystem::remove_all(demo.folder);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
