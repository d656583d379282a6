// Burn records made by hand, and checks of the recorder's results.
#pragma once

#include <stele/recorders/burn.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"

namespace burn_bytes {

using namespace stele;
using namespace stele_test;

// ---- MessagePack and bincode by hand

inline std::string big(std::uint64_t n, int size) {
  std::string text;
  while (size-- != 0) text += static_cast<char>(n >> (8 * size));
  return text;
}
inline std::string str(std::string_view text) {
  const std::string size = text.size() < 32      ? big(0xa0 + text.size(), 1)
                           : text.size() < 65536 ? "\xda" + big(text.size(), 2)
                                                 : "\xdb" + big(text.size(), 4);
  return size + std::string(text);
}
inline std::string bin(std::string_view bytes) { return "\xc5" + big(bytes.size(), 2) + std::string(bytes); }
inline std::string list(const std::vector<std::string>& values) {
  std::string text = big(0x90 + values.size(), 1);
  for (const auto& value : values) text += value;
  return text;
}
using Entries = std::vector<std::pair<std::string, std::string>>;
inline std::string map(const Entries& entries) {
  std::string text = big(0x80 + entries.size(), 1);
  for (const auto& [key, value] : entries) text += str(key) + value;
  return text;
}
inline const std::string id = "72d17eukbtkma", format = "burn_core::record::file::BinFileRecorder<>";
inline std::string heading(const std::string& version = "0.21.0", const std::string& floats = "f32",
                           const std::string& settings = "FullPrecisionSettings") {
  return map({{"float", str(floats)},
              {"int", str("i32")},
              {"format", str(format)},
              {"version", str(version)},
              {"settings", str(settings)}});
}
inline std::string mpk(const std::string& item, const std::string& head = heading()) {
  return map({{"metadata", head}, {"item", item}, {"_b", list({})}});
}
inline const std::size_t item_at = mpk("").find(str("item")) + 5;
inline const std::string f32 = str("F32"), two = list({"\2"}), nil = "\xc0";
inline std::string tensor(const std::string& bytes = bin("12345678"), const std::string& shape = two,
                          const std::string& dtype = f32) {
  return map({{"bytes", bytes}, {"shape", shape}, {"dtype", dtype}});
}
inline std::string param(const std::string& of = tensor(), std::string_view name = id) {
  return map({{"id", str(name)}, {"param", of}});
}
/// Returns a module with one field w.
inline std::string of(const std::string& w) { return mpk(map({{"w", w}})); }

inline std::string number(std::uint64_t n) { return n < 0xfb ? big(n, 1) : "\xfb" + big(n & 0xff, 1) + big(n >> 8, 1); }
inline std::string text(std::string_view text) { return number(text.size()) + std::string(text); }
inline std::string binary(const std::string& item, const std::string& version = "0.21.0",
                          const std::string& floats = "f32") {
  return text(floats) + text("i32") + text(format) + text(version) + text("FullPrecisionSettings") + item;
}
inline std::string bin_tensor(const std::string& bytes = "12345678", const std::string& shape = "\1\2",
                              const std::string& dtype = "\1") {
  return number(bytes.size()) + bytes + shape + dtype;
}
inline std::string bin_param(std::string_view name = id) { return text(name) + bin_tensor(); }

// ---- reading them

struct Small {
  Vec weight;
  std::optional<Vec> bias;
  std::vector<Mat> list;
  std::variant<Vec, Mat> choice;
  static constexpr Attribute stele_attributes[] = {
      attr::burn_layout("weight, bias, list, choice, groups, act(3 Relu)")};
};
inline Small small() {
  Small s;
  s.weight = vec({1, 2, 3});
  s.bias = Vec(vec({4}));
  s.list.resize(2, Mat(mat(2, 2, 5)));
  s.choice.emplace<1>(mat(1, 2, 9));
  return s;
}
struct State {
  bool flag = false;
  std::int32_t n = 0;
  float16 half;
  std::map<std::string, Tensor<float>> m;
  static constexpr Attribute stele_attributes[] = {attr::burn_record()};
  STELE_MODULE(State, flag, n, half, m)
};
struct One {
  Vec w;
};
struct Two {
  Vec a, b;
};
struct Reversed {
  Vec b, a;
};
struct Three {
  Vec a, b;
  std::optional<Vec> c;
};

inline BurnRecorder<> recorder_of(BurnOptions options) { return BurnRecorder<>(BurnFormat(std::move(options))); }
template <class M>
inline BurnRecorder<> along() {
  BurnOptions options;
  options.schema = schema_of<M>();
  return recorder_of(std::move(options));
}
/// Opens and reads the whole file. Returns the error's code, or none.
inline Errc outcome(std::string_view file, const BurnRecorder<>& recorder = {}) {
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) {
    CHECK(opened.error().code() != Errc::out_of_memory);
    CHECK(opened.error().code() != Errc::io);
    return opened.error().code();
  }
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const auto all = content(opened->leaf(i));
    if (all) REQUIRE(all->size() == opened->leaf(i).byte_size());
  }
  return Errc::none;
}
/// Returns the error of a file that must not open.
inline Error refused(std::string_view file, Errc code, const BurnRecorder<>& recorder = {}) {
  Error error = bad(recorder.open(bytes_of(file)));
  CAPTURE(error.to_string());
  CHECK(name(error.code()) == name(code));
  CHECK(error.file().find("memory") != std::string::npos);
  return error;
}

}  // namespace burn_bytes
