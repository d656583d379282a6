// Loads a digits classifier that was trained in PyTorch, saves it at several precisions, loads each file and classifies
// the test images again. `make demo` runs it; every_format.cpp saves the same model with every recorder.
//
//     digits [DATA [FOLDER]]
//
// DATA is examples/data. The saved files stay in FOLDER.
#include <cstdio>
#include <filesystem>
#include <string>

#include "digits.hpp"
#include "stele/stele.hpp"

namespace {

/// Saves the model, loads the file, classifies the images and prints a row.
void save_and_test(const Digits& model, const Images& images, const std::filesystem::path& file, const char* stored_as,
                   stele::PrecisionSpec precision) {
  stele::save(model, file, {.precision = precision}).value();
  const auto again = stele::load<Digits>(file, {.dequantize = true}).value();
  std::printf("   %-28s %6zu B   largest error %8.2e   %6.2f %% right\n", stored_as,
              static_cast<std::size_t>(std::filesystem::file_size(file)), largest_error(model, again),
              100 * accuracy(again, images));
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string data = argc > 1 ? argv[1] : "examples/data";
  const bool keep = argc > 2;
  const std::filesystem::path folder = keep ? argv[2] : std::filesystem::temp_directory_path() / "stele-digits";
  std::filesystem::create_directories(folder);
  const auto images = read_images(data + "/digits-test.bin");
  if (!images) {
    std::fprintf(stderr, "cannot read %s/digits-test.bin\n", data.c_str());
    return 1;
  }

  // No Digits was initialised before: shapes, the number of layers and the missing bias come from the file.
  stele::Report report;
  const Digits model = stele::load<Digits>(data + "/digits.pth", {.report = &report}).value();
  std::puts("1  A model trained in PyTorch, loaded into a C++ class\n");
  std::printf(
      "   load<Digits>(\"digits.pth\") fills a class of your own from the file that torch.save wrote: %zu tensors\n"
      "   of %zu numbers, in three layers. One layer was trained without a bias; its std::optional stays empty.\n",
      report.count(stele::Report::What::applied), static_cast<std::size_t>(stele::num_params(model)));
  const Digits other = stele::load<Digits>(data + "/digits.safetensors").value();
  std::printf("   It recognises %.2f %% of %zu images. The same model in digits.safetensors differs by %g.\n\n",
              100 * accuracy(model, *images), images->count, largest_error(model, other));

  std::puts("2  Half the size, a quarter: one option chooses the precision of a save\n");
  const auto row = [&](const char* stored_as, const char* file, stele::PrecisionSpec precision) {
    save_and_test(model, *images, folder / file, stored_as, precision);
  };
  row("f32, as it is", "f32.stele", {});
  row("f16    HalfPrecision", "f16.stele", stele::HalfPrecision{});
  row("bf16   BrainPrecision", "bf16.stele", stele::BrainPrecision{});
  row("8 bits Quantized8", "8-bits.stele", stele::Quantized8{});
  row("q8_0   blocks of llama.cpp", "q8_0.gguf", stele::BlockPrecision<stele::DType::q8_0>{});
  row("q4_0   blocks of llama.cpp", "q4_0.gguf", stele::BlockPrecision<stele::DType::q4_0>{});
  std::puts("");
  if (!keep) std::filesystem::remove_all(folder);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
