// Saves the digits classifier with every recorder at several precisions, loads each file, classifies the test images
// again, and prints a table of sizes, errors and times. `make demo ALL=1` runs it.
//
//     every_format [DATA [FOLDER]]
//
// DATA is examples/data. The saved files stay in FOLDER, which must be new or empty.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "digits.hpp"
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

struct Table {
  Digits model;
  Images images;
  std::filesystem::path folder;
  stele::LoadOptions options{};

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

  /// Prints one row.
  template <class Recorder>
  void row(const char* recorder_name, std::string_view precision, const Recorder& recorder) {
    const Saved saved = measure(std::string(recorder_name) + "-" + std::string(precision), recorder);
    if (precision == "native" && saved.error != 0) {
      throw std::runtime_error(std::string(recorder_name) + ": the numbers have changed");
    }
    std::printf("%-13s %-10s %8zu B   %9.2e   %6.2f %%   %8.1f us   %8.1f us\n", recorder_name, precision.data(),
                saved.bytes, saved.error, saved.right, saved.open_us, saved.load_us);
  }

  /// Prints a row for each of four precisions.
  template <class Make>
  void rows(const char* recorder_name, Make recorder) {
    row(recorder_name, "native", recorder(stele::NativePrecision{}));
    row(recorder_name, "double", recorder(stele::DoublePrecision{}));
    row(recorder_name, "half", recorder(stele::HalfPrecision{}));
    row(recorder_name, "bfloat16", recorder(stele::BrainPrecision{}));
  }
};

}  // namespace

int main(int argc, char** argv) try {
  const std::string data = argc > 1 ? argv[1] : "examples/data";
  const bool keep = argc > 2;
  const std::filesystem::path folder = keep ? argv[2] : std::filesystem::temp_directory_path() / "stele-every-format";
  if (!keep) std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  if (!std::filesystem::is_empty(folder)) {
    std::fprintf(stderr, "%s is not empty: name a new or empty folder\n", folder.c_str());
    return 1;
  }
  auto images = read_images(data + "/digits-test.bin");
  if (!images) {
    std::fprintf(stderr, "cannot read %s/digits-test.bin\n", data.c_str());
    return 1;
  }
  Table table{stele::load<Digits>(data + "/digits.pth").value(), std::move(*images), folder};

  std::puts("5  The same model in every format, at several precisions\n");
  std::puts("recorder      precision        size   largest err   accuracy       open          load");
  // Every recorder of the library, some with several encodings.
  table.rows("binary", []<class P>(P) { return stele::BinaryRecorder<P>(); });
  table.rows("compressed", []<class P>(P) { return stele::CompressedRecorder<P>(); });
  table.rows("bytes", []<class P>(P) { return stele::BytesRecorder<P>(); });
  table.rows("safetensors", []<class P>(P) { return stele::SafetensorsRecorder<P>(); });
  table.rows("sharded", []<class P>(P) {
    return stele::ShardedSafetensorsRecorder<P>(stele::ShardedSafetensorsFormat(8000));  // bytes in a file
  });
  table.rows("npz", []<class P>(P) { return stele::NpzRecorder<P>(); });
  table.rows("json.zst", []<class P>(P) { return stele::JsonRecorder<P>(); });
  table.rows("json.gz", []<class P>(P) {
    return stele::JsonRecorder<P>(stele::JsonFormat({.encoding = stele::JsonEncoding::gzip}));
  });
  table.rows("json", []<class P>(P) {
    return stele::JsonRecorder<P>(stele::JsonFormat({.encoding = stele::JsonEncoding::plain}));
  });
  table.rows("json text", []<class P>(P) {  // tensors as decimal numbers
    return stele::JsonRecorder<P>(
        stele::JsonFormat({.encoding = stele::JsonEncoding::plain, .pretty = true, .numbers_up_to = UINT64_MAX}));
  });
  table.rows("pytorch", []<class P>(P) { return stele::PytorchRecorder<P>(); });
  table.rows("archive", []<class P>(P) { return stele::ArchiveRecorder<P>(); });
  table.rows("samediff", []<class P>(P) { return stele::SameDiffRecorder<P>(); });
  table.rows("sdnb", []<class P>(P) { return stele::SameDiffRecorder<P>(stele::SameDiffContainer::sdnb); });
  table.rows("sdz", []<class P>(P) { return stele::SameDiffRecorder<P>(stele::SameDiffContainer::sdz); });
  // Burn's .bin files and Paddle's files store tensors by position, without names.
  table.options.layout = stele::layout_of(stele::snapshot_of(table.model).value()).value();
  const auto burn = [&](const char* name, stele::BurnEncoding encoding, bool gzip) {
    const stele::BurnFormat format({.encoding = encoding, .gzip = gzip, .schema = stele::schema_of<Digits>()});
    table.rows(name, [&]<class P>(P) { return stele::BurnRecorder<P>(format); });
  };
  burn("burn mpk", stele::BurnEncoding::mpk, false);
  burn("burn mpk.gz", stele::BurnEncoding::mpk, true);
  burn("burn bin", stele::BurnEncoding::bin, false);
  burn("burn json", stele::BurnEncoding::json, false);
  burn("burn json.gz", stele::BurnEncoding::json, true);
  table.rows("burnpack", []<class P>(P) { return stele::BurnpackRecorder<P>(); });
  table.rows("paddle", []<class P>(P) { return stele::PaddleRecorder<P>(); });
  table.rows("paddle folder",
             []<class P>(P) { return stele::PaddleRecorder<P>(stele::PaddleFormat({.folder = true})); });
  table.options.layout.reset();
  // NNEF has no bfloat16. It stores quantized tensors with their range, GGUF in blocks.
  table.options.dequantize = true;
  const auto nnef = [&](const char* name, stele::NnefOptions how) {
    const stele::NnefFormat format(how);
    table.row(name, "native", stele::NnefRecorder<>(format));
    table.row(name, "double", stele::NnefRecorder<stele::DoublePrecision>(format));
    table.row(name, "half", stele::NnefRecorder<stele::HalfPrecision>(format));
    table.row(name, "8 bits", stele::NnefRecorder<stele::Quantized8>(format));
    table.row(name, "4 bits", stele::NnefRecorder<stele::Quantized4>(format));
  };
  table.rows("gguf", []<class P>(P) { return stele::GgufRecorder<P>(); });
  table.row("gguf", "q8_0", stele::GgufRecorder<stele::GgufPrecision<stele::ggml::q8_0>>());
  // Rows of 64 are not whole blocks of q4_K: the report tells that q5_0 takes its place.
  table.row("gguf", "q4_K", stele::GgufRecorder<stele::GgufPrecision<stele::ggml::q4_K>>());
  nnef("nnef", {});
  nnef("nnef.tgz", {.container = stele::NnefContainer::tgz});
  std::puts("");
  if (!keep) std::filesystem::remove_all(folder);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
