// NNEF files for and from tests/formats/nnef/interop/nnef_models.py and make_golden_nnef.py.
//
//   interop_nnef read FOLDER    compares every line of FOLDER/expected.txt with what the recorder reads
//   interop_nnef copy FROM TO   the models and single tensors of FROM, read and written again, in every container
//   interop_nnef write TO       a model of our own, in every container, and single tensors of every dtype
#include <stele/quantize.hpp>
#include <stele/recorders/nnef.hpp>
#include <stele/stele.hpp>
#include <stele/value.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace stele;
namespace fs = std::filesystem;

NnefRecorder<> recorder(const fs::path& path) {
  const std::string name = path.filename().string();
  NnefOptions options;
  options.container = name.ends_with(".dat")   ? NnefContainer::tensor
                      : name.ends_with(".tgz") ? NnefContainer::tgz
                                               : NnefContainer::folder;
  return NnefRecorder<>(NnefFormat(options));
}

Snapshot opened(const fs::path& path) { return recorder(path).open(path.string()).value(); }

/// The label of a path: its segments joined by '/'.
std::string label(const std::string& path) {
  std::string text;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '.') {
      text += '/';
    } else if (path[i] == '\\' && i + 1 < path.size()) {
      if (path[++i] != 'e') text += path[i];
    } else {
      text += path[i];
    }
  }
  return text;
}

std::vector<std::byte> bytes_of(const LeafView& leaf) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(leaf.byte_size()));
  leaf.read(0, bytes).value();
  return bytes;
}

std::string hex(std::span<const std::byte> bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte b : bytes) {
    text += {digits[std::to_integer<unsigned>(b) >> 4], digits[std::to_integer<unsigned>(b) & 15U]};
  }
  return text.empty() ? "-" : text;
}

std::vector<std::byte> unhex(const std::string& text) {
  std::vector<std::byte> bytes;
  if (text == "-") return bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string shape_text(std::span<const Extent> shape) {
  std::string text;
  for (const Extent e : shape) text += (text.empty() ? "" : "x") + std::to_string(e);
  return text.empty() ? "-" : text;
}

/// Returns true if the floats equal `real`, given as f64, up to their rounding.
bool close(const LeafView& leaf, const std::vector<std::byte>& real) {
  if (real.size() != leaf.size() * 8) return false;
  const std::vector<std::byte> bytes = bytes_of(leaf);
  for (std::size_t k = 0; k < leaf.size(); ++k) {
    double expected = 0;
    std::memcpy(&expected, &real[k * 8], 8);
    double found = 0;
    if (leaf.dtype() == DType::f64) {
      std::memcpy(&found, &bytes[k * 8], 8);
    } else if (leaf.dtype() == DType::f32) {
      float f = 0;
      std::memcpy(&f, &bytes[k * 4], 4);
      found = f;
    } else {
      return false;
    }
    const double slack = leaf.dtype() == DType::f64 ? 1e-12 : 1e-6;
    if (!(std::fabs(found - expected) <= slack * std::max(1.0, std::fabs(expected)))) return false;
  }
  return true;
}

/// The dtype of items that expected.txt calls `kind`: the next wider one.
std::string dtype_of(const std::string& kind) {
  const std::string letter = kind.substr(kind[0] == 'q' ? 1 : 0, 1);
  if (letter != "u" && letter != "i") return kind;
  const unsigned long wanted = std::stoul(kind.substr(kind.find(letter) + 1));
  return letter + std::to_string(std::bit_ceil(std::max(wanted, 8UL)));
}

/// The first difference between a tensor and a line of expected.txt, or nothing.
std::string difference(const Snapshot& snapshot, std::size_t i, const std::string& kind, const std::string& shape,
                       const std::vector<std::byte>& stored, const std::string& meaning) {
  const LeafView leaf = snapshot.leaf(i);
  if (name(leaf.dtype()) != dtype_of(kind)) return "is " + std::string(name(leaf.dtype()));
  if (leaf.dtype() != DType::opaque && shape_text(leaf.shape()) != shape) {
    return "has the shape " + shape_text(leaf.shape());
  }
  if (bytes_of(leaf) != stored) return "has the bytes " + hex(bytes_of(leaf));
  if (meaning.empty()) return "";
  // Limits for each channel are kept as the text that they are.
  if (leaf.annotations() != nullptr && leaf.annotations()->contains("nnef.quantization")) return "";
  const auto real = dequantize(snapshot, {snapshot.leaf(i).path()});
  if (!real) return real.error().to_string();
  return close(real->leaf(i), unhex(meaning)) ? "" : "means " + hex(bytes_of(real->leaf(i)));
}

int read(const fs::path& folder) {
  std::ifstream lines(folder / "expected.txt");
  std::size_t good = 0;
  std::size_t bad = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string what, kind, shape, content, meaning;
    std::getline(fields, what, '\t') && std::getline(fields, kind, '\t') && std::getline(fields, shape, '\t') &&
        std::getline(fields, content, '\t') && std::getline(fields, meaning, '\t');
    const std::string file = what.substr(0, what.find(':'));
    std::string found;
    const auto snapshot = recorder(file).open((folder / file).string());
    if (!snapshot) {
      found = snapshot.error().to_string();
    } else if (file == what) {
      found = snapshot->leaf_count() != 1 ? "has " + std::to_string(snapshot->leaf_count()) + " tensors" : "";
    }
    std::optional<std::size_t> number;
    for (std::size_t i = 0; snapshot && i < snapshot->leaf_count(); ++i) {
      const std::string here = label(snapshot->leaf(i).path());
      if (file == what || here == what.substr(file.size() + 1) || "/" + here == what.substr(file.size() + 1))
        number = i;
    }
    if (found.empty()) {
      found = number ? difference(*snapshot, *number, kind, shape, unhex(content), meaning) : "is not there";
    }
    ++(found.empty() ? good : bad);
    if (!found.empty())
      std::printf("%s: %s, %s\n", what.c_str(), line.substr(what.size() + 1, 60).c_str(), found.c_str());
  }
  std::printf("%zu tensors as expected, %zu not\n", good, bad);
  return good > 0 && bad == 0 ? 0 : 1;
}

void copy(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  const auto again = [](const Snapshot& snapshot, const fs::path& path) {
    recorder(path).save(snapshot, path.string()).value();
  };
  again(opened(from / "model.nnef"), to / "folder-folder.nnef");
  again(opened(from / "model.nnef"), to / "folder-tgz.nnef.tgz");
  again(opened(from / "model.nnef.tgz"), to / "tgz-folder.nnef");
  again(opened(from / "model.dot.nnef.tgz"), to / "dot-tgz.nnef.tgz");
  again(opened(from / "model.nnef.tar"), to / "tar-folder.nnef");
  again(opened(from / "by_hand/text.nnef"), to / "text.nnef");
  for (const char* folder : {"types", "by_hand"}) {
    fs::create_directories(to / folder);
    for (const auto& file : fs::directory_iterator(from / folder)) {
      if (file.path().extension() != ".dat") continue;
      if (file.path().stem() == "logarithmic_0x11_8_signed") continue;  // no operation of today says it
      const Snapshot snapshot = opened(file.path());
      const Annotations* notes = snapshot.leaf(0).annotations();
      // A .dat file alone does not say what quantized numbers mean.
      const bool means = notes != nullptr && notes->contains(std::string(quantization_key));
      fs::path copied = to / folder / file.path().filename();
      again(snapshot, means ? copied.replace_extension(".nnef") : copied);
    }
  }
}

/// By the rule of values() in make_golden_nnef.py, without what is special of floats.
template <class T>
Tensor<T> counted(const Shape& shape) {
  Tensor<T> t(shape);
  for (std::size_t k = 0; k < t.size(); ++k) {
    if constexpr (std::is_same_v<T, bool>) {
      t[k] = k % 3 == 1;
    } else if constexpr (std::is_unsigned_v<T>) {
      t[k] = static_cast<T>(k % 7);
    } else if constexpr (std::is_integral_v<T>) {
      t[k] = static_cast<T>(static_cast<int>(k % 7) - 2);
    } else {
      t[k] = T(static_cast<float>(static_cast<int>(k % 7) - 2));
    }
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (k < 3)
        t[k] = k == 0 ? std::numeric_limits<T>::min() : static_cast<T>(std::numeric_limits<T>::max() - (k - 1));
    }
  }
  return t;
}

struct Types {
  Tensor<float16> f16;
  Tensor<float> f32;
  Tensor<double> f64;
  Tensor<std::int8_t> i8;
  Tensor<std::uint8_t> u8;
  Tensor<std::int16_t> i16;
  Tensor<std::uint16_t> u16;
  Tensor<std::int32_t> i32;
  Tensor<std::uint32_t> u32;
  Tensor<std::int64_t> i64;
  Tensor<std::uint64_t> u64;
  Tensor<bool> mask;
  STELE_MODULE(Types, f16, f32, f64, i8, u8, i16, u16, i32, u32, i64, u64, mask)
};

Types types(const Shape& s) {
  return {counted<float16>(s),       counted<float>(s),        counted<double>(s),        counted<std::int8_t>(s),
          counted<std::uint8_t>(s),  counted<std::int16_t>(s), counted<std::uint16_t>(s), counted<std::int32_t>(s),
          counted<std::uint32_t>(s), counted<std::int64_t>(s), counted<std::uint64_t>(s), counted<bool>(s)};
}

struct Layer {
  Tensor<float> weight;
  Tensor<float> bias;
  STELE_MODULE(Layer, weight, bias)
};

struct Model {
  Types flat;
  Types scalars;
  std::vector<Layer> layers;
  Tensor<float> rank8;
  STELE_MODULE(Model, flat, scalars, layers, rank8)
};

/// Without what ends the program that uses the C++ reader (f16), or what it narrows (f64, 64 bits).
struct Plain {
  Layer conv;
  Tensor<std::int32_t> i32;
  Tensor<std::uint8_t> u8;
  Tensor<std::int16_t> i16;
  Tensor<bool> mask;
  STELE_MODULE(Plain, conv, i32, u8, i16, mask)
};

template <class T>
struct One {
  Tensor<T> only;
  STELE_MODULE(One, only)
};

template <class T>
void one(const fs::path& path) {
  const One<T> module{counted<T>({3, 5})};
  recorder(path).save(module, path.string()).value();
}

void write(const fs::path& to) {
  fs::create_directories(to / "types");
  Model model{types({3, 5}), types({}), {}, counted<float>({2, 3, 1, 2, 1, 2, 1, 2})};
  for (std::size_t i = 1; i <= 2; ++i) model.layers.push_back({counted<float>({i, 3}), counted<float>({i})});
  for (const char* name : {"own.nnef", "own.nnef.tgz"}) recorder(name).save(model, (to / name).string()).value();
  const Plain plain{{counted<float>({4, 2, 3, 3}), counted<float>({1, 4})},
                    counted<std::int32_t>({7}),
                    counted<std::uint8_t>({2, 7}),
                    counted<std::int16_t>({7, 1}),
                    counted<bool>({11})};
  recorder("plain.nnef").save(plain, (to / "plain.nnef").string()).value();
  Layer layer{Tensor<float>({8, 32}), counted<float>({7})};
  for (std::size_t k = 0; k < layer.weight.size(); ++k) layer.weight[k] = std::sin(static_cast<float>(k * k));
  for (const char* name : {"quantized.nnef", "quantized.nnef.tgz"}) {
    const Snapshot snapshot = quantize(snapshot_of(layer).value(), {.patterns = {"weight"}}).value();
    recorder(name).save(snapshot, (to / name).string()).value();
  }
  one<float16>(to / "types/f16.dat");
  one<float>(to / "types/f32.dat");
  one<double>(to / "types/f64.dat");
  one<std::int8_t>(to / "types/i8.dat");
  one<std::uint8_t>(to / "types/u8.dat");
  one<std::int16_t>(to / "types/i16.dat");
  one<std::uint16_t>(to / "types/u16.dat");
  one<std::int32_t>(to / "types/i32.dat");
  one<std::uint32_t>(to / "types/u32.dat");
  one<std::int64_t>(to / "types/i64.dat");
  one<std::uint64_t>(to / "types/u64.dat");
  one<bool>(to / "types/bool.dat");
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string order = argc > 2 ? argv[1] : "";
  if (order == "read" && argc == 3) return read(argv[2]);
  if (order == "copy" && argc == 4) {
    copy(argv[2], argv[3]);
  } else if (order == "write" && argc == 3) {
    write(argv[2]);
  } else {
    std::fprintf(stderr, "usage: interop_nnef read FOLDER | copy FROM TO | write TO\n");
    return 2;
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
