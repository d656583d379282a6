// The digits model of examples/data at half precision, read and used where it lies in flash. The model is a file, or in
// the header that `stele embed` made.
#include <stele/precision/element.hpp>
#include <stele/recorders/stele_reader.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "board.hpp"
#include "hash.hpp"

#ifdef MODEL_HEADER
#include MODEL_HEADER
#define INCLUDE_MODEL ""
#else
#define INCLUDE_MODEL ".incbin \"" MODEL "\"\n"
#endif

// MODEL and IMAGES are files that the host made; the model's blocks are aligned to 64 bytes.
asm(".section .model,\"a\"\n"
    ".balign 64\n"
    "model_begin:\n" INCLUDE_MODEL "images_begin: .incbin \"" IMAGES
    "\"\n"
    "images_end:\n"
    ".previous\n");
extern "C" const std::byte model_begin[], images_begin[], images_end[];

namespace {

constexpr std::size_t pixels = 64;

/// A tensor of f16 in flash. One number at a time is converted.
class Half {
 public:
  /// False: no such tensor, another dtype or number of elements.
  bool find(const stele::format::MemoryFile& file, std::string_view path, std::size_t count) {
    stele::format::TensorBytes tensor;
    if (file.tensor(path, tensor, xxh3) || tensor.entry.dtype != stele::DType::f16) return false;
    bytes_ = tensor.bytes;
    return bytes_.size() == count * 2;
  }
  float operator[](std::size_t i) const {
    const auto bits = stele::detail::load_le<std::uint16_t>(bytes_.data() + 2 * i);
    return static_cast<float>(stele::float16::from_bits(bits));
  }
  const std::byte* data() const { return bytes_.data(); }

 private:
  std::span<const std::byte> bytes_{};
};

struct Linear {
  Half weight, bias;
  void operator()(std::span<const float> x, std::span<float> y, bool with_bias) const {
    for (std::size_t o = 0; o < y.size(); ++o) {
      y[o] = 0;
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += weight[o * x.size() + i] * x[i];
      if (with_bias) y[o] += bias[o];
    }
  }
};

struct Digits {
  Half mean, scale;
  Linear first, second, head;

  bool open(const stele::format::MemoryFile& file) {
    return mean.find(file, "normalize.mean", pixels) && scale.find(file, "normalize.scale", pixels) &&
           first.weight.find(file, "hidden.0.weight", 48 * pixels) && first.bias.find(file, "hidden.0.bias", 48) &&
           second.weight.find(file, "hidden.1.weight", 32 * 48) && head.weight.find(file, "head.weight", 10 * 32) &&
           head.bias.find(file, "head.bias", 10);
  }
  unsigned operator()(const std::byte* image) const {
    std::array<float, pixels> x;
    std::array<float, 48> a;
    std::array<float, 32> b;
    std::array<float, 10> y;
    for (std::size_t i = 0; i < pixels; ++i) x[i] = (static_cast<float>(image[i]) - mean[i]) * scale[i];
    first(x, a, true);
    for (float& v : a) v = std::max(v, 0.0F);
    second(a, b, false);
    for (float& v : b) v = std::max(v, 0.0F);
    head(b, y, true);
    return static_cast<unsigned>(std::max_element(y.begin(), y.end()) - y.begin());
  }
};

}  // namespace

int run() {
  stele::format::MemoryFile file;
#ifdef MODEL_HEADER
  const std::span<const std::byte> flash = digits();
#else
  // More than the file: what lies behind it in flash is no part of it.
  const std::span<const std::byte> flash(model_begin, images_end);
#endif
  if (const auto fault = file.open(flash, xxh3)) {
    board::print_fault(static_cast<unsigned>(fault.code), static_cast<unsigned>(fault.offset));
    return 1;
  }
  Digits model;
  if (!model.open(file)) {
    board::print("not the model of examples/data\n");
    return 1;
  }
  const std::byte* const weight = model.first.weight.data();
  if (weight < flash.data() || weight >= flash.data() + flash.size()) return 1;  // not in flash
  for (const std::byte* image = images_begin; image != images_end; image += pixels) {
    board::print(model(image));
    board::print("\n");
  }
  board::print("stack: ");
  board::print(board::stack_used());
  board::print(" bytes\n");
  return 0;
}
